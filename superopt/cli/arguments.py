"""Define and parse the commands and the options of the command line."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import superopt
from superopt.cli.types import (
    choice_list,
    extents,
    factor,
    name_and_value,
    positive_integer,
    quote_option_value,
    seed,
    share,
    threads,
    time_span,
)
from superopt.flows.options import MOVES
from superopt.policy import CHECK, OPTIMIZATION, PROCESS
from superopt.rules.fp_flags import FpMode
from superopt.rules.store import CORE, SEARCH

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

WHERE = "cpu (default), cuda or tensorrt"
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises an error if the help cannot be printed to the standard output."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        with contextlib.suppress(*(() if file is sys.stdout else (OSError,))):
            (file or sys.stderr).write(message)


def parser() -> argparse.ArgumentParser:
    """Return the parser for all commands of `superopt`."""
    top = Parser(prog="superopt", description="A superoptimizer for ONNX models.")
    top.add_argument("--version", action="version", version=f"superopt {superopt.__version__}")
    top.add_argument("--debug", action="store_true", help="show a traceback for an internal error")
    commands = top.add_subparsers(title="commands", required=True, metavar="command")
    _add_optimize(commands)
    _add_compare(commands)
    _add_inspect(commands)
    _add_diff(commands)
    _add_profile(commands)
    _add_verify(commands)
    _add_generate(commands)
    _add_prove(commands)
    _add_rules(commands)
    _add_cache_commands(commands)
    return top


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments of the command line, or of the process if `arguments` is None, and return the options.

    Raises:
        SystemExit: The arguments are invalid (exit code 2), or only help or the version was requested (exit code 0).
    """
    top = parser()
    options = top.parse_args(arguments)
    if options.run == "optimize" and options.ort_config and not options.tune:
        top.error("argument --ort-config: requires --tune")
    if options.run == "prove" and options.operator and not options.axioms:
        top.error("argument --operator: requires --axioms")
    if options.run == "optimize":
        names = [name for name, _ in options.fix]
        if repeated := [name for name in names if names.count(name) > 1]:
            top.error(f"argument --fix: {quote_option_value(repeated[0])} is given twice")
    if options.run in ("compare", "inspect", "optimize", "profile"):
        names = [name for name, _ in options.shape]
        if repeated := [name for name in names if names.count(name) > 1]:
            top.error(f"argument --shape: {quote_option_value(repeated[0])} is given twice: write all of its sizes as NAME=N,N")
        if (count := math.prod(len(sizes) for _, sizes in options.shape)) > PROCESS.max_size_combinations:
            top.error(f"argument --shape: {count} combinations of sizes are more than {PROCESS.max_size_combinations}")
    return options


def _add_limits(command: argparse.ArgumentParser) -> None:
    about = "largest rounding error of the result, as a multiple of the original's (4)"
    command.add_argument("--tolerance", type=factor, default=CHECK.max_error_factor, metavar="FACTOR", help=about)
    about = "largest growth of the weights, as a share of their size (3 up to 256 MiB of weights, 0.5 above)"
    command.add_argument("--growth", type=share, metavar="SHARE", help=about)


def _add_optimize(commands: Commands) -> None:
    about = "Write an equivalent model that runs faster. If none is found, write the original."
    command = commands.add_parser("optimize", help="make a model faster", description=about)
    command.add_argument("source", type=Path, metavar="in.onnx", help="the model to optimize")
    command.add_argument("target", type=Path, metavar="out.onnx", help="where to write the result")
    command.add_argument("--provider", default="cpu", help=f"execution provider that will run the model: {WHERE}")
    command.add_argument(
        "--budget", type=time_span, metavar="TIME", help="time limit of the search: 90, 60s, 2m (10s to 30s, by model size)"
    )
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    command.add_argument("--threads", type=threads, metavar="N", help="CPU threads of each session (all cores)")
    about = "optimize for replay as a CUDA graph (with --provider cuda)"
    command.add_argument("--cuda-graph", action="store_true", help=about)
    about = "sizes of a dynamic dimension to optimize for; repeat the option for each dimension; dimensions stay dynamic"
    _add_shape(command, about)
    about = (
        "inputs to run, time and check the model on, besides random inputs: an .npz file with an array for each input, or a "
        "folder of tensors input_0.pb, input_1.pb and so on; repeatable; the model is optimized for their sizes too"
    )
    command.add_argument("--input", type=Path, action="append", default=[], metavar="FILE", dest="inputs", help=about)
    about = (
        "a value of an input, such as sr=16000, or a size of a dynamic dimension, such as batch=1 or x[0]=1, at which alone "
        "the result has to be right; the input stays, and the result fails at run time with another value; repeatable"
    )
    command.add_argument("--fix", type=name_and_value, action="append", default=[], metavar="NAME=VALUE", help=about)
    about = (
        "first find the fastest session settings (ONNX Runtime's optimizers, layout, number of threads, CUDA graph), then "
        "optimize for these settings"
    )
    measuring = command.add_mutually_exclusive_group()
    measuring.add_argument("--tune", action="store_true", help=about)
    written = (
        "write the settings that --tune finds into the model's metadata: threads and optimization level under ort_config, "
        "which ONNX Runtime reads if ORT_LOAD_CONFIG_FROM_MODEL=1 is set; disabled optimizers and provider options, which "
        "ONNX Runtime does not read, under superopt.session_entries and superopt.provider_options"
    )
    command.add_argument("--ort-config", action="store_true", help=written)
    about = "optimize for the device that this file of `superopt profile --export` describes; times are predicted, not measured"
    measuring.add_argument("--device-profile", type=Path, metavar="FILE", help=about)
    about = f"kinds of rewrites: {', '.join(MOVES)}, or {','.join(MOVES)} (default)"
    command.add_argument("--moves", type=choice_list(*MOVES), default=MOVES, metavar="M,M", help=about)
    about = (
        "floating-point mode: precise (bit-exact except for signs of zeros), relaxed (default; reassociates where values are "
        "known to be finite and of ordinary magnitude), or fast (rewrites as over the real numbers)"
    )
    command.add_argument("--fp", choices=[*map(str, FpMode)], default=FpMode.RELAXED, help=about)
    _add_user_rules(command, "also use the rules of this file or folder, which `superopt rules add` proved; repeatable")
    about = "allow ONNX Runtime's own operators (com.microsoft) where they measure faster"
    command.add_argument("--allow-contrib", action="store_true", help=about)
    about = "convert the result to this newer opset and allow its operators"
    command.add_argument("--opset", type=positive_integer, metavar="N", help=about)
    about = "do not write superopt's version, the digest of the original and the numbers of rewrites to the result's metadata"
    command.add_argument("--no-metadata", action="store_false", dest="metadata", help=about)
    _add_limits(command)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    about = "write every rewrite step as JSON, for `superopt verify`"
    command.add_argument("--certificate", type=Path, metavar="FILE", help=about)
    _add_cache(command)
    how = command.add_mutually_exclusive_group()
    about = "measure and search again, and replace entries of the cache"
    how.add_argument("--fresh", action="store_true", help=about)
    how.add_argument("--no-cache", action="store_true", help="neither read the cache nor write to it")
    command.set_defaults(run="optimize")


def _add_compare(commands: Commands) -> None:
    about = "Compare two models with the same inputs and outputs: speed, outputs, operators and weights."
    command = commands.add_parser("compare", help="compare two models", description=about)
    command.add_argument("first", type=Path, metavar="a.onnx", help="the model to compare with, usually an original")
    command.add_argument("second", type=Path, metavar="b.onnx", help="the other model")
    command.add_argument("--provider", default="cpu", help=f"execution provider that runs both models: {WHERE}")
    command.add_argument("--threads", type=threads, metavar="N", help="CPU threads of each session (all cores)")
    about = "run both models by replaying a CUDA graph (with --provider cuda)"
    command.add_argument("--cuda-graph", action="store_true", help=about)
    _add_shape(command, "sizes of a dynamic dimension; repeat the option for each dimension")
    about = "inputs to run both models on: an .npz file or a folder, as for `superopt optimize`; repeatable"
    command.add_argument("--input", type=Path, action="append", default=[], metavar="FILE", dest="inputs", help=about)
    about = f"time limit of the timing, such as 10s ({OPTIMIZATION.full_comparison_seconds:g}s)"
    limit = OPTIMIZATION.full_comparison_seconds
    command.add_argument("--seconds", type=time_span, default=limit, metavar="TIME", help=about)
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the comparison as JSON")
    command.set_defaults(run="compare")


def _add_inspect(commands: Commands) -> None:
    about = (
        "Show what superopt understands of a model: the islands, which are the regions that a search can rewrite, the nodes "
        "outside them with the reasons, operators, dynamic dimensions, opset and weights. The model is not run without --time."
    )
    example = "example: superopt inspect model.onnx --json model.json"
    command = commands.add_parser(
        "inspect", help="show what superopt understands of a model", description=about, epilog=example
    )
    command.add_argument("model", type=Path, metavar="model.onnx", help="the model")
    about = "measure the share of the run time of the nodes outside the islands, on one thread of the CPU"
    command.add_argument("--time", action="store_true", help=about)
    _add_shape(command, "a size of a dynamic dimension, for --time; repeat the option for each dimension")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    command.set_defaults(run="inspect")


def _add_diff(commands: Commands) -> None:
    about = (
        "Show which nodes and weights of two models are the same. Nodes are paired by the names of their first outputs, and "
        "weights by their names. The models are not run; `superopt compare` compares speed and outputs."
    )
    example = "example: superopt diff in.onnx out.onnx"
    command = commands.add_parser("diff", help="show which nodes of two models differ", description=about, epilog=example)
    command.add_argument("first", type=Path, metavar="a.onnx", help="the model to compare with, usually an original")
    command.add_argument("second", type=Path, metavar="b.onnx", help="the other model")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the difference as JSON")
    command.set_defaults(run="diff")


def _add_shape(command: argparse.ArgumentParser, about: str) -> None:
    command.add_argument("--shape", type=extents, action="append", default=[], metavar="NAME=N,N", help=about)


def _add_cache(command: argparse.ArgumentParser) -> None:
    about = "file for measured times and results of searches (in the user's cache folder)"
    command.add_argument("--cache", type=Path, metavar="FILE", help=about)


def _add_cache_commands(commands: Commands) -> None:
    about = "Show or clear the file in which measured times and results of searches are kept between runs."
    command = commands.add_parser("cache", help="show or clear the time cache", description=about)
    actions = command.add_subparsers(title="actions", required=True, metavar="action")
    for name, about in (("info", "show the file, its size and its entries"), ("clear", "remove all entries")):
        action = actions.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        _add_cache(action)
        action.set_defaults(run=f"cache {name}")


def _add_profile(commands: Commands) -> None:
    about = "Measure this device and the nodes of models, and show all measurements of the device."
    command = commands.add_parser("profile", help="measure a device and write its profile", description=about)
    command.add_argument("model", type=Path, nargs="*", metavar="MODEL", help="models whose nodes to time")
    command.add_argument("--provider", default="cpu", help=f"execution provider to measure: {WHERE}")
    command.add_argument("--threads", type=threads, default=1, metavar="N", help="CPU threads of each session (1)")
    _add_shape(command, "sizes of a dynamic dimension; repeat the option for each dimension")
    about = "write all measurements of the device, for `superopt optimize --device-profile`"
    command.add_argument("--export", type=Path, metavar="FILE", help=about)
    about = "add the times of this device profile, for example from a machine of the same kind; repeatable"
    command.add_argument("--import", dest="merge", type=Path, action="append", default=[], metavar="FILE", help=about)
    _add_cache(command)
    command.set_defaults(run="profile")


def _add_verify(commands: Commands) -> None:
    about = "Check an optimized model against its original and its certificate. The exit code is 28 if the check fails."
    command = commands.add_parser("verify", help="check an optimized model", description=about)
    command.add_argument("source", type=Path, metavar="in.onnx", help="the original model")
    command.add_argument("target", type=Path, metavar="out.onnx", help="the optimized model")
    about = "the file that `superopt optimize --certificate` wrote"
    command.add_argument("--certificate", type=Path, required=True, metavar="FILE", help=about)
    about = (
        "inputs to run both models on, besides random inputs: an .npz file or a folder, as for `superopt optimize`; repeatable"
    )
    command.add_argument("--input", type=Path, action="append", default=[], metavar="FILE", dest="inputs", help=about)
    command.add_argument("--provider", default="cpu", help=f"execution provider that runs both models: {WHERE}")
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    command.add_argument("--threads", type=threads, default=1, metavar="N", help="CPU threads of each session (1)")
    _add_user_rules(command, "the file or folder of rules that was given to `superopt optimize --rules`; repeatable")
    command.set_defaults(run="verify")


def _add_generate(commands: Commands) -> None:
    about = "Find, prove and store rules. The same seed writes the same files on any number of workers."
    command = commands.add_parser("generate", help="find and prove rules", description=about)
    which = command.add_mutually_exclusive_group()
    which.add_argument("--family", action="append", metavar="F", help="a family of rules, such as matrix (all)")
    about = "only the rules of this operator, from its definition, its traits and its axioms; for a new file of specs/"
    which.add_argument("--operator", action="append", default=[], metavar="NAME", help=about)
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    command.add_argument("--output", type=Path, metavar="DIR", help="folder for the rules (superopt's own substitutions/)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the counts as JSON")
    where = command.add_mutually_exclusive_group()
    _add_workers(where)
    where.add_argument(
        "--scheduler", default="", metavar="WHERE", help="a Dask cluster: tcp://HOST:PORT, or local:N to start one"
    )
    command.add_argument("--resume", type=Path, metavar="DIR", help="folder for finished tasks, from which a later run resumes")
    command.set_defaults(run="generate")


def _add_prove(commands: Commands) -> None:
    about = "Check the proofs of the stored rules. The exit code is 16 if a proof fails."
    command = commands.add_parser("prove", help="check the proofs of stored rules, or prove the rules again", description=about)
    which = command.add_mutually_exclusive_group()
    which.add_argument("--axioms", action="store_true", help="prove every axiom from the operators' definitions")
    which.add_argument("--fresh", action="store_true", help="prove every stored rule again without its stored proof")
    about = "with --axioms, only the axioms of this operator"
    command.add_argument("--operator", action="append", default=[], metavar="NAME", help=about)
    which.add_argument(
        "--samples", type=positive_integer, metavar="N", help="test every stored rule on N random instances instead"
    )
    command.add_argument("--write", action="store_true", help="store the proofs, and with --axioms every verdict")
    command.add_argument("--each", action="store_true", help="print a line and the milliseconds for each axiom or rule")
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    _add_workers(command)
    command.set_defaults(run="prove")


def _add_workers(command: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    about = "worker processes (one for each core; 1 runs in this process)"
    command.add_argument("--workers", type=threads, metavar="N", help=about)


def _add_rules(commands: Commands) -> None:
    command = commands.add_parser(
        "rules", help="list, show, add and export rules", description="List, show, add or export rules."
    )
    actions = command.add_subparsers(title="actions", required=True, metavar="action")
    listing = actions.add_parser("list", help="list the rules, one a line")
    listing.set_defaults(run="rules list")
    about = "Write the rules as a Python module for onnxscript.rewriter, or as a model of function pairs for onnxsim."
    export = actions.add_parser("export", help="export the rules to other tools", description=about)
    export.add_argument("--format", choices=("onnxscript", "functions"), required=True, help="format of the other tool")
    export.add_argument("--output", type=Path, required=True, metavar="FILE", help="file for the exported rules")
    export.set_defaults(run="rules export")
    _add_rules_add(actions)
    _add_rules_derive(actions)
    for several in (listing, export):
        several.add_argument("--family", metavar="F", help="only rules of this family")
        several.add_argument("--part", choices=(CORE, SEARCH), help="only core rules, or only search rules")
        several.add_argument("--operator", action="append", default=[], metavar="OP", help="only rules with this operator")
    for name, detail in (
        ("show", "print one rule and its preconditions"),
        ("explain", "print one rule with its proof and an example"),
    ):
        reading = actions.add_parser(name, help=detail)
        reading.add_argument("name", metavar="NAME", help="a rule's name, as `rules list` prints it")
        reading.add_argument("--svg", type=Path, metavar="FILE", help="draw both sides as an SVG file")
        reading.set_defaults(run="rules show", whole=name == "explain")


def _add_rules_add(actions: Commands) -> None:
    about = (
        "Prove the rules of a file, and write their ledger beside the file, for --rules of `superopt optimize` and `superopt "
        "verify`. A rule is a line such as `twice: relu(relu(x)) => relu(x) for x[1, 2, 3]`. If a rule is refuted or cannot be "
        "proved, nothing is written, and the exit code is 16."
    )
    example = "example: superopt rules add my.rules && superopt optimize in.onnx out.onnx --rules my.rules"
    command = actions.add_parser("add", help="prove rules of your own", description=about, epilog=example)
    about = "rules in the notation of substitutions/*.rules; the name ends in .rules"
    command.add_argument("file", type=Path, metavar="FILE", help=about)
    about = "folder for the ledger and a copy of the file (the folder of the file)"
    command.add_argument("--out", type=Path, metavar="DIR", help=about)
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    command.set_defaults(run="rules add")


def _add_user_rules(command: argparse.ArgumentParser, about: str) -> None:
    command.add_argument("--rules", type=Path, action="append", default=[], metavar="PATH", help=about)


def _add_rules_derive(actions: Commands) -> None:
    about = "Print which equations of a rule file follow from the stored rules, and which stored rules follow from the file."
    command = actions.add_parser("derive", help="compare a rule file with the stored rules", description=about)
    command.add_argument("file", type=Path, metavar="FILE", help="rules in the notation of substitutions/*.rules")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--from", dest="given", type=Path, metavar="FILE", help="derive from the rules of this file instead")
    which.add_argument("--core", action="store_true", help="derive from the core rules alone")
    which.add_argument("--axioms", action="store_true", help="derive from the operators' axioms instead")
    command.add_argument("--brief", action="store_true", help="omit the steps")
    command.add_argument("--one-way", action="store_true", help="omit the stored rules that follow from the file")
    command.add_argument("--seed", type=seed, default=0, help="seed of the random instantiations (0)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    command.set_defaults(run="rules derive")
