"""Code that several files of specs/ share: elementwise operators, reductions, attention, recurrences, composites.

The package may import `superopt.notation` and `superopt.algebra`. Read `elementwise` first, then `composite`.

    `elementwise`: axioms of elementwise operators.
    `composite`: operators that are defined as a term of simpler operators, and the expansion of these definitions.
    `recurrence`: operators that apply a step once for each element of a sequence, such as LSTM and GRU.
    `reduction`: definition of reductions such as reduce_sum, and their translation from and to ONNX.
    `attention`: masks and heads of the ONNX operator Attention.
    `affine`: the factor and the bias of normalizations.
    `softmax_legacy`: Softmax and LogSoftmax at every opset, including the opsets before 13.
    `gather_nd`: lookups at positions of any shape, as one Gather node.
    `slice_bounds`: bounds of an ONNX Slice, as ONNX Runtime reads them.
"""
