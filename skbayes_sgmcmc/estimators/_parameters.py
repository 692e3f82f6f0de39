"""Parameters that all estimators have, and what values single ones may have, by their names.

What parameters may be together is in ``_check_together`` of the estimators, and what only some
estimators allow in their ``_checks``. Parameters of sampling are in ``_engine/settings.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._exceptions import not_allowed
from .._validation import (
    check_choice,
    check_int,
    check_real,
    check_scale,
    check_sizes,
    check_unless,
)
from .tables.encoding import check_categorical_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .._draws.storage import Storage
    from ..models.networks.pruning import Pruning
    from ..priors import LearnedScale, Prior, SpikeSlab
    from ..samplers import Sampler
    from ..schedules import MixingDistance, Schedule

Check = Callable[[str, Any], Any]


@dataclass(kw_only=True, eq=False, repr=False)
class SamplingParameters:
    """Parameters of every estimator; each has a prior, a sampler and starts besides."""

    integrator: str = "auto"
    step_size: float | Schedule | Literal["auto"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    n_chains: int = 4
    n_draws: int | Literal["auto"] = "auto"
    burn_in: int | Literal["auto"] = "auto"
    thinning: int | MixingDistance | Literal["auto"] = "auto"
    max_steps: int | None = None
    temperature: float | Schedule = 1.0
    total_samples: float | None = None
    warm_start: bool = False
    compiled: bool | Literal["auto"] = "auto"
    device: str = "auto"
    dtype: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class LinearParameters(SamplingParameters):
    """Parameters of every linear model besides."""

    prior: Prior | Literal["normal", "laplace"] = "normal"
    categorical_features: ArrayLike | Literal["from_dtype"] | None = "from_dtype"
    sampler: str | Sampler = "auto"
    preconditioner: ArrayLike | Literal["auto", "hessian", "diagonal"] | None = "auto"
    gradient: str = "auto"
    init: ArrayLike | Literal["auto", "random", "map", "gaussian"] = "auto"
    storage: Storage | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkParameters(SamplingParameters):
    """Parameters of every network besides."""

    chain_method: str = "auto"
    precision: str = "full"
    storage: Storage | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class PerceptronParameters(NetworkParameters):
    """Parameters of every perceptron besides."""

    activation: str = "relu"
    categorical_features: ArrayLike | Literal["from_dtype"] | None = "from_dtype"
    standardize: bool = True
    init: ArrayLike | Literal["auto", "random", "map"] = "auto"


@dataclass(kw_only=True, eq=False, repr=False)
class SparseParameters(PerceptronParameters):
    """Parameters of every sparse network besides."""

    prior: SpikeSlab | Literal["spike_slab"] = "spike_slab"
    prior_scale: float | Sequence[float] | Literal["fan_in"] = "fan_in"
    prune: float | Pruning | None = None
    threshold: float = 0.5
    sampler: str | Sampler = "psgld"


@dataclass(kw_only=True, eq=False, repr=False)
class ModuleParameters(NetworkParameters):
    """Parameters of every torch module besides."""

    input_shape: Sequence[int] | None = None
    sample_parameters: str | Sequence[str] | Callable[..., bool] = "trainable"
    prior: Prior | SpikeSlab | Literal["normal", "laplace", "spike_slab"] = "normal"
    prior_scale: float | Sequence[float] | LearnedScale | str = "auto"
    prior_center: Literal[0, "module"] = 0
    prune: float | Pruning | None = None
    standardize: bool = False
    augment: Callable[..., Any] | None = None
    n_workers: int = 0
    sampler: str | Sampler = "auto"
    init: ArrayLike | Literal["auto", "module", "random", "map"] = "auto"
    validation_fraction: float = 0.15


@dataclass(kw_only=True, eq=False, repr=False)
class TopicParameters(SamplingParameters):
    """Parameters of every topic model besides."""

    topic_word_prior: float | None = None
    parametrization: str = "expanded_mean"
    prior: str = "gamma"
    prior_scale: float = 1.0
    prior_mean: float = 0.1
    sampler: str | Sampler = "auto"
    n_chains: int = 1
    thinning: int | Literal["auto"] = "auto"
    init: str = "auto"


def choice(*allowed: Any) -> Check:
    """A check that a value is one of some."""
    return partial(check_choice, choices=allowed)


def unless(word: str | None, check: Check) -> Check:
    """A check of all values but one."""
    return partial(check_unless, word, check)


def _check_activation(name: str, value: Any) -> None:
    from ..models.networks.mlp import ACTIVATIONS

    check_choice(name, value, ACTIVATIONS)


def _check_callable(name: str, value: Any) -> None:
    if not callable(value):
        raise not_allowed(f"{name}={value!r} is not allowed: give a callable.")


def _check_module(name: str, value: Any) -> None:
    from ..models.networks.module import check_module

    check_module(name, value)


def _check_prior(name: str, value: Any) -> None:
    from ..priors.factorised import PRIORS, Prior

    if not isinstance(value, Prior):
        check_choice(name, value, PRIORS)
    elif type(value) not in PRIORS.values():
        value.check(name)


def check_spikes(name: str, value: Any) -> None:
    """Allow a spike-and-slab prior alone."""
    from ..priors.spike_slab import SpikeSlab

    if isinstance(value, SpikeSlab):
        value.check(name)
    else:
        check_choice(name, value, ("spike_slab",))


def check_any_prior(name: str, value: Any) -> None:
    """Allow a spike-and-slab prior and all others."""
    from ..priors.spike_slab import SpikeSlab

    spikes = isinstance(value, SpikeSlab) or (isinstance(value, str) and value == "spike_slab")
    (check_spikes if spikes else _check_prior)(name, value)


def _check_selection(name: str, value: Any) -> None:
    from ..models.networks.selection import check_selection

    check_selection(value)


FLAG = choice(True, False)
FRACTION = partial(check_real, low=0.0, high=1.0)
CHECKS: dict[str, Check] = {
    "activation": _check_activation,
    "algorithm": choice("sgmcmc", "gibbs"),
    "augment": unless(None, _check_callable),
    "calibrate": choice("auto", True, False),
    "categorical_features": check_categorical_features,
    "chain_method": choice("auto", "vectorized", "sequential"),
    "conv_channels": check_sizes,
    "density": choice("extended", "logistic"),
    "doc_topic_prior": unless(None, check_scale),
    "fit_intercept": FLAG,
    "hidden_layer_sizes": check_sizes,
    "input_shape": unless(None, check_sizes),
    "kernel_size": check_int,
    "module": _check_module,
    "n_workers": partial(check_int, low=0),
    "network_scale": check_scale,
    "parametrization": choice("expanded_mean", "expanded_natural"),
    "pool_size": check_int,
    "prior": _check_prior,
    "r_rate": check_scale,
    "sample_parameters": _check_selection,
    "standardize": FLAG,
    "success_probability": unless(None, FRACTION),
    "threshold": partial(FRACTION, closed="left"),
    "topic_word_prior": unless(None, check_scale),
    "total_samples": unless(None, check_scale),
    "warm_start": FLAG,
    "whiten": FLAG,
}
