"""Quick fits of ordered classes, and rows of such classes."""

from pathlib import Path

import numpy as np
import pytest

REFERENCES = Path(__file__).parent / "data" / "reference_ordinal.npz"
#: budgets too small to mix, on purpose, where draws are only compared with other draws
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}
tiny_fits = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def grades(n=150, cuts=(-1.5, -0.5, 0.5, 2.0), seed=0, slope=1.0):
    """Rows of two features, and classes 0, 1, ... divided by cut points."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.digitize(slope * (X @ [1.0, -0.7]) + rng.logistic(size=n), cuts)
