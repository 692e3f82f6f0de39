"""The prior of the scale of a column of categories: intervals of differences, and predictions.

    python examples/benchmarks/category_scales.py

Posteriors of tables with one such column are exact, by quadrature; the estimator is run on some.
"""

import time
import warnings
from functools import cache, partial

import numpy as np
import pandas as pd
import torch
from _common import finished, markdown_table, parse_args, write_results
from scipy.special import expit, logsumexp

from skbayes_sgmcmc import BayesianLogisticRegression, SamplingWarning
from skbayes_sgmcmc.diagnostics import r_hat
from skbayes_sgmcmc.priors import LearnedScale

#: classes have log odds, real targets an sd of one: number of rows, and effects of the levels; or
#: their number, and the sd of effects that every table draws
CASES = {
    "log odds 0, 0.75, 1.5 (100 rows)": ("classes", 100, (0.0, 0.75, 1.5)),
    "log odds 0, 0.75, 1.5 (200 rows)": ("classes", 200, (0.0, 0.75, 1.5)),
    "log odds 0, 0.75, 1.5 (400 rows)": ("classes", 400, (0.0, 0.75, 1.5)),
    "log odds 0, 0, 1.5": ("classes", 200, (0.0, 0.0, 1.5)),
    "log odds 0, 1.5": ("classes", 200, (0.0, 1.5)),
    "log odds 0, 1.5, 3": ("classes", 200, (0.0, 1.5, 3.0)),
    "log odds 0, 0.25, 0.5": ("classes", 200, (0.0, 0.25, 0.5)),
    "10 log odds, sd 1": ("classes", 300, (10, 1.0)),
    "10 log odds, sd 0.3": ("classes", 300, (10, 0.3)),
    "10 log odds, all 0": ("classes", 300, (10, 0.0)),
    "3 means, 30% of the variance": ("real", 60, (3, 0.3**0.5)),
    "10 means, 30% of the variance": ("real", 200, (10, 0.3**0.5)),
    "10 means, 10% of the variance": ("real", 200, (10, 0.1**0.5)),
    "10 means, all 0": ("real", 200, (10, 0.0)),
}
#: s_0 of a column with K levels: at most 1, and c times this power of K; a fixed scale has no shape
PRIORS = {
    "0.3": {"shape": 2.0, "c": 0.3, "power": 0.0},
    "0.7": {"shape": 2.0, "c": 0.7, "power": 0.0},
    "1": {"shape": 2.0, "c": 1.0, "power": 0.0},
    "1.4/√K": {"shape": 2.0, "c": 1.4, "power": -0.5},
    "2/√K": {"shape": 2.0, "c": 2.0, "power": -0.5},
    "s = 1": {"shape": None, "c": 1.0, "power": 0.0},
}
#: the same for effects of groups (``groups=``), which may be many; at least so wide
GROUPS = {
    "0.3": {"shape": 1.0, "c": 0.3, "power": 0.0},
    "0.7": {"shape": 1.0, "c": 0.7, "power": 0.0},
    "2/√K, at least 0.3": {"shape": 1.0, "c": 2.0, "power": -0.5, "least": 0.3},
}
MANY = {"50 log odds, sd 0.5": ("classes", 1500, (50, 0.5))}
ALL_CASES = CASES | MANY
#: what the estimator is run with, and on
FORMER, DEFAULT, FITTED_CASE = "0.3", "2/√K", "log odds 0, 0.75, 1.5 (200 rows)"
N_DRAWS = 500
#: number of categories, of rows in each, and sd of their log odds
FULL = {
    "400 of 5 rows, sd 1": (400, 5, 1.0),
    "1,500 of 13 rows, sd 0.5": (1500, 13, 0.5),
    "1,500 of 13 rows, sd 0.15": (1500, 13, 0.15),
    "4,000 of 25 rows, sd 0.5": (4000, 25, 0.5),
}
BODY = """
**Tables** of one column of K levels, which are equally probable in every row; {n} tables a line.
The intercept is flat, effects are N(0, s²) with s² ~ IG(2, 2 s₀²), and columns of the table below
are named by s₀, which is at most 1; s = 1 is a given scale. In classification a level's log odds
are its effect and a constant that makes their mean 0; real targets have a variance of 1 and known
noise.

**Coverage and width** are of the 90% interval of the difference between the last level and the
first; **loss** is the mean Kullback-Leibler divergence of a new row's distribution from the truth,
in 10⁻³ nats (for real targets: of normal distributions around the posterior means). Posteriors are
exact, by quadrature over the intercept, s and every effect. A coverage of 90% has a standard error
of {se:.1%}. Cells: coverage, width, loss.

{table}

**The estimator**: `BayesianLogisticRegression` with `LearnedScale(scale=0.3)` and with "learned",
on the first {n_fits} tables of {rows} rows with log odds of 0, 0.75 and 1.5. A coverage of 90% has
a standard error of {fit_se:.1%}.

{fits}

**Groups.** The scale of the effects of `groups=` has the shape 1, a wider prior, and 0.3 was its
s₀. Cells as above; 2/√K, at least 0.3, is the default. Below 0.3 the effects of many groups would
be linked more closely, which makes steps slower.

{groups}

**Many categories**, each with few rows: the posterior of s by the estimator with "learned" (mean ±
sd), and by quadrature.

{full}

Rows that say little of each category leave the scale to all of them together. Chains begin at its
likely value, which is found before all else; before this was so, they began near 0 and stayed there
for the whole run (400 of 5 rows: R-hat 1.8). With more than 2,000 categories the preconditioner is
diagonal. With an sd of 0.15, s and the effects shrink together towards 0, where chains are slow,
and a warning says so.

**Choice.** 0.3 was the default. It shrinks log odds of 1.5 between three levels too far, because so
few levels say little of their scale, and the more so the fewer rows there are. A wide scale mends
this, but keeps effects of many levels away from zero where they say nothing. 2/√K, the default, is
what `LearnedScale` has for K features of one group, and serves both. Lines in which the coverage of
the default is more than two standard errors below 90%: {low}.
"""


def table_of(case, rep):
    """Levels and targets of a table, the effects, and the sd of the noise."""
    kind, n_rows, effects = ALL_CASES[case]
    rng = np.random.default_rng([list(ALL_CASES).index(case), rep])
    if isinstance(effects[0], int):
        size, sd = effects
        effects = rng.standard_normal(size)
        if kind == "real":  # exactly this share of the variance
            effects = (effects - effects.mean()) / effects.std()
        effects = sd * effects
    else:
        sd, effects = 0.0, np.array(effects) - np.mean(effects)
    levels, noise = rng.integers(0, len(effects), n_rows), (1.0 - sd**2) ** 0.5
    if kind == "classes":
        y = (rng.random(n_rows) < expit(effects[levels])).astype(int)
    else:
        y = effects[levels] + noise * rng.standard_normal(n_rows)
    return levels, y, effects, noise


@cache
def grids(size):
    """Grids of log s and of multiples z of it, and the intercept c and f = c + s z at their points.

    c is spread as the mean of so many effects, and half a unit; the data's own is near zero.
    """
    log_s, z = np.linspace(np.log(0.05), np.log(4.0), 30), np.linspace(-5.0, 5.0, 121)
    spread = np.sqrt(0.25 + np.exp(2.0 * log_s) / size)
    c = np.linspace(-5.0, 5.0, 41)[:, None] * spread
    f = c[..., None] + np.exp(log_s)[:, None] * z
    return log_s, z, c, f, np.logaddexp(0.0, f)


def posterior(kind, levels, y, size, noise, prior, rng):
    """Draws (N_DRAWS, size) of what the levels predict: by quadrature over c, s and each level.

    Given c and s, the levels are independent.
    """
    scale = max(min(prior["c"] * size ** prior["power"], 1.0), prior.get("least", 0.0))
    n, total = (np.bincount(levels, w, minlength=size)[:, None, None, None] for w in (None, y))
    log_s, z, c, f, log_odds = grids(size)
    if kind == "classes":
        each = total * f - n * log_odds
    else:
        each = (total * f - 0.5 * n * f**2) / noise**2
    each = each - 0.5 * z**2
    log_p = logsumexp(each, axis=3).sum(0)  # of c and log s
    log_p += 0.5 * np.log(0.25 + np.exp(2.0 * log_s) / size)
    if prior["shape"] is None:
        log_p[:, np.arange(len(log_s)) != np.abs(log_s - np.log(scale)).argmin()] = -np.inf
    else:
        log_p -= prior["shape"] * (2.0 * log_s + scale**2 * np.exp(-2.0 * log_s))
    p = np.exp(log_p - log_p.max()).ravel()
    chosen = np.unravel_index(rng.choice(p.size, N_DRAWS, p=p / p.sum()), log_p.shape)
    of_z = each[:, *chosen]  # (levels, draws, z); with Gumbel noise, the largest is a draw of z
    drawn = z[(of_z + rng.gumbel(size=of_z.shape)).argmax(2)]
    drawn += rng.uniform(-0.5, 0.5, drawn.shape) * (z[1] - z[0])
    return (c[chosen] + np.exp(log_s)[chosen[1]] * drawn).T


def scores(case, prior, rep):
    """Whether the interval of a table holds the difference, its width, and the loss."""
    kind, (levels, y, effects, noise) = ALL_CASES[case][0], table_of(case, rep)
    draws = posterior(kind, levels, y, len(effects), noise, prior, np.random.default_rng(rep))
    low, high = np.quantile(draws[:, -1] - draws[:, 0], [0.05, 0.95])
    held = low <= effects[-1] - effects[0] <= high
    if kind == "real":
        return held, high - low, np.mean((draws.mean(0) - effects) ** 2) / (2.0 * noise**2)
    p, q = expit(effects), expit(draws).mean(0)
    loss = p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q))
    return held, high - low, loss.mean()


def exact(case, prior, n_tables):
    found = np.array([scores(case, prior, rep) for rep in range(n_tables)], dtype=float)
    return dict(zip(("coverage", "width", "loss"), found.mean(0).tolist(), strict=True))


def fitted(prior, n_tables):
    """Coverage, width and bias of the median by the estimator."""
    found = []
    for rep in range(n_tables):
        levels, y, effects, _ = table_of(FITTED_CASE, rep)
        X = pd.DataFrame({"level": np.array(list("abc"))[levels]})
        scale = "learned" if prior == DEFAULT else LearnedScale(scale=PRIORS[prior]["c"])
        model = BayesianLogisticRegression(prior_scale=scale, random_state=rep).fit(X, y)
        draws = model.posterior_.pooled("coef")[:, 0]
        low, middle, high = np.quantile(draws[:, 2] - draws[:, 0], [0.05, 0.5, 0.95])
        truth = effects[-1] - effects[0]
        found.append([low <= truth <= high, high - low, middle - truth])
    found = np.mean(np.array(found, dtype=float), axis=0).tolist()
    return dict(zip(("coverage", "width", "bias"), found, strict=True))


def of_scale(n_categories, n_each, sd):
    """The posterior of s: by the estimator, and by quadrature."""
    rng = np.random.default_rng(0)
    ones = rng.binomial(n_each, expit(sd * rng.standard_normal(n_categories)))
    y = (np.arange(n_each) < ones[:, None]).ravel()
    X = pd.DataFrame({"level": pd.Categorical(np.repeat(np.arange(n_categories), n_each))})
    start = time.process_time()
    clf = BayesianLogisticRegression(prior_scale="learned", random_state=0).fit(X, y)
    found = {"seconds": time.process_time() - start}
    found["r_hat"] = float(r_hat(clf.posterior_, "scale").max())
    draws = clf.posterior_["scale"]
    found |= {"mean": float(draws.mean()), "sd": float(draws.std())}

    log_s, c = np.linspace(np.log(0.01), np.log(3.0), 200), np.linspace(-0.5, 0.5, 61)
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    f = c[:, None, None] + np.exp(log_s)[:, None] * nodes
    log_p = -4.0 * (log_s + 2.0 / n_categories * np.exp(-2.0 * log_s))
    for k, count in enumerate(np.bincount(ones, minlength=n_each + 1)):
        each = np.exp(k * f - n_each * np.logaddexp(0.0, f)) @ weights
        log_p = log_p + count * np.log(each)
    p = np.exp(log_p - log_p.max()).sum(0)
    p /= p.sum()
    mean = p @ np.exp(log_s)
    exact_sd = np.sqrt(p @ (np.exp(log_s) - mean) ** 2)
    return found | {"exact_mean": float(mean), "exact_sd": float(exact_sd)}


def cell_of(one):
    """Coverage, width and loss of a case; empty if it was not run."""
    if one is None:
        return ""
    return f"{one['coverage']:.1%} {one['width']:.2f} {1e3 * one['loss']:.1f}"


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", SamplingWarning)
    constants = {"cases": CASES, "priors": PRIORS, "n_draws": N_DRAWS}
    numbers = {"tables": (100, 3), "fits": (60, 1)}
    args = parse_args(__doc__, 1, 1, numbers=numbers, runs="category_scales", constants=constants)
    lines, low, se = [], [], (0.09 / args.tables) ** 0.5
    for case in CASES:
        cells = [case]
        for prior in PRIORS:
            run = partial(exact, case, PRIORS[prior], args.tables)
            one = finished(args, f"{case}, {prior}", run, n_tables=args.tables)
            cells.append(cell_of(one))
            if one is None:
                continue
            if prior == DEFAULT and one["coverage"] < 0.9 - 2.0 * se:
                low.append(f"{case}, {one['coverage']:.1%}")
        lines.append(cells)
    fits, groups = [], []
    for case in ALL_CASES:
        cells = [case]
        for prior, parts in GROUPS.items():
            run = partial(exact, case, parts, args.tables)
            one = finished(args, f"groups: {case}, {prior}", run, n_tables=args.tables)
            cells.append(cell_of(one))
        groups.append(cells)
    for prior in (FORMER, DEFAULT):
        one = finished(args, f"fits, {prior}", partial(fitted, prior, args.fits), n_fits=args.fits)
        if one is not None:
            cells = f"{one['coverage']:.0%}", f"{one['width']:.2f}", f"{one['bias']:+.2f}"
            fits.append([prior, *cells])
    full = []
    for case, parts in FULL.items():
        one = finished(args, f"scale, {case}", partial(of_scale, *parts))
        if one is not None:
            ours = f"{one['mean']:.3f} ± {one['sd']:.3f}"
            exactly = f"{one['exact_mean']:.3f} ± {one['exact_sd']:.3f}"
            full.append([case, ours, exactly, f"{one['r_hat']:.2f}", f"{one['seconds']:.1f}"])
    body = BODY.format(
        n=args.tables, se=se, n_fits=args.fits, rows=CASES[FITTED_CASE][1],
        fit_se=(0.09 / args.fits) ** 0.5, low="; ".join(low) or "none",
        table=markdown_table(["case", *PRIORS], lines),
        groups=markdown_table(["case", *GROUPS], groups),
        fits=markdown_table(["s₀", "coverage", "width", "bias of the median"], fits),
        full=markdown_table(["categories", "s", "exact", "R-hat", "core-seconds"], full),
    )  # fmt: skip
    title = "The prior of the scale of a column of categories"
    write_results(args, "category_scales", title, body)


if __name__ == "__main__":
    main()
