"""Load ONNX models, translate their nodes to terms of the algebra, write terms as nodes, and save models.

The package may import `superopt.runtime` and the packages in lower layers. Read `load` first, then `islands`, `lift`, `lower`
and `splice`.

Load and save:

    `load`: reads a model from a file or an object, makes normalized copies for analysis, lists and counts nodes and tensors.
    `save`: writes a model file and its data file atomically.
    `external_data`: moves large tensors of a ModelProto to files in a temporary folder.
    `session_metadata`: reads and writes session settings in the model's metadata (`ort_config`).
    `contents`: yields nodes and initializers with digests, so that two models can be compared.
    `provenance`: records the origin of a rewritten model in its metadata: version, digest of the original, counts of rules and
        rewrites.
    `convert_opset`: converts a model to a newer opset.
    `inline_functions`: inlines local functions.
    `merge_models`: merges several models into one model that stores equal weights and equal nodes once.
    `specialize`: reads the inputs and sizes that the user fixes, and finds the Ifs whose conditions are known at these inputs
        and sizes. `superopt.protobuf.specialize` changes the model.

Shapes and constants:

    `dimensions`: names dynamic dimensions, and chooses the sizes at which a model is tested and measured.
    `examples`: reads example inputs that the user gives, and the sizes of dynamic dimensions in these inputs.
    `shape_inference`: infers shapes with the package onnx for fixed input shapes, and evaluates nodes with constant operands.
    `shape_values`: infers shapes, and the results of shape computations, as expressions over dynamic dimensions.
    `constant_folding`: stores values that do not depend on the inputs as weights of a model.
    `fold`: evaluates weight-only terms in ONNX Runtime (constant folding of terms).
    `facts`: finds the bounds of values, the values that may be NaN or infinite, and the inputs that may be masks.

From nodes to terms:

    `quantized`: finds the nodes before an operator that rounds, and the nodes that may compute in integers.
    `islands`: divides a model into convex regions of nodes that the algebra can express (graph partitioning).
    `bodies`: finds the bodies of control flow (If, Loop, Scan), and counts how often each body runs.
    `views`: expresses the values and nodes of a model as variables and terms with symbolic sizes.
    `lift`: translates one ONNX node to terms, using the definition of its operator in specs/, and reads constant tensors.
    `node_graphs`: describes parts of a model (operators, attributes, edges) for drawings.
    `coverage`: lists the nodes outside the islands, their share of the run time, and the reasons why no island contains them.
    `positions`: recognizes integer tensors that contain axis positions, and decides which nodes may read these tensors.

From terms to nodes:

    `lower`: translates terms to ONNX nodes, using specs/. Broadcasts become implicit, and terms without variables become
        constants.
    `operands`: orders and groups the operands of sums and products, merges constants, and finds slices that one Split computes.
    `image_blocks`: uses SpaceToDepth and DepthToSpace instead of transposes that move image blocks.
    `epilogues`: fuses a bias or a factor into the preceding node (Conv, Gemm) during lowering. This fusion needs no rule.
    `available_fusions`: selects the fusion rules for a model's opset or for ONNX Runtime's own domains, and lists the operators
        that ONNX nodes represent.
    `dynamic_lowering`: writes shapes, bounds and pads that depend on dynamic dimensions, such as 0 and -1 in a Reshape.
    `keepdims`: moves axes of extent 1 from reductions (`keepdims=1`) to reshapes, and back.
    `booleans`: inserts Casts between booleans and numbers.
    `splice`: replaces the nodes of a model by lowered terms, and checks the new model.

Rules as ONNX models:

    `functions`: exports a rule as a pair of ONNX functions.
    `exported_rules`: applies exported rules while onnxscript rewrites a model.
    `term_pairs`: compares pairs of terms by running both in ONNX Runtime.
"""
