"""Every budget, threshold and limit is a documented field of `superopt.policy`; other numbers in the package are facts."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from superopt import policy

ROOT = Path(__file__).resolve().parent.parent
MODULES = [path for path in sorted((ROOT / "superopt").rglob("*.py")) if path.name != "policy.py"]
ALLOWED: Mapping[str, Mapping[str, str]] = {
    "definitions reach it, so that ledger keys depend on it or on its module": {
        "algebra/operators": "SHORT SMALLEST_PART MAX_LINEAR_OPERANDS",
    },
    "mathematics: primes, permutations, exponents, quantiles, the weights of a termination measure": {
        "algebra/exact": "CHAIN BASE",
        "kernels/emit": "PRIME",
        "kernels/library": "LEVELS TARGETS VECTORS",
        "kernels/loops": "LARGEST_INDEX PRODUCTS",
        "kernels/schedule": "ALIGNMENT",
        "cost/prices": "_ONE_SIGMA",
        "proof/definitions/functions": "EXPONENTS",
        "runtime/compare": "_CONFIDENCE _DEVIATION",
        "runtime/reference": "_TILE",
        "search/fuse": "PRIMES",
        "search/linear": "MOVED JOINED",
        "search/rearrangement": "SIZES",
        "search/recognition": "SIZES",
        "model/image_blocks": "INTO BACK",
    },
    "number formats: which numbers a format holds, and how exactly": {
        "algebra/exact": "LARGEST NEAR",
        "algebra/value_analysis": "OVERFLOW ROUNDING",
        "discovery/fingerprint": "LARGEST GRAIN",
        "floating_point/differences": "ORDINARY",
        "floating_point/floats": "FLOAT32 MARGIN SPARE WIDE SMALL",
        "floating_point/small": "SORT",
        "model/shape_values": "EXACT",
        "partial/field": "BITS HALF MOST_TERMS",
        "runtime/reference": "_ULPS _LEAST",
        "search/roofline": "Machine.element",
        "speclib/attention": "LEAST ABOVE",
        "rules/work": "work.itemsize total_work.itemsize",
        "verification/derivation": "DOUBLE SINGLE",
    },
    "ONNX and ONNX Runtime: opsets, versions, enumerations, places of inputs, limits of protobuf": {
        "cost/calibrate": "OPSET",
        "flows/export_rules": "OPSET",
        "model/dimensions": "CACHE_INPUTS",
        "model/dynamic_lowering": "_FORMS",
        "model/fold": "OPSET",
        "model/functions": "FUNCTIONS_IR",
        "model/lift": "BITS SMALLEST_OPSET",
        "model/load": "OVERRIDABLE_SINCE",
        "model/positions": "PICKERS",
        "model/quantized": "_INTEGER_ACCURACY _QUANTIZED_BITS",
        "model/term_pairs": "OPSET",
        "protobuf/nodes": "INTEGERS IR_VERSION",
        "protobuf/specialize": "KEEPS FAILS",
        "protobuf/stored": "INLINE_LIMIT",
        "protobuf/validate": "MAX_DIMENSION _FIELDS",
        "runtime/bounds": "_PICKS",
        "child/program": "FILL FILLINGS QUIET",
        "runtime/device": "QUIET",
        "runtime/reference": "_DEQUANTIZES _IR_VERSION _SOFTMAX_OF_ONE_AXIS",
        "runtime/settings": "EXTENDED",
        "speclib/attention": "MASK PAST",
        "speclib/slice_bounds": "UNBOUNDED",
        "speclib/softmax_legacy": "ONE_AXIS",
    },
    "file formats and hashes: versions, lengths, widths of lines, factors of hash functions": {
        "algebra/digests": "DIGITS",
        "discovery/classes": "PARTIAL",
        "discovery/fingerprint": "FIRST SECOND",
        "discovery/kinds": "ARITY TOGETHER",
        "discovery/table": "MOST_OPERATORS",
        "discovery/values": "SHAPED",
        "flows/export_rules": "WIDTH",
        "model/external_data": "_PAGE",
        "proof/definitions/arithmetic": "DIGEST",
        "rules/store": "WIDTH",
        "verification/certificates": "FORM",
        "worker_pool": "CHECKSUM",
    },
    "codes, sentinels, precedences, units and drawings": {
        "algebra/exact": "Fields.tail",
        "budget": "_UNITS",
        "cli/main": "INTERRUPTED TERMINATED INTERNAL CLOSED",
        "cost/calibrate": "_UNBOUNDED",
        "notation/printing": "PRECEDENCE",
        "partial/arrange": "NOTHING NUMBER",
        "proof/definitions/arithmetic": "SolverEffort.NONLINEAR",
        "proof/definitions/signs": "Sign.POSITIVE",
        "report/drawing": "GLYPH LINE PADDING ROW_GAP COLUMN_GAP MARGIN ARROW",
        "report/html/layered": "GLYPH LINE PADDING PASSAGE ROW_GAP COLUMN_GAP MARGIN SWEEPS",
        "report/html/rendering": "CARD_WIDTH CARD_HEIGHT",
    },
    "the values from which samples are drawn, and the shapes at which devices are calibrated": {
        "algebra/exact": "RECURRING",
        "cost/calibrate": "_SIDES _CHANNELS",
        "discovery/fingerprint": "MOST PARTS",
        "discovery/numbers": "LARGE LARGEST STRIDE ATTRIBUTE WINDOW LOW",
        "discovery/universe": "FACTORS",
        "floating_point/environments": "SIZES EXTREMES DYADIC COMBINED",
        "partial/discover": "SIZES LARGER SMALLEST",
        "partial/fitting": "NUMBERS",
        "rules/instances": "EXTENTS INTEGERS QUOTIENTS REALS",
        "runtime/adversarial": "_HALF _SINGLE _DOUBLE",
        "search/absorption": "SPECIAL",
    },
    "the ranks and sizes for which rules are stated and proved": {
        "discovery/phrase": "RANKS AXES",
        "proof/definitions/index": "VALUES RANKS",
        "rules/rule": "RANKS",
        "search/reroll": "RANKS",
    },
}
"""The modules and their constants, fields and parameters that are not policy, for each reason."""
EXEMPT = "discovery/universes/"
"""The modules whose constants are the shapes and limits of universes, which are data."""
UNITS = (
    "second",
    "seconds",
    "milliseconds",
    "days",
    "bytes",
    "share",
    "shares",
    "factor",
    "divisor",
    "error",
    "sigmas",
    "log2",
)
KINDS = frozenset((*UNITS, "count", "counts", "size", "sizes", "depth", "magnitudes", "threads", "characters"))
"""Words in the names of fields that say the unit or kind."""
BOUNDS = frozenset(("max", "min", "first", "default", "beyond"))
"""First words of field names that say the kind, before the noun that is counted."""
POLICIES = {
    name: value for name, value in vars(policy).items() if dataclasses.is_dataclass(value) and not isinstance(value, type)
}
FIELDS = [field.name for value in POLICIES.values() for field in dataclasses.fields(value)]


def number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value not in (0, 1)


def has_number(node: ast.AST | None) -> bool:
    """Return whether the expression contains a number other than 0, 1 and -1 outside of a lambda."""
    if node is None or isinstance(node, ast.Lambda):
        return False
    return number(node) or any(map(has_number, ast.iter_child_nodes(node)))


def assigned(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names to which the statements assign values with numbers."""
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and has_number(statement.value):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the function's parameters with numbers as defaults, as `function.parameter`."""
    own = function.args
    places = [*own.posonlyargs, *own.args]
    given = [
        *zip(places[len(places) - len(own.defaults) :], own.defaults, strict=True),
        *zip(own.kwonlyargs, own.kw_defaults, strict=True),
    ]
    yield from (f"{function.name}.{parameter.arg}" for parameter, value in given if has_number(value))


def numbers(tree: ast.Module) -> Iterator[str]:
    """Yield the module's constants, fields (as `class.field`) and parameters (as `function.parameter`) with numbers."""
    yield from assigned(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in assigned(node.body))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from defaults(node)


def place(path: Path) -> str:
    return path.relative_to(ROOT / "superopt").with_suffix("").as_posix()


@pytest.mark.slow
def test_numbers_outside_the_policy_are_facts() -> None:
    wrong = dict[str, set[str]]()
    for module, path in ((place(path), path) for path in MODULES if not place(path).startswith(EXEMPT)):
        allowed = {name for modules in ALLOWED.values() for name in modules.get(module, "").split()}
        found = {name for name in numbers(ast.parse(path.read_text(encoding="utf-8"))) if not name.endswith(".exit_code")}
        wrong |= {module: found ^ allowed} if found != allowed else {}
    assert not wrong, "new numbers, or reasons for numbers that are gone"


def test_the_reasons_name_modules() -> None:
    assert {module for modules in ALLOWED.values() for module in modules} <= set(map(place, MODULES))


def test_one_module_level_instance_holds_each_policy() -> None:
    classes = [value for value in vars(policy).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
    assert sorted(type(value).__name__ for value in POLICIES.values()) == sorted(one.__name__ for one in classes)
    assert all(value == type(value)() for value in POLICIES.values())


def test_a_field_is_found_by_its_name() -> None:
    assert len(FIELDS) == len(set(FIELDS))


def test_a_field_says_its_unit_or_kind() -> None:
    words = {field: field.split("_") for field in FIELDS}
    assert not [field for field, parts in words.items() if parts[0] not in BOUNDS and not KINDS & set(parts)]


def test_every_field_is_documented() -> None:
    tree = ast.parse(Path(policy.__file__).read_text(encoding="utf-8"))
    for one in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for statement, after in zip(one.body, [*one.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign):
                assert isinstance(after, ast.Expr), ast.unparse(statement)
                assert isinstance(after.value, ast.Constant), ast.unparse(statement)
                assert str(after.value.value).split(), ast.unparse(statement)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["max_threads=3", "--", "optimize", "absent.onnx", "out.onnx", "--threads", "4"], 2, "argument --threads"),
        (["max_threads=3", "--", "optimize", "absent.onnx", "out.onnx", "--threads", "3"], 20, "absent.onnx"),
        (["max_thread=3", "--", "optimize"], 2, "superopt.policy has no field max_thread"),
        (["max_threads=3.5", "--", "optimize"], 2, "max_threads takes a value like 1024, not 3.5"),
    ],
)
def test_a_command_runs_with_another_policy(arguments: list[str], code: int, message: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "with_policy"), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, message in finished.stderr) == (code, True), finished.stderr
