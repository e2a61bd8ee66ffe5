"""ONNX models in and out: load a model, translate its nodes to terms of the algebra, write terms as nodes, save the model.

The package may import `superopt.runtime` and the packages below it. Read `load` first, then `islands`, `lift`, `lower` and
`splice`.

Load and save:

    `load`: reads a model from a file or an object; normalized copies for analysis; counts of nodes and weight bytes.
    `save`: writes a model file and its data file atomically.
    `external_data`: moves large tensors of a ModelProto to files in a temporary folder.
    `session_metadata`: session settings in the model's metadata (`ort_config`).
    `contents`: nodes and initializers with digests, for the comparison of two models.
    `provenance`: the origin of a rewritten model in its metadata: version, original's digest, numbers of rules and rewrites.
    `convert_opset`: converts a model to a newer opset.
    `inline_functions`: inlines local functions.
    `specialize`: inputs and sizes that the user fixes, and branches whose conditions are then known.

Shapes and constants:

    `dimensions`: names of dynamic dimensions, and the sizes at which a model is tested and measured.
    `examples`: example inputs that the user gives, and the sizes that these inputs give to dynamic dimensions.
    `shape_inference`: shape inference for fixed input shapes, through onnx, and constant values of nodes.
    `shape_values`: symbolic shape inference: shapes and results of shape computations over dynamic dimensions.
    `constant_folding`: stores values that do not depend on the inputs as weights of a model.
    `fold`: evaluates weight-only terms in ONNX Runtime (constant folding of terms).
    `facts`: value analysis of a model: bounds of values, possible NaN and infinities, and which inputs may be masks.

From nodes to terms:

    `islands`: convex regions of nodes that the algebra can express (graph partitioning).
    `bodies`: control-flow bodies (If, Loop, Scan): their graphs, and how often each runs.
    `views`: a copy of a model whose values are expressed as variables and terms with symbolic sizes.
    `lift`: translates one ONNX node to terms, using the file of its operator in specs/; constant tensors.
    `node_graphs`: parts of a model as plain values for drawings.
    `coverage`: the nodes that are outside the islands, the reasons, and the nodes' share of the run time.
    `positions`: integer tensors of run-time positions, and which nodes may read them.

From terms to nodes:

    `lower`: translates terms to ONNX nodes, using specs/, with implicit broadcasts and Splits; folds terms without variables.
    `operands`: the order and grouping of operands of sums and products, merged constants, slices that one Split computes.
    `epilogues`: fuses a bias or a factor into the node before it (Conv, Gemm). Lowering does this without a rule.
    `available_fusions`: the fusion rules of `superopt.rules.fusion` that a model may use, at its opset or in contrib domains.
    `dynamic_lowering`: shapes, bounds and pads that depend on dynamic dimensions (0 and -1 of Reshape, `auto_pad`).
    `keepdims`: moves axes of extent 1 out of and into reductions (`keepdims=1`).
    `booleans`: inserts Casts between booleans and numbers.
    `splice`: replaces the nodes of a model by lowered terms, and checks the new model.

Rules as ONNX models:

    `functions`: a rule as a pair of ONNX functions.
    `exported_rules`: the run-time side of exported onnxscript rules.
    `term_pairs`: compares pairs of terms by running both in ONNX Runtime.
"""
