"""BayesianMLPClassifier: what is refused, and data of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from _cases import cases
from _mlp import small
from _posteriors import assert_same_draws
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import PolynomialFeatures

from skbayes_sgmcmc import (
    BayesianMLPRegressor,
    SamplingWarning,
)
from skbayes_sgmcmc.samplers import PSGLD

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


# what is refused ----------------------------------------------------------------------------------


@cases(
    "parameters, message",
    [
        ({"hidden_layer_sizes": 0}, "hidden_layer_sizes=0 is not allowed: .* at least 1"),
        ({"hidden_layer_sizes": (5, 0)}, "hidden_layer_sizes=0"),
        ({"hidden_layer_sizes": [[5]]}, "hidden_layer_sizes="),
        ({"activation": "gelu"}, "activation='gelu' .* one of 'relu', 'tanh', 'logistic'"),
        ({"prior_scale": [1.0]}, "prior_scale=.* the network has 2 layers"),
        ({"prior_scale": [1.0, 2.0, 3.0]}, "prior_scale=.* the network has 2 layers"),
        ({"prior_scale": [1.0, -1.0]}, "prior_scale=.*a positive number"),
        ({"prior_scale": [1.0, float("nan")]}, "prior_scale="),
        ({"prior_scale": "fan_out"}, "prior_scale='fan_out' .* 'fan_in'"),
        ({"prior_scale": ["a", "b"]}, "prior_scale="),
        ({"sampler": "mala"}, "step_size='auto' is not allowed with MALA .*'psgld'"),
        ({"sampler": "rsgld"}, "sampler=RSGLD is not allowed: NetworkModel has no metric"),
        ({"sampler": "rsgld", "step_size": 0.1}, "sampler=RSGLD is not allowed"),
        ({"sampler": "psgld", "integrator": "baoab"}, "integrator='baoab' is not allowed with"),
        ({"sampler": PSGLD(decay=1.0)}, "sampler.decay=1.0"),
        ({"init": "gaussian"}, "init='gaussian' is not allowed"),
        ({"init": np.zeros(3)}, r"init of shape \(3,\) .* broadcasts to \(2, 51\)"),
    ],
)
def test_bad_parameters_are_named(iris, parameters, message):
    clf = small(**parameters)
    with pytest.raises(ValueError, match=message):
        clf.fit(*iris)
    assert set(vars(clf)) == set(clf.get_params(deep=False))
    with pytest.raises(NotFittedError):
        clf.predict(iris[0])


def test_chains_stay_near_the_data_in_wide_tables():
    """All products of three of ten features: 285 columns of at most 15 sds, and 331 rows.

    With this seed, a chain of pSGLD had weights of 5,900 and predicted 1e21 sds. The targets lie
    within 2.4 sds of their mean, and predictions within 2.4 for seeds 0 to 7 where no chain ran
    away.
    """
    X, y = load_diabetes(return_X_y=True)
    X = PolynomialFeatures(3, include_bias=False).fit_transform(X)
    rows = np.random.default_rng(7).permutation(442)
    reg = BayesianMLPRegressor(sampler="psgld", n_chains=1, random_state=7)
    mean, sd = reg.fit(X[rows[:331]], y[rows[:331]]).predict(X[rows[331:]], return_std=True)
    assert np.abs(mean - y.mean()).max() < 4.0 * y.std() and sd.max() < 8.0 * y.std()


def test_psgld_bounds_a_step_far_too_large(iris):
    """Its cap keeps eta G times the prior's curvature at 1/2: there is no step that overflows."""
    assert np.isfinite(small(step_size=1e6).fit(*iris).predict_proba(iris[0])).all()


# data ---------------------------------------------------------------------------------------------


@cases("kind", ["float16", "float32", "int64", "uint8", "bool"])
def test_features_of_any_type(iris, kind):
    """As their values in float64; float32 ones are standardised in float32, to 1e-6."""
    X, y = (10.0 * iris[0]).round().astype(kind), iris[1]
    clf, expected = small().fit(X, y), small().fit(X.astype(np.float64), y)
    assert_same_draws(expected, clf, atol=1e-3 if kind == "float32" else 0.0)
    np.testing.assert_allclose(
        clf.predict_proba(X), expected.predict_proba(X.astype(float)), atol=1e-3
    )


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6])
def test_constant_columns(iris, constant):
    """They are seen as 0, so that all their values give the same chains and predictions.

    A value never seen changes predictions as much as its distance in units of the feature.
    """
    X, y = iris
    wide = np.column_stack([X, np.full(150, constant)])
    clf = small(burn_in=600).fit(wide, y, sample_weight=np.linspace(0.1, 1.0, 150))
    zero = np.column_stack([X, np.zeros(150)])
    same = small(burn_in=600).fit(zero, y, sample_weight=np.linspace(0.1, 1.0, 150))
    for offset in (0.0, 1.0):  # rounding, of about 1e-10 for 1e6, grows over the steps
        np.testing.assert_allclose(
            clf.predict_proba(wide + offset), same.predict_proba(zero + offset), rtol=0, atol=1e-5
        )
    assert clf.score(wide, y) > 0.8
    assert np.isfinite(clf.predict_proba(wide + 1.0)).all()
    assert np.isfinite(
        small().fit(np.full((20, 3), constant), [0, 1] * 10).predict_proba(wide[:, :3])
    ).all()


def test_slow_mixing_is_warned_of(iris):
    """Of predictions: weights of different chains can't agree. Each warning points at this file.

    Chains that stay at their starts also describe the rows worse than the frequencies do.
    """
    with pytest.warns(SamplingWarning) as caught:
        small(step_size=1e-7).fit(*iris)
    mixing, sense = (str(warning.message) for warning in caught)
    assert "have not mixed well" in mixing and "log loss of single draws" in sense
    assert {warning.filename for warning in caught} == {__file__}
