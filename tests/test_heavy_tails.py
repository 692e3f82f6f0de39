"""Student's t distribution: a few targets of any size change neither units nor the posterior."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import gammaln

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianMLPRegressor, BayesianModuleRegressor
from skbayes_sgmcmc.models.likelihoods.student import StudentNoise


def problem(n=120):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n)
    return x, 2.0 * x + 0.5 + rng.standard_t(3.0, n)


def metropolis(log_density, start, scale, n_chains=64, n_steps=3000, burn_in=1600):
    """Draws by random walks, whose proposals follow the spread of the burn-in."""
    rng = np.random.default_rng(1)
    at = start + 0.5 * scale * rng.standard_normal((n_chains, len(start)))
    now, kept, root = log_density(at), [], np.diag(0.5 * scale)
    for step in range(n_steps):
        if step in (500, 1000, 1500):
            root = (
                np.linalg.cholesky(np.cov(np.concatenate(kept[-300:]).T)) * 2.38 / len(start) ** 0.5
            )
        trial = at + rng.standard_normal(at.shape) @ root.T
        new = log_density(trial)
        better = np.log(rng.uniform(size=n_chains)) < new - now
        at, now = np.where(better[:, None], trial, at), np.where(better, new, now)
        kept.append(at)
    return np.concatenate(kept[burn_in:])


@pytest.mark.statistical
@pytest.mark.parametrize(("k", "size"), [(0, 0.0), (1, -3.4e38), (5, 1e5)])
def test_outliers_of_any_size_leave_the_posterior_exact(k, size):
    """Coefficient, intercept, log noise and log df, against random walks on the plain density.

    Means within 0.1 sd and sds within 10%; they were within 0.035 sd and 3%. With the sd of y as
    the unit, the noise was e^-10 units of its prior, and these fits were errors.
    """
    x, y = problem()
    y[:k] = size
    unit = 1.4826 * np.median(np.abs(y - np.median(y)))

    def log_density(theta):
        w, b, g, h = theta.T[:, :, None]
        sd, df = 0.3 * unit * np.exp(g), 2.0 + 8.0 * np.exp(h)
        log_r = np.log(np.abs(y - w * x - b) / sd) - 0.5 * np.log(df)
        each = gammaln(0.5 * df + 0.5) - gammaln(0.5 * df) - 0.5 * np.log(df) - np.log(sd)
        each = each - (0.5 * df + 0.5) * np.logaddexp(0.0, 2.0 * log_r)
        prior = 0.5 * (w[:, 0] / unit) ** 2 + 0.5 * g[:, 0] ** 2 + 0.5 * h[:, 0] ** 2
        return each.sum(1) - prior

    reg = BayesianGLMRegressor(likelihood="student_t", prior_scale=1.0, random_state=0)
    posterior = reg.fit(x[:, None], y).posterior_
    names = ("coef", "intercept", "log_noise", "log_df")
    found = np.stack([posterior[name].reshape(-1) for name in names], axis=1)
    known = metropolis(log_density, found.mean(0), found.std(0))
    assert (np.abs(found.mean(0) - known.mean(0)) < 0.1 * known.std(0)).all()
    assert (np.abs(found.std(0) / known.std(0) - 1.0) < 0.1).all()


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")  # budgets are small
@pytest.mark.parametrize("kind", [pytest.param("perceptron", marks=pytest.mark.slow), "module"])
def test_networks_predict_as_without_the_outliers(kind):
    """Their predictions differ by at most half of the noise's sd, 1.7, in every row.

    With the sd as the unit, all other targets were the same number to the network.
    """
    x, y = problem()
    budget = {"n_chains": 2, "n_draws": 50, "burn_in": 600, "thinning": 5, "random_state": 0}
    parameters = {"likelihood": "student_t", **budget}
    if kind == "perceptron":
        reg = BayesianMLPRegressor(hidden_layer_sizes=10, **parameters)
    else:
        reg = BayesianModuleRegressor(lambda: torch.nn.Linear(1, 1), **parameters)
    plain = reg.fit(x[3:, None], y[3:]).predict(x[3:, None])
    y[:3] = 999_999.0
    assert np.abs(reg.fit(x[:, None], y).predict(x[3:, None]) - plain).max() < 0.85


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_beyond_single_precision_have_finite_slopes(dtype):
    """FLT_MAX is what rasters have where data are missing; its square is no number of float32."""
    likelihood = StudentNoise(1, None)
    y = likelihood.targets(np.array([[0.0], [1.0], [3.4e38], [-1e140]]), dtype, "cpu")
    own = torch.tensor([[-12.0, 0.0], [0.0, -3.0]], dtype=dtype)
    f = torch.zeros(2, 4, 1, dtype=dtype)
    assert torch.isfinite(likelihood.log_density(f, y, own)).all()
    for slope in likelihood.slope(f, y, own):
        assert torch.isfinite(slope).all()


@pytest.mark.parametrize(
    ("likelihood", "share"), [("normal", 1.0), ("student_t", 1.0), ("student_t", 0.9)]
)
def test_targets_that_leave_no_noise_are_named(likelihood, share):
    """Equal targets, or 90% of them with heavy tails: the density of the noise rises to zero.

    The message's remedy works.
    """
    x, _ = problem(100)
    y = np.where(np.arange(100) < 100 * share, 3.0, x)
    reg = BayesianGLMRegressor(likelihood=likelihood, n_draws=100, max_steps=500, random_state=0)
    with pytest.raises(ValueError, match=rf"^y with the value 3 in {share:.0%}.*noise as a number"):
        reg.fit(x[:, None], y)
    reg.set_params(noise=0.1)
    assert reg.fit(x[:, None], y).predict([[0.0]])[0] == pytest.approx(3.0, abs=0.2)


def test_equal_targets_with_weights_are_named():
    """Two rows, one of which counts as 1e8: scipy's error said nothing of the cause."""
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    reg = BayesianGLMRegressor(groups=2, random_state=0)
    with pytest.raises(ValueError, match="^y with the value 1 in 100%"):
        reg.fit(rows, np.ones(2), [1e8, 1.0])
