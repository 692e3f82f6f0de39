"""Likelihoods of targets given a model's outputs, and distributions of new targets."""
