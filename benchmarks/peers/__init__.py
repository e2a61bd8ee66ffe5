"""What `scripts/bench --peers` puts beside superopt: other optimizers, each in a process of its own, and another runtime.

`optimize` and `infer` are such processes, and import nothing of superopt's; `contenders` and `elsewhere` start them.
"""
