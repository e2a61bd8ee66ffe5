"""The measured cost model: node times on a device, and the roofline model that predicts times.

The package may import `superopt.model` and the packages below it. Read `measure` first.

Measured times:

    `measure`: the clock: optimizes a segment in ONNX Runtime and times nodes or the segment; times cached by structure.
    `segment_cost`: the cost function of the search: lowers the terms of a segment and asks the clock.
    `first_run`: the first run of a model in a child process: does it run, and are its nodes short; the pace of a search here.

Predicted times:

    `demand`: the operations and the bytes of a node of an optimized graph.
    `roofline`: a device's rates of arithmetic and memory, and the lower bound on a node's time from its demand.
    `calibrate`: measures the roofline of a device with models of one operator.
    `device_profile`: the file of a device's roofline and node times: build, write and read.
    `prices`: the time of one node on a device that is known only by its profile: measured, or corrected roofline.
    `forecast`: the time of a whole model, and the speedup of a candidate, on a device that is not present.
"""
