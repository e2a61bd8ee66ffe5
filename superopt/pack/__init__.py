"""Several models in one: pack models that are served together, plan how to run them, and dispatch requests.

The package may import every package except `superopt.cli`. Read `pack_models` first.

    `pack_models`: merges models, compares each with its original, and optimizes the merged model (`superopt pack`).
    `plan`: makes and measures packed models of some of the tenants (`superopt.serve_plan`).
    `dispatcher`: answers requests with the variants of a plan, within the deadlines of the requests.
"""

from superopt.pack.dispatcher import Dispatcher

__all__ = ["Dispatcher"]
