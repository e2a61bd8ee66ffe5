"""The validated arguments of `superopt.optimize`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from superopt.algebra.dim_binding import DimBinding
from superopt.budget import duration_seconds
from superopt.cost.prices import Prices, load_prices
from superopt.flows.options import MOVES, Options
from superopt.kernels.library import compiler, native_target
from superopt.model.dimensions import size_combinations
from superopt.policy import CHECK
from superopt.rules.fp_flags import FpMode
from superopt.rules.rule import Rule
from superopt.rules.user_rules import load_user_rules
from superopt.runtime.cache import Json, default_path
from superopt.runtime.check import CheckSettings
from superopt.runtime.hardware import core_count
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Device


@dataclass(frozen=True)
class OptimizationSettings:
    """The validated arguments of `superopt.optimize`. The docstring of `superopt.optimize` describes the arguments.

    Attributes:
        prices: The predicted times of nodes on the device of `device_profile`, or None if times are measured on this machine.
        user_rules: The user's rules in the files and folders `rules`.
        device: The device on which sessions run. If times are predicted, the device is the CPU.

    Raises:
        CompilerError, ProviderError, RuntimeMissingError, ProfileError, StoreError, ValueError: See `superopt.optimize`.
    """

    provider: str
    budget: float | None
    seed: int
    threads: int | None
    cuda_graph: bool
    shapes: Sequence[Mapping[str, int]]
    cache: Path
    tune: bool
    ort_config: bool
    tolerance: float
    growth: float | None
    moves: Sequence[str]
    fp: str
    rules: Sequence[str | os.PathLike[str]]
    device_profile: str | os.PathLike[str] | None
    allow_contrib: bool
    kernels: bool
    opset: int | None
    prices: Prices | None = field(init=False)
    device: Device = field(init=False)
    user_rules: tuple[Rule, ...] = field(init=False)

    def __post_init__(self) -> None:
        for name, whole, least, optional in (
            ("seed", True, 0, False),
            ("threads", True, 1, True),
            ("opset", True, 1, True),
            ("tolerance", False, 1, False),
            ("budget", False, 0, True),
            ("growth", False, 0, True),
        ):
            given = getattr(self, name)
            if given is None and optional:
                continue
            kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
            if isinstance(given, bool) or not isinstance(given, kinds):
                raise ValueError(f"{name} must be a {'whole ' * whole}number, not {given!r}")
            if not least <= given < math.inf:
                raise ValueError(f"{name} must be a number of at least {least}, not {given!r}")
            object.__setattr__(self, name, int(given) if whole else float(given))
        if isinstance(self.moves, str):
            raise ValueError(f"moves must be a sequence of texts, not the single text {self.moves!r}")
        if unknown := set(self.moves) - {*MOVES}:
            raise ValueError(f"unknown move {min(unknown)!r}: expected one of {', '.join(MOVES)}")
        if self.tune and self.device_profile is not None:
            raise ValueError("tune=True cannot be used with a device profile, because tuning measures sessions on the device")
        if self.ort_config and not self.tune:
            raise ValueError("ort_config=True requires tune=True")
        if self.kernels and (self.device_profile is not None or self.provider != "cpu"):
            raise ValueError("kernels=True requires the provider cpu, and cannot be used with a device profile")
        if self.kernels and self.fp == FpMode.PRECISE:
            raise ValueError(
                "kernels=True requires the mode relaxed or fast, because kernels and ONNX Runtime round "
                "different intermediate results"
            )
        if self.kernels:
            compiler()
            native_target()
        if self.fp not in {*FpMode}:
            raise ValueError(f"unknown floating-point mode {self.fp!r}: expected one of {', '.join(FpMode)}")
        prices = None if self.device_profile is None else load_prices(self.device_profile, self.provider)
        device = Device(self.provider if prices is None else "cpu", self.threads or core_count(), self.cuda_graph)
        object.__setattr__(self, "prices", prices)
        object.__setattr__(self, "device", device)
        if isinstance(self.rules, str | os.PathLike):
            raise ValueError("rules must be a sequence of paths, not a single path")
        object.__setattr__(self, "user_rules", tuple(load_user_rules(self.rules)))

    @property
    def mode(self) -> FpMode:
        """The floating-point mode."""
        return FpMode(self.fp)

    @property
    def check(self) -> CheckSettings:
        """The settings of the numerical check of a candidate.

        In fast mode, the check has no adversarial inputs. In precise mode, the check compares bits.
        """
        return CheckSettings(self.tolerance, self.seed, self.mode is not FpMode.FAST, self.mode is FpMode.PRECISE)

    def key(self, sizings: Sequence[DimBinding], source: InputSource) -> list[Json]:
        """Return a cache key for results. The key contains the inputs, the sizes of dynamic dimensions and all relevant
        settings.

        The key is for optimizations without tuning and without a device profile. The key contains neither the model nor the
        code.
        """
        allowed = [*self.moves, self.allow_contrib, self.kernels, self.fp, self.opset]
        searching = [self.budget, self.seed, self.tolerance, self.growth, *allowed]
        own: list[Json] = [[str(rule), *sorted(rule.flags)] for rule in self.user_rules]
        return [self.device.identity, *searching, *own, source.digest, *(sizing.numbers for sizing in sizings)]


def settings_of(options: Options) -> OptimizationSettings:
    """Return the settings of an optimization with these options. Options that are left out have the defaults of `optimize`.

    Raises:
        ProviderError, RuntimeMissingError, ProfileError, StoreError, ValueError: See `superopt.optimize`.
    """
    budget, shapes, cache = options.get("budget"), options.get("shapes", ()), options.get("cache")
    given: object = [shapes] if isinstance(shapes, Mapping) else shapes
    if not isinstance(given, Sequence) or not all(isinstance(choices, Mapping) for choices in given):
        raise ValueError(f"shapes must map names of dimensions to sizes, but shapes is {shapes!r}")
    return OptimizationSettings(
        provider=options.get("provider", "cpu"),
        budget=None if budget is None else duration_seconds(budget),
        seed=options.get("seed", 0),
        threads=options.get("threads"),
        cuda_graph=options.get("cuda_graph", False),
        shapes=[sizes for choices in given for sizes in size_combinations(choices)],
        cache=default_path() if cache is None else Path(cache),
        tune=options.get("tune", False),
        ort_config=options.get("ort_config", False),
        tolerance=options.get("tolerance", CHECK.max_error_factor),
        growth=options.get("growth"),
        moves=options.get("moves", MOVES),
        fp=options.get("fp", FpMode.RELAXED),
        rules=options.get("rules", ()),
        device_profile=options.get("device_profile"),
        allow_contrib=options.get("allow_contrib", False),
        kernels=options.get("kernels", False),
        opset=options.get("opset"),
    )
