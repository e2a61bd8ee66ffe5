"""The measured cost model: node times on a device, and the roofline model that predicts times.

The package may import `superopt.model` and the packages below it. Read `measure` first.

Measured times:

    `measure`: the clock, which optimizes a segment in ONNX Runtime, times its nodes or the whole segment, and caches the times.
    `segment_cost`: the cost function of the search, which lowers the terms of a segment to a model and times the model.
    `first_run`: the first run of a model in a child process, and an estimate of the pace of a search on this machine.

Predicted times:

    `demand`: the number of operations of a node in an optimized graph, and the number of bytes that the node moves.
    `roofline`: a device's rates of arithmetic and memory, and the lower bound on a node's time from its demand.
    `calibrate`: measures the roofline of a device with models of one operator.
    `device_profile`: builds, writes and reads the file that contains a device's roofline and node times.
    `prices`: the time of one node, measured or predicted, on a device that is known only by its profile.
    `forecast`: the time of a whole model, and the speedup of a candidate, on a device that is not present.
"""
