"""The parts of `superopt verify`. The search for rewrites uses none of these modules.

Verification and the search share only the rule store, the term language, the definitions in specs/, the reader of protobuf
messages (`superopt.protobuf`) and ONNX Runtime. An import contract in pyproject.toml enforces this separation. Read `models`
first, then `steps` and `derivation`. `superopt.flows.verify` shows the order of the checks.

    `models`: reads a model file: the inputs, the expressions in names of dimensions, the nodes, the nested bodies, the tensors.
    `certificates`: the parser of certificates.
    `contents`: the content digest of a model, independent of where tensors are stored.
    `steps`: checks each rewrite step, by a stored rule or on random inputs.
    `instances`: checks whether a step is an instance of a rule, with a simple matcher that is independent of
        `superopt.rules.match`.
    `arrays`: evaluation of a certificate's terms on float64 arrays.
    `derivation`: checks a certificate against both models: unchanged nodes, new weights, values of segments.
    `stored`: checks that values stored as weights do not depend on inputs, and equal the values of the original.
    `inputs`: sizes and input values on which both models run.
    `runs`: runs both models on the same inputs and compares outputs within rounding errors.
"""
