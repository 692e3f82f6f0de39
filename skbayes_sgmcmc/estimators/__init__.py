"""Scikit-learn estimators, one a file."""
