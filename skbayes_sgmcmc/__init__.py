"""Scikit-learn estimators: ``fit`` draws a Bayesian posterior by stochastic-gradient MCMC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._imports import imported_whole

#: public name -> module; modules are imported at first use, so that importing the package is quick
_WHERE = {
    "BayesianLogisticRegression": "estimators.logistic",
    "BayesianCNNClassifier": "estimators.cnn",
    "BayesianGLMRegressor": "estimators.glm",
    "BayesianICA": "estimators.ica",
    "BayesianMLPClassifier": "estimators.mlp",
    "BayesianMLPRegressor": "estimators.mlp_regressor",
    "BayesianModuleClassifier": "estimators.module",
    "BayesianModuleRegressor": "estimators.module_regressor",
    "BayesianOrdinalClassifier": "estimators.ordinal",
    "DeepPoissonFactorAnalysis": "estimators.dpfa",
    "DistilledClassifier": "estimators.distilled",
    "SparseBayesianClassifier": "estimators.sparse",
    "SparseBayesianRegressor": "estimators.sparse_regressor",
    "Pruning": "models.networks.pruning",
    "SpikeSlab": "priors",
    "Storage": "_draws.storage",
    "StudentT": "models.likelihoods.student",
    "TorchLikelihood": "models.likelihoods.distributions",
    "Tweedie": "models.likelihoods.tweedie",
    "LatentDirichletAllocation": "estimators.lda",
    "ParquetRows": "_data.parquet",
    "PosteriorSamples": "_draws.posterior_samples",
    "MixingDistance": "schedules",
    "document_completion_perplexity": "models.topics.completion",
    "data_parallel": "_engine.data_parallel",
    "explain": "_explain",
    "low_rank_adapters": "models.networks.low_rank",
    "sample": "_engine.sample",
    "skops_trusted_types": "_export.skops",
    "to_arviz": "_export.arviz",
    "to_onnx": "_export.onnx",
    "to_torch": "_export.onnx",
    "SamplingError": "_exceptions",
    "SamplingWarning": "_exceptions",
    "RandomLayerWarning": "_exceptions",
    "CheckpointError": "_exceptions",
}

__all__ = [*_WHERE, "__version__"]

if TYPE_CHECKING:
    __version__: str

    from ._data.parquet import ParquetRows as ParquetRows
    from ._draws.posterior_samples import PosteriorSamples as PosteriorSamples
    from ._draws.storage import Storage as Storage
    from ._engine.data_parallel import data_parallel as data_parallel
    from ._engine.sample import sample as sample
    from ._exceptions import CheckpointError as CheckpointError
    from ._exceptions import RandomLayerWarning as RandomLayerWarning
    from ._exceptions import SamplingError as SamplingError
    from ._exceptions import SamplingWarning as SamplingWarning
    from ._explain import explain as explain
    from ._export.arviz import to_arviz as to_arviz
    from ._export.onnx import to_onnx as to_onnx
    from ._export.onnx import to_torch as to_torch
    from ._export.skops import skops_trusted_types as skops_trusted_types
    from .estimators.cnn import BayesianCNNClassifier as BayesianCNNClassifier
    from .estimators.distilled import DistilledClassifier as DistilledClassifier
    from .estimators.dpfa import DeepPoissonFactorAnalysis as DeepPoissonFactorAnalysis
    from .estimators.glm import BayesianGLMRegressor as BayesianGLMRegressor
    from .estimators.ica import BayesianICA as BayesianICA
    from .estimators.lda import LatentDirichletAllocation as LatentDirichletAllocation
    from .estimators.logistic import BayesianLogisticRegression as BayesianLogisticRegression
    from .estimators.mlp import BayesianMLPClassifier as BayesianMLPClassifier
    from .estimators.mlp_regressor import BayesianMLPRegressor as BayesianMLPRegressor
    from .estimators.module import BayesianModuleClassifier as BayesianModuleClassifier
    from .estimators.module_regressor import BayesianModuleRegressor as BayesianModuleRegressor
    from .estimators.ordinal import BayesianOrdinalClassifier as BayesianOrdinalClassifier
    from .estimators.sparse import SparseBayesianClassifier as SparseBayesianClassifier
    from .estimators.sparse_regressor import SparseBayesianRegressor as SparseBayesianRegressor
    from .models.likelihoods.distributions import TorchLikelihood as TorchLikelihood
    from .models.likelihoods.student import StudentT as StudentT
    from .models.likelihoods.tweedie import Tweedie as Tweedie
    from .models.networks.low_rank import low_rank_adapters as low_rank_adapters
    from .models.networks.pruning import Pruning as Pruning
    from .models.topics.completion import (
        document_completion_perplexity as document_completion_perplexity,
    )
    from .priors import SpikeSlab as SpikeSlab
    from .schedules import MixingDistance as MixingDistance


def _version() -> str:
    """The version that was installed, which the build takes from the tags of the repository."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("skbayes-sgmcmc")
    except PackageNotFoundError:  # a source tree on the path
        return "0+unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(imported_whole(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
