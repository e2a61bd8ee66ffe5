"""The universes (vocabularies for enumeration). Each module lists which operators and variables are enumerated together.

Read `pointwise` first, then `families`, which puts all universes in order.

    `families`: all universes in the order of exploration, the names of the rule families, and the subject of each family.
    `matrix`: matrix products with elementwise operators, slices, concatenations and reductions.
    `pointwise`: functions of single elements, maxima, clamps and conditions. Some rules exchange a function of this kind with
        an operator that only moves elements.
    `elementwise`: a universe for each elementwise operator that occurs in no other module. The universe is made from the
        operator's definition.
    `reductions`: sums, means, maxima, softmax, normalizations, repetition and scans (cumulative sums).
    `batches`: batched matrix products, stacked tensors, and rows at constant positions.
    `stacks`: tensors that are stacked or unstacked along a separate axis.
    `unit_axes`: axes of extent 1, as in attention to a single token.
    `convolution`: convolutions with any strides, pads, dilations and groups; pooling, channels and layouts.
    `images`: upsampling, pooling, blocks of pixels and channels (depth to space), transposed convolutions.
    `heads`: attention heads, with splits, merges and transposes of heads, and keys that several heads share.
    `gather`: lookups of table rows at positions that are known only at run time (Gather, embeddings).
    `mixture_of_experts`: products whose rows are scaled by numbers that are known only at run time.
"""
