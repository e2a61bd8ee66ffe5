"""The search for a cheaper equivalent of a model: rewriting, sweeps, windows, mutants, passes and selection.

The package may import `superopt.partial`, `superopt.cost`, `superopt.model` and the packages below them. Read `passes` first,
then `segment_search`, `backtracking`, `apply` and `gate`.

The search of a whole model:

    `passes`: the sequence of searches of a model (islands, windows, shifted windows, mutants) within the time budget.
    `segments`: the parts of a model that are searched one by one, and the gain that a search found for a part.
    `partition`: cuts a long island into windows of consecutive nodes, where few values cross.
    `segment_search`: searches all segments of one model, each distinct one once, with cached results and confirmed gains.
    `schedule`: the order of segments and the share of the budget for each.
    `canonical`: a canonical form of segments up to names of variables, so that repeated layers are searched once.
    `record`: search results as JSON for the cache.
    `replay`: whether recorded steps may be repeated for other weights.
    `selection`: which gains are used, within the limit on weight bytes; their model and rules; fallback choices of gains.
    `judging`: accepts or rejects a candidate model: numerical check, then comparison, or forecast for another device.
    `search_log`: what the search of a model tried, measured and improved, and when, for progress and the report.
    `unimproved_cache`: models that a whole search left unchanged (`superopt.runtime.result_cache` caches other results).

The search of one segment, by single steps:

    `backtracking`: best-first search under the measured cost (as in TASO).
    `lookahead`: chains of steps whose estimated cost falls only at the end.
    `apply`: one rewriting step: all matches in a state, and the replacement of terms.
    `ruleset`: an index of rules, which excludes rules that cannot match at a term, by outlines of rules and views of terms.
    `gate`: which matches a floating-point mode allows (fast-math flags, NaN and infinities, sums whose terms cancel).
    `absorption`: where one side of a rule lets NaN or infinities through and the other side does not.
    `roofline`: the estimated time of a state on a device's `Machine` speeds, without measuring.

The search of one island, by rewrites of the whole island:

    `island`: the order of the searches of an island: rerolled recurrences, sweeps, algorithms.
    `sweep`: which sweeps (one rule at all of its matches) are made, measured or estimated.
    `sweeper`: makes one sweep, and cancels moves of elements afterwards.
    `meeting`: sort keys of matches that join or cancel slices and concatenations, also below reshapes.
    `layers`: joins equal parallel branches layer by layer (horizontal fusion).
    `widen`: pads axes to extents that suit kernels.
    `vanish`: removes terms that compute nothing, such as `x + zeros`.
    `fuse`: tries the fusion rules of `superopt.rules.fusion` and recognized operators on a search result and measures them.
    `recognition`: finds subterms that compute the same function as one operator, however a model writes them.
    `algorithm`: chooses another algorithm for an operator, such as Winograd's.

Unrolled recurrences:

    `reroll`: replaces unrolled recurrences by operators such as LSTM.
    `linear`: a normal form of linear maps, in which the steps of a recurrence are recognized.
    `sequence`: joins tensors that are read one by one, such as time steps, into one tensor.

Mutants:

    `mutants`: searches and measures mutants of operators, and replaces operators by corrected mutants.
    `corrected_mutant`: the data type of a corrected mutant, its JSON form, and its insertion into a state.
"""
