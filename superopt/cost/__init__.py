"""The measured cost model: operator times on a device, the roofline that predicts times, and the cache of measured times.

The package imports `superopt.model`, `superopt.runtime` and the packages that these import. Read `measure` first, then
`forecast` (the time of a whole term), `roofline` and `calibrate` (the device's rates). `work` counts the operations of a term.
"""
