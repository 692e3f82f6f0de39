"""Sparse Bayesian classification: linear models and perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from ._classes import columns
from ._descriptions import NETWORK, SHARED, SPARSE, described
from ._network import NetworkClassifier
from ._sparse import SparsePerceptron


@described(SHARED | NETWORK | SPARSE)
@dataclass(eq=False, repr=False)
class SparseBayesianClassifier(SparsePerceptron, NetworkClassifier):
    r"""Sparse Bayesian classifier, linear or a perceptron, with a spike-and-slab prior.

    The model is that of :class:`SparseBayesianRegressor` with :math:`p(y|x) =
    \mathrm{softmax}(f(x))`. With two classes, f has a single output, the logit of the second class.

    Parameters
    ----------
    {hidden_layer_sizes} {activation} {prior} {prior_scale} {prune} {threshold} {class_weight}
    {categorical_features}
    standardize : bool, default=True
        If True, the model sees features scaled to mean 0 and variance 1.
    {sampler} {integrator} {step_size} {batch_size} {n_chains} {chain_method} {n_draws}
    burn_in : "auto" or int, default="auto"
        Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
        least 3000 steps, or 10,000 for linear models; half as many as the draws take if
        ``step_size`` is a number.
    {thinning} {max_steps}
    {temperature}
        ``SpikeSlab(adaptation="gibbs")`` allows only 1.
    {init} {total_samples} {warm_start} {compiled} {device} {dtype} {precision} {storage}
    {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    posterior_ : PosteriorSamples
        Draws "weight_1" of shape (n_chains, n_draws, n_features, units), "bias_1" and so on, for
        standardised inputs. Values of the latent variables at these draws: "rho_weight_1", the slab
        probabilities of each weight, and so on for each sparse layer, "sigma" of shape (n_chains,
        n_draws) and "logit_delta" of shape (n_chains, n_draws, n_layers). With ``burn_in=0`` they
        cover the run from its first step.
    coef_ : array of shape (n_logits, n_features)
        Posterior mean of the coefficients, in the units of X; only for a linear model.
    intercept_ : array of shape (n_logits,)
        Posterior mean of the intercepts; only for a linear model.
    {inclusion_probability_}
    sigma_ : float
        Posterior mean of sigma.
    {delta_} {sparsity_} {n_effective_parameters_} {n_chains_, n_draws_} {n_steps_} {step_size_}
    {batch_size_} {compiled_} {not_compiled_} {sampling_threshold_} {device_} {classes_}
    {n_features_in_} {feature_names_in_}

    See Also
    --------
    sklearn.linear_model.LogisticRegression : With an L1 penalty, the mode with the spike alone.
    SparseBayesianRegressor : The same prior for regression.

    References
    ----------
    Deng, Zhang, Liang & Lin (2019), An adaptive empirical Bayesian method for sparse deep learning.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import SparseBayesianClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 20))
    >>> y = X[:, 3] - X[:, 7] + 0.3 * rng.standard_normal(300) > 0.0
    >>> clf = SparseBayesianClassifier(random_state=0).fit(X, y)
    >>> clf.get_support(indices=True)
    array([3, 7])
    """

    hidden_layer_sizes: int | Sequence[int] = ()
    _: KW_ONLY
    class_weight: dict[Any, float] | list[dict[Any, float]] | Literal["balanced"] | None = None

    def _make_network(self, n_outputs: int) -> Any:
        from ..models.networks.network import ReferenceClass

        if n_outputs > 2:
            return super()._make_network(n_outputs)
        return ReferenceClass(super()._make_network(1))

    def _fitted(self, X: Any, target: Any) -> tuple[Any, Any]:
        classes = zip(self._classes.sizes, columns(target), strict=True)
        return self._mean_proba(X), np.hstack([np.eye(size)[code] for size, code in classes])
