"""What warnings of sampling say, where they point and how often they come."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import skbayes_sgmcmc as sk


def small(**parameters):
    return sk.BayesianLogisticRegression(n_draws=50, random_state=0, **parameters)


@pytest.fixture(scope="module")
def data():
    return make_classification(200, 5, random_state=0)


def mixing_warnings(fit):
    """Texts of the warnings of mixing, each of which points at a line of this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    found = [w for w in caught if issubclass(w.category, sk.SamplingWarning)]
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
    (text,) = mixing_warnings(lambda: sk.BayesianMLPClassifier(**settings).fit(X, y))
    assert re.search(r"R-hat \d\.\d\d, for 'prediction of class [012] in row \d+'", text)


def test_one_chain_has_no_r_hat(data):
    clf = small(step_size=1e-5, n_chains=1)
    (text,) = mixing_warnings(lambda: clf.fit(*data))
    assert np.isnan(clf.summary()["r_hat"]).all()
    assert "R-hat" not in text and "(smallest effective sample size" in text


STEPS = "bayesianlogisticregression__step_size"
#: what scikit-learn may do with an estimator: the number of fits of each candidate
MANY_FITS = {
    "search": (lambda pipe, **jobs: GridSearchCV(
        pipe, {STEPS: [1e-5, 1e-6]}, cv=3, refit=False, **jobs).fit, {"1e-05": 3, "1e-06": 3}),
    "halving": (lambda pipe, **jobs: HalvingGridSearchCV(
        pipe, {STEPS: [1e-5] * 3}, cv=2, refit=False, **jobs).fit, {"1e-05": 8}),
    "scores": (lambda pipe, **jobs: lambda X, y: cross_val_score(
        pipe.set_params(**{STEPS: 1e-5}), X, y, cv=4, **jobs), {"1e-05": 4}),
    "ensemble": (lambda pipe, **jobs: CalibratedClassifierCV(
        pipe.set_params(**{STEPS: 1e-5}), cv=3, **jobs).fit, {"1e-05": 3}),
    "nested": (lambda pipe, **jobs: GridSearchCV(CalibratedClassifierCV(pipe, cv=2), {
        f"estimator__{STEPS}": [1e-5]}, cv=2, refit=False, **jobs).fit, {"1e-05": 4}),
}  # fmt: skip


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", MANY_FITS)
def test_fits_of_one_call_give_one_warning(data, kind, n_jobs):
    """At the user's line, from other processes, too: how many fits of each candidate, and why."""
    made, counts = MANY_FITS[kind]
    pipe = make_pipeline(StandardScaler(), small())
    (text,) = mixing_warnings(lambda: made(pipe, n_jobs=n_jobs)(*data))
    assert text.startswith(f"{sum(counts.values())} fits gave this warning (")
    assert "The first: the chains have not mixed well in" in text
    found = re.findall(r"(\d+) of BayesianLogisticRegression\([^)]*step_size=(1e-0\d)\)", text)
    assert {size: int(count) for count, size in found} == counts


def test_a_search_says_of_its_best_estimator_that_it_has_not_mixed(data):
    """One warning for the fits of the folds, and one for the fit that is kept."""
    search = GridSearchCV(small(), {"step_size": [1e-5, 1e-6]}, cv=2)
    of_folds, of_the_best = mixing_warnings(lambda: search.fit(*data))
    assert of_folds.startswith("4 fits") and of_the_best.startswith("the chains have not mixed")
    assert search.best_estimator_._fit_warnings == [of_the_best]


def test_a_search_without_warnings_is_silent_and_leaves_no_file(data, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert mixing_warnings(lambda: cross_val_score(small(thinning=20), *data, cv=2)) == []
    assert len(mixing_warnings(lambda: cross_val_score(small(step_size=1e-5), *data, cv=2))) == 1
    assert not [*tmp_path.iterdir()]


def test_warnings_that_a_filter_makes_errors_are_raised_by_the_fit(data):
    clf = small(step_size=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", sk.SamplingWarning)
        with pytest.raises(sk.SamplingWarning, match="^the chains have not mixed"):
            cross_val_score(clf, *data, cv=2, error_score="raise")
        warnings.filterwarnings("ignore", "the chains have not mixed", sk.SamplingWarning)
        assert np.isfinite(cross_val_score(clf, *data, cv=2)).all()


def test_a_fit_of_a_search_on_another_machine_warns_by_itself(data, tmp_path):
    """There is no such file, nor is there one for a clone that is fitted after the search."""
    clf = small(step_size=1e-5)
    clf._search_file = str(tmp_path / "elsewhere")
    (text,) = mixing_warnings(lambda: clf.fit(*data))
    assert text.startswith("the chains have not mixed")
    fitted = cross_validate(clf.set_params(step_size="auto"), *data, cv=2, return_estimator=True)
    late = fitted["estimator"][0].set_params(step_size=1e-5)
    assert len(mixing_warnings(lambda: late.fit(*data))) == 1


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
    hot = sk.BayesianMLPRegressor(hidden_layer_sizes=4, temperature=1e6, **run)
    words = sk.BayesianOrdinalClassifier(**run)
    topics = sk.LatentDirichletAllocation(n_components=2, **run)
    random = sk.BayesianModuleClassifier(
        lambda: nn.Sequential(nn.Linear(5, 2), nn.Dropout()), **run
    )
    for estimator, fit, said in (
        (hot, lambda: hot.fit(X, X[:, 0]), "The steps of MCLMC are too large"),
        (words, lambda: words.fit(X, np.array(["a", "b"])[y]), "in alphabetical order"),
        (topics, lambda: topics.fit(np.abs(X)), "not whole numbers"),
        (torn, lambda: torn.fit(X, y), "1 of 2 chains diverged"),
        (random, lambda: random.fit(X, y), "dropout or other random layers"),
    ):
        texts = mixing_warnings(fit)
        assert any(said in text for text in texts)
        for text in texts:
            assert text.count(f"{type(estimator).__name__}(") == 1
