"""The parts of `superopt verify`, none of which the search shares.

Reading order: `models` (a model as its file says), `inputs` (sizes and values to run models at), `runs` (both models on the
same inputs), `instances` (a step against a rule), `arrays` (terms on arrays), `derivation` (a certificate against both models).
Verification and the search have only these in common: the rule store, the term language, the definitions in specs/ and ONNX
Runtime. An import contract in pyproject.toml enforces this.
"""
