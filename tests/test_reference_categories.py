"""Summaries with a reference: categories compared with one of them, in the place of an average."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _cases import cases

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianOrdinalClassifier,
)

RUN = {"n_chains": 2, "n_draws": 200, "random_state": 0}
RNG = np.random.default_rng(0)
SMOKER = RNG.choice(["current", "former", "never"], 400)
AGE = RNG.normal(size=400)
TABLE = pd.DataFrame({"smoker": SMOKER, "age": AGE, "sex": RNG.choice(["f", "m"], 400)})
EFFECT = 0.5 * AGE + 1.2 * (SMOKER == "current") + 0.4 * (SMOKER == "former")
ILL = np.where(EFFECT + RNG.logistic(size=400) > 0.5, "ill", "well")
MODELS = {
    "two classes": (BayesianLogisticRegression(**RUN), ILL),
    "three classes": (BayesianLogisticRegression(**RUN), np.where(AGE > 1.0, "old", ILL)),
    "ordered classes": (BayesianOrdinalClassifier(**RUN), np.digitize(EFFECT, [0.0, 1.0])),
    "counts": (BayesianGLMRegressor(likelihood="poisson", **RUN), RNG.poisson(np.exp(EFFECT))),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    estimator, y = MODELS[request.param]
    return estimator.fit(TABLE, y)


def rows_of(table):
    return {name: k for k, name in enumerate(table["name"])}


def test_differences_are_those_of_draws(fitted):
    coef = fitted.posterior_["coef"]
    never = fitted._columns.feature_labels.index("smoker=never")
    difference = coef - coef[..., [never]]
    for ratios in (False, True):
        table = fitted.summary(0.8, ratios, reference={"smoker": "never"})
        rows = rows_of(table)
        for k, name in enumerate(fitted._columns.feature_labels):
            mine = [row for text, row in rows.items() if text.endswith((f"{name} vs never", name))]
            if name == "smoker=never":
                assert not mine
                continue
            draws = (difference if "smoker" in name else coef)[..., k]
            expected = np.quantile(draws, [0.1, 0.9], axis=(0, 1)).reshape(2, -1)
            expected = np.exp(expected) if ratios else expected
            np.testing.assert_allclose([table["lower"][mine], table["upper"][mine]], expected)
    assert all("vs never" in name for name in rows if "smoker" in name)


def test_linear_predictors_are_the_same(fitted):
    """The base of rows with the reference has taken over what its coefficient added."""
    draws, labels = fitted._compared(
        fitted.posterior_, fitted._labels()["coef"], {"smoker": "former", "sex": "m"}
    )
    features = fitted._columns.feature_labels
    x = np.zeros(len(features))
    x[[features.index(name) for name in ("smoker=current", "sex=f", "age")]] = 1.0, 1.0, 0.3
    kept = [k for k, name in enumerate(features) if name not in {"smoker=former", "sex=m"}]
    assert len(labels) == len(kept) * max(1, len(fitted._labels()["coef"]) // len(features))
    name = "cutpoints" if "cutpoints" in draws.draws else "intercept"
    sign = -1.0 if name == "cutpoints" else 1.0
    before, after = fitted.posterior_["coef"] @ x, draws["coef"] @ x[kept]
    if before.ndim < fitted.posterior_[name].ndim:
        before, after = before[..., None], after[..., None]
    np.testing.assert_allclose(
        fitted.posterior_[name] + sign * before, draws[name] + sign * after, atol=1e-9
    )


def test_differences_are_narrower_than_coefficients():
    """By 2 or more: an average over three categories is uncertain itself."""
    estimator, y = MODELS["two classes"]
    fitted = estimator.fit(TABLE, y)
    alone, compared = fitted.summary(), fitted.summary(reference={"smoker": "never"})
    first = alone["sd"][rows_of(alone)["smoker=current"]]
    assert first > 2.0 * compared["sd"][rows_of(compared)["smoker=current vs never"]]


@cases(
    "reference, message",
    [
        ({"smoker": "always"}, "no feature is the category 'always' of a column 'smoker'. Features "
         "of categories are smoker=current, smoker=former, smoker=never."),
        ({"age": 1.0}, "1.0 of a column 'age'. Features of categories are smoker=current"),
        ({"height": "m"}, "a column 'height'. Features of categories are smoker=current"),
        ("never", "reference='never' is not allowed: give a dict"),
    ],
)  # fmt: skip
def test_what_is_no_category_is_refused(reference, message):
    estimator, y = MODELS["two classes"]
    fitted = estimator.fit(TABLE, y)
    with pytest.raises(ValueError, match=message):
        fitted.summary(reference=reference)
