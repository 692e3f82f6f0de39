"""Export of draws to arviz (0.23 and 1.x)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from .._arrays import Array
from .._exceptions import extra, not_allowed
from .._pipelines import last_step
from .._validation import (
    check_consistent_length,
    check_int,
    check_random_state,
    check_sample_weight,
)

if TYPE_CHECKING:
    from .._draws.posterior_samples import PosteriorSamples


__all__ = ["to_arviz"]


def to_arviz(
    estimator_or_posterior: Any,
    X: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    n_predictive: int = 25,
    random_state: int | np.random.RandomState | None = None,
) -> Any:
    """Convert draws to arviz's own object, with what they say of given rows.

    Parameters
    ----------
    estimator_or_posterior : fitted estimator or PosteriorSamples
        Where the draws are. Those of an estimator get its feature and class names as coordinates.
        A pipeline or search that ends in an estimator of this package stands for that estimator.
    X : array or CSR matrix of shape (n_samples, n_features), or None, default=None
        Rows for the log likelihood, usually those of ``fit``; needs an estimator. For a
        pipeline, rows as the pipeline takes them.
    y : array of shape (n_samples,) or None, default=None
        Targets or labels of the rows.
    sample_weight : array of shape (n_samples,) or None, default=None
        Exponents of the rows' likelihoods, as in ``fit``: each multiplies its row's log likelihood,
        and rows of weight 0 are left out.
    n_predictive : int, default=25
        Draws of each chain, evenly spaced; each of them draws a new target for every row;
        at most all, and 0 for none.
    random_state : int, RandomState or None, default=None
        Seed of the new targets.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The former from arviz 0.23, the latter from arviz 1. Group ``posterior`` has the draws;
        with X and y, ``log_likelihood`` has a variable ``y`` of shape (chain, draw, row), which
        ``arviz.loo`` reads, ``observed_data`` has the targets, and ``posterior_predictive`` has new
        ones (chain, draw, row), which ``arviz.plot_ppc`` compares with them. Figures of the run
        that have one value a chain, such as an acceptance rate, are attributes of ``posterior``.

    Raises
    ------
    ImportError
        arviz is not installed.

    Notes
    -----
    Arviz does not support weights of draws. Draws with weights (from a decaying step size) are
    resampled systematically: draws are repeated or left out, in their original order, such that
    plain averages equal the weighted averages to about one part in ``n_draws``. Repeated draws
    count as autocorrelation, so effective sample sizes are not overstated.

    Examples
    --------
    >>> import arviz
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression, to_arviz
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = BayesianLogisticRegression(n_chains=2, n_draws=500, random_state=0).fit(X, y)
    >>> data = to_arviz(clf, X, y)
    >>> dict(data.posterior["coef"].sizes)
    {'chain': 2, 'draw': 500, 'class_label': 3, 'feature': 4}
    >>> bool(arviz.loo(data).p_loo < 15)
    True
    """
    with extra("arviz", "to_arviz needs arviz"):
        import arviz
    check_int("n_predictive", n_predictive, low=0)
    rng, estimator = check_random_state(random_state), None
    posterior = estimator_or_posterior
    if not hasattr(posterior, "draws"):
        estimator, X = last_step(estimator_or_posterior, X)
        posterior = estimator.posterior_
    chosen = posterior.evened()
    groups = {"posterior": {name: posterior[name][:, chosen] for name in posterior.draws}}
    coords, dims = _named_axes(estimator)
    if X is not None or y is not None:
        if estimator is None or X is None or y is None:
            raise not_allowed(
                "The log likelihood needs a fitted estimator and both X and y: give all three, or "
                "neither X nor y."
            )
        y = estimator._in_rows(y.toarray() if sp.issparse(y) else y)
        rows, log_lik = _log_likelihood(estimator, X, y, sample_weight)
        groups["log_likelihood"] = {"y": log_lik[:, chosen]}
        observed = np.asarray(y)[rows]
        if observed.shape[1:] == (1,) and not getattr(estimator, "_y_shape", ()):
            observed = observed[:, 0]  # a table of one column, as new targets have it
        groups["observed_data"] = {"y": observed}
        if n_predictive:
            new = _new_targets(estimator, X, chosen, n_predictive, rng)
            groups["posterior_predictive"] = {"y": new[:, :, rows]}
        dims["y"] = ["row"]
        coords["row"] = rows
    return _to_object(arviz, groups, coords, dims, _attributes(posterior))


def _named_axes(estimator: Any) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Coordinates and dimensions in the form that arviz expects."""
    axes = {} if estimator is None else estimator._axes()
    coords = {axis: labels for named in axes.values() for axis, labels in named.items()}
    return coords, {name: list(named) for name, named in axes.items()}


def _log_likelihood(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Array, Array]:
    """Indices of the rows of positive weight, and their log likelihoods (chains, draws, rows)."""
    check_consistent_length(X, y)
    posterior = estimator.posterior_
    n_rows = len(y)
    out = np.empty((posterior.n_pooled, n_rows))
    rows, start = np.arange(n_rows), 0
    for block in estimator._log_lik_blocks(X, y):
        out[:, start : start + block.shape[1]] = block
        start += block.shape[1]
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, n_rows)
        rows = np.flatnonzero(weight > 0.0)
        out = out[:, rows] * weight[rows]
    return rows, out.reshape(posterior.n_chains, posterior.n_draws, len(rows))


def _new_targets(estimator: Any, X: Any, chosen: Any, n: int, rng: Any) -> Array:
    """New targets (chains, n, rows, ...), of n of the draws that are ``chosen`` in each chain."""
    n_chains, n_draws = estimator.posterior_.n_chains, estimator.posterior_.n_draws
    n = min(n, n_draws)
    kept = np.arange(n_draws)[chosen][(2 * np.arange(n) + 1) * n_draws // (2 * n)]
    pooled = (n_draws * np.arange(n_chains)[:, None] + kept).ravel()
    new: Array = estimator._new_targets(pooled, X, rng)
    return new.reshape(n_chains, len(kept), *new.shape[1:])


def _attributes(posterior: PosteriorSamples) -> dict[str, Any]:
    from .. import __version__

    figures = {name: values.tolist() for name, values in posterior.statistics.items()}
    return figures | {
        "inference_library": "skbayes_sgmcmc",
        "inference_library_version": __version__,
    }


def _to_object(
    arviz: Any, groups: dict[str, Any], coords: Any, dims: Any, attributes: dict[str, Any]
) -> Any:
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups, coords=coords, dims=dims, attrs={"posterior": attributes})
    data = arviz.from_dict(**groups, coords=coords, dims=dims)
    data.posterior.attrs |= attributes
    return data
