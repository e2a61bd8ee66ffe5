"""Benchmarks of superopt beside other optimizers and in another runtime, for `scripts/bench --peers`.

`optimize` and `infer` run in separate processes. They do not need superopt, except to run superopt itself as optimizer.
`contenders` and `elsewhere` start these processes.
"""
