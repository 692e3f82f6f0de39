"""Meaning of "auto" for nearly Gaussian posteriors of models with a metric, such as ICA."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Data, Minibatches, tensor_like
from ..._limits import LIMITS
from .._linalg import largest_pair
from .._protocol import Model
from .auto import AUTO
from .base import AutoValues, Request, Tuning
from .gaussian import CurvedModel, WhitenedGaussian, affordable_size

if TYPE_CHECKING:
    from ...samplers import Sampler


class MetricModel(CurvedModel):
    """Base class of models with a known centre and curvature, and a ``metric``."""

    @property
    def tuning(self) -> Tuning:
        return MetricGaussian(self)

    def typical_draw(
        self, center: Array, data: Data, temperature: float, rng: np.random.Generator
    ) -> Array:
        """A position that is about as far from the maximum as a typical draw."""
        raise NotImplementedError


class MetricGaussian(WhitenedGaussian):
    """Tuning for nearly Gaussian posteriors of models with a metric.

    Samplers that do not use the metric are tuned as in the base class.
    """

    model: MetricModel

    central_starts = ("map", "gaussian")
    whole_numbers = AUTO.whole_numbers

    def start_near(
        self, center: Array, data: Data, temperature: float, rng: np.random.Generator
    ) -> Array:
        """The starting position of a chain for ``init="gaussian"``: a typical draw."""
        return self.model.typical_draw(center, data, temperature, rng)

    def automatic_step(self, sampler: Sampler) -> str:
        """Estimators have one for samplers that use the metric."""
        given = super().automatic_step(sampler)
        return given if sampler.uses_metric(True) else f"sampler='rsgld' with {given}"

    def set_step(self, values: AutoValues, data: Data, request: Request) -> None:
        """Set the step size, the minibatch and the control variates in a metric.

        The step size is stable at the curvature that remains in the metric at the MAP. The
        minibatch is so large that alpha_t is ``noise_ratio`` at typical draws. If this minibatch is
        too large, the step size is reduced instead.
        """
        model, sampler = self.model, request.sampler
        if not sampler.uses_metric(model.metric):
            super().set_step(values, data, request)
            return
        assert values.center is not None
        eta = sampler.own_step(model.n_parameters)
        eta = AUTO.own_step if eta is None else eta
        values.step_size = eta / self._curvature(data, values.center)
        size = request.settings.batch_size
        if isinstance(size, str):
            size = data.n_rows if self.fits_whole(data) else None
        if sampler.full_data or (size is not None and size >= data.n_rows):
            return
        anchor = None
        if (
            request.settings.gradient in ("auto", "control_variates")
            and not request.more_rows
            and model.after_step is None
        ):
            anchor = model.anchor(values.center, data)
        if anchor is not None:
            values.gradient = "control_variates"
            data = replace(data, fields=data.fields | anchor.fields)
        variance = self._variance(data, values.center, request.temperature)
        # alpha_t with minibatches of one row
        noise = values.step_size * data.total * variance / (2.0 * max(request.temperature, 1e-12))
        if size is None:
            size = max(AUTO.batch_size, math.ceil(noise / AUTO.noise_ratio))
            size = min(size, affordable_size(data))
            values.batch_size = size
        values.step_size *= min(1.0, AUTO.noise_ratio * size / noise)

    def _curvature(self, data: Data, center: Array) -> float:
        """The largest curvature that remains in the metric, at the MAP."""
        model, metric = self.model, self.model.metric(torch.from_numpy(center)[None])
        prior = model.prior_hessian(center)

        def curved(v: Array) -> Array:
            moved = metric.times(torch.from_numpy(v)[None])[0].numpy()
            product = model.hessian_times(center, moved, data) + prior * moved
            return np.asarray(product / data.total)

        return 1.05 * largest_pair(curved, model.n_parameters)[0]

    def _variance(self, data: Data, center: Array, temperature: float) -> float:
        """The largest variance of one row's gradient, in the metric, at typical draws."""
        rng, found = np.random.default_rng(0), []
        for _ in range(AUTO.noise_draws):
            theta = torch.from_numpy(self.model.typical_draw(center, data, temperature, rng))
            theta = theta[None].to(tensor_like(data))
            found.append(largest_score_variance(self.model, data, theta))
        return float(np.quantile(found, AUTO.typical_noise))


def largest_score_variance(model: Model, data: Data, theta: Tensor) -> float:
    """Largest eigenvalue of M^(1/2) V_s M^(1/2) at one position, where M is the model's metric.

    V_s is the covariance of the scores of single rows. Power iteration with V_s M needs no matrix
    of parameters by parameters.
    """
    scores = scores_of(model, data, theta)
    scores -= scores.mean(axis=0)
    metric = model.metric(theta)

    def times(v: Array) -> Array:
        moved = metric.times(torch.from_numpy(v)[None].to(theta))[0].double().cpu().numpy()
        return np.asarray(scores.T @ (scores @ moved) / max(len(scores) - 1, 1))

    return largest_pair(times, scores.shape[1])[0]


def scores_of(model: Model, data: Data, theta: Tensor) -> Array:
    """Weighted scores (rows, n_parameters) of some rows at one position."""
    some = min(data.n_rows, LIMITS.sampled_rows)
    rows = np.unique(np.linspace(0, data.n_rows - 1, some).astype(int))
    batch = Minibatches(data, len(rows)).batch_of(rows)
    with torch.no_grad():
        scores = np.asarray(model.scores(theta, batch).cpu(), dtype=float)
    if data.weight is not None:
        scores *= np.asarray(torch.as_tensor(batch.weight, device="cpu"), dtype=float)[:, None]
    return scores
