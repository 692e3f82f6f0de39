"""Offsets and exposures of linear models: what is common to them belongs to the intercept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases

from skbayes_sgmcmc import BayesianGLMRegressor, SamplingError, to_torch

#: budgets too small to mix, on purpose, since draws are only compared with other draws
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}
tiny_fits = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 2))
COUNTS = RNG.poisson(3.0, 50).astype(float)
TARGETS = {
    "normal": COUNTS,
    "student_t": COUNTS,
    "poisson": COUNTS,
    "negative_binomial": COUNTS,
    "gamma": COUNTS + 0.5,
    "binomial": (COUNTS > 2.0).astype(float),
}


def fitted(likelihood, column=None, y=None, rows=X, **parameters):
    rows = rows if column is None else np.column_stack([rows, column])
    reg = BayesianGLMRegressor(likelihood=likelihood, **parameters, **TINY)
    return reg.fit(rows, TARGETS[likelihood] if y is None else y)


@tiny_fits
@pytest.mark.parametrize("shift", [30.0, -1000.0])
@pytest.mark.parametrize("likelihood", TARGETS)
def test_constant_offsets_are_a_part_of_the_intercept(likelihood, shift):
    """The coefficients of a fit without them, draw by draw: only rounding, 1e-16 of the offset."""
    plain = fitted(likelihood)
    moved = fitted(likelihood, np.full(50, shift), offset=2)
    np.testing.assert_allclose(moved.posterior_["coef"], plain.posterior_["coef"], atol=1e-8)
    intercept = plain.posterior_["intercept"] - shift
    np.testing.assert_allclose(moved.posterior_["intercept"], intercept, atol=1e-8)
    assert moved.intercept_ == pytest.approx(plain.intercept_ - shift, abs=1e-8)
    rows = np.column_stack([X, np.full(50, shift)])
    for method in ("predict", "predict_interval"):
        found, known = getattr(moved, method)(rows), getattr(plain, method)(X)
        np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-8)


@tiny_fits
@pytest.mark.parametrize("exposure", [1e-12, 1e30])
@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_constant_exposures_are_a_part_of_the_intercept(likelihood, exposure):
    plain = fitted(likelihood)
    moved = fitted(likelihood, np.full(50, exposure), exposure=2)
    np.testing.assert_allclose(moved.posterior_["coef"], plain.posterior_["coef"], atol=1e-8)
    assert moved.intercept_ == pytest.approx(plain.intercept_ - np.log(exposure), abs=1e-8)


@tiny_fits
def test_offsets_of_real_targets_are_differences():
    """y = f + offset is the model of y - offset, whatever the sd of the offset: the same draws.

    Rounding of y, to 1e-16 of 1e6, is a billionth of the sd of the coefficients.
    """
    offset = 1e6 * RNG.standard_normal(50)
    y = COUNTS + offset
    found, known = fitted("normal", offset, y, offset=2), fitted("normal")
    for name in ("coef", "intercept", "log_noise"):
        np.testing.assert_allclose(found.posterior_[name], known.posterior_[name], atol=1e-6)
    rows = np.column_stack([X, offset])
    np.testing.assert_allclose(found.predict(rows) - offset, known.predict(X), atol=1e-6)


@tiny_fits
def test_offsets_in_a_stream_keep_the_centre_of_the_first_call():
    """A stream with the offsets o + 1000 is that with the offsets o, but for the intercept."""
    offset = RNG.normal(0.0, 0.5, 50)

    def stream(shift):
        reg = BayesianGLMRegressor(likelihood="poisson", offset=2, **TINY)
        for part in range(3):
            rows = np.column_stack([X, offset + shift])[part::3]
            reg.partial_fit(rows, COUNTS[part::3])
        return reg

    near, far = stream(0.0), stream(1000.0)
    np.testing.assert_allclose(far.posterior_["coef"], near.posterior_["coef"], atol=1e-8)
    assert far.intercept_ == pytest.approx(near.intercept_ - 1000.0, abs=1e-8)


@tiny_fits
def test_another_fit_forgets_the_centre():
    """The same draws as of an estimator that has never seen offsets."""
    reg = fitted("poisson", np.full(50, 30.0), offset=2)
    again = reg.set_params(offset=None).fit(X, COUNTS).posterior_["intercept"]
    np.testing.assert_array_equal(again, fitted("poisson").posterior_["intercept"])


@tiny_fits
@pytest.mark.parametrize("parameter", ["offset", "exposure"])
def test_exported_modules_add_offsets_as_they_are(parameter):
    """In float32, whose rounding of an intercept of -30 is 2e-6."""
    column = np.full(50, 30.0 if parameter == "offset" else 1e12)
    reg = fitted("poisson", column, **{parameter: 2})
    rows = np.column_stack([X, column])
    mean = to_torch(reg)(torch.tensor(rows).float())[0]
    of_draws = reg.predict_mean_samples(rows).mean(axis=0)
    np.testing.assert_allclose(mean.detach().numpy(), of_draws, rtol=1e-4)


@cases("likelihood", ["poisson", "negative_binomial", "gamma"])
@cases(
    "column, parameters, message",
    [
        (np.full(50, 1000.0), {"fit_intercept": False}, r"^offset of row 0.*exp\(1000\).*=True"),
        (np.full(50, -1000.0), {"fit_intercept": False}, r"^offset of row 0.*exp\(-1000\)"),
        (np.r_[1000.0, np.zeros(49)], {}, r"^offset of row 1.*exp\(-99.*between rows"),
        (np.r_[-1000.0, np.zeros(49)], {}, r"^offset of row 0.*exp\(-1000\)"),
    ],
)
def test_offsets_that_no_target_agrees_with_are_named(likelihood, column, parameters, message):
    """Means that differ by factors of exp(300) and more, beside targets of the same size."""
    with pytest.raises(ValueError, match=message):
        fitted(likelihood, column, 1.0 + COUNTS, offset=2, **parameters)


@pytest.mark.statistical
def test_rows_without_events_may_have_next_to_no_exposure():
    """They say nothing: coefficients are those without these rows, to Monte Carlo error, 0.1 sd."""
    exposure, y = np.where(np.arange(50) < 5, 1e-200, 1.0), np.where(np.arange(50) < 5, 0.0, COUNTS)
    found = BayesianGLMRegressor(likelihood="poisson", exposure=2, random_state=0)
    found.fit(np.column_stack([X, exposure]), y)
    known = BayesianGLMRegressor(likelihood="poisson", random_state=1).fit(X[5:], y[5:])
    difference = np.abs(found.coef_[:2] - known.coef_)
    assert (difference < 0.1 * known.posterior_.std("coef")).all()


@pytest.mark.parametrize("sampler", ["sghmc", "gibbs"])
def test_matrices_that_overflow_are_an_error_of_ours(sampler):
    """Squares of 3e149 times a weight of 1e15; scipy's own error says nothing of the cause."""
    reg = BayesianGLMRegressor(sampler=sampler, **TINY)
    with pytest.raises(SamplingError, match="X, y, sample_weight"):
        reg.fit(3e149 * X, COUNTS, np.full(50, 1e15))
