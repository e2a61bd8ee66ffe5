"""Universes for elementwise operators. In the rules of these universes, an operator commutes with operators that move elements.

An operator that no other module mentions gets a universe here. A new definition in specs/ is therefore enough to find rules
about the new operator.
"""

from __future__ import annotations

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Attribute, Sym, size, variable
from superopt.algebra.traits import is_elementwise
from superopt.discovery.universe import Template, Universe, binary, split_parts, unary, universe_symbols
from superopt.errors import ShapeError

FAMILY = "operators"
CONDITIONS = frozenset({"c", "d"})
"""The names that definitions use for operands whose elements are 0 or 1."""
N, K = universe_symbols("n k")
MATRICES, ROW = tuple(variable(name, (N, K)) for name in "xyzq"), variable("t", (K,))
PARAMETERS = (1, 2, 3)
"""The values of an operator's real attributes when terms are evaluated. The values are small, so that there are elements below
and above an attribute that is a threshold.
"""
LEAVES = tuple(v.name for v in (*MATRICES, ROW))
OPERANDS = (*LEAVES, "transpose", "expand", "reshape", "slice", "concat")
"""The variables and operators that an operator with several operands may be applied to. The operator's own results are left
out, because rules about nested applications say little about moves of elements.
"""


def universes_of(name: str) -> tuple[Universe, ...]:
    """Return the universes (vocabularies for enumeration) for the operator `name`: one universe for an elementwise operator,
    and no universe for any other operator.
    """
    spec = operator(name)
    if spec.definition is None or any(p.kind != "real" for p in spec.parameters):
        return ()
    attributes: dict[str, Attribute] = {p.name: size(Sym(f"f{n}", real=True)) for n, p in enumerate(spec.parameters)}
    try:
        term = apply(name, *MATRICES[: spec.arity], **attributes)
    except ShapeError:
        return ()
    if not is_elementwise(term):
        return ()
    return (
        Universe(
            family=FAMILY,
            name=f"moves of {name}",
            variables=(MATRICES[: max(2, 2 * spec.arity)], (ROW,)),
            constants=(),
            templates=(
                Template(name, spec.arity, attributes, takes=(OPERANDS,) * spec.arity if spec.arity > 1 else ()),
                unary("transpose", perm=(-1, -2)),
                unary("expand", shape=(N, K), axes=(-1,)),
                unary("reshape", shape=(N * K,), first=N),
                split_parts(-1),
                binary("concat", axis=-1),
            ),
            ranges={"n": (2, 3, 4), "k": (2, 3, 4), **{f"f{n}": PARAMETERS for n in range(len(attributes))}},
            limit=3,
            positive=(*LEAVES,) if spec.domain == "positive" else (),
            conditions=(*LEAVES,) if CONDITIONS.issuperset(spec.operands) else (),
        ),
    )
