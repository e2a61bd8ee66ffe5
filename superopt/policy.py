"""Every budget, threshold, margin, share and limit of superopt, with its unit and the reason for its value.

Each field states what it limits and in which unit, then the reason for its value and what measured it. "Not measured."
marks a value that was chosen by judgement. "Safety limit." marks a bound on time, memory or the size of terms. Facts, such
as number formats and opsets, stay in the modules that use them.
"""

from __future__ import annotations

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


SEARCH = SearchPolicy()
MUTANT = MutantPolicy()
COST = CostPolicy()
