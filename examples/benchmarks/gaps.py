"""Missing numbers: the estimators' own treatment beside imputation by scikit-learn.

    python examples/benchmarks/gaps.py

Gaps are those of public tables, whose files are in packages (``mixed_tables.py``), or are made in
complete tables of scikit-learn.
"""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import torch
from _common import SHORT_CHAINS, finished, markdown_table, mean_sd, parse_args, write_results
from _mixed_data import load, made
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.model_selection import train_test_split

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
)

#: tables for choosing of mixed_tables.md whose numbers have gaps, and their targets' kind
PUBLIC = {
    "gapminder": "real", "schooling": "real", "flchain": "classes", "hawks": "classes",
    "resume": "classes",
}  # fmt: skip
COMPLETE = {
    "diabetes": partial(load_diabetes, return_X_y=True),
    "breast_cancer": partial(load_breast_cancer, return_X_y=True),
    "friedman1": partial(make_friedman1, 600, noise=1.0, random_state=0),
}
#: probability of a gap, given whether the number is above its median, and the target above its own
MECHANISMS = {
    "at random": lambda large, high: 0.4,
    "large numbers": lambda large, high: np.where(large, 0.7, 0.1),
    "by the target": lambda large, high: np.where(high, 0.7, 0.1),
}
ESTIMATORS = {
    ("linear", "real"): partial(BayesianGLMRegressor, likelihood="normal"),
    ("linear", "classes"): partial(BayesianLogisticRegression, prior_scale="learned"),
    ("network", "real"): BayesianMLPRegressor,
    ("network", "classes"): BayesianMLPClassifier,
}
#: what makes complete numbers of numbers with gaps, given a seed; None: they stay as they are
WAYS = {
    "as they are": None,
    "mean": lambda seed: SimpleImputer(),
    "mean, marked": lambda seed: SimpleImputer(add_indicator=True),
    "regression": lambda seed: IterativeImputer(random_state=seed),
    "regression, marked": lambda seed: IterativeImputer(random_state=seed, add_indicator=True),
    "five draws": lambda seed: IterativeImputer(random_state=seed, sample_posterior=True),
}
N_IMPUTATIONS = 5
MOST_ROWS = 3000
BODY = """
**Tables.** Public ones are those for choosing of [mixed_tables](mixed_tables.md) whose numbers have
gaps, at most {most} rows of each. In complete tables, gaps are made in every column of numbers: "at
random", in 40% of all places; "large numbers", in 70% of the places above the median of the column,
and in 10% of the others; "by the target", in 70% of the places of rows whose target is above its
median (or whose class is the second), and in 10% of the others. Training and test rows, 30%, have
gaps of the same kind.

**Ways.** "As they are": the estimator gets the gaps. It fills them with conditional means under a
normal distribution of all columns of numbers, which EM finds, and adds a column that marks the
gaps of each. The others complete the numbers before, with imputers of scikit-learn that see
training rows only; categories stay as they are. "Mean": `SimpleImputer`. "Regression":
`IterativeImputer`, with BayesianRidge. "Marked": with columns that mark gaps
(`add_indicator=True`). "Five draws": five imputations that are drawn (`sample_posterior=True`), a
fit to each, and the mean of the five predictive distributions, as in multiple imputation.

**NLL** of test rows, lower is better; targets are in sds of the training rows. **Bold**: the lowest
of a row. Linear: `BayesianGLMRegressor` or `BayesianLogisticRegression` with
`prior_scale="learned"`; network: `BayesianMLPRegressor` or `BayesianMLPClassifier`, at their
defaults of 2026-11-29, before networks could [go on](early_ends.md#runs-that-go-on) for more steps.

{tables}

{means}

**Choice.** {choice}
"""
CHOICE = """
The mean with a mark is what the estimators did before these tables were made. Conditional means
with a mark are as good where columns say nothing of each other (friedman1), and better where they
do (gapminder, breast_cancer). Ways without marks lose what a gap says, where the target or the
missing number decides on it. Where gaps are at random, a mark is only one more column to learn from
few rows, which costs linear models 0.02 and networks nothing: put `IterativeImputer` before a
linear model if you know that they are.
"""


def table_of(name, mechanism, seed):
    """Training and test rows as frames, with gaps; targets in sds of the training rows."""
    if mechanism is None:
        X, y, _ = load(name) if name != "made" else (made().drop(columns="label"), None, None)
        y = X.pop("real").to_numpy() if y is None else y
        kind = PUBLIC.get(name, "real")
    else:
        X, y = COMPLETE[name]()
        X, kind = pd.DataFrame(X).add_prefix("x"), "real" if name != "breast_cancer" else "classes"
    chosen = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    X, y = X.iloc[chosen], np.asarray(y)[chosen]
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.3, random_state=seed, stratify=y if kind == "classes" else None
    )
    if mechanism is not None:
        rng, middle = np.random.default_rng([seed, 1]), X.median()
        high = np.median(y)
        X, X_test = (
            rows.mask(rng.random(rows.shape) < MECHANISMS[mechanism](
                (rows > middle).to_numpy(), (target >= max(high, 0.5))[:, None] if kind == "classes"
                else (target > high)[:, None]))
            for rows, target in ((X, y), (X_test, y_test))
        )  # fmt: skip
    if kind == "real":
        center, scale = y.mean(), y.std()
        y, y_test = (y - center) / scale, (y_test - center) / scale
    return X, y, X_test, y_test, kind


def completed(imputer, X, X_test):
    """Both frames with complete numbers."""
    numbers = list(X.select_dtypes("number"))
    imputer.set_output(transform="pandas").fit(X[numbers])
    return (rows.drop(columns=numbers).join(imputer.transform(rows[numbers]))
            for rows in (X, X_test))  # fmt: skip


def log_density(model, X, y):
    """Log of the predictive density, or of the probability, of each target."""
    if hasattr(model, "classes_"):
        log_p = model.predict_log_proba(X)
        return log_p[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return model.predict_log_density(X, y)


def score(name, mechanism, kind_of_model, way, seed, short):
    """NLL of the test rows."""
    X, y, X_test, y_test, kind = table_of(name, mechanism, seed)
    found = []
    for number in range(N_IMPUTATIONS if way == "five draws" else 1):
        rows = X, X_test
        if WAYS[way] is not None:
            rows = completed(WAYS[way](N_IMPUTATIONS * seed + number), X, X_test)
        train, test = rows
        model = ESTIMATORS[kind_of_model, kind](random_state=seed)
        if short:
            model.set_params(**SHORT_CHAINS)
        found.append(log_density(model.fit(train, y), test, y_test))
    return {"nll": float(np.log(len(found)) - logsumexp(found, axis=0).mean())}


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of runs of few steps, and of imputers that go on
    args = parse_args(__doc__, 3, 1, runs="gaps", constants={"most_rows": MOST_ROWS})
    cases = [(name, None) for name in PUBLIC]
    cases += [(name, mechanism) for name in COMPLETE for mechanism in MECHANISMS]
    if args.quick:
        cases = [("made", None), ("diabetes", "at random")]
    tables, away = [], {}
    for model in ("linear", "network"):
        lines = []
        for name, mechanism in cases:
            values = {way: [] for way in WAYS}
            for way in WAYS:
                for seed in args.seeds:
                    label = f"{name}, {mechanism}, {model}, {way}, {seed}"
                    run = partial(score, name, mechanism, model, way, seed, args.short)
                    one = finished(args, label, run, way=way)
                    if one is not None:
                        values[way].append(one["nll"])
            means = {way: np.mean(found) for way, found in values.items() if found}
            lowest = min(means.values(), default=0.0)
            cells = [mean_sd(found) if found else "" for found in values.values()]
            lines.append([name, mechanism or "its own", *(
                f"**{cell}**" if means.get(way) == lowest else cell
                for way, cell in zip(WAYS, cells, strict=True)
            )])  # fmt: skip
            if "as they are" in means:
                found = away.setdefault((model, mechanism or "its own"), {})
                for way, mean in means.items():
                    found.setdefault(way, []).append(mean - means["as they are"])
        header = markdown_table([model, "gaps", *WAYS], lines)
        tables.append(header)
    means = [[model, kind, *(f"{np.mean(found[way]):+.3f}" if way in found else "" for way in WAYS)]
             for (model, kind), found in away.items()]  # fmt: skip
    words = "Mean NLL above that of numbers as they are, over the tables:\n\n"
    body = BODY.format(
        most=f"{MOST_ROWS:,}", tables="\n\n".join(tables), choice=CHOICE.strip(),
        means=words + markdown_table(["model", "gaps", *WAYS], means),
    )  # fmt: skip
    title = "Missing numbers: conditional means and marks beside imputation"
    write_results(args, "gaps", title, body)


if __name__ == "__main__":
    main()
