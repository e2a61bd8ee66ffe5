"""The measured cost model: node times on a device, and the roofline model that predicts times.

The package imports `superopt.model`, `superopt.runtime` and the packages that these import. Read `measure` first, then
`forecast` (predicted times on a device that is not present), `roofline` and `calibrate` (the device's rates of arithmetic and
memory). `demand` counts the operations and bytes of a node.
"""
