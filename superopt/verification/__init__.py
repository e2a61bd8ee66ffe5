"""The parts of `superopt verify`. The search for rewrites uses none of these modules.

Reading order: `models` (a model as read from its file), `inputs` (sizes and values to run models on), `runs` (both models on
the same inputs), `instances` (whether a step is an instance of a rule), `arrays` (evaluation of terms on arrays), `derivation`
(checks of a certificate against both models). Verification and the search have only four things in common: the rule store, the
term language, the definitions in specs/ and ONNX Runtime. An import contract in pyproject.toml enforces this separation.
"""
