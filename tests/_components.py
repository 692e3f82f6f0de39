"""Quick fits of independent components, and mixed sources."""

import numpy as np

from skbayes_sgmcmc import BayesianICA

SMALL = {"n_chains": 2, "n_draws": 20, "burn_in": 40, "thinning": 2, "random_state": 0}


def small(**parameters):
    return BayesianICA(**(SMALL | parameters))


def mixed(n=1000, n_peaked=3, n_gaussian=3, seed=0):
    """Standardised sources of high kurtosis and Gaussian ones, mixed; X and the mixing matrix."""
    rng = np.random.default_rng(seed)
    peaked = rng.laplace(size=(n, n_peaked))
    sources = np.c_[np.sign(peaked) * peaked**2, rng.standard_normal((n, n_gaussian))]
    mixing = rng.standard_normal((n_peaked + n_gaussian,) * 2)
    return (sources / sources.std(0)) @ mixing.T + 3.0, mixing
