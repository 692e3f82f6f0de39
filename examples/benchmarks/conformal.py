"""Coverage that is promised: conformal intervals and sets from our predictions, on twelve tables.

    SKBAYES_DATA=folder python examples/benchmarks/conformal.py

60% of the rows of a table are for the fit. The others are divided at random into halves, 200 times,
for calibration and for the test; coverage and width are means over these. crepes and MAPIE make the
intervals and sets; without catboost, its rows are left out.
"""

import warnings
from functools import partial

import numpy as np
import torch
from _common import finished, markdown_table, parse_args, write_results
from _tabular_data import load_split, task_of

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor

REGRESSION = ("airfoil", "boston", "concrete", "energy", "winered", "yacht", "diabetes",
              "friedman1")  # fmt: skip
CLASSIFICATION = ("breast_cancer", "australian", "digits", "made5")
COVERAGE, DIVISIONS = 0.9, 200
BODY = """Targets are 90%. Coverage is the share of test rows inside the interval or the set, width
the mean width of intervals in sds of the targets, size the mean number of classes of a set: means
over {seeds} seeds, each with another fit and {divisions} divisions of the other rows.
"certain half" and "uncertain half": the coverage of the rows below and above the median of our
predictive sd (classes: of the largest probability's complement).

## Intervals

{regression}

## Sets of classes

{classification}

**Rows.** "ours, as they are": `predict_interval(X)` and `predict_set(X)`. "ours, conformal":
crepes' `ConformalRegressor` with our mean and, as the scale, our predictive sd; for classes
MAPIE's `SplitConformalClassifier` with `predict_proba` ("lac": one threshold of the probability
for all rows). "CatBoost, conformal": the same with CatBoost's mean and no scale, as MAPIE does by
default, and with its probabilities. "by group": calibrated for either half of the rows on its own
(`bins` of crepes; sets are those of its `ConformalClassifier`).

{verdict}
"""


def table(name, seed):
    """All rows of a table: 60% for the fit, and the others."""
    X_train, y_train, X_test, y_test = load_split(name, seed)
    X, y = np.vstack([X_train, X_test]), np.concatenate([y_train, y_test])
    order = np.random.default_rng(seed).permutation(len(y))
    cut = round(0.6 * len(y))
    fit, rest = order[:cut], order[cut:]
    return X[fit], y[fit], X[rest], y[rest]


def divisions(n):
    rng = np.random.default_rng(0)
    for _ in range(DIVISIONS):
        order = rng.permutation(n)
        yield order[: n // 2], order[n // 2 :]


def scores(inside, size, sure):
    """Coverage, mean width or size, and coverage of either half."""
    return [inside.mean(), size.mean(), inside[sure].mean(), inside[~sure].mean()]


def of_intervals(y, mean, sd, sigmas, bins=False):
    """Scores of crepes' intervals; ``sigmas`` are the scales of the residuals."""
    from crepes import ConformalRegressor

    sure, found = sd <= np.median(sd), []
    for calibration, test in divisions(len(y)):
        parts = [{"sigmas": None if sigmas is None else sigmas[rows],
                  "bins": sure[rows].astype(int) if bins else None}
                 for rows in (calibration, test)]  # fmt: skip
        residuals = y[calibration] - mean[calibration]
        conformal = ConformalRegressor().fit(residuals=residuals, **parts[0])
        low, high = conformal.predict_int(y_hat=mean[test], confidence=COVERAGE, **parts[1]).T
        inside = (low <= y[test]) & (y[test] <= high)
        found.append(scores(inside, high - low, sure[test]))
    return np.nanmean(found, axis=0).tolist()


def of_sets(model, X, y, sure):
    """Scores of MAPIE's sets."""
    from mapie.classification import SplitConformalClassifier

    found = []
    for calibration, test in divisions(len(y)):
        sets = SplitConformalClassifier(model, confidence_level=COVERAGE)
        sets.conformalize(X[calibration], y[calibration])
        chosen = sets.predict_set(X[test])[1][:, :, 0]
        found.append(scores(chosen[np.arange(len(test)), y[test]], chosen.sum(1), sure[test]))
    return np.nanmean(found, axis=0).tolist()


def of_sets_by_group(proba, y, sure):
    """Scores of crepes' sets that are calibrated for either half of the rows on its own."""
    from crepes import ConformalClassifier
    from crepes.extras import hinge

    found, bins, classes = [], sure.astype(int), np.arange(proba.shape[1])
    for calibration, test in divisions(len(y)):
        alphas = hinge(proba[calibration], classes, y[calibration])
        conformal = ConformalClassifier().fit(alphas, bins=bins[calibration])
        chosen = conformal.predict_set(
            hinge(proba[test]), bins=bins[test], confidence=COVERAGE, seed=0
        )
        inside = chosen[np.arange(len(test)), y[test]] == 1
        found.append(scores(inside, chosen.sum(1), sure[test]))
    return np.nanmean(found, axis=0).tolist()


class Given:
    """A fitted classifier that predicts known probabilities for the numbers of rows."""

    def __init__(self, proba):
        self.proba, self.classes_ = proba, np.arange(proba.shape[1])

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        return self.proba[X[:, 0].astype(int)]

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


def regression(name, seed, short):
    options = {"max_steps": 200} if short else {}
    X, y, X_rest, y_rest = table(name, seed)
    ours = BayesianMLPRegressor(random_state=seed, **options).fit(X, y)
    mean, sd = ours.predict(X_rest, return_std=True)
    low, high = ours.predict_interval(X_rest, COVERAGE).T
    inside, sure = (low <= y_rest) & (y_rest <= high), sd <= np.median(sd)
    found = {
        "ours, as they are": scores(inside, high - low, sure),
        "ours, conformal": of_intervals(y_rest, mean, sd, sd),
        "ours, conformal by group": of_intervals(y_rest, mean, sd, sd, bins=True),
    }
    peer = catboost("Regressor", X, y, seed)
    if peer is not None:
        found["CatBoost, conformal"] = of_intervals(y_rest, peer.predict(X_rest), sd, None)
    return found


def classification(name, seed, short):
    options = {"max_steps": 200} if short else {}
    X, y, X_rest, y_rest = table(name, seed)
    ours = BayesianMLPClassifier(random_state=seed, **options).fit(X, y)
    proba, rows = ours.predict_proba(X_rest), np.arange(len(y_rest))
    sure = proba.max(1) >= np.median(proba.max(1))
    sets = ours.predict_set(X_rest, COVERAGE)
    numbers = rows[:, None].astype(float)
    found = {
        "ours, as they are": scores(sets[rows, y_rest], sets.sum(1), sure),
        "ours, conformal": of_sets(Given(proba), numbers, y_rest, sure),
        "ours, conformal by group": of_sets_by_group(proba, y_rest, sure),
    }
    peer = catboost("Classifier", X, y, seed)
    if peer is not None:
        of_peer = Given(peer.predict_proba(X_rest))
        found["CatBoost, conformal"] = of_sets(of_peer, numbers, y_rest, sure)
    return found


def catboost(kind, X, y, seed):
    try:
        import catboost as library
    except ImportError:
        return None
    model = getattr(library, f"CatBoost{kind}")
    return model(random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False).fit(
        X, y
    )


def rows_of(results, size):
    """Lines of a table: of each set, its methods."""
    lines = []
    for name, by_seed in results.items():
        for method in [key for key in by_seed[0] if key != "seconds"]:
            values = np.nanmean([one[method] for one in by_seed if method in one], axis=0)
            lines.append([name, method, *(f"{values[i]:.1%}" if i != 1 else f"{values[i]:.2f}"
                                          for i in range(4))])  # fmt: skip
    return markdown_table(
        ["table", "intervals" if size == "width" else "sets", "coverage", size, "certain half",
         "uncertain half"], lines,
    )  # fmt: skip


def verdict(results):
    """How many tables are within 86 and 94%, and within 88 and 92%."""
    words = []
    for method in ("ours, as they are", "ours, conformal", "CatBoost, conformal"):
        found = [np.mean([one[method][0] for one in by_seed])
                 for by_seed in results.values() if method in by_seed[0]]  # fmt: skip
        if found:
            near, close = (sum(abs(f - COVERAGE) <= d for f in found) for d in (0.04, 0.02))
            words.append(f"{method}: {near} of {len(found)} tables within 86 and 94%, {close} "
                         f"within 88 and 92%")  # fmt: skip
    return "; ".join(words) + "."


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    args = parse_args(__doc__, 3, 1, runs="conformal", constants={"divisions": DIVISIONS})
    parts = (regression, ("yacht",) if args.quick else REGRESSION), (
        classification, ("made5",) if args.quick else CLASSIFICATION)  # fmt: skip
    tables, every = {}, {}
    for measure, names in parts:
        results = {}
        for name in names:
            assert task_of(name) == measure.__name__
            by_seed = [
                finished(args, f"{name}-{seed}", partial(measure, name, seed, args.short),
                         set=name, seed=seed)
                for seed in args.seeds
            ]  # fmt: skip
            results[name] = [one for one in by_seed if one is not None]
        results = {name: found for name, found in results.items() if found}
        tables[measure.__name__] = rows_of(results, "width" if measure is regression else "size")
        every |= results
    body = BODY.format(**tables, seeds=len(args.seeds), divisions=DIVISIONS, verdict=verdict(every))
    write_results(args, "conformal", "Coverage that is promised", body)


if __name__ == "__main__":
    main()
