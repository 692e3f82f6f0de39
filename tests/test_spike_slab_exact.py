"""Inclusion probabilities of default fits against enumeration, and warnings of those that fail.

The references are those of examples/benchmarks/inclusion.py, whose page has all problems.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import skbayes_sgmcmc as sk

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "benchmarks"))
from _inclusion import PROBLEMS, exact_inclusion, make_problem

#: the same draws from more chains, each of which takes a tenth of the steps
QUICK = {"regression, low noise": {"n_chains": 16, "n_draws": 25, "max_steps": 2000}}


def estimator(name, **parameters):
    kind = sk.SparseBayesianClassifier if PROBLEMS[name][0] else sk.SparseBayesianRegressor
    return kind(random_state=0, **parameters)


def texts_of(fit):
    """The fitted estimator, and the texts of warnings of the section on selections."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit()
    texts = [str(w.message) for w in caught if issubclass(w.category, sk.SamplingWarning)]
    return fitted, [text for text in texts if text.endswith('("nothing-is-selected")')]


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PROBLEMS],
)
def test_default_inclusion_probabilities_are_exact(name):
    """Of 400 draws; the sets of features change slowly, so that some 50 are independent.

    Three standard errors of 50 draws of a probability near one half are 0.21.
    """
    X, y, *_ = make_problem(name, 0)
    exact, _ = exact_inclusion(X, y, PROBLEMS[name][0], n_draws=1000)
    longer = {"thinning": 400} if "correlated" in name else {}  # neighbours rarely change places
    found = estimator(name, **QUICK.get(name, longer)).fit(X, y).inclusion_probability_
    np.testing.assert_allclose(found, exact, atol=0.21)


@pytest.mark.statistical
@pytest.mark.slow
def test_a_rare_class_has_wide_spikes():
    """53 of 6,000 rows, and an effect of 7.6 standard errors: with both adaptations it is found.

    Spikes of the width for classes of equal size are a fifteenth of the standard error, and held
    the coefficient so firmly that delta of "sa" went to zero.
    """
    rng = np.random.default_rng(2)
    X = rng.standard_normal((6000, 8))
    y = -5.2 + X[:, 0] + 0.5 * X[:, 1] + rng.logistic(size=6000) > 0.0
    for adaptation in ("auto", "sa"):
        prior = sk.SpikeSlab(adaptation=adaptation)
        clf = sk.SparseBayesianClassifier(random_state=0, n_chains=2, prior=prior, max_steps=6000)
        assert clf.fit(X, y).inclusion_probability_[0] > 0.9


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.slow
@pytest.mark.parametrize("adaptation", ["auto", "sa"])
def test_many_rows_in_minibatches_do_not_widen_the_posterior(adaptation):
    """The noise of minibatches adds a fifth to the variance, and so a tenth to the sds.

    Three Monte Carlo errors of an sd from 100 independent draws are 21% more. With the steps of few
    rows, the sds were 3 times as large, and inclusion probabilities of noise 0.4.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 4))
    y = X[:, 0] + rng.logistic(size=20_000) > 0.0
    clf = sk.SparseBayesianClassifier(
        random_state=0, n_chains=2, prior=sk.SpikeSlab(adaptation=adaptation)
    )
    clf.fit(X, y)
    assert clf.batch_size_ == 400 and clf.inclusion_probability_[1:].max() < 0.05
    p = clf.predict_proba(X)[:, 0]
    expected = 1.0 / np.sqrt(np.sum(p * (1.0 - p) * X[:, 0] ** 2))
    assert 0.79 < clf.posterior_.std("weight_1")[0, 0] / expected < 1.31


# warnings -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_delta_that_runs_away_warns_with_a_remedy_that_helps():
    """Of "sa", whose delta cannot come back from zero; of the default and of the remedies, not."""
    X, y, *_ = make_problem("few rows", 0)
    run = {"n_chains": 2, "max_steps": 3000}

    def warned(**prior):
        return texts_of(lambda: estimator("few rows", prior=sk.SpikeSlab(**prior), **run).fit(X, y))

    clf, (text,) = warned(adaptation="sa")
    assert "delta of 'weight_1' has run away to" in text and "no weight" in text
    assert clf.delta_[0] < 1e-6 and len(clf.get_support(indices=True)) == 0
    for remedy in ({"adaptation": "gibbs"}, {"adaptation": "sa", "inclusion_prior": (2.0, 2.0)}):
        clf, texts = warned(**remedy)
        assert not texts and 0 in clf.get_support(indices=True), remedy


def test_delta_may_run_away_to_one():
    """With b = 1, whose mode is at one once every weight is in the slab."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    y = X.sum(1) + 0.1 * rng.standard_normal(500)
    prior = sk.SpikeSlab(adaptation="sa", inclusion_prior=(3.0, 1.0))
    reg = sk.SparseBayesianRegressor(prior=prior, random_state=0, n_chains=2, max_steps=3000)
    _, (text,) = texts_of(lambda: reg.fit(X, y))
    assert "every weight" in text and "a larger b" in text


@pytest.mark.slow
def test_spikes_that_hold_all_effects_warn_with_a_remedy_that_helps():
    """Sigma that is adapted in classification makes the spikes as wide as the coefficients."""
    X, y = load_breast_cancer(return_X_y=True)
    run = {"random_state": 0, "n_chains": 2, "max_steps": 3000}
    wide = sk.SparseBayesianClassifier(prior=sk.SpikeSlab(0.1, learn_sigma=True), **run)
    _, (text,) = texts_of(lambda: wide.fit(X, y))
    assert "leaves out every feature, and yet" in text and "learn_sigma=False" in text
    prior = sk.SpikeSlab(spike_scale=0.02, learn_sigma=False)
    narrow, texts = texts_of(lambda: sk.SparseBayesianClassifier(prior=prior, **run).fit(X, y))
    assert not texts and narrow.get_support().any()


def test_nothing_to_select_is_no_reason_to_warn():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 6)), rng.standard_normal(200)
    reg = sk.SparseBayesianRegressor(random_state=0, n_chains=2, max_steps=1000)
    assert texts_of(lambda: reg.fit(X, y))[1] == []
    assert not reg.get_support().any()


# what "auto" means --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(("temperature", "same"), [(1.0, "gibbs"), (0.5, "sa")])
def test_auto_is_gibbs_at_temperature_one_only(temperature, same):
    """Bit by bit, with a prior by its name or as an object, also of modules."""
    from torch import nn

    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    run = {"n_chains": 2, "n_draws": 10, "burn_in": 20, "thinning": 2, "step_size": 0.01,
           "temperature": temperature, "random_state": 0}  # fmt: skip

    def draws(prior):
        sparse = sk.SparseBayesianClassifier(prior=prior, **run).fit(X, X[:, 0] > 0.0)
        module = sk.BayesianModuleClassifier(lambda: nn.Linear(3, 2), prior=prior, **run)
        return sparse.posterior_["sigma"], module.fit(X, X[:, 0] > 0.0).posterior_["rho_weight"]

    expected = draws(sk.SpikeSlab(adaptation=same))
    for prior in (sk.SpikeSlab(), "spike_slab"):
        for found, given in zip(draws(prior), expected, strict=True):
            np.testing.assert_array_equal(found, given)
