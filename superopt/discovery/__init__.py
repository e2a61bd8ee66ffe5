"""Rule discovery: enumerate terms, group them by value, generalise and prove equalities, and remove redundant rules.

A universe is a vocabulary of variables, constants and operators. Terms are enumerated from each universe.

The package may import `superopt.proof`, `superopt.partial` and all packages in lower layers. Read `job` first, then `explore`,
`enumerate`, `generalise` and `prune`.

The job and its tasks:

    `job`: the whole run. The module creates the tasks of all universes, with the dependencies and cache keys of the tasks, and
        combines the results.
    `explore`: the functions that run as tasks. The functions explore a universe or an operator, examine candidates, and prove
        rules from definitions and mutants.
    `universe_order`: for each universe, the earlier universes whose results the universe needs.

Enumeration:

    `universe`: the data type of a vocabulary of variables, constants and operator templates.
    `universes/`: the vocabularies themselves.
    `enumerate`: bottom-up enumeration of terms by size. Terms of equal value give candidates (conjectured equalities).
    `operands`: the combinations of operands for terms of the next size.
    `table`: the representatives (one term of each class of equal terms) as columns of numbers.
    `kinds`: the typing of enumerated terms (operator, attributes and result shape).
    `classes`: assigns terms to equivalence classes by their digests. Terms that are undefined for some inputs also get classes.
    `fingerprint`: random environments (random inputs), and exact values and digests of terms in these environments.
    `values`: the stored values of all representatives, and digests of new terms. The values of a term's operands determine its
        digest.
    `join`: candidates with several outputs, in which two or three terms become slices of one larger term.
    `tally`: the number of graphs that the enumerated terms stand for.

From a candidate to a rule:

    `candidates`: decides whether candidates are redundant, refuted or proved, and which directions of the proved equalities are
        useful.
    `abstraction`: puts variables in place of parts that occur on both sides (anti-unification).
    `generalise`: gives each variable its own extents, expresses attributes by extents, and extends the rule to all suitable
        ranks.
    `phrase`: writes an equation in the rule notation, and extends it to more ranks and axes.
    `weakest`: the weakest conditions on real attribute variables under which an equation passes random tests.
    `rule_conditions`: the interface of random tests. Generalisation uses these tests to choose between forms of a rule.
    `numbers`: replaces the symbolic sizes of enumerated terms by numbers, so that terms can be matched and their costs
        compared.
    `names`: unique names of rules.

Redundancy and usefulness:

    `instances`: drops candidates that are renamings or instances of smaller candidates. The module works in batches, before any
        proof.
    `rewriter`: decides by rewriting and congruence whether known equalities imply that two terms are equal. The terms have
        numeric sizes.
    `prune`: drops implied equalities, and chooses the directions and shortcuts that help a search.
    `effort`: the run-time cost of a graph in arbitrary units, and a test for compute-intensive operators.
    `minimal`: removes an equality from the core rules if `superopt.proof.derivation` derives it from the other core rules.
    `definitions`: rules that need no discovery: definitions of composite operators, and algorithms for operators.
"""
