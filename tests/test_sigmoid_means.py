"""Averages of the logistic function over normal logits, against dense quadrature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases
from scipy.special import expit, ndtr

from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.models.moments.sigmoid import NARROW, normal_nodes, sigmoid_means
from skbayes_sgmcmc.priors import Normal

pytestmark = pytest.mark.statistical


@cases("sd", [0.0, 0.1, 1.0, 2.4, 2.6, 10.0, 300.0])
def test_averages_are_those_of_dense_quadrature(sd):
    """To 0.0004, and the slope to half a percent: bounds of the fits are a hundred times these.

    Means are up to 2.5 sds away from the step. Gauss-Hermite nodes alone had probabilities off by
    0.1 and slopes of zero at an sd of 10.
    """
    mean = np.linspace(-2.5, 2.5, 11) * max(sd, 1.8)
    p, slope = sigmoid_means(mean, np.full(11, sd))
    if sd == 0.0:
        np.testing.assert_allclose(p, expit(mean), rtol=1e-12)
        return
    t = np.linspace(-45.0, 45.0, 100001)
    away = (mean[:, None] - t) / sd
    density = expit(t) * expit(-t) * (t[1] - t[0])
    np.testing.assert_allclose(p, ndtr(away) @ density, atol=4e-4)
    bell = np.exp(-0.5 * away**2) / (sd * np.sqrt(2.0 * np.pi))
    np.testing.assert_allclose(slope, bell @ density, rtol=5e-3)


def test_few_nodes_are_enough_for_logits_that_vary_little():
    """Five of them: probabilities to 1e-8, slopes to 1e-7; remainders to half a percent."""
    mean, sd = np.linspace(-6.0, 6.0, 101), np.full(101, NARROW)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    assert len(normal_nodes(sd)[0]) < len(normal_nodes(1.01 * sd)[0]) < len(nodes)
    at = expit(mean[:, None] + NARROW * nodes)
    weights = weights / weights.sum()
    p, slope = sigmoid_means(mean, sd)
    np.testing.assert_allclose(p, at @ weights, atol=1e-8)
    np.testing.assert_allclose(slope, (at * (1.0 - at)) @ weights, rtol=1e-7)

    def left(nodes, weights):
        moved = NARROW * nodes
        away = expit(mean[:, None] + moved) - p[:, None] - slope[:, None] * moved
        return np.sqrt(np.square(away) @ (weights / weights.sum()))

    np.testing.assert_allclose(left(*normal_nodes(sd)), left(nodes, weights), rtol=5e-3)


@pytest.mark.parametrize("seed", [0, 41, 43, 44])
def test_an_approximation_sees_the_wall_of_a_row_with_a_huge_value(seed):
    """The average slope of U vanishes at the Gaussian: by 1,001 points, to 0.1 of a posterior sd.

    The slope of the row jumps by 100 where its logit is 0, at 1.8 to 2.7 sds from the centre. When
    this jump fell between two nodes, the centre of seed 41 was 5 of the posterior's sds away from
    its mean, and chains that were tuned to it had an sd four times too large.
    """
    rng = np.random.default_rng(seed)
    x = 0.3 * rng.standard_normal(300)
    y = (rng.random(300) < expit(0.6 * x)).astype(int)
    x, y = np.append(x, 100.0)[:, None], np.append(y, 1)
    model = LogisticModel(1, 2, Normal(), 10.0, True)
    data = model.make_data(x, y, None, torch.float64, "cpu")
    center, precision = model.fit_gaussian(data)
    covariance = np.linalg.inv(precision)
    at = np.linspace(-8.0, 8.0, 1001)
    weight = np.exp(-0.5 * at**2) / np.exp(-0.5 * at**2).sum()
    line = covariance[:, 0] / np.sqrt(covariance[0, 0])  # the direction of the slope's sd
    theta = center + at[:, None] * line
    p = expit(theta[:, :1] * x[:, 0] + theta[:, 1:])
    slope = weight @ ((p - y) @ x)[:, 0] + center[0] / 10.0**2
    assert abs(slope) * np.sqrt(covariance[0, 0]) < 0.1
