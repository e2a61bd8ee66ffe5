"""Export a model of the Hugging Face Hub with Optimum, optimize the exported file, and run the result with Optimum.

python examples/hugging_face.py MODEL FOLDER [--budget 30s]

MODEL is the name of a text classification model, or a folder with a saved model. The script needs Optimum:
`pip install "optimum-onnx[onnxruntime]"`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import superopt


def main() -> int:
    command = argparse.ArgumentParser(description="Export, optimize and run a text classification model.")
    command.add_argument("model", help="the name of a model on the Hub, or a folder")
    command.add_argument("folder", type=Path, help="the folder for the exported and the optimized model")
    command.add_argument("--budget", default="30s", help="the time limit of the search (30s)")
    options = command.parse_args()
    try:
        from optimum.onnxruntime import ORTModelForSequenceClassification
    except ImportError:
        print('hugging_face: Optimum is not installed: pip install "optimum-onnx[onnxruntime]"', file=sys.stderr)
        return 1

    exported = ORTModelForSequenceClassification.from_pretrained(options.model, export=True)
    exported.save_pretrained(options.folder)
    original, faster = options.folder / "model.onnx", options.folder / "faster.onnx"

    # The dimensions stay dynamic. The model is optimized for one text of 128 tokens.
    optimized = superopt.optimize(original, budget=options.budget, shapes={"batch_size": 1, "sequence_length": 128})
    optimized.save(faster)
    print(optimized.report.reason)

    model = ORTModelForSequenceClassification.from_pretrained(options.folder, file_name=faster.name)
    tokens = {name: np.ones((1, 128), np.int64) for name in model.input_names}
    print(model(**tokens).logits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
