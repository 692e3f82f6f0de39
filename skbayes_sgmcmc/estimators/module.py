"""Bayesian versions of any torch module."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._draws.storage import Storage
from .._validation import check_sizes
from ._network import NetworkClassifier
from ._sparse import SparseNetwork, SparseNetworkRegressor

Array = NDArray[Any]


class _Module(SparseNetwork):
    module: Any
    input_shape: Any
    n_features_in_: int

    def _check(self) -> Any:
        if not callable(self.module):
            raise ValueError(
                f"module={self.module!r} is not allowed: give a callable that builds a "
                "torch.nn.Module."
            )
        if self.input_shape is not None:
            check_sizes("input_shape", self.input_shape)
        return super()._check()

    def _architecture(self, n_outputs: int) -> Any:
        from ..models.networks.module import bind

        widths = {
            "n_features": self.n_features_in_,
            "input_shape": self._row_shape(),
            "n_outputs": n_outputs,
        }
        return bind(self.module, **widths)

    def _check_network(self, X: Array) -> None:
        # two rows through the module: its output must be (rows, n_outputs)
        import torch

        from ..models.networks.module import check_outputs

        if self.input_shape is not None and math.prod(self._row_shape()) != X.shape[1]:
            raise ValueError(
                f"input_shape={self.input_shape!r} is not allowed: a row of X has {X.shape[1]} "
                "numbers."
            )
        network = self._make_network(self._n_outputs)
        theta = torch.from_numpy(network.init(np.random.default_rng(0))).float()[None]
        x = torch.from_numpy(np.ascontiguousarray(self._inputs(X[:2]), np.float32))[None]
        with torch.no_grad():
            outputs = network.outputs(theta, x)[0]
        if self._vectorized:
            network.forward(theta.expand(2, -1), x)  # it says if it can't
        check_outputs("module", self.module, outputs, (x.shape[1], self._n_outputs))

    def _row_shape(self) -> tuple[int, ...]:
        if self.input_shape is None:
            return super()._row_shape()
        return check_sizes("input_shape", self.input_shape)


class BayesianModuleClassifier(_Module, NetworkClassifier):
    r"""Any torch module as a classifier with a posterior drawn by stochastic-gradient MCMC.

    Parameters
    ----------
    module : callable
        It builds a ``torch.nn.Module`` that maps rows (n, ...) to logits (n, n_classes). It is
        called with those of the keyword arguments ``n_features``, ``input_shape`` (of one row) and
        ``n_outputs`` (the classes) that its signature names, so that one function can serve any
        data. The module must not have dropout. To be pickled, the callable must be a function or
        class of a Python module, or a ``functools.partial`` of one.
    input_shape : tuple of int or None, default=None
        Shape to which rows of X are brought; None: as they are.
    prior : {"normal", "laplace", "spike_slab"}, Prior or SpikeSlab, default="normal"
        Prior on all weights and biases. A :class:`SpikeSlab`, which "spike_slab" means with its
        defaults, is the prior of the weights of its layers; biases and other layers have a normal
        prior.
    prior_scale : "fan_in", float or sequence of float, default="fan_in"
        As for :class:`BayesianMLPClassifier`; a sequence has one number for each matrix or kernel.
    prune : None, float or Pruning, default=None
        Set the smallest weights to zero while sampling: the share of zeros at the end, or a
        :class:`Pruning` with its schedule and its layers.
    class_weight : dict, "balanced" or None, default=None
        Likelihood exponents by class, as in scikit-learn.
    standardize : bool, default=False
        Let the module see features of mean 0 and variance 1.
    augment : callable or None, default=None
        Random changes to the inputs of every minibatch: ``augment(x, rng)`` returns the changed
        inputs (..., *shape of a row), on their device. See :mod:`skbayes_sgmcmc.augmentation`.
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
        for rounding. "auto": together, by ``torch.func.vmap``, if the module has at most 10,000
        parameters (on a GPU 1,000,000) and vmap can take it.
    n_draws : "auto" or int, default="auto"
        Draws kept of each chain. "auto": 100, or fewer where they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Steps before the first draw. "auto": ten passes over the rows, at least 3000 steps.
    thinning : "auto", int or MixingDistance, default="auto"
        Steps between two draws of a chain. "auto": so that the draws take as long as the burn-in.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser.
        ``SpikeSlab(adaptation="gibbs")`` allows 1 only.
    init : "auto", "random", "map" or array, default="auto"
        Where chains start. "random": He's normal weights. "map": from there, the first half of the
        burn-in at temperature 0, an optimiser. An array broadcasts to (n_chains, n_parameters).
        "auto": "map" with ``step_size="auto"``, else "random"; always "random" with a
        spike-and-slab prior.
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
        Draws of the parameters, (n_chains, n_draws, *shape), by their names in the module.
    sigma_, delta_, sparsity_, n_effective_parameters_
        With a spike-and-slab prior or pruning; see :class:`SparseBayesianRegressor`.
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
        Numbers in a row.

    See Also
    --------
    BayesianMLPClassifier, BayesianCNNClassifier : Networks with their own, faster code.

    Notes
    -----
    Batch norms use the statistics of the minibatch while sampling, as in training. For predictions
    each draw needs its own: they are computed over (at most 5000) training rows, after the run or
    when a callback asks for predictions, and kept with the draws. In ``partial_fit`` they are those
    of the rows of the call.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianModuleClassifier
    >>> def module(n_features, n_outputs):
    ...     return torch.nn.Sequential(
    ...         torch.nn.Linear(n_features, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(),
    ...         torch.nn.Linear(8, n_outputs))
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianModuleClassifier(module, standardize=True, n_chains=2, burn_in=2000,
    ...                                n_draws=50, thinning=10, random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        module: Any,
        *,
        input_shape: Any = None,
        prior: Any = "normal",
        prior_scale: Any = "fan_in",
        prune: Any = None,
        class_weight: Any = None,
        standardize: bool = False,
        augment: Any = None,
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
        self.module = module
        self.input_shape = input_shape
        self.prior = prior
        self.prior_scale = prior_scale
        self.prune = prune
        self.class_weight = class_weight
        self.standardize = standardize
        self.augment = augment
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


class BayesianModuleRegressor(_Module, SparseNetworkRegressor):
    r"""Any torch module as a regressor with a posterior drawn by stochastic-gradient MCMC.

    Targets are standardised inside; predictions are in their own units.

    Parameters
    ----------
    module : callable
        It builds a ``torch.nn.Module`` that maps rows (n, ...) to outputs (n, n_outputs), as for
        :class:`BayesianModuleClassifier`.
    input_shape : tuple of int or None, default=None
        Shape to which rows of X are brought; None: as they are.
    prior : {"normal", "laplace", "spike_slab"}, Prior or SpikeSlab, default="normal"
        Prior on all weights and biases. A :class:`SpikeSlab`, which "spike_slab" means with its
        defaults, is the prior of the weights of its layers; biases and other layers have a normal
        prior.
    prior_scale : "fan_in", float or sequence of float, default="fan_in"
        As for :class:`BayesianMLPClassifier`; a sequence has one number for each matrix or kernel.
    noise : "infer" or float, default="infer"
        Standard deviation of the noise; as for :class:`BayesianMLPRegressor`.
    prune : None, float or Pruning, default=None
        Set the smallest weights to zero while sampling: the share of zeros at the end, or a
        :class:`Pruning` with its schedule and its layers.
    standardize : bool, default=False
        Let the module see features of mean 0 and variance 1.
    augment : callable or None, default=None
        Random changes to the inputs of every minibatch: ``augment(x, rng)`` returns the changed
        inputs (..., *shape of a row), on their device. See :mod:`skbayes_sgmcmc.augmentation`.
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
        for rounding. "auto": together, by ``torch.func.vmap``, if the module has at most 10,000
        parameters (on a GPU 1,000,000) and vmap can take it.
    n_draws : "auto" or int, default="auto"
        Draws kept of each chain. "auto": 100, or fewer where they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Steps before the first draw. "auto": ten passes over the rows, at least 3000 steps.
    thinning : "auto", int or MixingDistance, default="auto"
        Steps between two draws of a chain. "auto": so that the draws take as long as the burn-in.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser.
        ``SpikeSlab(adaptation="gibbs")`` allows 1 only.
    init : "auto", "random", "map" or array, default="auto"
        Where chains start. "random": He's normal weights. "map": from there, the first half of the
        burn-in at temperature 0, an optimiser. An array broadcasts to (n_chains, n_parameters).
        "auto": "map" with ``step_size="auto"``, else "random"; always "random" with a
        spike-and-slab prior.
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
        Draws of the parameters, (n_chains, n_draws, *shape), by their names in the module.
    sigma_, delta_, sparsity_, n_effective_parameters_
        With a spike-and-slab prior or pruning; see :class:`SparseBayesianRegressor`.
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
        Numbers in a row.

    See Also
    --------
    BayesianMLPRegressor : A network with its own, faster code.
    BayesianModuleClassifier : The same for classes; its notes on batch norms apply.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skbayes_sgmcmc import BayesianModuleRegressor
    >>> X = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> reg = BayesianModuleRegressor(lambda: torch.nn.Linear(1, 1), n_chains=2, random_state=0)
    >>> reg.fit(X, 3.0 * X[:, 0]).score(X, 3.0 * X[:, 0]) > 0.99
    True
    """

    def __init__(
        self,
        module: Any,
        *,
        input_shape: Any = None,
        prior: Any = "normal",
        prior_scale: Any = "fan_in",
        noise: Any = "infer",
        prune: Any = None,
        standardize: bool = False,
        augment: Any = None,
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
        self.module = module
        self.input_shape = input_shape
        self.prior = prior
        self.prior_scale = prior_scale
        self.noise = noise
        self.prune = prune
        self.standardize = standardize
        self.augment = augment
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
