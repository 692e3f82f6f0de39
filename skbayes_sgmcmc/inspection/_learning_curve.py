"""Error and likelihood of the averaged prediction as draws accumulate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import check_consistent_length, column_or_1d, gen_batches

from .. import prediction
from ._common import class_codes, last_step, name_of, panels, pyplot, several

Array = NDArray[Any]

#: smaller probabilities count as this one, as in :func:`sklearn.metrics.log_loss`
SMALLEST = float(np.finfo(np.float64).eps)

#: metric -> label of its axis
LABELS = {
    "error": "error",
    "accuracy": "accuracy",
    "rmse": "RMSE (units of y)",
    "nll": "NLL (nats per row)",
}

#: by metric: (draws,) of all chains together, or (chains, draws) of each
Curves = dict[str, Array]


class LearningCurveDisplay:
    r"""Quality of the averaged prediction against the number of draws that it averages.

    At t draws per chain, the prediction is the (weighted) average over the first t draws of every
    chain, in the order in which they were drawn. A curve that still falls at its end asks for more
    draws; single chains that end above the average of all, as those of networks do, show what
    several modes are worth.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    draws_per_chain : array of shape (n_draws,)
        1, 2, ..., n_draws.
    values : dict of str to array of shape (n_draws,)
        By metric: "error", "accuracy" and "nll" of classifiers, "rmse" and "nll" of regressors.
    chain_values : dict of str to array of shape (n_chains, n_draws) or None, default=None
        The same of each chain alone.
    name : str or None, default=None
        Label of the curve.

    Attributes
    ----------
    axes_ : array of shape (n_metrics,) of matplotlib Axes
        One a metric.
    ax_ : matplotlib Axes
        The first of them.
    figure_ : matplotlib Figure
        Their figure.
    lines_ : list of matplotlib Line2D
        The curves of all chains together, one a metric.
    chain_lines_ : list of matplotlib Line2D
        Those of single chains, if drawn.

    See Also
    --------
    sklearn.model_selection.LearningCurveDisplay : Score against the number of training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import LearningCurveDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X[::2], y[::2])
    >>> display = LearningCurveDisplay.from_estimator(clf, X[1::2], y[1::2], per_chain=True)
    >>> bool(display.values["accuracy"][-1] == clf.score(X[1::2], y[1::2]))
    True
    """

    def __init__(
        self,
        draws_per_chain: Array,
        values: Mapping[str, Array],
        *,
        chain_values: Mapping[str, Array] | None = None,
        name: str | None = None,
    ):
        self.draws_per_chain = draws_per_chain
        self.values = dict(values)
        self.chain_values = None if chain_values is None else dict(chain_values)
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        metric: Any = None,
        per_chain: bool = False,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Compute and draw the curves of a fitted estimator.

        Besides the curves, memory holds one running sum and one block of predictions, whatever the
        number of rows and draws.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier or regressor of this package, or a pipeline or search that ends in
            one.
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows, best ones that the fit has not seen.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Their labels, or targets.
        metric : str, sequence of str or None, default=None
            What to draw, a panel each: "error", "accuracy" (classifiers), "rmse" (regressors, in
            units of y, averaged over outputs) or "nll", the negative log likelihood in nats per
            row. None: the error or RMSE, and the NLL.
        per_chain : bool, default=False
            Also draw one thin line per chain.
        name : str or None, default=None
            Label of the curve; None: the class of the estimator.
        ax : Axes, sequence of Axes or None, default=None
            One a panel, or one that the panels share; None: a new figure.
        **kwargs
            For the main lines, as in :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        LearningCurveDisplay

        Raises
        ------
        NotFittedError
            The estimator is not fitted.
        ValueError
            The estimator is none of this package, or y has labels that the fit has not seen.
        ImportError
            Matplotlib is not installed.
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        label = name_of(estimator) if name is None else name
        last, X = last_step(estimator, X)
        if is_classifier(last):
            _metrics(metric, ("error", "accuracy", "nll"))
            together, single = _classifier_curves(last, X, y)
        elif is_regressor(last):
            _metrics(metric, ("rmse", "nll"))
            together, single = _regressor_curves(last, X, y)
        else:
            raise ValueError(f"estimator={last!r} is not allowed: give a classifier or regressor.")
        draws = np.arange(1, last.posterior_.n_draws + 1)
        display = cls(draws, together, chain_values=single, name=label)
        return display.plot(ax, metric=metric, per_chain=per_chain, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        metric: Any = None,
        per_chain: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : Axes, sequence of Axes or None, default=None
            One a panel, or one that the panels share; None: a new figure.
        metric : str, sequence of str or None, default=None
            What to draw, a panel each; None: the error or RMSE, and the NLL.
        per_chain : bool, default=False
            Also draw one thin line per chain.
        name : str or None, default=None
            Label of the curve; None: the one given before.
        **kwargs
            For the main lines, as in :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        self
        """
        names = _metrics(metric, tuple(self.values))
        self.axes_ = panels(f"{type(self).__name__}.plot", ax, len(names))
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        self.lines_, self.chain_lines_ = [], []
        label = self.name if name is None else name
        for metric_name, axes in zip(names, self.axes_, strict=True):
            line = {"label": label, "zorder": 3} | kwargs
            self.lines_ += axes.plot(self.draws_per_chain, self.values[metric_name], **line)
            if per_chain and self.chain_values is not None:
                for c, values in enumerate(self.chain_values[metric_name]):
                    self.chain_lines_ += axes.plot(
                        self.draws_per_chain,
                        values,
                        color=self.lines_[-1].get_color(),
                        linewidth=0.7,
                        alpha=0.5,
                        label=None if c else "single chains",
                    )
            axes.set(xlabel="draws per chain", ylabel=LABELS.get(metric_name, metric_name))
            if line["label"] is not None or per_chain:
                axes.legend()
        return self


def _metrics(metric: Any, known: tuple[str, ...]) -> list[str]:
    """The metrics to draw; by default those that fall as predictions get better."""
    if metric is None:
        return [name for name in known if name != "accuracy"]
    return several("metric", metric, known)


def _predictions(estimator: Any, X: Any, n_outputs: int) -> Iterator[tuple[slice, slice, Array]]:
    """Rows, draws of each chain, and their predictions (chains, draws, rows, outputs).

    For every block of rows, the draws come in their order. Neither a block of predictions nor the
    parameters behind it have many more numbers than ``prediction.BLOCK_NUMBERS``.
    """
    posterior = estimator.posterior_
    n_chains, n_draws = posterior.n_chains, posterior.n_draws
    n_parameters = sum(math.prod(values.shape[2:]) for values in posterior.draws.values())
    at_once = prediction.BLOCK_NUMBERS // (n_chains * n_outputs)
    rows_at_once = max(1, min(X.shape[0], at_once // min(n_draws, 64)))
    most = prediction.BLOCK_NUMBERS // (n_chains * n_parameters)
    draws_at_once = max(1, min(at_once // rows_at_once, most))
    first = n_draws * np.arange(n_chains)[:, None]
    for rows in gen_batches(X.shape[0], rows_at_once):
        part = X[rows]
        for draws in gen_batches(n_draws, draws_at_once):
            chosen = (first + np.arange(draws.start, draws.stop)).ravel()
            f = estimator._predict_block(chosen, part)
            yield rows, draws, f.reshape(n_chains, -1, *f.shape[1:])


def _running(values: Array, before: Array | None, add: Any) -> tuple[Array, Array]:
    """Running sums (chains, draws, ...) in place, and their last: ``before`` is the last block's.

    ``add`` is ``np.add``, or ``np.logaddexp`` of logarithms.
    """
    if before is not None:
        values[:, 0] = add(values[:, 0], before)
    add.accumulate(values, axis=1, out=values)
    return values, values[:, -1].copy()


def _weights(estimator: Any) -> tuple[Array, Array]:
    """Weights of a chain's draws, and their running sums (NaN while they are zero)."""
    posterior = estimator.posterior_
    weights = np.ones(posterior.n_draws) if posterior.weights is None else posterior.weights
    sums = np.cumsum(weights, dtype=np.float64)
    return weights, np.where(sums > 0.0, sums, np.nan)


def _classifier_curves(estimator: Any, X: Any, y: Any) -> tuple[Curves, Curves]:
    codes = class_codes(column_or_1d(y), estimator.classes_)
    X = estimator._validate_x(X)
    check_consistent_length(X, codes)
    weights, norms = _weights(estimator)
    right = np.zeros((1 + estimator.posterior_.n_chains, len(weights)))
    nll = np.zeros_like(right)
    before: Array | None = None
    for rows, draws, p in _predictions(estimator, X, len(estimator.classes_)):
        p = p * np.asarray(weights[draws], np.float64)[:, None, None]
        p, before = _running(p, before if draws.start else None, np.add)
        labels, norm = codes[rows], norms[draws][:, None]
        for part, sums in ((slice(0, 1), p.mean(axis=0)[None]), (slice(1, None), p)):
            of_label = sums[:, :, np.arange(len(labels)), labels] / norm
            nll[part, draws] -= np.log(np.maximum(of_label, SMALLEST)).sum(axis=2)
            right[part, draws] += np.sum(sums.argmax(axis=3) == labels, axis=2)
    accuracy = np.where(np.isnan(norms), np.nan, right / len(codes))
    return _split({"error": 1.0 - accuracy, "accuracy": accuracy, "nll": nll / len(codes)})


def _regressor_curves(estimator: Any, X: Any, y: Any) -> tuple[Curves, Curves]:
    X = estimator._validate_x(X)
    y = np.asarray(y, dtype=np.float64)
    check_consistent_length(X, y)
    sd = estimator._noise_sd()
    if y.shape[1:] != estimator._y_shape:
        shape = ("n_samples", *estimator._y_shape)
        raise ValueError(f"y of shape {y.shape} is not allowed: give shape {shape}, as in fit.")
    y = y.reshape(len(y), -1)
    weights, norms = _weights(estimator)
    n_chains = estimator.posterior_.n_chains
    sd = sd.reshape(n_chains, len(weights), 1, -1)
    squares = np.zeros((1 + n_chains, len(weights), y.shape[1]))
    nll = np.zeros((1 + n_chains, len(weights)))
    mean_before: Array | None = None
    density_before: Array | None = None
    for rows, draws, f in _predictions(estimator, X, y.shape[1]):
        noise, weight = sd[:, draws], np.asarray(weights[draws], np.float64)
        norm = norms[draws][:, None]
        z = (y[rows] - f) / noise
        log_density = np.sum(-0.5 * z * z - np.log(noise) - 0.5 * np.log(2.0 * np.pi), axis=3)
        with np.errstate(divide="ignore"):  # a weight of zero
            log_density += np.log(weight)[:, None]
        again = draws.start > 0
        log_density, density_before = _running(
            log_density, density_before if again else None, np.logaddexp
        )
        of_all = np.logaddexp.reduce(log_density, axis=0) - math.log(n_chains)
        nll[0, draws] -= np.sum(of_all - np.log(norm), axis=1)
        nll[1:, draws] -= np.sum(log_density - np.log(norm), axis=2)
        f, mean_before = _running(f * weight[:, None, None], mean_before if again else None, np.add)
        norm = norm[:, :, None]
        squares[0, draws] += np.sum((y[rows] - f.mean(axis=0) / norm) ** 2, axis=1)
        squares[1:, draws] += np.sum((y[rows] - f / norm) ** 2, axis=2)
    rmse = np.sqrt(squares / len(y)).mean(axis=2)
    return _split({"rmse": rmse, "nll": nll / len(y)})


def _split(curves: Curves) -> tuple[Curves, Curves]:
    """The curves of all chains together, and those of each."""
    together = {name: values[0] for name, values in curves.items()}
    return together, {name: values[1:] for name, values in curves.items()}
