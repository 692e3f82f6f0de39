"""Wide tables: default perceptrons next to a linear model, and a check of random tables.

    python examples/benchmarks/wide.py
    python examples/benchmarks/wide.py --random 200

Tables are those of ``_wide_data.py``. In regression, MCLMC and pSGLD are compared. Each is the
default of some tables. ``--random`` asks for further small tables, each with a default fit, whose
predictions must stay near the range of the targets.
"""

import warnings
from functools import partial

import numpy as np
import torch
from _common import error_rate, finished, markdown_table, nll, parse_args, write_results
from _tabular_peers import (
    bounded,
    linear_classification,
    linear_regression,
    ours_classification,
    ours_regression,
)
from _tabular_ranks import in_percent, relative_excess
from _wide_data import CHOOSING, REGRESSION, REPORTING, is_regression, load_wide, random_table

from skbayes_sgmcmc import BayesianMLPRegressor

LABELS = {"linear": "linear", "auto": "ours", "mclmc": "ours, MCLMC", "psgld": "ours, pSGLD"}
#: half ranges of the targets, from the middle of their range, up to which means and sds may lie
NEAR = 2.0
BODY = """{tables}

Means over {seeds} seeds, each with a split and draws of its own. Regression: RMSE and NLL in units
of the training targets' standard deviation. Classification: error and NLL. "linear" is `RidgeCV` or
`LogisticRegressionCV` on standardised columns, with penalties from a grid and, in regression, a
noise from a held-out tenth of the rows.
"ours" is the estimator without arguments. The row of the other sampler has `sampler=` alone.
"sd" is the largest predictive standard deviation of the test rows of all seeds.
Regressions of 2026-11-30 are those that
[go on](early_ends.md#runs-that-go-on) while they have not reached the posterior: up to three times
the steps of the day before, when they took 7 to 17 core-seconds. Other work on the machine made
them up to twice as long again.

Tables have at most 2,250 rows for training. They are public narrow ones after an encoding:
indicators of values or quantile bins (one_hot), of pairs of them (crossed), products of columns,
hashed pairs of bins, and counts of the most frequent words. The first list was used to choose the
defaults, the second was not.

{random}"""


def scores(args, method, regression, table, seed):
    """Error, NLL and largest sd; with where the predictions lie in half ranges of the targets."""
    X_train, y_train, X_test, y_test = table
    options = {} if method in ("linear", "auto") else {"sampler": method}
    if args.short:
        options |= {"max_steps": 100} if method != "linear" else {}
    if regression:
        fit = linear_regression if method == "linear" else ours_regression
        found = fit(X_train, y_train, seed, **options)(X_test)
        low, high = y_train.min(), y_train.max()
        half = 0.5 * (high - low)
        return {
            "error": float(np.sqrt(np.mean((found.mean - y_test) ** 2))),
            "nll": float(-np.mean(found.log_density(y_test))),
            "sd": float(np.max(found.sd)),
            "far": float(np.max(np.abs(found.mean - 0.5 * (low + high))) / half),
            "wide": float(np.max(found.sd) / half),
        }
    fit = linear_classification if method == "linear" else ours_classification
    proba = bounded(fit(X_train, y_train, seed, **options)(X_test))
    share = np.bincount(y_train) / len(y_train)
    constant = -np.mean(np.log(share[y_test]))
    loss = float(nll(y_test, proba))
    return {"error": float(error_rate(y_test, proba)), "nll": loss, "excess": loss / constant}


def default_sampler(X, y):
    """The sampler of a default regression, from a fit of a few steps."""
    fitted = BayesianMLPRegressor(n_chains=1, max_steps=4, n_draws=1, random_state=0).fit(X, y)
    return "mclmc" if "energy_error" in fitted.posterior_.statistics else "psgld"


def rows_of(args, name):
    """One line for each method, and how far the default's error is above the linear model's."""
    regression = is_regression(name)
    tables = {seed: load_wide(name, seed) for seed in args.seeds}
    first_table = tables[args.seeds[0]]
    methods = ["linear", "auto"]
    if regression:
        default = default_sampler(*first_table[:2])
        methods.append("psgld" if default == "mclmc" else "mclmc")
    lines, errors = [], {}
    first = [name, f"{len(first_table[1]):,} x {first_table[0].shape[1]}"]
    for method in methods:
        runs = []
        for seed, table in tables.items():
            run = partial(scores, args, method, regression, table, seed)
            one = finished(args, f"{name}-{method}-{seed}", run, set=name, method=method, seed=seed)
            if one is not None:
                runs.append(one)
                errors[method, seed] = one["error"]
        if not runs:
            continue
        label = LABELS[method]
        if regression and method == "auto":
            label += f" ({'MCLMC' if default == 'mclmc' else 'pSGLD'})"
        sd = f"{max(one['sd'] for one in runs):.2f}" if regression and method != "linear" else ""
        error, loss, seconds = (
            np.mean([one[key] for one in runs]) for key in ("error", "nll", "seconds")
        )
        lines.append([*first, label, f"{error:.3f}", f"{loss:.3f}", sd, f"{seconds:.0f}"])
        first = ["", ""]
    both = [seed for method, seed in errors if method == "auto" and ("linear", seed) in errors]
    ours, linear = (np.array([errors[m, seed] for seed in both]) for m in ("auto", "linear"))
    return lines, relative_excess(ours, linear)


def random_tables(args):
    """A sentence on the default fits of the random tables."""
    found = []
    for seed in range(args.random):
        (name, kind, size, n_rows), table = random_table(seed)
        regression = name in REGRESSION
        key, settings = f"random-{seed}", {"set": [name, kind, size, n_rows], "seed": seed}
        run = partial(scores, args, "auto", regression, table, seed)
        one = finished(args, key, run, method="auto", **settings)
        if one is not None:
            found.append(one)
    if not found:
        return ""
    real = [one for one in found if "far" in one]
    classes = [one for one in found if "far" not in one]
    absurd = sum(max(one["far"], one["wide"]) > NEAR for one in real)
    words = (
        f"**Random tables.** {len(found)} tables of 100 to 600 columns and at most 600 rows for "
        "training, each with another source, encoding and size, and a default fit. "
    )
    if real:
        words += (
            f"Regression ({len(real)}): the predicted means are at most "
            f"{max(one['far'] for one in real):.2f} half ranges of the training targets from the "
            f"middle of this range, and the sds at most {max(one['wide'] for one in real):.2f} "
            f"half ranges; {absurd} fits are beyond {NEAR:g}. "
        )
    if classes:
        words += (
            f"Classification ({len(classes)}): the NLL is at most "
            f"{max(one['excess'] for one in classes):.2f} times that of the classes' frequencies."
        )
    return words


def more(parser):
    parser.add_argument("--random", type=int, default=0, help="number of random tables (default 0)")
    parser.add_argument("--sets", nargs="+", choices=tuple(CHOOSING | REPORTING))


def main():
    torch.set_num_threads(1)
    args = parse_args(__doc__, 3, 1, runs="wide", more=more)
    warnings.simplefilter("ignore")  # chains that have not mixed are part of what is measured
    header = ["", "rows x columns", "", "error", "NLL", "sd", "core-seconds"]
    tables, behind, missing = [], [], []
    for title, sets in (("Used to choose", CHOOSING), ("Not used to choose", REPORTING)):
        lines = []
        for name in sets:
            if (args.sets is None and not args.quick) or name in (
                args.sets or ["diabetes_products"]
            ):
                found, above = rows_of(args, name)
                if np.isnan(above[0]):
                    missing.append(name)
                    continue
                lines += found
                if above[0] > 0.03:
                    behind.append(f"{name} ({in_percent(*above)}%)")
        if lines:
            tables.append(f"{title}:\n\n{markdown_table(header, lines)}")
    words = "The default is more than 3% behind the linear model in error (± standard error) on: "
    tables.append(words + (", ".join(behind) or "none") + ".")
    if missing:
        tables.append(f"Not run yet: {', '.join(missing)}.")
    given = {"tables": "\n\n".join(tables), "random": random_tables(args)}
    body = BODY.format(seeds=len(args.seeds), **given).rstrip()
    write_results(args, "wide", "Wide tables: untuned networks and a linear model", body)


if __name__ == "__main__":
    main()
