"""Scikit-learn estimators whose ``fit`` draws a Bayesian posterior by stochastic-gradient MCMC."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: public name -> module; modules are imported at first use, so that importing the package is quick
_WHERE = {
    "BayesianLogisticRegression": "estimators.logistic",
    "BayesianCNNClassifier": "estimators.cnn",
    "BayesianICA": "estimators.ica",
    "BayesianMLPClassifier": "estimators.mlp",
    "BayesianMLPRegressor": "estimators.mlp",
    "BayesianModuleClassifier": "estimators.module",
    "BayesianModuleRegressor": "estimators.module",
    "DeepPoissonFactorAnalysis": "estimators.dpfa",
    "DistilledClassifier": "estimators.distilled",
    "SparseBayesianClassifier": "estimators.sparse",
    "SparseBayesianRegressor": "estimators.sparse",
    "Pruning": "models.pruning",
    "SpikeSlab": "models.spike_slab",
    "LatentDirichletAllocation": "estimators.lda",
    "PosteriorSamples": "samples",
    "MixingDistance": "chains",
    "document_completion_perplexity": "models.completion",
    "sample": "sampling",
    "skops_trusted_types": "interop",
    "to_arviz": "interop",
    "to_onnx": "export",
    "to_torch": "export",
    "SamplingError": "exceptions",
    "SamplingWarning": "exceptions",
    "CheckpointError": "exceptions",
}

__all__ = [*_WHERE, "__version__"]

if TYPE_CHECKING:
    from .chains import MixingDistance as MixingDistance
    from .estimators.cnn import BayesianCNNClassifier as BayesianCNNClassifier
    from .estimators.distilled import DistilledClassifier as DistilledClassifier
    from .estimators.dpfa import DeepPoissonFactorAnalysis as DeepPoissonFactorAnalysis
    from .estimators.ica import BayesianICA as BayesianICA
    from .estimators.lda import LatentDirichletAllocation as LatentDirichletAllocation
    from .estimators.logistic import BayesianLogisticRegression as BayesianLogisticRegression
    from .estimators.mlp import BayesianMLPClassifier as BayesianMLPClassifier
    from .estimators.mlp import BayesianMLPRegressor as BayesianMLPRegressor
    from .estimators.module import BayesianModuleClassifier as BayesianModuleClassifier
    from .estimators.module import BayesianModuleRegressor as BayesianModuleRegressor
    from .estimators.sparse import SparseBayesianClassifier as SparseBayesianClassifier
    from .estimators.sparse import SparseBayesianRegressor as SparseBayesianRegressor
    from .exceptions import CheckpointError as CheckpointError
    from .exceptions import SamplingError as SamplingError
    from .exceptions import SamplingWarning as SamplingWarning
    from .export import to_onnx as to_onnx
    from .export import to_torch as to_torch
    from .interop import skops_trusted_types as skops_trusted_types
    from .interop import to_arviz as to_arviz
    from .models.completion import (
        document_completion_perplexity as document_completion_perplexity,
    )
    from .models.pruning import Pruning as Pruning
    from .models.spike_slab import SpikeSlab as SpikeSlab
    from .samples import PosteriorSamples as PosteriorSamples
    from .sampling import sample as sample


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
