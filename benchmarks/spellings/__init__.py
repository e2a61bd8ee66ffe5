"""Spellings: the same function as different exporters write it, each beside the ONNX operator that computes the function.

Each folder has the models of one function. `operator.onnxtxt` uses the operator, or the shortest standard form where there is
no operator. `operator.opsetN.onnxtxt` is the form for opset N and later, up to the opset of the next such file. All other files
are spellings. The name of a spelling begins with the exporter: `pytorch_torchscript`, `pytorch_dynamo`, `tensorflow`, `keras`,
`paddle`, `mxnet` or `flax`. `hand` means that people write the form by hand in some framework. A comment in the file says where
the form comes from.

PyTorch 2.13 exported the files of PyTorch. Only names were changed afterwards. Weights in these files are initializers, never
Constant nodes. The files of the other exporters were written by hand, after the source code of the converters.

A file is a model in ONNX's text syntax. A weight that is declared without a value is filled by `corpus.read`. All models of a
function get the same numbers for weights of the same name.

    `corpus`: the files of the corpus, and the models in them.
    `equality`: the check that a spelling and its operator compute the same.
    `figures`: the figures of a spelling that was optimized and measured.
"""
