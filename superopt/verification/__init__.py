"""What `superopt verify` is made of: none of it is shared with the search.

Read `models` first (a model as its file says), then `inputs` (sizes and values to run models at), `runs` (both models on the
same inputs), `instances` (a step against a rule), `arrays` (terms on arrays), `derivation` (a certificate against both models).
Of this the search uses the rule store, the term language, the definitions in specs/ and ONNX Runtime as well, and nothing else:
an import contract in pyproject.toml keeps it so.
"""
