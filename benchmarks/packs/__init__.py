"""Sets of small models that are served together, for `scripts/bench_pack`.

`models`: makes the models with numpy and `onnx.helper`.
`load_test`: requests that arrive at random times, and the rate at which a server keeps a bound on the p99 latency.
"""
