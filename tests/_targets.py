"""Small models that several test files sample from."""

from __future__ import annotations

import torch

from skbayes_sgmcmc.models import DensityModel, Model
from skbayes_sgmcmc.samplers import DiagonalMetric


class MetricDensity(DensityModel):
    """A density with a position-dependent metric and, optionally, a projection."""

    def __init__(self, log_density, n_parameters, metric, gradient=None, project=None):
        super().__init__(log_density, n_parameters, gradient)
        self.metric = metric
        self.project = project


class GaussianMean(Model):
    """Rows x ~ N(theta, I) with the prior theta ~ N(0, I / precision); gradients by autograd."""

    def __init__(self, dim, precision, metric=None):
        self.shapes = {"theta": (dim,)}
        self.precision = precision
        self.metric = metric

    def log_prior(self, theta):
        return -0.5 * self.precision * (theta * theta).sum(1)

    def log_lik(self, theta, batch):
        return -0.5 * ((batch.fields["x"] - theta[:, None]) ** 2).sum(2)


class GammaModel(DensityModel):
    """Gamma(shape, 1) in one dimension with the metric M = theta, whose divergence is 1."""

    def __init__(self, shape):
        super().__init__(lambda theta: ((shape - 1.0) * theta.log() - theta).sum(1), 1)

    def init(self, rng):
        return rng.gamma(5.0, size=1)

    def metric(self, theta):
        return DiagonalMetric(theta, torch.ones_like(theta))

    def project(self, theta):
        return theta.abs_()
