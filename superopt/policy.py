"""Every budget, threshold, margin, share and limit of superopt, with its unit and the reason for its value.

The text below a field states the quantity that the field limits, the unit, the reason for the value, and how the value was
measured. "Not measured." marks a value that was chosen by judgement. "Safety limit." marks a bound on time, memory or
expression size. Facts, such as number formats and opsets, stay in the modules that use them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class OptimizationPolicy:
    """Limits of one optimization: time budgets, comparisons, retries, memory, and the growth of weights."""

    algorithm_error_factor: float = 4.0
    """The limit on the rounding error of an alternative algorithm for one operator, as a multiple of the model's tolerance.

    Winograd's convolution is an example of an alternative algorithm. The limit exceeds the tolerated error of the whole model,
    because the algorithm computes only one of many operators. Not measured.
    """
    spent_budget_share: float = 0.9
    """If a search that was cut short used at least this share of its budget, the report says that the budget is spent.

    Not measured.
    """
    contrib_budget_share: float = 0.1
    """The share of the search time that is spent on estimating how much time ONNX Runtime's contrib operators would save.

    No time is spent on the estimate if contrib operators are allowed. Not measured.
    """
    min_saved_time_share: float = 0.01
    """A candidate model is checked and timed only if the predicted saving is at least this share of the run time.

    The share is half of the margin at which a candidate model is accepted. Not measured.
    """
    slow_opening_seconds: float = 4.0
    """If opening a session and running the model once take at least this number of seconds, only necessary sessions are opened.

    Opening a session on a GPU can be slow, because the GPU's libraries then choose kernels. Not measured.
    """
    hurried_comparison_seconds: float = 3.0
    """The length in seconds of a timing comparison after the user asked the search to stop, and of a comparison on one thread.

    A stopped run must end within ten seconds. The comparison on one thread is only for the report.
    """
    max_remembered_noise: float = 0.02
    """A search without a gain is recorded in the time cache only if the noise of the last comparison is at most this number.

    On a busy machine, a search may miss a gain. The limit equals the margin at which a candidate is accepted. Not measured.
    """
    memory_factor: float = 3.0
    """The memory limit of a search is this multiple of the model's bytes, plus `memory_bytes`.

    The limit for a whole optimization, with checks and comparisons, is four times the model's bytes plus 1 GiB.
    `scripts/check_memory` measures the peak memory of an optimization.
    """
    memory_bytes: int = 3 * 2**28
    """The fixed part of the memory limit of a search, in bytes. See `memory_factor`."""
    max_retries: int = 3
    """The largest number of tried candidate models with fewer rewrites, if the candidate with all rewrites is not accepted.

    Not measured.
    """
    retry_seconds: float = 10.0
    """Seconds of checking and comparing after which no candidate model with fewer rewrites is tried. Not measured."""
    failed_retry_seconds: float = 18.0
    """The limit that replaces `retry_seconds` if the last candidate model failed the numerical check. Not measured."""
    full_comparison_seconds: float = 7.0
    """The length in seconds of a full timing comparison of a candidate model with the original. Not measured."""
    glance_seconds: float = 1.0
    """The length in seconds of a quick timing comparison, which decides whether a full comparison is worthwhile.

    Not measured.
    """
    max_gain_halvings: int = 3
    """The largest number of times that the gains of one pass are halved.

    If the gains make the whole model slower, each half is tried by itself. Not measured.
    """
    max_context_run_seconds: float = 0.2
    """The rewrites of each pass are timed in the whole model only if a run of the model takes at most this number of seconds.

    Not measured.
    """
    uncounted_context_seconds: float = 12.0
    """The number of seconds after which the timing of rewrites in the whole model counts as search time.

    On a busy machine, this timing took 10 of the 30 seconds of the search for the model repvgg_a0_train.
    """
    equal_sum_share: float = 0.005
    """The relative difference below which the sums of node times of two models count as equal. Not measured."""
    repeated_comparison_seconds: float = 18.0
    """The total seconds of timing comparisons after which no comparison is repeated. Not measured."""
    min_mutant_pass_gain_share: float = 0.01
    """If mutants save at least this share of the time of all searched parts, rules are applied to the model with mutants.

    A mutant is a term that equals an operator at some output positions. If mutants save less, rules are applied first and
    mutants are searched afterwards. Not measured.
    """
    sweeps_time_share: float = 0.6
    """The relative weight of sweeps when the search time is divided among the passes over a model.

    A sweep applies one rule at all of its matches at once. Not measured.
    """
    window_time_share: float = 0.25
    """The relative weight of the pass over windows when the search time is divided among the passes over a model.

    A window is a part of a large rewritable region. Not measured.
    """
    between_window_time_share: float = 0.15
    """The relative weight of the pass over shifted windows when the search time is divided among the passes over a model.

    A window is a part of a large rewritable region. A shifted window reaches from the middle of one window to the middle of the
    next window. Not measured.
    """
    parallel_time_share: float = 0.6
    """The share of the search time for searching all equal islands of a model together, if the model has equal islands.

    The share equals `sweeps_time_share`, because the search applies sweeps too. Not measured.
    """
    first_mutant_time_share: float = 0.25
    """The relative weight of the pass for mutants in the search time, if this pass comes before the passes with rules.

    A mutant is a term that equals an operator at some output positions. Not measured.
    """
    last_mutant_time_share: float = 0.15
    """The relative weight of the pass for mutants in the search time, if this pass comes after the passes with rules.

    A mutant is a term that equals an operator at some output positions. Not measured.
    """
    min_repeated_time_share: float = 0.1
    """Passes that were cut short are run once more if at least this share of the search time remains. Not measured."""
    min_search_seconds: float = 20.0
    """The least default budget of a search, in seconds.

    With half as many seconds, the geometric mean speedup of five models of the benchmark was 0.2 % lower (`scripts/ablation
    --policy`). But the result of a search that is cut short depends on chance: the model dyn_lora gained 6 to 11 % in five runs
    of 13 s, and 13 % in a run of 26 s.
    """
    max_search_seconds: float = 30.0
    """The largest default budget of a search, in seconds. Not measured."""
    loading_seconds_per_byte: float = 20 / 2**30
    """Each byte of weights lowers the largest default budget by this number of seconds, because sessions take time to open.

    Not measured.
    """
    weight_growth_share: float = 0.5
    """The default limit on the growth of a large model's weights, as a share of the bytes of the original's weights.

    A model is large if this limit is higher than the limit from `small_weight_growth_share`.
    """
    small_weight_growth_share: float = 3.0
    """The default limit on the growth of a small model's weights, as a share of the bytes of the original's weights.

    The limit is never above `small_weight_bytes`. A model is small if this limit is at least as high as the limit from
    `weight_growth_share`.
    """
    small_weight_bytes: int = 2**28
    """The largest number of bytes by which weights may grow under `small_weight_growth_share`."""
    min_weight_growth_bytes: int = 2**20
    """The bytes that are added to every limit on the growth of the weights."""


@dataclass(frozen=True)
class SearchPolicy:
    """Limits of the search for a cheaper equivalent of a part of a model."""

    max_measured_terms: int = 100
    """The gain of each step is measured only in a segment of at most this number of terms.

    A segment is a part of a model that one search rewrites. In a larger segment, the measured total gain is divided among the
    steps in proportion to their estimated gains. Not measured.
    """
    max_recognized_terms: int = 40
    """A function is compared with single operators only if the function has at most this number of terms.

    For each operand, at most this number of the terms that depend on the operand are examined. Tanh GELU has 8 terms, and layer
    norm has 12. Not measured.
    """
    recognition_time_share: float = 0.3
    """The share of the search budget after which no further function is compared with operators. Not measured."""
    max_recognition_attributes: int = 400
    """The largest number of choices of an operator's attributes with which a function is compared. Not measured."""
    max_recombined_rank: int = 4
    """An operator is compared with a function of several tensors only if the operands have at most this rank."""
    min_overflow_magnitude: float = 80.0
    """The least magnitude of a sample at which an exponential may overflow in float32. The exact limit is 88.7."""
    max_extent_elements: int = 2**14
    """A function with reductions is compared with operators at a model's extents only up to this number of reduced elements.

    Not measured.
    """
    max_number_pairs: int = 100
    """The largest number of pairs (a, b) of a function's numbers for which the quotients (a + b) / c are computed.

    The divisor c is any number of the function. The function may have a kink near a quotient. Not measured.
    """
    max_unfiltered_attributes: int = 20
    """The largest number of choices of attributes that are tried one by one if no choice seems plausible. Not measured."""
    max_rearranged_elements: int = 2**22
    """A rearrangement of a tensor is compared with single operators only up to this number of elements.

    Bounds memory. Not measured. For a pooling operator, the elements of all windows are counted, because all windows are in
    memory at the same time.
    """
    max_rearranging_number: int = 64
    """The largest integer that is tried as an attribute of an operator that may equal a rearrangement of a tensor.

    The integer may be a factor, a kernel size, or an amount of padding. Not measured.
    """
    recognition_tolerance_share: float = 1e-5
    """Two functions count as equal if their values differ by at most this share of the larger value.

    The numbers of a function are rounded to float32, with a relative error of up to 6e-8. An exponential multiplies this error
    by the exponential's argument. Not measured.
    """
    recognition_rounding_factor: float = 50.0
    """Values of equal functions may additionally differ by this multiple of the effect of random float64 rounding.

    The multiple is large because errors from random rounding may cancel in part. Not measured.
    """
    recognition_number_factor: float = 4.0
    """Values of equal functions may additionally differ by this multiple of the effect of rounding numbers to float32.

    For example, the rounding of 1 / 6 moves the kinks of the clipped function x / 6 + 0.5 by 1e-7. Not measured.
    """
    random_rounding_count: int = 2
    """The number of random roundings by which the effect of rounding on a function's values is estimated. Not measured."""
    coarse_tolerance_share: float = 5e-7
    """In the first comparison of two functions, values may additionally differ by this share of the magnitude of the samples.

    Not measured.
    """
    min_coarse_scale: float = 1e-6
    """The least magnitude that is assumed for the samples in the first comparison of two functions.

    Near 0, a form such as exp(2 x) - 1 loses precision by cancellation. Not measured.
    """
    plausible_spread_share: float = 0.01
    """One function may be a multiple of another function if the ratio of their values varies by at most this share.

    Not measured.
    """
    min_comparable_share: float = 0.3
    """The smallest share of the samples at which two functions must be finite to count as equal. Not measured."""
    min_seconds: float = 1e-09
    """The least time in seconds that a segment is assumed to take, so that no divisor is 0.

    A segment is a part of a model that one search rewrites. Safety limit.
    """
    clear_speedup_factor: float = 1.1
    """A segment with a long run time is not measured a second time if its predicted speedup is at least this factor.

    A segment is a part of a model that one search rewrites. The whole candidate model is compared later. Not measured.
    """
    hill_rise_share: float = 0.02
    """If a rewrite step raises the estimated cost by more than this share, the next step must be near the new terms.

    A step that raises the cost is useful only if later steps build on the terms that the step creates. Not measured.
    """
    min_gain_share: float = 8e-3
    """The least share of a segment's time that a rewrite must save to count as a gain.

    A segment is a part of a model that one search rewrites. Two measurements of one segment can differ by smaller amounts. No
    script in the repository measures that difference.
    """
    min_summed_seconds: float = 1e-3
    """The least time in seconds of a region at which the sum of the kernels' times alone can refuse a single operator.

    In the searches for 20 models of the benchmark, 56 timings of whole regions took 71 s although the sums predicted no gain,
    and no gain above 6 % was measured. For shorter regions, timing takes less time, and sums are less reliable: a Selu operator
    was 7 % faster although the sums predicted a gain of 0.5 %.
    """
    min_estimated_gain_share: float = 2e-3
    """The result of several rewrite steps is measured only if the steps lower the estimated cost by at least this share.

    Not measured.
    """
    canonical_round_count: int = 3
    """The number of refinement rounds in which the terms of a segment are distinguished by their uses, for a canonical form.

    A segment is a part of a model that one search rewrites. Segments with equal canonical forms are searched once. If some
    terms are not distinguished, equal segments may have different forms and are searched twice, which costs only time. Not
    measured.
    """
    rerolled_time_share: float = 0.5
    """If rerolling lowers a region's time to at most this share of the original time, the unrolled region is not searched.

    Rerolling replaces an unrolled loop by one recurrence operator. Not measured.
    """
    min_layer_siblings: int = 4
    """Operators of one kind and shape may be joined if a layer of a model contains at least this number of these operators.

    Not measured.
    """
    max_meeting_operators: int = 6
    """The operators that a match of a rule replaces are counted up to this number when matches are compared.

    Matches at a commutative operator are ordered by the number of replaced operators. Not measured.
    """
    max_layer_nodes: int = 512
    """The largest period, in nodes, of a repeated layer that is recognized. Safety limit."""
    min_recurrence_steps: int = 2
    """An unrolled loop is replaced by one recurrence operator only if the loop has at least this number of steps.

    One step is not a recurrence.
    """
    max_outline_depth: int = 2
    """The depth to which a term is inspected to decide which rules can match at the term.

    Deeper inspection excludes more rules, but fewer terms can share one cached decision. Not measured.
    """
    max_matches_per_roots: int = 256
    """The largest number of tried matches of a pattern with several outputs at the same output terms.

    Safety limit: the operands of a long sum can be assigned to a pattern in very many ways.
    """
    layer_time_share: float = 0.75
    """In a search by sweeps, operators of one layer may be joined during this share of the search time.

    A sweep applies one rule at all of its matches at once. Joining gets most of the time, because joining only some of the
    operators saves nothing. With a share of 0.4, the operators of a mixture of experts were not all joined. No script repeats
    this measurement.
    """
    layer_preparation_share: float = 0.5
    """This share of the time for joining operators of layers is first spent on rewriting operators one by one.

    The speedup of moe16_small_s1 is 2.0 to 2.6 without these rewrites, and 3.0 to 3.5 with these rewrites. Without a limit, a
    slow machine has no time left to join the layers of dlrm_b1. No script repeats this measurement.
    """
    sweep_time_share: float = 0.7
    """After the operators of layers were joined, sweeps may take this share of the remaining time.

    A sweep applies one rule at all of its matches at once. The search of windows (parts of the model) gets the rest of the
    time. Sweeps can be cut short, because a sweep is useful even if no further sweep follows. Not measured.
    """
    max_measured_sweeps: int = 3
    """The largest number of measured results of sweeps. The result with the lowest estimated cost is measured first.

    A sweep applies one rule at all of its matches at once. Not measured.
    """
    max_sweep_rise_share: float = 0.25
    """Further sweeps may follow a sweep only if the sweep raises the estimated cost by at most this share.

    A sweep applies one rule at all of its matches at once. Not measured.
    """
    equal_estimate_share: float = 1e-3
    """The relative difference of estimated costs below which two rewritten states of a segment count as equal.

    A segment is a part of a model that one search rewrites. Not measured.
    """
    widened_multiple_count: int = 16
    """The search pads extents (sizes of axes) to multiples of this number.

    A cache line and the widest vector register each hold this number of float32 values.
    """
    widening_divisor: int = 3
    """The padding of an extent (the size of an axis) is at most the extent divided by this number. Not measured."""
    max_widening_depth: int = 6
    """The largest number of operators through which padding is moved up to the weights. Not measured."""
    max_widening_tries: int = 100
    """The largest number of attempts to move the padding of one term up to the weights.

    Safety limit: a sum of many terms can be split in too many ways to try all of the ways.
    """
    absorption_instance_count: int = 4
    """The number of random instances (sizes and attributes) at which each equation of a rule is tested with NaN and infinities.

    The test finds the inputs whose NaN and infinities have no effect on one side of the rule. Not measured.
    """
    max_absorption_equations: int = 4
    """At most this number of equations of a rule are tested with NaN and infinities.

    A rule has an equation for each choice of ranks. The tested equations are evenly spread. Not measured.
    """
    max_absorption_difference_share: float = 1e-6
    """Finite float64 results of a rule's two sides agree if their relative difference is at most this number.

    The results are computed with an operand that has NaN or infinite elements. Not measured.
    """
    absorption_draw_count: int = 12
    """The number of random sets of positions that get NaN, or infinities, in each input of a tested rule.

    For 150 rules, 8 sets missed two of the effects that 64 sets found (`superopt/search/absorption.py`).
    """
    max_state_cost_factor: float = 2.5
    """A state of a segment is kept for further steps only if its cost is at most this multiple of the lowest cost.

    A segment is a part of a model that one search rewrites. A more expensive state may lead to a cheaper state. For example,
    the folding of an adapter into a matrix increases the work at first. Not measured.
    """
    max_expansions: int = 160
    """The largest number of expanded and measured states of one segment.

    A segment is a part of a model that one search rewrites. Not measured.
    """
    patience_expansion_count: int = 30
    """The number of successive rewritten states of a segment without improvement after which the segment's search stops.

    A segment is a part of a model that one search rewrites. Not measured.
    """
    lookahead_expansion_count: int = 10
    """The number of successive rewritten states of a segment without improvement after which chains of steps are tried.

    A segment is a part of a model that one search rewrites. The chains start at the best state and are ordered by estimated
    cost. Not measured.
    """
    max_queued_states: int = 4000
    """The largest number of waiting states of one segment, which are not expanded yet.

    A segment is a part of a model that one search rewrites. Safety limit.
    """
    max_chain_steps: int = 3
    """The largest number of rewrite steps in a chain. The intermediate states of a chain are estimated and not measured.

    Folding a low-rank adapter takes three steps.
    """
    max_chain_beam: int = 96
    """At most this number of chains of rewrite steps are extended by a further step (the beam width). Not measured."""
    max_chains_per_rule: int = 3
    """At most this number of chains of rewrite steps with the same last rule are extended. Not measured."""
    max_sweeps_in_row: int = 5
    """The largest number of successive sweeps. The states between the sweeps are estimated and not measured.

    A sweep applies one rule at all of its matches at once. Not measured.
    """
    max_sweep_beam: int = 5
    """The largest number of rewritten states of a region to which a further sweep is applied (the beam width).

    A sweep applies one rule at all of its matches at once. Not measured.
    """
    max_sweep_repetitions: int = 8
    """The largest number of times that one rule is used in successive sweeps.

    A sweep applies one rule at all of its matches at once. Not measured.
    """
    min_window_nodes: int = 8
    """The smallest number of nodes of a window, except the last window of a layer.

    A window is a part of a large rewritable region. Not measured.
    """
    max_window_nodes: int = 32
    """The largest number of nodes of a window, which is a part of a large rewritable region. Not measured."""


@dataclass(frozen=True)
class MutantPolicy:
    """Limits of the search for mutants: how mutants are enumerated, tested, corrected and generalised.

    A mutant is a term that equals an operator at some output positions. A correction computes the other positions.
    """

    min_program_time_share: float = 0.01
    """Mutants of an operator are searched only if the operator takes at least this share of its region's estimated time.

    A mutant equals an operator at some output positions. Not measured.
    """
    max_mutants_per_operator: int = 24
    """The largest number of measured mutants of one operator. The mutant with the lowest estimated cost is measured first.

    A mutant equals an operator at some output positions. `scripts/search_mutants` counts mutants; the effect of the limit was
    not measured.
    """
    max_mutant_cost_factor: float = 3.0
    """The largest estimated cost of a measured mutant, as a multiple of the operator's estimated cost.

    A mutant equals an operator at some output positions. Not measured.
    """
    max_corrections: int = 3
    """The largest number of measured corrections of one mutant.

    A mutant equals an operator at some output positions. A correction computes the other positions. Not measured.
    """
    quick_timing_error: float = 0.05
    """The assumed relative error of a quick measurement of a mutant's time.

    A mutant equals an operator at some output positions. Not measured.
    """
    min_mutant_gain_share: float = 0.03
    """The least share of an operator's time that a mutant must save.

    A mutant equals an operator at some output positions. If a mutant saves less in the quick or in the full measurement, the
    values of the mutant's weights are not computed. Not measured.
    """
    enumeration_time_share: float = 2 / 3
    """The share of the time for mutants after which no more mutants are enumerated.

    A mutant equals an operator at some output positions. The remaining time is for mutants that result from applying rules to
    operators. These mutants save time more often. Not measured.
    """
    believed_speedup_factor: float = 1.25
    """A mutant with at least this speedup over the operator is accepted without alternate timing of mutant and operator.

    A mutant equals an operator at some output positions. At lower speedups, measurement noise had led to the acceptance of
    slower mutants. Not measured.
    """
    max_substituted_mutants: int = 8
    """The largest number of corrected mutants that are measured in place of one operator. The fastest mutant is measured first.

    A mutant equals an operator at some output positions. The whole segment (the part of the model with the operator) is
    measured. Not measured.
    """
    sampled_position_count: int = 64
    """The number of random output positions at which a possible mutant is compared with the operator.

    A mutant equals an operator at some output positions. Not measured.
    """
    min_equal_share: float = 0.3
    """The least share of compared output positions at which a term must equal the operator to be a mutant.

    A mutant equals an operator at some output positions. Not measured.
    """
    max_weight_parts: int = 64
    """The largest number of parts from which a new weight is concatenated. Safety limit."""
    max_weight_denominator: int = 1 << 20
    """The largest denominator of a fraction that represents a factor of a new weight. Safety limit."""
    max_interleaved_count: int = 8
    """The largest step between positions of an interleaved set along an axis, such as 2 for every second position.

    Not measured.
    """
    max_assembly_windows: int = 1 << 14
    """A grid of cells is divided into the fewest possible boxes only if the grid contains at most this number of boxes.

    Safety limit.
    """
    row_block_counts: tuple[int, int, int] = (2, 4, 8)
    """The numbers of blocks of rows into which a masked matrix is cut. Not measured."""
    block_row_count: int = 4
    """The number of inspected rows in each block of rows: the first row, the last row, and rows between them. Not measured."""
    max_conditions: int = 8
    """The largest number of conditions of one generalised mutant. All of these conditions must hold.

    A mutant equals an operator at some output positions. Not measured.
    """
    max_factors: int = 64
    """The largest number of parts of a mutant's output for which a constant correction factor is searched.

    A mutant equals an operator at some output positions. Safety limit.
    """
    discovery_size_count: int = 24
    """The number of random choices of sizes at which mutants are enumerated.

    A mutant equals an operator at some output positions. Not measured.
    """
    support_divisor: int = 3
    """A form of mutants must occur at no fewer sizes than `discovery_size_count` divided by this number.

    A mutant equals an operator at some output positions. A form is a mutant without its numbers. Not measured.
    """
    trial_size_count: int = 12
    """The number of typical sizes, and of arbitrary sizes, at which a rule that generalises mutants is tested.

    A mutant equals an operator at some output positions. Not measured.
    """
    border_draw_count: int = 16
    """The number of random sizes for each kind of test of a rule near the border of the rule's condition.

    In some tests, the condition holds. In the remaining tests, exactly one part of the condition fails. Both kinds of tests are
    made with arbitrary attributes, with attributes other than 0 and 1 (divisibility is trivial for 0 and 1), and with the
    smallest sizes, at which parts are empty. With 6 random sizes, two wrong conditions about pads of dilated convolutions
    passed the tests, but the rules with these conditions could not be proved.
    """
    neighboured_size_count: int = 2
    """The number of choices of sizes in each round of tests for which neighbouring choices are tested too.

    A neighbour of a choice differs from the choice in one number. Not measured.
    """
    max_trial_rounds: int = 5
    """The largest number of rounds of tests for one rule. The rule is a generalisation of mutants.

    A mutant equals an operator at some output positions. After every round except the last, the rule's condition may change.
    Not measured.
    """
    max_residues: int = 1 << 23
    """The largest number of residues (numbers modulo a prime) in one array.

    Larger arrays are computed in parts. Safety limit.
    """
    max_plain_products: int = 1 << 12
    """The largest number of products that are computed element by element instead of by a matrix product. Not measured."""
    max_fitted_value: int = 1 << 40
    """The largest value of an expression that is fitted to numbers. Safety limit."""
    max_fits: int = 3
    """The largest number of expressions that are fitted to one number. Not measured."""
    max_window_positions: int = 32
    """The largest number of positions along an axis that one sliding window (of a convolution or pooling) spans.

    Not measured.
    """
    sparse_weight_factor: int = 4
    """A weight counts as sparse if the ratio of its elements to its used elements is larger than this factor.

    For a sparse weight, only the used elements are stored in an array. Not measured.
    """
    max_weight_elements: int = 1 << 26
    """The largest number of elements of a new weight. Safety limit."""
    max_label_choices: int = 256
    """The largest number of tried labellings of a mutant's numbers. A number is labelled with an attribute that has this value.

    A mutant equals an operator at some output positions. Safety limit.
    """
    max_terms_per_form: int = 2
    """The largest number of terms over variable sizes that are tried to generalise the mutants of one form.

    A mutant equals an operator at some output positions. A form is a mutant without its numbers. Not measured.
    """
    max_fit_operations: int = 2
    """The largest number of operations in an expression. Expressions are fitted to numbers. Not measured."""
    max_index_choices: int = 1 << 24
    """The largest number of combinations of summation indices for which an index or a condition is evaluated. Safety limit."""
    max_examined_pieces: int = 64
    """The largest number of examined pieces of a box of output positions in the choice between ways to cut the box.

    Not measured.
    """
    undecided_piece_count: int = 4
    """An undecided piece of a box of output positions counts as this number of pieces when ways to cut the box are compared.

    Not measured.
    """
    max_compared_positions: int = 1 << 20
    """At most this number of positions of one box are compared one by one. Safety limit."""
    max_folded_positions: int = 16
    """The largest extent of an axis that is moved into another axis as a whole. Not measured."""
    padding_multiple_counts: tuple[int, int, int] = (2, 8, 16)
    """An axis may be padded to a multiple of one of these numbers, which suit pairs of rows and vector units. Not measured."""
    max_arithmetic_factor: float = 4.5
    """The largest number of arithmetic operations of a mutant, as a multiple of the original operator's arithmetic operations.

    A mutant equals an operator at some output positions. Unrolled 2x2 windows take 4 times as many operations as the operator,
    and some more at borders. Not measured.
    """
    max_layout_steps: int = 2
    """The largest number of rearrangements (such as transposes or folded axes) in one layout of data and output.

    Not measured.
    """
    trial_product_count: int = 128
    """The number of products at each output position with which a layout of data and output is tested first. Not measured."""
    max_products: int = 1024
    """The largest number of products at each output position that are used to recognize which operator computes the output.

    All products are used to compute the values of a new weight. Not measured.
    """
    max_joined_operators: int = 16
    """The largest number of similar operators that are treated as one stacked operator. Not measured."""
    copy_counts: tuple[int, int, int] = (2, 4, 8)
    """The numbers of copies of the data that an operator may get, and the numbers of parts that an operator is split into.

    Not measured.
    """
    max_spare_position_factor: int = 2
    """The largest number of computed positions of a term, as a multiple of the number of requested positions.

    Additional positions are computed if these positions complete the requested positions to a Cartesian product over axes. Not
    measured.
    """
    max_table_elements: int = 1 << 22
    """Distinct positions are found by a table, instead of by sorting, only if at most this number of positions are possible.

    Safety limit.
    """
    max_table_factor: int = 64
    """The largest size of a table that finds distinct positions, as a multiple of the number of requested positions.

    Filling a larger table takes longer than sorting the positions. Not measured.
    """
    max_regions: int = 4096
    """A term is tested only if the term has at most this number of regions.

    A region is a box of output positions at which the term computes its results by one formula. Safety limit.
    """
    max_changed_attributes: int = 4
    """The largest count of changed numbers in an operator's attributes if only a part of the output is computed.

    Not measured.
    """
    max_attribute_choices: int = 4000
    """The largest number of tried choices of attributes for the computation of a part of an operator's output. Safety limit."""
    max_tried_attribute: int = 8
    """The largest number that is tried for an attribute, besides numbers that sizes suggest. Not measured."""
    max_enclosing_runs: int = 6
    """If a part of an output is cut from a wider part, at most this number of wider ranges of positions are tried.

    Not measured.
    """
    part_sample_count: int = 24
    """The number of random positions at which a computed part is compared with the original operator. Not measured."""
    max_size_tries: int = 20_000
    """The largest number of random sizes that are tried to find sizes at which a term is well typed. Safety limit."""
    probe_position_count: int = 48
    """The number of random output positions that are tried to find positions that read the most elements. Not measured."""
    kept_position_count: int = 10
    """The number of positions that are used, among the `probe_position_count` positions that were tried. Not measured."""
    max_inserted_zeros: int = 4
    """The largest number of zeros that a correction inserts as padding before or after an axis. Not measured."""
    max_spacing_ways: int = 16
    """The largest number of ways in which a mutant is rebuilt on padded inputs.

    A mutant equals an operator at some output positions. Not measured.
    """
    max_layout_depth: int = 4
    """The largest number of layouts that are applied to an operator, one after the other, to make mutants.

    A mutant equals an operator at some output positions. Not measured.
    """
    log2_error: float = -60.0
    """The base-2 logarithm of the largest probability that a test wrongly finds terms equal. docs/partial.md derives the bound.
    """


@dataclass(frozen=True)
class ComparisonPolicy:
    """Limits for comparing the end-to-end times of a candidate model and the original.

    The models are loaded several times. After each load, the models are timed in rounds. A round times each model once.
    """

    min_gain_margin_share: float = 0.02
    """The least share by which a candidate model must be faster than the original to be accepted.

    In addition, the gain must exceed the noise. docs/results.md states by how much the times of two copies of one model differ.
    The margin itself was not measured.
    """
    max_loss_share: float = 0.01
    """At each choice of sizes of the dynamic dimensions, a candidate may be slower by at most this share.

    Not measured.
    """
    max_resident_bytes: int = 1 << 30
    """Models are loaded together for a comparison only if all models together have at most this number of bytes.

    If the models have more bytes, one model at a time is loaded and timed. Safety limit: `scripts/check_memory` compares peak
    memory with the documented bound.
    """
    max_run_bytes: int = 3 << 27
    """The largest number of bytes that runs may need, in addition to the models, if models are loaded together for a
    comparison.

    If the runs need more bytes, one model at a time is loaded and timed. Safety limit; see `max_resident_bytes`.
    """
    min_compared_inputs: int = 3
    """The smallest number of sets of input values on which `superopt compare` compares outputs. Not measured."""
    max_loads: int = 6
    """The models of a comparison are loaded at most this number of times.

    If loading is quick, the models may be loaded more often. The placement of a session's memory influences all times of the
    session, so several sessions are compared. Not measured.
    """
    min_loads: int = 2
    """The smallest number of times that the models of a comparison are loaded. Not measured."""
    loading_time_share: float = 0.2
    """The share of a comparison's time that loading may take if models are loaded more than `max_loads` times. Not measured."""
    max_loading_seconds: float = 10.0
    """If loading takes longer than this number of seconds, and longer than the timing may take, models are loaded only once.

    The libraries of a GPU may compile kernels for each session. Not measured.
    """
    hurried_loading_seconds: float = 3.0
    """Seconds of a comparison after which no model is loaded again, if the user asked the search to stop. Not measured."""
    visit_seconds: float = 0.008
    """Seconds of one model's turn in a comparison.

    In its turn, the model runs several times, and the fastest run counts. Not measured.
    """
    long_run_seconds: float = 0.05
    """If a run takes more than this number of seconds, a model's turn in a comparison consists of one run.

    The state of the caches matters little to a long run. Not measured.
    """
    max_rounds: int = 400
    """The largest number of rounds between two loads of the models.

    A round times each model of a comparison once. Safety limit.
    """
    min_block_rounds: int = 4
    """The smallest number of rounds of a comparison that loads only one model at a time. Not measured."""
    max_hidden_block_rounds: int = 8
    """The largest number of rounds of such a comparison after which rounds are added because noise hides a gain.

    The confidence interval after 4 rounds contains the ratios of all rounds. The interval after 8 rounds leaves out the largest
    and the smallest ratio. On a noisy machine, a gain of 26 % for the model csrnet was refused after 4 rounds.
    """
    min_block_seconds: float = 0.5
    """The smallest number of seconds that a model runs after it was loaded, if one model is loaded at a time. Not measured."""
    reported_interval_share: float = 0.03
    """A ratio of times is precise enough to report only if its confidence interval has at most this relative width.

    Not measured.
    """
    sure_margin_share: float = 0.01
    """The candidate counts as surely faster if the ratio of times exceeds the acceptance threshold by this share.

    Not measured.
    """
    obvious_margin_share: float = 0.1
    """The least distance between a ratio of times and 1 at which the faster model is obvious after a few rounds.

    Not measured.
    """
    min_obvious_rounds: int = 3
    """The smallest number of rounds of timing after which a comparison may end because the faster model is obvious.

    Not measured.
    """
    min_rounds_per_load: int = 3
    """The smallest number of rounds of timing after each load of the models. A round times each model once. Not measured."""
    min_long_rounds_per_load: int = 4
    """The smallest number of rounds of timing after each load of the models, if each model runs once in a round.

    Not measured.
    """
    min_report_rounds: int = 24
    """A ratio of times can be precise enough to report only after this number of rounds since the models were loaded.

    Not measured.
    """
    max_report_loads: int = 24
    """The largest number of loads of quickly loaded models, if the ratio of times is not yet precise enough to report.

    Not measured.
    """
    min_verdict_rounds: int = 12
    """The smallest number of rounds of timing after one load before a comparison may end with a clear result. Not measured."""
    comparison_seconds: float = 10.0
    """The default duration of a comparison in seconds. Not measured."""
    tuning_seconds: float = 10.0
    """The default duration of the tuning of session settings in seconds. Not measured."""


@dataclass(frozen=True)
class CheckPolicy:
    """Limits of the numerical check, which compares the outputs of a candidate model with the outputs of the original."""

    max_exact_integer: int = 1024
    """The largest magnitude of an integer in a float64 run that random rounding leaves unchanged.

    In a random run, a value that rounds in the original is hardly ever an integer. Not measured.
    """
    vanishing_error_share: float = 0.1
    """An output vanishes in a run if its error or its noise is at least this share of the output's largest magnitude.

    Such an output may contain only rounding errors. An example is a layer norm of constant rows. Not measured.
    """
    max_error_factor: float = 4.0
    """The largest error of a candidate, as a multiple of the largest error of the original (`--tolerance`).

    Reordered sums change errors by small factors. The limits of algorithms in docs/exactness.md refer to this factor, which was
    not measured.
    """
    check_seconds: float = 5.0
    """The seconds after which a numerical check runs the models on no further input. Not measured."""
    hurried_check_seconds: float = 2.0
    """The limit that replaces `check_seconds` if the user asked the search to stop. Not measured."""
    min_inputs: int = 2
    """The smallest number of ordinary inputs, and of adversarial inputs, of a numerical check.

    The models are run on these inputs regardless of the time limit. Not measured.
    """
    noise_sample_counts: tuple[int, ...] = (2, 4, 6, 12)
    """The numbers of noise samples that are taken in turn on an input on which the candidate model seems wrong.

    The next number of samples is added only if the candidate still seems wrong. A sample of the original's rounding noise is a
    float64 run that rounds at random or, without a float64 run, a run on a slightly different input. The first number is small
    because each sample of a model with 80 million weights takes long. Not measured.
    """
    adversarial_look_seconds: float = 5.0
    """Seconds after which no further adversarial input is examined with more samples of rounding noise. Not measured."""
    ordinary_look_seconds: float = 20.0
    """Seconds after which no further ordinary input is examined with more samples of rounding noise.

    If a candidate model seems wrong on an ordinary input, and the input is not examined, the candidate is rejected. Not
    measured.
    """
    max_convolved_elements: int = 1 << 22
    """The largest number of elements of inputs and results in one block of a convolution of the float64 run.

    Safety limit.
    """
    max_patch_rows: int = 64
    """A convolution of the float64 run multiplies at most this number of rows of its matrix of pixels at once.

    With this limit, a convolution of one channel with 256 taps takes a tenth of the time for a batch of 63. With a limit of 16
    MiB instead, other convolutions take longer.
    """
    sizing_seconds: float = 2.5
    """The check at additional sizes of dynamic dimensions ends after this number of seconds of its thread's CPU time.

    The check also ends after four times as many seconds of wall-clock time. Not measured.
    """
    max_result_bytes: int = 1 << 28
    """At most this number of bytes of inputs and results stay in memory during one numerical check. Safety limit."""
    max_rounded_elements: int = 1 << 16
    """The largest number of elements that are rounded at random at a time.

    Rounding needs several times the memory of these elements. Safety limit.
    """
    max_sized_input_bytes: int = 1 << 26
    """The largest number of bytes of all inputs of a run at additional sizes of dynamic dimensions, with 8 bytes for each
    element.

    Safety limit.
    """
    max_sized_run_bytes: int = 1 << 29
    """The largest amount of memory in bytes that a run at additional sizes of dynamic dimensions may be expected to need.

    Safety limit.
    """
    fixed_run_bytes: int = 1 << 22
    """The bytes of a run's measured memory that are assumed not to depend on the sizes of dynamic dimensions.

    The first run of a model in a process maps code and thread stacks. For a model with one MatMul and 64 input elements, the
    measured memory was 12 to 192 KiB.
    """
    max_sized_run_seconds: float = 0.5
    """The longest expected run at additional sizes of dynamic dimensions, in seconds. Not measured."""
    max_adversarial_run_seconds: float = 0.02
    """A run at additional sizes is repeated with adversarial values only if it takes at most this number of seconds.

    Not measured.
    """
    max_sizes_tried: int = 200
    """A check tries at most this number of choices of sizes of the dynamic dimensions.

    If dimensions depend on each other, the original runs at few of the tried choices. Not measured.
    """
    small_sizes: tuple[int, ...] = (1, 2, 3, 4, 0)
    """Small sizes at which every dynamic dimension is checked, including 0."""
    mixed_sizes: tuple[int, ...] = (7, 8, 6, 33, 9, 32, 16, 5, 65, 12, 31, 64, 15, 48, 10, 17, 100)
    """Sizes with various residues at which dynamic dimensions are checked: even and odd numbers, and neighbours of powers of 2.

    With fewer sizes, the check had accepted wrong models (tests/wrong_results).
    """
    large_size: int = 1000
    """A large size at which each dynamic dimension is checked while all other dimensions keep their sizes. Not measured."""
    max_constants: int = 16
    """At most this number of a model's constants give sizes for the check.

    The most significant constants come first. Not measured.
    """
    max_size: int = 1 << 24
    """The largest constant of a model that gives a size for the check. Safety limit."""
    min_laddered_size: int = 512
    """Before a size above this limit is checked, a smaller size is checked to predict the time of a run. Not measured."""
    ladder_factor: int = 8
    """The ratio of a large size to the smaller size that is checked before the large size. Not measured."""
    paired_size_increases: tuple[int, int, int] = (1, 2, 5)
    """The amounts by which two dimensions grow together, in case one dimension depends on the other. Not measured."""
    max_constant_elements: int = 16
    """The elements of a constant tensor give sizes for the check only up to this number of elements. Not measured."""
    feasible_sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 8, 16, 32, 64, 7, 128, 224, 12, 256, 512, 1024)
    """The sizes that are tried in turn if a model does not run at the usual sizes.

    Small sizes come first, then sizes that exporters use. Not measured.
    """
    feasible_seconds: float = 30.0
    """Seconds after which no further inputs are tried to find inputs on which a model runs. Not measured."""
    max_input_elements: int = 1 << 28
    """Random values are made for a model only if all its inputs together have at most this number of elements. Safety limit."""
    max_inferred_constant_bytes: int = 1 << 12
    """If a tensor has this number of bytes or more, its elements are not passed to ONNX's shape inference. Not measured."""
    max_constant_bytes: int = 1 << 10
    """The size in bytes up to which a stored integer tensor gives values for integer inputs of a check. Not measured."""
    masked_share: float = 0.25
    """The share of elements that a mask switches off in an adversarial input. Not measured."""
    max_inputs_changed_alone: int = 4
    """The largest number of floating-point inputs that get a mask, infinities or NaN while other inputs stay ordinary.

    Not measured.
    """
    min_noise_ulp_count: int = 16
    """The least rounding noise assumed for an element, in ulps (units in the last place) of the element. Not measured."""
    min_error_ulp_count: int = 4
    """The least error assumed for the original, in ulps (units in the last place) of the output's largest magnitude.

    Not measured.
    """
    direct_ulp_count: int = 1024
    """The largest allowed difference between candidate and original, in ulps, if there is no float64 run. Not measured."""
    min_wrong_share: float = 1e-3
    """For an output that is not floating-point, at least this share of the original's elements is assumed to be wrong.

    Not measured.
    """
    quiet_share: float = 0.1
    """The share of a row's elements that are used to estimate the row's noise: the elements with the least noise.

    Not measured.
    """
    largest_error_sigmas: float = 5.0
    """The assumed ratio of the largest of many errors to their standard deviation.

    A normal error exceeds five standard deviations about once in two million draws.
    """
    min_row_elements: int = 16
    """The smallest number of elements of a row for which the noise of the row is estimated. Not measured."""
    max_row_elements: int = 256
    """The largest number of elements of a row from which the noise of the row is estimated. Not measured."""
    rare_error_factor: float = 4.0
    """The factor by which the errors of a few elements may exceed the usual limit.

    The noise samples of a few elements may all be small by chance. In one correct softmax with reordered sums, the error of one
    element of 4,800 was just above the usual limit, which followed from eight noise samples (one observation, no script).
    """
    rare_share: float = 1e-3
    """The largest share of elements that counts as "a few elements" in `rare_error_factor`."""
    deliberate_rounding_share: float = 0.01
    """The original is assumed to round on purpose if at least this share of its elements is far from the float64 results.

    Not measured.
    """
    min_deliberate_rounding_count: int = 2
    """The original is assumed to round on purpose only if at least this number of its elements is far from the float64 results.

    Elements are counted over all inputs. In one of 5,000 random models (`scripts/fuzz_values`), a single scalar was inaccurate
    on one input by chance.
    """
    deliberate_rounding_factor: float = 16.0
    """The candidate is assumed not to round on purpose if the original's errors exceed this multiple of the candidate's errors.

    Not measured.
    """


@dataclass(frozen=True)
class CostPolicy:
    """Constants of the cost model, which uses measured times of nodes, and of the prediction of times on other devices."""

    max_default_run_bytes: int = 1 << 27
    """The bytes that a run may need at default sizes of the dynamic dimensions. If a run needs more, sizes are halved.

    The numerical check holds the results of several runs, in float64 too, so superopt as a whole needs several times as much
    memory. For a U-Net with attention over all pixels, superopt needed 6.7 GB in all at a size of 224 x 224.
    """
    min_default_size: int = 32
    """Default sizes of dynamic dimensions are halved only while the largest size is above this number. Not measured."""
    traced_run_count: int = 5
    """The number of runs in which the nodes of a model are timed, to report where the time goes."""
    traced_seconds: float = 0.5
    """When nodes are timed to report where the time goes, no further run begins after this number of seconds."""
    split_launch_share: float = 0.8
    """The share of an operator's launch time that joining operators into one Split or one Concat saves.

    The share is saved for each slice after the first slice of a Split, and for each inner concatenation that is joined into a
    Concat. Not measured.
    """
    reshape_launch_share: float = 0.25
    """The time of a Reshape, which moves no elements, as a share of the launch time of an operator. Not measured."""
    cpu_operations_per_second: float = 2.5e11
    """Operations per second of one AVX-512 core, for the cost estimates by which the search orders rewritten terms.

    The value was fitted, together with `cpu_bytes_per_second` and `cpu_launch_seconds`, to the measured times of 262 segments
    of seven models. A segment is a part of a model that one search rewrites. The fitted times of half of the segments are
    within 10 % of the measured times. No script repeats the fit.
    """
    cpu_bytes_per_second: float = 1e11
    """Bytes per second that one AVX-512 core moves. See `cpu_operations_per_second`."""
    cpu_launch_seconds: float = 2e-6
    """Seconds that ONNX Runtime takes to start an operator on a CPU. See `cpu_operations_per_second`."""
    gpu_operations_per_second: float = 1e13
    """Operations per second of a GPU at batch size 1, far below the GPU's peak. Not measured."""
    gpu_bytes_per_second: float = 1e12
    """Bytes per second that a GPU moves at batch size 1. Not measured."""
    gpu_launch_seconds: float = 5e-6
    """Seconds that a kernel launch on a GPU takes. Not measured."""
    convolution_lane_count: int = 16
    """The number of channels of a convolution group that a kernel computes at once: the float32 lanes of AVX-512."""
    max_waiting_percent: float = 30.0
    """Times are stored only if threads waited for a processor in at most this share of the last ten seconds, in percent.

    The share was 20 % while two processes used two processors, and 50 % while three processes used two processors.
    """
    max_surplus_load: float = 0.75
    """Times are stored only if the load average exceeds the number of hardware threads by at most this number of threads.

    The process itself adds about as many threads as the machine has cores. Not measured.
    """
    node_timing_seconds: float = 0.005
    """Seconds for which a node is timed. Not measured."""
    max_described_elements: int = 64
    """The elements of an integer constant are part of the key of a node's stored time only up to this number of elements.

    The time of a node may depend on these elements. Not measured.
    """
    timing_batch_seconds: float = 2e-4
    """Seconds of one batch of runs of a node. The mean time of the runs in a batch counts. Not measured."""
    min_cold_weight_bytes: int = 256 << 10
    """A node with at least this number of bytes of weights is also timed with weights that are in no cache. Not measured."""
    max_cold_copies: int = 32
    """At most this number of copies of a node run one after the other, so that the node's weights are in no cache.

    Safety limit.
    """
    min_memory_bytes_per_second: float = 5e9
    """The least memory bandwidth assumed, in bytes per second. Not measured."""
    min_fetch_time_share: float = 0.05
    """A node is also timed with weights in no cache if reading its weights takes at least this share of the node's time.

    Not measured.
    """
    max_overlapped_run_seconds: float = 1e-3
    """If a GPU run takes less than this number of seconds, a node is measured by the time that a second copy adds to the run.

    A GPU launches the next kernel while a kernel runs. docs/profiles.md states the error of times that are measured in this
    way; the threshold was not measured.
    """
    min_mapped_constant_bytes: int = 64 << 20
    """If a constant of a timed node has at least this size, zeros in a mapped file replace random numbers in memory.

    Only constants whose true elements are not needed are replaced. Not measured.
    """
    pace_step_count: int = 200_000
    """The number of steps of the Python loop whose time shows the speed of a machine."""
    pace_reference_seconds: float = 0.028
    """The run time in seconds of the loop of `pace_step_count` steps on the machine for which budgets were chosen.

    The machine was an AMD EPYC with AVX-512. The time was measured on that machine; no script repeats the measurement.
    """
    max_pace_factor: float = 3.0
    """The largest factor by which a search is prolonged on a slower machine.

    The speedup of the model dlrm_b1 was 1.24 instead of 1.89 when a part of its search was cut short; the bound itself was not
    measured.
    """
    forecast_sigmas: float = 2.0
    """The number of standard deviations by which each node's time is assumed to differ from its prediction.

    Each difference is assumed to be to the candidate's disadvantage. A candidate model is accepted if a gain remains.
    docs/profiles.md compares predicted with measured gains (`scripts/check_predictions`).
    """
    repeated_run_seconds: float = 2.0
    """The first run of a model is repeated to measure its time only if the run takes at most this number of seconds.

    Not measured.
    """
    short_node_seconds: float = 1e-5
    """If a model's nodes take less than this number of seconds on average, whole segments are timed instead of nodes.

    A segment is a part of a model that one search rewrites. If nodes take little time, the time between nodes matters as much
    as the time of the nodes. Not measured.
    """
    segment_timing_seconds: float = 0.02
    """Seconds for which a whole segment is timed. A segment is a part of a model that one search rewrites. Not measured."""
    segment_turn_count: int = 12
    """The number of times that a segment and a reference segment run in alternation for one timing.

    A segment is a part of a model that one search rewrites. Not measured.
    """
    fastest_turn_factor: int = 5
    """The factor by which `segment_turn_count` is multiplied for a segment that seems to be the fastest so far.

    A segment is a part of a model that one search rewrites. The fastest of many short timings is often fast by luck. Not
    measured.
    """
    segment_comparison_seconds: float = 0.6
    """Seconds for which two whole segments (parts of a model) are timed in alternation.

    Half of this time is spent if the times of the segments' nodes are used too. Not measured.
    """
    segment_load_count: int = 2
    """The number of times that two segments (parts of a model) are loaded to time them in alternation.

    Segments with a long run are loaded once. Not measured.
    """
    min_summed_gain_error: float = 0.03
    """The least relative error assumed for a gain that is predicted from sums of nodes' times. Not measured."""
    summed_gain_error_share: float = 0.5
    """The relative error of a gain that is predicted from sums of nodes' times, as a share of the gain.

    The error is at least `min_summed_gain_error`. Not measured.
    """
    min_ratio_error: float = 1e-7
    """The least relative error assumed for the ratio of two measured times, so that no divisor is 0. Not measured."""
    min_node_seconds: float = 1e-7
    """The least time in seconds that a node is assumed to take, so that no divisor is 0. Not measured."""
    overhead_chain_count: int = 32
    """The number of nodes in the chain by which the time of the smallest node is measured. Not measured."""
    known_time_error: float = 0.1
    """The relative error assumed for the time of a measured node.

    The times of a model's nodes, each measured in isolation, sum to 0.89 to 0.99 of the model's end-to-end time.
    """
    unknown_operator_error: float = math.log(2)
    """The least error assumed for a roofline prediction of an operator without measured nodes, as the logarithm of a factor.

    The roofline is right within a factor of 2.15 for nine tenths of the nodes (docs/profiles.md).
    """
    min_known_operators: int = 5
    """If there are at least this number of measured operators, their errors determine the roofline's error for other operators.

    Not measured.
    """
    roofline_weight_share: float = 0.1
    """The weight of the uncorrected roofline in a prediction from similar measured nodes.

    A measured node with equal demands on arithmetic and memory has weight 1. Not measured.
    """
    min_valueless_weight_bytes: int = 1024
    """A weight of at least this number of bytes has arbitrary elements when a part of the model is timed.

    ONNX Runtime's optimizations do not read the elements of weights of this size. Not measured.
    """
    max_literal_elements: int = 1 << 16
    """A part of the model is timed with the true elements of a constant only up to this number of elements.

    The elements matter to optimizations: ONNX Runtime removes a node that adds zeros, for example. Not measured.
    """

    @property
    def cpu_operations_per_launch(self) -> float:
        """The number of operations that one CPU core does in the time that it takes to start an operator."""
        return self.cpu_launch_seconds * self.cpu_operations_per_second

    @property
    def cpu_operations_per_byte(self) -> float:
        """The number of operations that one CPU core does in the time that it takes to move a byte."""
        return self.cpu_operations_per_second / self.cpu_bytes_per_second


@dataclass(frozen=True)
class ModelPolicy:
    """Limits for reading, analysing and writing models."""

    max_converted_weight_bytes: int = 2**12
    """The largest weight, in bytes, that is passed to ONNX's opset converter.

    The converter may need the elements of a small weight, such as a shape or axes. Larger weights need not be copied. Not
    measured.
    """
    max_tiny_error: float = 1e-6
    """Below this magnitude, the absolute error of a kernel may be as large as the kernel's result.

    For example, ONNX Runtime's float32 Sigmoid returns 0 instead of results below 6e-8, and is off by a tenth at 3e-7.
    """
    first_image_size: int = 64
    """The first size that is tried for the height and width of an image. Not measured."""
    first_size: int = 8
    """The first size that is tried for a dynamic dimension that is not the height or width of an image. Not measured."""
    tested_sizing_count: int = 3
    """The number of choices of sizes at which a statement about all sizes of dynamic dimensions is tested. Not measured."""
    default_batch_size: int = 1
    """The default size, for measurements, of a dynamic dimension that is the first dimension of an input."""
    default_length_size: int = 128
    """The default size, for measurements, of a dynamic dimension that is neither a batch nor the side of an image."""
    default_image_size: int = 224
    """The default size, for measurements, of a dynamic dimension that is the height or width of an image."""
    beyond_all_sizes: int = 55_440 * 1000
    """A size with many divisors that is larger than all bounds in models.

    The value of a bound at this size shows the constant to which the bound tends as sizes grow. Not measured.
    """
    max_export_passes: int = 64
    """The largest number of passes over a model when exported rules are applied. Safety limit."""
    min_external_tensor_bytes: int = 1 << 16
    """A tensor of at least this number of bytes is moved from a ModelProto to a file.

    Smaller tensors may be shapes, and stay in the ModelProto. Not measured.
    """
    min_external_integers_bytes: int = 1 << 20
    """A tensor of integers or booleans of at least this number of bytes is moved from a ModelProto to a file.

    Indices, sizes and conditions are much smaller. With tables of 16 MiB and more in the ModelProto, the peak memory of the
    model `constants` of `scripts/check_memory` was up to 2,178 MiB (allowed: 1,600).
    """
    max_cancelling_summands: int = 4096
    """Cancelling operands are searched among at most this number of terms of a sum and its inner sums. Safety limit."""
    max_folded_elements: int = 1 << 18
    """A term is evaluated to find bounds of its value only if its weights have at most this number of elements.

    Safety limit.
    """
    pair_trial_count: int = 120
    """The number of random inputs on which an exported pair of ONNX functions is tested. Not measured."""
    min_pair_trials: int = 8
    """The smallest number of random inputs on which the pattern function of an exported pair must run without an error.

    Not measured.
    """
    max_pair_rank: int = 5
    """The largest rank of an input on which an exported pair of ONNX functions is tested. Not measured."""
    pair_tolerance_share: float = 1e-4
    """The largest relative difference of float32 results at which both functions of an exported pair agree. Not measured."""
    max_chain_operands: int = 256
    """A chain of nodes is read as one sum or product only if the term has at most this number of operands.

    Safety limit: each node of a chain has its own term, so the total size of the terms grows with the square of the length.
    """
    min_repeated_extent: int = 4
    """The smallest extent of an axis along which a weight is searched for repeated numbers.

    Two numbers are equal too often by chance. Not measured.
    """
    max_shared_elements: int = 64
    """Nodes with equal integer constants share one initializer if the constant has at most this number of elements.

    Not measured.
    """
    max_message_bytes: int = 32 << 20
    """ONNX Runtime loads a ModelProto from memory only if its tensors have at most this number of bytes.

    Loading from memory makes several copies. For a YOLO-like model, mapping the tensors from a file instead lowered the peak
    memory from 1,695 to 835 MiB.
    """
    max_stored_elements: int = 1 << 16
    """A computed tensor of integers or booleans is stored as a constant only if it has at most this number of elements.

    A larger tensor may be the mask of a long sequence. Safety limit.
    """
    max_inferred_elements: int = 256
    """The values of a tensor are passed to ONNX's shape inference only up to this number of elements. Safety limit."""
    max_inference_rounds: int = 8
    """The largest number of rounds of shape inference and constant folding. Safety limit."""
    max_tracked_elements: int = 64
    """The elements of an integer tensor are tracked as expressions of sizes only up to this number of elements. Safety limit.
    """
    max_tracked_floats: int = 4
    """The elements of a floating-point tensor are tracked as expressions of sizes only up to this number of elements.

    Tensors of this size may contain the factors by which sizes are scaled. Larger tensors, such as masks, do not contain these
    factors. Not measured.
    """
    max_branch_rounds: int = 8
    """The largest number of times that the Ifs with known conditions are inlined. Each time, more conditions may become known.

    In silero_vad with a fixed rate and fixed sizes, 6 Ifs are left after one round, 1 after two, and none after three.
    """
    max_assumption_rounds: int = 3
    """The largest number of walks over a model that compute shapes and find new assumptions about dynamic dimensions.

    Safety limit.
    """
    min_deferred_weight_bytes: int = 2**20
    """A new weight of at least this number of bytes is computed only when the weight is read.

    A read may never happen. Not measured.
    """
    max_cached_weight_bytes: int = 2**28
    """The total bytes of computed weights that stay in memory.

    A new weight may be computed only when the weight is read. Beyond this limit, weights are computed at each read. Safety
    limit.
    """
    max_ordinary_magnitude: float = 1e4
    """The largest magnitude of an element of an ordinary input.

    Up to this magnitude, float32 represents three decimals. Reports state the bound as an assumption.
    """
    max_ordinary_half_constant: float = 64.0
    """A model is assumed not to round numbers on purpose by adding a float16 constant of at most this magnitude.

    A number plus 64 is rounded to a multiple of 1/16 in float16. Not measured.
    """
    max_rounding_share: float = 1 / 64
    """The largest relative error with which a number of a term is written in the type of a model.

    bfloat16 rounds by at most 1/256. Larger errors come from underflow, for example of 1e-8 in float16.
    """
    assumed_summand_count: int = 1 << 20
    """The number of summands assumed for a sum over a dynamic dimension, to bound the sum. Not measured."""
    max_gathered_slices: int = 4
    """A Gather with constant positions is lifted as a concatenation of at most this number of slices. Not measured."""
    max_narrowed_elements: int = 2**24
    """A constant is evaluated to find axes of equal elements only if it has at most this number of elements.

    Safety limit.
    """
    max_analysed_steps: int = 256
    """The values of a recurrence are bounded step by step only up to this number of steps. Safety limit on time."""
    body_run_seconds: float = 5.0
    """Seconds after which the model is not run on further inputs to count how often each control flow body runs.

    Not measured.
    """
    exported_instance_count: int = 4
    """The number of random sizes at which the two sides of an exported rule are written as nodes. Not measured."""


@dataclass(frozen=True)
class VerifyPolicy:
    """Limits for verifying an optimized model by the certificate of its optimization."""

    max_definition_operations: int = 1 << 27
    """The definition of an operator is evaluated only if the evaluation takes at most this number of operations. Safety limit.
    """
    max_nesting_depth: int = 200
    """The largest nesting depth of a value in a certificate. The text of a certificate is not trusted. Safety limit."""
    max_untermed_elements: int = 4096
    """The largest number of elements of a new weight for which the certificate has no term.

    A new weight without a term contains numbers that nodes need beside operands, such as the matrices of Winograd's algorithm.
    The numbers are checked by a run of the nodes that read the weight. Not measured.
    """
    max_weight_rounding_factor: float = 16.0
    """The tolerance of a new weight is at most this multiple of the rounding error of the weight's largest element.

    The tolerance grows with the magnitudes that the weight's term adds. A term may add large numbers that cancel, and the text
    of a certificate is not trusted. Not measured.
    """
    min_weight_magnitude: float = 1e-8
    """The largest element of a new weight counts as at least this number, because all elements may cancel to 0. Not measured.
    """
    segment_tolerance_share: float = 2e-3
    """The tolerance between the outputs of rewritten nodes and of their terms, as a share of the output's largest magnitude.

    The nodes compute in the model's precision, and the terms in float64. Not measured.
    """
    max_segment_nudges: int = 16
    """The largest number of evaluations of rewritten nodes' terms on values whose last bits are changed.

    If a number that should cancel to 0 is compared with 0, the outcome is random. The probability that a random outcome is the
    same in all 16 evaluations is about 1 in 65,536. Not measured.
    """
    plain_sizes: tuple[int, ...] = (
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        20,
        24,
        27,
        31,
        32,
        33,
        40,
        48,
        49,
        63,
        64,
        65,
        96,
        97,
        128,
    )
    """The sizes from which random sizes of dynamic dimensions are chosen, besides sizes around the model's constants.

    Not measured.
    """
    coarse_sizes: tuple[int, ...] = (32, 64, 96, 128, 160, 192, 224)
    """The sizes from which random sizes are chosen for networks that halve an image five times. Not measured."""
    integer_bound_counts: tuple[int, ...] = (1000, 100, 30, 10, 4, 2, 1)
    """Upper bounds for random integers. The first bound at which the original runs is used. Not measured."""
    max_drawn_elements: int = 1 << 22
    """The largest number of elements of all random inputs of a run together. Safety limit."""
    max_size_draws: int = 1000
    """The largest number of choices of random sizes for dynamic dimensions. Safety limit."""
    condition_draw_count: int = 60
    """The number of random sizes at which a condition on dynamic dimensions is evaluated. Not measured."""
    max_match_tries: int = 20_000
    """The largest number of tried assignments of operands when a rule is matched at one term. Safety limit."""
    max_sized_constant_elements: int = 64
    """The elements of an integer tensor count as thresholds for sizes only up to this number of elements.

    Sizes just below and above each element are tried. Not measured.
    """
    max_compared_size: int = 1 << 24
    """The largest constant of the model for which sizes just below and above the constant are tried. Safety limit."""
    row_tolerance_share: float = 2e-4
    """A part of the tolerance of an output element, as a share of the largest magnitude in the element's row.

    `own_change_factor` and `common_change_factor` give the other parts. When this share was chosen, reordered sums and merged
    weights caused errors below a tenth of the whole tolerance in the benchmark models. No script repeats the measurement.
    """
    own_change_factor: float = 16.0
    """A part of the tolerance of an output element, as a multiple of the element's change when inputs change slightly.

    The inputs are changed in their last places. See `row_tolerance_share`.
    """
    common_change_factor: float = 256.0
    """A part of the tolerance of an output element, as a multiple of a typical change in the element's row.

    When inputs change in their last places, sixty percent of the elements in the row change by less than the typical change.
    See `row_tolerance_share`.
    """
    overflow_share: float = 2.0**-6
    """Where the original's output exceeds this share of its type's largest number, the optimized model may return infinity.

    Not measured.
    """
    nudged_run_count: int = 3
    """The number of runs of the original with slightly changed inputs. The last places of the inputs are changed. Not measured.
    """
    min_sizes: int = 4
    """The smallest number of choices of sizes at which both models are compared.

    The comparison ends earlier only after three times `size_run_seconds`. Not measured.
    """
    max_sizes: int = 40
    """The largest number of choices of sizes at which both models are compared. Not measured."""
    max_size_tries_per_model: int = 300
    """The largest number of tried choices of sizes. The original may fail at many of these choices. Safety limit."""
    saturated_magnitudes: tuple[float, ...] = (20.0, 30.0, 60.0, 87.0)
    """The least magnitudes of the elements in the rows of a saturated input. Successive rows use successive magnitudes.

    At the negatives of these numbers, exponentials and sigmoids are tiny but not 0 in float32. ONNX Runtime's Sigmoid returns 0
    at -20 and below. The least normal number of float32 is exp(-87.3). Not measured.
    """
    size_run_seconds: float = 12.0
    """Seconds after which the models are not compared at further sizes. Not measured."""
    value_run_seconds: float = 12.0
    """Seconds after which the models are not compared on further adversarial inputs. Not measured."""
    inspected_size_count: int = 3
    """The number of choices of sizes at which the values of rewritten nodes are compared with their terms too.

    Not measured.
    """
    max_short_row_elements: int = 4
    """If rows have at most this number of elements, the tolerance uses the largest magnitude of the whole output.

    The tolerance of longer rows uses the largest magnitude of the row. Not measured.
    """
    step_draw_count: int = 12
    """If a step matches no rule, both sides of the step are evaluated at this number of random inputs. Not measured."""
    min_step_draws: int = 3
    """If a step matches no rule, the evaluation of its sides must succeed at this number of random inputs or more.

    Not measured.
    """
    float64_tolerance_share: float = 1e-7
    """The tolerance between float64 values, as a share of the largest magnitude in the row. Not measured."""


@dataclass(frozen=True)
class DiscoveryPolicy:
    """Limits of the discovery of rewrite rules: enumeration, generalisation, and the choice of useful rules."""

    proof_sample_count: int = 24
    """The number of random instances at which the sides of an equation must agree before a proof is tried. Not measured."""
    quick_sample_count: int = 12
    """The number of random instances at which the sides of an equation must agree for the equation to be considered at all.

    Not measured.
    """
    outcome_sample_count: int = 48
    """The number of random attribute values from which the conditions of a rule are inferred. Not measured."""
    small_operator_count: int = 3
    """Equations with at most this number of operators are decided before all larger equations of any universe.

    A universe is a vocabulary for terms. Not measured.
    """
    axiom_instance_count: int = 40
    """The number of random instances of an axiom from which the instance with the most distinct sizes is chosen.

    Not measured.
    """
    max_slice_candidates: int = 4_000
    """One task examines at most this number of equations of one universe (a vocabulary for terms).

    Only equations with more than `small_operator_count` operators are counted. Not measured.
    """
    launch_element_count: float = 10000.0
    """The number of elements that are moved in the time that it takes to start an operator.

    The cost of a term counts elements, operations and launches. The cost decides which directions of an equation become rules.
    The number is a fifth of the ratio of `cpu_launch_seconds` to the time for moving a float32 element at
    `cpu_bytes_per_second`. Not measured.
    """
    operations_per_element_count: float = 16.0
    """The number of operations in the time that it takes to move one element. Not measured."""
    heavy_operation_count: float = 8.0
    """The number of operations for each moved element above which an operator counts as compute-intensive.

    Not measured.
    """
    legality_sample_count: int = 64
    """The number of random sizes that show which conditions on an operator's operands can hold in a universe.

    A universe is a vocabulary for terms. Not measured.
    """
    max_batch_elements: int = 2_000_000
    """The largest number of elements that are evaluated in one batch of terms. Safety limit."""
    max_environment_tries: int = 20_000
    """The largest number of tried random choices of sizes and values until a choice fits a universe.

    A universe is a vocabulary for terms. Safety limit.
    """
    max_reading_choices: int = 12
    """The largest number of ways to generalise the numbers of an equation to expressions over sizes. Safety limit."""
    plausible_reading_count: int = 2
    """The number of ways to generalise an equation that are tested on random inputs. Not measured."""
    max_renamings: int = 48
    """The largest number of renamings of interchangeable variables of one equation. Safety limit."""
    max_exchanged_variables: int = 4
    """The largest number of variables of a rule for which a test decides whether the rule only exchanges variables.

    Safety limit.
    """
    max_laws_per_task: int = 32
    """The largest number of rules that one task tries to derive from other rules.

    Some derivations take long to find. Not measured.
    """
    min_law_tasks: int = 16
    """The smallest number of tasks that derive rules from other rules, if there are enough rules. Not measured."""
    max_name_operators: int = 4
    """The name of a rule contains at most this number of operators of each side."""
    max_operand_rows: int = 1 << 20
    """When terms are enumerated, at most this number of combinations of operands are made at once. Safety limit."""
    max_rank_choices: int = 16
    """The largest number of rank choices for all remaining variables when a rule is tested for one rank of a variable.

    Safety limit.
    """
    kept_cost_share: float = 0.9
    """The largest cost of a rule's right side, as a share of the cost of its left side, if the rule saves no operator.

    A direction of an equation with a costlier right side does not become a rule. Not measured.
    """
    max_local_operators: int = 3
    """A derivable rule is kept for its smaller right side only if its left side has at most this number of operators.

    Not measured.
    """
    max_rewriting_steps: int = 12
    """The largest number of steps by which rules rewrite a term to its smallest form. Safety limit."""
    max_rewriting_expansions: int = 24
    """The largest number of terms that are expanded to find steps from one side of an equation to the other. Safety limit."""
    max_climb_factor: float = 1.1
    """The factor that limits the cost of intermediate terms when rules rewrite one side of an equation to the other side.

    The limit is this factor times the cost of the more expensive side or, in some searches, of the first term. Not measured.
    """
    max_rewritten_summands: int = 6
    """A sum or product is rewritten at its root only if it has at most this number of operands. Safety limit."""
    max_rewritten_operators: int = 16
    """A term is rewritten only if the term has at most this number of operators. Safety limit."""
    tallied_row_count: int = 1 << 16
    """The number of enumerated terms whose graphs are counted at once. Safety limit."""
    covered_pair_share: float = 0.75
    """The share of a universe's shared operator pairs that must be contained in the universes that are explored first.

    A universe is a vocabulary for terms. A pair of operators is shared if an earlier universe has the pair too. A universe
    waits for earlier universes that together contain this share of the shared pairs. Not measured.
    """
    max_attribute_conditions: int = 3
    """The largest number of conditions on real-valued attributes in one conjunction. Not measured."""
    condition_choice_count: int = 3
    """The number of tried conjunctions of conditions for the condition of one rule. Not measured."""
    max_universe_operators: int = 4
    """The default limit on the number of operators of a term in a universe (a vocabulary for terms).

    docs/generation.md counts the terms of each universe.
    """
    condition_environment_count: int = 12
    """The number of random choices of sizes and values at which the terms of a universe with conditions are evaluated.

    A universe is a vocabulary for terms. With more choices, a condition rarely has the same outcome at all choices. Not
    measured.
    """
    order_environment_count: int = 8
    """The number of random choices of sizes and values at which the terms of a universe that compares elements are evaluated.

    A universe is a vocabulary for terms. Not measured.
    """
    environment_count: int = 4
    """The number of random choices of sizes and values at which the terms of a universe are evaluated.

    A universe is a vocabulary for terms. `condition_environment_count` and `order_environment_count` are the numbers for
    universes with conditions or comparisons. Not measured.
    """


@dataclass(frozen=True)
class ProofPolicy:
    """Limits of proofs of rules from definitions of operators, from axioms, and from other rules."""

    sampled_instance_count: int = 60
    """The number of random instances (sizes and attributes) at which an equation is tested if no prover decides it.

    Not measured.
    """
    sample_tolerance_share: float = 1e-7
    """The relative difference above which two real values count as different in a test of an equation.

    If the equation can be evaluated in modular arithmetic, the residues decide instead. Not measured.
    """
    replayed_rule_count: int = 32
    """The number of rules whose stored proofs one process checks in sequence.

    The proofs of neighbouring rules in a file ask the solver many equal questions. Not measured.
    """
    max_added_conditions: int = 12
    """The largest number of conditions that are added to a rule so that its right side is well typed. Safety limit."""
    completion_cache_count: int = 64
    """The number of rules for which added preconditions are cached. Safety limit on memory."""
    ground_argument_cache_count: int = 20_000
    """The number of cached arguments of instances of axioms. The arguments are parsed. Safety limit on memory."""
    max_replay_steps: int = 2_000_000
    """The largest number of steps of Z3 (its `rlimit`) for the check of one stored proof.

    Steps, unlike seconds, make the verdict independent of the machine. Safety limit.
    """
    expression_cache_count: int = 20_000
    """The number of Z3 expressions that are cached. Safety limit on memory."""
    max_saturated_summands: int = 6
    """Equality saturation flattens a sum or product only if it has at most this number of operands. Safety limit."""
    axiom_set_cache_count: int = 256
    """The number of cached, prepared sets of axioms. Safety limit on memory."""
    max_alignments: int = 24
    """The largest number of tried ways to match the summation indices of two products. Safety limit."""
    alpha_cache_count: int = 100_000
    """The number of cached summands with renamed indices. Safety limit on memory."""
    max_linear_steps: int = 2_000_000
    """The largest number of steps of Z3 (its `rlimit`) for one question of linear arithmetic. Safety limit."""
    max_nonlinear_steps: int = 50_000
    """The largest number of steps of Z3 (its `rlimit`) for one question of nonlinear arithmetic. Safety limit."""
    max_session_conditions: int = 400
    """The largest number of conditions that one session of Z3 holds before a new session starts. Safety limit on memory."""
    batching_cache_count: int = 50_000
    """The number of terms whose batch axes are cached. Safety limit on memory."""
    max_merges: int = 200
    """The largest number of merges of two summands in one sum. Safety limit."""
    max_witnesses: int = 16
    """The largest number of elements that are tried to show that two summands overlap. Safety limit."""
    max_bound_indices: int = 3
    """The largest number of permuted summation indices when one product is matched with a second product. Safety limit."""
    max_cancel_depth: int = 8
    """The deepest nesting of case distinctions in a proof that a sum is zero. Safety limit."""
    max_cancel_steps: int = 1_500
    """The largest number of steps of a proof that a sum is zero. Safety limit."""
    max_cleared_summands: int = 60
    """The largest number of summands of a sum after the sum was multiplied by a denominator. Safety limit."""
    max_compared_splits: int = 6
    """The largest number of splits of a position into quotient and remainder in a comparison of two tensors. Safety limit."""
    max_indicator_names: int = 6
    """A sum with at most this number of distinct step functions is tested for having only the values 0 and 1.

    Safety limit.
    """
    max_expanded_exponent: int = 4
    """The largest exponent of a power that is multiplied out. Safety limit."""
    first_instance_count: int = 2
    """The number of random instances (sizes and attributes) at which an equation must hold before the index prover starts.

    Not measured.
    """
    refutation_instance_count: int = 60
    """The number of random instances at which a counterexample is searched if the index prover finds no proof.

    Not measured.
    """
    max_bounded_sizes: int = 2
    """The largest number of sizes that are fixed to small numbers if an equation is proved only for these numbers.

    Safety limit.
    """
    max_compared_candidates: int = 5
    """Operands of a maximum are compared in pairs, to drop dominated operands, only up to this number of operands.

    Safety limit.
    """
    normal_form_cache_count: int = 100_000
    """The number of normal forms that are cached. Safety limit on memory."""
    max_multiplied_summands: int = 1_500
    """The largest number of products that are multiplied out in the proof of one equation. Safety limit."""
    pointwise_cache_count: int = 20_000
    """The number of cached answers to the question whether a sum is zero at every point. Safety limit on memory."""
    max_short_terms: int = 4
    """An inequality is multiplied with further inequalities only if it has at most this number of terms.

    Safety limit.
    """
    max_added_bounds: int = 4
    """The largest number of known bounds that are added to derive another bound. Safety limit."""
    max_simplification_rounds: int = 8
    """The largest number of rounds of simplification of one sum. Safety limit."""
    max_value_steps: int = 200_000
    """The largest number of steps of Z3 (its `rlimit`) for one question about signs of values. Safety limit."""
    max_unknowns: int = 12
    """The largest number of unknowns of a question about signs of values. Safety limit."""
    max_chain_length_steps: int = 400
    """The largest number of rewrite steps in a derivation. Safety limit."""
    max_completions: int = 12
    """The largest number of conditions that are added to an equation before a derivation of the equation is searched.

    Safety limit.
    """
    file_instance_count: int = 120
    """The number of random instances (sizes and attributes) at which a rule of a file is tested. Not measured."""
    settled_instance_count: int = 12
    """The number of random instances at which a rule of a file is tested if the rule was derived already. Not measured."""
    max_saturation_rounds: int = 24
    """The largest number of rounds of equality saturation by axioms. Safety limit."""
    max_saturation_terms: int = 700
    """The largest number of terms in equality saturation by axioms. Safety limit."""
    max_saturation_steps: int = 8_000
    """The largest number of applied matches in equality saturation by axioms. Safety limit."""
    saturation_growth_counts: tuple[tuple[int, int], ...] = ((0, 2), (1, 3), (2, 4), (4, 8), (8, 14), (20, 30))
    """Limits on the length, in symbols, of the new terms in equality saturation. A limit is a pair of numbers.

    A new term may exceed the replaced term by at most the first number of symbols. The new term may exceed the longest term of
    the equation to prove by at most the second number of symbols. When a pair of numbers allows no further term, the next pair
    applies. Not measured.
    """
    max_derivation_rounds: int = 12
    """The largest number of rounds of equality saturation for the derivation of a rule from other rules.

    Limits are counted in terms and matches, never in seconds, so that the answer does not depend on the machine
    (docs/derive.md).
    """
    max_derivation_terms: int = 300
    """The largest number of terms in equality saturation for the derivation of a rule from other rules."""
    max_derivation_steps: int = 5_000
    """The largest number of applied matches in equality saturation for the derivation of a rule from other rules."""
    derivation_growth_counts: tuple[tuple[int, int], ...] = ((0, 2), (2, 4), (4, 8), (8, 14))
    """The limits on length when a rule is derived from other rules. See `saturation_growth_counts`. Not measured."""
    max_requested_rounds: int = 16
    """The largest number of rounds of equality saturation for a derivation that a user requests.

    The search that decides whether a rule is removed from the core (the minimal rule set) has lower limits:
    `max_derivation_rounds`, `max_derivation_terms` and `max_derivation_steps`.
    """
    max_requested_terms: int = 800
    """The largest number of terms in equality saturation for a derivation that a user requests."""
    max_requested_steps: int = 20_000
    """The largest number of applied matches in equality saturation for a derivation that a user requests."""


@dataclass(frozen=True)
class FloatingPointPolicy:
    """Limits of the search for the floating-point flags that a rule needs.

    A flag, like a fast-math flag, states an assumption about floating-point numbers, or a change of results that is allowed.
    Both sides of the rule are compiled to scalar code for single output elements, and evaluated at many rows of inputs. A row
    of inputs is one choice of a number for each input of the code.
    """

    rounding_step_factor: int = 4
    """The number of rounding errors that each instruction of a rule's sides may contribute to the difference of the sides.

    A larger difference counts as more than rounding. Not measured.
    """
    max_rule_instances: int = 10
    """The largest number of instances (sizes and attributes) at which a rule is tested for floating-point flags.

    Not measured.
    """
    instance_draw_count: int = 48
    """The number of random instances of a rule from which each tested instance is chosen. Not measured."""
    element_count: int = 8
    """The number of tested output elements at each instance of a rule. The elements have different scalar code. Not measured.
    """
    max_element_positions: int = 80
    """The largest number of positions of an output among which the tested elements are chosen. Safety limit."""
    row_kind_shares: tuple[float, float, float] = (0.6, 0.2, 0.2)
    """The shares of input rows with only finite numbers, with infinities, and with NaN.

    An input row has a number for each input of an output element. Not measured.
    """
    later_instance_count: int = 5
    """The number of new instances at which a rule is tested in each round after the first. Not measured."""
    quiet_turn_count: int = 5
    """The number of successive rounds of tests without a new floating-point flag after which the search for flags ends.

    `scripts/check_flags` searches for missing flags (benchmarks/flags.json). Other numbers of rounds were not measured.
    """
    max_turns: int = 24
    """The largest number of rounds of tests in the search for a rule's flags.

    Each round uses new instances and inputs. Safety limit.
    """
    max_rows_times_instructions: int = 6_000_000
    """The largest product of the number of input rows and the number of instructions of an output element's scalar code.

    An input row has a number for each input of the code. Longer code is evaluated at fewer rows. Safety limit.
    """
    witness_row_count: int = 40
    """The largest number of input rows among which the simplest row is chosen as the witness for a flag.

    An input row has a number for each input of an output element. Not measured.
    """
    max_instructions: int = 60_000
    """The largest number of instructions of the scalar code of one output element. Safety limit."""
    max_exhaustive_inputs: int = 3
    """An output element is tested at all numbers of a small number format only if it has at most this number of inputs.

    Safety limit.
    """
    max_exhaustive_evaluations: int = 40_000_000
    """The largest product of the numbers of instructions and of input rows in a test at all numbers of a small number format.

    Safety limit.
    """
    row_chunk_count: int = 1 << 14
    """The number of input rows that are evaluated at once, so that the intermediate results fit into a cache.

    An input row has a number for each input of an output element. Not measured.
    """
    max_solver_instructions: int = 40
    """The largest number of instructions of an output element's scalar code for which Z3 is asked whether a flag is needed.

    Safety limit.
    """
    solver_milliseconds: int = 3000
    """Milliseconds after which Z3 gives up the question whether a rule needs a flag.

    On a slow machine, the stored basis of the answer may therefore be `sampled` instead of `smt`. Safety limit.
    """
    rows_per_element_count: int = 1000
    """The number of input rows for each output element in one round of tests.

    An input row has a number for each input of the element. Not measured.
    """
    min_rows: int = 12_000
    """The smallest number of input rows for each rule in one round of tests.

    An input row has a number for each input of an output element. Not measured.
    """
    min_element_rows: int = 64
    """The smallest number of input rows for an output element with long scalar code.

    An input row has a number for each input of the element. Not measured.
    """


@dataclass(frozen=True)
class RulePolicy:
    """Limits of the rule language: random instances of rules, and the choice of equations that count as rules."""

    max_instance_elements: int = 3000
    """The largest number of elements of a tensor in a random instance of a rule. Safety limit."""
    max_instance_tries: int = 400
    """The largest number of attempts to find a random instance of a rule. Safety limit."""
    stubborn_value_count: int = 3
    """The number of smallest allowed values to which each size and attribute of a rule's random instance is restricted.

    The restriction applies only if attempts without the restriction found no instance, and if the caller passed `stubborn`. Not
    measured.
    """
    equation_cache_count: int = 256
    """The number of rules for which the prepared equations are cached. Safety limit on memory."""
    min_neutral_operators: int = 3
    """An equation that only rearranges operators is not a rule if it has at least this number of operators.

    No search gains by an equation of this kind. Not measured.
    """
    max_plain_combinations: int = 256
    """If variables have more combinations of ranks than this number, the types of subterms are computed first. Not measured."""


@dataclass(frozen=True)
class AlgebraPolicy:
    """Limits of proofs about integer expressions."""

    extent_cache_count: int = 1 << 16
    """The number of cached products and sums of extents. An extent is a symbolic size. Safety limit on memory."""
    integer_cache_count: int = 1 << 16
    """The number of cached integer expressions, and the number of cached decisions about integer expressions.

    Safety limit on memory.
    """
    max_terms: int = 400
    """The largest number of terms of an integer expression.

    A longer expression counts as too long to be useful. Safety limit.
    """
    max_atoms: int = 300
    """The largest number of atoms (dimensions, quotients, and so on) in an integer expression at any depth. Safety limit."""
    max_inequalities: int = 240
    """The largest number of inequalities during the elimination of variables.

    With more inequalities, nothing is proved. Safety limit.
    """
    max_eliminations: int = 400
    """The largest number of attempts at an elimination for one question. Safety limit."""
    max_residue_classes: int = 128
    """The largest number of residue classes into which the sizes of one question are divided. Safety limit."""
    refutation_sample_count: int = 48
    """The number of random sizes at which a statement is tested before a proof is tried. Not measured."""


@dataclass(frozen=True)
class ProcessPolicy:
    """Limits for processes, files, signals and command-line options."""

    max_sent_bytes: int = 1 << 24
    """A model is sent to a child process only if the model has at most this number of bytes.

    A larger model is written to a file instead. Safety limit.
    """
    child_patience_seconds: float = 20.0
    """Seconds that a child process may take to load a model, or to run it once. Safety limit."""
    child_patience_seconds_per_byte: float = 60 / 2**30
    """Additional seconds for each byte of the model: a minute for a GiB. Safety limit."""
    cache_lock_seconds: float = 10.0
    """Seconds to wait for a file of measured times that another process has locked. Safety limit."""
    cache_retry_seconds: float = 120.0
    """Seconds between a failed wait for the file of measured times and the next attempt. Safety limit."""
    memory_reading_seconds: float = 0.1
    """Seconds between two readings of the process's resident memory. Not measured."""
    max_task_attempts: int = 6
    """The largest number of times that worker processes may die while they run the same task. Safety limit."""
    stored_result_days: int = 30
    """Days after which a stored result of a task is removed if no job reads it. Not measured."""
    chunk_task_count: int = 8
    """The number of tasks that are sent to a worker process at once. Not measured."""
    pool_patience_seconds: float = 5.0
    """Seconds without a finished task after which a pool is tested for dead worker processes. Safety limit."""
    garbage_threshold_counts: tuple[int, int, int] = (100_000, 20, 100)
    """The thresholds for `gc.set_threshold`, with which cyclic garbage is rarely collected.

    Terms and sizes are numerous, live long, and have no cycles. Not measured.
    """
    max_stem_bytes: int = 200
    """The largest number of bytes of a model's name in the name of its data file: file names have 255 bytes or fewer."""
    save_lock_seconds: float = 10.0
    """Seconds that a save waits for another save into the same folder. Safety limit."""
    file_chunk_bytes: int = 1 << 24
    """Bytes of a file that are read at once. Safety limit on memory."""
    grace_seconds: float = 10.0
    """Seconds after a termination signal within which the command must end its search, checks and comparisons to save a result.

    Not measured.
    """
    max_size_combinations: int = 256
    """The largest number of combinations of sizes at which one model is checked and measured. Safety limit."""
    max_time_seconds: float = 366 * 86400.0
    """The longest accepted span of time: a year. Safety limit."""
    max_integer: int = 2**63 - 1
    """The largest accepted size or seed: the largest signed 64-bit integer."""
    max_threads: int = 1024
    """The largest accepted number of threads. No machine on which models usually run has more hardware threads."""


@dataclass(frozen=True)
class ReportPolicy:
    """Limits on the length of reports."""

    max_proof_characters: int = 160
    """The largest number of characters of a proof in the report on a file of rules."""
    progress_seconds: float = 5.0
    """Seconds between two lines of progress if the output is not a terminal."""
    piped_width_characters: int = 128
    """The characters of a line if the output is not a terminal."""
    max_failure_characters: int = 160
    """The largest number of characters of an error's text in a report."""
    max_contributions: int = 3
    """Without `--verbose`, the terminal shows at most this number of rules with gains. The JSON report has all of them."""
    max_outline_characters: int = 70
    """The largest number of characters of a rule's outline (both sides without attributes) in a report."""
    max_planned_islands: int = 5
    """Without `--verbose`, the terminal shows at most this number of islands of a planned search."""
    max_time_operators: int = 3
    """The largest number of operators that a report names to show where the time of the model goes."""
    panel_refresh_seconds: float = 0.5
    """Seconds between two updates of the panel in a terminal. Short enough to show life, and too long to disturb timings."""
    event_seconds: float = 0.2
    """The smallest number of seconds between two progress reports on the candidates of one segment, so that listeners cost
    little time.
    """
    late_improvement_share: float = 0.75
    """The share of the search time after which an improvement means that more time may help. Not measured."""
    max_explained_opening_seconds: float = 1.0
    """If sessions take more than this number of seconds to open, the nodes of an accepted model are not timed."""
    max_left_out: int = 3
    """A report lists at most this number of names of unchecked inputs and sizes. The JSON report has all names."""
    max_suggestions_count: int = 3
    """The largest number of similar words that an error message suggests for a misspelled word."""
    min_suggestion_share: float = 0.7
    """The least similarity, as `difflib` computes it, of a word that is suggested for a misspelled word."""
    max_changed_operators: int = 6
    """The largest number of operators that a report lists with their node counts before and after the optimization."""
    max_reasons: int = 3
    """The largest number of reasons for unsearched windows (parts of a model) that the terminal shows.

    The JSON report has all reasons.
    """
    max_verified_rules: int = 4
    """The largest number of rules that the terminal shows for one kind of verified step."""
    max_profiled_nodes: int = 10
    """The largest number of measured nodes that the report on a device shows."""
    min_predicted_nodes: int = 3
    """The smallest number of measured nodes for which the accuracy of predictions is reported. Not measured."""
    example_instance_count: int = 12
    """The number of random instances from which the example for a rule is chosen."""
    min_hint_share: float = 0.01
    """The least share of the run time, or of the gain of a search, that counts in the hints and the tables of a report."""
    hint_seconds: float = 1.0
    """The seconds for which operators of newer opsets are searched in a model without an accepted candidate."""
    max_uncovered_operators: int = 5
    """The terminal shows at most this number of operators outside of islands. The JSON report has all operators."""
    max_fixed_elements: int = 8
    """A report shows at most this number of elements of the fixed value of an input."""
    max_refused_rules: int = 5
    """The largest number of rejected rules that an error message names."""
    max_drawn_nodes: int = 100
    """The largest number of boxes in a drawing of a part of a model.

    A larger part is shown as a list of operators. Chosen by eye.
    """
    max_single_nodes: int = 9
    """The largest number of nodes of a drawing in which each node has its own box.

    In a larger drawing, equal nodes of a row share a box.
    """
    max_drawn_detail_count: int = 4
    """The largest number of lines under the title of a box."""
    max_drawn_line_characters: int = 24
    """The largest number of characters in a line of a box."""
    max_drawn_parts: int = 12
    """A page draws at most this number of rewritten parts of a model."""
    max_shown_rules: int = 4
    """Before a click, a page shows at most this number of rules between the two sides of a rewritten part."""
    min_card_scale_share: float = 0.6
    """The smallest scale, as a share of the natural size, at which a drawing on a card can be read."""
    max_card_scale_share: float = 1.4
    """The largest scale, as a share of the natural size, of a drawing on a card."""
    min_pictured_saving_share: float = 0.5
    """The least saving of the part on a card, as a share of the largest saving of any part."""
    max_listed_outputs: int = 20
    """A report lists the errors of at most this number of outputs, the largest errors first."""
    max_page_rows: int = 14
    """The largest number of bars in a chart of a page. The last bar sums up the remaining values."""
    max_listed_axioms: int = 12
    """A page states at most this number of axioms of a proof."""
    max_page_rule_characters: int = 1200
    """The largest number of characters of a rule on a page. Few rules are longer, and nobody reads a longer rule to the end."""
    profiled_run_count: int = 100
    """The largest number of runs in which a model's operators are timed for a page."""
    profiled_seconds: float = 0.5
    """When a model's operators are timed for a page, no further run begins after this number of seconds."""


@dataclass(frozen=True)
class KernelPolicy:
    """Limits of generated kernels: the cost of recomputation, the required gain, and the sizes of loop nests."""

    max_recomputed_cost: float = 2.0
    """An intermediate result is stored if computing it at each read costs more than this number of additions per element.

    The first computation of each element is not counted. Not measured.
    """
    max_inlined_cost: float = 60.0
    """An intermediate result is stored if one element costs more than this number of additions. Not measured."""
    min_kernel_gain_share: float = 0.01
    """Kernels are used if the lower bound of their speedup over the model without kernels exceeds 1 by more than this number.

    Not measured.
    """
    max_compile_seconds: float = 120.0
    """The seconds after which the C compiler is stopped. Safety limit."""
    max_trial_time_share: float = 0.6
    """The time for trials of kernels, as a share of the time that the optimization took before these trials.

    An optimization with kernels must take less than twice as long as an optimization without kernels. Not measured.
    """
    max_group_kinds_count: int = 12
    """Each kind of group of nodes is also tried alone if there are at most this number of kinds. Safety limit."""
    max_node_iterations: tuple[int, ...] = (1 << 40, 1 << 22, 1 << 18)
    """The limits on the iterations of each loop nest of a kernel, in the order in which the limits are tried. Not measured."""
    min_shared_work: float = 100_000.0
    """Threads share a loop nest if each thread gets at least this work, in additions. Not measured."""
    max_scalar_iterations: int = 4096
    """The largest number of iterations of a loop nest without vector code. Not measured."""
    default_function_cost: float = 10.0
    """The cost of a function such as exp, in additions. Not measured."""


@dataclass(frozen=True)
class PackPolicy:
    """Limits for packed models and their serving."""

    max_relative_difference: float = 1e-4
    """The largest difference of an output of a merged model from the original's output, as a share of the output's magnitude.

    A merged model has the nodes of the originals, but ONNX Runtime may fuse the nodes differently. The search in the merged
    model has its own check. Not measured.
    """
    min_variant_gain_share: float = 0.05
    """A variant of several tenants is kept only if it saves at least this share of the time of smaller variants.

    Not measured.
    """
    measured_seconds: float = 0.3
    """The length in seconds of the measurement of one variant. Not measured."""
    min_measured_runs: int = 5
    """The smallest number of runs in the measurement of one variant. Not measured."""
    max_wait_share: float = 0.1
    """The share of a request's time limit for which the request may wait for other tenants while a worker is free.

    If the plan's time limit is less than the request's, the wait is at most this share of the plan's time limit. A request also
    waits while all workers are busy. Most of the time limit is left for this second wait. Not measured.
    """
    deadline_factor: float = 2.0
    """A run begins early enough before a deadline to take this multiple of the measured time of its variant. Not measured."""
    queued_runs_per_worker_count: int = 1
    """While all workers are busy, this number of further runs is chosen for each worker, so that no worker waits for the
    choice.

    Only runs that no further tenant could join are chosen before a worker is free. Not measured.
    """
    sampled_element_count: int = 64
    """About this number of elements of two shared inputs are compared before all elements are compared. Not measured."""


OPTIMIZATION = OptimizationPolicy()
SEARCH = SearchPolicy()
MUTANT = MutantPolicy()
COMPARISON = ComparisonPolicy()
CHECK = CheckPolicy()
COST = CostPolicy()
MODEL = ModelPolicy()
VERIFY = VerifyPolicy()
DISCOVERY = DiscoveryPolicy()
PROOF = ProofPolicy()
FLOATING_POINT = FloatingPointPolicy()
RULE = RulePolicy()
ALGEBRA = AlgebraPolicy()
PROCESS = ProcessPolicy()
REPORT = ReportPolicy()
KERNELS = KernelPolicy()
PACK = PackPolicy()
