"""Scikit-learn estimators, one per file."""
