"""Sparse Bayesian regression: linear models and perceptrons."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import Array
from .._draws.storage import Storage
from ..schedules import MixingDistance, Schedule
from ._network import NetworkRegressor
from ._sparse import SparsePerceptron

if TYPE_CHECKING:
    from ..models.networks.pruning import Pruning
    from ..priors import SpikeSlab
    from ..samplers import Sampler


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
    hidden_layer_sizes : int or sequence of int, default=()
        Number of units of each hidden layer. An empty sequence gives a linear model.
    activation : {"relu", "tanh", "logistic"}, default="relu"
        Activation of the hidden layers.
    prior : "spike_slab" or SpikeSlab, default="spike_slab"
        Prior on the weights of the layers that it names, with its hyperparameters and the update of
        its latent variables. Biases and other layers have a normal prior. "spike_slab" means
        ``SpikeSlab()``.
    prior_scale : "fan_in", float or sequence of float, default="fan_in"
        Standard deviation of the normal prior on biases and on layers that are not sparse.
        "fan_in": as for :class:`BayesianMLPRegressor`.
    noise : "infer" or float, default="infer"
        Standard deviation of the noise. "infer": it is the prior's sigma. A number, in units of y,
        is known, and sigma is the scale of the prior alone: it stays at its initial value, or is
        adapted with ``SpikeSlab(learn_sigma=True)``.
    prune : None, float or Pruning, default=None
        Pruning of the smallest weights during sampling: the final fraction of zeros, or a
        :class:`Pruning` that also sets the schedule and the layers. None: no pruning.
    threshold : float, default=0.5
        A feature is selected if its inclusion probability is above this threshold.
    categorical_features : "from_dtype", array of str, int or bool, or None, default="from_dtype"
        Columns of X that hold categories, by their names or indices, or a boolean for each column.
        "from_dtype": those columns of tables that are categories, strings, or objects with strings.
        Each category becomes an indicator, and gaps are allowed in all columns of tables (see
        :doc:`tables of mixed columns </tables>`).
    standardize : bool, default=True
        If True, the model sees features and targets scaled to mean 0 and variance 1.
    sampler : str or Sampler, default="psgld"
        Sampler, as a name or as an object with parameters such as ``PSGLD(adapt="always")``. Names:
        "psgld", "sgld", "mclmc", "sghmc", "sgnht" and "msgnht".
    integrator : str, default="auto"
        Integrator that discretises the sampler's dynamics: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most accurate integrator, or "euler" if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
        "auto": 0.002 for pSGLD, 0.03 for SGLD, 0.005 for second-order samplers. For linear models,
        pSGLD takes up to 0.02, as long as a step is small compared with the width of the spike.
    batch_size : "auto" or int, default="auto"
        Number of rows in a minibatch, at most all rows. "auto": all rows if X has at most 32,768
        values, otherwise 100; for linear models with pSGLD one fiftieth of the rows, from 100 to
        5000.
    n_chains : int, default=4
        Number of chains. Each chain has its own starting point. Predictions average over all
        chains.
    chain_method : {"auto", "vectorized", "sequential"}, default="auto"
        Whether the chains take each step together ("vectorized") or one after the other
        ("sequential"). The draws are the same up to rounding. "auto": together, as one batched
        computation.
    n_draws : "auto" or int, default="auto"
        Number of draws kept per chain. "auto": 100, or fewer if they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
        least 10,000 steps for linear models and 20,000 with hidden layers; half as many as the
        draws take if ``step_size`` is a number.
    thinning : "auto", int or MixingDistance, default="auto"
        Number of steps between two draws of a chain in ``fit``. "auto": such that the draws take as
        long as the burn-in; a tenth of a pass, at most 100, if ``step_size`` is a number.
    max_steps : int or None, default=None
        Bound on the steps of each chain in ``fit``, which makes a fit shorter. Lengths that are
        "auto" shrink in proportion; given ones that take more steps are refused. The descents that
        chains of MCLMC and MALA start with compute at most a tenth as many gradients of rows. None:
        no bound. ``partial_fit`` takes one pass over its rows, and ignores ``burn_in``,
        ``thinning`` and ``max_steps``.
    temperature : float or Schedule, default=1.0
        Temperature T of the target exp(-U/T): 1 samples the posterior, 0 is an optimiser.
        ``SpikeSlab(adaptation="gibbs")`` allows only 1.
    init : "auto", "random", "map" or array, default="auto"
        Starting points of the chains. "random": normal weights with He's scaling. "map": as
        "random", and the first half of the burn-in runs at temperature 0, as an optimiser. An array
        is broadcast to (n_chains, n_parameters). "auto": "random".
    total_samples : float or None, default=None
        Number of rows N of the whole stream in ``partial_fit``. None: the rows seen so far.
    warm_start : bool, default=False
        If True, the next ``fit`` continues from the last state of the chains.
    compiled : "auto" or bool, default="auto"
        Whether to use the compiled code of the extra ``fast`` in long runs on a CPU: for the latent
        variables, for gradients of linear models with one output or two classes, and for steps of
        SGLD and pSGLD with the Euler integrator. The compiled steps have their own random number
        generator, so the same seed gives different draws.
    device : str, default="auto"
        Torch device, such as "cpu" or "cuda". "auto" is CUDA for fits and for predictions that are
        large enough to be faster there, otherwise the CPU; see ``device_``. Predictions use a given
        device, too, or the CPU if it is missing when a fitted model is loaded.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float64 on a CPU for up to 100,000 parameters, otherwise
        float32.
    precision : {"full", "bfloat16"}, default="full"
        Precision of the network's matrix products in gradients. "full" is that of ``dtype``.
        "bfloat16" is faster on some hardware; parameters, noise, updates, likelihood, draws and
        predictions are then in float32.
    storage : Storage or None, default=None
        Precision and location of the stored draws, such as ``Storage(dtype="bfloat16",
        dir="draws")``. None: in memory, in the precision of the sampling.
    checkpoint : path or None, default=None
        File that lets an interrupted fit resume if it is called again with the same data and
        parameters. On a CPU, the draws are then bit-identical to those of an uninterrupted fit. The
        file is kept after the fit. With ``n_jobs``, each group of chains has a file of its own:
        "fit.0-1.npz" beside "fit.npz" for the chains 0 and 1.
    n_jobs : int or None, default=None
        Number of groups of chains that run in parallel through joblib, in processes that take
        seconds to start: fits of a minute or more gain by it. None: a single group.
    random_state : int, RandomState or None, default=None
        Seed. Chain c has the same random numbers for every value of ``n_chains`` and ``n_jobs``.
    verbose : int, default=0
        If positive, print steps and the time left. R-hat or the loss comes with them.
        Scikit-learn's callbacks work, too.

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
    inclusion_probability_ : array of shape (n_features,)
        Inclusion probability of each column: the posterior mean of the largest rho among its
        weights in the first layer; only if the first layer is sparse.
    sigma_ : float
        Posterior mean of sigma, in units of the standardised targets.
    delta_ : array of shape (n_sparse_layers,)
        Posterior mean of delta for each sparse layer.
    sparsity_ : float
        Fraction of zeros in the draws of the weights of sparse or pruned layers.
    n_effective_parameters_ : float
        Mean number of nonzero parameters of a draw.
    n_chains_, n_draws_ : int
        Number of chains in ``posterior_`` and number of draws of each chain.
    n_steps_ : int
        Number of steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        Step size eta of the last step.
    batch_size_ : int
        Number of rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators used in the last call, such as ("fused_steps", "spike_slab"); ()
        if none.
    not_compiled_ : dict of str to str
        Why each of the other accelerators was not used, by name; {} with ``compiled=False``.
    sampling_threshold_ : dict or None
        Noise at up to 50 steps. "step": their numbers. "noise_ratio": alpha_t, the ratio of the
        gradient noise to the injected noise in the worst direction; chains sample the posterior
        where it is far below 1. "gradient_noise" (smallest and largest coordinate) and
        "injected_noise": variances, for
        :class:`~skbayes_sgmcmc.inspection.NoisePhaseDisplay`. None after ``partial_fit``, with
        batch norms, and if the sampler injects no noise of this kind.
    device_ : str
        Device of the last call: as given, or what "auto" has chosen.
    n_features_in_ : int
        Number of features seen in ``fit``.
    feature_names_in_ : array of shape ``(n_features_in_,)``
        Names of the features, if X had string column names.

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
    activation: str = "relu"
    prior: SpikeSlab | Literal["spike_slab"] = "spike_slab"
    prior_scale: float | Sequence[float] | Literal["fan_in"] = "fan_in"
    noise: float | Literal["infer"] = "infer"
    prune: float | Pruning | None = None
    threshold: float = 0.5
    categorical_features: ArrayLike | Literal["from_dtype"] | None = "from_dtype"
    standardize: bool = True
    sampler: str | Sampler = "psgld"
    integrator: str = "auto"
    step_size: float | Schedule | Literal["auto"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    n_chains: int = 4
    chain_method: str = "auto"
    n_draws: int | Literal["auto"] = "auto"
    burn_in: int | Literal["auto"] = "auto"
    thinning: int | MixingDistance | Literal["auto"] = "auto"
    max_steps: int | None = None
    temperature: float | Schedule = 1.0
    init: ArrayLike | Literal["auto", "random", "map"] = "auto"
    total_samples: float | None = None
    warm_start: bool = False
    compiled: bool | Literal["auto"] = "auto"
    device: str = "auto"
    dtype: str = "auto"
    precision: str = "full"
    storage: Storage | None = None
    checkpoint: str | os.PathLike[str] | None = None
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

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
