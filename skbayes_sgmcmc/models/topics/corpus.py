"""The base of models of word counts: documents as rows, a block of topics, units of steps."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Batch, Data
from ..._limits import LIMITS
from ..._metric import State
from .._protocol import Model
from ..designs.design import SparseDesign
from ..tuning.auto import AUTO
from ..tuning.base import ManyModes, Request, Tuning
from .completion import log_probabilities
from .parametrizations import ExpandedMean, Parametrization


class CorpusModel(Model):
    """Base class of models with topics phi_k over the words as first block of parameters.

    Parameters
    ----------
    parametrization : Parametrization
        Parametrization and prior of the topics.
    frequency : array of shape (n_words,)
        Mean number of occurrences of each word in a document.
    doc_sweeps : int
        Number of Gibbs sweeps over the documents of a minibatch.
    compiled : bool, default=False
        Whether the compiled kernels sample the documents' variables.
    batch_size : int or None, default=None
        Number of documents in a minibatch, for ``step_size="auto"``. None: found from the lengths
        of the documents.
    """

    single_precision = True
    kernels: Sequence[str] = ("documents",)
    needs_gamma = True
    n_reported = 50  # the proportions of each take a fixed point
    #: fewest steps of a burn-in with a metric, if its step size is found (docs/topics.md)
    least_burn_in = 750

    def __init__(
        self,
        parametrization: Parametrization,
        frequency: Array,
        doc_sweeps: int,
        compiled: bool = False,
        batch_size: int | None = None,
    ):
        self.parametrization = parametrization
        self.frequency = frequency
        self.doc_sweeps = doc_sweeps
        self.compiled = compiled
        self.shapes = {"theta": (parametrization.n_words, parametrization.n_topics)}
        if isinstance(parametrization, ExpandedMean):
            self.metric, self.project = parametrization.metric, parametrization.project
        self.batch_size = self._documents() if batch_size is None else batch_size

    @property
    def row_products(self) -> float:
        words, topics = float(self.frequency.sum()), self.parametrization.n_topics
        return LIMITS.topic_products * words * topics * self.doc_sweeps

    def kernels_pay(self, data: Data, n_steps: int) -> bool:
        return bool(data.fields["counts"].x.sum() >= LIMITS.worth_words)

    def with_kernel(self, name: str) -> Self:
        compiled = copy.copy(self)
        compiled.compiled = True
        return compiled

    def make_data(self, X: Any, y: None, weight: None, dtype: Any, device: str) -> Data:
        """Documents as rows of counts."""
        return Data({"counts": SparseDesign(sp.csr_matrix(X), dtype, device)}, X.shape[0])

    def init(self, rng: np.random.Generator) -> Array:
        return self.parametrization.start(self.frequency, rng)

    @property
    def tuning(self) -> Tuning:
        return TopicTuning(self)

    def _documents(self) -> int:
        """How many documents a minibatch has.

        With a metric, they have about 10,000 words, or one for 50 parameters, in 20 documents or
        more.
        """
        if self.metric is None:
            # in a smaller minibatch, a document with many occurrences of a rare word would move
            # natural parameters too far
            return AUTO.batch_size
        words = max(10_000, self.n_parameters // 50)
        wanted = round(words / max(float(self.frequency.sum()), 1.0))
        return min(max(wanted, 20), AUTO.batch_size)

    def unit(self) -> float:
        """Approximate 1 / curvature of the mean potential, in units of the metric if there is one.

        In the expanded mean, the relaxation rate of a topic is the number of words of a document
        that belong to the topic, divided by the sum of the topic's parameters.
        """
        if self.metric is None:
            # for the table's rates, which are those of networks: curvatures are at most about 1
            return 20.0
        K, V, beta = (
            self.parametrization.n_topics,
            self.parametrization.n_words,
            self.parametrization.prior.concentration,
        )
        return float(beta * V * K / max(self.frequency.sum(), 1e-12))

    def scales(self) -> Array | None:
        """1 / sqrt(curvature of the mean potential) of every parameter; None with a metric.

        The curvature is that of a word which occurs in one topic only.
        """
        if self.metric is not None:
            return None
        return np.repeat(1.0 / np.sqrt(self.frequency), self.parametrization.n_topics)

    def proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        """Expected proportions (documents, topics) given the draw of one chain, by name."""
        raise NotImplementedError

    def reported(self, theta: Tensor, batch: Batch) -> Tensor:
        """Log probability of the words of documents, given their expected proportions."""
        counts = batch.fields["counts"]
        row, column, value = (part.cpu() for part in counts.triplets())
        place, values = (row, column), value.to(theta.dtype)
        X = sp.csr_matrix((values, place), shape=(counts.n_rows, counts.n_columns))
        found = []
        for one in theta.cpu().numpy():
            draw = self.unpack(one)
            found.append(log_probabilities(draw["components"], self.proportions(draw, X), X))
        return torch.from_numpy(np.stack(found)).to(theta)

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        self.parametrization.prior_gradient(theta, out, scale)

    def unpack(self, draws: Array) -> dict[str, Array]:
        return {"components": self.parametrization.draws(draws)}


class TopicTuning(ManyModes):
    """Tuning of topic models: the table's rates in units of the topics' curvature.

    With a metric, chains start at random, because at temperature 0 nothing determines the scale of
    the expanded mean.
    """

    forgetting = 0.6
    model: CorpusModel

    def __init__(self, model: CorpusModel):
        if model.metric is None:
            super().__init__(model, sampler="msgnht")
        else:
            super().__init__(
                model, start="random", least_burn_in=model.least_burn_in, sampler="rsgld"
            )

    def batch_size(self, *_: Any) -> int:
        return self.model.batch_size

    def step_size(self, request: Request, data: Data) -> float | None:
        if request.cell.rate is None:
            return None
        model = self.model
        few = model.metric is None and model.batch_size < min(AUTO.batch_size, data.n_rows)
        share = model.batch_size / AUTO.batch_size if few else 1.0
        return request.cell.rate * self.unit() * share

    def scales(self) -> Array | None:
        return self.model.scales()

    def unit(self) -> float:
        return self.model.unit()
