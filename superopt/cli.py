"""The command line: arguments become options, options one call, and every failure one line with its own exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.markup import escape

import superopt
from superopt.errors import StoreError, SuperoptError, UnprovedError, UnreadableRulesError
from superopt.model.dimensions import combinations
from superopt.model.save import save_text, writable
from superopt.quantities import choices, extents, positive, seconds
from superopt.report.generation import counts_table, generation_json
from superopt.report.optimization import summary
from superopt.report.progress import Listener, Progress
from superopt.report.proof import verdicts
from superopt.report.reading import listed, shown, told
from superopt.store import CORE, SEARCH, load, named, selected, write_axioms

INTERRUPTED = 130
INTERNAL = 70
CLOSED = 141
QUIET_SECONDS = 5.0
PIPED_WIDTH = 128


class Output(Console):
    """A console that leaves it to `main` what happens when the reader goes away."""

    def on_broken_pipe(self) -> None:
        """Called while the error is handled."""
        raise  # noqa: PLE0704


out = Output(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = Console(stderr=True, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code (docs/exit-codes.md)."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except SuperoptError as error:
        return _failed(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _failed("interrupted; nothing was written", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
    except Exception as error:  # noqa: BLE001
        if options.debug:
            traceback.print_exc()
        return _failed(f"internal error: {type(error).__name__}: {error} (--debug shows where)", INTERNAL)
    return code


def _failed(message: str, code: int) -> int:
    print(f"superopt: {' '.join(message.split())}", file=sys.stderr)
    return code


# ---------------------------------------------------------------- arguments

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = argparse.ArgumentParser(prog="superopt", description="A superoptimizer for ONNX models.")
    top.add_argument("--version", action="version", version=f"superopt {superopt.__version__}")
    top.add_argument("--debug", action="store_true", help="show a traceback for an internal error")
    commands = top.add_subparsers(title="commands", required=True, metavar="command")
    _add_optimize(commands)
    _add_generate(commands)
    _add_prove(commands)
    _add_rules(commands)
    return top


def _add_optimize(commands: Commands) -> None:
    about = "Write a model that computes the same and runs faster, or the same model where none is found."
    command = commands.add_parser("optimize", help="make a model faster", description=about)
    command.add_argument("source", type=Path, metavar="in.onnx", help="the model to optimize")
    command.add_argument("target", type=Path, metavar="out.onnx", help="where to write the result")
    command.add_argument("--provider", default="cpu", help="where it will run: cpu (default) or cuda")
    command.add_argument("--budget", type=seconds, default=30.0, metavar="TIME", help="time for the search: 90, 60s, 2m (30s)")
    command.add_argument("--seed", type=int, default=0, help="seed of every random choice (0)")
    command.add_argument("--threads", type=positive, default=1, metavar="N", help="CPU threads of the sessions (1)")
    about = "sizes of an open dimension of the inputs at which to be fast, given once for each; it stays open"
    command.add_argument("--shape", type=extents, action="append", default=[], metavar="NAME=N,N", help=about)
    about = "measure, first, which of ONNX Runtime's own optimizers sessions should do without, and optimize for those"
    command.add_argument("--tune", action="store_true", help=about)
    about = "what the search may do: rules, mutants, or rules,mutants (default)"
    command.add_argument("--moves", type=choices("rules", "mutants"), default=("rules", "mutants"), metavar="M,M", help=about)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there, as JSON")
    command.add_argument("--cache", type=Path, metavar="FILE", help="keep measured times there (the user's cache folder)")
    command.set_defaults(run=run_optimize)


def _add_generate(commands: Commands) -> None:
    about = "Find, prove and store rules. The same seed writes the same files, wherever the tasks run."
    command = commands.add_parser("generate", help="find and prove rules", description=about)
    command.add_argument("--family", action="append", metavar="F", help="a family of rules, as matrix or convolution (all)")
    command.add_argument("--seed", type=int, default=0, help="seed of every random choice (0)")
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
    command.set_defaults(run=run_generate)


def _add_prove(commands: Commands) -> None:
    about = "Check the proofs of the stored rules. Exits with 16 if anything is not proved."
    command = commands.add_parser("prove", help="check proofs, or make them anew", description=about)
    which = command.add_mutually_exclusive_group()
    which.add_argument("--axioms", action="store_true", help="prove every axiom from the operators' definitions")
    which.add_argument("--fresh", action="store_true", help="prove every stored rule from nothing, stored proofs unused")
    which.add_argument("--samples", type=positive, metavar="N", help="try every stored rule on N random instantiations instead")
    command.add_argument("--write", action="store_true", help="store the proofs; of axioms, every verdict")
    command.add_argument("--seed", type=int, default=0, help="seed of every random choice (0)")
    _add_workers(command)
    command.set_defaults(run=run_prove)


def _add_workers(command: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    about = "processes of this machine (one for each core; 1: no others)"
    command.add_argument("--workers", type=positive, metavar="N", help=about)


def _add_rules(commands: Commands) -> None:
    command = commands.add_parser("rules", help="look at the rules", description="Look at the stored rules.")
    actions = command.add_subparsers(title="actions", required=True, metavar="action")
    listing = actions.add_parser("list", help="every rule that optimization uses, one a line")
    listing.set_defaults(run=run_rules_list)
    about = "Write the rules as a Python module for onnxscript.rewriter, or as a model of function pairs for onnxsim."
    export = actions.add_parser("export", help="the rules for other tools", description=about)
    export.add_argument("--format", choices=("onnxscript", "functions"), required=True, help="the tool's form")
    export.add_argument("--output", type=Path, required=True, metavar="FILE", help="where to write them")
    export.set_defaults(run=run_rules_export)
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
        reading.set_defaults(run=run_rules_show, whole=name == "explain")


def _add_rules_derive(actions: Commands) -> None:
    about = (
        "Say which equalities of a rule file follow from the stored rules, and which of these from the file, with the steps."
    )
    command = actions.add_parser("derive", help="compare a file of rules with ours", description=about)
    command.add_argument("file", type=Path, metavar="FILE", help="rules in the notation of substitutions/*.rules")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--from", dest="given", type=Path, metavar="FILE", help="derive from the rules of this file instead")
    which.add_argument("--all", action="store_true", help="derive from the search set too (the core alone)")
    which.add_argument("--axioms", action="store_true", help="derive from the operators' axioms instead")
    command.add_argument("--brief", action="store_true", help="leave out the steps")
    command.add_argument("--one-way", action="store_true", help="leave out what follows from the file")
    command.add_argument("--seed", type=int, default=0, help="seed of the random instantiations (0)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the findings there, as JSON")
    command.set_defaults(run=run_rules_derive)


# ---------------------------------------------------------------- commands


def run_optimize(options: argparse.Namespace) -> int:
    """`superopt optimize`: the target holds the result, the report is on the terminal and, if wanted, in a JSON file."""
    for path in filter(None, (options.target, options.json)):
        writable(path)
    with shown_progress() as listener:
        optimized = superopt.optimize(
            options.source,
            provider=options.provider,
            budget=options.budget,
            seed=options.seed,
            threads=options.threads,
            shapes=combinations(dict(options.shape)),
            cache=options.cache,
            tune=options.tune,
            moves=options.moves,
            progress=listener,
        )
    optimized.save(options.target)
    if options.json is not None:
        save_text(optimized.report.json(), options.json)
    out.print(summary(optimized.report))
    return 0


def run_generate(options: argparse.Namespace) -> int:
    """`superopt generate`: the rules are in the folder, and a table says what became of the terms."""
    from superopt.execute import cores, default_folder
    from superopt.find.families import UNIVERSES
    from superopt.generate import EVERY, generate

    families = options.family or list(EVERY)
    unknown = [family for family in families if family not in EVERY]
    if unknown:
        raise StoreError(f"unknown family {unknown[0]!r}: it is one of {', '.join(EVERY)}")
    if options.json is not None:
        writable(options.json)
    with shown_progress() as listener:
        listener(Progress("generate"))
        found = generate(
            seed=options.seed,
            families=[family for family in EVERY if family in families],
            folder=options.output,
            workers=options.workers or cores(),
            scheduler=options.scheduler,
            resume=options.resume or default_folder(),
            progress=lambda counts: listener(Progress(f"{counts.family}, {counts.universe}", detail=f"{counts.kept} kept")),
        )
    if options.json is not None:
        templates = {(t.op, str(t.attributes)) for u in UNIVERSES if u.family in families for t in u.templates}
        save_text(generation_json(found, len(templates)), options.json)
    out.print(counts_table(found))
    return 0


def run_prove(options: argparse.Namespace) -> int:
    """`superopt prove`: a table with a line for each axiom or stored rule.

    Raises:
        UnprovedError: one of them is not proved.
    """
    from superopt.execute import cores
    from superopt.prove.ledger import Row, axiom_entry, prove_axioms, prove_store, write_proofs

    if options.samples:
        return run_samples(options)
    what = "axioms" if options.axioms else "stored rules"
    how = {"seed": options.seed, "workers": options.workers or cores()}
    found = prove_axioms(**how) if options.axioms else prove_store(fresh=options.fresh, record=options.write, **how)
    rows: list[Row] = []
    with shown_progress() as listener:
        for row in found:
            rows.append(row)
            listener(Progress(what, len(rows), detail=row.name))
    if options.axioms and options.write:
        write_axioms([axiom_entry(row) for row in rows])
    out.print(verdicts(what.capitalize(), rows))
    missing = [row.name for row in rows if not row.proved]
    if options.write and not options.axioms and not missing:
        write_proofs(rows)
    if missing:
        raise UnprovedError(f"{len(missing)} of {len(rows)} {what} not proved: {', '.join(missing[:5])}")
    return 0


def run_samples(options: argparse.Namespace) -> int:
    """`superopt prove --samples N`: one line that counts rules, instantiations and mismatches.

    Raises:
        UnprovedError: a rule's sides differ somewhere.
    """
    from superopt.execute import cores
    from superopt.prove.ledger import Sampled, sample_store

    rows: list[Sampled] = []
    found = sample_store(instances=options.samples, seed=options.seed, workers=options.workers or cores())
    with shown_progress() as listener:
        for row in found:
            rows.append(row)
            listener(Progress("sampling", len(rows), detail=row.name))
    wrong = [row for row in rows if row.mismatch is not None]
    tried = [row.instances for row in rows]
    out.print(f"{len(rows)} rules, {sum(tried)} instantiations, {min(tried, default=0)} or more each: {len(wrong)} mismatches")
    if wrong:
        raise UnprovedError("; ".join(f"{row.name}: {row.mismatch}" for row in wrong[:3]))
    return 0


def run_rules_list(options: argparse.Namespace) -> int:
    """`superopt rules list`: one rule a line, as the files have it."""
    for line in listed(selected(load(), family=options.family, part=options.part, operators=options.operator)):
        out.print(line, soft_wrap=True)
    return 0


def run_rules_export(options: argparse.Namespace) -> int:
    """`superopt rules export`: the file holds the rules in the form asked for; a line says how many, and why others are not."""
    from superopt.export import export, reasons

    writable(options.output)
    chosen = selected(load(), family=options.family, part=options.part, operators=options.operator)
    exported = export([stored.rule for stored in chosen], options.format)
    exported.save(options.output)
    out.print(f"{len(exported.written)} of {len(chosen)} rules are in {options.output}", soft_wrap=True)
    for reason, count in reasons(exported):
        out.print(f"{count:>5} left out: {reason}", soft_wrap=True)
    return 0


def run_rules_show(options: argparse.Namespace) -> int:
    """`superopt rules show|explain NAME`: what is known about the rule; with --svg, a drawing of it is in the file."""
    from superopt.explain import explained
    from superopt.report.drawing import drawing

    stored = named(load(), options.name)
    if options.svg is not None:
        writable(options.svg)
        equation = stored.rule.equations[0]
        save_text(drawing(equation.left, equation.right), options.svg)
    out.print((told if options.whole else shown)(explained(stored)), soft_wrap=True)
    return 0


def run_rules_derive(options: argparse.Namespace) -> int:
    """`superopt rules derive`: a paragraph for each equality, and the totals.

    Raises:
        UnreadableRulesError: some lines of the file were left out.
    """
    from superopt.prove.derive_file import Finding, chosen, compared, comparison_text, definitions, read_lines

    if options.json is not None:
        writable(options.json)
    lines = read_lines(options.file)
    rules = chosen(given=options.given, everything=options.all, axioms_alone=options.axioms)
    seen: list[str] = []

    def tell(finding: Finding) -> None:
        seen.append(finding.name)
        listener(Progress("deriving", len(seen), detail=finding.name))

    backwards = () if options.one_way else rules
    with shown_progress() as listener:
        found = compared(lines, rules, backwards=backwards, notation=definitions(), seed=options.seed, progress=tell)
    if options.json is not None:
        save_text(json.dumps(found.record(), indent=1, ensure_ascii=False) + "\n", options.json)
    for line in comparison_text(found, chains=not options.brief):
        out.print(line, soft_wrap=True, markup=False)
    if found.unreadable:
        names = ", ".join(f.name for f in found.unreadable[:5])
        raise UnreadableRulesError(f"{len(found.unreadable)} of {len(lines)} rules cannot be read: {names}")
    return 0


# ---------------------------------------------------------------- progress


@contextmanager
def shown_progress() -> Iterator[Listener]:
    """A listener that shows progress on the standard error stream: in place on a terminal, a line now and then elsewhere."""
    if err.is_terminal:
        with err.status("starting") as status:
            yield lambda progress: status.update(escape(str(progress)))
        return
    last = _Last()

    def line(progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase != last.phase or now - last.time >= QUIET_SECONDS:
            last.phase, last.time = progress.phase, now
            print(progress, file=sys.stderr, flush=True)

    yield line


@dataclass
class _Last:
    """What was printed last, and when."""

    phase: str = ""
    time: float = 0.0
