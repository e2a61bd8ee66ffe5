"""Define and parse the commands and the options of the command line."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

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
from superopt.policy import CHECK, OPTIMIZATION, PROCESS, REPORT
from superopt.rules.fp_flags import FpMode
from superopt.rules.store import CORE, SEARCH

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

SHELLS = ("bash", "zsh", "tcsh")
"""The shells for which shtab writes completion scripts."""
EXAMPLES = "examples:"
WHERE = "cpu (default), cuda or tensorrt"
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class HelpFormatter(argparse.HelpFormatter):
    """A formatter that keeps the lines of examples, and wraps all other texts."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return "".join(f"{indent}{line}\n" for line in text.splitlines())
        return super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests similar words for misspelled words.

    Printing the help raises an error if the standard output cannot be written.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the known arguments. If an option is unknown, exit with a message that suggests similar options."""
        self._given = [*(sys.argv[1:] if args is None else args)]
        options, unknown = super().parse_known_args(args, namespace)
        if any(word.startswith("-") for word in unknown):
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._similar_options(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with code 2. If arguments are missing, also suggest similar options."""
        missing = message.startswith("the following arguments are required")
        super().error(f"{message}{self._similar_options(self._given) if missing else ''}")

    def _similar_options(self, words: Iterable[str]) -> str:
        """Return a question that suggests the options most similar to the first unknown option in `words`."""
        known = [option for option in self._option_string_actions if option.startswith("--")]
        options = (word.partition("=")[0] for word in words if word.startswith("-"))
        unknown = (word for word in options if not any(option.startswith(word) for option in self._option_string_actions))
        return suggestion(next(unknown, ""), known)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            choices, given = [*map(str, action.choices)], str(value)
            told = f"invalid choice: {quote_option_value(given)}{suggestion(given, choices)} (choose from {', '.join(choices)})"
            raise argparse.ArgumentError(action, told)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        with contextlib.suppress(*(() if file is sys.stdout else (OSError,))):
            (file or sys.stderr).write(message)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a question with the words in `known` that are most similar to `word`.

    If no word is similar, return an empty text.
    """
    near = difflib.get_close_matches(word, [*known], REPORT.max_suggestions_count, REPORT.min_suggestion_share)
    return f": did you mean {' or '.join(near)}?" if near else ""


class PrintCompletion(argparse.Action):
    """An option that prints a completion script and ends the program. The option's value is the shell."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        """Print the script for the shell `values`. Arguments that are paths are completed as names of files."""
        try:
            import shtab
        except ImportError:
            parser.error(f"argument {option_string}: requires the package shtab: pip install 'superopt[completion]'")
        for action in all_actions(parser):
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        parser._print_message(f"{shtab.complete(parser, shell=values)}\n", sys.stdout)
        parser.exit()


def all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of the parsers of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from all_actions(command)


def parser() -> argparse.ArgumentParser:
    """Return the parser for all commands of `superopt`."""
    shown = f"{EXAMPLES}\n  superopt optimize in.onnx out.onnx\n  superopt optimize --help\n  superopt --print-completion bash"
    about = "A superoptimizer for ONNX models."
    top = Parser(prog="superopt", description=about, epilog=shown, formatter_class=HelpFormatter)
    top.add_argument("--version", action="version", version=f"superopt {superopt.__version__}")
    top.add_argument("--debug", action="store_true", help="show a traceback for an internal error")
    about = "print a completion script for this shell (requires the package shtab)"
    top.add_argument("--print-completion", action=PrintCompletion, choices=SHELLS, metavar="SHELL", help=about)
    commands = top.add_subparsers(title="commands", required=True, metavar="command")
    _add_optimize(commands)
    _add_replay(commands)
    _add_compare(commands)
    _add_inspect(commands)
    _add_diff(commands)
    _add_pack(commands)
    _add_profile(commands)
    _add_verify(commands)
    _add_generate(commands)
    _add_prove(commands)
    _add_rules(commands)
    _add_kernels(commands)
    _add_cache_commands(commands)
    return top


def _add_command(commands: Commands, name: str, about: str, description: str, *examples: str) -> Parser:
    """Add a command with its help, its description, and example command lines, and return its parser."""
    shown = "\n".join((EXAMPLES, *(f"  superopt {example}" for example in examples)))
    return commands.add_parser(name, help=about, description=description, epilog=shown, formatter_class=HelpFormatter)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments of the command line and return the options.

    If `arguments` is None, the arguments of the process are parsed.

    Raises:
        SystemExit: The arguments are invalid (exit code 2), or only help or the version was requested (exit code 0).
    """
    top = parser()
    options = top.parse_args(arguments)
    if options.run == "optimize" and options.target is None and not options.dry_run:
        top.error("the following arguments are required: out.onnx")
    if options.run == "optimize" and options.ort_config and not options.tune:
        top.error("argument --ort-config: requires --tune")
    if options.run == "optimize" and options.kernels:
        if options.provider != "cpu":
            top.error("argument --kernels: requires --provider cpu")
        if options.device_profile is not None:
            top.error("argument --kernels: not allowed with argument --device-profile")
        if options.fp == FpMode.PRECISE:
            top.error("argument --kernels: requires --fp relaxed or --fp fast")
    if options.run == "prove" and options.operator and not options.axioms:
        top.error("argument --operator: requires --axioms")
    if options.run == "pack" and options.names and len(options.names) != len(options.models):
        top.error(f"argument --name: {len(options.names)} names for {len(options.models)} models")
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
    about = "largest growth of the weights, as a share of their size (3, but at most 256 MiB; 0.5 above 512 MiB of weights)"
    command.add_argument("--growth", type=share, metavar="SHARE", help=about)


def _add_optimize(commands: Commands) -> None:
    about = "Write an equivalent model that runs faster. If none is found, write the original."
    command = _add_command(
        commands,
        "optimize",
        "make a model faster",
        about,
        "optimize in.onnx out.onnx",
        "optimize in.onnx out.onnx --budget 2m --threads 1 --json report.json",
        "optimize in.onnx out.onnx --shape batch=1,8 --shape seq=128",
        "optimize in.onnx out.onnx --input example.npz --fix sr=16000",
        "optimize in.onnx --dry-run",
    )
    command.add_argument("source", type=Path, metavar="in.onnx", help="the model to optimize")
    about = "where to write the result (not needed with --dry-run)"
    command.add_argument("target", type=Path, nargs="?", metavar="out.onnx", help=about)
    about = "only print what would be searched: islands, sizes, threads, assumptions, and operators that cannot be rewritten"
    command.add_argument("--dry-run", action="store_true", help=about)
    command.add_argument("--provider", default="cpu", help=f"execution provider that will run the model: {WHERE}")
    command.add_argument("--budget", type=time_span, metavar="TIME", help="time limit of the search: 90, 60s, 2m (20s to 30s)")
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
    about = "compile parts of the model to kernels where they measure faster (needs a C compiler; docs/kernels.md)"
    command.add_argument("--kernels", action="store_true", help=about)
    about = "convert the result to this newer opset and allow its operators"
    command.add_argument("--opset", type=positive_integer, metavar="N", help=about)
    about = "do not write superopt's version, the digest of the original and the numbers of rewrites to the result's metadata"
    command.add_argument("--no-metadata", action="store_false", dest="metadata", help=about)
    _add_limits(command)
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("-q", "--quiet", action="store_true", help="print only errors and the verdict")
    about = "also print the tables of all rules, segments, and operators that cannot be rewritten"
    shown.add_argument("-v", "--verbose", action="store_true", help=about)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    about = "write every rewrite step as JSON, for `superopt verify`"
    command.add_argument("--certificate", type=Path, metavar="FILE", help=about)
    about = "write a page about the result: the gain, the checks, and the rewritten parts as graphs with their rules"
    command.add_argument("--html", type=Path, metavar="FILE", help=about)
    command.add_argument("--svg", type=Path, metavar="FILE", help="write one picture of the result, for posting")
    _add_cache(command)
    how = command.add_mutually_exclusive_group()
    about = "measure and search again, and replace entries of the cache"
    how.add_argument("--fresh", action="store_true", help=about)
    how.add_argument("--no-cache", action="store_true", help="neither read the cache nor write to it")
    command.set_defaults(run="optimize")


def _add_replay(commands: Commands) -> None:
    about = (
        "Apply the rewrites that a certificate records to another model of the same graph, such as a retrained model, without "
        "a search. Rewrites that do not fit the model or its weights are left out. If no rewrite can be applied, the model is "
        "written unchanged, and the exit code is 33."
    )
    examples = (
        "replay steps.json retrained.onnx faster.onnx",
        "replay steps.json retrained.onnx faster.onnx --compare --certificate new.json",
    )
    command = _add_command(commands, "replay", "repeat an optimization for other weights", about, *examples)
    about = "the file that `superopt optimize --certificate` wrote"
    command.add_argument("recorded", type=Path, metavar="steps.json", help=about)
    command.add_argument("source", type=Path, metavar="in.onnx", help="the model with other weights")
    command.add_argument("target", type=Path, metavar="out.onnx", help="where to write the result")
    command.add_argument("--provider", default="cpu", help=f"execution provider that runs the models: {WHERE}")
    command.add_argument("--threads", type=threads, metavar="N", help="CPU threads of each session with --compare (all cores)")
    about = "check for replay as a CUDA graph (with --provider cuda)"
    command.add_argument("--cuda-graph", action="store_true", help=about)
    about = "inputs to check the result on, besides random inputs, as for `superopt optimize`; repeatable"
    command.add_argument("--input", type=Path, action="append", default=[], metavar="FILE", dest="inputs", help=about)
    about = "largest rounding error of the result, as a multiple of the model's (4)"
    command.add_argument("--tolerance", type=factor, default=CHECK.max_error_factor, metavar="FACTOR", help=about)
    command.add_argument("--compare", action="store_true", help="also compare the speed of the model and of the result")
    _add_user_rules(command, "the file or folder of rules that was given to `superopt optimize --rules`; repeatable")
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    about = "write every applied rewrite step as JSON, for `superopt verify`"
    command.add_argument("--certificate", type=Path, metavar="FILE", help=about)
    _add_cache(command)
    command.set_defaults(run="replay")


def _add_compare(commands: Commands) -> None:
    about = "Compare two models with the same inputs and outputs: speed, outputs, operators and weights."
    examples = ("compare in.onnx out.onnx", "compare in.onnx out.onnx --input example.npz --seconds 20s --json compared.json")
    command = _add_command(commands, "compare", "compare two models", about, *examples)
    command.add_argument("first", type=Path, metavar="a.onnx", help="the model to compare with, usually an original")
    command.add_argument("second", type=Path, metavar="b.onnx", help="the other model")
    command.add_argument("--provider", default="cpu", help=f"execution provider that runs both models: {WHERE}")
    command.add_argument("--threads", type=threads, metavar="N", help="CPU threads of each session (all cores)")
    about = "run both models by replaying a CUDA graph (with --provider cuda)"
    command.add_argument("--cuda-graph", action="store_true", help=about)
    about = "a library of kernels, such as b.kernels.so, with which both models run; repeatable; use only libraries you trust"
    command.add_argument("--library", type=Path, action="append", default=[], metavar="FILE", dest="libraries", help=about)
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
    examples = ("inspect model.onnx", "inspect model.onnx --time --shape batch=8 --json model.json")
    command = _add_command(commands, "inspect", "show what superopt understands of a model", about, *examples)
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
    examples = ("diff in.onnx out.onnx", "diff in.onnx out.onnx --json difference.json")
    command = _add_command(commands, "diff", "show which nodes of two models differ", about, *examples)
    command.add_argument("first", type=Path, metavar="a.onnx", help="the model to compare with, usually an original")
    command.add_argument("second", type=Path, metavar="b.onnx", help="the other model")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the difference as JSON")
    command.set_defaults(run="diff")


def _add_pack(commands: Commands) -> None:
    about = (
        "Make one model of several models that are served together. Names get the prefix NAME/. Equal weights and equal nodes "
        "are stored once, and the search also joins operators of different models. The outputs of each model are compared with "
        "the original's."
    )
    examples = (
        "pack a.onnx b.onnx -o packed.onnx",
        "pack a.onnx b.onnx -o packed.onnx --name first --name second --share-input image --budget 60s",
    )
    command = _add_command(commands, "pack", "make one model of several models", about, *examples)
    command.add_argument("models", type=Path, nargs="+", metavar="in.onnx", help="the models")
    command.add_argument("-o", "--output", dest="target", type=Path, required=True, metavar="out.onnx", help="where to write")
    about = "name of a model, in the order of the models (the names of the files without .onnx)"
    command.add_argument("--name", dest="names", action="append", default=[], metavar="NAME", help=about)
    about = "an input that has the same value for all models that have it; repeatable"
    command.add_argument("--share-input", dest="shared", action="append", default=[], metavar="NAME", help=about)
    about = "time for the search, such as 60s; 0 only merges the models (20 s, more for a large model)"
    command.add_argument("--budget", type=time_span, metavar="TIME", help=about)
    command.add_argument("--threads", type=threads, metavar="N", help="CPU threads of each session (all cores)")
    command.add_argument("--seed", type=seed, default=0, help="random seed (0)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    command.set_defaults(run="pack")


def _add_shape(command: argparse.ArgumentParser, about: str) -> None:
    command.add_argument("--shape", type=extents, action="append", default=[], metavar="NAME=N,N", help=about)


def _add_cache(command: argparse.ArgumentParser) -> None:
    about = "file for measured times and results of searches (in the user's cache folder)"
    command.add_argument("--cache", type=Path, metavar="FILE", help=about)


def _add_kernels(commands: Commands) -> None:
    about = "Show the kernels that `superopt optimize --kernels` compiled for a model."
    examples = ("optimize in.onnx out.onnx --kernels", "kernels show out.onnx", "kernels show out.onnx --source island_0")
    command = _add_command(commands, "kernels", "show the compiled kernels of a model", about, *examples)
    actions = command.add_subparsers(title="actions", required=True, metavar="action")
    about = "Print the nodes and tensors of each kernel, and how the library was compiled, or the C functions of one kernel."
    action = _add_command(actions, "show", "print the kernels of a model", about, *examples)
    action.add_argument("file", type=Path, metavar="FILE", help="the optimized model, its library or the library's source")
    action.add_argument("--source", metavar="NAME", help="print the C functions of this kernel alone")
    action.set_defaults(run="kernels show")


def _add_cache_commands(commands: Commands) -> None:
    about = "Show or clear the file in which measured times and results of searches are kept between runs."
    command = _add_command(commands, "cache", "show or clear the time cache", about, "cache info", "cache clear")
    actions = command.add_subparsers(title="actions", required=True, metavar="action")
    for name, about in (("info", "show the file, its size and its entries"), ("clear", "remove all entries")):
        lines = (f"cache {name}", f"cache {name} --cache FILE")
        action = _add_command(actions, name, about, f"{about[0].upper()}{about[1:]}.", *lines)
        _add_cache(action)
        action.set_defaults(run=f"cache {name}")


def _add_profile(commands: Commands) -> None:
    about = "Measure this device and the nodes of models, and show all measurements of the device."
    examples = ("profile model.onnx --threads 4", "profile model.onnx --provider cuda --export gpu.json")
    command = _add_command(commands, "profile", "measure a device and write its profile", about, *examples)
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
    examples = (
        "optimize in.onnx out.onnx --certificate steps.json",
        "verify in.onnx out.onnx --certificate steps.json",
        "verify in.onnx out.onnx --certificate steps.json --input example.npz",
    )
    command = _add_command(commands, "verify", "check an optimized model", about, *examples)
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
    examples = ("generate", "generate --family matrix --output folder", "generate --operator relu --workers 4")
    command = _add_command(commands, "generate", "find and prove rules", about, *examples)
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
    examples = ("prove", "prove --axioms --operator matmul --each", "prove --fresh --workers 4", "prove --samples 200")
    command = _add_command(commands, "prove", "check the proofs of stored rules, or prove the rules again", about, *examples)
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
    examples = ("rules list --family matrix", "rules show NAME", "rules add my.rules")
    about = "List, show, add or export rules."
    command = _add_command(commands, "rules", "list, show, add and export rules", about, *examples)
    actions = command.add_subparsers(title="actions", required=True, metavar="action")
    examples = ("rules list", "rules list --family matrix --part core", "rules list --operator matmul --operator add")
    listing = _add_command(actions, "list", "list the rules, one a line", "List the rules, one a line.", *examples)
    listing.set_defaults(run="rules list")
    about = "Write the rules as a Python module for onnxscript.rewriter, or as a model of function pairs for onnxsim."
    examples = (
        "rules export --format onnxscript --output rules.py",
        "rules export --format functions --output rules.onnx --part core",
        "rules export --format functions --output rules.onnx --operator matmul",
    )
    export = _add_command(actions, "export", "export the rules to other tools", about, *examples)
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
        rule = "add-matmul-to-matmul-add-1"
        lines = (f"rules {name} {rule}", f"rules {name} {rule} --svg rule.svg")
        reading = _add_command(actions, name, detail, f"{detail[0].upper()}{detail[1:]}.", *lines)
        reading.add_argument("name", metavar="NAME", help="a rule's name, as `rules list` prints it")
        reading.add_argument("--svg", type=Path, metavar="FILE", help="draw both sides as an SVG file")
        reading.set_defaults(run="rules show", whole=name == "explain")


def _add_rules_add(actions: Commands) -> None:
    about = (
        "Prove the rules of a file, and write their ledger beside the file, for --rules of `superopt optimize` and `superopt "
        "verify`. A rule is a line such as `twice: relu(relu(x)) => relu(x) for x[1, 2, 3]`. If a rule is refuted or cannot be "
        "proved, nothing is written, and the exit code is 16."
    )
    examples = ("rules add my.rules", "optimize in.onnx out.onnx --rules my.rules")
    command = _add_command(actions, "add", "prove rules of your own", about, *examples)
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
    examples = ("rules derive FILE", "rules derive FILE --core --brief", "rules derive FILE --one-way --json derived.json")
    command = _add_command(actions, "derive", "compare a rule file with the stored rules", about, *examples)
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
