"""Bayesian classifiers from any torch module."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from .._draws.storage import Storage
from ..schedules import MixingDistance, Schedule
from ._module import ModuleEstimator
from ._network import NetworkClassifier

if TYPE_CHECKING:
    from ..models.networks.pruning import Pruning
    from ..priors import LearnedScale, Prior, SpikeSlab
    from ..samplers import Sampler


@dataclass(eq=False, repr=False)
class BayesianModuleClassifier(ModuleEstimator, NetworkClassifier):
    r"""Bayesian classifier from any torch module, sampled by stochastic-gradient MCMC.

    Parameters
    ----------
    module : torch.nn.Module, callable, or pair of a callable and weights
        Module that maps rows (n, ...) to logits (n, n_classes). It is copied in ``fit`` and never
        changed; its weights are where the chains start. Or a function or class that builds a
        module. It is called with the keyword arguments that its signature names among
        ``n_features``, ``input_shape`` (the shape of one row) and ``n_outputs`` (the number of
        classes), so the same function can serve different data. Its random numbers follow
        ``random_state``, and torch's global state is untouched. The estimator can then be pickled
        only if the callable is a function or class of a Python module, or a ``functools.partial``
        of one. Weights in a pair are a state dict, or the path of a file that ``torch.save`` wrote.
        Dropout and other random layers are switched off, with a :class:`RandomLayerWarning`. A
        final softmax or sigmoid layer is left out, with a warning.
    input_shape : tuple of int or None, default=None
        Shape of the rows that the module gets, such as (channels, height, width). Rows of X may
        be flat or have this shape. None: rows as they are. X may be an array or a tensor of any
        rank, or a tuple or a mapping of these, which are then the module's arguments. Integers and
        booleans stay such if the module takes them.
    sample_parameters : str, sequence of str or callable, default="trainable"
        Parameters of the module that are sampled; the others keep their values. "trainable": those
        with ``requires_grad``. "all": all of them. "last_layer": those of the linear layer that is
        called last. Otherwise names of parameters or layers, or patterns such as "head.*", one or
        several; or a callable of name and parameter that returns True for those to sample. Batch
        norms that are not sampled use their running statistics.
    prior : {"normal", "laplace", "spike_slab"}, Prior or SpikeSlab, default="normal"
        Prior on all weights and biases. A :class:`SpikeSlab` is the prior on the weights of the
        layers that it names; biases and other layers then have a normal prior. "spike_slab" means
        ``SpikeSlab()``.
    prior_scale : str, LearnedScale, float or sequence of float, default="auto"
        Scale of the prior, as for :class:`BayesianMLPClassifier`. A sequence has one number for
        each sampled matrix or kernel. "auto": "learned" with a normal prior and without pruning,
        except at temperatures between 0 and 1, otherwise "fan_in". If a last layer is sampled as a
        linear model of features, "auto" with a normal prior is the one number that makes the data
        most likely, ``prior_scale_``.
    prior_center : {0, "module"}, default=0
        Centre of the prior. "module": the weights of the module that was given. Not allowed with a
        spike-and-slab prior or pruning.
    prune : None, float or Pruning, default=None
        Pruning of the smallest weights during sampling: the final fraction of zeros, or a
        :class:`Pruning` that also sets the schedule and the layers. None: no pruning.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class, as in scikit-learn: the exponent of the likelihood of its rows.
        ``partial_fit`` refuses "balanced", since it does not know later rows.
    standardize : bool, default=False
        If True, the module sees features scaled to mean 0 and variance 1.
    augment : callable or None, default=None
        Data augmentation: ``augment(x, rng)`` returns randomly changed inputs of a minibatch, with
        the same shape, ``(..., *shape of a row)``, and device. See
        :mod:`skbayes_sgmcmc.augmentation`.
    n_workers : int, default=0
        Number of processes that fetch the items of a dataset in advance, as in
        ``torch.utils.data.DataLoader``. 0: they are fetched in this process.
    sampler : str or Sampler, default="auto"
        Sampler, as a name or as an object with parameters such as ``PSGLD(adapt="always")``. Names:
        "psgld", "sgld", "mclmc", "sghmc", "sgnht", "msgnht" and, for a logistic regression of
        features, "mala". "auto": "sgld" for such a regression, otherwise "psgld".
    integrator : str, default="auto"
        Integrator that discretises the sampler's dynamics: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most accurate integrator, or "euler" if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
        "auto": 0.002 for pSGLD; with the other samplers, each chain finds its own in the burn-in.
    batch_size : "auto" or int, default="auto"
        Number of rows in a minibatch, at most all rows. "auto": all rows if X has at most 32,768
        values, otherwise 100.
    n_chains : int, default=4
        Number of chains. Each chain has its own starting point. Predictions average over all
        chains.
    chain_method : {"auto", "vectorized", "sequential"}, default="auto"
        Whether the chains take each step together ("vectorized") or one after the other
        ("sequential"). The draws are the same up to rounding. "auto": together, with
        ``torch.func.vmap``, if the module has at most 10,000 parameters (1,000,000 on a GPU) and
        vmap supports it.
    n_draws : "auto" or int, default="auto"
        Number of draws kept per chain. "auto": 100, or fewer if they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
        least 3000 steps (MCLMC with minibatches: 7000); half as many as the draws take if
        ``step_size`` is a number.
    thinning : "auto", int or MixingDistance, default="auto"
        Number of steps between two draws of a chain in ``fit``. "auto": such that the draws take as
        many steps as ``burn_in="auto"`` would; a tenth of a pass, at most 100, if ``step_size`` is
        a number.
    max_steps : int or None, default=None
        Bound on the steps of each chain in ``fit``, which makes a fit shorter. Lengths that are
        "auto" shrink in proportion; given ones that take more steps are refused. The descents that
        chains of MCLMC and MALA start with compute at most a tenth as many gradients of rows. None:
        no bound. ``partial_fit`` takes one pass over its rows, and ignores ``burn_in``,
        ``thinning`` and ``max_steps``.
    temperature : float or Schedule, default=1.0
        Temperature T of the target exp(-U/T): 1 samples the posterior, 0 is an optimiser.
        ``SpikeSlab(adaptation="gibbs")`` allows only 1.
    init : "auto", "module", "random", "map" or array, default="auto"
        Starting points of the chains. "module": the weights of the module plus normal numbers with
        a standard deviation of 1% of the root mean square of each tensor. "random": normal weights
        with He's scaling. "map": as "random", and the first half of the burn-in runs at temperature
        0, as an optimiser; so it does for "module" with ``step_size="auto"``. An array is broadcast
        to (n_chains, n_parameters). "auto": "module" if ``module`` is a module; otherwise "map"
        with ``step_size="auto"``, else "random". With a spike-and-slab prior, "auto" is "random".
    validation_fraction : float, default=0.15
        Share of the rows, 2,000 at most, that stop the descent that chains of MCLMC and MALA start
        with: it ends when their likelihood no longer improves. Every chain has its own, and samples
        the posterior of all rows afterwards. With fewer than 20 different rows, and other samplers
        or starts, there are none.
    total_samples : float or None, default=None
        Number of rows N of the whole stream in ``partial_fit``. None: the rows seen so far.
    warm_start : bool, default=False
        If True, the next ``fit`` continues from the last state of the chains.
    compiled : "auto" or bool, default="auto"
        Whether to use the compiled code of the extra ``fast`` where it applies: SGLD and pSGLD with
        the Euler integrator, in long runs on a CPU. It has its own random number generator, so the
        same seed gives different draws. On a GPU, True records and replays whole
        steps (CUDA graphs).
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
    classes_ : array of shape (n_classes,), or list of arrays
        Class labels; with several targets, a list with those of each, or the numbers of the columns
        of y if all labels are 0 and 1.
    posterior_ : PosteriorSamples
        Draws of the sampled parameters, each of shape ``(n_chains, n_draws, *shape)``, by their
        names in the module.
    sigma_, delta_, sparsity_, n_effective_parameters_
        Only with a spike-and-slab prior or pruning; see :class:`SparseBayesianRegressor`.
    prior_scale_ : float
        Standard deviation of the prior of a last layer's weights, if "auto" has estimated it.
    n_chains_, n_draws_ : int
        Number of chains in ``posterior_`` and number of draws of each chain.
    n_steps_ : int
        Number of steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        Step size eta of the last step.
    batch_size_ : int
        Number of rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators used in the last call, such as ("fused_steps",); () if none.
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
        Number of values in a row.

    See Also
    --------
    BayesianMLPClassifier, BayesianCNNClassifier : Networks with specialised, faster code.

    Notes
    -----
    The module is in evaluation mode throughout, so dropout and other random layers do nothing.
    During sampling, batch norms with all parameters sampled use the statistics of the
    minibatch, as in training. For predictions, each draw needs its own statistics. They are
    computed on at most 5000 training rows, after the run or when a callback asks for predictions,
    and are stored with the draws. In ``partial_fit``, they are computed on the rows of the call.
    Other batch norms use their running statistics.

    With several targets, the module has the logits of the classes of the first one, then those of
    the second, and so on: two for each label of a multilabel y.

    If only a final linear layer is sampled, the features before it are computed once, in memory or
    in ``storage.dir``. With a normal prior, or a Laplace prior of given scale and more than two
    classes, the layer is then sampled as :class:`BayesianLogisticRegression` is. "auto" has the
    meaning that it has there (SGHMC with all rows, or SGLD with minibatches, in coordinates that
    suit the data, started near the posterior), but there are 400 draws of each chain. The biases
    have a flat prior. With two classes, the draws of the two rows of weights have opposite signs.

    References
    ----------
    Li, Chen, Carlson & Carin (2016), Preconditioned stochastic gradient Langevin dynamics for deep
    neural networks, AAAI.
    MacKay (1992), The evidence framework applied to classification networks, Neural Computation.

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
    ...                                n_draws=50, thinning=40, random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """

    module: nn.Module | Callable[..., nn.Module] | tuple[Callable[..., nn.Module], Any]
    _: KW_ONLY
    input_shape: Sequence[int] | None = None
    sample_parameters: str | Sequence[str] | Callable[..., bool] = "trainable"
    prior: Prior | SpikeSlab | Literal["normal", "laplace", "spike_slab"] = "normal"
    prior_scale: float | Sequence[float] | LearnedScale | str = "auto"
    prior_center: Literal[0, "module"] = 0
    prune: float | Pruning | None = None
    class_weight: dict[Any, float] | list[dict[Any, float]] | Literal["balanced"] | None = None
    standardize: bool = False
    augment: Callable[..., Any] | None = None
    n_workers: int = 0
    sampler: str | Sampler = "auto"
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
    init: ArrayLike | Literal["auto", "module", "random", "map"] = "auto"
    validation_fraction: float = 0.15
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

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Continue sampling with new rows of a stream, for one pass over these rows.

        The target is the posterior given ``total_samples`` rows or, if that is None, given the rows
        seen so far. The newest ``n_draws`` draws of each chain are kept. The first call after
        ``fit`` starts a new stream, unless ``warm_start=True``.

        Parameters
        ----------
        X : array, tuple or mapping of arrays, or dataset
            New rows, as for ``fit``.
        y : array of shape (n_samples,) or None, default=None
            Their labels. None: those of the items of a dataset.
        classes : array of shape (n_classes,) or None, default=None
            All classes of the stream. Required in the first call, unless y contains all classes.
        sample_weight : array of shape (n_samples,) or None, default=None
            Nonnegative weights of the rows, as for ``fit``.

        Returns
        -------
        self
        """
        return super().partial_fit(X, y, classes, sample_weight)
