"""Draws and predictions for other packages: arviz, torch, ONNX, skops."""
