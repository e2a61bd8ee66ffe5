"""Ensembles of decision trees from scikit-learn, fitted to random rows."""

from __future__ import annotations

import numpy as np
import onnx
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

from benchmarks.zoo.recipes import Trees

ROWS, COLUMNS = 3000, 30


def fitted(recipe: Trees, seed: int) -> onnx.ModelProto:
    """Return the fitted ensemble of the recipe. The random rows have three classes, numbered 0 to 2.

    A random forest predicts the class. Gradient boosting estimates the number of the class.
    """
    random = np.random.default_rng(seed)
    rows = random.standard_normal((ROWS, COLUMNS), np.float32)
    noise = 0.3 * random.standard_normal(ROWS)
    classes = (rows[:, 0] * rows[:, 1] + rows[:, 2] + noise > 0).astype(np.int64) + (rows[:, 4] > 1)
    ensemble = RandomForestClassifier if recipe.ensemble == "random forest" else GradientBoostingRegressor
    model = ensemble(n_estimators=recipe.trees, max_depth=recipe.depth, random_state=seed).fit(rows, classes)
    options = {id(model): {"zipmap": False}} if recipe.ensemble == "random forest" else None
    converted = to_onnx(model, initial_types=[("X", FloatTensorType([recipe.batch, COLUMNS]))], options=options)
    assert isinstance(converted, onnx.ModelProto)
    return converted
