"""A small corpus, and a budget that is too small to mix, on purpose."""

import numpy as np

SHORT = {"n_draws": 5, "burn_in": 10, "thinning": 1, "random_state": 0}


def corpus(n_documents=40, n_words=8, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.3), size=3)
    theta = rng.dirichlet(np.full(3, 0.3), size=n_documents)
    return np.stack([rng.multinomial(20, p @ topics) for p in theta])
