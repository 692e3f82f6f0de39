"""Bayesian classifiers from any torch module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

from torch import nn

from ._descriptions import MODULE, NETWORK, SHARED, described
from ._module import ModuleEstimator
from ._network import NetworkClassifier


@described(SHARED | NETWORK | MODULE)
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
    {input_shape} {sample_parameters} {prior} {prior_scale} {prior_center} {prune} {class_weight}
    {standardize} {augment} {n_workers}
    sampler : str or Sampler, default="auto"
        Sampler, as a name or as an object with parameters such as ``PSGLD(adapt="always")``. Names:
        "psgld", "sgld", "mclmc", "sghmc", "sgnht", "msgnht" and, for a logistic regression of
        features, "mala". "auto": "sgld" for such a regression, otherwise "psgld".
    {integrator} {step_size} {batch_size} {n_chains} {chain_method} {n_draws} {burn_in} {thinning}
    {max_steps}
    {temperature}
        ``SpikeSlab(adaptation="gibbs")`` allows only 1.
    {init} {validation_fraction} {total_samples} {warm_start} {compiled} {device} {dtype}
    {precision} {storage} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    {classes_} {posterior_} {sigma_, delta_, sparsity_, n_effective_parameters_} {prior_scale_}
    {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_} {compiled_} {not_compiled_}
    {sampling_threshold_} {device_} {n_features_in_}

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
    class_weight: dict[Any, float] | list[dict[Any, float]] | Literal["balanced"] | None = None

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        return super().partial_fit(X, y, classes, sample_weight)
