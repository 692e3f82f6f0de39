"""Bayesian regressors from any torch module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from torch import nn

from ._descriptions import MODULE, NETWORK, SHARED, described
from ._module import ModuleEstimator
from ._network import NetworkRegressor

if TYPE_CHECKING:
    from ..models.likelihoods.distributions import TorchLikelihood
    from ..models.likelihoods.student import StudentT
    from ..models.likelihoods.tweedie import Tweedie


@described(SHARED | NETWORK | MODULE)
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
    {input_shape} {sample_parameters} {prior} {prior_scale} {prior_center}
    likelihood : str, StudentT, Tweedie or TorchLikelihood, default="normal"
        Distribution of the targets, as for :class:`BayesianMLPRegressor`, or a
        :class:`TorchLikelihood` of your own. A spike-and-slab prior allows only "normal".
    noise : "infer", "heteroscedastic" or float, default="infer"
        Standard deviation of the noise, as for :class:`BayesianMLPRegressor`. With a
        spike-and-slab prior it is "infer" or a number, as for :class:`SparseBayesianRegressor`.
    {prune} {standardize} {augment} {n_workers}
    sampler : str or Sampler, default="auto"
        Sampler, as a name or as an object with parameters such as ``PSGLD(adapt="always")``. Names:
        "psgld", "sgld", "mclmc", "sghmc", "sgnht" and "msgnht". "auto": "psgld".
    {integrator} {step_size} {batch_size} {n_chains} {chain_method} {n_draws} {burn_in} {thinning}
    {max_steps}
    {temperature}
        ``SpikeSlab(adaptation="gibbs")`` allows only 1.
    {init} {validation_fraction} {total_samples} {warm_start} {compiled} {device} {dtype}
    {precision} {storage} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    {posterior_} {sigma_, delta_, sparsity_, n_effective_parameters_} {prior_scale_}
    {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_} {compiled_} {not_compiled_}
    {sampling_threshold_} {device_} {n_features_in_}

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
    likelihood: str | StudentT | Tweedie | TorchLikelihood = "normal"
    noise: float | Literal["infer", "heteroscedastic"] = "infer"

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        return super().partial_fit(X, y, sample_weight)
