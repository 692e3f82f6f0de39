"""BayesianICA: bad input, the Amari distance and the display of instabilities."""

from __future__ import annotations

import numpy as np
import pytest
from _cases import cases
from _components import mixed, small
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    SamplingError,
)
from skbayes_sgmcmc.diagnostics import amari_distance
from skbayes_sgmcmc.inspection import InstabilityDisplay
from skbayes_sgmcmc.samplers import SGHMC

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


@pytest.fixture(scope="module")
def data():
    return mixed(600)


# bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_rank_deficient_rows(data, whiten, dtype, offset):
    """A sum of columns, to the rounding of the rows' own precision; with a large mean, too."""
    X = (data[0] + offset).astype(dtype)
    double = np.c_[X[:, :3], X[:, :1] + X[:, 1:2]]
    with pytest.raises(ValueError, match=r"n_components=4 .* X has rank 3 .* give n_components=3"):
        small(whiten=whiten).fit(double)
    assert small(n_components=3).fit(double).components_.shape == (3, 4)


@cases("rows, message", [
        (np.ones((50, 3)), "n_components=3 .* rank 0 .* 3 of them constant.*give features that"),
        (np.c_[np.random.default_rng(0).normal(size=(50, 2)), np.ones(50)],
         "n_components=3 .* rank 2 .* 1 of them constant.*give n_components=2 or fewer"),
        (np.random.default_rng(0).normal(size=(4, 6)), r"n_components=6 .* rank 3 .*\(4 rows, 6"),
        (np.full((50, 3), np.nan), "contains NaN"),
        (np.array([[1.0, 2.0], [np.inf, 1.0], [0.0, 2.0]]), "contains infinity"),
        (np.ones((1, 2)), "1 sample"),
    ])  # fmt: skip
def test_bad_rows(rows, message):
    ica = small()
    with pytest.raises(ValueError, match=message):
        ica.fit(rows)
    assert not [name for name in vars(ica) if name.endswith("_")]


@cases(
    "parameters, message",
    [
        ({"n_components": 7}, "n_components=7 is not allowed: .* at most 6"),
        ({"n_components": 2.0}, "n_components=2.0"),
        ({"n_components": 2, "whiten": False}, "n_components=2 is not allowed with whiten=False"),
        ({"whiten": "unit-variance"}, "whiten='unit-variance' .* True, False"),
        ({"sampler": "sgld"}, "step_size='auto' is not allowed with sampler='sgld'.*'rsgld' or"),
        ({"sampler": SGHMC()}, "step_size='auto' is not allowed with sampler=SGHMC"),
        ({"init": "gaussian"}, "init='gaussian'.* 'auto', 'random'"),
        ({"init": np.eye(3)}, r"init of shape \(3, 3\) .* \(6, 6\) or \(2, 6, 6\)"),
    ],
)
def test_bad_parameters_are_named(data, parameters, message):
    ica = small(**parameters)
    with pytest.raises(ValueError, match=message):
        ica.fit(data[0])
    with pytest.raises(NotFittedError):
        ica.transform(data[0])


def test_divergence_is_reported(data):
    """With what to change; an earlier fit stays as it was."""
    X = data[0]
    ica = small(step_size=0.01).fit(X)
    before = ica.components_
    with pytest.raises(SamplingError, match=r"2 of 2 chains diverged .* Reduce step_size"):
        ica.set_params(step_size=100.0).fit(X)
    assert ica.components_ is before
    singular = clone(ica).set_params(step_size=0.01, init=np.zeros((6, 6)))
    with pytest.raises(SamplingError, match="chains diverged"):
        singular.fit(X)


# Amari distance and display -----------------------------------------------------------------------


def test_amari_distance_is_invariant_and_zero_at_the_truth():
    """Order and signs never count, scales not at the truth; 1 where all shares are equal."""
    rng = np.random.default_rng(0)
    W, A = rng.standard_normal((5, 4, 4)), rng.standard_normal((4, 4))
    distance = amari_distance(W, A)
    assert distance.shape == (5,) and (distance > 0.01).all() and (distance < 1.0).all()
    changed = -5.0 * W[:, rng.permutation(4)] * np.array([-1.0, 1.0, -1.0, 1.0])[:, None]
    np.testing.assert_allclose(amari_distance(changed, A), distance)
    other = A[:, rng.permutation(4)] * np.array([-1.0, 3.0, -0.2, 10.0])
    np.testing.assert_allclose(amari_distance(np.linalg.inv(other), A), 0.0, atol=1e-12)
    assert amari_distance(np.ones((3, 3)), np.eye(3)) == 1.0
    assert amari_distance(np.ones((3, 3)), np.eye(3), normalize=False) == 12.0
    # more features than components
    wide = rng.standard_normal((6, 4))
    np.testing.assert_allclose(amari_distance(np.linalg.pinv(wide), wide), 0.0, atol=1e-12)


@cases("shape", [(4,), (3, 4), (4, 3)])
def test_amari_distance_of_wrong_shapes(shape):
    with pytest.raises(ValueError, match="unmixing of shape .* is not allowed"):
        amari_distance(np.ones(shape), np.eye(4))


@pytest.mark.usefixtures("figures")
def test_instability_display(data):
    """Sorted bars with the components' own numbers, in given axes, from a pipeline too."""
    ica = small().fit(data[0])
    display = InstabilityDisplay.from_estimator(ica, color="k")
    heights = [bar.get_height() for bar in display.bars_]
    np.testing.assert_allclose(heights, np.sort(ica.instability_))
    labels = [int(tick.get_text()) for tick in display.ax_.get_xticklabels()]
    np.testing.assert_allclose(ica.instability_[labels], heights)
    pipeline = make_pipeline(StandardScaler(), small()).fit(data[0])
    again = InstabilityDisplay.from_estimator(pipeline, ax=display.ax_)
    assert again.ax_ is display.ax_ and again.figure_ is display.figure_
    clf = BayesianLogisticRegression(n_draws=20).fit(*load_iris(return_X_y=True))
    with pytest.raises(ValueError, match="give a fitted BayesianICA"):
        InstabilityDisplay.from_estimator(clf)


def test_gradient_and_compiled_are_parameters(data):
    """One estimate of the gradient is not the other; compiled code is for plain samplers only."""
    X = data[0]
    draws = {
        gradient: small(batch_size=20, gradient=gradient).fit(X).posterior_["components"]
        for gradient in ("auto", "control_variates", "minibatch")
    }
    np.testing.assert_array_equal(draws["auto"], draws["control_variates"])
    assert np.abs(draws["auto"] - draws["minibatch"]).max() > 1e-3
    with pytest.raises(ValueError, match="compiled=True is not allowed here"):
        small(compiled=True).fit(X)
    plain = {"sampler": "sgld", "integrator": "euler", "step_size": 0.01}
    pytest.importorskip("numba")
    compiled = small(compiled=True, **plain).fit(X).components_
    # another generator, so other draws about the same mode: the means of 40 differ by a twentieth
    # of the largest entry, and independent starts by more than all of it
    other = small(compiled=False, **plain).fit(X).components_
    assert 0.0 < np.abs(compiled - other).max() < 0.2 * np.abs(other).max()
