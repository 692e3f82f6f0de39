"""What values single parameters of estimators may have, by their names.

What parameters may be together is in ``_check_together`` of the estimators, and what only some
estimators allow in their ``_checks``. Parameters of sampling are in ``_engine/settings.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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

Check = Callable[[str, Any], Any]


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
