"""ONNX Runtime: sessions, devices, kernel timing, interleaved comparison and the numerical check.

Only this package and `superopt.verification` import onnxruntime. The package may import `superopt.protobuf` and the packages
below it. Read `session` first, then `check` (does a candidate compute the same values?) and `compare` (is a candidate faster?).

Sessions and devices:

    `session`: loads a model in ONNX Runtime, runs it, makes random inputs, and times runs with bound inputs and outputs.
    `device`: devices, execution providers, provider options and GPU libraries.
    `settings`: session settings for the choices that tuning tries.
    `tuning`: session tuning: finds the optimizers, threads and layouts with which a model is fastest.
    `ort_values`: conversion between numpy arrays and OrtValue, with bfloat16.
    `trial_runs`: runs models in a child process, on inputs on which ONNX Runtime may crash.
    `hardware`: names and cache sizes of processors.
    `gpu_lock`: a lock that lets one process at a time use a GPU.

The numerical check:

    `check`: runs the original and the candidate on the same inputs, and compares all outputs (differential testing).
    `reference`: the float64 run of the original, with ONNX's reference evaluator and faster convolutions.
    `rounding`: decides for each element whether rounding explains the error of the element.
    `adversarial`: adversarial inputs: masks, infinities, NaN, extreme and constant values.
    `sizes`: the sizes of dynamic dimensions at which the check runs both models.
    `input_source`: the sources of input values: the user's examples, or random numbers within bounds.
    `feasible`: sizes and inputs at which a model runs.
    `bounds`: bounds of integer inputs that select positions, such as the indices of Gather.

Timing:

    `compare`: end-to-end comparison of models that are timed alternately, with an A/A control and a stopping rule.
    `multi_shape`: the check and the comparison at several sizes of dynamic dimensions, with cached results.
    `timed`: the interface of a timed model, with warm or cold processor caches.
    `operator_times`: the time of each operator in a model, from ONNX Runtime's profiler.
    `kernel`: the time of a single node, and the node's signature.

Caches on disk:

    `cache`: the time cache: key-value storage of measured times in an SQLite file that processes share.
    `result_cache`: a cache of results that are computed from models, with keys from model bytes and code digests.
"""
