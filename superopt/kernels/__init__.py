"""Kernels: C code for islands of a model. The code is generated from the definitions of operators.

The package may import `superopt.model` and the packages below it. Read `loops` first, then `schedule` and `emit`.

    `affine`: index expressions over loops, with floor division.
    `loops`: the interpretation of index notation that turns definitions of operators into values over loop indices.
    `schedule`: decides which terms of a kernel get memory, and makes the loop nests that compute these terms.
    `emit`: writes C code with explicit vectors for loop nests.
    `groups`: finds groups of nodes. Each group can become one kernel.
    `install`: replaces groups of nodes by calls of kernels, and moves the nodes to functions of the model.
    `library`: the source of a library of kernels, and the compiler that builds it.

`prelude.h` and `glue.h` are parts of each library: vector arithmetic, and the registration with ONNX Runtime.
"""
