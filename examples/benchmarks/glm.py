"""Generalised linear models beside scikit-learn's and statsmodels': scores and processor time.

python examples/benchmarks/glm.py

statsmodels is optional; ``requirements-peers.txt`` names it.
"""

import importlib.util
import time
import warnings

import numpy as np
import scipy.stats
from _common import load_uci, markdown_table, mean_sd, nll, open_npz, parse_args, write_results
from _logistic import dense_a9a
from sklearn import datasets
from sklearn.linear_model import ARDRegression, BayesianRidge, GammaRegressor, PoissonRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, SamplingWarning

HAS_STATSMODELS = importlib.util.find_spec("statsmodels") is not None
COVERAGE, N_BIKES = 0.9, 2000
LARGE = (10_000, 50)
BODY = """
Each set is split at random, three quarters for training. NLL is the mean negative log predictive
density of the test rows. "Covered" is the share of test rows in central 90% intervals of new
observations; the interval score (Gneiting & Raftery 2007) is their width plus 20 times the
distance by which they miss, so smaller is better. Seconds are of processor time, in one run. All
settings are defaults, without a penalty in PoissonRegressor and GammaRegressor, which are given
standardised features. Peers without a predictive distribution get that of their likelihood at the
fitted mean: the dispersion of GammaRegressor is Pearson's estimate.

{predictions}

## Fits of {n:,} rows with {d} features

{large}

## The prior scale of the logistic regression

`prior_scale=1.0` with features as they are and standardised, beside `prior_scale="learned"`, which
does not depend on the units of the features.

{scales}

{verdict}

Published: none; the aim was at most 5 s for a fit of {n:,} rows with {d} features.
"""


# peers: scipy's distributions of new targets, given training rows and test rows -------------------


def ours(likelihood):
    def predict(X, y, X_test, seed):
        model = BayesianGLMRegressor(likelihood=likelihood, random_state=seed).fit(X, y)
        return model, X_test

    return predict


def normal_peer(kind):
    def predict(X, y, X_test, seed):
        mean, sd = (
            make_pipeline(StandardScaler(), kind()).fit(X, y).predict(X_test, return_std=True)
        )
        return scipy.stats.norm(mean, sd)

    return predict


def poisson_peer(X, y, X_test, seed):
    model = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.0, max_iter=1000))
    return scipy.stats.poisson(model.fit(X, y).predict(X_test))


def gamma_peer(X, y, X_test, seed):
    model = make_pipeline(StandardScaler(), GammaRegressor(alpha=0.0, max_iter=1000)).fit(X, y)
    residuals = y / model.predict(X) - 1.0
    dispersion = np.sum(residuals**2) / (len(y) - X.shape[1] - 1)
    return scipy.stats.gamma(1.0 / dispersion, scale=dispersion * model.predict(X_test))


def statsmodels_negative_binomial(X, y, X_test, seed):
    from statsmodels.discrete.discrete_model import NegativeBinomial

    scaler = StandardScaler().fit(X)
    design, test = (np.hstack([np.ones((len(x), 1)), scaler.transform(x)]) for x in (X, X_test))
    fitted = NegativeBinomial(y, design).fit(disp=0, maxiter=200)
    mean, size = np.exp(test @ fitted.params[:-1]), 1.0 / fitted.params[-1]
    return scipy.stats.nbinom(size, size / (size + mean))


REAL = {
    "BayesianGLMRegressor": ours("normal"),
    "the same, Student-t": ours("student_t"),
    "BayesianRidge": normal_peer(BayesianRidge),
    "ARDRegression": normal_peer(ARDRegression),
}
POSITIVE = {"BayesianGLMRegressor, gamma": ours("gamma"), "GammaRegressor": gamma_peer}
COUNTS = {
    "BayesianGLMRegressor, Poisson": ours("poisson"),
    "PoissonRegressor": poisson_peer,
    "BayesianGLMRegressor, neg. binomial": ours("negative_binomial"),
}
if HAS_STATSMODELS:
    COUNTS["statsmodels NegativeBinomial"] = statsmodels_negative_binomial


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
    f"hourly bikes ({N_BIKES:,} rows)": (bikes, COUNTS),
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


def predictions(args):
    rows = []
    for name, (load, models) in SETS.items():
        found = {model: [] for model in models}
        for seed in args.seeds:
            X, y = load(seed)
            X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
            for model, predict in models.items():
                began = time.process_time()
                law = predict(X, y, X_test, seed)
                seconds = time.process_time() - began
                found[model].append(scores(law, y_test) | {"seconds": seconds})
        for model, each in found.items():
            columns = {key: mean_sd([one[key] for one in each]) for key in each[0]}
            rows.append([name, model, *columns.values()])
            print(rows[-1], flush=True)
    return markdown_table(["set", "model", *columns], rows)


def large_fits(args):
    rng, (n, d) = np.random.default_rng(0), (1000, 50) if args.quick else LARGE
    X, beta = rng.standard_normal((n, d)), 0.1 * rng.standard_normal(d)
    f = X @ beta
    gamma = rng.gamma(2.0, 0.5, n)
    targets = {
        "normal": f + rng.standard_normal(n),
        "student_t": f + rng.standard_t(4.0, n),
        "poisson": rng.poisson(np.exp(0.3 + f)),
        "negative_binomial": rng.poisson(gamma * np.exp(0.3 + f)),
        "gamma": gamma * np.exp(f),
        "binomial": (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(float),
    }
    rows = []
    for likelihood, y in targets.items():
        began = time.process_time()
        model = BayesianGLMRegressor(likelihood=likelihood, random_state=0).fit(X, y)
        seconds = time.process_time() - began
        r_hat = model.summary()["r_hat"].max()
        rows.append([likelihood, f"{seconds:.1f}", f"{r_hat:.3f}"])
        print(rows[-1], flush=True)
    return markdown_table(["likelihood", "seconds", "largest R-hat"], rows)


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


def prior_scales(args):
    rows, losses = [], []
    fits = {
        "1.0": ("raw", {}),
        "1.0, standardised": ("scaled", {}),
        "learned": ("raw", {"prior_scale": "learned"}),
    }
    for name in CLASSES:
        if args.short and name in ("digits", "a9a"):
            continue
        seeds = args.seeds[:1] if name == "a9a" else args.seeds
        found = {}
        for label, (units, parameters) in fits.items():
            each = []
            for seed in seeds:
                X, X_test, y, y_test = split(name, seed)
                if units == "scaled":
                    scaler = StandardScaler().fit(X)
                    X, X_test = scaler.transform(X), scaler.transform(X_test)
                began = time.process_time()
                clf = BayesianLogisticRegression(random_state=seed, **parameters).fit(X, y)
                seconds = time.process_time() - began
                proba = clf.predict_proba(X_test)
                accuracy = np.mean(proba.argmax(1) == y_test)
                each.append([accuracy, nll(y_test, proba), seconds])
            found[label] = np.mean(each, axis=0)
            accuracy, loss, seconds = np.transpose(each)
            numbers = [mean_sd(accuracy), mean_sd(loss), mean_sd(seconds, 1)]
            rows.append([name, label, *numbers])
            print(rows[-1], flush=True)
        best = min(found["1.0"][1], found["1.0, standardised"][1])
        most = max(found["1.0"][0], found["1.0, standardised"][0])
        if found["learned"][1] > best + 0.001 or found["learned"][0] < most - 0.001:
            losses.append(name)
    verdict = (
        "Learned scales are no worse than the better of both fixed ones (accuracy and NLL, within "
        f"0.001) on every set but: {', '.join(losses) or 'none'}."
    )
    return markdown_table(["set", "prior_scale", "accuracy", "NLL", "seconds"], rows), verdict


def main():
    args = parse_args(__doc__, seeds=3, quick_seeds=1)
    warnings.simplefilter("ignore", SamplingWarning)
    import torch  # noqa: F401 - so that no fit is charged for it

    scales, verdict = prior_scales(args)
    body = BODY.format(
        predictions=predictions(args),
        large=large_fits(args),
        scales=scales,
        verdict=verdict,
        n=LARGE[0],
        d=LARGE[1],
    )
    write_results(args, "glm", "Generalised linear models", body)


if __name__ == "__main__":
    main()
