"""Export of draws and predictions to other packages: arviz, torch, ONNX, skops."""
