"""Every budget, threshold, margin, share and limit of superopt, with its unit and the reason for its value.

Each field states what it limits and in which unit, then the reason for its value and what measured it. "Not measured."
marks a value that was chosen by judgement. "Safety limit." marks a bound on time, memory or the size of terms. Facts, such
as number formats and opsets, stay in the modules that use them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SearchPolicy:
    """The search for a cheaper equivalent of a segment, an island or a window."""

    hill_rise_share: float = 0.02
    """The relative rise of the estimate by one step above which only matches near the new terms are followed.

    A step that makes a state dearer pays only if the next steps build on it. Not measured.
    """
    min_gain_share: float = 8e-3
    """The least relative gain that counts, as a share of the time.

    Two measurements of one segment can differ by smaller amounts. No script in the repository measures that difference.
    """
    min_estimated_gain_share: float = 2e-3
    """The relative fall of the estimate that makes the end of a chain, or a sweep, worth measuring. Not measured."""
    canonical_round_count: int = 3
    """The number of rounds in which the canonical form of a segment is refined by the uses of its terms.

    A segment whose terms are still alike afterwards may be searched twice, which costs time and nothing else. Not measured.
    """
    rerolled_time_share: float = 0.5
    """The share of an island's time at or below which an island with rerolled recurrences is not swept unrolled as well.

    Not measured.
    """
    min_layer_siblings: int = 4
    """The least number of siblings with one operator and shape that are worth joining. Not measured."""
    max_meeting_operators: int = 6
    """The most operators of a rule's left side for which the parts that meet are computed. Not measured."""
    max_layer_nodes: int = 512
    """The most nodes of a layer whose repetitions are looked for. Safety limit."""
    min_recurrence_steps: int = 2
    """The fewest steps of an unrolled recurrence that is replaced by an operator. One step is not a recurrence."""
    max_outline_depth: int = 2
    """The number of levels below a term that decide which rules are candidates at the term.

    Deeper views exclude more rules and occur less often. Not measured.
    """
    max_matches_per_roots: int = 256
    """The most matches of a pattern with several outputs at the same roots.

    Safety limit: sums of many terms have very many such matches.
    """
    layer_time_share: float = 0.75
    """The share of the time of a sweep that joining layers may take.

    Partly joined layers gain nothing, so joining gets the most. The share was 0.4 until a mixture of experts needed four
    seconds for it; no script measured more.
    """
    sweep_time_share: float = 0.7
    """The share of the time left after joining layers that all other sweeps may take.

    Every other sweep is useful by itself, so the rest is left to the windows. Not measured.
    """
    max_measured_sweeps: int = 3
    """The number of states with a lower estimate that are measured, the cheapest first. Not measured."""
    max_sweep_rise_share: float = 0.25
    """The relative rise of the estimate by one sweep above which further sweeps of the rule are not expected to make up for it.

    Not measured.
    """
    equal_estimate_share: float = 1e-3
    """The relative difference of estimates below which two states count as alike. Not measured."""
    widened_multiple_count: int = 16
    """The number of which widened extents are multiples: the single-precision numbers in a cache line, and in the widest vector
    register.
    """
    widening_divisor: int = 3
    """The divisor of an extent that gives the most by which the extent may grow: a third. Not measured."""
    max_widening_depth: int = 6
    """The most terms through which padding moves up to weights. Not measured."""
    max_widening_tries: int = 100
    """The most attempts to move the padding of one term up.

    Safety limit: a sum of many terms can be split in too many ways to try them all.
    """
    absorption_instance_count: int = 4
    """The number of random instances evaluated for each equation of a rule to find the elements that the rule absorbs.

    Not measured.
    """
    max_absorption_equations: int = 4
    """The most equations of a rule that are evaluated, evenly spread over its choices of ranks. Not measured."""
    absorption_draw_count: int = 4
    """The number of sets of poisoned positions for each variable and each poison. Not measured."""
    max_state_cost_factor: float = 2.5
    """The factor of the best cost within which states are kept, so that a step that makes a state dearer can be built upon.

    Folding an adapter into its matrix multiplies the work first. Not measured.
    """
    max_expansions: int = 160
    """The most states of one segment that are measured. Not measured."""
    patience_expansion_count: int = 30
    """The number of expansions without improvement after which the search of a segment stops. Not measured."""
    lookahead_expansion_count: int = 10
    """The number of expansions without improvement after which chains of steps from the best state are followed.

    Not measured.
    """
    max_queued_states: int = 4000
    """The most states in the queue. Safety limit."""
    max_chain_steps: int = 3
    """The most steps in a chain that is followed by estimate alone. Folding a low-rank adapter takes three."""
    max_chain_beam: int = 96
    """The most chains that are followed from one depth to the next. Not measured."""
    max_chains_per_rule: int = 3
    """The most of these chains that end with the same rule. Not measured."""
    max_sweeps_in_row: int = 5
    """The most sweeps in a row that are followed by estimate alone. Not measured."""
    max_sweep_beam: int = 5
    """The most states that are followed from one sweep to the next. Not measured."""
    max_sweep_repetitions: int = 8
    """The most repetitions of one rule in a chain of sweeps. Not measured."""
    min_window_nodes: int = 8
    """The fewest nodes of a window, except for the last window of a layer. Not measured."""
    max_window_nodes: int = 32
    """The most nodes of a window. Not measured."""


@dataclass(frozen=True)
class MutantPolicy:
    """Mutants: their enumeration, judgement, correction and generalisation."""

    min_program_time_share: float = 0.01
    """The share of an island's estimated time below which an operator is not examined. Not measured."""
    max_mutants_per_operator: int = 24
    """The most mutants of one operator that are measured, lowest estimates first.

    `scripts/search_mutants` counts them; the effect of the number was not measured.
    """
    max_mutant_cost_factor: float = 3.0
    """The most that a mutant to be measured may cost by estimate, as a multiple of the operator's estimate. Not measured."""
    max_corrections: int = 3
    """The most corrections of one mutant that are measured. Not measured."""
    quick_timing_error: float = 0.05
    """The relative error of a quick measurement. Not measured."""
    min_mutant_gain_share: float = 0.03
    """The share of a program's time that a mutant must save, by the quick and by the full measurement, for its weights to be
    solved for.

    Not measured.
    """
    enumeration_time_share: float = 2 / 3
    """The share of the time of the pass after which no mutants are enumerated.

    Applying rules to programs is more likely to gain. Not measured.
    """
    believed_speedup_factor: float = 1.25
    """The speedup over the program from which a mutant is believed although the two were not timed in turns.

    Noise had chosen slower mutants before. Not measured.
    """
    max_substituted_mutants: int = 8
    """The most corrected mutants of one operator that are tried in its place, those fastest by themselves first.

    Not measured.
    """
    sampled_position_count: int = 64
    """The number of positions at which a changed term is compared with the program. Not measured."""
    min_equal_share: float = 0.3
    """The share of drawn positions at which a changed term must be right to be a mutant. Not measured."""
    max_weight_parts: int = 64
    """The most parts that a weight is joined from. Safety limit."""
    max_weight_denominator: int = 1 << 20
    """The largest denominator of a number in a weight that becomes a fraction. Safety limit."""
    max_interleaved_count: int = 8
    """The largest step of boxes along an axis that are interleaved. Not measured."""
    max_assembly_windows: int = 1 << 14
    """The most windows of boxes that are examined to concatenate boxes. Safety limit."""
    row_block_counts: tuple[int, int, int] = (2, 4, 8)
    """The numbers of blocks of rows that a matrix is cut into. Not measured."""
    block_row_count: int = 4
    """The number of rows of a block that are inspected: its first, its last, and some between. Not measured."""
    max_conditions: int = 8
    """The most conditions in one conjunction. Not measured."""
    max_factors: int = 64
    """The most parts of a mutant for each of which a constant factor is sought. Safety limit."""
    discovery_size_count: int = 24
    """The number of sizes at which mutants are looked for. Not measured."""
    support_divisor: int = 3
    """The divisor of these sizes that gives the fewest at which a form must be met: a third. Not measured."""
    trial_size_count: int = 12
    """The number of sizes of each kind at which a rule is tried. Not measured."""
    border_draw_count: int = 6
    """The number of draws at which a condition holds, or exactly one part of it fails, in each trial of a condition.

    There are as many draws for any attributes, for attributes that are neither 0 nor 1 (which are trivial for divisibility),
    and for the smallest sizes, at which parts are empty. Not measured.
    """
    neighboured_size_count: int = 2
    """The number of sizes per trial whose neighbours, with one number changed, are tried as well. Not measured."""
    max_trial_rounds: int = 5
    """The most rounds of trials. Every round but the first may restate the condition. Not measured."""
    max_residues: int = 1 << 23
    """The most residues in an array. With more, fewer positions are computed at a time. Safety limit."""
    max_plain_products: int = 1 << 12
    """The most products for which a matrix product gains nothing. Not measured."""
    max_fitted_value: int = 1 << 40
    """The largest value of an expression that is fitted to a number. Safety limit."""
    max_fits: int = 3
    """The most expressions tried for one number. Not measured."""
    max_window_positions: int = 32
    """The most positions that a window spans along an axis. Not measured."""
    sparse_weight_factor: int = 4
    """The ratio of a weight's elements to the elements read above which the read elements are numbered, and no weight is
    filled.

    Not measured.
    """
    max_weight_elements: int = 1 << 26
    """The most elements of a weight. Safety limit."""
    max_label_choices: int = 256
    """The most choices of labels for which a form is read. Safety limit."""
    max_terms_per_form: int = 2
    """The most terms tried for one form. Not measured."""
    max_fit_operations: int = 2
    """The most operations of an expression that is fitted to a number. Not measured."""
    max_index_choices: int = 1 << 24
    """The most combinations of summation indices for which an index or a condition is followed. Safety limit."""
    max_examined_pieces: int = 64
    """The most pieces of a box that are examined before the box is cut into them. Not measured."""
    undecided_piece_count: int = 4
    """The assumed number of pieces that an undecided piece is cut into. Not measured."""
    max_compared_positions: int = 1 << 20
    """The most positions of one box that are compared one by one. Safety limit."""
    max_folded_positions: int = 16
    """The most positions of an axis that is folded as a whole. Not measured."""
    padding_multiple_counts: tuple[int, int, int] = (2, 8, 16)
    """The numbers to whose multiples an axis may be padded, which suit pairs of rows and vector units. Not measured."""
    max_arithmetic_factor: float = 4.5
    """The most arithmetic of a mutant, as a multiple of the program's.

    Unrolled 2x2 windows take 4 and some more at borders. Not measured.
    """
    max_layout_steps: int = 2
    """The most steps of one layout, each of which applies to data and output. Not measured."""
    trial_product_count: int = 128
    """The number of products per position with which layouts are tried first. Not measured."""
    max_products: int = 1024
    """The most products per position with which operators are recognized.

    All products are used when a weight is solved for. Not measured.
    """
    max_log2_oracle_queries: int = 26
    """The base-2 logarithm of the expected number of oracle queries, which determines the number of fields. Not measured."""
    max_oracle_operations: int = 1 << 34
    """The most operations of both programs for which whole tensors are evaluated. Safety limit."""
    max_joined_operators: int = 16
    """The most operators that are treated as one. Not measured."""
    copy_counts: tuple[int, int, int] = (2, 4, 8)
    """The numbers of copies of its data that an operator is given, and of parts that an operator is split into.

    Not measured.
    """
    max_spare_position_factor: int = 2
    """The most positions computed per requested position, so that the positions form a product of axes. Not measured."""
    max_table_elements: int = 1 << 22
    """The most elements for which a table of all of them is made. Safety limit."""
    max_table_factor: int = 64
    """The largest ratio of a table's size to the requested positions.

    A larger table takes longer to fill than the positions take to sort. Not measured.
    """
    max_regions: int = 4096
    """The most regions of a program that is judged. Safety limit."""
    max_changed_attributes: int = 4
    """The most numbers among an operator's attributes that may differ for a part along one axis. Not measured."""
    max_attribute_choices: int = 4000
    """The most choices of attributes that are tried for a part along one axis. Safety limit."""
    max_tried_attribute: int = 8
    """The largest attribute that is tried without a reason. Not measured."""
    max_enclosing_runs: int = 6
    """The most wider runs of positions from which a part is cut. Not measured."""
    part_sample_count: int = 24
    """The number of positions at which a part is compared with the program. Not measured."""
    max_size_tries: int = 20_000
    """The most random sizes that are tried until a program is well typed. Safety limit."""
    probe_position_count: int = 48
    """The number of positions drawn to find some where the most is read. Not measured."""
    kept_position_count: int = 10
    """The number of these positions that are kept. Not measured."""
    max_inserted_zeros: int = 4
    """The most zeros that a correction inserts between neighbours. Not measured."""
    max_spacing_ways: int = 16
    """The most ways to rebuild a mutant on padded inputs. Not measured."""
    max_layout_depth: int = 4
    """The most layouts in a row from which mutants are made. Not measured."""
    log2_error: float = -60.0
    """The base-2 logarithm of the largest error probability of a judgement. docs/partial.md derives the bound."""


@dataclass(frozen=True)
class ComparisonPolicy:
    """The end-to-end comparison of a candidate with the original."""

    min_gain_margin_share: float = 0.02
    """The share by which a candidate must be faster than the original to be accepted, beside being faster than the noise.
    docs/results.md states by how much two copies of one model differ; the margin itself was not measured.
    """
    max_loss_share: float = 0.01
    """The share by which a candidate may measure slower at one of several sizings and still count as no slower.

    Not measured.
    """
    max_resident_bytes: int = 1 << 30
    """The most bytes of all models of a comparison that are loaded at the same time.

    Beyond it, models are compared in alternating blocks. Safety limit: `scripts/check_memory` compares peak memory with the
    documented bound.
    """
    max_loads: int = 6
    """The most times that the models of a comparison are loaded, unless loading is quick.

    A session keeps its luck with the placement of its memory. Not measured.
    """
    min_loads: int = 2
    """The fewest times that the models of a comparison are loaded. Not measured."""
    loading_time_share: float = 0.2
    """The share of the time of a comparison that loading may take if models are loaded more often. Not measured."""
    max_loading_seconds: float = 10.0
    """The seconds above which models are loaded once.

    The libraries of a GPU may compile kernels for each session. Not measured.
    """
    hurried_loading_seconds: float = 3.0
    """The seconds after which no model is loaded again if the search was asked to stop. Not measured."""
    visit_seconds: float = 0.008
    """The seconds of a visit, in which one model runs several times and the fastest run counts. Not measured."""
    long_run_seconds: float = 0.05
    """The seconds of a run above which a visit is a single run, because the state of the caches matters little to a long run.

    Not measured.
    """
    max_rounds: int = 400
    """The most rounds of one load. Safety limit."""
    min_block_rounds: int = 4
    """The fewest rounds if one model is loaded at a time. Not measured."""
    min_block_seconds: float = 0.5
    """The fewest seconds that a model runs each time it is loaded, if one model is loaded at a time. Not measured."""
    reported_interval_share: float = 0.03
    """The relative width of the interval of a ratio at which the ratio is known well enough to report. Not measured."""
    sure_margin_share: float = 0.01
    """The distance of a ratio from the threshold at which a verdict counts as sure. Not measured."""
    obvious_margin_share: float = 0.1
    """The distance of all of a few rounds from the threshold at which a verdict is obvious. Not measured."""
    min_obvious_rounds: int = 3
    """The fewest rounds for an obvious verdict. Not measured."""
    min_rounds_per_load: int = 3
    """The fewest rounds of each load. Not measured."""
    min_long_rounds_per_load: int = 4
    """The fewest rounds of each load if every visit is a single run. Not measured."""
    min_report_rounds: int = 24
    """The number of rounds of one load from which a ratio may be known well enough to report. Not measured."""
    max_report_loads: int = 24
    """The most times that models that load fast are loaded until a ratio is known well enough to report. Not measured."""
    min_verdict_rounds: int = 12
    """The number of rounds of one load from which it may be decided whether the candidate is faster. Not measured."""
    comparison_seconds: float = 10.0
    """The seconds of a comparison if the caller gives none. Not measured."""
    tuning_seconds: float = 10.0
    """The seconds in which session settings are tuned if the caller gives none. Not measured."""


@dataclass(frozen=True)
class CheckPolicy:
    """The numerical check of a candidate against the original."""

    max_error_factor: float = 4.0
    """The most by which the candidate's largest error may exceed the original's, as a factor (`--tolerance`).

    Reordered sums err by small factors more or less. The limits of algorithms in docs/exactness.md refer to it; the factor
    itself was not measured.
    """
    check_seconds: float = 5.0
    """The seconds after which a numerical check starts no further input. Not measured."""
    hurried_check_seconds: float = 2.0
    """The seconds after which a numerical check starts no further input in a search that was asked to stop. Not measured."""
    min_inputs: int = 2
    """The fewest ordinary inputs, and the fewest adversarial inputs, that are run, however long they take. Not measured."""
    noise_sample_counts: tuple[int, ...] = (2, 4, 6, 12)
    """The number of samples of the original's noise on an input where the candidate seems to stray: at the first look, and at
    each further look while the candidate still seems to stray.

    A sample is a float64 run that rounds at random or, without a float64 run, a run on a slightly different input. The first
    look is short because each sample of a model with 80 million weights takes long. Not measured.
    """
    adversarial_look_seconds: float = 5.0
    """The seconds after which no further adversarial input gets a closer look. Not measured."""
    ordinary_look_seconds: float = 20.0
    """The seconds after which no further ordinary input gets a closer look.

    A candidate that then seems to stray is refused. Not measured.
    """
    sizing_seconds: float = 2.5
    """The seconds of the thread's own time after which no further size of dynamic dimensions starts.

    On a busy machine, four times as many may pass. Not measured.
    """
    max_result_bytes: int = 1 << 28
    """The most bytes of inputs and results of one check that are held in memory. Safety limit."""
    max_sized_input_bytes: int = 1 << 26
    """The most bytes of inputs of a run at another size, counting 8 bytes for an element. Safety limit."""
    max_sized_run_seconds: float = 0.5
    """The longest expected seconds of a run at another size. Not measured."""
    max_adversarial_run_seconds: float = 0.02
    """The seconds of a run at another size below which adversarial values are run there too. Not measured."""
    max_sizes_tried: int = 200
    """The most sizes that are tried.

    If dimensions depend on each other, the original runs at few of these sizes. Not measured.
    """
    small_sizes: tuple[int, ...] = (1, 2, 3, 4, 0)
    """The small sizes at which dynamic dimensions are checked, 0 among them."""
    mixed_sizes: tuple[int, ...] = (7, 8, 6, 33, 9, 32, 16, 5, 65, 12, 31, 64, 15, 48, 10, 17, 100)
    """The sizes of mixed residues at which dynamic dimensions are checked: even and odd numbers, and numbers beside powers of
    2.

    The check passed wrong models before it drew them (tests/wrong_results).
    """
    large_size: int = 1000
    """The large size at which single dynamic dimensions are checked. Not measured."""
    max_constants: int = 16
    """The most constants of a model that sizes are drawn around, the most significant first. Not measured."""
    max_size: int = 1 << 24
    """The largest constant of a model that counts as a size. Safety limit."""
    min_laddered_size: int = 512
    """The size above which a smaller size is run first, whose time predicts the time of the larger size. Not measured."""
    ladder_factor: int = 8
    """The factor between the larger size and the smaller size that is run first. Not measured."""
    paired_size_increases: tuple[int, int, int] = (1, 2, 5)
    """The sizes by which two dimensions grow together, in case one is a sum over the other. Not measured."""
    max_constant_elements: int = 16
    """The most elements of a constant tensor whose elements count as constants that sizes are drawn around. Not measured."""
    feasible_sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 8, 16, 32, 64, 7, 128, 224, 12, 256, 512, 1024)
    """The sizes that are tried in turn if a model does not run at the usual sizes: small sizes first, then sizes that exporters
    use.

    Not measured.
    """
    feasible_seconds: float = 30.0
    """The seconds after which no further inputs are tried. Not measured."""
    max_input_elements: int = 1 << 28
    """The most elements of all inputs together for which values are made. Safety limit."""
    max_inferred_constant_bytes: int = 1 << 12
    """The size in bytes from which shape inference does not see a tensor's elements. Not measured."""
    masked_share: float = 0.25
    """The share of elements that an adversarial input masks. Not measured."""
    max_inputs_changed_alone: int = 4
    """The most floating-point inputs that are changed one at a time by a mask, an infinity or NaN. Not measured."""
    min_noise_ulp_count: int = 16
    """The least noise assumed of an element, in units in the last place of the element. Not measured."""
    min_error_ulp_count: int = 4
    """The least error assumed of the original, in units in the last place of the output's largest magnitude. Not measured."""
    direct_ulp_count: int = 1024
    """The units in the last place by which the candidate may differ from the original if no float64 run is possible.

    Not measured.
    """
    min_wrong_share: float = 1e-3
    """The least share of elements assumed to be off in an output of the original that is not floating-point. Not measured."""
    quiet_share: float = 0.1
    """The share of a row's elements whose noise counts as quiet: the lowest tenth. Not measured."""
    largest_error_sigmas: float = 5.0
    """The largest of many errors, in standard deviations. A normal error exceeds five about once in two million draws."""
    min_row_elements: int = 16
    """The fewest elements of a row from which its noise is estimated. Not measured."""
    max_row_elements: int = 256
    """The most elements of a row from which its noise is estimated. Not measured."""
    rare_error_factor: float = 4.0
    """The extra factor by which a rare element may be off, because all its noise samples may be small by chance.

    In a softmax that passed in another order of its sums, one element of 4,800 was off by 1.0 times what its eight samples
    explained (one observation, no script).
    """
    rare_share: float = 1e-3
    """The share of elements that counts as rare. See `rare_error_factor`."""
    deliberate_rounding_share: float = 0.01
    """The share of elements that are far off in an original that may round on purpose. Not measured."""
    deliberate_rounding_factor: float = 16.0
    """The factor between errors from which a candidate with the smaller error does not round like the original.

    Not measured.
    """


@dataclass(frozen=True)
class CostPolicy:
    """The measured cost model, the timing of nodes, and predictions for other devices."""

    split_launch_share: float = 0.8
    """The share of a launch that is saved for each further part of one Split or one Concat.

    Chosen with the fit of `cpu_launch_seconds`; not measured by itself.
    """
    reshape_launch_share: float = 0.25
    """The share of a launch that a reshape takes, which moves no elements.

    Chosen with the fit of `cpu_launch_seconds`; not measured by itself.
    """
    cpu_operations_per_second: float = 2.5e11
    """The operations per second of one AVX-512 core in the estimate that orders candidates.

    Fitted, with `cpu_bytes_per_second` and `cpu_launch_seconds`, to the measured times of 262 segments of seven models, half of
    them within 10 %; the script of the fit is not kept.
    """
    cpu_bytes_per_second: float = 1e11
    """The bytes per second that one AVX-512 core moves. See `cpu_operations_per_second`."""
    cpu_launch_seconds: float = 2e-6
    """The seconds that ONNX Runtime takes to start an operator on a CPU. See `cpu_operations_per_second`."""
    gpu_operations_per_second: float = 1e13
    """The operations per second of a GPU at batch 1, which is far from its peak. Not measured."""
    gpu_bytes_per_second: float = 1e12
    """The bytes per second that a GPU moves at batch 1. Not measured."""
    gpu_launch_seconds: float = 5e-6
    """The seconds that a kernel launch on a GPU takes. Not measured."""
    convolution_lane_count: int = 16
    """The number of channels of a convolution's group that a kernel computes at once: the single-precision lanes of AVX-512."""
    node_timing_seconds: float = 0.005
    """The seconds for which a node is timed. Not measured."""
    max_described_elements: int = 64
    """The most elements of an integer constant that are part of a node's signature, because the time of a node may depend on
    them.

    Not measured.
    """
    timing_batch_seconds: float = 2e-4
    """The seconds of one batch of runs of a node, of which the mean counts. Not measured."""
    min_cold_weight_bytes: int = 256 << 10
    """The bytes of weights from which a node is also timed with weights that are in no cache. Not measured."""
    max_cold_copies: int = 32
    """The most copies of a node by which its weights are kept out of the caches. Safety limit."""
    min_memory_bytes_per_second: float = 5e9
    """The least memory bandwidth assumed, in bytes per second. Not measured."""
    min_fetch_time_share: float = 0.05
    """The share of a kernel's time below which it does not matter where its weights come from. Not measured."""
    max_overlapped_run_seconds: float = 1e-3
    """The seconds of a GPU run below which a node's time is the time that a second node adds, because the next kernel is
    launched while one runs. docs/profiles.md states the error of such times; the threshold was not measured.
    """
    min_mapped_constant_bytes: int = 64 << 20
    """The size in bytes from which a constant without values is not filled at random, but maps a file of zeros.

    Not measured.
    """
    pace_step_count: int = 200_000
    """The number of steps of the Python loop whose time shows the pace of a machine."""
    pace_reference_seconds: float = 0.028
    """The seconds that this loop takes where budgets were set, on an AMD EPYC with AVX-512. Measured once; no script."""
    max_pace_factor: float = 3.0
    """The most by which a search is prolonged on a slower machine. dlrm_b1 gained 1.24 in place of 1.89 when its sweeps did not
    come to their end; the bound itself was not measured.
    """
    forecast_sigmas: float = 2.0
    """The number of standard deviations by which prices are assumed to err against a gain before the gain is believed.
    docs/profiles.md compares predicted with measured gains (`scripts/check_predictions`).
    """
    short_node_seconds: float = 1e-5
    """The average seconds of a model's nodes below which its segments are timed as wholes, because the time between nodes
    matters as much as the nodes.

    Not measured.
    """
    segment_timing_seconds: float = 0.02
    """The seconds for which a segment is timed as a whole. Not measured."""
    segment_turn_count: int = 12
    """The number of turns in which a segment and a reference are timed beside each other. Not measured."""
    fastest_turn_factor: int = 5
    """The factor for the turns of a segment that seems the fastest, because the fastest of many short timings is the luckiest.

    Not measured.
    """
    segment_comparison_seconds: float = 0.6
    """The seconds for which two segments are compared as wholes.

    Half as many are spent if sums of kernel times are known as well. Not measured.
    """
    segment_loads_count: int = 2
    """The number of times that two segments are loaded for the comparison.

    A segment with a long run is loaded once. Not measured.
    """
    min_summed_gain_error: float = 0.03
    """The least relative error of a gain predicted from sums of kernel times. Not measured."""
    summed_gain_error_share: float = 0.5
    """The share of a gain predicted from sums of kernel times that counts as its relative error, if that is more than
    `min_summed_gain_error`.

    Not measured.
    """
    min_ratio_error: float = 1e-7
    """The least relative error of a ratio of two measured segments, so that nothing divides by 0. Not measured."""
    min_node_seconds: float = 1e-7
    """The least seconds of a node, so that no ratio divides by 0. Not measured."""
    overhead_chain_count: int = 32
    """The number of nodes in the chain by which the time of the smallest node is measured. Not measured."""
    known_time_error: float = 0.1
    """The relative error of a known time.

    Nodes timed alone sum to 0.89 to 0.99 of a model's end-to-end time (docs/profiles.md).
    """
    unknown_operator_error: float = math.log(2)
    """The least assumed error of the roofline for an unknown operator, as the logarithm of a factor.

    The roofline is right within a factor of 2.15 for nine tenths of the nodes (docs/profiles.md).
    """
    min_known_operators: int = 5
    """The number of known operators from which on they decide the roofline's error for another operator. Not measured."""
    roofline_weight_share: float = 0.1
    """The weight of the uncorrected roofline against similar nodes. A node equal in all numbers has weight 1. Not measured."""
    min_valueless_weight_bytes: int = 1024
    """The size in bytes from which a weight has no values in a timed segment, because ONNX Runtime's optimizations do not read
    the values.

    Not measured.
    """
    max_literal_elements: int = 1 << 16
    """The most elements of a known constant that has its values in a timed segment: ONNX Runtime removes a node that adds
    zeros, for example.

    Not measured.
    """

    @property
    def cpu_operations_per_launch(self) -> float:
        """The operations of one CPU core in the time that it takes to start an operator."""
        return self.cpu_launch_seconds * self.cpu_operations_per_second

    @property
    def cpu_operations_per_byte(self) -> float:
        """The operations of one CPU core in the time that it takes to move a byte."""
        return self.cpu_operations_per_second / self.cpu_bytes_per_second


@dataclass(frozen=True)
class ModelPolicy:
    """Reading, analysing and writing models."""

    max_converted_weight_bytes: int = 2**12
    """The largest weight in bytes that the opset converter gets to see: it may be a shape, or axes.

    Larger weights need not be copied. Not measured.
    """
    first_image_size: int = 64
    """The first size that is tried for the side of an image. Not measured."""
    first_size: int = 8
    """The first size that is tried for any other dynamic dimension. Not measured."""
    tested_sizing_count: int = 3
    """The number of sizings at which statements about all sizes are also tested. Not measured."""
    default_batch_size: int = 1
    """The size of a first dimension for measurements, unless the caller gives one."""
    default_length_size: int = 128
    """The size of any other dimension for measurements, unless the caller gives one."""
    default_image_size: int = 224
    """The side of an image for measurements, unless the caller gives one."""
    beyond_all_sizes: int = 55_440 * 1000
    """A size beyond the bounds that occur in models, with many divisors. Not measured."""
    max_export_passes: int = 64
    """The most passes of an exported rule over a model. Safety limit."""
    min_external_tensor_bytes: int = 1 << 16
    """The size in bytes from which a tensor goes into a file.

    Smaller tensors may be shapes, and stay in the ModelProto. Not measured.
    """
    max_cancelling_summands: int = 64
    """The most summands of a sum that are searched for two that cancel. Safety limit."""
    max_folded_elements: int = 1 << 18
    """The most elements in the weights of a term that is evaluated if the interpretation shows too little about the term.

    Safety limit.
    """
    pair_trial_count: int = 120
    """The number of random inputs on which an exported pair of functions is tried. Not measured."""
    min_pair_trials: int = 8
    """The fewest of these inputs on which the pair must run. Not measured."""
    max_pair_rank: int = 5
    """The largest rank of an input on which the pair is tried. Not measured."""
    pair_tolerance_share: float = 1e-4
    """The relative difference of results, in float32, up to which the pair agrees. Not measured."""
    max_chain_operands: int = 256
    """The most operands of a sum or product that come from a chain of nodes.

    Safety limit: a longer chain would have terms of quadratic size.
    """
    max_shared_elements: int = 64
    """The most elements of an integer constant that nodes share if it is the same. Not measured."""
    max_message_bytes: int = 32 << 20
    """The most bytes of tensors for which ONNX Runtime gets a ModelProto, of which several copies are made.

    Lowering it from 128 MiB to 32 MiB lowered the peak memory of a YOLO-like model from 1,695 to 835 MiB.
    """
    max_stored_elements: int = 1 << 16
    """The most elements of integers and booleans that are kept, as many as the mask of a long sequence has. Safety limit."""
    max_inferred_elements: int = 256
    """The most elements of a tensor whose values shape inference may read. Safety limit."""
    max_inference_rounds: int = 8
    """The most rounds of shape inference and folding. Safety limit."""
    max_tracked_elements: int = 64
    """The most elements of a tensor whose elements are tracked as expressions. Safety limit."""
    max_tracked_floats: int = 4
    """The most elements of a floating-point tensor that is tracked: scales multiply sizes, but masks are not sizes.

    Not measured.
    """
    max_assumption_rounds: int = 3
    """The most walks over a model while new assumptions are learnt. Safety limit."""
    min_deferred_weight_bytes: int = 2**20
    """The size in bytes from which a weight is computed only when it is read, which may be never. Not measured."""
    max_cached_weight_bytes: int = 2**28
    """The size in bytes of all such weights that are cached. Further weights are computed at each read. Safety limit."""
    max_ordinary_magnitude: float = 1e4
    """The largest magnitude of an ordinary value: at it, float32 keeps three decimals. Reports state it as an assumption."""
    assumed_summand_count: int = 1 << 20
    """The number of summands assumed for a sum over a dynamic dimension. Not measured."""
    body_run_seconds: float = 5.0
    """The seconds after which no further input shows how often the bodies of a model run. Not measured."""


@dataclass(frozen=True)
class ProcessPolicy:
    """Processes, files and signals."""

    child_patience_seconds: float = 20.0
    """The seconds that a model may take to load, or to run once, in a child process. Safety limit."""
    child_patience_seconds_per_byte: float = 60 / 2**30
    """The further seconds for each byte of the model: a minute for a GiB. Safety limit."""
    cache_lock_seconds: float = 10.0
    """The seconds to wait for a time cache that another process has locked. Safety limit."""
    cache_retry_seconds: float = 120.0
    """The seconds before the next attempt after a wait for the time cache in vain. Safety limit."""


SEARCH = SearchPolicy()
MUTANT = MutantPolicy()
COMPARISON = ComparisonPolicy()
CHECK = CheckPolicy()
COST = CostPolicy()
MODEL = ModelPolicy()
PROCESS = ProcessPolicy()
