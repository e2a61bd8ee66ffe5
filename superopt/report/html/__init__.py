"""The report of one optimization as a page (HTML) and as a card (SVG).

The package may import `superopt.report.optimization`, and all packages that `superopt.report` may import.
`superopt.flows.report_page` collects the values of a page. Read `page` first.

    `page`: the values that a page shows: rewritten parts, applied rules, times by operator.
    `sentences`: makes the headline, the sentences, the charts and the tables from these values.
    `layered`: drawings of graphs in rows, with few crossings.
    `rendering`: fills the templates. Only this module imports jinja2.
"""
