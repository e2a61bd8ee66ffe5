"""The search for a cheaper equivalent of a model: rewriting, sweeps, windows, mutants, passes and selection.

The package may import `superopt.partial`, `superopt.cost`, `superopt.model` and the packages below them. Read `passes` first,
then `segment_search`, `backtracking`, `apply` and `gate`.

The search of a whole model:

    `passes`: searches a model several times (islands, windows, shifted windows, mutants) within the time budget.
    `segments`: the parts of a model that are searched one by one, and the gain that a search found for a part.
    `partition`: cuts a long island into windows of consecutive nodes, so that few values cross each cut.
    `segment_search`: searches each distinct segment of a model once, caches the results, and confirms the gains.
    `schedule`: the order of segments, and the share of the budget for each segment.
    `canonical`: a canonical form for segments that differ only in names, so that repeated layers are searched once.
    `record`: search results as JSON for the cache.
    `replay`: decides whether recorded steps are permitted for different weights.
    `selection`: chooses the gains to use within the limit on weight bytes, and applies these gains to the model.
    `judging`: accepts or rejects a candidate model after a comparison (or a forecast) and a numerical check.
    `search_log`: counts of tried and measured states, and the times of improvements, for progress and the report.
    `unimproved_cache`: models that a complete search left unchanged (`superopt.runtime.result_cache` caches other results).

The search of one segment, by single steps:

    `backtracking`: best-first search under the measured cost (as in TASO).
    `lookahead`: chains of steps that lower the estimated cost only at the end.
    `apply`: one rewriting step: finds all matches in a state, and replaces terms.
    `ruleset`: an index that quickly gives the rules that may match at a term.
    `gate`: decides which matches a floating-point mode allows (fast-math flags, NaN and infinities, cancelling sums).
    `absorption`: finds which NaN and infinite inputs reach the result of only one side of a rule.
    `roofline`: estimates the time of a state from the speeds of a device (`Machine`), without measuring.

The search of one island, by rewrites of the whole island:

    `island`: searches an island: replaces unrolled recurrences, makes sweeps, and chooses algorithms.
    `sweep`: decides which sweeps to make and to measure. A sweep applies one rule at all of its matches.
    `sweeper`: makes one sweep, and then removes data-movement operators that cancel.
    `meeting`: sort keys for matches that join or cancel slices and concatenations.
    `layers`: joins equal parallel branches layer by layer (horizontal fusion).
    `widen`: pads axes to extents that suit kernels.
    `vanish`: removes terms that compute nothing, such as `x + zeros`.
    `fuse`: tries fusion rules and recognized operators on a search result, and measures the new states.
    `rearrangement`: finds a single operator for a subterm that only moves, repeats or pools the elements of one tensor.
    `recombination`: finds a single operator, such as a rotary embedding, for a subterm that combines elements of one tensor at
        several positions with elements of other tensors.
    `recognition`: finds a single operator that computes the function of a subterm. The subterm can have any form.
    `algorithm`: chooses a faster algorithm for an operator, such as Winograd's algorithm for a convolution.

Unrolled recurrences:

    `reroll`: replaces unrolled recurrences by operators such as LSTM.
    `linear`: rewrites linear maps to a normal form, so that the steps of a recurrence can be recognized.
    `sequence`: joins tensors that are read one by one, such as time steps, into one tensor.

Mutants:

    `mutants`: searches and measures mutants of operators, and replaces operators by corrected mutants.
    `corrected_mutant`: the data type of a corrected mutant, its JSON form, and its insertion into a state.
"""
