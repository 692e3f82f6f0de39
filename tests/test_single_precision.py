"""Gradients in single precision: where steps take all rows, and only where it changes nothing.

Positions and draws are in double precision all the same.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_wine

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc._engine import precision

#: a step of one chain takes 300 (3000 + 2 * 300) = 1.08 million multiplications, just enough
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3000, 300))
y = X[:, :3].sum(1) + RNG.logistic(size=3000) > 0.0


@pytest.fixture
def chosen(replaced, monkeypatch):
    """The precision of the minibatches of every fit, and the measured error, if it was measured."""
    found = []

    def judge(*given):
        found.append((enough(*given), None))
        return found[-1][0]

    def measure(*given):
        found.append((None, error(*given)))
        return found[-1][1]

    enough, error = precision.single_is_enough, precision._error
    replaced("single_is_enough", judge)
    monkeypatch.setattr(precision, "_error", measure)
    return found


def fit(x=X, target=y, **parameters):
    short = {"n_draws": 20, "burn_in": 0, "thinning": 1, "n_chains": 2, "random_state": 0,
             "batch_size": len(x)}  # fmt: skip
    return BayesianLogisticRegression(**short | parameters).fit(x, target)


pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def test_many_products_are_in_single_precision_and_draws_stay_those_of_double(chosen):
    """Each of 20 steps from one start may add errors of 1e-2 sd, the bound, if they all agree.

    Measured: 2e-6 sd after 20 steps. Draws of another seed differ by about an sd.
    """
    single, double = fit(), fit(dtype="float64")
    assert [judged for judged, error in chosen if error is None] == [True]
    draws, others = (clf.posterior_["coef"] for clf in (single, double))
    assert draws.dtype == np.float64
    assert (draws != others).any()
    sd = fit(thinning=10, n_draws=50).posterior_["coef"].std((0, 1))
    away = np.abs(draws - others)[..., sd > 0] / sd[sd > 0]
    assert away.max() < 0.01


def test_columns_far_from_zero_keep_double_precision(chosen):
    """Sums of 300 numbers of about 1e5, in single precision, are off by 0.01 or more."""
    single, double = (fit(X + 1e5, dtype=dtype, n_draws=4) for dtype in ("auto", "float64"))
    (judged,) = (judged for judged, error in chosen if error is None)
    (error,) = (error for _, error in chosen if error is not None)
    assert not judged
    assert error > precision.LARGEST_ERROR
    np.testing.assert_array_equal(single.posterior_["coef"], double.posterior_["coef"])


def test_few_products_and_minibatches_keep_double_precision(chosen):
    fit(*load_wine(return_X_y=True))
    fit(batch_size=2950)  # a step still takes enough multiplications
    assert [judged for judged, _ in chosen] == [False, False]


@pytest.mark.statistical
def test_the_error_is_in_posterior_sds(chosen, monkeypatch):
    """The posterior is about N(0, I/N) in these coordinates, and its gradient phi.

    A gradient that is off by b / sqrt(N) in one coordinate has its mean off by b sds. Rounding adds
    less than the bound, or the plain fit of these rows would be in double precision.
    """
    exact = precision.Evaluator.gradient

    def off(self, phi):
        g = exact(self, phi).clone()
        if self._dtype == torch.float32:
            g[:, 3] += 0.1 / np.sqrt(len(X))
        return g

    monkeypatch.setattr(precision.Evaluator, "gradient", off)
    fit(n_draws=4)
    (error,) = (error for _, error in chosen if error is not None)
    assert error == pytest.approx(0.1, abs=precision.LARGEST_ERROR)


def test_an_interrupted_fit_in_single_precision_goes_on_to_the_same_draws(
    tmp_path, limits, interrupt_after
):
    limits(chunk_steps=64)
    whole = fit(n_draws=40, thinning=5)
    went_on = clone(whole).set_params(checkpoint=tmp_path / "fit.npz")
    interrupt_after(0.5, went_on, X, y)
    went_on.fit(X, y)
    np.testing.assert_array_equal(went_on.posterior_["coef"], whole.posterior_["coef"])
