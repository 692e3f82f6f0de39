"""Sparse Bayesian regression: linear models and perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from .._arrays import Array
from ._descriptions import NETWORK, SHARED, SPARSE, described
from ._network import NetworkRegressor
from ._sparse import SparsePerceptron


@described(SHARED | NETWORK | SPARSE)
@dataclass(eq=False, repr=False)
class SparseBayesianRegressor(SparsePerceptron, NetworkRegressor):
    r"""Sparse Bayesian regression, linear or by a perceptron, with a spike-and-slab prior.

    .. math::
        y \sim N(f(x), \sigma^2),\quad w_j \sim (1-\gamma_j)\,\mathrm{Laplace}(0, \sigma v_0)
        + \gamma_j N(0, \sigma^2 v_1),\quad P(\gamma_j = 1) = \delta

    Stochastic-gradient MCMC samples the weights, and the latent variables of the prior are updated
    after every step. The estimator is also a feature selector: ``transform`` keeps the features
    with an inclusion probability above ``threshold``. CSR matrices are converted to dense arrays
    one minibatch at a time; their features are scaled but not centred.

    Parameters
    ----------
    {hidden_layer_sizes} {activation} {prior} {prior_scale}
    noise : "infer" or float, default="infer"
        Standard deviation of the noise. "infer": it is the prior's sigma. A number, in units of y,
        is known, and sigma is the scale of the prior alone: it stays at its initial value, or is
        adapted with ``SpikeSlab(learn_sigma=True)``.
    {prune} {threshold} {categorical_features}
    standardize : bool, default=True
        If True, the model sees features and targets scaled to mean 0 and variance 1.
    {sampler} {integrator} {step_size} {batch_size} {n_chains} {chain_method} {n_draws}
    burn_in : "auto" or int, default="auto"
        Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
        least 10,000 steps for linear models and 20,000 with hidden layers; half as many as the
        draws take if ``step_size`` is a number.
    {thinning} {max_steps}
    {temperature}
        ``SpikeSlab(adaptation="gibbs")`` allows only 1.
    {init} {total_samples} {warm_start} {compiled} {device} {dtype} {precision} {storage}
    {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    posterior_ : PosteriorSamples
        Draws "weight_1" of shape (n_chains, n_draws, n_features, units), "bias_1" and so on, for
        standardised inputs and targets. Values of the latent variables at these draws:
        "rho_weight_1", the slab probabilities of each weight, and so on for each sparse layer,
        "sigma" of shape (n_chains, n_draws) and "logit_delta" of shape (n_chains, n_draws,
        n_layers). With ``burn_in=0`` they cover the run from its first step.
    coef_ : array of shape (n_outputs, n_features) or (n_features,)
        Posterior mean of the coefficients, in the units of X and y; only for a linear model.
    intercept_ : array of shape (n_outputs,) or float
        Posterior mean of the intercepts; only for a linear model.
    {inclusion_probability_}
    sigma_ : float
        Posterior mean of sigma, in units of the standardised targets.
    {delta_} {sparsity_} {n_effective_parameters_} {n_chains_, n_draws_} {n_steps_} {step_size_}
    {batch_size_} {compiled_} {not_compiled_} {sampling_threshold_} {device_} {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    sklearn.linear_model.ARDRegression : Linear regression with another sparse prior.
    SparseBayesianClassifier : The same prior for classification.

    References
    ----------
    Deng, Zhang, Liang & Lin (2019), An adaptive empirical Bayesian method for sparse deep learning.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import SparseBayesianRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 20))
    >>> y = 2.0 * X[:, 3] - X[:, 7] + 0.5 * rng.standard_normal(100)
    >>> reg = SparseBayesianRegressor(random_state=0).fit(X, y)
    >>> reg.get_support(indices=True)
    array([3, 7])
    >>> reg.transform(X).shape
    (100, 2)
    """

    hidden_layer_sizes: int | Sequence[int] = ()
    _: KW_ONLY
    noise: float | Literal["infer"] = "infer"

    #: the noise is normal
    likelihood = "normal"

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        super()._fit_targets(y, weight)
        if not self.standardize:
            self._y_center, self._y_scale = np.zeros(y.shape[1]), np.ones(y.shape[1])

    def _target_units(self) -> tuple[Any, Any]:
        return self._y_scale, self._y_center

    def _set_coefficients(self) -> None:
        super()._set_coefficients()
        if not self._y_shape:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])

    def _fitted(self, X: Any, target: Any) -> tuple[Any, Any]:
        return self._mixture().moments(X)[0], target
