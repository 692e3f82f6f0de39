"""Numbers with knots: default networks behind scikit-learn's splines of degree 1.

    python examples/benchmarks/knots.py

Tables are those for choosing of ``mixed_tables.py``, whose files are in packages, and one for
reporting that has coordinates of places.
"""

import warnings
from functools import partial

import numpy as np
import torch
from _common import SHORT_CHAINS, finished, markdown_table, mean_sd, parse_args, write_results
from _mixed_data import load_split, purpose_of, task_of
from gaps import log_density
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor

TABLES = (
    "computers", "epa2021", "gapminder", "rice_farms", "schooling", "surveys", "chile", "flchain",
    "hawks", "mifem", "resume", "tic_tac_toe", "mpls_stops",
)  # fmt: skip
#: knots of a column; 0: the numbers alone
KNOTS = (0, 7, 13, 25)
#: what all tables have, the others some
WAYS = (0, 13)
SOME = ("computers", "rice_farms", "surveys", "mpls_stops")
#: columns with fewer values stay as they are
FEWEST_VALUES = 20
BODY = """
**Tables** and splits are those of [mixed_tables](mixed_tables.md): its tables for choosing, and
`mpls_stops`, one of those for reporting, whose police stops have coordinates of places.

**Ways.** "0": `BayesianMLPRegressor` or `BayesianMLPClassifier` without arguments but the seed.
Otherwise, columns with at least {fewest} different numbers also have piecewise linear functions of
them, with so many knots at quantiles of the training rows, as in the
[recipe](../tables.md#numbers-that-act-in-steps): `SplineTransformer` of scikit-learn with
`degree=1`. Gaps in these columns are filled with medians first.

NLL of test rows, lower is better, and RMSE or error; targets of regression are in sds of the
training rows. Columns are numbers of knots. **Bold**: the lowest of a row. Other work on the
machine made some fits twice as long.

{tables}

{words} They gain where numbers act in steps or along edges
and rows are many: prices of computers by date, weights in surveys, police stops by place. Small
tables of classes lose a little. So they are a recipe, and not the default.
"""


def many_values(X):
    """Names of the columns of numbers with many values."""
    numbers = X.select_dtypes("number")
    return [name for name in numbers if numbers[name].nunique() >= FEWEST_VALUES]


def knots_of(X, n_knots):
    """What adds piecewise linear functions of numbers to a frame."""
    splines = make_pipeline(
        SimpleImputer(strategy="median"),
        SplineTransformer(n_knots, degree=1, knots="quantile", include_bias=False),
    )
    columns = make_column_transformer(
        ("passthrough", make_column_selector()), (splines, many_values(X))
    )
    return columns.set_output(transform="pandas")


def score(name, n_knots, seed, short):
    X, y, X_test, y_test = load_split(name, seed)
    regression = task_of(name) == "regression"
    model = (BayesianMLPRegressor if regression else BayesianMLPClassifier)(random_state=seed)
    if short:
        model.set_params(**SHORT_CHAINS)
    if n_knots:
        columns = knots_of(X, n_knots)
        X, X_test = columns.fit_transform(X), columns.transform(X_test)
    model.fit(X, y)
    found = model.predict(X_test)
    error = np.sqrt(np.mean((found - y_test) ** 2)) if regression else np.mean(found != y_test)
    return {"nll": -float(np.mean(log_density(model, X_test, y_test))), "error": float(error)}


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # chains that have not mixed are part of what is measured
    args = parse_args(__doc__, 2, 1, runs="knots")
    lines, gains, seconds = {"nll": [], "error": [], "seconds": []}, [], []
    for name in ("made_regression",) if args.quick else TABLES:
        found = {}
        for n_knots in KNOTS if name in SOME else WAYS:
            for seed in args.seeds:
                run = partial(score, name, n_knots, seed, args.short)
                settings = {"knots": n_knots}
                one = finished(args, f"{name}, {n_knots}, {seed}", run, **settings)
                if one is not None:
                    found.setdefault(n_knots, []).append(one)
        if not set(WAYS) <= found.keys():
            continue
        for key, rows in lines.items():
            means = {n: np.mean([one[key] for one in some]) for n, some in found.items()}
            if key == "seconds":
                cells = {n: f"{mean:.0f}" for n, mean in means.items()}
            else:
                cells = {n: mean_sd([one[key] for one in some]) for n, some in found.items()}
                low = min(means, key=means.get)
                cells[low] = f"**{cells[low]}**"
            rows.append([name, *(cells.get(n, "") for n in KNOTS)])
            if key == "nll" and purpose_of(name) == "choosing":
                gains.append(means[13] - means[0])
            if key == "seconds":
                seconds.append(means[13] / means[0])
    heads = {"nll": "NLL", "error": "RMSE or error", "seconds": "core-seconds"}
    tables = [markdown_table([heads[key], *map(str, KNOTS)], rows) for key, rows in lines.items()]
    words = ""
    if gains:
        words = (
            f"With 13 knots, the NLL of the {len(gains)} tables for choosing changes by "
            f"{np.mean(gains):+.3f} in the mean, from {min(gains):+.3f} to {max(gains):+.3f}, and "
            f"a fit takes {min(seconds):.1f} to {max(seconds):.1f} times as long."
        )
    body = BODY.format(fewest=FEWEST_VALUES, tables="\n\n".join(tables), words=words)
    write_results(args, "knots", "Numbers with knots: splines of degree 1 before a network", body)


if __name__ == "__main__":
    main()
