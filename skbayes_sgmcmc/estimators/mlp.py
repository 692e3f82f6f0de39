"""Bayesian multilayer perceptrons."""

from __future__ import annotations

from typing import Any

from .._draws.storage import Storage
from .._validation import check_choice, check_sizes
from ._network import NetworkClassifier, NetworkEstimator, NormalNetworkRegressor


class _MLP(NetworkEstimator):
    hidden_layer_sizes: Any
    activation: str

    def _check(self) -> Any:
        from ..models.networks.mlp import ACTIVATIONS

        settings = super()._check()
        check_sizes("hidden_layer_sizes", self.hidden_layer_sizes)
        check_choice("activation", self.activation, ACTIVATIONS)
        return settings

    def _make_network(self, n_outputs: int) -> Any:
        from ..models.networks.mlp import MLP

        return MLP(self._sizes(n_outputs), self.activation)

    def _architecture(self, n_outputs: int) -> Any:
        from ..models.networks.module import Architecture

        return Architecture("mlp", self._sizes(n_outputs), self.activation)

    def _sizes(self, n_outputs: int) -> tuple[int, ...]:
        hidden = check_sizes("hidden_layer_sizes", self.hidden_layer_sizes)
        return self.n_features_in_, *hidden, n_outputs


class BayesianMLPClassifier(_MLP, NetworkClassifier):
    r"""Multilayer perceptron with a posterior drawn by stochastic-gradient MCMC.

    .. math::
        p(y|x) = \mathrm{softmax}(f(x)),\quad f(x) = W_L\, a(\dots a(W_1 x + b_1) \dots) + b_L,
        \quad W, b \sim \text{prior}

    The defaults need no tuning on small ordinary data, scaled or not: four chains each find a mode
    and then sample around it at temperature 1, and predictions are averaged over all draws.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Units of the hidden layers.
    activation : {"relu", "tanh", "logistic"}, default="relu"
        Their activation.
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on weights and biases.
    prior_scale : "fan_in", float or sequence of float, default="fan_in"
        Standard deviation of the normal prior, or b of the Laplace prior; one number, or one a
        layer. "fan_in": sqrt(2 / fan-in) for hidden weights, 4 / sqrt(fan-in) for those of the
        outputs, and 1 for biases, which makes the prior of the function independent of the width.
    class_weight : dict, "balanced" or None, default=None
        Likelihood exponents by class, as in scikit-learn.
    standardize : bool, default=True
        Let the network see features of mean 0 and variance 1.
    sampler : str or Sampler, default="psgld"
        The sampler, by name or as an object with parameters such as ``PSGLD(adapt="always")``:
        "psgld", "sgld", "sghmc", "sgnht" or "msgnht".
    integrator : str, default="auto"
        How a step of the sampler is discretised: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most exact one, or Euler if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        eta, which multiplies the gradient of the mean potential, like a learning rate. "auto":
        0.001 for pSGLD, 0.03 for SGLD, 0.005 for the second-order samplers' splittings.
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
        Steps before the first draw. "auto": ten passes over the rows, at least 3000 steps.
    thinning : "auto", int or MixingDistance, default="auto"
        Steps between two draws of a chain. "auto": so that the draws take as long as the burn-in.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser.
    init : "auto", "random", "map" or array, default="auto"
        Where chains start. "random": He's normal weights. "map": from there, the first half of the
        burn-in at temperature 0, an optimiser. An array broadcasts to (n_chains, n_parameters).
        "auto": "map" with ``step_size="auto"``, else "random".
    total_samples : float or None, default=None
        N of ``partial_fit``, the number of rows of the whole stream; None: the rows seen so far.
    warm_start : bool, default=False
        Go on from the last state of the chains at the next ``fit``.
    compiled : "auto" or bool, default="auto"
        Use the compiled code of the extra ``fast`` where it applies (SGLD and pSGLD by Euler, in
        long runs on a CPU). It has a random number generator of its own, and so other draws for the
        same seed. On a GPU, True replays gradients as a CUDA graph.
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
    classes_ : array of shape (n_classes,)
        Class labels.
    posterior_ : PosteriorSamples
        Draws "weight_1" (n_chains, n_draws, n_features, units), "bias_1" and so on.
    n_chains_, n_draws_ : int
        Chains and draws of each that ``posterior_`` holds.
    n_steps_ : int
        Steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        eta of the last step.
    batch_size_ : int
        Rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators in the last call, such as ("fused_steps",);
        () if there were none.
    n_features_in_ : int
        Features seen in ``fit``.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    sklearn.neural_network.MLPClassifier : One network, by optimisation.
    BayesianMLPRegressor : The same for continuous targets.

    Notes
    -----
    Weights of different chains can't be compared (hidden units can be exchanged), so chains are
    compared by their predictions: a warning says when these disagree. At temperature 1 networks are
    often less sure than calibration needs; colder posteriors (``temperature=0.1``) are not
    Bayesian, but predict better at times.

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
    PosteriorSamples(4 chains x 100 draws, {weight_1: (4, 100), bias_1: (100,), ...})
    """

    def __init__(
        self,
        *,
        hidden_layer_sizes: Any = (100,),
        activation: str = "relu",
        prior: Any = "normal",
        prior_scale: Any = "fan_in",
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


class BayesianMLPRegressor(_MLP, NormalNetworkRegressor):
    r"""Multilayer perceptron for regression with a posterior drawn by stochastic-gradient MCMC.

    .. math::
        y \sim N(f(x), \sigma^2),\quad f(x) = W_L\, a(\dots a(W_1 x + b_1) \dots) + b_L,
        \quad W, b \sim \text{prior}

    Targets are standardised inside; predictions are in their own units.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Units of the hidden layers.
    activation : {"relu", "tanh", "logistic"}, default="relu"
        Their activation.
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on weights and biases.
    prior_scale : "fan_in", float or sequence of float, default="fan_in"
        Standard deviation of the normal prior, or b of the Laplace prior; one number, or one a
        layer. "fan_in": sqrt(2 / fan-in) for hidden weights, 1 / sqrt(fan-in) for those of the
        outputs, and 1 for biases, which makes the prior of the function independent of the width.
    noise : "infer" or float, default="infer"
        Standard deviation sigma of the noise, in units of y, the same for all outputs; "infer": one
        for each output, with the prior log(sigma / 0.3 sd(y)) ~ N(0, 1), or Laplace(0, 1) with
        ``prior="laplace"``.
    standardize : bool, default=True
        Let the network see features of mean 0 and variance 1.
    sampler : str or Sampler, default="psgld"
        The sampler, by name or as an object with parameters such as ``PSGLD(adapt="always")``:
        "psgld", "sgld", "sghmc", "sgnht" or "msgnht".
    integrator : str, default="auto"
        How a step of the sampler is discretised: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most exact one, or Euler if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        eta, which multiplies the gradient of the mean potential, like a learning rate. "auto":
        0.001 for pSGLD, 0.03 for SGLD, 0.005 for the second-order samplers' splittings.
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
        Steps before the first draw. "auto": ten passes over the rows, at least 3000 steps.
    thinning : "auto", int or MixingDistance, default="auto"
        Steps between two draws of a chain. "auto": so that the draws take as long as the burn-in.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser.
    init : "auto", "random", "map" or array, default="auto"
        Where chains start. "random": He's normal weights. "map": from there, the first half of the
        burn-in at temperature 0, an optimiser. An array broadcasts to (n_chains, n_parameters).
        "auto": "map" with ``step_size="auto"``, else "random".
    total_samples : float or None, default=None
        N of ``partial_fit``, the number of rows of the whole stream; None: the rows seen so far.
    warm_start : bool, default=False
        Go on from the last state of the chains at the next ``fit``.
    compiled : "auto" or bool, default="auto"
        Use the compiled code of the extra ``fast`` where it applies (SGLD and pSGLD by Euler, in
        long runs on a CPU). It has a random number generator of its own, and so other draws for the
        same seed. On a GPU, True replays gradients as a CUDA graph.
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
        standardised inputs and targets, and "log_noise", log(sigma / 0.3 sd(y)).
    n_chains_, n_draws_ : int
        Chains and draws of each that ``posterior_`` holds.
    n_steps_ : int
        Steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        eta of the last step.
    batch_size_ : int
        Rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators in the last call, such as ("fused_steps",);
        () if there were none.
    n_features_in_ : int
        Features seen in ``fit``.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    sklearn.neural_network.MLPRegressor : One network, by optimisation.
    BayesianMLPClassifier : The same for classes.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import BayesianMLPRegressor
    >>> X = np.linspace(-2.0, 2.0, 100)[:, None]
    >>> y = np.sin(2.0 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(100)
    >>> reg = BayesianMLPRegressor(hidden_layer_sizes=30, random_state=0).fit(X, y)
    >>> reg.score(X, y) > 0.9
    True
    >>> mean, sd = reg.predict([[0.0], [4.0]], return_std=True)
    >>> bool(sd[1] > 2 * sd[0])
    True
    """

    def __init__(
        self,
        *,
        hidden_layer_sizes: Any = (100,),
        activation: str = "relu",
        prior: Any = "normal",
        prior_scale: Any = "fan_in",
        noise: Any = "infer",
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
        self.noise = noise
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
