"""Types of this package that a skops file may contain."""

from __future__ import annotations

from importlib import import_module

from .._sklearn import BaseEstimator

#: modules with public classes that users pass as arguments; "" is the package with the estimators
PUBLIC = ("", ".augmentation", ".priors", ".samplers", ".schedules")

#: further types inside fitted estimators, besides arrays and plain Python
STATE = (
    "_data.kept_rows.KeptRows",
    "_draws.compression.CompressedSamples",
    "_draws.compression.Kept",
    "_draws.posterior_samples.PosteriorSamples",
    "_engine.problem.ChainState",
    "_engine.streams.Memory",
    "estimators.tables.encoding.Categories",
    "estimators.tables.encoding.Encoding",
    "estimators.tables.gaps.NormalNumbers",
    "estimators.tables.encoding.Numbers",
    "estimators.tables.groups.Grouping",
    "models._past.PastMean",
    "models._past.Past",
    "models.tuning.base.AutoValues",
    "models.networks.cnn.CNN",
    "models.networks.cnn.CNN.module",
    "models.networks.cnn.Convolution",
    "models.networks.mlp.MLP",
    "models.networks.mlp.MLP.module",
)


def skops_trusted_types() -> list[str]:
    """Return the names of the types of this package that a skops file may contain.

    Returns
    -------
    list of str
        Names for ``skops.io.load(file, trusted=skops_trusted_types())``: the estimators and their
        samplers, priors, schedules and draws. Skops refuses a file with any other type that it does
        not trust by itself.

    Examples
    --------
    >>> from skbayes_sgmcmc import skops_trusted_types
    >>> "skbayes_sgmcmc._draws.posterior_samples.PosteriorSamples" in skops_trusted_types()
    True
    """
    package = __name__.split(".")[0]
    public = [import_module(f"{package}{name}") for name in PUBLIC]
    names = [(module, name) for module in public for name in module.__all__]
    # not the version, which is looked up in a file
    found = [getattr(module, name) for module, name in names if name != "__version__"]
    kinds = [each for each in found if isinstance(each, type) and issubclass(each, BaseEstimator)]
    classes = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    return sorted(classes | {f"{package}.{name}" for name in STATE})
