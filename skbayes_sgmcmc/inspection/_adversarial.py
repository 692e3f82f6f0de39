"""Adversarial rows: the fast gradient sign attack, and the accuracy under this attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier

from .._arrays import Array
from .._draws import prediction
from .._exceptions import not_allowed
from .._limits import LIMITS, slices
from .._modes import usual_modes
from .._pipelines import last_step, name_of, scaling
from .._validation import check_array, check_choice, check_consistent_length, check_real
from ._common import Display, check_one_target, pyplot, several

#: label of the axis for each metric
LABELS = {"accuracy": "accuracy", "entropy": "mean predictive entropy (nats)"}

STRENGTHS = tuple(round(0.05 * i, 2) for i in range(11))


def fgsm(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    eps: float,
    clip: tuple[float, float] | None = (0.0, 1.0),
) -> Array:
    r"""Fast gradient sign attack on the prediction averaged over the posterior.

    .. math::
        x \leftarrow x - \epsilon\, \mathrm{sign} \nabla_x \log \bar p(y | x), \qquad
        \nabla_x \log \bar p = \frac{\sum_k w_k p_k \nabla_x \log p_k}{\sum_k w_k p_k}

    Here :math:`p_k` is the probability of the attacked label under draw k, and :math:`w_k` is the
    weight of the draw. Every value of X moves by eps in the direction that makes the label
    less probable. All draws are used. Memory use does not grow with the number of draws.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package, a pipeline of scalers and one, or a search.
    X : array of shape (n_samples, n_features), or of images as in ``fit``
        Rows.
    y : array of shape (n_samples,) or None, default=None
        Labels to attack, such as the true labels. None: the predicted labels.
    eps : float
        Strength of the attack: how far every value of X moves, in the units of X. At least 0.
    clip : (low, high) or None, default=(0, 1)
        Range that clips the attacked values, such as the range of pixels. None: no
        clipping.

    Returns
    -------
    array of the shape of X
        The attacked rows, in float32 if X is float32, otherwise in float64. Values without
        a gradient do not change.

    Raises
    ------
    NotFittedError
        The estimator is not fitted.
    ValueError
        A parameter is not allowed, X is sparse or outside ``clip``, y has labels that the fit has
        not seen, or the estimator is no classifier of this package, or a pipeline with other
        steps than scalers before it.

    See Also
    --------
    AdversarialCurveDisplay : Accuracy as a function of eps.

    Notes
    -----
    In terms of the log odds :math:`o_k` of the label, the summands are :math:`w_k p_k (1 - p_k)
    \nabla o_k`. They are added relative to the largest term. The sign is therefore correct even if
    probabilities round to 0 or 1, as those of confident networks do.

    References
    ----------
    Goodfellow, Shlens & Szegedy (2015), Explaining and harnessing adversarial examples, ICLR.

    Deng, Zhang, Liang & Lin (2019), An adaptive empirical Bayesian method for sparse deep learning,
    NeurIPS, section 5.3 (which attacks the predicted label).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import fgsm
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X[::2] / 16.0, y[::2])
    >>> attacked = fgsm(clf, X[1::2] / 16.0, eps=0.1)
    >>> clf.score(X[1::2] / 16.0, y[1::2]) > 0.9 > 0.7 > clf.score(attacked, y[1::2])
    True
    """
    eps = check_real("eps", eps, low=0.0, closed="left")
    estimator, rows, seen = _attackable(estimator, X, clip)
    codes = None
    if y is not None:
        codes = estimator._known_codes(y)
        check_consistent_length(rows, codes)
    signs = _signs(estimator, seen(rows), codes)
    return _moved(rows, signs, eps, clip).reshape(np.shape(X))


@dataclass(eq=False, repr=False)
class AdversarialCurveDisplay(Display):
    """Accuracy as a function of the strength of fast gradient sign attacks.

    The direction of the attack is computed once, at the original rows. In a well-calibrated model,
    the predictive entropy rises as the accuracy falls.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    eps : array of shape (n_eps,)
        Strengths of the attack, in the units of X.
    values : dict of str to array of shape (n_eps,)
        "accuracy": fraction of correct predictions. "entropy": entropy of the averaged
        probabilities in nats, averaged over the rows.
    name : str or None, default=None
        Label of the curve.

    Attributes
    ----------
    axes_ : array of shape (n_metrics,) of matplotlib Axes
        One axes per metric.
    ax_ : matplotlib Axes
        First of these axes.
    figure_ : matplotlib Figure
        Figure that contains the axes.
    lines_ : list of matplotlib Line2D
        Curves, one per metric.

    See Also
    --------
    fgsm : The attack.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import AdversarialCurveDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X[::2] / 16.0, y[::2])
    >>> display = AdversarialCurveDisplay.from_estimator(clf, X[1::2] / 16.0, y[1::2])
    >>> bool(display.values["accuracy"][0] > 0.9 > 0.7 > display.values["accuracy"][2])
    True
    """

    eps: Array
    values: Mapping[str, Array]
    _: KW_ONLY
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        eps: Sequence[float] = STRENGTHS,
        attacked: str = "predicted",
        clip: tuple[float, float] | None = (0.0, 1.0),
        metric: Any = "accuracy",
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Attack a fitted classifier and plot the curve.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier of this package, a pipeline of scalers and one, or a search.
        X : array of shape (n_samples, n_features), or of images as in ``fit``
            Rows, preferably not used in ``fit``.
        y : array of shape (n_samples,)
            Labels of the rows.
        eps : sequence of float, default=(0, 0.05, ..., 0.5)
            Strengths of the attack, in the units of X.
        attacked : {"predicted", "true"}, default="predicted"
            Label that the attack makes less probable. With "predicted", misclassified rows may
            become correct.
        clip : (low, high) or None, default=(0, 1)
            Range that clips the attacked values. None: no clipping.
        metric : str or sequence of str, default="accuracy"
            Metrics to plot, with one panel each: "accuracy" or "entropy".
        name : str or None, default=None
            Label of the curve. None: the class name of the estimator.
        ax : Axes, sequence of Axes or None, default=None
            One axes per panel, or a single axes that the panels share. None: a new figure.
        **kwargs
            Options of the lines, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        AdversarialCurveDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        listed = list(np.ravel(np.array(eps, dtype=object))) or [None]
        strengths = [check_real("eps", value, low=0.0, closed="left") for value in listed]
        check_choice("attacked", attacked, ("predicted", "true"))
        several("metric", metric, LABELS)
        label = name_of(estimator) if name is None else name
        last, rows, seen = _attackable(estimator, X, clip)
        codes = last._known_codes(y)
        check_consistent_length(rows, codes)
        signs = _signs(last, seen(rows), codes if attacked == "true" else None)
        values = np.empty((2, len(strengths)))
        for i, strength in enumerate(strengths):
            p = last._mean_proba(seen(_moved(rows, signs, strength, clip)))
            values[:, i] = np.mean(p.argmax(axis=1) == codes), prediction.entropy(p).mean()
        found = dict(zip(("accuracy", "entropy"), values, strict=True))
        return cls(np.array(strengths), found, name=label).plot(ax, metric=metric, **kwargs)

    def plot(
        self, ax: Any = None, *, metric: Any = "accuracy", name: str | None = None, **kwargs: Any
    ) -> Self:
        """Plot the curve.

        Parameters
        ----------
        ax, metric, name, **kwargs
            As for :meth:`from_estimator`, but with the ``name`` of the display as default.

        Returns
        -------
        self
        """
        names = several("metric", metric, self.values)
        self._make_axes(ax, len(names))
        self.lines_ = []
        line = {"marker": "o", "label": self.name if name is None else name} | kwargs
        for metric_name, axes in zip(names, self.axes_, strict=True):
            self.lines_ += axes.plot(self.eps, self.values[metric_name], **line)
            axes.set(xlabel="strength of the attack, eps", ylabel=LABELS[metric_name])
            if line["label"] is not None:
                axes.legend()
        return self


def _attackable(estimator: Any, X: Any, clip: Any) -> tuple[Any, Array, Callable[[Array], Array]]:
    """The classifier, and rows, flat, if they can be attacked within ``clip``.

    The third maps rows to those that the classifier sees behind a pipeline's scalers. These keep
    the signs of gradients, as their scales are positive.
    """
    (last,) = last_step(estimator)
    if not is_classifier(last):
        raise not_allowed(f"estimator={last!r} is not allowed: give a classifier.")
    check_one_target(last, "an attack", "attack a classifier that was fitted to one column of y.")
    if hasattr(last, "_encoding"):
        last._encoding.check_plain("an attack")
    before = scaling(estimator, "the attack can be followed through scalers only")
    if issparse(X):
        raise not_allowed(
            "X in a sparse format is not allowed, because the attack also changes its zeros: give "
            "X.toarray()."
        )
    if before is None:
        rows = np.asarray(last._validate_x(X))
    else:
        rows = check_array(X, dtype=(np.float64, np.float32))
        last._validate_x(last_step(estimator, X)[1])

    def seen(rows: Array) -> Array:
        return rows if before is None else (rows - before[0]) / before[1]

    if clip is None:
        return last, rows, seen
    ends = [check_real("clip", end) for end in np.ravel(np.array(clip, dtype=object))]
    if len(ends) != 2 or ends[0] >= ends[1]:
        raise not_allowed(f"clip={clip!r} is not allowed: give (low, high) or None.")
    rounding = 1e-6 * (ends[1] - ends[0])  # scaled features may end at 1 + 2e-16
    if rows.min() < ends[0] - rounding or rows.max() > ends[1] + rounding:
        raise not_allowed(
            f"clip={clip!r} is not allowed for X between {rows.min():g} and {rows.max():g}: give "
            "a range that contains all values of X, or None."
        )
    return last, rows, seen


def _moved(rows: Array, signs: Array, eps: float, clip: Any) -> Array:
    """Rows under an attack of strength ``eps``."""
    moved = rows + rows.dtype.type(eps) * signs
    return moved if clip is None else moved.clip(*clip)


def _signs(estimator: Any, rows: Array, codes: Array | None) -> Array:
    """Signs (-1, 0, 1) of -d log p / dx, where p is the averaged probability of each row's label.

    ``codes`` are the indices of the labels in ``classes_``. None: the predicted labels.
    """
    if codes is None:
        codes = estimator._mean_proba(rows).argmax(axis=1)
    weights = estimator.posterior_.pooled_weights()
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.ones(estimator.posterior_.n_pooled) if weights is None else weights)
    signs = np.empty(rows.shape, np.int8)
    for part in slices(len(rows), LIMITS.gradient_rows):
        signs[part] = -np.sign(_slopes(estimator, rows[part], codes[part], log_weights))
    return signs


@usual_modes()
def _slopes(estimator: Any, rows: Array, codes: Array, log_weights: Array) -> Array:
    """Gradients of the averaged probability of the labels, each up to a positive factor.

    The gradient of p is p (1 - p) times the gradient of the log odds. The factors are kept as
    logarithms relative to the largest one so far, because they may underflow.
    """
    import torch
    from torch.nn.functional import logsigmoid

    x = torch.from_numpy(rows.astype(np.float64)).requires_grad_()
    labels = torch.from_numpy(codes)[:, None]
    log_weight = torch.from_numpy(log_weights)[:, None]
    total = torch.zeros_like(x)
    largest = torch.full_like(x[:, 0], torch.finfo(torch.float64).min)
    for draws, f in estimator._iter_logits(x):
        at = labels.expand(*f.shape[:2], 1)
        others = f.scatter(2, at, -torch.inf).logsumexp(2)
        odds = f.gather(2, at)[:, :, 0] - others
        size = odds.detach().double()
        size = logsigmoid(size) + logsigmoid(-size)
        size += log_weight[draws]
        before, largest = largest, torch.maximum(largest, size.amax(0))
        share = torch.exp(size - largest).to(odds.dtype)
        # retain_graph keeps the part that all draws share, from x to the network's inputs
        (slope,) = torch.autograd.grad(odds, x, share, retain_graph=True)
        total.mul_(torch.exp(before - largest)[:, None]).add_(slope)
        del f, others, odds  # frees the rest of the graph
    return total.numpy()
