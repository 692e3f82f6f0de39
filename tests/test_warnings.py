"""What warnings of sampling say, where they point and how often they come."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    BayesianModuleClassifier,
    BayesianOrdinalClassifier,
    LatentDirichletAllocation,
    SamplingWarning,
)


def small(**parameters):
    return BayesianLogisticRegression(n_draws=50, random_state=0, **parameters)


@pytest.fixture(scope="module")
def data():
    return make_classification(200, 5, random_state=0)


def mixing_warnings(fit):
    """Texts of the warnings of mixing, each of which points at a line of this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    found = [w for w in caught if issubclass(w.category, SamplingWarning)]
    assert {w.filename for w in found} <= {__file__}
    return [str(w.message) for w in found]


def test_a_warning_names_the_estimator_and_the_worst_coordinates():
    """As ``summary()`` does; of networks, which are compared by their predictions, rows."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    clf = small(step_size=1e-5, n_chains=3)
    (text,) = mixing_warnings(lambda: clf.fit(X, y))
    table = clf.summary()
    worst, least = (table["name"][j] for j in (np.argmax(table["r_hat"]), np.argmin(table["ess"])))
    assert re.search(r"BayesianLogisticRegression\([^)]*n_chains=3, [^)]*step_size=1e-05\)", text)
    assert "prior" not in text  # at its default
    assert re.search(f"R-hat {max(table['r_hat']):.2f}, for {re.escape(repr(worst))};", text)
    assert re.search(f"size {min(table['ess']):.0f} of .* for {re.escape(repr(least))}\\)", text)
    settings = {"n_draws": 10, "burn_in": 9, "thinning": 1, "n_chains": 2, "random_state": 0}
    settings |= {"sampler": "psgld", "calibrate": False}
    (text,) = mixing_warnings(lambda: BayesianMLPClassifier(**settings).fit(X, y))
    assert re.search(r"R-hat \d\.\d\d, for 'prediction of class [012] in row \d+'", text)


def test_one_chain_has_no_r_hat(data):
    clf = small(step_size=1e-5, n_chains=1)
    (text,) = mixing_warnings(lambda: clf.fit(*data))
    assert np.isnan(clf.summary()["r_hat"]).all()
    assert "R-hat" not in text and "(smallest effective sample size" in text


def test_a_search_warns_once_for_each_fit(data):
    """Three fits for each of two candidates, and one of the best; each says which one it is."""
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small()),
        {"bayesianlogisticregression__step_size": [1e-5, 1e-6]},
        cv=3,
    )
    texts = mixing_warnings(lambda: search.fit(*data))
    named = [re.search("step_size=(1e-0[56])", text)[1] for text in texts]
    assert sorted([named.count("1e-05"), named.count("1e-06")]) == [3, 4]


@pytest.fixture
def torn(replaced):
    """One chain starts at infinity, which is refused otherwise."""
    replaced("check_positions", lambda *_: None)
    starts = np.array([np.zeros(6), np.full(6, 1e300)])  # the second one is infinite in float32
    return small(step_size=1e-3, n_chains=2, dtype="float32", init=starts)


def test_chains_that_diverge_are_said_at_the_users_line(data, torn):
    """Warnings pass through functions of the standard library."""
    texts = mixing_warnings(lambda: torn.fit(*data))
    assert "1 of 2 chains diverged" in texts[0]


def test_every_warning_of_a_fit_names_its_estimator(data, torn):
    """Also those that samplers, checkpoints and checks of data issue, which know no estimator."""
    X, y = data
    run = {"n_draws": 20, "burn_in": 20, "thinning": 1, "random_state": 0}
    hot = BayesianMLPRegressor(hidden_layer_sizes=4, temperature=1e6, **run)
    words = BayesianOrdinalClassifier(**run)
    topics = LatentDirichletAllocation(n_components=2, **run)
    random = BayesianModuleClassifier(lambda: nn.Sequential(nn.Linear(5, 2), nn.Dropout()), **run)
    for estimator, fit, said in (
        (hot, lambda: hot.fit(X, X[:, 0]), "The steps of MCLMC are too large"),
        (words, lambda: words.fit(X, np.array(["a", "b"])[y]), "ordered by the alphabet"),
        (topics, lambda: topics.fit(np.abs(X)), "not whole numbers"),
        (torn, lambda: torn.fit(X, y), "1 of 2 chains diverged"),
        (random, lambda: random.fit(X, y), "dropout or other random layers"),
    ):
        texts = mixing_warnings(fit)
        assert any(said in text for text in texts)
        for text in texts:
            assert text.count(f"{type(estimator).__name__}(") == 1
