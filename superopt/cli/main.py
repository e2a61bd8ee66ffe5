"""Run the commands of the command line. A failure is reported in one line and sets the exit code."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TextIO, cast

from rich.console import Console
from rich.markup import escape

import superopt
from superopt.algebra.operators import registry, substitutions_folder
from superopt.cli.arguments import parse_arguments, suggestion
from superopt.cli.display import lines, panel
from superopt.cli.signals import Interrupted, Signals
from superopt.errors import (
    OutputError,
    PackError,
    ReplayError,
    ResourceError,
    SpecError,
    StoreError,
    SuperoptError,
    TargetError,
    UnprovedError,
    UnreadableRulesError,
    first_line,
)
from superopt.files import (
    cause,
    is_output_data_file_name,
    require_distinct,
    require_folder,
    require_model_file,
    require_writable,
    write_text_atomically,
)
from superopt.flows.options import Options
from superopt.policy import REPORT
from superopt.report.generation import counts_table, generation_json
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.report.proof import verdicts
from superopt.report.reading import render_explanation, render_rule, rule_listing
from superopt.report.verification import verification_lines
from superopt.rules.store import StoredRule, load, load_axioms, rule_named, select_rules, write_axioms
from superopt.worker_pool import defer_garbage_collection

if TYPE_CHECKING:
    from superopt.flows.optimized import AnyModel

INTERRUPTED, TERMINATED, INTERNAL, CLOSED = 130, 143, 70, 141


class ReaderGoneError(Exception):
    """The process that reads the standard output through a pipe has closed the pipe."""


Arguments = ParamSpec("Arguments")


def _flushed(
    print_: Callable[Concatenate[Console, Arguments], None],
) -> Callable[Concatenate[StandardOutput, Arguments], None]:
    """Return a variant of the console method `print_`. The variant returns only after all text is written to the file."""

    def printed(console: StandardOutput, /, *objects: Arguments.args, **how: Arguments.kwargs) -> None:
        with console.written():
            print_(console, *objects, **how)
            console.file.flush()

    return printed


class StandardOutput(Console):
    """A console on the standard output. The method `print` returns when all text is written.

    Raises:
        ReaderGoneError: The process that reads the output through a pipe has closed the pipe.
        OutputError: The output cannot be written.
    """

    print = _flushed(Console.print)

    def flush(self) -> None:
        """Flush the standard output, including text that other code, such as `argparse`, has printed."""
        with self.written():
            self.file.flush()

    def on_broken_pipe(self) -> None:
        """Raise the current BrokenPipeError again. The base class calls this method while it handles the error."""
        raise  # noqa: PLE0704

    @contextmanager
    def written(self) -> Iterator[None]:
        """Convert write errors inside the context to `ReaderGoneError` or `OutputError`."""
        try:
            yield
        except OSError as error:
            discard(sys.stdout)
            if isinstance(error, BrokenPipeError):
                raise ReaderGoneError from error
            raise OutputError(f"cannot write to the standard output: {cause(error)}") from error


WIDTH_IS_KNOWN = (sys.stdout is not None and sys.stdout.isatty()) or os.environ.get("COLUMNS", "").isdecimal()
out = StandardOutput(highlight=False, width=None if WIDTH_IS_KNOWN else REPORT.piped_width_characters)
err = Console(stderr=True, highlight=False)
signals = Signals()


def open_streams() -> None:
    """Prepare the standard streams. The null device replaces each standard stream that is closed.

    Without the null device, the next opened file would become the standard stream. Characters that are not in a stream's
    encoding are printed as backslash escapes.
    """
    for handle, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(handle)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 (positional only)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Redirect the stream to the null device, so that the interpreter reports no further write error at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def print_error_line(text: object) -> None:
    """Print a line to the standard error stream, and ignore write errors."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of the command line and return the exit code (docs/exit-codes.md)."""
    open_streams()
    debug = False
    try:
        options = parse_command_line(arguments)
        options.arguments = sys.argv[1:] if arguments is None else [*map(str, arguments)]
        debug = options.debug
        with signals.handled(), defer_garbage_collection():
            return COMMANDS[options.run](options)
    except SuperoptError as error:
        return _failed(str(error), error.exit_code)
    except (KeyboardInterrupt, Interrupted) as error:
        return _failed("interrupted; nothing was written", getattr(error, "exit_code", INTERRUPTED))
    except ReaderGoneError:
        return CLOSED
    except Exception as error:  # noqa: BLE001
        if debug:
            print_error_line(traceback.format_exc())
        if isinstance(error, MemoryError | OSError):
            return _failed(first_line(error), ResourceError.exit_code)
        return _failed(f"internal error: {type(error).__name__}: {error} (--debug shows where)", INTERNAL)


def parse_command_line(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments of the command line and return the options.

    If help or the version is requested, the text is printed before the exception is raised.

    Raises:
        SystemExit: The arguments are invalid (exit code 2), or only help or the version was requested (exit code 0).
    """
    try:
        with out.written():
            return parse_arguments(arguments)
    except SystemExit:
        out.flush()
        raise


def _failed(message: str, code: int) -> int:
    print_error_line(f"superopt: {' '.join(message.split())}")
    return code


# ---------------------------------------------------------------- commands


def run_optimize(options: argparse.Namespace) -> int:
    """Run `superopt optimize`: write the optimized model and print the report.

    If requested, also write the certificate, and the report as JSON, HTML or SVG. With `--dry-run`, only print the plan of the
    search.
    """
    require_model_file(options.source)
    if options.dry_run:
        return run_optimize_dry(options)
    from superopt.protobuf.kernels import library_files
    from superopt.report.optimization_summary import summary, verdict

    reports = {"--json": options.json, "--certificate": options.certificate, "--html": options.html, "--svg": options.svg}
    reports |= {"--cache": options.cache}
    built = dict(zip(("the library", "its source"), library_files(options.target), strict=True)) if options.kernels else {}
    read = {"--device-profile": options.device_profile, **argument_data_files("in.onnx", options.source)}
    read |= {f"--input {file}": file for file in options.inputs}
    require_distinct({"out.onnx": options.target, **reports, **built}, read)
    require_distinct({**reports, **built}, {"in.onnx": options.source, **argument_data_files("out.onnx", options.target)})
    for label, path in reports.items():
        if path is not None and is_output_data_file_name(options.target, path):
            raise TargetError(
                f"{path}: cannot write the {label} file, because the data file of {options.target} has the same name"
            )
    for path in filter(None, (options.target, options.json, options.certificate, options.html, options.svg, *built.values())):
        require_writable(path)
    asked = optimize_options(options)
    asked["stop"] = signals.stop
    with progress_listener(quiet=options.quiet, title=str(options.source)) as listener:

        def told(progress: Progress) -> None:
            if progress.phase == "search":
                signals.defer()
            listener(progress)

        asked["progress"] = told
        optimized = superopt.optimize(options.source, **asked)
    if signals.number and not optimized.report.accepted:
        raise Interrupted(signals.number)
    signals.saving()
    optimized.save(options.target)
    if options.json is not None:
        write_text_atomically(optimized.report.json(), options.json)
    if options.certificate is not None:
        write_text_atomically(optimized.certificate, options.certificate)
    out.print(
        verdict(optimized.report)
        if options.quiet
        else summary(optimized.report, target=str(options.target), verbose=options.verbose)
    )
    if options.html is not None or options.svg is not None:
        write_pages(optimized, options)
    if signals.number:
        print_error_line(f"superopt: interrupted; the best model so far passed the check and is in {options.target}")
    return 0


def run_optimize_dry(options: argparse.Namespace) -> int:
    """Run `superopt optimize --dry-run`: print the plan of the search, and write the plan as JSON if requested."""
    from superopt.flows.plan_search import plan_search
    from superopt.report.search_plan import plan_summary

    asked = optimize_options(options)
    require_distinct({"--json": options.json}, {"in.onnx": options.source, **argument_data_files("in.onnx", options.source)})
    if options.json is not None:
        require_writable(options.json)
    with progress_listener(quiet=options.quiet, title=str(options.source)) as listener:
        asked["progress"] = listener
        plan = plan_search(options.source, **asked)
    if options.json is not None:
        write_text_atomically(plan.json(), options.json)
    if options.quiet:
        out.print(plan.verdict, soft_wrap=True, markup=False)
    else:
        out.print(plan_summary(plan, verbose=options.verbose))
    return 0


def optimize_options(options: argparse.Namespace) -> Options:
    """Return the keyword arguments of `superopt.optimize` that the command line gives."""
    asked = cast("Options", {name: getattr(options, name) for name in Options.__annotations__ if name in options})
    asked["shapes"] = dict(options.shape)
    asked["fix"] = dict(options.fix)
    return asked


def write_pages(optimized: superopt.Optimized[AnyModel], options: argparse.Namespace) -> None:
    """Write the HTML page and the SVG picture about the optimization to the files that `--html` and `--svg` name."""
    from superopt.flows.report_page import PageFiles, page_content
    from superopt.report.html.rendering import card_svg, page_html

    files = PageFiles(
        str(options.target), str(options.certificate or ""), repeated_command(optimized.report, options.arguments)
    )
    content = page_content(optimized, files, profiled=options.html is not None and not signals.number)
    if options.html is not None:
        write_text_atomically(page_html(content), options.html)
    if options.svg is not None:
        write_text_atomically(card_svg(content), options.svg)


def repeated_command(report: superopt.Report, arguments: Sequence[str]) -> str:
    """Return the command line that repeats an optimization.

    Options that the user did not give are added, with the values that the optimization used.
    """
    chosen = {"--budget": f"{report.budget:g}", "--seed": str(report.seed), "--threads": str(report.environment.threads)}
    given = {argument.partition("=")[0] for argument in arguments}
    added = [text for name, value in chosen.items() if name not in given for text in (name, value)]
    return shlex.join(["superopt", *arguments, *added])


def run_replay(options: argparse.Namespace) -> int:
    """Run `superopt replay`: apply recorded rewrites to another model, write the result, and print a report.

    Raises:
        ReplayError: No rewrite could be applied. The model was written unchanged.
    """
    require_model_file(options.source)
    from superopt.report.replaying import replay_lines

    written = {"out.onnx": options.target, "--certificate": options.certificate, "--cache": options.cache}
    read = {"steps.json": options.recorded, **argument_data_files("in.onnx", options.source)}
    read |= {f"--input {file}": file for file in options.inputs}
    require_distinct(written, read)
    reports = {"--certificate": options.certificate, "--cache": options.cache}
    require_distinct(reports, {"in.onnx": options.source, **argument_data_files("out.onnx", options.target)})
    for label, path in reports.items():
        if path is not None and is_output_data_file_name(options.target, path):
            raise TargetError(
                f"{path}: cannot write the {label} file, because the data file of {options.target} has the same name"
            )
    for path in filter(None, (options.target, options.certificate)):
        require_writable(path)
    with progress_listener() as listener:
        replayed = superopt.replay(
            options.recorded,
            options.source,
            provider=options.provider,
            threads=options.threads,
            cuda_graph=options.cuda_graph,
            inputs=options.inputs,
            tolerance=options.tolerance,
            compare=options.compare,
            seed=options.seed,
            rules=options.rules,
            cache=options.cache,
            progress=listener,
        )
    certificate = replayed.certificate if options.certificate is not None else ""
    signals.saving()
    replayed.save(options.target)
    if options.certificate is not None:
        write_text_atomically(certificate, options.certificate)
    for line in replay_lines(replayed.report):
        out.print(line, soft_wrap=True, markup=False)
    if not replayed.evidence.rewritten:
        raise ReplayError(
            f"{options.source}: {replayed.report.reason}; {options.target} is an unchanged copy of {options.source}"
        )
    return 0


def argument_data_files(label: str, model: Path) -> dict[str, Path]:
    """Return a mapping from descriptions to the external data files of the model. Error messages use the descriptions."""
    from superopt.protobuf.stored import data_files

    return {f"{file.name}, in which {label} keeps tensors": file for file in data_files(model)}


def run_compare(options: argparse.Namespace) -> int:
    """Run `superopt compare`: print the verdict and the tables, and write the comparison as JSON if requested."""
    for model in (options.first, options.second):
        require_model_file(model)
    from superopt.report.comparison import comparison_summary

    read = argument_data_files("a.onnx", options.first) | argument_data_files("b.onnx", options.second)
    require_distinct({"--json": options.json}, {"a.onnx": options.first, "b.onnx": options.second, **read})
    if options.json is not None:
        require_writable(options.json)
    with progress_listener() as listener:
        compared = superopt.compare(
            options.first,
            options.second,
            provider=options.provider,
            threads=options.threads,
            cuda_graph=options.cuda_graph,
            libraries=options.libraries,
            shapes=dict(options.shape),
            inputs=options.inputs,
            seconds=options.seconds,
            seed=options.seed,
            progress=listener,
        )
    if options.json is not None:
        write_text_atomically(compared.json(), options.json)
    out.print(comparison_summary(compared))
    return 0


def run_inspect(options: argparse.Namespace) -> int:
    """Run `superopt inspect`: print which parts of a model superopt can rewrite, and write the result as JSON if requested."""
    require_model_file(options.model)
    from superopt.flows.inspect_model import inspect_model
    from superopt.report.inspection import inspection_lines

    require_distinct(
        {"--json": options.json}, {"model.onnx": options.model, **argument_data_files("model.onnx", options.model)}
    )
    if options.json is not None:
        require_writable(options.json)
    found = inspect_model(options.model, shapes=[{name: sizes[0] for name, sizes in options.shape}], time=options.time)
    if options.json is not None:
        write_text_atomically(found.json(), options.json)
    for line in inspection_lines(found):
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Run `superopt diff`: print which nodes and weights of two models differ, and write the result as JSON if requested."""
    for model in (options.first, options.second):
        require_model_file(model)
    from superopt.flows.diff_models import diff_models
    from superopt.report.difference import difference_lines

    read = argument_data_files("a.onnx", options.first) | argument_data_files("b.onnx", options.second)
    require_distinct({"--json": options.json}, {"a.onnx": options.first, "b.onnx": options.second, **read})
    if options.json is not None:
        require_writable(options.json)
    found = diff_models(options.first, options.second)
    if options.json is not None:
        write_text_atomically(found.json(), options.json)
    for line in difference_lines(found):
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_pack(options: argparse.Namespace) -> int:
    """Run `superopt pack`: write a packed model of several models, print a report, and write the report as JSON if requested.

    Raises:
        PackError: Two models have the same name.
    """
    for model in options.models:
        require_model_file(model)
    from superopt.pack.pack_models import pack_models
    from superopt.report.packing import pack_lines

    names = options.names or [model.stem for model in options.models]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise PackError(f"two models have the name {repeated[0]!r}; --name gives other names")
    models = dict(zip(names, options.models, strict=True))
    read = {f"the model {name}": model for name, model in models.items()}
    read |= {label: file for name, model in models.items() for label, file in argument_data_files(name, model).items()}
    require_distinct({"out.onnx": options.target, "--json": options.json}, read)
    require_distinct({"--json": options.json}, argument_data_files("out.onnx", options.target))
    if options.json is not None and is_output_data_file_name(options.target, options.json):
        raise TargetError(
            f"{options.json}: cannot write the --json file, because the data file of {options.target} has the same name"
        )
    for path in filter(None, (options.target, options.json)):
        require_writable(path)
    with progress_listener(title=str(options.target)) as listener:
        packed = pack_models(
            models,
            shared_inputs=options.shared,
            budget=options.budget,
            threads=options.threads,
            seed=options.seed,
            progress=listener,
        )
    signals.saving()
    packed.save(options.target)
    if options.json is not None:
        write_text_atomically(packed.report.json(), options.json)
    for line in pack_lines(packed.report):
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_profile(options: argparse.Namespace) -> int:
    """Run `superopt profile`: print all measurements of the device, and write them to a file if requested."""
    from superopt.flows.profile import profile
    from superopt.model.dimensions import size_combinations
    from superopt.report.profiling import profiling_tables

    models = {str(model): model for model in options.model}
    data = {label: file for name, model in models.items() for label, file in argument_data_files(name, model).items()}
    read = {**models, **data, **{f"--import {file}": file for file in options.merge}}
    require_distinct({"--export": options.export, "--cache": options.cache}, read)
    if options.export is not None:
        require_writable(options.export)
    with progress_listener() as listener:
        found = profile(
            options.model,
            provider=options.provider,
            threads=options.threads,
            shapes=size_combinations(dict(options.shape)),
            cache=options.cache,
            merged=options.merge,
            progress=listener,
        )
    if options.export is not None:
        found.save(options.export)
    out.print(profiling_tables(found.report))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """Run `superopt verify`: print the verified rewrite steps, the way in which each step was verified, and the verdict.

    Raises:
        CertificateError: Some part of the certificate cannot be verified, or the library of kernels does not belong to the
            model.
    """
    from superopt.flows.kernel_library import check_library
    from superopt.flows.verify import verify
    from superopt.model.examples import read_examples
    from superopt.model.load import load as load_model
    from superopt.verification.certificates import parse_certificate, read_certificate_text

    text = read_certificate_text(options.certificate)
    examples = read_examples(options.inputs, load_model(options.source).model) if options.inputs else ()
    with progress_listener() as listener:
        found = verify(
            options.source,
            options.target,
            text,
            provider=options.provider,
            threads=options.threads,
            seed=options.seed,
            examples=examples,
            user_rules=options.rules,
            progress=listener,
        )
    library = check_library(options.target, parse_certificate(text).kernels)
    for line in [*([f"kernels: {library}"] if library else []), *verification_lines(found)]:
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_generate(options: argparse.Namespace) -> int:
    """Run `superopt generate`: generate rules, write the rules to files, and print a table of counts.

    The table has a line for each universe (a vocabulary for terms).
    """
    from superopt.discovery.universes.elementwise import universes_of
    from superopt.discovery.universes.families import UNIVERSES
    from superopt.flows.generate import EVERY, generate, generate_operators
    from superopt.worker_pool import cores, finished_tasks_folder

    families = [family for family in EVERY if family in (options.family or EVERY)]
    unknown = [family for family in options.family or () if family not in EVERY]
    if unknown:
        raise StoreError(f"unknown family {unknown[0]!r}{suggestion(unknown[0], EVERY)} (expected one of {', '.join(EVERY)})")
    for folder in filter(None, (options.output, options.resume)):
        require_folder(folder)
    if options.json is not None:
        require_distinct({"--json": options.json}, command_rule_files(options.output))
        require_writable(options.json)
    operators = sorted(set(map(known_operator, options.operator)))
    with progress_listener() as listener:
        listener(Progress("generate"))
        run = partial(generate_operators, operators) if operators else partial(generate, families=families)
        found = run(
            seed=options.seed,
            folder=options.output,
            workers=options.workers or cores(),
            scheduler=options.scheduler,
            resume=options.resume or finished_tasks_folder(),
            progress=lambda counts: listener(Progress(f"{counts.family}, {counts.universe}", detail=f"{counts.kept} kept")),
        )
    if options.json is not None:
        own = [universe for name in operators for universe in universes_of(name)]
        explored = own if operators else [universe for universe in UNIVERSES if universe.family in families]
        templates = {(t.op, str(t.attributes)) for universe in explored for t in universe.templates}
        write_text_atomically(generation_json(found, len(templates)), options.json)
    out.print(counts_table(found))
    return 0


def command_rule_files(folder: Path | None = None) -> dict[str, Path]:
    """Return a mapping from a description of each file in the folder to the path of the file.

    The files contain rules and proofs. The descriptions are used in error messages. If `folder` is None, superopt's own folder
    is used.
    """
    stored = (substitutions_folder() if folder is None else folder).rglob("*")
    return {f"the stored {file.name}": file for file in stored if file.is_file()}


def run_prove(options: argparse.Namespace) -> int:
    """Run `superopt prove`: check axioms or stored rules, and print a table of verdicts (proved, refuted, unknown) by family.

    A second table lists the axioms or rules that are not proved for all sizes.

    Raises:
        UnprovedError: Some axioms or rules are not proved.
    """
    from superopt.proof.ledger import LedgerRow, axiom_proof_entry, prove_axioms, prove_store, write_proofs
    from superopt.worker_pool import cores

    if options.samples:
        return run_samples(options)
    what = "axioms" if options.axioms else "stored rules"
    seed, workers = options.seed, options.workers or cores()
    operators = set(map(known_operator, options.operator))
    if options.axioms:
        found = prove_axioms(operators=operators, seed=seed, workers=workers)
    else:
        found = prove_store(fresh=options.fresh, record=options.write, seed=seed, workers=workers)
    rows: list[LedgerRow] = []
    with progress_listener() as listener:
        for row in found:
            rows.append(row)
            listener(Progress(what, len(rows), detail=row.name))
    if options.axioms and options.write:
        others = [e for e in load_axioms().values() if operators and e.name.partition(".")[0] not in operators]
        write_axioms([*others, *(axiom_proof_entry(row) for row in rows)])
    out.print(verdicts(what.capitalize(), rows, each=options.each))
    missing = [row.name for row in rows if not row.proved]
    if options.write and not options.axioms and not missing:
        write_proofs(rows)
    if missing:
        raise UnprovedError(f"{len(missing)} of {len(rows)} {what} are not proved: {', '.join(missing[:5])}")
    return 0


def run_samples(options: argparse.Namespace) -> int:
    """Run `superopt prove --samples N`: test each stored rule at N random choices of sizes and values, and print the counts.

    Raises:
        UnprovedError: The sides of a rule differ at some choice of sizes and values.
    """
    from superopt.proof.ledger import Sampled, sample_store
    from superopt.worker_pool import cores

    rows: list[Sampled] = []
    found = sample_store(instances=options.samples, seed=options.seed, workers=options.workers or cores())
    with progress_listener() as listener:
        for row in found:
            rows.append(row)
            listener(Progress("sampling", len(rows), detail=row.name))
    wrong = [row for row in rows if row.mismatch is not None]
    tried = [row.instances for row in rows]
    out.print(f"{len(rows)} rules, {sum(tried)} instantiations, {min(tried, default=0)} or more each: {len(wrong)} mismatches")
    if wrong:
        raise UnprovedError("; ".join(f"{row.name}: {row.mismatch}" for row in wrong[:3]))
    return 0


def known_operator(name: str) -> str:
    """Return the name of an operator.

    Raises:
        SpecError: No file of specs/ defines the operator. The message suggests similar names.
    """
    if name not in registry():
        raise SpecError(f"no operator is called {name!r}{suggestion(name, registry())}")
    return name


def chosen_rules(options: argparse.Namespace) -> list[StoredRule]:
    """Return the stored rules that the options `--family`, `--part` and `--operator` choose.

    Raises:
        SpecError, StoreError: No operator or no family has the given name. The message suggests similar names.
    """
    rules, operators = load(), [*map(known_operator, options.operator)]
    families = sorted({stored.family for stored in rules})
    if options.family is not None and options.family not in families:
        raise StoreError(f"no rule belongs to the family {options.family!r}{suggestion(options.family, families)}")
    return select_rules(rules, family=options.family, part=options.part, operators=operators)


def run_rules_list(options: argparse.Namespace) -> int:
    """Run `superopt rules list`: print one rule per line, in the notation of the rule files."""
    for line in rule_listing(chosen_rules(options)):
        out.print(line, soft_wrap=True)
    return 0


def run_rules_add(options: argparse.Namespace) -> int:
    """Run `superopt rules add`: prove the rules of a file, write the ledger of the file, and print a line for each rule."""
    from superopt.flows.add_rules import add_rules

    require_folder(options.file.parent if options.out is None else options.out)
    with progress_listener() as listener:
        added = add_rules(options.file, options.out, seed=options.seed, progress=listener)
    for line in added.lines():
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_rules_export(options: argparse.Namespace) -> int:
    """Run `superopt rules export`: write the rules to a file in the requested format.

    Also print the number of exported rules. Also print how many rules were left out for each reason.
    """
    from superopt.flows.export_rules import export, reasons

    require_distinct({"--output": options.output}, command_rule_files())
    require_writable(options.output)
    chosen = chosen_rules(options)
    exported = export([stored.rule for stored in chosen], options.format)
    exported.save(options.output)
    out.print(f"{len(exported.written)} of {len(chosen)} rules are in {options.output}", soft_wrap=True)
    for reason, count in reasons(exported):
        out.print(f"{count:>5} left out: {reason}", soft_wrap=True)
    return 0


def run_rules_show(options: argparse.Namespace) -> int:
    """Run `superopt rules show NAME` or `superopt rules explain NAME`: print the rule with its preconditions and its origin.

    `explain` also prints the proof and an example. With `--svg`, a drawing of the rule is written to a file.
    """
    from superopt.flows.explain_rules import explain_rule
    from superopt.report.drawing import drawing

    stored = rule_named(load(), options.name)
    if options.svg is not None:
        require_distinct({"--svg": options.svg}, command_rule_files())
        require_writable(options.svg)
        equation = stored.rule.equations[0]
        write_text_atomically(drawing(equation.left, equation.right), options.svg)
    out.print((render_explanation if options.whole else render_rule)(explain_rule(stored)), soft_wrap=True)
    return 0


def run_rules_derive(options: argparse.Namespace) -> int:
    """Run `superopt rules derive`: print the equations of a file that follow from the stored rules.

    If `--one-way` is not given, also print the stored rules that follow from the equations of the file.

    Raises:
        UnreadableRulesError: Some lines of the file cannot be read and were left out.
    """
    from superopt.flows.compare_rules import (
        Finding,
        choose_laws,
        compare_rules,
        comparison_text,
        definition_axioms_for_derivation,
        read_rules_to_derive,
        rearrangement_axioms,
    )

    if options.json is not None:
        require_distinct({"--json": options.json}, {"FILE": options.file, "--from": options.given, **command_rule_files()})
        require_writable(options.json)
    lines = read_rules_to_derive(options.file)
    rules = choose_laws(given=options.given, core_alone=options.core, axioms_alone=options.axioms)
    seen: list[str] = []

    def tell(finding: Finding) -> None:
        seen.append(finding.name)
        listener(Progress("deriving", len(seen), detail=finding.name))

    backwards = () if options.one_way else rules
    granted = [*definition_axioms_for_derivation(), *rearrangement_axioms()]
    with progress_listener() as listener:
        found = compare_rules(lines, rules, backwards=backwards, notation=granted, seed=options.seed, progress=tell)
    if options.json is not None:
        write_text_atomically(json.dumps(found.record(), indent=1, ensure_ascii=False) + "\n", options.json)
    for line in comparison_text(found, chains=not options.brief):
        out.print(line, soft_wrap=True, markup=False)
    if found.unreadable:
        names = ", ".join(f.name for f in found.unreadable[:5])
        raise UnreadableRulesError(f"{len(found.unreadable)} of {len(lines)} rules cannot be read: {names}")
    return 0


def run_kernels_show(options: argparse.Namespace) -> int:
    """Run `superopt kernels show`: print the kernels and the compiler of a library, or the C functions of one kernel."""
    require_model_file(options.file)
    from superopt.flows.kernel_library import kernel_code, library_lines

    if options.source is not None:
        out.print(kernel_code(options.file, options.source), end="", soft_wrap=True, markup=False)
        return 0
    for line in library_lines(options.file):
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_cache_info(options: argparse.Namespace) -> int:
    """Run `superopt cache info`: print the path and the size of the time cache, its dates, and the number of its entries."""
    from superopt.report.caching import cache_lines
    from superopt.runtime.cache import cache_content, default_path

    for line in cache_lines(cache_content(options.cache or default_path())):
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_cache_clear(options: argparse.Namespace) -> int:
    """Run `superopt cache clear`: remove all entries of the time cache, and print their number."""
    from superopt.runtime.cache import clear_cache, default_path

    path = options.cache or default_path()
    out.print(f"{clear_cache(path)} entries removed from {path}", soft_wrap=True, markup=False)
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "optimize": run_optimize,
    "replay": run_replay,
    "compare": run_compare,
    "inspect": run_inspect,
    "diff": run_diff,
    "pack": run_pack,
    "profile": run_profile,
    "verify": run_verify,
    "generate": run_generate,
    "prove": run_prove,
    "rules list": run_rules_list,
    "rules add": run_rules_add,
    "rules export": run_rules_export,
    "rules show": run_rules_show,
    "rules derive": run_rules_derive,
    "kernels show": run_kernels_show,
    "cache info": run_cache_info,
    "cache clear": run_cache_clear,
}
"""A mapping from each command to its function. The keys are the values of the option `run`, which the parser sets."""


# ---------------------------------------------------------------- progress


@contextmanager
def progress_listener(*, quiet: bool = False, title: str = "") -> Iterator[Listener]:
    """Yield a listener that shows progress on the standard error stream. If `quiet` is True, the listener shows nothing.

    On a terminal, a panel with the title is updated in place. If `title` is empty, a line of text is updated instead. If the
    stream is not a terminal, a line is printed when a new stage or phase starts, and every few seconds.
    """
    if quiet:
        yield ignore_progress
    elif not err.is_terminal or err.is_dumb_terminal:
        with lines(print_error_line) as listener:
            yield listener
    elif title:
        with signals.shown_elsewhere(), panel(err, title, lambda: signals.number > 0) as listener:
            yield listener
    else:
        with err.status("starting") as status:
            yield lambda progress: status.update(escape(str(progress)))
