"""Steps that are too long: chains that diverge, and walls of separated classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from _targets import GaussianMean

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianOrdinalClassifier,
    SamplingError,
    SamplingWarning,
)
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc._engine import energy
from skbayes_sgmcmc._engine.target import Target
from skbayes_sgmcmc.models import Data
from skbayes_sgmcmc.models.tuning.gaussian import WhitenedGaussian
from skbayes_sgmcmc.samplers import SGHMC, SGLD

#: runs too short to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

N = 200


def rows():
    x = np.random.default_rng(0).standard_normal((N, 3)) + np.array([1.0, 0.0, -2.0])
    return Data({"x": torch.from_numpy(x)}, N)


# chains that diverge ------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["logistic", "student_t"])
def test_momentum_is_for_all_rows(likelihood):
    """The number of rows that are used whole does not depend on what control variates add to them.

    4,000 rows of 30 features and one are up to 2^17 numbers, and with control variates they are
    more. The sampler is chosen before these are made.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 30))
    budget = {"n_draws": 2, "burn_in": 2, "thinning": 1, "n_chains": 2, "random_state": 0}
    if likelihood == "logistic":
        model = BayesianLogisticRegression(**budget).fit(X, X[:, 0] + rng.logistic(size=4000) > 0)
    else:
        y = X[:, 0] + rng.standard_t(3, size=4000)
        model = BayesianGLMRegressor(likelihood=likelihood, **budget).fit(X, y)
    assert model.batch_size_ == 4000


def counts_with_step(monkeypatch, eta, **parameters):
    """An unfitted Poisson regression that takes ``eta`` for the automatic step, and its data."""
    set_step = WhitenedGaussian.set_step

    def too_large(self, values, data, request):
        set_step(self, values, data, request)
        values.step_size, values.spacing = eta, request.sampler.spacing(eta)

    monkeypatch.setattr(WhitenedGaussian, "set_step", too_large)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    reg = BayesianGLMRegressor(likelihood="poisson", n_draws=100, random_state=0, **parameters)
    return reg, X, rng.poisson(np.exp(X[:, 0])).astype(float)


@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
def test_runs_with_automatic_steps_that_diverge_are_repeated(
    monkeypatch, tmp_path, interrupt_after
):
    """With a quarter of the step for all chains: the bits of a fit that begins with this step.

    A chain diverges with a step of 3.2. An interrupted repetition goes on from a file of its own.
    """
    monkeypatch.setattr(energy, "ENERGY", replace(energy.ENERGY, largest_error=np.inf))
    reg, *rows = counts_with_step(monkeypatch, 0.8)
    expected = reg.fit(*rows)
    reg, *rows = counts_with_step(monkeypatch, 3.2, checkpoint=tmp_path / "file.npz")
    assert "file.again-1.npz" in interrupt_after(0.7, reg, *rows)
    reg.fit(*rows)
    assert (reg.step_size_, reg.n_chains_) == (pytest.approx(0.8), 4)
    np.testing.assert_array_equal(reg.posterior_["coef"], expected.posterior_["coef"])


def test_a_fit_fails_if_every_repetition_diverges(monkeypatch):
    """Runs with 1e6 and three times a quarter of the last step."""
    reg, *rows = counts_with_step(monkeypatch, 1e6)
    with pytest.raises(SamplingError, match=r"last step size 15625.* 64 times this step"):
        reg.fit(*rows)
    assert not hasattr(reg, "posterior_")


# steps that are too long for the posterior -------------------------------------------------------


def separated_classes(prior_scale):
    """30 rows of two classes with a gap between them; mean and sd of the slope and the intercept.

    The posterior is added up on a grid of 600 slopes and 600 intercepts.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal(30)
    x, y = x + 0.02 * np.sign(x), (x > 0.0).astype(int)
    slope = np.linspace(0.0, 5.0, 600)[:, None] * prior_scale
    intercept = np.linspace(-3.0, 3.0, 600) * prior_scale
    log_p = -0.5 * (slope / prior_scale) ** 2
    for one, sign in zip(x, 2 * y - 1, strict=True):
        log_p = log_p - np.logaddexp(0.0, -sign * (slope * one + intercept))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    means = [(p * values).sum() for values in (slope, intercept)]
    squares = [(p * values**2).sum() for values in (slope, intercept)]
    return x[:, None], y, np.array(means), np.sqrt(np.subtract(squares, np.square(means)))


@pytest.mark.statistical
@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(
    ("reg", "sampler", "prior_scale"),
    [
        (BayesianGLMRegressor(likelihood="binomial"), "auto", 10.0),
        (BayesianGLMRegressor(likelihood="binomial"), "sgld", 10.0),
        pytest.param(
            BayesianGLMRegressor(likelihood="binomial"), "auto", 100.0, marks=pytest.mark.slow
        ),
        pytest.param(BayesianOrdinalClassifier(), "auto", 100.0, marks=pytest.mark.slow),
        pytest.param(BayesianLogisticRegression(), "auto", 100.0, marks=pytest.mark.slow),
    ],
)
def test_separated_classes_under_a_wide_prior(reg, sampler, prior_scale):
    """Means within 0.1 sd, sds within 10% of those of a grid.

    The posterior is nearly flat in a wedge, with a wall of all rows at its border. With steps that
    suit the Gaussian approximation, sds of the binomial fits were 1.2 times too large for a scale
    of 10, and 25 times for 100.
    """
    X, y, mean, sd = separated_classes(prior_scale)
    reg.set_params(sampler=sampler, prior_scale=prior_scale, random_state=0).fit(X, y)
    draws = reg.posterior_
    ordinal = "cutpoints" in draws.shapes
    second = -draws.pooled("cutpoints") if ordinal else draws.pooled("intercept")
    found = np.column_stack([draws.pooled("coef").ravel(), second.ravel()])
    assert np.abs((found.mean(0) - mean) / sd).max() <= 0.1
    assert np.abs(found.std(0) / sd - 1.0).max() <= 0.1


def test_steps_that_are_too_large_after_every_repetition_are_warned_of(monkeypatch):
    """No error is within a bound of zero; three repetitions divide the step by 64."""
    monkeypatch.setattr(energy, "ENERGY", replace(energy.ENERGY, largest_error=0.0))
    reg, *rows = counts_with_step(monkeypatch, 0.4)
    with pytest.warns(SamplingWarning, match="steps of SGHMC are too large.*narrower prior"):
        reg.fit(*rows)
    assert reg.step_size_ == pytest.approx(0.4 / 64.0)


@pytest.mark.parametrize("squared", [0.2, 1.0])
def test_energy_errors_on_a_normal_posterior(squared):
    """Mean of Delta^2 / d of leapfrog steps of the squared length s at draws of N(0, I / N).

    Delta is s (|theta'|^2 - |theta|^2) / 8 for theta' = (1 - s/2) theta + sqrt(s) xi, in units of
    1 / sqrt(N). Means of 4,000 squares have standard errors of 2.5%.
    """
    model = GaussianMean(3, 0.0)
    data = Data({"x": torch.zeros(N, 3, dtype=torch.float64)}, N)
    rng, s = np.random.default_rng(1), squared
    draws = rng.standard_normal((4, 5000, 3)) / np.sqrt(N)
    found = energy.energy_error(Target(model, data), Minibatches(data, N), [draws], s, 1.0)
    square, growth = (s / 8.0) ** 2, s * s / 4.0
    variance = 2.0 * (s - growth) ** 2 + 2.0 * s * s + 4.0 * s * (1.0 - 0.5 * s) ** 2
    assert found == pytest.approx(square * (variance + 3.0 * growth**2), rel=0.06)
    assert energy.allowed_error(1.0, s) == pytest.approx(energy.ENERGY.largest_error * s**3 / 16.0)


@pytest.mark.parametrize(("share", "friction"), [(1.0, 0.1), (0.25, 0.05)])
def test_smaller_steps_have_less_friction(share, friction):
    """D = alpha / h stays, for steps h^2 in proportion to eta."""
    assert SGHMC().for_steps(share).friction == pytest.approx(friction)
    assert SGLD().for_steps(share).get_params() == SGLD().get_params()
