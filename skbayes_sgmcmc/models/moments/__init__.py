"""Averages over draws of linear predictors, from the moments of the draws."""
