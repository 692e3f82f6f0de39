"""Bayesian multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .._validation import check_sizes, is_auto
from ._calibration import CalibratedClassifier
from ._descriptions import NETWORK, PERCEPTRON, SHARED, described
from ._parameters import Check, unless
from ._perceptron import Perceptron

if TYPE_CHECKING:
    from ..priors import LearnedScale, Prior
    from ..samplers import Sampler

#: hidden layers with ``hidden_layer_sizes="auto"`` for few features, and for more than that
DEEP, WIDE, FEW_FEATURES = (16, 16, 16, 16), (32, 32), 32


@described(SHARED | NETWORK | PERCEPTRON)
@dataclass(eq=False, repr=False)
class BayesianMLPClassifier(Perceptron, CalibratedClassifier):
    r"""Bayesian multilayer perceptron classifier, sampled by stochastic-gradient MCMC.

    .. math::
        p(y|x) = \mathrm{softmax}(f(x)),\quad f(x) = W_L\, a(\dots a(W_1 x + b_1) \dots) + b_L,
        \quad W, b \sim \text{prior}

    The defaults need no tuning on small tabular data, scaled or not. Each of four chains finds a
    mode of the posterior and then samples around it at temperature 1. Predictions average over all
    draws.

    Parameters
    ----------
    hidden_layer_sizes : "auto", int or sequence of int, default="auto"
        Number of units of each hidden layer. "auto": (16, 16, 16, 16), or (32, 32) if X has more
        than 32 features. Several narrow layers predicted better than one wide layer on every table
        that was tried, at the same cost; images need wider ones.
    {activation} {prior} {prior_scale} {class_weight} {categorical_features} {standardize} {sampler}
    {integrator} {step_size} {batch_size} {n_chains} {chain_method} {n_draws} {burn_in} {thinning}
    {max_steps} {temperature} {init} {validation_fraction} {calibrate} {total_samples} {warm_start}
    {compiled} {device} {dtype} {precision} {storage} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    {classes_}
    posterior_ : PosteriorSamples
        Draws "weight_1" of shape (n_chains, n_draws, n_features, units), "bias_1" and so on; with
        learned scales also "scale_weight_1" of shape (n_chains, n_draws, n_features), and so on.
    relevance_ : array of shape (n_features,)
        Posterior mean of each column's learned scale, divided by the sum over the columns. Only
        with ``prior_scale="learned"``. With standardised features, large values mean features that
        the network uses.
    {calibration_power_} {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_} {compiled_}
    {not_compiled_} {sampling_threshold_} {device_} {n_features_in_} {feature_names_in_}

    See Also
    --------
    sklearn.neural_network.MLPClassifier : A single network, trained by optimisation.
    BayesianMLPRegressor : The same network for continuous targets.

    Notes
    -----
    Weights of different chains cannot be compared, because hidden units can be exchanged. R-hat
    therefore compares the predictions of the chains, and a warning is issued if they disagree. At
    temperature 1, networks are often underconfident, which ``calibrate`` mends. Colder posteriors
    (``temperature=0.1``) are not Bayesian, but sometimes predict better.

    With y of shape (n_samples, n_targets), all targets share the hidden layers. Given the network,
    they are independent, and each has the softmax of its own outputs, so one label has the model of
    a classifier of two classes. If all labels are 0 or 1, ``predict_proba`` gives the probabilities
    of 1, (n_samples, n_targets), as ``MLPClassifier`` does; otherwise it gives a list with one
    array for each target, as ``RandomForestClassifier`` does. Sampled probabilities and their
    intervals have the same form, :meth:`predict_set` is a list, and :meth:`predict_uncertainty`
    has a column for each target. ``score`` is the share of rows with all labels right.
    ``class_weight`` is "balanced" or a list with a dict for each target; the weight of a row is the
    product over its labels. All targets have one power of calibration. Students, attacks and
    diagrams of reliability are for one target.

    References
    ----------
    Li, Chen, Carlson & Carin (2016), Preconditioned stochastic gradient Langevin dynamics for deep
    neural networks, AAAI.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianMLPClassifier(random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.95
    True
    >>> clf.posterior_
    PosteriorSamples(4 chains x 100 draws, {weight_1: (4, 16), bias_1: (16,), ...})

    Two labels for each row:

    >>> import numpy as np
    >>> labels = np.column_stack([y == 0, X[:, 0] > 6.0])
    >>> clf = BayesianMLPClassifier(max_steps=1000, random_state=0).fit(X, labels)
    >>> clf.predict_proba(X).shape, clf.predict_uncertainty(X).epistemic.shape
    ((150, 2), (150, 2))
    """

    hidden_layer_sizes: int | Sequence[int] | Literal["auto"] = "auto"
    _: KW_ONLY
    prior: Prior | Literal["normal", "laplace"] = "normal"
    prior_scale: float | Sequence[float] | LearnedScale | str = "auto"
    class_weight: dict[Any, float] | list[dict[Any, float]] | Literal["balanced"] | None = None
    sampler: str | Sampler = "auto"
    validation_fraction: float = 0.15
    calibrate: bool | Literal["auto"] = "auto"

    _checks: ClassVar[dict[str, Check]] = {"hidden_layer_sizes": unless("auto", check_sizes)}

    def _hidden_sizes(self, n_features: int) -> tuple[int, ...]:
        if is_auto(self.hidden_layer_sizes):
            return DEEP if n_features <= FEW_FEATURES else WIDE
        return super()._hidden_sizes(n_features)
