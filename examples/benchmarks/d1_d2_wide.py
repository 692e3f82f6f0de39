"""Experiments D1 and D2: more features than rows (Deng et al. 2019, tables 1 and 4, figs 1 and 3).

The numbers of finished runs are stored in the file ``--runs``. A command that was interrupted, or
that asks for more seeds, does only the runs that are missing. ``--quick`` and ``--steps 20000`` are
short, and ``--steps 500000`` is the length of the paper's runs.
"""

import warnings
from functools import partial

import numpy as np
from _common import (
    SHORT_CHAINS,
    finished,
    markdown_table,
    new_figure,
    parse_args,
    save_figure,
    write_results,
)
from scipy.stats import beta as beta_distribution
from sklearn.linear_model import (
    ARDRegression,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
)

from skbayes_sgmcmc import (
    SamplingWarning,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
    SpikeSlab,
)
from skbayes_sgmcmc.schedules import Polynomial

P, BATCH, STEPS, DRAWS, N_TEST = 1000, 50, 100_000, 500, 50
#: adaptation, and the penalty of the ridge regression from which the chain starts (None: from zero)
METHODS = {"SGLD-SA": ("sa", None), "SGLD-EM": ("em", None), "SGLD": (None, None)}
RIDGE = {"SGLD-SA, from ridge": ("sa", 10.0), "SGLD-EM, from ridge": ("em", 10.0)}
#: the settings (v_0, sigma) of the tables' columns, rows and correlations of the data
LINEAR = {"columns": [(0.01, 2.0), (0.1, 2.0), (0.01, 1.0), (0.1, 1.0)], "rows": 100, "rho": 0.6,
          "methods": METHODS | RIDGE}  # fmt: skip
LOGISTIC = {"columns": [(0.01, 1.0), (0.001, 1.0), (0.01, 2.0), (0.001, 2.0)], "rows": 500,
            "rho": 0.3, "methods": METHODS}  # fmt: skip
#: of which intervals and features are counted, over more seeds than the others
MAIN, MAIN_SEEDS, COVERAGE = (0.1, 1.0), 40, 0.9
#: what is also run with this many times the steps, which is the length of the paper's runs
LONG, LONG_METHODS, LONG_SEEDS = 5, ("SGLD-SA", "SGLD-EM", "SGLD", "SGLD-SA, from ridge"), 3
#: the settings (v_0, sigma) of the figures
DRAWN = (0.1, 1.0)
PUBLISHED = {
    "linear": {
        "SGLD-SA": ("1.89 / 5.56", "1.72 / 5.64", "1.48 / 3.51", "1.54 / 4.42"),
        "SGLD-EM": ("3.49 / 19.31", "2.23 / 8.22", "2.23 / 19.28", "2.07 / 6.94"),
        "SGLD": ("15.85 / 416.39", "15.85 / 416.39", "11.86 / 229.38", "7.72 / 88.90"),
    },
    "logistic": {
        "SGLD-SA": ("0.177 / 0.108", "0.188 / 0.114", "0.182 / 0.116", "0.187 / 0.113"),
        "SGLD-EM": ("0.207 / 0.131", "0.361 / 0.346", "0.204 / 0.132", "0.376 / 0.360"),
        "SGLD": ("0.295 / 0.272", "0.335 / 0.301", "0.350 / 0.338", "0.337 / 0.319"),
    },
}

BODY = """
{p} features have correlations rho^|i-j|. Only the first three matter; their coefficients are drawn
from N(3, .04), N(2, .04) and N(1, .04). SSGL prior with v_1 = 10, delta = 0.5 at the start, a = 1,
b = {p}, nu = lambda = 1, T = 1, minibatches of {batch}, {steps:,} steps (the paper's runs have
500,000), of which the second half is kept ({draws} draws); the gain is 10 (k + 1000)^-0.7 (SA), 1
(EM) or 0 (SGLD, whose latents stay fixed). Step sizes are 0.001 k^(-1/3) in the paper's unit, and
`step_size` is N times that. The data are not standardised. One chain starts from zero; an intercept
is fitted, too. "Defaults" is the estimator with its default parameters and four chains. "From
ridge": the chain starts from scikit-learn's `Ridge` with a penalty of 10.

{parts}

{remarks}
"""
REMARKS = """
**D1.** From zero SGLD-SA reaches the published errors, to 0.03 in both measures, in three of the
four columns. One seed of a plain transcription of the formulas did so too. With (v_0, sigma) =
(0.01, 2) six of ten chains end in a poor mode, with fewer than two of the three features: the
narrow spike holds all coefficients while sigma is learned, and sigma counts the effects as noise
(it ends near 5 instead of 1.73). From a ridge regression no chain does, and SGLD-SA is at or below
the published errors in all four columns (in the last column its MAE is equal to the published one,
and its MSE is 0.5 lower). The paper does not say where its chains start. Tried for that column,
40,000 steps, the four worst seeds: four chains from random starts 2.4 / 9.4 (two of the seeds);
minibatches of 10 2.03 / 7.71; pSGLD 3.65 / 21.8; sigma = 20 at the start 3.48 / 20.5; 5,000 steps
at T = 1.5 first 6.7 / 72, and hotter ones worse (1,000 coefficients spread, sigma runs away, and
steps have become too small to come back). From ridge, SGLD-EM is worse than SGLD-SA where v_0 =
0.01, as published, and equal to it where v_0 = 0.1. From zero with (v_0, sigma) = (0.01, 2) both
SGLD-EM (2.15 / 7.91) and SGLD (2.13 / 7.13) are ahead of SGLD-SA (2.34 / 10.15), because of the
chains in the poor mode. In the other three columns SGLD, whose latents stay fixed, is worse than
SGLD-SA. Its errors are far smaller than published in all four columns. LassoCV predicts better than
all of them here. Five times as many steps help SGLD-EM most, where v_0 = 0.01 (2.10 / 7.33 becomes
1.76 / 5.46), and SGLD only where it is worst; the order stays.

The third feature is missed in 27 of 40 seeds, and its interval then does not cover its coefficient.
In the ten seeds in which all three features are selected, 26 of 30 intervals cover (87%, nominal
90%); in the others 32 of 90 do. The model causes this more than the chain: with
`adaptation="gibbs"` (the exact posterior; 40,000 steps, four of the seeds) the same two features
are selected. It has an effect of 1 with a standard error of about 0.2, half of which its neighbours
can take (correlation 0.6), against a prior probability of about 2 in 1,000; and 997 spikes of scale
sigma v_0 explain more of the data's variance than the noise does (sigma ends at 0.4, for a noise of
1.73). Slower gains (A = 0.4), a narrower slab (v_1 = 1) and four chains did not change it. Nor does
this package cause it: a separate transcription of the printed formulas (float64, no intercept,
100,000 steps) on the same ten data sets has 1.54 / 3.89 in this column, and selects the same
features on each of the six that both had run when it was made: exactly the first three on 2 of 10,
the first two on all.

**D2.** SGLD-SA is within the published range in MAE and below it in MSE in every column (the
targets were a MAE of at most .19 and an MSE of at most .12), and it is ahead of L1 logistic
regression. SGLD-EM is equal to it at v_0 = 0.01, where the published one is behind by .02 to .03 in
MAE. At v_0 = 0.001 SGLD-EM is far worse, as the paper says, with a smaller MAE and a larger MSE
than SGLD (the published one is behind SGLD in both). In the second figure, which has the paper's
v_0 = 0.1, the coefficients are 1.6 to 2 times the true ones with SGLD-SA and SGLD-EM, which do not
differ, and 1.7 to 2.6 times with SGLD. In the paper's figure, too, SGLD overfits, but SGLD-SA finds
the coefficients and SGLD-EM shrinks them. At v_0 = 0.01 SGLD-SA and SGLD-EM are nearly twice the
true ones here, and SGLD is a third of them.

On D2 the defaults have the lowest errors of all; on D1 they are between the best and the
second-best column of SGLD-SA from zero. The scale of their spikes is 0.04 (D1) and 0.036 (D2),
which is 0.4 standard errors. Earlier defaults with a scale of 0.1 for all data had 1.71 / 4.79
(seven of these seeds) and .178 / .093 (three of these seeds). A start from ridge changes the
defaults little (1.47 / 3.50 instead of 1.49 / 3.60 over seven of these seeds).
"""
LONG_TEXT = """
### At the length of the paper's runs

The same with {steps:,} and {long_steps:,} steps, on the data of the same {n} seeds. The gain and
the step size go on falling as before.

{table}
"""
LINEAR_TEXT = """
## D1: linear regression, 100 rows, correlations 0.6, noise variance 3

The errors are those of posterior mean predictions on {n_test} new rows: MAE / MSE, the mean over
the seeds, with the number of seeds in brackets. The published figures are below each row.

{table}

The noise alone causes a MAE of 1.38 and an MSE of 3. On the same data: {others}.

(v_0, sigma) = (0.1, 1), SGLD-SA, {n_main} seeds: rho exceeds 0.5 for the first three features and
for no other in {exact} of {n_main} seeds; all three are among the selected in {found}, the first
two in {two}. 90% intervals cover beta_1..beta_3 in {covered}. The defaults: exactly these three in
{exact_default} of {n_default}.
"""
LOGISTIC_TEXT = """
## D2: logistic regression, 500 rows, correlations 0.3, logits with normal noise of variance 1/2

The errors are the differences between labels and predicted probabilities on {n_test} new rows: MAE
/ MSE, the mean over the seeds, with the number of seeds in brackets. The published figures (table
4) are below each row.

{table}

On the same data: {others}.
"""


# Data


def make_data(kind, seed):
    """X, y, X_test, y_test and the coefficients."""
    rng = np.random.default_rng(seed)
    setting = LINEAR if kind == "linear" else LOGISTIC
    coef = np.zeros(P)
    coef[:3] = np.array([3.0, 2.0, 1.0]) + 0.2 * rng.standard_normal(3)
    parts = []
    for n in (setting["rows"], N_TEST):
        X, rho = rng.standard_normal((n, P)), setting["rho"]
        for j in range(1, P):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * X[:, j]
        f = X @ coef + np.sqrt(3.0 if kind == "linear" else 0.5) * rng.standard_normal(n)
        if kind == "logistic":
            f = (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(int)
        parts += [X, f]
    return *parts, coef


def errors(kind, model, X, y):
    """MAE and MSE of predictions or of probabilities."""
    away = y - (model.predict(X) if kind == "linear" else model.predict_proba(X)[:, 1])
    return [float(np.abs(away).mean()), float(np.square(away).mean())]


# Runs


def run(kind, method, column, steps, seed):
    """Errors, inclusion probabilities and draws of the first three coefficients."""
    X, y, X_test, y_test, coef = make_data(kind, seed)
    v_0, sigma = column
    adaptation, penalty = method
    init = np.zeros(P + 1)
    if penalty is not None:
        ridge = Ridge(penalty).fit(X, y)
        init = np.append(ridge.coef_, ridge.intercept_)
    gain = Polynomial(a=10.0, b=1000.0, gamma=0.7)
    prior = SpikeSlab(v_0, 10.0, sigma=sigma, sigma_prior=(1.0, 1.0), learn_sigma=True,
                      adaptation=adaptation, gain=gain)  # fmt: skip
    estimator = SparseBayesianRegressor if kind == "linear" else SparseBayesianClassifier
    model = estimator(
        prior=prior,
        standardize=False,
        sampler="sgld",
        integrator="euler",
        step_size=Polynomial(a=0.001 * len(X), b=1.0, gamma=1.0 / 3.0),
        batch_size=BATCH,
        n_chains=1,
        n_draws=DRAWS,
        burn_in=steps // 2,
        thinning=steps // (2 * DRAWS),
        init=init,
        dtype="float32",
        random_state=seed,
    )
    return numbers(kind, model, X, y, X_test, y_test, coef)


def run_default(kind, seed, short):
    X, y, X_test, y_test, coef = make_data(kind, seed)
    estimator = SparseBayesianRegressor if kind == "linear" else SparseBayesianClassifier
    model = estimator(random_state=seed, **(SHORT_CHAINS if short else {}))
    return numbers(kind, model, X, y, X_test, y_test, coef)


def numbers(kind, model, X, y, X_test, y_test, coef):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        model.fit(X, y)
    posterior = model.posterior_
    low, high = 0.5 - COVERAGE / 2.0, 0.5 + COVERAGE / 2.0
    ends = posterior.quantile("weight_1", [low, high])[:, :3, 0]
    return {
        "errors": errors(kind, model, X_test, y_test),
        "selected": model.get_support(indices=True).tolist(),
        "mean": np.atleast_2d(model.coef_)[0, :3].tolist(),
        "intervals": ends.tolist(),
        "truth": coef[:3].tolist(),
    }


def run_others(kind, seed, short):
    """Errors of scikit-learn's estimators."""
    X, y, X_test, y_test, _ = make_data(kind, seed)
    folds = 2 if short else 5
    if kind == "linear":
        others = {"ARDRegression": ARDRegression(), "LassoCV": LassoCV(cv=folds, random_state=seed)}
    else:
        others = {
            "L1 logistic regression (CV)": LogisticRegressionCV(
                l1_ratios=(1.0,), solver="liblinear", cv=folds, scoring="neg_log_loss",
                use_legacy_attributes=False,
            )
        }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: errors(kind, model.fit(X, y), X_test, y_test) for name, model in others.items()
        }


# The page


def name_of(kind, method, column, steps, seed):
    """Name and settings of a run."""
    method = method.replace(", from ", "-")
    settings = {"kind": kind, "method": method, "v_0": column[0], "sigma": column[1],
                "steps": steps, "seed": seed}  # fmt: skip
    return f"{kind}-{method}-{column[0]:g}-{column[1]:g}-{steps}-seed{seed}", settings


def name_of_other(kind, method, seed):
    """Name and settings of a run that has neither columns nor a number of steps."""
    return f"{kind}-{method}-seed{seed}", {"kind": kind, "method": method, "seed": seed}


def cell(runs):
    if not runs:
        return ""
    mae, mse = np.mean([found["errors"] for found in runs], axis=0)
    digits = 2 if mae > 0.5 else 3
    return f"{mae:.{digits}f} / {mse:.{digits}f} ({len(runs)})"


def load(args, names):
    runs = (args.records.stored(*name) for name in names)
    return [found for found in runs if found is not None]


def header_of(columns):
    return ["method", *(f"v_0 = {v:g}, sigma = {s:g}" for v, s in columns)]


def cells(args, kind, method, columns, steps, n_seeds):
    """The cells of a method in these columns."""
    seeds = range(n_seeds)
    names = ([name_of(kind, method, column, steps, s) for s in seeds] for column in columns)
    return [cell(load(args, each)) for each in names]


def table(args, kind):
    setting = LINEAR if kind == "linear" else LOGISTIC
    header, rows = header_of(setting["columns"]), []
    for method in setting["methods"]:
        rows.append([method, *cells(args, kind, method, setting["columns"], args.steps, 100)])
        if method in PUBLISHED[kind]:
            rows.append(["published", *PUBLISHED[kind][method]])
    defaults = load(args, [name_of_other(kind, "defaults", seed) for seed in range(100)])
    rows.append(["defaults, four chains", cell(defaults)] + [""] * (len(header) - 2))
    return markdown_table(header, rows)


def long_table(args):
    """The table of the runs that are as long as the paper's, beside those of these seeds."""
    columns, rows = LINEAR["columns"], []
    for method in LONG_METHODS:
        for steps in (args.steps, LONG * args.steps):
            found = cells(args, "linear", method, columns, steps, args.long_seeds)
            rows.append([f"{method}, {steps:,} steps", *found])
    return markdown_table(header_of(columns), rows)


def others_line(args, kind):
    runs = load(args, [name_of_other(kind, "others", seed) for seed in range(100)])
    names = [name for name in runs[0] if name != "seconds"] if runs else []
    return ", ".join(
        f"{name} " + cell([{"errors": found[name]} for found in runs]) for name in names
    )


def proportion(hits, n):
    """``hits of n`` with its 95% interval (Clopper & Pearson)."""
    low = beta_distribution.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    high = beta_distribution.ppf(0.975, hits + 1, n - hits) if hits < n else 1.0
    return f"{hits} of {n} ({hits / n:.0%}, 95% interval {low:.0%} to {high:.0%})"


def linear_text(args):
    runs = load(args, [name_of("linear", "SGLD-SA", MAIN, args.steps, s) for s in range(100)])
    defaults = load(args, [name_of_other("linear", "defaults", seed) for seed in range(100)])
    inside = [
        low <= truth <= high
        for found in runs
        for low, high, truth in zip(*found["intervals"], found["truth"], strict=True)
    ]
    return LINEAR_TEXT.format(
        n_test=N_TEST, table=table(args, "linear"), others=others_line(args, "linear"),
        n_main=len(runs), exact=sum(found["selected"] == [0, 1, 2] for found in runs),
        found=sum({0, 1, 2} <= set(found["selected"]) for found in runs),
        two=sum({0, 1} <= set(found["selected"]) for found in runs),
        covered=proportion(sum(inside), len(inside)),
        exact_default=sum(found["selected"] == [0, 1, 2] for found in defaults),
        n_default=len(defaults),
    ) + LONG_TEXT.format(
        steps=args.steps, long_steps=LONG * args.steps, n=args.long_seeds, table=long_table(args)
    )  # fmt: skip


def logistic_text(args):
    return LOGISTIC_TEXT.format(
        n_test=N_TEST, table=table(args, "logistic"), others=others_line(args, "logistic")
    )


def oracle(kind, X, y):
    """Mean and sds of a normal posterior of the three coefficients, given which they are."""
    X = X[:, :3]
    if kind == "linear":
        mean, weight = Ridge(0.1, fit_intercept=False).fit(X, y).coef_, 1.0 / 3.0
    else:
        mode = LogisticRegression(C=30.0, fit_intercept=False).fit(X, y)
        mean, weight = mode.coef_[0], mode.predict_proba(X).prod(1)  # p (1 - p)
    covariance = np.linalg.inv((X.T * weight) @ X + np.eye(3) / 30.0)
    return mean, np.sqrt(np.diag(covariance))


def draw_figure(args, kind):
    """Draws of the first three coefficients, and the oracle's ridge posterior."""
    X, y, _, _, coef = make_data(kind, 0)
    mean, sd = oracle(kind, X, y)
    figure, axes = new_figure(3, width=3.2, height=2.8)
    for j, ax in enumerate(axes):
        for row, method in enumerate(METHODS):
            runs = load(args, [name_of(kind, method, DRAWN, args.steps, 0)])
            if runs:
                low, high = np.array(runs[0]["intervals"])[:, j]
                ax.plot([low, high], [row, row], color=f"C{row}", lw=3)
                ax.plot(runs[0]["mean"][j], row, "o", color=f"C{row}")
        ax.plot(mean[j] + sd[j] * np.array([-1.645, 1.645]), [3, 3], color="0.4", lw=3)
        ax.plot(mean[j], 3, "o", color="0.4")
        ax.axvline(coef[j], color="k", ls=":", lw=1)
        ax.set(title=f"coefficient {j + 1}", yticks=range(4), ylim=(-0.5, 3.5))
        ax.set_yticklabels([*METHODS, "oracle ridge"] if j == 0 else [])
    number, knows = (1, " and the noise") if kind == "linear" else (2, "")
    caption = (
        f"D{number}, v_0 = {DRAWN[0]:g}, sigma = {DRAWN[1]:g}, seed 0: posterior means and 90% "
        f"intervals; the oracle knows the three features{knows}; dotted: the truth."
    )
    return save_figure(args, figure, "d1_d2_wide" if number == 1 else "d2_wide", caption)


def sample(args, kind, name, column, steps, seed):
    stem, settings = name_of(kind, name, column, steps, seed)
    method = (LINEAR if kind == "linear" else LOGISTIC)["methods"][name]
    finished(args, stem, partial(run, kind, method, column, steps, seed), **settings)


def main():
    args = parse_args(
        __doc__, 10, 1, numbers={
            "steps": (STEPS, 1000), "main-seeds": (MAIN_SEEDS, 1), "long-seeds": (LONG_SEEDS, 1),
        },
        parts=("linear", "logistic"), runs="d1_d2_wide",
        constants={"p": P, "batch": BATCH, "n_draws": DRAWS, "n_test": N_TEST},
    )  # fmt: skip
    for kind in args.parts:
        setting = LINEAR if kind == "linear" else LOGISTIC
        for seed in range(max(args.main_seeds, len(args.seeds))):
            if seed in args.seeds:
                for other, job in (("others", run_others), ("defaults", run_default)):
                    stem, settings = name_of_other(kind, other, seed)
                    finished(args, stem, partial(job, kind, seed, args.short), **settings)
            for column in setting["columns"]:
                for name in setting["methods"]:
                    main_one = (kind, column, name) == ("linear", MAIN, "SGLD-SA")
                    if seed in args.seeds or (main_one and seed < args.main_seeds):
                        sample(args, kind, name, column, args.steps, seed)
                    if kind == "linear" and name in LONG_METHODS and seed < args.long_seeds:
                        sample(args, kind, name, column, LONG * args.steps, seed)
        for name in METHODS:  # on the linear data it is a column of the table, too
            sample(args, kind, name, DRAWN, args.steps, 0)
    texts = {"linear": linear_text, "logistic": logistic_text}
    parts = [texts[kind](args) for kind in args.parts]
    remarks = "" if args.quick else REMARKS
    given = {"p": P, "batch": BATCH, "steps": args.steps, "draws": DRAWS, "remarks": remarks}
    body = BODY.format(parts="\n".join(parts), **given)
    title = "D1, D2: spike-and-slab regression with more features than rows"
    figures = [draw_figure(args, kind) for kind in args.parts]
    write_results(args, "d1_d2_wide", title, body, figures)


if __name__ == "__main__":
    main()
