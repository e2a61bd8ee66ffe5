"""Unrolled recurrences are recognized by their definitions, in all forms in which models write the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from onnx import numpy_helper

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable, variables
from superopt.model.islands import Charts
from superopt.model.load import load
from superopt.model.lower import lower
from superopt.proof.verify import prove_rule
from superopt.protobuf.nodes import lowered_model_proto
from superopt.rules.fp_flags import FpMode
from superopt.rules.rule import parse_rule
from superopt.rules.store import load_rules
from superopt.rules.verdict import Proved
from superopt.search import roofline
from superopt.search.apply import State, run_time_terms
from superopt.search.island import search_island
from superopt.search.linear import LINEAR, LinearForms
from superopt.search.reroll import reroll_recurrences
from superopt.search.ruleset import RuleSet
from superopt.search.segments import relower, whole_islands
from superopt.speclib.recurrence import recurrences, stacked
from tests.operator_cases import arrays_for, evaluated, ran

pytestmark = pytest.mark.slow

OPSET = 17
INPUTS, WIDTH = 3, 4
Gates = Callable[[Term, Term, str], dict[str, Term]]


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet(load_rules())


def weight(name: str, *shape: int) -> Term:
    return variable(name, shape, constant=True)


def cut(x: Term, axis: int, start: int, stop: int) -> Term:
    return apply("slice", x, axis=axis, start=start, stop=stop)


def wide(row: Term, like: Term) -> Term:
    return apply("expand", row, shape=(*like.shape[:-1], *row.shape), axes=(-1,))


def in_four(whole: Term, order: str) -> dict[str, Term]:
    return {gate: cut(whole, -1, WIDTH * n, WIDTH * (n + 1)) for n, gate in enumerate(order)}


def two_products(x: Term, h: Term, name: str) -> dict[str, Term]:
    """Return the gates of a cell as PyTorch exports it: transposed weights, two biases, and PyTorch's order of the gates."""
    w, r = (weight(f"{name}{side}", 4 * WIDTH, n) for side, n in (("w", x.sizes[-1]), ("r", WIDTH)))
    products = [apply("matmul", a, apply("transpose", m, perm=(1, 0))) for a, m in ((x, w), (h, r))]
    biases = [wide(weight(f"{name}{side}", 4 * WIDTH), x) for side in ("b", "a")]
    return in_four(apply("add", *products, *biases), "ifco")


def one_product(x: Term, h: Term, name: str) -> dict[str, Term]:
    """Return the gates of a cell as TensorFlow writes it: one product with the element and the state side by side."""
    kernel = weight(f"{name}k", x.sizes[-1] + WIDTH, 4 * WIDTH)
    product = apply("matmul", apply("concat", x, h, axis=-1), kernel)
    return in_four(apply("add", product, wide(weight(f"{name}b", 4 * WIDTH), x)), "icfo")


def products_of_gates(x: Term, h: Term, name: str) -> dict[str, Term]:
    """Return the gates of a cell with separate weights for every gate, without biases."""
    weights = {g: (weight(f"{name}w{g}", x.sizes[-1], WIDTH), weight(f"{name}r{g}", WIDTH, WIDTH)) for g in "ofic"}
    return {g: apply("add", apply("matmul", x, w), apply("matmul", h, r)) for g, (w, r) in weights.items()}


def lstm(elements: Sequence[Term], h: Term, c: Term, gates: Gates = two_products, name: str = "") -> list[tuple[Term, Term]]:
    """Return the states after every step."""
    found: list[tuple[Term, Term]] = []
    for x in elements:
        z = gates(x, h, name)
        kept = apply("mul", apply("sigmoid", z["f"]), c)
        c = apply("add", kept, apply("mul", apply("sigmoid", z["i"]), apply("tanh", z["c"])))
        h = apply("mul", apply("sigmoid", z["o"]), apply("tanh", c))
        found.append((h, c))
    return found


def zero_states(*lead: int) -> tuple[Term, Term]:
    return weight("h0", *lead, WIDTH), weight("c0", *lead, WIDTH)


def batch_first(steps: int, rows: int = 1) -> list[Term]:
    x = variable("x", (rows, steps, INPUTS))
    return [apply("reshape", cut(x, -2, n, n + 1), shape=(rows, INPUTS)) for n in range(steps)]


def operators(state: State) -> list[str]:
    return [term.op for term in run_time_terms(state)]


def require_same(start: State, after: State) -> None:
    """Require that both states have equal values by their definitions, and that the lowered second state has these values
    too.
    """
    arrays = arrays_for(*start)
    expected, found = evaluated(arrays, *start), evaluated(arrays, *after)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    outputs = {f"output{n}": term for n, term in enumerate(after)}
    for one, other in zip(expected, ran(lower(outputs, OPSET), outputs, arrays, OPSET), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_the_weight_of_a_concatenation_is_split_for_its_linear_form() -> None:
    rule = parse_rule("parts: concat(x, h, axis=-1) @ concat(w, r, axis=-2) => x @ w + h @ r for x[2], h[2], w[2], r[2]")
    x, h, kernel = variable("x", (2, INPUTS)), variable("h", (2, WIDTH)), weight("k", INPUTS + WIDTH, 5)
    first, last = cut(kernel, -2, 0, INPUTS), cut(kernel, -2, INPUTS, INPUTS + WIDTH)
    form = LinearForms(RuleSet([rule])).form(apply("matmul", apply("concat", x, h, axis=-1), kernel))
    assert form == apply("add", apply("matmul", x, first), apply("matmul", h, last))


@pytest.mark.parametrize("gates", [two_products, one_product, products_of_gates])
@pytest.mark.parametrize(("rows", "steps"), [(1, 2), (1, 7), (3, 2), (3, 7)])
def test_a_cell_is_recognized_however_its_gates_are_computed(rules: RuleSet, gates: Gates, rows: int, steps: int) -> None:
    start = (lstm(batch_first(steps, rows), *zero_states(rows), gates)[-1][0],)
    after, made = reroll_recurrences(start, rules)
    assert [step.rule for step in made] == ["lstm.definition"]
    assert operators(after).count("lstm") == 1
    assert not {"sigmoid", "tanh", "concat", "matmul"} & set(operators(after))
    require_same(start, after)


def test_states_of_three_axes(rules: RuleSet) -> None:
    x = variable("x", (5, 2, INPUTS))
    elements = [cut(x, -3, n, n + 1) for n in range(5)]
    start = (lstm(elements, *zero_states(1, 2))[-1][0],)
    after, _ = reroll_recurrences(start, rules)
    assert operators(after) == ["lstm", "slice"]
    require_same(start, after)


def test_every_state_stacked_is_the_operator_itself(rules: RuleSet) -> None:
    states = lstm(batch_first(6, 2), *zero_states(2))
    start = (stacked([h for h, _ in states]), states[-1][1])
    after, _ = reroll_recurrences(start, rules)
    assert after[0].op == "lstm"
    assert after[1].op == "lstm_cell"
    require_same(start, after)
    lowered = lower({"y": after[0], "c": after[1]}, OPSET, constant=lambda term: np.zeros(term.sizes, np.float32))
    assert [node.op_type for node in lowered.nodes].count("LSTM") == 1


def test_layers_follow_each_other(rules: RuleSet) -> None:
    below = [h for h, _ in lstm(batch_first(4, 2), *zero_states(2))]
    start = (lstm(below, *zero_states(2), name="upper")[-1][0],)
    after, made = reroll_recurrences(start, rules)
    assert [step.rule for step in made] == ["lstm.definition"] * 2
    upper = next(term for term in reversed(subterms(*after)) if term.op == "lstm")
    assert upper.args[0].op == "lstm"
    require_same(start, after)


def test_a_run_from_the_end_reads_the_sequence_backwards(rules: RuleSet) -> None:
    start = (lstm(batch_first(5)[::-1], *zero_states(1))[-1][0],)
    after, _ = reroll_recurrences(start, rules)
    assert {"lstm", "reverse"} < set(operators(after))
    assert "concat" not in operators(after)
    require_same(start, after)


def test_a_first_step_without_a_state_stays_before_the_run(rules: RuleSet) -> None:
    first, *rest = batch_first(5)
    z = in_four(apply("matmul", first, apply("transpose", weight("w", 4 * WIDTH, INPUTS), perm=(1, 0))), "ifco")
    c = apply("mul", apply("sigmoid", z["i"]), apply("tanh", z["c"]))
    h = apply("mul", apply("sigmoid", z["o"]), apply("tanh", c))
    start = (lstm(rest, h, c)[-1][0],)
    after, _ = reroll_recurrences(start, rules)
    assert next(t for t in subterms(*after) if t.op == "lstm").sizes[0] == 4
    require_same(start, after)


def test_a_cell_state_that_is_read_ends_a_run(rules: RuleSet) -> None:
    states = lstm(batch_first(6), *zero_states(1))
    start = (states[-1][0], apply("tanh", states[2][1]))
    after, made = reroll_recurrences(start, rules)
    assert [step.rule for step in made] == ["lstm.definition"] * 2
    assert operators(after).count("lstm_cell") == 1
    require_same(start, after)


def test_an_element_made_of_the_state_before_it_is_no_element(rules: RuleSet) -> None:
    h, c = zero_states(1)
    feedback = weight("v", WIDTH, INPUTS)
    x: Term = variable("x", (1, INPUTS))
    for _ in range(4):
        ((h, c),) = lstm([x], h, c)
        x = apply("tanh", apply("matmul", h, feedback))
    assert reroll_recurrences((h,), rules) == ((h,), ())


def test_steps_with_other_weights_are_other_runs(rules: RuleSet) -> None:
    first = lstm(batch_first(3), *zero_states(1))
    elements = [variable(f"y{n}", (1, INPUTS)) for n in range(3)]
    start = (lstm(elements, *first[-1], name="other")[-1][0],)
    after, made = reroll_recurrences(start, rules)
    assert len(made) == 2
    require_same(start, after)


def test_what_is_almost_a_step_is_left_alone(rules: RuleSet) -> None:
    h, c = zero_states(1)
    for x in batch_first(4):
        z = two_products(x, h, "")
        kept = apply("mul", apply("sigmoid", z["f"]), c)
        c = apply("add", kept, apply("mul", apply("sigmoid", z["i"]), apply("sigmoid", z["c"])))
        h = apply("mul", apply("sigmoid", z["o"]), apply("tanh", c))
    assert reroll_recurrences((h,), rules) == ((h,), ())


def test_biases_that_differ_between_rows_are_no_biases(rules: RuleSet) -> None:
    def gates(x: Term, h: Term, name: str) -> dict[str, Term]:
        bare = products_of_gates(x, h, name)
        return {gate: apply("add", z, weight(f"b{gate}", *z.sizes)) for gate, z in bare.items()}

    start = (lstm(batch_first(3, 2), *zero_states(2), gates)[-1][0],)
    assert reroll_recurrences(start, rules) == (start, ())
    alone = (lstm(batch_first(3, 1), *zero_states(1), gates)[-1][0],)
    require_same(alone, reroll_recurrences(alone, rules)[0])


@pytest.mark.parametrize(("rows", "found"), [(1, True), (WIDTH, False)])
def test_a_bias_expanded_along_its_row_is_a_row_only_for_a_single_row(rules: RuleSet, rows: int, *, found: bool) -> None:
    def gates(x: Term, h: Term, name: str) -> dict[str, Term]:
        bare = products_of_gates(x, h, name)
        columns = {g: apply("expand", weight(f"b{g}", rows), shape=z.shape, axes=(-2,)) for g, z in bare.items()}
        return {g: apply("add", z, columns[g]) for g, z in bare.items()}

    start = (lstm(batch_first(3, rows), *zero_states(rows), gates)[-1][0],)
    after, made = reroll_recurrences(start, rules)
    assert bool(made) == found
    require_same(start, after)


def test_an_operator_is_a_candidate_like_any_other(rules: RuleSet) -> None:
    start = (lstm(batch_first(4), *zero_states(1))[-1][0],)

    def estimate(state: State) -> float:
        return roofline.estimate_seconds(state, roofline.CPU)

    def slow(state: State) -> float:
        return estimate(state) + ("lstm" in operators(state))

    few = rules.within(LINEAR)
    assert "lstm" in operators(search_island(start, few, estimate=estimate, measure=estimate, limits=None).outputs)
    assert "lstm" not in operators(search_island(start, few, estimate=estimate, measure=slow, limits=None).outputs)


def test_zeros_as_the_first_state_belong_to_the_first_step(rules: RuleSet) -> None:
    zeros = apply("zeros", shape=(1, WIDTH))
    start = (lstm(batch_first(4), zeros, zeros, products_of_gates)[-1][0],)

    def count(state: State) -> float:
        return len(operators(state))

    found = search_island(start, rules.within(LINEAR), estimate=count, measure=count, limits=None)
    assert not {"matmul", "sigmoid", "tanh"}.intersection(operators(found.outputs))
    assert operators(found.outputs).count("lstm") == 1


@pytest.mark.parametrize("unrolled", [False, True])
def test_only_a_part_without_a_recurrence_is_written_anew(unrolled: bool) -> None:
    x, zeros = variable("x", (1, WIDTH)), apply("zeros", shape=(1, WIDTH))
    steps = lstm(batch_first(4), zeros, zeros, products_of_gates)
    outputs = {"y": steps[-1][0] if unrolled else apply("tanh", apply("relu", x))}
    proto = lowered_model_proto(lower(outputs, OPSET), variables(*outputs.values()), outputs, OPSET, np.dtype(np.float32))
    arrays = arrays_for(*outputs.values())
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items() if name != "x")
    inputs = [value for value in proto.graph.input if value.name == "x"]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    islands = whole_islands(Charts(FpMode.RELAXED).of(load(proto).model), {})
    assert len(islands) == 1
    assert len(relower(islands, load_rules(), FpMode.RELAXED)) == (0 if unrolled else 1)


def gru(elements: Sequence[Term], h: Term, *, blended: bool) -> Term:
    """Return the state after the last step.

    With `blended`, the update gate weights the old and the new state. Otherwise, it moves the new state towards the old
    state.
    """
    w, r, b, a = (weight(name, *shape) for name, shape in (("w", (INPUTS, 12)), ("r", (WIDTH, 12)), ("b", (12,)), ("a", (12,))))
    for x in elements:
        of_x, of_h = (apply("add", apply("matmul", s, m), wide(v, x)) for s, m, v in ((x, w, b), (h, r, a)))
        (rx, zx, nx), (rh, zh, nh) = (in_four(part, "rzn").values() for part in (of_x, of_h))
        z = apply("sigmoid", apply("add", zx, zh))
        new = apply("tanh", apply("add", nx, apply("mul", apply("sigmoid", apply("add", rx, rh)), nh)))
        if blended:
            other = apply("sub", apply("ones", shape=z.shape), z)
            h = apply("add", apply("mul", other, new), apply("mul", z, h))
        else:
            h = apply("add", new, apply("mul", z, apply("sub", h, new)))
    return h


@pytest.mark.parametrize("blended", [True, False])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_gated_unit_is_recognized_in_both_its_forms(rules: RuleSet, *, blended: bool, rows: int) -> None:
    start = (gru(batch_first(5, rows), zero_states(rows)[0], blended=blended),)
    after, _ = reroll_recurrences(start, rules)
    assert operators(after).count("gru") == 1
    assert not {"sigmoid", "tanh", "concat", "matmul"} & set(operators(after))
    require_same(start, after)


def test_other_forms_of_a_step_are_proved_to_be_the_step() -> None:
    for recurrence in recurrences():
        names = [f"{name}[2]" for name in ("x", *recurrence.states, *recurrence.names)]
        for text in recurrence.equals:
            rule = parse_rule(f"step: {' '.join(recurrence.step.split())} => {' '.join(text.split())} for {', '.join(names)}")
            assert isinstance(prove_rule(rule), Proved)


def test_every_recurrence_is_recognized_in_its_own_definition(rules: RuleSet) -> None:
    for recurrence in recurrences():
        operands = [variable("x", (4, 2, INPUTS))]
        sides = {"w": INPUTS, "r": WIDTH}
        operands += [weight(name, sides[name], WIDTH * len(parts)) for name, parts in recurrence.weights.items()]
        operands += [weight(name, WIDTH * len(parts)) for name, parts in recurrence.biases.items()]
        operands += [variable(name, (2, WIDTH)) for name in recurrence.states]
        start = (stacked([states[0] for states in recurrence.unrolled(*operands)]),)
        after, _ = reroll_recurrences(start, rules)
        assert after[0].op == recurrence.every
        require_same(start, after)
