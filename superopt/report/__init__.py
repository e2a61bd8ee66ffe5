"""Reports of runs as frozen values, rendered as terminal tables or as JSON.

The package imports only `superopt.model.coverage`, `superopt.model.node_graphs`, `superopt.runtime.cache`, `superopt.rules`,
`superopt.algebra` and `superopt.policy`. The package only renders results, and does not compute results. Read `optimization`
first.

    `optimization`: the report of `superopt.optimize` as a dataclass. `superopt.flows.report_fields` fills the fields.
    `optimization_summary`: the report of `superopt.optimize` for a terminal: verdict, summary with reasons, and tables.
    `statements`: sentences on the changes, errors, proofs and arithmetic of a result, for the terminal and the page.
    `search_plan`: the plan of a search, for `superopt optimize --dry-run`.
    `comparison`: the report of `superopt.compare`.
    `inspection`: the report of `superopt inspect`.
    `difference`: the report of `superopt diff`.
    `packing`: the report of `superopt pack`.
    `profiling`: the report of `superopt profile`, and the text of a number with a metric prefix.
    `generation`: the report of `superopt generate`: counts for each universe, as a table and as JSON.
    `proof`: the tables of verdicts of `superopt prove`.
    `verification`: the report of `superopt verify`.
    `replaying`: the report of `superopt replay`.
    `reading`: rules as text: lists of rules, one rule in detail, an explained proof.
    `caching`: the content of the time cache as lines of text.
    `drawing`: a rule as an SVG drawing of two graphs.
    `number_texts`: durations, dates, ratios and counts as short texts.
    `html/`: the report of `superopt.optimize` as a page and as a card for posting.
    `progress`: the progress of a run as a value for listeners.
"""
