"""Packed models: merge models that are served together, choose packed models by their times, and answer requests.

The package may import every package except `superopt.cli`. Read `pack_models` first.

    `pack_models`: merges models, checks the merged model's outputs, and optimizes the merged model (`superopt pack`).
    `plan`: makes and measures packed models of some of the tenants (`superopt.serve_plan`).
    `dispatcher`: answers requests with the variants of a plan, within the deadlines of the requests.
"""

from superopt.pack.dispatcher import Dispatcher

__all__ = ["Dispatcher"]
