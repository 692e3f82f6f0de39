"""Generalised linear models beside NUTS, scikit-learn, statsmodels and bambi.

python examples/benchmarks/glm.py

statsmodels and bambi are optional; ``requirements-peers.txt`` names them.
"""

import time
import warnings
from functools import partial

import numpy as np
from _common import (
    REPOSITORY,
    finished,
    load_uci,
    markdown_table,
    mean_sd,
    nll,
    open_npz,
    parse_args,
    write_results,
)
from _glm_peers import COUNTS, POSITIVE, REAL
from _glm_sets import SETS
from _logistic import dense_a9a
from scipy.special import expit
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, SamplingWarning

COVERAGE, N_BIKES = 0.9, 2000
BIKES = f"hourly bikes ({N_BIKES:,} rows)"
#: share of the rows for tests; fewer of the bikes, whose exact quantiles take a while
TEST_SHARE, TEST_SHARE_BIKES = 0.25, 0.125
LARGE = (10_000, 50)
#: bounds of errors of means (sds), of errors of sds (shares) and of R-hat; seconds of a large fit
ERROR, SPREAD, R_HAT, LIMIT = 0.15, 0.10, 1.02, 5.0
#: differences of accuracies and NLLs that do not count
TIE = 0.002
#: sets of the page that have long NUTS runs
NAMES = (
    "linnerud", "diabetes_t", "diabetes_gamma", "rates", "wide_counts", "overdispersed", "seeds",
    "seeds_plates", "schools",
)  # fmt: skip
TRUTH = {name: SETS[name] for name in NAMES}
#: likelihoods of the large fits
FAMILIES = ("normal", "student_t", "poisson", "negative_binomial", "gamma", "binomial")
BODY = """
## Posteriors beside NUTS

Default fits, compared with long NUTS runs (`tests/data/make_reference_glm.py`; 10,000
draws). Error of means: the largest |mean - reference mean| in posterior sds, over all coefficients,
effects of groups, scales and parameters of the likelihood; the worst of {n_truth} seeds. Sd ratio:
the smallest and largest sd / reference sd.

{truth}

{truth_verdict}

## Predictions

Each set is split at random, three quarters for training (of the bikes, seven eighths). NLL is the
mean negative log predictive density of the test rows. "Covered" is the share of test rows in
central 90% intervals of new observations; the interval score (Gneiting & Raftery 2007) is their
width plus 20 times the distance by which they miss, so smaller is better. Seconds are processor
time of a single process, in one run: of our fits, and of peers' fits with their predictions.

All settings are defaults, without a penalty in PoissonRegressor and GammaRegressor. Peers are given
standardised features. Those without a predictive distribution get that of their likelihood at the
fitted mean: the dispersion of GammaRegressor and of statsmodels' GLM is Pearson's estimate. Bambi
samples with PyMC (NUTS, 4 chains of 1,000 draws after 1,000 steps of tuning, with its own default
priors); compilers that PyMC starts are not in its seconds.

{predictions}

## Fits of {n:,} rows with {d} features

{large}

## The prior scale of the logistic regression

`prior_scale=1.0` with features as they are and standardised, beside `prior_scale="learned"`, which
does not depend on the units of the features.

{scales}

{verdict}

Published: none. The aims were: means within {error} sd of NUTS, sds within {spread:.0%} and R-hat
at most {r_hat}; at most {limit:.0f} s for a fit of {n:,} rows with {d}
features{large_verdict}; learned scales no worse than the better of both fixed ones.
"""


def bikes(seed):
    with open_npz("tabular_regression") as data:
        if data is None:
            raise SystemExit("Set SKBAYES_DATA to a folder that holds tabular_regression.npz.")
        X, y = data["bikesharing/X"], np.rint(np.maximum(data["bikesharing/y"], 0.0))
    rows = np.random.default_rng(seed).permutation(len(y))[:N_BIKES]
    return X[rows], y[rows]


SETS = {
    "diabetes": (lambda seed: datasets.load_diabetes(return_X_y=True, scaled=False), REAL),
    "boston housing": (lambda seed: load_uci("bostonHousing")[:2], REAL),
    "concrete strength": (lambda seed: load_uci("concrete")[:2], POSITIVE),
    BIKES: (bikes, COUNTS),
}


def scores(law, y):
    """RMSE, NLL, coverage and interval score of scipy's or of a fitted estimator's predictions."""
    tail = 0.5 * (1.0 - COVERAGE)
    if isinstance(law, tuple):
        model, X = law
        mean, density = model.predict(X), model.predict_log_density(X, y)
        low, high = model.predict_quantiles(X, [tail, 1.0 - tail]).T
    else:
        discrete = hasattr(law.dist, "pmf") and not hasattr(law.dist, "pdf")
        mean, density = law.mean(), law.logpmf(y) if discrete else law.logpdf(y)
        low, high = law.ppf(tail), law.ppf(1.0 - tail)
    missed = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return {
        "RMSE": np.sqrt(np.mean((mean - y) ** 2)),
        "NLL": -density.mean(),
        "covered": np.mean(missed == 0.0),
        "interval score": np.mean(high - low + missed / tail),
    }


# posteriors beside NUTS ---------------------------------------------------------------------------


def one_truth(name, seed):
    """Errors of a default fit beside the moments of NUTS."""
    with np.load(REPOSITORY / "tests" / "data" / "reference_glm.npz") as file:
        found = {key.split("/")[1]: file[key] for key in file if key.startswith(f"{name}/")}
    kind, columns = TRUTH[name]
    began = time.process_time()
    reg = BayesianGLMRegressor(likelihood=kind, random_state=seed, **columns)
    reg.fit(found["X"], found["y"])
    seconds, errors, ratios = time.process_time() - began, [], []
    for key, mean in found.items():
        if not key.endswith("_mean"):
            continue
        part = key.removesuffix("_mean")
        scale = part == "log_scale" or part.startswith("log_sd_")
        draws = reg.posterior_.pooled(part.removeprefix("log_") if scale else part)
        draws = np.log(draws) if scale else draws
        sd, draws = found[f"{part}_sd"].ravel(), draws.reshape(len(draws), -1)
        errors.extend(np.abs(draws.mean(0) - mean.ravel()) / sd)
        ratios.extend(draws.std(0) / sd)
    summary = reg.summary()
    return {
        "shape": list(found["X"].shape),
        "numbers": len(errors),
        "error": float(max(errors)),
        "low": float(min(ratios)),
        "high": float(max(ratios)),
        "r_hat": float(np.max(summary["r_hat"])),
        "ess": float(np.min(summary["ess"])),
        "seconds": seconds,
    }


def truths(args):
    """The table, and in words whether the bounds are met."""
    rows, missed = [], []
    for name, (kind, columns) in TRUTH.items():
        each = [finished(args, f"nuts/{name}/seed{seed}", partial(one_truth, name, seed))
                for seed in args.seeds]  # fmt: skip
        each = [numbers for numbers in each if numbers is not None]
        if not each:
            continue
        low, high = min(one["low"] for one in each), max(one["high"] for one in each)
        error, r_hat = (max(one[key] for one in each) for key in ("error", "r_hat"))
        if max(error / ERROR, (1.0 - low) / SPREAD, (high - 1.0) / SPREAD) > 1.0 or r_hat > R_HAT:
            missed.append(name)
        size = " x ".join(str(n) for n in each[0]["shape"])
        words = f"{kind}, groups" if "groups" in columns else kind
        ess, seconds = min(one["ess"] for one in each), mean_sd([one["seconds"] for one in each], 1)
        numbers = [f"{error:.3f}", f"{low:.3f} to {high:.3f}", f"{r_hat:.3f}", f"{ess:.0f}"]
        rows.append([name, words, size, each[0]["numbers"], *numbers, seconds])
    header = ["set", "likelihood", "shape", "numbers", "error of means", "sd ratio",
              "largest R-hat", "min-ESS", "fit, s"]  # fmt: skip
    verdict = f"Missed on {', '.join(missed)}." if missed else "Met by every seed on every set."
    return markdown_table(header, rows), f"The aims at the end of this page: {verdict}"


# predictions --------------------------------------------------------------------------------------


def one_prediction(name, predict, seed):
    X, y = SETS[name][0](seed)
    share = TEST_SHARE_BIKES if name == BIKES else TEST_SHARE
    X, X_test, y, y_test = train_test_split(X, y, test_size=share, random_state=seed)
    began = time.process_time()
    law = predict(X, y, X_test, seed)
    seconds = time.process_time() - began
    return {name: float(value) for name, value in scores(law, y_test).items()} | {
        "seconds": seconds
    }


def predictions(args):
    columns, rows = ["RMSE", "NLL", "covered", "interval score", "seconds"], []
    for name, (_, models) in SETS.items():
        for model, predict in models.items():
            each = []
            for seed in args.seeds:
                run = partial(one_prediction, name, predict, seed)
                each.append(finished(args, f"{name}/{model}/seed{seed}", run))
            each = [numbers for numbers in each if numbers is not None]
            if each:
                cells = [mean_sd([one[key] for one in each]) for key in columns]
                rows.append([name, model, *cells])
    return markdown_table(["set", "model", *columns], rows)


# large fits ---------------------------------------------------------------------------------------


def large_targets(likelihood, short):
    rng, (n, d) = np.random.default_rng(0), (1000, 50) if short else LARGE
    X, beta = rng.standard_normal((n, d)), 0.1 * rng.standard_normal(d)
    f, gamma = X @ beta, rng.gamma(2.0, 0.5, n)
    return X, {
        "normal": lambda: f + rng.standard_normal(n),
        "student_t": lambda: f + rng.standard_t(4.0, n),
        "poisson": lambda: rng.poisson(np.exp(0.3 + f)),
        "negative_binomial": lambda: rng.poisson(gamma * np.exp(0.3 + f)),
        "gamma": lambda: gamma * np.exp(f),
        "binomial": lambda: (rng.random(n) < expit(f)).astype(float),
    }[likelihood]()


def one_large_fit(likelihood, short):
    X, y = large_targets(likelihood, short)
    began = time.process_time()
    model = BayesianGLMRegressor(likelihood=likelihood, random_state=0).fit(X, y)
    seconds = time.process_time() - began
    return {"r_hat": float(model.summary()["r_hat"].max()), "seconds": seconds}


def large_fits(args):
    """The table, and in words whether all take at most ``LIMIT`` seconds."""
    rows, slow = [], []
    for likelihood in FAMILIES:
        run = partial(one_large_fit, likelihood, args.short)
        found = finished(args, f"large/{likelihood}", run)
        if found is not None:
            rows.append([likelihood, f"{found['seconds']:.1f}", f"{found['r_hat']:.3f}"])
            slow += [likelihood] * (found["seconds"] > LIMIT)
    words = f" (missed by {', '.join(slow)})" if slow else " (met by all)" if rows else ""
    return markdown_table(["likelihood", "seconds", "largest R-hat"], rows), words


# logistic regression ------------------------------------------------------------------------------


def synthetic(seed):
    """200 rows for training and 1,000 for tests with 300 features, of which 10 matter."""
    return datasets.make_classification(
        1200, 300, n_informative=10, n_redundant=0, random_state=seed
    )


CLASSES = {
    "wine": lambda seed: datasets.load_wine(return_X_y=True),
    "200 x 300": synthetic,
    "digits": lambda seed: datasets.load_digits(return_X_y=True),
    "a9a": None,
}


def split(name, seed):
    if name == "a9a":
        X, y, X_test, y_test = dense_a9a()
        return X, X_test, y, y_test
    X, y = CLASSES[name](seed)
    size = 200 if name == "200 x 300" else 0.75
    return train_test_split(X, y, train_size=size, random_state=seed, stratify=y)


def one_classifier(name, scaled, parameters, seed):
    X, X_test, y, y_test = split(name, seed)
    if scaled:
        scaler = StandardScaler().fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    began = time.process_time()
    clf = BayesianLogisticRegression(random_state=seed, **parameters).fit(X, y)
    seconds, proba = time.process_time() - began, clf.predict_proba(X_test)
    accuracy = float(np.mean(proba.argmax(1) == y_test))
    return {"accuracy": accuracy, "NLL": nll(y_test, proba), "seconds": seconds}


def prior_scales(args):
    """The table, and the sets on which learned scales are worse than the better fixed one."""
    rows, complete, worse = [], [], []
    fits = {
        "1.0": (False, {}),
        "1.0, standardised": (True, {}),
        "learned": (False, {"prior_scale": "learned"}),
    }
    for name in CLASSES:
        if name not in args.parts or (args.short and name != "wine"):
            continue
        means = {}
        for label, (scaled, parameters) in fits.items():
            each = []
            for seed in args.seeds[:1] if name == "a9a" else args.seeds:
                run = partial(one_classifier, name, scaled, parameters, seed)
                each.append(finished(args, f"{name}/{label}/seed{seed}", run))
            each = [numbers for numbers in each if numbers is not None]
            if each:
                means[label] = {key: np.mean([one[key] for one in each]) for key in each[0]}
                cells = [mean_sd([one[key] for one in each]) for key in ("accuracy", "NLL")]
                rows.append([name, label, *cells, mean_sd([one["seconds"] for one in each], 1)])
        if len(means) == len(fits):
            complete.append(name)
            learned = means.pop("learned")
            loss = min(fixed["NLL"] for fixed in means.values())
            accuracy = max(fixed["accuracy"] for fixed in means.values())
            if learned["NLL"] > loss + TIE or learned["accuracy"] < accuracy - TIE:
                worse.append(name)
    verdict = (
        f"Of {', '.join(complete) or 'no set'}: learned scales are no worse in accuracy and NLL "
        f"than the better of both fixed ones, within {TIE}, on all but: "
        f"{', '.join(worse) or 'none'}."
    )
    return markdown_table(["set", "prior_scale", "accuracy", "NLL", "seconds"], rows), verdict


def main():
    parts = ["nuts", "predictions", "large", *CLASSES]
    constants = {"coverage": COVERAGE, "bikes": N_BIKES, "large": LARGE}
    args = parse_args(__doc__, seeds=3, quick_seeds=1, parts=parts, runs="glm", constants=constants)
    warnings.simplefilter("ignore", SamplingWarning)
    import torch  # noqa: F401 - so that no fit is charged for it

    truth, truth_verdict = truths(args) if "nuts" in args.parts else ("Not run.", "")
    table = predictions(args) if "predictions" in args.parts else "Not run."
    large, large_verdict = large_fits(args) if "large" in args.parts else ("Not run.", "")
    scales, verdict = prior_scales(args)
    body = BODY.format(
        truth=truth,
        truth_verdict=truth_verdict,
        n_truth=len(args.seeds),
        predictions=table,
        large=large,
        large_verdict=large_verdict,
        scales=scales,
        verdict=verdict,
        n=LARGE[0],
        d=LARGE[1],
        error=ERROR,
        spread=SPREAD,
        r_hat=R_HAT,
        limit=LIMIT,
    )
    write_results(args, "glm", "Generalised linear models", body)


if __name__ == "__main__":
    main()
