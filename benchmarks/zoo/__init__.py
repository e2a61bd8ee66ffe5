"""The models on which superopt is measured.

`catalogue` lists the models. The other modules define the models, and `scripts/zoo` writes them.
"""
