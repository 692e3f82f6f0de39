"""Rows of linear models and of first layers: all of them, and batches."""
