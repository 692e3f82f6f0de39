"""Diagnostics of draws (ESS, R-hat and MCSE as in arviz-stats) and of the noise of samplers.

Draws with weights, from a decaying step size, are judged as ``to_arviz`` gives them: resampled such
that plain averages are the weighted ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

import numpy as np

from ._arrays import Array
from ._draws.mixing import bulk_ess, by_parts, mean_error, rank_r_hat, sorted_figures, sorts_once
from ._draws.posterior_samples import PosteriorSamples, unique_names
from ._exceptions import not_allowed
from ._validation import central, check_choice, check_real

__all__ = [
    "amari_distance",
    "autocorrelation_time",
    "effective_sample_size",
    "mcse",
    "noise_variances",
    "r_hat",
    "sampling_threshold",
    "summary",
]

ESS_METHODS = ("bulk", "tail", "mean", "sd", "median", "mad", "z_scale", "folded", "identity")


def effective_sample_size(posterior: PosteriorSamples, name: str, method: str = "bulk") -> Array:
    """Effective sample size of every coordinate of ``name``.

    Parameters
    ----------
    posterior : PosteriorSamples
        Draws, at least four per chain.
    name : str
        Name of the draws.
    method : str, default="bulk"
        "bulk", "tail", "mean", "sd", "median", "mad", "z_scale", "folded" or "identity": the
        estimate that the size is for, as in arviz-stats. "tail": the smaller one of those for the
        quantiles of 5% and 95%.

    Returns
    -------
    array
        Effective sample sizes, in the shape of one draw. NaN for coordinates that are constant, or
        with fewer than four draws per chain.

    See Also
    --------
    r_hat : Whether the chains agree.
    mcse : The error of a mean that this number of draws leaves.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding, and
    localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import PosteriorSamples
    >>> from skbayes_sgmcmc.diagnostics import effective_sample_size
    >>> shape = 4, 1000, 2  # chains, draws, coordinates
    >>> draws = np.random.default_rng(0).standard_normal(shape)
    >>> effective_sample_size(PosteriorSamples({"theta": draws}), "theta").shape
    (2,)
    """
    check_choice("method", method, ESS_METHODS)
    prob = {"prob": (0.05, 0.95)} if method == "tail" else {}
    found = bulk_ess if method == "bulk" else _of_arviz("ess", method=method, **prob)
    return _figure(posterior, name, found)


def r_hat(posterior: PosteriorSamples, name: str) -> Array:
    """Rank-normalised split R-hat of every coordinate of ``name``; near 1 if the chains agree.

    Parameters
    ----------
    posterior : PosteriorSamples
        Draws, at least four per chain.
    name : str
        Name of the draws.

    Returns
    -------
    array
        R-hat, in the shape of one draw. NaN for coordinates that are constant, or with fewer than
        four draws per chain.

    See Also
    --------
    effective_sample_size : The number of independent draws that would be as exact.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding, and
    localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import PosteriorSamples
    >>> from skbayes_sgmcmc.diagnostics import r_hat
    >>> shape = 4, 1000, 2  # chains, draws, coordinates
    >>> draws = np.random.default_rng(0).standard_normal(shape)
    >>> bool(r_hat(PosteriorSamples({"theta": draws}), "theta").max() < 1.01)
    True
    """
    return _figure(posterior, name, rank_r_hat)


def mcse(posterior: PosteriorSamples, name: str, method: str = "mean") -> Array:
    """Monte Carlo standard error of the estimated posterior mean, standard deviation or median.

    Parameters
    ----------
    posterior : PosteriorSamples
        Draws, at least four per chain.
    name : str
        Name of the draws.
    method : {"mean", "sd", "median"}, default="mean"
        The estimate: the posterior mean, standard deviation or median.

    Returns
    -------
    array
        Standard errors, in the shape of one draw. NaN for coordinates that are constant, or with
        fewer than four draws per chain.

    See Also
    --------
    effective_sample_size : The number of independent draws that would be as exact.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import PosteriorSamples
    >>> from skbayes_sgmcmc.diagnostics import mcse
    >>> shape = 4, 1000, 2  # chains, draws, coordinates
    >>> draws = np.random.default_rng(0).standard_normal(shape)
    >>> mcse(PosteriorSamples({"theta": draws}), "theta").round(2)  # 1 / sqrt(4000)
    array([0.02, 0.02])
    """
    check_choice("method", method, ("mean", "sd", "median"))
    if method != "sd":
        found = mean_error if method == "mean" else _of_arviz("mcse", method=method)
        return _figure(posterior, name, found)
    draws = np.asarray(posterior[name][:, posterior.evened()], dtype=np.float64)
    # arviz takes the effective size of the draws for that of their squares: chains with momentum
    # turn back, which averages out of means, but not out of squares
    squares = np.square(draws - draws.mean((0, 1)))
    error = mcse(PosteriorSamples({name: squares}), name)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(error / (2.0 * draws.std((0, 1))))


def _figure(posterior: PosteriorSamples, name: str, figure: Callable[[Array], Array]) -> Array:
    values = np.asarray(posterior[name][:, posterior.evened()], dtype=np.float64)
    flat = values.reshape(*values.shape[:2], -1)
    few = flat.shape[1] < 4
    found = np.full(flat.shape[2], np.nan) if few else figure(np.moveaxis(flat, 2, 0))
    return found.reshape(values.shape[2:])


def _of_arviz(figure: str, **options: Any) -> Callable[[Array], Array]:
    """A function of arviz-stats for draws (coordinates, chains, draws), one after another."""
    from arviz_stats.base import array_stats

    one = partial(getattr(array_stats, figure), chain_axis=0, draw_axis=1, **options)
    return partial(by_parts, lambda some: np.array([one(draws) for draws in some]))


def autocorrelation_time(draws: Array) -> float:
    r"""Integrated autocorrelation time :math:`\tau = 1/2 + \sum_t \rho_t` of one coordinate.

    The sum ends where Geyer's initial positive sequence ends. The effective sample size is
    draws / (2 tau).

    Parameters
    ----------
    draws : array of shape (n_draws,) or (n_chains, n_draws)
        Draws of one coordinate, in the order of sampling.

    Returns
    -------
    float
        tau, in draws. It is 1/2 for independent draws, and nan for constant ones.

    References
    ----------
    Li, Chen, Carlson & Carin (2016), eq. 9.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.diagnostics import autocorrelation_time
    >>> noise = np.random.default_rng(0).standard_normal(20000)
    >>> bool(abs(autocorrelation_time(noise) - 0.5) < 0.05)
    True
    """
    chains = np.atleast_2d(np.asarray(draws, dtype=float))
    away = chains - chains.mean()
    n = chains.shape[1]
    if not away.any():
        return math.nan
    spectrum = np.abs(np.fft.rfft(away, 2 * n)) ** 2
    covariance = np.fft.irfft(spectrum)[:, :n].mean(axis=0) / n
    rho = covariance / covariance[0]
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    last = negative[0] if len(negative) else len(pairs)
    return float(max(pairs[:last].sum() - 0.5, 0.5 / n))


def sampling_threshold(
    covariance: Array,
    *,
    step_size: float,
    n: float,
    batch_size: int,
    temperature: float = 1.0,
    root: Array | None = None,
    friction: float | None = None,
) -> float:
    r"""Sampling threshold alpha_t: the largest ratio of the gradient noise to the injected noise.

    .. math:: \alpha_t = \frac{\eta N}{2 n T}\,\lambda_{\max}(M^{1/2} V_s M^{1/2})\,\frac{N-n}{N-1}

    The ratio is that of the worst direction. A chain samples its posterior only if alpha_t is far
    below 1.

    Parameters
    ----------
    covariance : array of shape (n_parameters, n_parameters)
        V_s, the covariance of the scores (gradients of the log likelihood) of single rows.
    step_size : float
        eta.
    n : float
        N, the number of data.
    batch_size : int
        n, the number of rows in a minibatch.
    temperature : float, default=1.0
        T.
    root : array of shape (n_parameters, n_parameters) or (n_parameters,), or None, default=None
        Root of the preconditioner M. None means the identity.
    friction : float or None, default=None
        Friction alpha of SGHMC. The ratio is divided by it.

    Returns
    -------
    float
        alpha_t; infinite if the covariance is not finite.

    References
    ----------
    Welling & Teh (2011), eq. 10.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.diagnostics import sampling_threshold
    >>> sampling_threshold(np.eye(2), step_size=0.1, n=101, batch_size=1)
    5.05
    """
    check_real("temperature", temperature, low=0.0)
    V = covariance
    if root is not None:
        with np.errstate(all="ignore"):
            V = root[:, None] * V * root if root.ndim == 1 else root.T @ V @ root
    if not np.isfinite(V).all():
        return math.inf
    largest = float(np.linalg.eigvalsh(V)[-1])
    correction = _correction(n, batch_size)
    ratio = step_size * n / (2.0 * batch_size * temperature) * largest * correction
    return ratio / friction if friction else ratio


def _correction(n: float, batch_size: float) -> float:
    """What drawing without replacement takes from the variance of a mean of rows."""
    return max(n - batch_size, 0.0) / max(n - 1.0, 1.0)


def noise_variances(
    covariance: Array, *, step_size: float, n: float, batch_size: int, temperature: float = 1.0
) -> tuple[Array, float]:
    """Variances per step of the gradient noise and of the injected noise.

    These are the two curves of Welling & Teh (2011), figure 2 left. The variance of the gradient
    noise is eta^2 diag(V_s) / n, corrected for drawing without replacement. The variance of the
    injected noise is 2 eta T / N.

    Parameters
    ----------
    covariance : array of shape (n_parameters, n_parameters)
        V_s, the covariance of the scores (gradients of the log likelihood) of single rows.
    step_size : float
        eta.
    n : float
        N, the number of data.
    batch_size : int
        n, the number of rows in a minibatch.
    temperature : float, default=1.0
        T.

    Returns
    -------
    gradient : array of shape (n_parameters,)
        Variance of the gradient noise in every coordinate.
    injected : float
        Variance of the injected noise.

    See Also
    --------
    sampling_threshold : The ratio of the two in the worst direction.

    References
    ----------
    Welling & Teh (2011), section 4.1 and figure 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.diagnostics import noise_variances
    >>> gradient, injected = noise_variances(np.eye(2), step_size=0.1, n=101, batch_size=1)
    >>> gradient, round(injected, 5)
    (array([0.01, 0.01]), 0.00198)
    """
    gradient = step_size**2 * np.diag(covariance) / batch_size * _correction(n, batch_size)
    return gradient, 2.0 * step_size * temperature / n


def amari_distance(unmixing: Array, mixing: Array, *, normalize: bool = True) -> Array:
    r"""Amari distance between unmixing matrices W and the inverse of a mixing matrix A.

    For a perfect W, P = W A is a permuted diagonal matrix, and the distance is 0. In general it is

    .. math:: \sum_i\left(\sum_j \frac{|P_{ij}|}{\max_k |P_{ik}|} - 1\right) +
        \sum_j\left(\sum_i \frac{|P_{ij}|}{\max_k |P_{kj}|} - 1\right)

    The distance does not depend on the order and the signs of the components. Unless it is zero, it
    depends on their scales.

    Parameters
    ----------
    unmixing : array of shape (..., n_components, n_features)
        One or several unmixing matrices W, such as draws.
    mixing : array of shape (n_features, n_components)
        The mixing matrix A.
    normalize : bool, default=True
        Divide the sum by 2 d (d - 1), where d is the number of components, so that the distance
        lies between 0 and 1. With False, the distance is the sum, as in the papers.

    Returns
    -------
    array of shape (...)
        One distance for each W.

    Raises
    ------
    ValueError
        The shapes do not fit, or there are fewer than two components.

    References
    ----------
    Amari, Cichocki & Yang (1996), A new learning algorithm for blind signal separation.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.diagnostics import amari_distance
    >>> A = np.array([[1.0, 0.5], [0.0, 1.0]])
    >>> amari_distance([-3.0 * np.linalg.inv(A)[::-1], np.eye(2)], A)
    array([0.  , 0.25])
    """
    W, A = np.asarray(unmixing, dtype=float), np.asarray(mixing, dtype=float)
    d = W.shape[-2] if W.ndim > 1 else 0
    if d < 2 or A.shape != (W.shape[-1], d):
        raise not_allowed(
            f"unmixing of shape {W.shape} with mixing of shape {A.shape} is not allowed: give "
            "shapes (..., n_components, n_features) and (n_features, n_components) with at least "
            "two components."
        )
    P = np.abs(W @ A)
    by_row, by_column = ((P.sum(axis) / P.max(axis) - 1.0).sum(-1) for axis in (-1, -2))
    total = by_row + by_column
    return np.asarray(total / (2.0 * d * (d - 1.0)) if normalize else total)


class Summary(dict[str, Any]):
    """Columns of a posterior summary, by name; a dict that prints as a table."""

    #: what the numbers are, above the names of the rows
    title: str = ""

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame (needs pandas)."""
        import pandas as pd

        return pd.DataFrame({k: v for k, v in self.items() if k != "name"}, index=self["name"])

    def _repr_html_(self) -> str:
        """The table in notebooks."""
        columns = [key for key in self if key != "name"]
        head = "".join(f"<th>{escape(key)}</th>" for key in [self.title, *columns])
        rows = "".join(
            f"<tr><th>{escape(str(name))}</th>"
            + "".join(f"<td>{_short(key, self[key][i])}</td>" for key in columns)
            + "</tr>"
            for i, name in enumerate(self["name"])
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        names = [self.title, *map(str, self["name"])]
        width = max(map(len, names))
        lines = [f"{name:<{width}}" for name in names]
        for key in self:
            if key != "name":
                cells = [key, *(_short(key, value) for value in self[key])]
                width = max(map(len, cells)) + 2
                lines = [line + f"{cell:>{width}}" for line, cell in zip(lines, cells, strict=True)]
        return "\n".join(lines)


def _short(column: str, value: float) -> str:
    if column == "ess":
        return f"{value:.0f}"
    return f"{value:.3f}" if column == "r_hat" and value < 1000.0 else f"{value:.4g}"


def summary(
    posterior: PosteriorSamples,
    *,
    labels: Mapping[str, Sequence[str]] | None = None,
    coverage: float = 0.9,
) -> Summary:
    """Mean, standard deviation, central interval, ESS, R-hat and MCSE of every coordinate.

    Parameters
    ----------
    posterior : PosteriorSamples
        Draws.
    labels : mapping of str to sequence of str, or None, default=None
        For each name of the draws, the names of its flattened coordinates. Coordinates without
        given names are called ``name[index]``. A name that other draws have, too, such as that
        of the coefficient of a column "noise", becomes ``coef[noise]``.
    coverage : float, default=0.9
        Probability of the central interval.

    Returns
    -------
    Summary
        Columns name, mean, sd, lower, upper, ess, r_hat and mcse, in a dict that prints as a table.
        ``to_frame()`` makes a pandas DataFrame.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import PosteriorSamples
    >>> from skbayes_sgmcmc.diagnostics import summary
    >>> draws = np.random.default_rng(0).standard_normal((4, 500, 2))
    >>> table = summary(PosteriorSamples({"theta": draws}))
    >>> table["name"]
    ['theta[0]', 'theta[1]']
    """
    tails = central(coverage)
    columns: dict[str, list[Array]] = {}
    for key in posterior.shapes:
        with np.errstate(all="ignore"):  # draws beyond all numbers show as such
            figures = {"mean": posterior.mean(key), "sd": posterior.std(key)}
            figures |= _others(posterior, key, tails)
        for column, values in figures.items():
            columns.setdefault(column, []).append(np.ravel(values))
    names = unique_names(posterior.shapes, labels or {})
    return Summary(name=names, **{k: np.concatenate(v) for k, v in columns.items()})


def _others(posterior: PosteriorSamples, name: str, tails: Sequence[float]) -> dict[str, Array]:
    """Quantiles and figures of mixing of a summary, from one sort of many draws."""
    values = posterior[name]
    flat = np.moveaxis(values.reshape(*values.shape[:2], -1), 2, 0)
    if posterior.weights is None and sorts_once(flat):
        ess, rhat, error, lower, upper = sorted_figures(flat, tails).T
    else:
        lower, upper = posterior.quantile(name, tails)
        ess, rhat = effective_sample_size(posterior, name), r_hat(posterior, name)
        error = mcse(posterior, name)
    return {"lower": lower, "upper": upper, "ess": ess, "r_hat": rhat, "mcse": error}
