"""Child processes in which ONNX Runtime tries to load and run models. If ONNX Runtime crashes, only the child process ends.

The package may import `superopt.protobuf` and the packages below it. `superopt.runtime` and `superopt.verification` use this
package.

    `process`: starts a child process, sends models and inputs to it, and raises an error if the child process dies.
    `program`: the program of the child process.
"""
