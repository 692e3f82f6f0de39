"""Bayesian regressors from any torch module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from numpy.typing import ArrayLike
from torch import nn

from ._descriptions import NETWORK, SHARED, described
from ._module import ModuleEstimator
from ._network import NetworkRegressor

if TYPE_CHECKING:
    from ..models.networks.pruning import Pruning
    from ..models.student_likelihood import StudentT
    from ..models.torch_likelihood import TorchLikelihood
    from ..models.tweedie_likelihood import Tweedie
    from ..priors import LearnedScale, Prior, SpikeSlab
    from ..samplers import Sampler


@described(SHARED | NETWORK)
@dataclass(eq=False, repr=False)
class BayesianModuleRegressor(ModuleEstimator, NetworkRegressor):
    r"""Bayesian regressor from any torch module, sampled by stochastic-gradient MCMC.

    Targets are standardised internally, unless they are counts. Predictions are in the units of y.

    Parameters
    ----------
    module : torch.nn.Module, callable, or pair of a callable and weights
        Module that maps rows (n, ...) to outputs (n, n_outputs), a function or class that builds
        one, or a pair of these and weights, as for :class:`BayesianModuleClassifier`. There is one
        output for each target. With ``noise="heteroscedastic"`` there are twice as many: first the
        means, then s(x) of each target, as for :class:`BayesianMLPRegressor`.
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
    likelihood : str, StudentT, Tweedie or TorchLikelihood, default="normal"
        Distribution of the targets, as for :class:`BayesianMLPRegressor`, or a
        :class:`TorchLikelihood` of your own. A spike-and-slab prior allows only "normal".
    noise : "infer", "heteroscedastic" or float, default="infer"
        Standard deviation of the noise, as for :class:`BayesianMLPRegressor`. With a
        spike-and-slab prior it is "infer" or a number, as for :class:`SparseBayesianRegressor`.
    {prune}
    standardize : bool, default=False
        If True, the module sees features scaled to mean 0 and variance 1.
    {augment}
    n_workers : int, default=0
        Number of processes that fetch the items of a dataset in advance, as in
        ``torch.utils.data.DataLoader``. 0: they are fetched in this process.
    sampler : str or Sampler, default="auto"
        Sampler, as a name or as an object with parameters such as ``PSGLD(adapt="always")``. Names:
        "psgld", "sgld", "mclmc", "sghmc", "sgnht" and "msgnht". "auto": "psgld".
    {integrator}
    {step_size}
    batch_size : "auto" or int, default="auto"
        Number of rows in a minibatch, at most all rows. "auto": all rows if X has at most 32,768
        values, otherwise 100.
    {n_chains}
    chain_method : {"auto", "vectorized", "sequential"}, default="auto"
        Whether the chains take each step together ("vectorized") or one after the other
        ("sequential"). The draws are the same up to rounding. "auto": together, with
        ``torch.func.vmap``, if the module has at most 10,000 parameters (1,000,000 on a GPU) and
        vmap supports it.
    {n_draws}
    {burn_in}
    {thinning}
    {max_steps}
    {temperature}
        ``SpikeSlab(adaptation="gibbs")`` allows only 1.
    init : "auto", "module", "random", "map" or array, default="auto"
        Starting points of the chains. "module": the weights of the module plus normal numbers with
        a standard deviation of 1% of the root mean square of each tensor. "random": normal weights
        with He's scaling. "map": as "random", and the first half of the burn-in runs at temperature
        0, as an optimiser; so it does for "module" with ``step_size="auto"``. An array is broadcast
        to (n_chains, n_parameters). "auto": "module" if ``module`` is a module; otherwise "map"
        with ``step_size="auto"``, else "random". With a spike-and-slab prior, "auto" is "random".
    {validation_fraction}
    {total_samples}
    {warm_start}
    compiled : "auto" or bool, default="auto"
        Whether to use the compiled code of the extra ``fast`` where it applies: SGLD and pSGLD with
        the Euler integrator, in long runs on a CPU. It has its own random number generator, so the
        same seed gives different draws. On a GPU, True records and replays whole
        steps (CUDA graphs).
    {device}
    {dtype}
    {precision}
    {storage}
    {checkpoint}
    {n_jobs}
    {random_state}
    {verbose}

    Attributes
    ----------
    posterior_ : PosteriorSamples
        Draws of the sampled parameters, each of shape ``(n_chains, n_draws, *shape)``, by their
        names in the module.
    sigma_, delta_, sparsity_, n_effective_parameters_
        Only with a spike-and-slab prior or pruning; see :class:`SparseBayesianRegressor`.
    prior_scale_ : float
        Standard deviation of the prior of a last layer's weights, if "auto" has estimated it.
    {n_chains_, n_draws_}
    {n_steps_}
    {step_size_}
    {batch_size_}
    {compiled_}
    {not_compiled_}
    {sampling_threshold_}
    {device_}
    n_features_in_ : int
        Number of values in a row.

    See Also
    --------
    BayesianMLPRegressor : A network with specialised, faster code.
    BayesianModuleClassifier : The same for classification, with notes on batch norms.

    References
    ----------
    Li, Chen, Carlson & Carin (2016), Preconditioned stochastic gradient Langevin dynamics for deep
    neural networks, AAAI.
    MacKay (1992), Bayesian interpolation, Neural Computation.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skbayes_sgmcmc import BayesianModuleRegressor
    >>> X = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> module = lambda: torch.nn.Linear(1, 1)
    >>> reg = BayesianModuleRegressor(module, n_chains=2, random_state=0)
    >>> reg.fit(X, 3.0 * X[:, 0]).score(X, 3.0 * X[:, 0]) > 0.99
    True
    """

    module: nn.Module | Callable[..., nn.Module] | tuple[Callable[..., nn.Module], Any]
    _: KW_ONLY
    input_shape: Sequence[int] | None = None
    sample_parameters: str | Sequence[str] | Callable[..., bool] = "trainable"
    prior: Prior | SpikeSlab | Literal["normal", "laplace", "spike_slab"] = "normal"
    prior_scale: float | Sequence[float] | LearnedScale | str = "auto"
    prior_center: Literal[0, "module"] = 0
    likelihood: str | StudentT | Tweedie | TorchLikelihood = "normal"
    noise: float | Literal["infer", "heteroscedastic"] = "infer"
    prune: float | Pruning | None = None
    standardize: bool = False
    augment: Callable[..., Any] | None = None
    n_workers: int = 0
    sampler: str | Sampler = "auto"
    init: ArrayLike | Literal["auto", "module", "random", "map"] = "auto"
    validation_fraction: float = 0.15

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Continue sampling with new rows of a stream, for one pass over these rows.

        The target is the posterior given ``total_samples`` rows or, if that is None, given the rows
        seen so far. The newest ``n_draws`` draws of each chain are kept. The first call after
        ``fit`` starts a new stream, unless ``warm_start=True``.

        Parameters
        ----------
        X : array, tuple or mapping of arrays, or dataset
            New rows, as for ``fit``.
        y : array of shape (n_samples,) or (n_samples, n_outputs), or None, default=None
            Their targets. None: those of the items of a dataset.
        sample_weight : array of shape (n_samples,) or None, default=None
            Nonnegative weights of the rows, as for ``fit``.

        Returns
        -------
        self
        """
        return super().partial_fit(X, y, sample_weight)
