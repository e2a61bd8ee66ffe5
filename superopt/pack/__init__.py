"""Several models in one: pack models that are served together, plan how to run them, and dispatch requests.

The package may import every package except `superopt.cli`. Read `pack_models` first.

    `pack_models`: merges models, compares each with its original, and optimizes the merged model (`superopt pack`).
"""
