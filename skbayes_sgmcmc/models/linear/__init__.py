"""Models whose rows depend on linear predictors."""
