"""Coverage of the recipe of docs/conformal.md, whatever the model."""

from __future__ import annotations

import numpy as np
import pytest

from skbayes_sgmcmc import BayesianGLMRegressor

crepes = pytest.importorskip("crepes")


@pytest.mark.parametrize("groups", [False, True])
def test_conformal_intervals_of_a_wrong_model_have_the_coverage(groups):
    """Noise with heavy tails that grows with x, and a normal likelihood of equal noise.

    Over 200 divisions of 600 rows the mean coverage is between 90% and 90% + 1 / 301 in theory; the
    bound adds four standard errors of shares of 300 rows that overlap. Plain intervals miss it in
    the noisy half, and conformal ones of groups do not.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (900, 1))
    y = x[:, 0] + np.exp(1.5 * x[:, 0]) * rng.standard_t(3, 900)
    reg = BayesianGLMRegressor(random_state=0).fit(x[:300], y[:300])
    rest, target = x[300:], y[300:]
    mean, sd = reg.predict(rest, return_std=True)
    noisy = rest[:, 0] > 0.0
    low, high = reg.predict_interval(rest, 0.9).T
    assert ((low <= target) & (target <= high))[noisy].mean() < 0.87
    covered = []
    for _ in range(200):
        order = rng.permutation(600)
        calibration, test = order[:300], order[300:]
        bins = [noisy[rows].astype(int) if groups else None for rows in (calibration, test)]
        given = {"sigmas": sd[calibration], "bins": bins[0]}
        conformal = crepes.ConformalRegressor()
        conformal.fit(residuals=target[calibration] - mean[calibration], **given)
        given = {"sigmas": sd[test], "bins": bins[1]}
        low, high = conformal.predict_int(y_hat=mean[test], confidence=0.9, **given).T
        inside = (low <= target[test]) & (target[test] <= high)
        covered.append([inside.mean(), inside[noisy[test]].mean()])
    everywhere, where_noisy = np.mean(covered, axis=0)
    assert 0.9 - 0.007 < everywhere < 0.9 + 0.014
    assert (abs(where_noisy - 0.9) < 0.02) == groups
