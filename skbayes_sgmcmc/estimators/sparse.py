"""Sparse Bayesian regression and classification: linear models and perceptrons."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._draws.storage import Storage
from ._network import NetworkClassifier
from ._sparse import SparseNetworkRegressor, SparsePerceptron

Array = NDArray[Any]


class SparseBayesianRegressor(SparsePerceptron, SparseNetworkRegressor):
    r"""Linear or perceptron regression with a spike-and-slab prior learned while sampling.

    .. math::
        y \sim N(f(x), \sigma^2),\quad w_j \sim (1-\gamma_j)\,\mathrm{Laplace}(0, \sigma v_0)
        + \gamma_j N(0, \sigma^2 v_1),\quad P(\gamma_j = 1) = \delta

    The posterior of the weights is drawn by stochastic-gradient MCMC, and the latent variables
    follow it. It is a feature selector, too: ``transform`` keeps the features whose inclusion
    probability is above ``threshold``. CSR matrices are made dense a minibatch at a time, and are
    scaled but not centred.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=()
        Units of the hidden layers; none: a linear model.
    activation : {"relu", "tanh", "logistic"}, default="relu"
        Their activation.
    prior : "spike_slab" or SpikeSlab, default="spike_slab"
        Prior on the weights of its layers, with its hyperparameters and how its latent variables
        follow the chain; "spike_slab" means ``SpikeSlab()``. Biases and other layers have a normal
        prior.
    prior_scale : "fan_in", float or sequence of float, default="fan_in"
        Standard deviation of the normal prior on biases and on layers that are not sparse; "fan_in"
        as for :class:`BayesianMLPRegressor`.
    prune : None, float or Pruning, default=None
        Set the smallest weights to zero while sampling: the share of zeros at the end, or a
        :class:`Pruning` with its schedule and its layers.
    threshold : float, default=0.5
        A feature is selected if its inclusion probability is larger.
    standardize : bool, default=True
        Let the model see features and targets of mean 0 and variance 1.
    sampler : str or Sampler, default="psgld"
        The sampler, by name or as an object with parameters such as ``PSGLD(adapt="always")``:
        "psgld", "sgld", "sghmc", "sgnht" or "msgnht".
    integrator : str, default="auto"
        How a step of the sampler is discretised: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most exact one, or Euler if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        eta, which multiplies the gradient of the mean potential, like a learning rate. "auto":
        0.001 for pSGLD, or up to 0.02 for linear models, as far as steps are small in the spike;
        0.03 for SGLD, 0.005 for the second-order samplers.
    batch_size : "auto" or int, default="auto"
        Rows in a minibatch, at most all. "auto": all rows of very small data, else 100.
    shared_minibatch : bool, default=False
        One minibatch for all chains of a step. This is faster, but the chains' errors are then
        correlated, so that R-hat and MCSE are too small.
    n_chains : int, default=4
        Number of chains. They advance together and predict together; each has a start of its own.
    chain_method : {"auto", "vectorized", "sequential"}, default="auto"
        Whether all chains take a step together or one after the other. The draws are the same but
        for rounding. "auto": together, in one batched computation.
    n_draws : "auto" or int, default="auto"
        Draws kept of each chain. "auto": 100, or fewer where they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Steps before the first draw. "auto": ten passes over the rows, at least 3000 steps, or
        10,000 for linear models.
    thinning : "auto", int or MixingDistance, default="auto"
        Steps between two draws of a chain. "auto": so that the draws take as long as the burn-in.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser.
        ``SpikeSlab(adaptation="gibbs")`` allows 1 only.
    init : "auto", "random", "map" or array, default="auto"
        Where chains start. "random": He's normal weights. "map": from there, the first half of the
        burn-in at temperature 0, an optimiser. An array broadcasts to (n_chains, n_parameters).
        "auto": "random".
    total_samples : float or None, default=None
        N of ``partial_fit``, the number of rows of the whole stream; None: the rows seen so far.
    warm_start : bool, default=False
        Go on from the last state of the chains at the next ``fit``.
    compiled : "auto" or bool, default="auto"
        Use the compiled code of the extra ``fast`` where it applies (on a CPU, in long runs: the
        latent variables, gradients of linear models with one output or two classes, and the steps
        of SGLD and pSGLD by Euler). The steps have a random number generator of their own, and so
        other draws for the same seed.
    device : str, default="auto"
        "cpu", "cuda", ...; "auto" takes CUDA if there. Predictions are computed there too, or on
        the CPU where a fitted model's device is missing.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float64 on a CPU up to 100,000 parameters, else float32.
    precision : {"full", "bfloat16"}, default="full"
        "bfloat16": the network's products in gradients, which some hardware makes faster.
        Parameters, noise, updates, likelihood, draws and predictions are in float32.
    storage : Storage or None, default=None
        Precision and place in which draws are kept, such as ``Storage(dtype="bfloat16",
        dir="draws")``. None: in memory, in the precision of the sampling.
    checkpoint : path or None, default=None
        File from which an interrupted fit with the same data and parameters goes on,
        bit-identically on a CPU. It is kept after the fit.
    n_jobs : int or None, default=None
        Groups of chains that run in parallel through joblib; None: all chains as one batch.
    random_state : int, RandomState or None, default=None
        Seed; chain c has the same random numbers whatever ``n_chains`` and ``n_jobs``.
    verbose : int, default=0
        Print progress if positive. Scikit-learn's callbacks work too.

    Attributes
    ----------
    posterior_ : PosteriorSamples
        Draws "weight_1" (n_chains, n_draws, n_features, units), "bias_1" and so on, for
        standardised inputs and targets; "rho_weight_1", the probabilities of the slabs, likewise
        for each sparse layer, "sigma" (n_chains, n_draws) and "logit_delta" (n_chains, n_draws,
        n_layers): the latent variables' paths, from the first step on with ``burn_in=0``.
    coef_ : array of shape (n_outputs, n_features) or (n_features,)
        Posterior means of a linear model's coefficients, in the units of X and y.
    intercept_ : array of shape (n_outputs,) or float
        Of its intercepts.
    inclusion_probability_ : array of shape (n_features,)
        Posterior mean of rho of each feature: the largest of those of its weights in the first
        layer; if that is sparse.
    sigma_ : float
        Posterior mean of sigma, in units of the standardised targets.
    delta_ : array of shape (n_sparse_layers,)
        Posterior means of delta.
    sparsity_ : float
        Share of zeros in the draws of the sparse layers' weights.
    n_effective_parameters_ : float
        Mean number of parameters of a draw that are not zero.
    n_chains_, n_draws_ : int
        Chains and draws of each that ``posterior_`` holds.
    n_steps_ : int
        Steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        eta of the last step.
    batch_size_ : int
        Rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators in the last call, such as ("fused_steps", "spike_slab");
        () if there were none.
    n_features_in_ : int
        Features seen in ``fit``.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    sklearn.linear_model.ARDRegression : Another prior for the same purpose, full-data.
    SparseBayesianClassifier : The same for classes.

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

    def __init__(
        self,
        *,
        hidden_layer_sizes: Any = (),
        activation: str = "relu",
        prior: Any = "spike_slab",
        prior_scale: Any = "fan_in",
        prune: Any = None,
        threshold: float = 0.5,
        standardize: bool = True,
        sampler: Any = "psgld",
        integrator: str = "auto",
        step_size: Any = "auto",
        batch_size: Any = "auto",
        shared_minibatch: bool = False,
        n_chains: int = 4,
        chain_method: str = "auto",
        n_draws: Any = "auto",
        burn_in: Any = "auto",
        thinning: Any = "auto",
        temperature: Any = 1.0,
        init: Any = "auto",
        total_samples: float | None = None,
        warm_start: bool = False,
        compiled: Any = "auto",
        device: str = "auto",
        dtype: str = "auto",
        precision: str = "full",
        storage: Storage | None = None,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.prior_scale = prior_scale
        self.prune = prune
        self.threshold = threshold
        self.standardize = standardize
        self.sampler = sampler
        self.integrator = integrator
        self.step_size = step_size
        self.batch_size = batch_size
        self.shared_minibatch = shared_minibatch
        self.n_chains = n_chains
        self.chain_method = chain_method
        self.n_draws = n_draws
        self.burn_in = burn_in
        self.thinning = thinning
        self.temperature = temperature
        self.init = init
        self.total_samples = total_samples
        self.warm_start = warm_start
        self.compiled = compiled
        self.device = device
        self.dtype = dtype
        self.precision = precision
        self.storage = storage
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    #: sigma is the noise
    noise = "infer"

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        if self.standardize:
            super()._fit_targets(y, weight)
        else:
            self._y_center, self._y_scale = np.zeros(y.shape[1]), np.ones(y.shape[1])

    def _target_units(self) -> tuple[Any, Any]:
        return self._y_scale, self._y_center

    def _set_coefficients(self) -> None:
        super()._set_coefficients()
        if not self._y_shape:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])


class SparseBayesianClassifier(SparsePerceptron, NetworkClassifier):
    r"""Logistic regression or a perceptron with a spike-and-slab prior learned while sampling.

    As :class:`SparseBayesianRegressor`, with :math:`p(y|x) = \mathrm{softmax}(f(x))`; with two
    classes f has one output, the logit of the second.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=()
        Units of the hidden layers; none: a linear model.
    activation : {"relu", "tanh", "logistic"}, default="relu"
        Their activation.
    prior : "spike_slab" or SpikeSlab, default="spike_slab"
        Prior on the weights of its layers, with its hyperparameters and how its latent variables
        follow the chain; "spike_slab" means ``SpikeSlab()``. Biases and other layers have a normal
        prior.
    prior_scale : "fan_in", float or sequence of float, default="fan_in"
        Standard deviation of the normal prior on biases and on layers that are not sparse; "fan_in"
        as for :class:`BayesianMLPClassifier`.
    prune : None, float or Pruning, default=None
        Set the smallest weights to zero while sampling: the share of zeros at the end, or a
        :class:`Pruning` with its schedule and its layers.
    threshold : float, default=0.5
        A feature is selected if its inclusion probability is larger.
    class_weight : dict, "balanced" or None, default=None
        Likelihood exponents by class, as in scikit-learn.
    standardize : bool, default=True
        Let the model see features of mean 0 and variance 1.
    sampler : str or Sampler, default="psgld"
        The sampler, by name or as an object with parameters such as ``PSGLD(adapt="always")``:
        "psgld", "sgld", "sghmc", "sgnht" or "msgnht".
    integrator : str, default="auto"
        How a step of the sampler is discretised: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most exact one, or Euler if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        eta, which multiplies the gradient of the mean potential, like a learning rate. "auto":
        0.001 for pSGLD, or up to 0.02 for linear models, as far as steps are small in the spike;
        0.03 for SGLD, 0.005 for the second-order samplers.
    batch_size : "auto" or int, default="auto"
        Rows in a minibatch, at most all. "auto": all rows of very small data, else 100.
    shared_minibatch : bool, default=False
        One minibatch for all chains of a step. This is faster, but the chains' errors are then
        correlated, so that R-hat and MCSE are too small.
    n_chains : int, default=4
        Number of chains. They advance together and predict together; each has a start of its own.
    chain_method : {"auto", "vectorized", "sequential"}, default="auto"
        Whether all chains take a step together or one after the other. The draws are the same but
        for rounding. "auto": together, in one batched computation.
    n_draws : "auto" or int, default="auto"
        Draws kept of each chain. "auto": 100, or fewer where they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Steps before the first draw. "auto": ten passes over the rows, at least 3000 steps, or
        10,000 for linear models.
    thinning : "auto", int or MixingDistance, default="auto"
        Steps between two draws of a chain. "auto": so that the draws take as long as the burn-in.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser.
        ``SpikeSlab(adaptation="gibbs")`` allows 1 only.
    init : "auto", "random", "map" or array, default="auto"
        Where chains start. "random": He's normal weights. "map": from there, the first half of the
        burn-in at temperature 0, an optimiser. An array broadcasts to (n_chains, n_parameters).
        "auto": "random".
    total_samples : float or None, default=None
        N of ``partial_fit``, the number of rows of the whole stream; None: the rows seen so far.
    warm_start : bool, default=False
        Go on from the last state of the chains at the next ``fit``.
    compiled : "auto" or bool, default="auto"
        Use the compiled code of the extra ``fast`` where it applies (on a CPU, in long runs: the
        latent variables, gradients of linear models with one output or two classes, and the steps
        of SGLD and pSGLD by Euler). The steps have a random number generator of their own, and so
        other draws for the same seed.
    device : str, default="auto"
        "cpu", "cuda", ...; "auto" takes CUDA if there. Predictions are computed there too, or on
        the CPU where a fitted model's device is missing.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float64 on a CPU up to 100,000 parameters, else float32.
    precision : {"full", "bfloat16"}, default="full"
        "bfloat16": the network's products in gradients, which some hardware makes faster.
        Parameters, noise, updates, likelihood, draws and predictions are in float32.
    storage : Storage or None, default=None
        Precision and place in which draws are kept, such as ``Storage(dtype="bfloat16",
        dir="draws")``. None: in memory, in the precision of the sampling.
    checkpoint : path or None, default=None
        File from which an interrupted fit with the same data and parameters goes on,
        bit-identically on a CPU. It is kept after the fit.
    n_jobs : int or None, default=None
        Groups of chains that run in parallel through joblib; None: all chains as one batch.
    random_state : int, RandomState or None, default=None
        Seed; chain c has the same random numbers whatever ``n_chains`` and ``n_jobs``.
    verbose : int, default=0
        Print progress if positive. Scikit-learn's callbacks work too.

    Attributes
    ----------
    posterior_ : PosteriorSamples
        Draws "weight_1" (n_chains, n_draws, n_features, units), "bias_1" and so on, for
        standardised inputs; "rho_weight_1", the probabilities of the slabs, likewise for each
        sparse layer, "sigma" (n_chains, n_draws) and "logit_delta" (n_chains, n_draws, n_layers):
        the latent variables' paths, from the first step on with ``burn_in=0``.
    coef_ : array of shape (n_logits, n_features)
        Posterior means of a linear model's coefficients, in the units of X.
    intercept_ : array of shape (n_logits,)
        Of its intercepts.
    inclusion_probability_ : array of shape (n_features,)
        Posterior mean of rho of each feature: the largest of those of its weights in the first
        layer; if that is sparse.
    sigma_ : float
        Posterior mean of sigma.
    delta_ : array of shape (n_sparse_layers,)
        Posterior means of delta.
    sparsity_ : float
        Share of zeros in the draws of the sparse layers' weights.
    n_effective_parameters_ : float
        Mean number of parameters of a draw that are not zero.
    n_chains_, n_draws_ : int
        Chains and draws of each that ``posterior_`` holds.
    n_steps_ : int
        Steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        eta of the last step.
    batch_size_ : int
        Rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators in the last call, such as ("fused_steps", "spike_slab");
        () if there were none.
    classes_ : array of shape (n_classes,)
        Labels.
    n_features_in_ : int
        Features seen in ``fit``.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    sklearn.linear_model.LogisticRegression : Its L1 penalty is the spike alone, at the mode.
    SparseBayesianRegressor : The same for regression.

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

    def __init__(
        self,
        *,
        hidden_layer_sizes: Any = (),
        activation: str = "relu",
        prior: Any = "spike_slab",
        prior_scale: Any = "fan_in",
        prune: Any = None,
        threshold: float = 0.5,
        class_weight: Any = None,
        standardize: bool = True,
        sampler: Any = "psgld",
        integrator: str = "auto",
        step_size: Any = "auto",
        batch_size: Any = "auto",
        shared_minibatch: bool = False,
        n_chains: int = 4,
        chain_method: str = "auto",
        n_draws: Any = "auto",
        burn_in: Any = "auto",
        thinning: Any = "auto",
        temperature: Any = 1.0,
        init: Any = "auto",
        total_samples: float | None = None,
        warm_start: bool = False,
        compiled: Any = "auto",
        device: str = "auto",
        dtype: str = "auto",
        precision: str = "full",
        storage: Storage | None = None,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.prior_scale = prior_scale
        self.prune = prune
        self.threshold = threshold
        self.class_weight = class_weight
        self.standardize = standardize
        self.sampler = sampler
        self.integrator = integrator
        self.step_size = step_size
        self.batch_size = batch_size
        self.shared_minibatch = shared_minibatch
        self.n_chains = n_chains
        self.chain_method = chain_method
        self.n_draws = n_draws
        self.burn_in = burn_in
        self.thinning = thinning
        self.temperature = temperature
        self.init = init
        self.total_samples = total_samples
        self.warm_start = warm_start
        self.compiled = compiled
        self.device = device
        self.dtype = dtype
        self.precision = precision
        self.storage = storage
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _make_network(self, n_outputs: int) -> Any:
        from ..models.networks.network import ReferenceClass

        if n_outputs > 2:
            return super()._make_network(n_outputs)
        return ReferenceClass(super()._make_network(1))
