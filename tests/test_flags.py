"""Floating-point flags: the flags that readable rules need, the witnesses of flags, and the stored flags of every rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import z3

from superopt.floating_point.environments import exhaustive_rows, numbers_of
from superopt.floating_point.flags import RuleFlags, flags_of, missing_flags
from superopt.floating_point.floats import SMALL, Format, run_program
from superopt.floating_point.scalars import Compute, Input, LoadInput, Program
from superopt.floating_point.small import KNOWN, SORT, Basis
from superopt.floating_point.witnesses import flag_sets, is_witness, read_witnesses, to_store, write_witnesses
from superopt.rules.fp_flags import ALL_FLAGS, FpFlag
from superopt.rules.rule import Rule, parse_rule
from superopt.rules.store import families, load

pytestmark = pytest.mark.slow

RULES = load()
DOCS = Path(__file__).parent.parent / "docs" / "floating-point.md"


def rule(text: str) -> Rule:
    return parse_rule(f"law: {text}")


def found(text: str) -> RuleFlags:
    return flags_of(rule(text))


# ---------------------------------------------------------------- flags that rules need

NEEDED = {
    "x * ones(shape=x.shape) => x for x[1]": "",
    "scale(y, factor=-1) + x => x - y for x[1], y[1]": "",
    "relu(concat(x, y, axis=-1)) => concat(relu(x), relu(y), axis=-1) for x[1], y[1]": "",
    "transpose(x, perm=(-1, -2)) @ transpose(y, perm=(-1, -2)) => transpose(y @ x, perm=(-1, -2)) for x[2], y[2]": "",
    "maximum(x, x) => x for x[1]": "",
    "where(c, x, x) => x for c[1], x[1]": "",
    "x + zeros(shape=x.shape) => x for x[1]": "nsz",
    "scale(x - y, factor=-1) => y - x for x[1], y[1]": "nsz",
    "x - x => zeros(shape=x.shape) for x[1]": "nnan",
    "x * zeros(shape=x.shape) => zeros(shape=x.shape) for x[1]": "nsz nnan",
    "minimum(maximum(x, y), x) => x for x[1], y[1]": "nnan",
    "x => x @ eye(n=x.shape[-1]) for x[2]": "nsz nnan ninf",
    "where(c, x * y, zeros(shape=c.shape)) => where(c, x, zeros(shape=c.shape)) * y for c[1], x[1], y[1]": "nsz nnan ninf",
    "x - y + z => x + (z - y) for x[1], y[1], z[1]": "reassoc",
    "reduce_sum(x, axes=(-2, -1)) => reduce_sum(reduce_sum(x, axes=(-1,)), axes=(-1,)) for x[2]": "reassoc",
    "x @ w + x @ v => x @ (w + v) for x[2], w[2], v[2]": "reassoc nsz nnan",
    "x @ (w + v) => x @ w + x @ v for x[2], w[2], v[2]": "reassoc nsz ninf range",
    "x * x - y * y => (x - y) * (x + y) for x[1], y[1]": "reassoc nsz",
    "x * reciprocal(y) * reciprocal(z) => x * reciprocal(y * z) for x[1], y[1], z[1]": "reassoc arcp nnan range",
    "exp(scale(x, factor=-1)) => reciprocal(exp(x)) for x[1]": "reassoc range",
    "reciprocal(exp(x)) => exp(scale(x, factor=-1)) for x[1]": "reassoc",
    "log(x * y) => log(x) + log(y) for x[1], y[1]": "reassoc ninf range cancel",
    "relu(x - y) + z => z - minimum(x, y) + x for x[1], y[1], z[1]": "reassoc nsz ninf cancel",
    "x + y - y => x for x[1], y[1]": "reassoc nsz nnan cancel",
    "reciprocal(ones(shape=x.shape) + exp(scale(x, factor=-1))) => sigmoid(x) for x[1]": "reassoc cancel",
}


@pytest.mark.parametrize("text", NEEDED)
def test_the_flags_of_readable_rules_are_found(text: str) -> None:
    flagged = found(text)
    assert " ".join(flagged.names) == NEEDED[text]
    assert {one.flag for one in flagged.witnesses} == flagged.flags


def test_a_sum_of_products_that_becomes_a_product_of_matrices_needs_contract() -> None:
    dot = "reshape(reshape(x, shape=(1, x.shape[-1])) @ reshape(y, shape=(x.shape[-1], 1)), shape=())"
    flagged = found(f"reduce_sum(x * y, axes=(-1,)) => {dot} for x[1], y[1]")
    assert FpFlag.CONTRACT in flagged.flags
    assert FpFlag.REASSOC not in flagged.flags


@pytest.mark.long
def test_convolutions_that_share_weights_are_merged_without_cancellation() -> None:
    merged = found("conv(x, w) + conv(x, v) => conv(x, w + v) for x[4], w[4], v[4]")
    assert not merged.flags & {FpFlag.CANCEL, FpFlag.RANGE}
    folded = "conv(x, w * expand(t, shape=w.shape, axes=(-4,)))"
    scaled = found(f"conv(x, w) * expand(t, shape=(conv(x, w)).shape, axes=(-3,)) => {folded} for x[4], w[4], t[1]")
    assert FpFlag.CANCEL not in scaled.flags


def test_the_same_seed_finds_the_same_witnesses_whatever_came_before() -> None:
    one = rule("x + y - y => x for x[1], y[1]")
    first = [(w.flag, w.values) for w in flags_of(one).witnesses]
    found("log(x) + log(y) => log(x * y) for x[1], y[1]")
    assert [(w.flag, w.values) for w in flags_of(one).witnesses] == first


# ---------------------------------------------------------------- missing flags


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("x + y - y => x for x[1], y[1]", FpFlag.CANCEL),
        ("x - y + z => x + (z - y) for x[1], y[1], z[1]", FpFlag.REASSOC),
        ("exp(scale(x, factor=-1)) => reciprocal(exp(x)) for x[1]", FpFlag.RANGE),
        ("x => x @ eye(n=x.shape[-1]) for x[2]", FpFlag.NINF),
        ("x - x => zeros(shape=x.shape) for x[1]", FpFlag.NNAN),
        ("x + zeros(shape=x.shape) => x for x[1]", FpFlag.NSZ),
    ],
)
def test_a_flag_that_was_left_out_is_found_missing(text: str, flag: FpFlag) -> None:
    complete = replace(rule(text), flags=flags_of(rule(text)).flags)
    assert missing_flags(complete, 7, 3000)[1] == []
    rows, witnesses = missing_flags(replace(complete, flags=complete.flags - {flag}), 7, 3000)
    assert [one.flag for one in witnesses] == [flag]
    assert rows >= 3000


def test_a_rule_that_no_small_size_fits_has_every_flag() -> None:
    assert found("abs(relu(x)) => relu(x) for x[1] where x.shape[-1] >= 100").flags == ALL_FLAGS


# ---------------------------------------------------------------- stored flags


def test_every_rule_has_flags_and_a_witness_of_each() -> None:
    witnesses = {(one.rule, one.flag) for family in families() for one in read_witnesses(family)}
    assert [one.rule.name for one in RULES if one.entry.flags is None] == []
    assert {(one.rule.name, flag) for one in RULES for flag in one.rule.flags} == witnesses


def test_stored_witnesses_hold_and_do_not_hold_for_another_rule() -> None:
    sample = RULES[::60]
    known = {family: read_witnesses(family) for family in families()}
    tried = [(one.rule, w) for one in sample for w in known[one.family] if w.rule == one.rule.name]
    assert len(tried) > 20
    assert [(r.name, w.flag) for r, w in tried if not is_witness(r, w)] == []
    identity = rule("x * ones(shape=x.shape) => x for x[1, 2, 3, 4]")
    assert not any(is_witness(identity, w) for _, w in tried)


def test_witnesses_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    one = rule("x => x @ eye(n=x.shape[-1]) for x[2]")
    write_witnesses("eye", [to_store(one, w) for w in flags_of(one).witnesses], tmp_path)
    stored = read_witnesses("eye", tmp_path)
    assert [w.flag for w in stored] == [FpFlag.NSZ, FpFlag.NNAN, FpFlag.NINF]
    assert all(is_witness(one, w) for w in stored)


def test_the_documented_table_is_that_of_the_ledgers() -> None:
    assert flag_sets(RULES) in DOCS.read_text(encoding="utf-8")


def test_what_only_moves_elements_is_the_same_code() -> None:
    moves = {"concat", "reshape", "slice", "transpose"}
    only = [one for one in RULES if set(one.rule.operators) <= moves]
    assert len(only) > 100
    assert all(one.entry.flags == () and one.entry.flags_basis == Basis.IDENTICAL for one in only)


# ---------------------------------------------------------------- floating-point formats


def test_formats_round_as_the_hardware_does() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.standard_normal(4000) * 10.0 ** rng.integers(-9, 6, 4000), [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.0, 65520.0]]
    )
    half = Format("half", 11, -14, 15)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(np.float64)
    np.testing.assert_array_equal(half.round(values), expected)
    assert (np.signbit(half.round(values)) == np.signbit(expected)).all()


def test_the_small_format_has_all_numbers_of_seven_bits() -> None:
    numbers = np.array(numbers_of(SMALL))
    assert len(numbers) == 2**7 - 2**4 + 3
    np.testing.assert_array_equal(SMALL.round(numbers), numbers)
    assert SMALL.largest == 15.0


@pytest.mark.parametrize("op", sorted(KNOWN))
def test_what_z3_computes_is_what_is_evaluated(op: str) -> None:
    arity = {"fma": 3, "choose": 3}.get(op, 1 if op in ("abs", "neg", "relu", "reciprocal", "sqrt", "positive", "zero") else 2)
    inputs: list[Input] = [("x", (place,)) for place in range(arity)]
    program = Program()
    number = program.emit(op, *(program.append(LoadInput(one)) for one in inputs))
    rng = np.random.default_rng(0)
    rows = exhaustive_rows(inputs, (), SMALL)
    chosen = rng.integers(0, rows.rows, 150)
    values = {one: rows.values[one][chosen] for one in inputs}
    instruction = program.instructions[number]
    assert isinstance(instruction, Compute)
    swapped = dict(zip(instruction.operands, range(arity), strict=True))
    expected = run_program(program, range(number + 1), values, SMALL)[number]
    for row, wanted in enumerate(expected):
        operands = [_as_z3(float(values[one][row])) for one in inputs]
        ordered = [operands[swapped[n]] for n in instruction.operands]
        assert _from_z3(z3.simplify(KNOWN[op](*ordered))) == repr(float(wanted)), (op, operands)


def _as_z3(value: float) -> z3.FPNumRef:
    if np.isnan(value):
        return z3.fpNaN(SORT)
    if np.isinf(value):
        return z3.fpInfinity(SORT, value < 0)
    return z3.fpNeg(z3.FPVal(abs(value), SORT)) if np.signbit(value) else z3.FPVal(value, SORT)


def _from_z3(value: z3.FPNumRef) -> str:
    if value.isNaN():
        return "nan"
    if value.isInf():
        return "-inf" if value.isNegative() else "inf"
    sign = "-" if value.isNegative() else ""
    return sign + repr(float(z3.simplify(z3.fpToReal(z3.fpAbs(value))).as_fraction()))
