"""The command line: arguments become options, options one call, and every failure one line with its own exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from rich.console import Console
from rich.markup import escape

import superopt
from superopt.arguments import parsed
from superopt.errors import StoreError, SuperoptError, UnprovedError, UnreadableRulesError
from superopt.execute import collecting_rarely
from superopt.model.dimensions import combinations
from superopt.model.save import save_text, writable
from superopt.options import Options
from superopt.profile import profile
from superopt.report.generation import counts_table, generation_json
from superopt.report.optimization import summary
from superopt.report.profiling import profiling_tables
from superopt.report.progress import Listener, Progress
from superopt.report.proof import verdicts
from superopt.report.reading import listed, shown, told
from superopt.report.verification import verified
from superopt.store import load, named, selected, write_axioms

INTERRUPTED, INTERNAL, CLOSED = 130, 70, 141
QUIET_SECONDS, PIPED_WIDTH = 5.0, 128


class Output(Console):
    """A console that leaves it to `main` what happens when the reader goes away."""

    def on_broken_pipe(self) -> None:
        """Called while the error is handled."""
        raise  # noqa: PLE0704


out = Output(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = Console(stderr=True, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code (docs/exit-codes.md)."""
    options = parsed(arguments)
    try:
        with collecting_rarely():
            code = COMMANDS[options.run](options)
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


# ---------------------------------------------------------------- commands


def run_optimize(options: argparse.Namespace) -> int:
    """`superopt optimize`: the target holds the result, the report is on the terminal and, if wanted, in a JSON file."""
    for path in filter(None, (options.target, options.json, options.certificate)):
        writable(path)
    asked = cast("Options", {name: getattr(options, name) for name in Options.__annotations__ if name in options})
    asked["shapes"] = combinations(dict(options.shape))
    with shown_progress() as listener:
        asked["progress"] = listener
        optimized = superopt.optimize(options.source, **asked)
    optimized.save(options.target)
    if options.json is not None:
        save_text(optimized.report.json(), options.json)
    if options.certificate is not None:
        save_text(optimized.certificate, options.certificate)
    out.print(summary(optimized.report))
    return 0


def run_profile(options: argparse.Namespace) -> int:
    """`superopt profile`: what is known of the device is on the terminal and, if wanted, in a file."""
    if options.export is not None:
        writable(options.export)
    with shown_progress() as listener:
        found = profile(
            options.model,
            provider=options.provider,
            threads=options.threads,
            shapes=combinations(dict(options.shape)),
            cache=options.cache,
            merged=options.merge,
            progress=listener,
        )
    if options.export is not None:
        found.save(options.export)
    out.print(profiling_tables(found.report))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """`superopt verify`: a line for each way in which steps were shown to be right, and one that says that all is.

    Raises:
        CertificateError: something is not shown to be right.
    """
    from superopt.certificate import stored
    from superopt.verify import verify

    text = stored(options.certificate)
    with shown_progress() as listener:
        found = verify(
            options.source,
            options.target,
            text,
            provider=options.provider,
            threads=options.threads,
            seed=options.seed,
            progress=listener,
        )
    for line in verified(found):
        out.print(line, soft_wrap=True, markup=False)
    return 0


def run_generate(options: argparse.Namespace) -> int:
    """`superopt generate`: the rules are in the folder, and a table says what became of the terms."""
    from superopt.execute import cores, default_folder
    from superopt.find.families import UNIVERSES
    from superopt.generate import EVERY, generate

    if options.mutants:
        return run_generate_mutants(options)
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


def run_generate_mutants(options: argparse.Namespace) -> int:
    """`superopt generate --mutants`: the partial rules are in the folder, and a line says how many each file has."""
    from superopt.partial.generation import generate
    from superopt.proving import proved

    with shown_progress() as listener:
        found = generate(
            seed=options.seed,
            files=options.family or (),
            folder=options.output,
            proved=proved,
            progress=lambda family, count: listener(Progress(f"mutants, {family}", detail=f"{count} kept")),
        )
    for file, rules in found.items():
        out.print(f"partial/{file}.rules: {len(rules)} partial rules, {sum(p.proved for p in rules)} proved for all sizes")
    return 0


def run_prove(options: argparse.Namespace) -> int:
    """`superopt prove`: axioms or stored rules counted by family; a line for each that is not proved for all sizes.

    Raises:
        UnprovedError: one of them is not proved.
    """
    from superopt.execute import cores
    from superopt.prove.ledger import Row, axiom_entry, prove_axioms, prove_store, write_proofs

    if options.samples:
        return run_samples(options)
    if options.mutants:
        return run_judge()
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
    out.print(verdicts(what.capitalize(), rows, each=options.each))
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


def run_judge() -> int:
    """`superopt prove --mutants`: one line that counts partial rules, the sizes at which they were judged again, and proofs.

    Raises:
        UnprovedError: one is not what its certificate says, or its proof does not hold.
    """
    from superopt.partial.library import counted, load
    from superopt.proving import objection

    rules = load()
    wrong: list[str] = []
    with shown_progress() as listener:
        for partial in rules:
            listener(Progress("judging", detail=partial.rule.name))
            why = objection(partial)
            wrong += [] if why is None else [f"{partial.rule.name}: {why}"]
    out.print(f"{counted(rules)}: {len(wrong)} are not as certified", soft_wrap=True)
    if wrong:
        raise UnprovedError("; ".join(wrong[:3]))
    return 0


def run_rules_partial(_: argparse.Namespace) -> int:
    """`superopt rules partial`: each partial rule, and under it what its certificate says."""
    from superopt.partial.library import load, told

    for partial in load():
        out.print(str(partial.rule), soft_wrap=True, markup=False)
        out.print(f"    {told(partial)}", soft_wrap=True, markup=False)
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
    from superopt.prove.derive_file import Finding, chosen, compared, comparison_text, definitions, read_lines, rearrangements

    if options.json is not None:
        writable(options.json)
    lines = read_lines(options.file)
    rules = chosen(given=options.given, core_alone=options.core, axioms_alone=options.axioms)
    seen: list[str] = []

    def tell(finding: Finding) -> None:
        seen.append(finding.name)
        listener(Progress("deriving", len(seen), detail=finding.name))

    backwards = () if options.one_way else rules
    granted = [*definitions(), *rearrangements()]
    with shown_progress() as listener:
        found = compared(lines, rules, backwards=backwards, notation=granted, seed=options.seed, progress=tell)
    if options.json is not None:
        save_text(json.dumps(found.record(), indent=1, ensure_ascii=False) + "\n", options.json)
    for line in comparison_text(found, chains=not options.brief):
        out.print(line, soft_wrap=True, markup=False)
    if found.unreadable:
        names = ", ".join(f.name for f in found.unreadable[:5])
        raise UnreadableRulesError(f"{len(found.unreadable)} of {len(lines)} rules cannot be read: {names}")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "optimize": run_optimize,
    "profile": run_profile,
    "verify": run_verify,
    "generate": run_generate,
    "prove": run_prove,
    "rules list": run_rules_list,
    "rules partial": run_rules_partial,
    "rules export": run_rules_export,
    "rules show": run_rules_show,
    "rules derive": run_rules_derive,
}
"""What runs each command of the grammar, by the name that `arguments.parser` gives it."""


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
