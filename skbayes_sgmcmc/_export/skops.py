"""Which of this package's types a skops file may contain."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sklearn.base import BaseEstimator

#: modules whose public classes users pass as arguments; the package itself has the estimators
PUBLIC = ("", ".augmentation", ".priors", ".samplers", ".schedules")

#: what fitted estimators hold besides those, arrays and plain Python
STATE = (
    "_draws.compression.CompressedSamples",
    "_draws.compression.Kept",
    "_draws.posterior_samples.PosteriorSamples",
    "_engine.jobs.ChainState",
    "models._tuning.AutoValues",
    "models.networks.module.Architecture",
)


def skops_trusted_types() -> list[str]:
    """Names of this package's types that a skops file of a fitted estimator may contain.

    Returns
    -------
    list of str
        For ``skops.io.load(file, trusted=skops_trusted_types())``: the estimators and their
        samplers, priors, schedules and draws, and nothing else. A file with any other type that
        skops does not trust by itself is refused.

    Examples
    --------
    >>> from skbayes_sgmcmc import skops_trusted_types
    >>> "skbayes_sgmcmc._draws.posterior_samples.PosteriorSamples" in skops_trusted_types()
    True
    """
    package = __name__.split(".")[0]
    public = [import_module(f"{package}{name}") for name in PUBLIC]
    found = [getattr(module, name) for module in public for name in module.__all__]
    classes = {f"{kind.__module__}.{kind.__qualname__}" for kind in found if _has_parameters(kind)}
    return sorted(classes | {f"{package}.{name}" for name in STATE})


def _has_parameters(found: Any) -> bool:
    """Whether it is a class of objects with scikit-learn's parameters, of this package's own."""
    return isinstance(found, type) and issubclass(found, BaseEstimator)
