"""The league: superopt beside other ways to run the same network fast, on one device, in one table.

`scripts/bench --league` writes `benchmarks/league.json`, or `benchmarks/league.cuda.json` on a GPU, and prints the table.

    `match`: measures all contenders on one network.
    `contenders`: the contenders that write an ONNX file, and the contenders that run the network themselves.
    `compiled`: networks of PyTorch, compiled by `torch.compile`, with their inputs.
    `table`: the figures as a table.
"""
