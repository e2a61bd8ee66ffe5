"""ONNX models: read, lifted, lowered, saved, run and measured. The only home of onnx, onnx_ir and onnxruntime."""
