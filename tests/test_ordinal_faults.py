"""Ordered classes: data that need a second look, exports and displays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases
from _ordinal import REFERENCES, TINY, grades, tiny_fits
from sklearn.datasets import load_iris

from skbayes_sgmcmc import (
    BayesianOrdinalClassifier,
    to_torch,
)
from skbayes_sgmcmc.inspection import CoefficientDisplay

# data that need a second look ---------------------------------------------------------------------


#: sets of ``make_reference_ordinal.py``, the first one of the default tier
SEPARATED = ("iris", "three", "eight_of_30", "twelve", "rare")


@pytest.mark.statistical
@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (i > 0)) for i, name in enumerate(SEPARATED)],
)
def test_default_fits_of_separated_classes_are_right(name):
    """Against long NUTS runs, whose errors are 0.02 sd: means within 0.1 sd, sds within 10%.

    The likelihood has no maximum, or hardly one. The coefficients and all gaps have a common factor
    that only the priors bound. No chain may diverge, and none may give a warning.
    """
    with np.load(REFERENCES) as file:
        found = {key.split("/")[1]: file[key] for key in file if key.startswith(f"{name}/")}
    assert found["max_rhat"] < 1.01
    clf = BayesianOrdinalClassifier(random_state=0).fit(found["X"], found["y"])
    assert clf.n_chains_ == 4
    posterior = clf.posterior_
    cuts = posterior.pooled("cutpoints")
    draws = {
        "coef": posterior.pooled("coef"),
        "cutpoints": cuts,
        "log_gaps": np.log(np.diff(cuts, axis=1)),
        "log_scale": np.log(posterior.pooled("scale")),
    }
    for part, each in draws.items():
        sd = found[f"{part}_sd"]
        assert np.abs((each.mean(0) - found[f"{part}_mean"]) / sd).max() <= 0.1
        assert np.abs(each.std(0) / sd - 1.0).max() <= 0.1


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
def test_a_wide_prior_of_separated_classes():
    """Coefficients of iris: means within 0.1 sd, sds within 10% of HMC with 48,000 draws.

    R-hat of HMC is at most 1.003. With the step that suits the Gaussian approximation, sds are 3 to
    8 times too large.
    """
    X, y = load_iris(return_X_y=True)
    coef = BayesianOrdinalClassifier(prior_scale=10.0, random_state=0).fit(X, y).posterior_["coef"]
    mean, sd = np.array([-3.247, -4.963, 9.823, 13.685]), np.array([2.174, 2.836, 3.456, 4.860])
    assert np.abs((coef.mean((0, 1)) - mean) / sd).max() <= 0.1
    assert np.abs(coef.std((0, 1)) / sd - 1.0).max() <= 0.1


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["sgld", "mala"])
def test_other_samplers_know_separated_classes(sampler):
    """Bounds of two parts in ten: chains of these samplers are shorter in effect.

    Without walls, SGLD's sds are five times too large.
    """
    with np.load(REFERENCES) as file:
        X, y = file["three/X"], file["three/y"]
        mean, sd = (file[f"three/coef_{moment}"] for moment in ("mean", "sd"))
    draws = BayesianOrdinalClassifier(sampler=sampler, random_state=0).fit(X, y).posterior_
    coef = draws.pooled("coef")
    assert np.abs((coef.mean(0) - mean) / sd).max() <= 0.2
    assert np.abs(coef.std(0) / sd - 1.0).max() <= 0.2


def test_a_class_without_rows_of_positive_weight():
    """In the middle, its gap has a proper posterior; the lowest leaves the first cut without one.

    The gap of the empty class is small: its probability at f = 0 is at most that of one row of 60.
    """
    X, y = grades(60, cuts=(-0.5, 1.0))
    clf = BayesianOrdinalClassifier(prior_scale=1.0, n_draws=200, random_state=0)
    clf.fit(X, y, y != 1)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict_proba(X)[:, 1].mean() < 2.0 / 60.0
    assert clf.summary()["r_hat"].max() <= 1.02
    with pytest.raises(ValueError, match="lowest class, 0, with positive weight"):
        BayesianOrdinalClassifier().fit(X, y, y != 0)


@cases(
    "parameters, y, message",
    [
        ({}, [1] * 10, "1 class"),
        ({}, [0.5 * k for k in range(10)], "Unknown label type: continuous"),
        ({}, np.array([1, "low"] * 5, dtype=object), "several types, such as 'low' and 1"),
        ({"prior_scale": [1.0]}, [0, 1] * 5, "prior_scale of length 1.*2 features"),
        (
            {"prior": "laplace", "prior_scale": "learned"},
            [0, 1] * 5,
            "prior_scale='learned'.*prior='laplace'",
        ),
        ({"sampler": "gibbs"}, [0, 1] * 5, "sampler=.*no conditional"),
    ],
)
def test_bad_input(parameters, y, message):
    X = np.random.default_rng(0).standard_normal((10, 2))
    with pytest.raises(ValueError, match=message):
        BayesianOrdinalClassifier(**parameters).fit(X, y)


# exports and displays -----------------------------------------------------------------------------


@tiny_fits
def test_torch_modules_students_and_displays():
    """Modules predict the same to float32's precision, logits too; a display shows coefficients."""
    X, y = grades()
    clf = BayesianOrdinalClassifier(**TINY).fit(X, y)
    expected = clf.predict_proba(X)
    with torch.no_grad():
        found = to_torch(clf)(torch.tensor(X, dtype=torch.float32))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    blocks = [torch.softmax(z, 2).sum(0) for _, z in clf._iter_logits(torch.from_numpy(X))]
    np.testing.assert_allclose(sum(blocks) / 40.0, expected, atol=1e-12)
    student = clf.distill(X, n_epochs=60, batch_size=50, learning_rate=0.02, random_state=0)
    assert np.abs(student.predict_proba(X) - expected).mean() < 0.05  # 0.12 for their means
    pytest.importorskip("matplotlib")
    display = CoefficientDisplay.from_estimator(clf)
    np.testing.assert_allclose(display.middle, clf.coef_)
