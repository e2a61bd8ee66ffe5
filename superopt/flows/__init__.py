"""The flows of superopt: optimize, replay, generate, verify and profile. The module of each flow shows its stages in order.

The package may import every package except `superopt.cli`. Read `optimize` first.

    `optimize`: `superopt.optimize`: search, choose candidates and gains, accept or reject candidates, report.
    `prepare`: the first stages of optimize and replay: load the model, read its inputs and sizes, run it, find its islands.
    `plan_search`: `superopt optimize --dry-run`: what would be searched, without a search.
    `options`: the keyword arguments of `superopt.optimize` and of `superopt.replay`.
    `settings`: the validated arguments of `superopt.optimize`.
    `optimized`: the result object of `superopt.optimize`: the model, its report, its certificate, how to save them.
    `replay`: `superopt.replay`: the rewrites of a certificate, applied to another model with the same graph.
    `compare`: `superopt.compare`: two models side by side, in speed, outputs, operators and weights.
    `inspect_model`: `superopt inspect`: the islands of a model, the nodes outside them, dynamic dimensions, weights.
    `diff_models`: `superopt diff`: which nodes and weights of two models are the same.
    `certificate`: writes the certificate (JSON) of an optimization; `superopt.verification.certificates` reads it.
    `hints`: the explanation at the end of a run: where the time goes, what was refused, what the user can do next.
    `report_fields`: fills the fields of the optimization report: reason of the verdict, timing, rounding, environment.
    `report_page`: collects the values of the page about an optimization: rewritten parts, their rules, times by operator.
    `generate`: `superopt generate`: discover, prove, sort and store rewrite rules.
    `add_rules`: `superopt rules add`: prove the rules of a user's file, and write their ledger.
    `verify`: `superopt verify`: check an optimized model by its certificate.
    `profile`: `superopt profile`: measure a device and write its profile.
    `export_rules`: `superopt rules export`: rules as onnxscript rewrite rules or pairs of ONNX functions.
    `compare_rules`: `superopt rules derive`: which rules of a file follow from the stored rules, and vice versa.
    `explain_rules`: `superopt rules explain`: a stored rule with its proof steps and a numerical example.
"""
