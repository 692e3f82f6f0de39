"""Which posteriors of logistic regression are predicted from moments, and their moments."""

from __future__ import annotations

import numpy as np

from ..._draws.posterior_samples import PosteriorSamples, kept_with_posterior
from .logit import LogitMoments, Moments
from .softmax import SoftmaxMoments


@kept_with_posterior
def moments_of(posterior: PosteriorSamples) -> Moments | None:
    """The moments of a posterior; None if its draws are few for its size."""
    weights, (k, n_features) = posterior.pooled_weights(), posterior.shapes["coef"]
    n_draws = posterior.n_pooled if weights is None else int((weights > 0).sum())
    # fewer draws for each coefficient are as quick
    if n_draws < (8 if k == 1 else 2) * k * (n_features + 1):
        return None
    coef, intercept = (posterior.pooled(name) for name in ("coef", "intercept"))
    draws = np.concatenate([coef, intercept[:, :, None]], axis=2).astype(np.float64)
    if not np.isfinite(draws).all():
        return None
    return LogitMoments(draws[:, 0], weights) if k == 1 else SoftmaxMoments(draws, weights)
