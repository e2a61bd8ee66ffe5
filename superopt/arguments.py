"""The grammar of the command line: which commands there are, what they take, and what that is called in the options."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import superopt
from superopt.fp_flags import FpMode
from superopt.model.check import FACTOR
from superopt.optimize import MOVES
from superopt.quantities import choices, extents, factor, positive, seconds, seed, share, shortened, threads
from superopt.store import CORE, SEARCH

MOST_SIZES = 256
"""Combinations of sizes at which a model is optimized at most: it is checked and measured at each."""
WHERE = "cpu (default), cuda or tensorrt"
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class Parser(argparse.ArgumentParser):
    """A parser that does not keep it to itself if its help cannot be printed."""

    def _print_message(self, message: str, file: Any = None) -> None:
        with contextlib.suppress(*(() if file is sys.stdout else (OSError,))):
            (file or sys.stderr).write(message)


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = Parser(prog="superopt", description="A superoptimizer for ONNX models.")
    top.add_argument("--version", action="version", version=f"superopt {superopt.__version__}")
    top.add_argument("--debug", action="store_true", help="show a traceback for an internal error")
    commands = top.add_subparsers(title="commands", required=True, metavar="command")
    _add_optimize(commands)
    _add_profile(commands)
    _add_verify(commands)
    _add_generate(commands)
    _add_prove(commands)
    _add_rules(commands)
    return top


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options that the arguments stand for; the process ends with 2 and a line where they are not understood."""
    top = parser()
    options = top.parse_args(arguments)
    if options.run == "optimize" and options.ort_config and not options.tune:
        top.error("argument --ort-config: writes what tuning finds, so it needs --tune")
    if options.run in ("optimize", "profile"):
        names = [name for name, _ in options.shape]
        if repeated := [name for name in names if names.count(name) > 1]:
            top.error(f"argument --shape: all sizes of {shortened(repeated[0])} belong into one: NAME=N,N")
        if (count := math.prod(len(sizes) for _, sizes in options.shape)) > MOST_SIZES:
            top.error(f"argument --shape: {count} combinations of sizes are more than {MOST_SIZES}")
    return options


def _add_limits(command: argparse.ArgumentParser) -> None:
    about = "error of rounding allowed, as a multiple of the original's (4)"
    command.add_argument("--tolerance", type=factor, default=FACTOR, metavar="FACTOR", help=about)
    about = "how much larger the weights may become, as a share of what they are (3, up to 256 MiB, or 0.5 if more)"
    command.add_argument("--growth", type=share, metavar="SHARE", help=about)


def _add_optimize(commands: Commands) -> None:
    about = "Write a model that computes the same and runs faster, or the same model where none is found."
    command = commands.add_parser("optimize", help="make a model faster", description=about)
    command.add_argument("source", type=Path, metavar="in.onnx", help="the model to optimize")
    command.add_argument("target", type=Path, metavar="out.onnx", help="where to write the result")
    command.add_argument("--provider", default="cpu", help=f"where it will run: {WHERE}")
    command.add_argument(
        "--budget", type=seconds, metavar="TIME", help="time for the search: 90, 60s, 2m (10s to 30s, by size and speed)"
    )
    command.add_argument("--seed", type=seed, default=0, help="seed of every random choice (0)")
    command.add_argument("--threads", type=threads, default=1, metavar="N", help="CPU threads of the sessions (1)")
    about = "optimize for runs that are replayed as a CUDA graph, with the provider cuda"
    command.add_argument("--cuda-graph", action="store_true", help=about)
    about = "sizes of an open dimension of the inputs at which to be fast, given once for each; it stays open"
    command.add_argument("--shape", type=extents, action="append", default=[], metavar="NAME=N,N", help=about)
    about = (
        "measure, first, how sessions should be made (without which of ONNX Runtime's own optimizers, in what layout, with "
        "fewer threads, as a CUDA graph), and optimize for those"
    )
    measuring = command.add_mutually_exclusive_group()
    measuring.add_argument("--tune", action="store_true", help=about)
    written = (
        "write what --tune finds into the model's metadata: the number of threads and the level of optimization under "
        "ort_config, which ONNX Runtime reads where ORT_LOAD_CONFIG_FROM_MODEL=1 is set; optimizers to leave out and options "
        "of a provider, which it cannot read there, under superopt.session_entries and superopt.provider_options"
    )
    command.add_argument("--ort-config", action="store_true", help=written)
    about = "optimize for the device that `superopt profile --export` described there: nothing is measured, times are predicted"
    measuring.add_argument("--device-profile", type=Path, metavar="FILE", help=about)
    about = f"what the search may do: {', '.join(MOVES)}, or {','.join(MOVES)} (default)"
    command.add_argument("--moves", type=choices(*MOVES), default=MOVES, metavar="M,M", help=about)
    about = (
        "how freely floating-point arithmetic is rewritten: precise (the same bits, but for signs of zeros), relaxed (default: "
        "regrouped where values are known to be finite and of ordinary magnitude), or fast (as real numbers)"
    )
    command.add_argument("--fp", choices=[*map(str, FpMode)], default=FpMode.RELAXED, help=about)
    about = "let the result have operators that ONNX Runtime alone knows (com.microsoft), where they measure faster"
    command.add_argument("--allow-contrib", action="store_true", help=about)
    about = "let the result have this opset, newer than the model's, and the operators that are new in it"
    command.add_argument("--opset", type=positive, metavar="N", help=about)
    _add_limits(command)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there, as JSON")
    about = "write there what was done step by step, as JSON, for `superopt verify`"
    command.add_argument("--certificate", type=Path, metavar="FILE", help=about)
    command.add_argument("--cache", type=Path, metavar="FILE", help="keep measured times there (the user's cache folder)")
    command.set_defaults(run="optimize")


def _add_profile(commands: Commands) -> None:
    about = "Measure how fast this device is, and the nodes of models, and show what is known of it."
    command = commands.add_parser("profile", help="measure a device, and describe it to other machines", description=about)
    command.add_argument("model", type=Path, nargs="*", metavar="MODEL", help="models whose nodes are timed")
    command.add_argument("--provider", default="cpu", help=f"what is measured: {WHERE}")
    command.add_argument("--threads", type=threads, default=1, metavar="N", help="CPU threads of the sessions (1)")
    about = "sizes of an open dimension of the models, given once for each"
    command.add_argument("--shape", type=extents, action="append", default=[], metavar="NAME=N,N", help=about)
    about = "write a device profile there, all that is known of the device, for `superopt optimize --device-profile`"
    command.add_argument("--export", type=Path, metavar="FILE", help=about)
    about = "keep the times of this device profile too, from a machine of the same kind, say; may be given several times"
    command.add_argument("--import", dest="merge", type=Path, action="append", default=[], metavar="FILE", help=about)
    command.add_argument("--cache", type=Path, metavar="FILE", help="keep measured times there (the user's cache folder)")
    command.set_defaults(run="profile")


def _add_verify(commands: Commands) -> None:
    about = (
        "Check that a model computes what another does, by the certificate of its optimization. Exits with 28 where it fails."
    )
    command = commands.add_parser("verify", help="check what optimize did", description=about)
    command.add_argument("source", type=Path, metavar="in.onnx", help="the original model")
    command.add_argument("target", type=Path, metavar="out.onnx", help="the optimized model")
    about = "what `superopt optimize --certificate` wrote"
    command.add_argument("--certificate", type=Path, required=True, metavar="FILE", help=about)
    command.add_argument("--provider", default="cpu", help=f"where both are run: {WHERE}")
    command.add_argument("--seed", type=seed, default=0, help="seed of every random choice (0)")
    command.add_argument("--threads", type=threads, default=1, metavar="N", help="CPU threads of the sessions (1)")
    command.set_defaults(run="verify")


def _add_generate(commands: Commands) -> None:
    about = "Find, prove and store rules. The same seed writes the same files, wherever the tasks run."
    command = commands.add_parser("generate", help="find and prove rules", description=about)
    command.add_argument("--family", action="append", metavar="F", help="a family of rules, as matrix or convolution (all)")
    about = "generalise mutants to partial rules instead, which are judged at many sizes and not proved"
    command.add_argument("--mutants", action="store_true", help=about)
    command.add_argument("--seed", type=seed, default=0, help="seed of every random choice (0)")
    command.add_argument("--output", type=Path, metavar="DIR", help="where to store the rules (superopt's own substitutions/)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the counts there, as JSON")
    where = command.add_mutually_exclusive_group()
    _add_workers(where)
    where.add_argument(
        "--scheduler", default="", metavar="WHERE", help="a Dask cluster: tcp://HOST:PORT, or local:N to start one"
    )
    command.add_argument(
        "--resume", type=Path, metavar="DIR", help="keep finished tasks there, and go on from them (user's cache)"
    )
    command.set_defaults(run="generate")


def _add_prove(commands: Commands) -> None:
    about = "Check the proofs of the stored rules. Exits with 16 if anything is not proved."
    command = commands.add_parser("prove", help="check proofs, or make them anew", description=about)
    which = command.add_mutually_exclusive_group()
    which.add_argument("--axioms", action="store_true", help="prove every axiom from the operators' definitions")
    which.add_argument("--fresh", action="store_true", help="prove every stored rule from nothing, stored proofs unused")
    about = "judge every stored partial rule again, at all sizes of its certificate"
    which.add_argument("--mutants", action="store_true", help=about)
    which.add_argument("--samples", type=positive, metavar="N", help="try every stored rule on N random instantiations instead")
    command.add_argument("--write", action="store_true", help="store the proofs; of axioms, every verdict")
    command.add_argument("--each", action="store_true", help="a line for each axiom or rule, with its milliseconds")
    command.add_argument("--seed", type=seed, default=0, help="seed of every random choice (0)")
    _add_workers(command)
    command.set_defaults(run="prove")


def _add_workers(command: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    about = "processes of this machine (one for each core; 1: no others)"
    command.add_argument("--workers", type=threads, metavar="N", help=about)


def _add_rules(commands: Commands) -> None:
    command = commands.add_parser("rules", help="look at the rules", description="Look at the stored rules.")
    actions = command.add_subparsers(title="actions", required=True, metavar="action")
    listing = actions.add_parser("list", help="every rule that optimization uses, one a line")
    listing.set_defaults(run="rules list")
    about = "every partial rule that the search for mutants begins with, with what its certificate says"
    actions.add_parser("partial", help=about).set_defaults(run="rules partial")
    about = "Write the rules as a Python module for onnxscript.rewriter, or as a model of function pairs for onnxsim."
    export = actions.add_parser("export", help="the rules for other tools", description=about)
    export.add_argument("--format", choices=("onnxscript", "functions"), required=True, help="the tool's form")
    export.add_argument("--output", type=Path, required=True, metavar="FILE", help="where to write them")
    export.set_defaults(run="rules export")
    _add_rules_derive(actions)
    for several in (listing, export):
        several.add_argument("--family", metavar="F", help="those of one family")
        several.add_argument(
            "--part", choices=(CORE, SEARCH), help="those of the minimal core, or those derived for the search"
        )
        several.add_argument("--operator", action="append", default=[], metavar="OP", help="those that mention the operator")
    for name, detail in (
        ("show", "the mathematics of one rule, and a drawing"),
        ("explain", "its proof and an example as well"),
    ):
        reading = actions.add_parser(name, help=detail)
        reading.add_argument("name", metavar="NAME", help="a rule's name, as `rules list` prints it")
        reading.add_argument("--svg", type=Path, metavar="FILE", help="draw both sides there")
        reading.set_defaults(run="rules show", whole=name == "explain")


def _add_rules_derive(actions: Commands) -> None:
    about = (
        "Say which equalities of a rule file follow from the stored rules, and which of these from the file, with the steps."
    )
    command = actions.add_parser("derive", help="compare a file of rules with ours", description=about)
    command.add_argument("file", type=Path, metavar="FILE", help="rules in the notation of substitutions/*.rules")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--from", dest="given", type=Path, metavar="FILE", help="derive from the rules of this file instead")
    which.add_argument("--core", action="store_true", help="derive from the core alone, without the search set")
    which.add_argument("--axioms", action="store_true", help="derive from the operators' axioms instead")
    command.add_argument("--brief", action="store_true", help="leave out the steps")
    command.add_argument("--one-way", action="store_true", help="leave out what follows from the file")
    command.add_argument("--seed", type=seed, default=0, help="seed of the random instantiations (0)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the findings there, as JSON")
    command.set_defaults(run="rules derive")
