"""The flows of superopt: optimize, replay, generate, verify and profile. The module of each flow shows its stages in order.

The package may import every package except `superopt.cli`. Read `optimize` first.

    `optimize`: search, choose candidates and gains, accept or reject candidates, report (`superopt.optimize`).
    `prepare`: the first stages of optimize and replay: load the model, read its inputs and sizes, run it, find its islands.
    `plan_search`: list the parts of a model that would be searched, without a search (`superopt optimize --dry-run`).
    `options`: the keyword arguments of `superopt.optimize` and of `superopt.replay`.
    `settings`: the validated arguments of `superopt.optimize`.
    `optimized`: the result object of `superopt.optimize`, which holds and saves the model, its report and its certificate.
    `replay`: apply the rewrites of a certificate to another model with the same graph (`superopt.replay`).
    `compare`: compare two models in speed, outputs, operators and weights (`superopt.compare`).
    `inspect_model`: list a model's islands, remaining nodes, dynamic dimensions and weights (`superopt inspect`).
    `diff_models`: find the nodes and weights that two models share (`superopt diff`).
    `certificate`: writes the certificate (JSON) of an optimization; `superopt.verification.certificates` reads it.
    `hints`: the explanation at the end of a run: operators with long run times, refused improvements, next steps for the user.
    `kernels`: chooses the nodes of a model that become compiled kernels, and measures the model with these kernels.
    `kernel_library`: describes the library of kernels beside a model, or generates and compiles the library again to check it.
    `report_fields`: fills the fields of the optimization report: verdict, timing, rounding, rules, flags, environment.
    `report_page`: collects the values of the page about an optimization: rewritten parts, their rules, times by operator.
    `generate`: discover, prove, sort and store rewrite rules (`superopt generate`).
    `add_rules`: prove the rules of a user's file, and write their ledger (`superopt rules add`).
    `verify`: check an optimized model by its certificate (`superopt verify`).
    `profile`: measure a device and write its profile (`superopt profile`).
    `export_rules`: write rules as onnxscript rewrite rules or as pairs of ONNX functions (`superopt rules export`).
    `compare_rules`: find the rules of a file that follow from the stored rules, and vice versa (`superopt rules derive`).
    `explain_rules`: explain a stored rule by its proof steps and a numerical example (`superopt rules explain`).
"""
