"""Export of draws to arviz (0.23 and 1.x)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .._validation import check_sample_weight

if TYPE_CHECKING:
    from .._draws.posterior_samples import PosteriorSamples

Array = NDArray[Any]

__all__ = ["to_arviz"]


def to_arviz(
    estimator_or_posterior: Any, X: Any = None, y: Any = None, *, sample_weight: Any = None
) -> Any:
    """Convert draws to an arviz object, optionally with the log likelihood of given rows.

    Parameters
    ----------
    estimator_or_posterior : fitted estimator or PosteriorSamples
        Source of the draws. Draws of an estimator get the names of its features and classes as
        coordinates.
    X : array or CSR matrix of shape (n_samples, n_features), or None, default=None
        Rows for the log likelihood, usually those of ``fit``. Allowed only with an estimator.
    y : array of shape (n_samples,) or None, default=None
        Targets or labels of the rows.
    sample_weight : array of shape (n_samples,) or None, default=None
        Weights of the rows, as in ``fit``. Each weight multiplies the log likelihood of its row,
        and rows of weight 0 are left out.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        An InferenceData with arviz 0.23, a DataTree with arviz 1. The group ``posterior`` contains
        the draws. With X and y, the group ``log_likelihood`` contains a variable ``y`` of shape
        (chain, draw, row), which ``arviz.loo`` uses, and the group ``observed_data`` contains the
        targets. Statistics with one value per chain, such as an acceptance rate, are attributes of
        ``posterior``.

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
    arviz = _import_arviz()
    estimator = None
    posterior = estimator_or_posterior
    if not hasattr(posterior, "draws"):
        estimator = estimator_or_posterior
        check_is_fitted(estimator, "posterior_")
        posterior = estimator.posterior_
    chosen = _resampled(posterior)
    groups = {"posterior": {name: posterior[name][:, chosen] for name in posterior.draws}}
    coords, dims = _named_axes(estimator)
    if X is not None or y is not None:
        if estimator is None or X is None or y is None:
            raise ValueError(
                "The log likelihood needs a fitted estimator and both X and y: give all three, or "
                "neither X nor y."
            )
        rows, log_lik = _log_likelihood(estimator, X, y, sample_weight)
        groups["log_likelihood"] = {"y": log_lik[:, chosen]}
        groups["observed_data"] = {"y": np.asarray(y)[rows]}
        dims["y"] = ["row"]
        coords["row"] = rows
    return _to_object(arviz, groups, coords, dims, _attributes(posterior))


def _import_arviz() -> Any:
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "to_arviz needs arviz: install the extra 'skbayes-sgmcmc[arviz]'."
        ) from error
    return arviz


def _resampled(posterior: PosteriorSamples) -> Any:
    """Indices of draws that replace the weighted draws; all draws if the weights are equal."""
    if posterior.weights is None:
        return slice(None)
    cumulative = np.cumsum(posterior.weights)
    places = (np.arange(posterior.n_draws) + 0.5) / posterior.n_draws
    return np.searchsorted(cumulative, places * cumulative[-1])


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
    out = np.empty((posterior.n_chains * posterior.n_draws, n_rows))
    rows, start = np.arange(n_rows), 0
    for block in estimator._log_lik_blocks(X, y):
        out[:, start : start + block.shape[1]] = block
        start += block.shape[1]
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, n_rows)
        rows = np.flatnonzero(weight > 0.0)
        out = out[:, rows] * weight[rows]
    return rows, out.reshape(posterior.n_chains, posterior.n_draws, len(rows))


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
