"""Coverage of the recipe of docs/conformal.md, whatever the model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression

crepes = pytest.importorskip("crepes")


@pytest.mark.parametrize("groups", [False, True])
def test_conformal_intervals_of_a_wrong_model_have_the_coverage(groups):
    """Noise with heavy tails that grows with x, and a normal likelihood of equal noise.

    Over 100 divisions of 600 rows the mean coverage is between 90% and 90% + 1 / 301 in theory; the
    bound adds four standard errors of shares of 300 rows that overlap. Plain intervals miss it in
    the noisy half, and conformal ones of groups do not.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (900, 1))
    y = x[:, 0] + np.exp(1.5 * x[:, 0]) * rng.standard_t(3, 900)
    reg = BayesianGLMRegressor(random_state=0).fit(x[:300], y[:300])
    rest, target = x[300:], y[300:]
    mean, sd = reg.predict(rest, return_std=True)
    noisy = rest[:, 0] > 0.0
    low, high = reg.predict_interval(rest, 0.9).T
    assert ((low <= target) & (target <= high))[noisy].mean() < 0.87
    covered = []
    for _ in range(100):
        order = rng.permutation(600)
        calibration, test = order[:300], order[300:]
        bins = [noisy[rows].astype(int) if groups else None for rows in (calibration, test)]
        given = {"sigmas": sd[calibration], "bins": bins[0]}
        conformal = crepes.ConformalRegressor()
        conformal.fit(residuals=target[calibration] - mean[calibration], **given)
        given = {"sigmas": sd[test], "bins": bins[1]}
        low, high = conformal.predict_int(y_hat=mean[test], confidence=0.9, **given).T
        inside = (low <= target[test]) & (target[test] <= high)
        covered.append([inside.mean(), inside[noisy[test]].mean()])
    everywhere, where_noisy = np.mean(covered, axis=0)
    assert 0.9 - 0.007 < everywhere < 0.9 + 0.014
    assert (abs(where_noisy - 0.9) < 0.02) == groups


@pytest.fixture(scope="module")
def wrong():
    """A classifier that knows nothing of the interaction of x with a column of text, and rows."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=900), "kind": rng.choice(["a", "b"], 900)})
    slope = np.where(table["kind"] == "a", 3.0, -1.0)
    y = np.where(rng.random(900) < 1.0 / (1.0 + np.exp(-slope * table["x"])), "yes", "no")
    clf = BayesianLogisticRegression(max_steps=1500, random_state=0)
    return clf.fit(table[:300], y[:300]), table[300:], y[300:]


@pytest.mark.parametrize("groups", [False, True])
def test_conformal_sets_of_tables_have_the_coverage_by_group(wrong, groups):
    """crepes needs the probabilities alone, so that tables with text serve.

    The bounds are those of intervals, with smoothed p values: 90% in theory. Without groups, the
    one in which the model is wrong has less.
    """
    from crepes.extras import hinge

    clf, rest, y = wrong
    rng, proba = np.random.default_rng(0), clf.predict_proba(rest)
    true, group = np.searchsorted(clf.classes_, y), (rest["kind"] == "b").to_numpy()
    covered = []
    for _ in range(100):
        order = rng.permutation(600)
        calibration, test = order[:300], order[300:]
        bins = [group[rows].astype(int) if groups else None for rows in (calibration, test)]
        conformal = crepes.ConformalClassifier()
        conformal.fit(hinge(proba[calibration], clf.classes_, y[calibration]), bins=bins[0])
        given = {"bins": bins[1], "confidence": 0.9, "seed": 0}
        chosen = conformal.predict_set(hinge(proba[test]), **given)
        inside = chosen[np.arange(300), true[test]] == 1
        covered.append([inside.mean(), inside[group[test]].mean()])
    everywhere, where_wrong = np.mean(covered, axis=0)
    assert 0.9 - 0.014 < everywhere < 0.9 + 0.014
    assert (abs(where_wrong - 0.9) < 0.02) == groups


def test_mapie_takes_such_tables_in_pipelines_and_names_new_classes(wrong):
    """What docs/conformal.md says of it: a row of zeros is no row of text, and labels are known."""
    mapie = pytest.importorskip("mapie.classification")
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    clf, rest, y = wrong
    with pytest.raises(UserWarning, match="does not appear fitted"):
        mapie.SplitConformalClassifier(clf).conformalize(rest, y)
    encode = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    pipeline = make_pipeline(encode, BayesianLogisticRegression(max_steps=500, random_state=0))
    pipeline.fit(rest[:200], y[:200])
    sets = mapie.SplitConformalClassifier(pipeline, confidence_level=0.9)
    chosen = sets.conformalize(rest[200:400], y[200:400]).predict_set(rest[400:])[1]
    assert chosen.shape == (200, 2, 1)
    new = np.where(np.arange(200) == 5, "maybe", y[200:400])
    sets = mapie.SplitConformalClassifier(pipeline, confidence_level=0.9)
    with pytest.raises(ValueError, match="do not matched values in estimator.classes_"):
        sets.conformalize(rest[200:400], new)
