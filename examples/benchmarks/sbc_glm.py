"""Simulation-based calibration of generalised linear models, for each likelihood.

python examples/benchmarks/sbc_glm.py
"""

import warnings
from functools import partial

import numpy as np
from _common import (
    finished,
    markdown_table,
    new_figure,
    parse_args,
    save_figure,
    write_results,
)
from sbc import N_RANKS, chi_square, coverage, draw_panel, histogram, p_value
from scipy.special import expit, logit, ndtr

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianOrdinalClassifier, SamplingWarning

N_ROWS, N_FEATURES, N_TRIALS, N_GROUPS, N_CLASSES = 40, 3, 4, 8, 4
#: one draw is left out, so that the truth has 200 equally probable ranks among 199 draws. Twice the
#: default's thinning, so that these are nearly independent
DRAWS = {"n_chains": 4, "n_draws": 50, "thinning": 8}
#: with learned scales, chains forget a little more slowly
LEARNED = {"prior_scale": "learned", "thinning": 16}
SETTINGS = {
    "normal": {"thinning": 2},
    "student_t": {},
    "poisson": {},
    "negative_binomial": {},
    "zero_inflated_poisson": {},
    "zero_inflated_negative_binomial": {"thinning": 16},
    "gamma": {},
    "tweedie": {"thinning": 16},
    "log_normal": {},
    "weibull": {},
    "binomial": {"n_trials": N_FEATURES},
    "ordinal": {"thinning": 24},
    "normal, learned scale": LEARNED,
    "normal, groups": {"groups": N_FEATURES, "thinning": 16},
    "control: T = 1.44": {"temperature": 1.44},
}
BODY = """
Parameters from the prior (coefficients with scale 1, or with the scale from its hyperprior; no
intercept, since its prior is flat), {n_rows} rows of {d} normal features with an sd of 0.5, targets
from the model, then a fit: {repetitions} replications for each row of the table. All else is the
default. Of the times of log-normal and Weibull targets, those beyond 2 are only known to be, and a
fifth of the others are rounded to bounds. Binomial targets have {n_trials} trials; groups are
{n_groups}. Ordered classes are {n_classes}, with the first cut point at zero; data in which a class
is missing are drawn again with their parameters, which leaves the ranks uniform. Real targets are
in the model's units, because an sd of the targets that is known before they are drawn would not be
that of the data. The control samples a normal model at a temperature of 1.44, so that its sds are
20% too large on purpose; the test must detect it.

The ranks are of coefficients, effects of groups, their sd, learned scales, cut points and the
likelihood's own parameters. Chi-square, p and coverage as in [the calibration of logistic
regression](sbc.md).

{table}

{verdict}
"""


class UnitTargets(BayesianGLMRegressor):
    """The same with real targets as they are: the prior does not depend on their sd."""

    def _fit_targets(self, y, weight):
        super()._fit_targets(y, weight)
        self._y_scale = np.ones(1)


class FirstCutAtZero(BayesianOrdinalClassifier):
    """The same without the first cut point, whose prior is flat."""

    fit_intercept = False


def ordered_classes(rng):
    """Rows, classes and true values; the classes are all there."""
    y = np.zeros(1)
    while len(np.unique(y)) < N_CLASSES:
        X = 0.5 * rng.standard_normal((N_ROWS, N_FEATURES))
        beta = rng.standard_normal(N_FEATURES)
        medians = np.diff(logit(np.arange(1, N_CLASSES) / N_CLASSES))
        cuts = np.cumsum(medians * np.exp(2.0 * rng.standard_normal(N_CLASSES - 2)))
        y = np.digitize(X @ beta + rng.logistic(size=N_ROWS), np.r_[0.0, cuts])
    return X, y, {"coef": beta, "cutpoints": cuts}


def amounts(mean, dispersion, power, rng):
    """Tweedie targets: sums of amounts with gamma distributions."""
    rate = mean ** (2.0 - power) / (dispersion * (2.0 - power))
    shape = (2.0 - power) / (power - 1.0)
    return rng.gamma(shape * rng.poisson(rate)) * mean / (rate * shape)


def positive(kind, mean, g, h, rng):
    """Counts or amounts with these means, and the true values of their likelihood's parameters."""
    if kind == "poisson":
        return rng.poisson(mean), {}
    own, dispersion = {"log_dispersion": g}, 0.3 * np.exp(g)
    if kind == "tweedie":
        return amounts(mean, np.exp(g), 1.01 + 0.98 * ndtr(h), rng), own | {"power_probit": h}
    rate = dispersion * rng.gamma(1.0 / dispersion, size=len(mean)) * mean
    return (rate if kind == "gamma" else rng.poisson(rate)), own


def bounds_of(time):
    """Of times: every fifth is rounded to an interval, and those beyond 2 are censored."""
    low, high = time.copy(), time.copy()
    low[::5], high[::5] = np.floor(2.0 * time[::5]) / 2.0, np.ceil(2.0 * time[::5]) / 2.0
    late = time > 2.0
    return np.column_stack([np.where(late, 2.0, low), np.where(late, np.inf, high)])


def simulate(name, rng, parameters):
    """Rows, targets, and the true values of all blocks of draws."""
    if name == "ordinal":
        return ordered_classes(rng)
    kind, truth = name.split(",")[0].split(":")[0], {}
    kind = "normal" if kind == "control" else kind
    X = 0.5 * rng.standard_normal((N_ROWS, N_FEATURES))
    beta = rng.standard_normal(N_FEATURES)
    if "learned" in name:  # s^2 ~ IG(5, 5 s_0^2) with s_0 = 1 for three features
        s = rng.gamma(5.0, 1.0 / 5.0) ** -0.5
        truth["scale"] = s
        beta = beta * s / X.std(0)
    truth["coef"], f = beta, X @ beta
    if "groups" in parameters:
        group, sd = np.arange(N_ROWS) % N_GROUPS, rng.gamma(1.0, 1.0 / 0.09) ** -0.5
        effects = sd * rng.standard_normal(N_GROUPS)
        truth |= {f"effect_x{N_FEATURES}": effects, f"sd_x{N_FEATURES}": sd}
        X, f = np.column_stack([X, group]), f + effects[group]
    g, h = rng.standard_normal(2)
    if kind in ("normal", "student_t"):
        truth["log_noise"], y = g, rng.standard_normal(N_ROWS)
        if kind == "student_t":
            truth["log_df"], y = h, rng.standard_t(2.0 + 8.0 * np.exp(h), N_ROWS)
        return X, f + 0.3 * np.exp(g) * y, truth
    if kind in ("log_normal", "weibull"):
        truth["log_sigma"], normal = g, kind == "log_normal"
        error = rng.standard_normal(N_ROWS) if normal else np.log(rng.exponential(size=N_ROWS))
        return X, bounds_of(np.exp(f + np.exp(g) * error)), truth
    if kind == "binomial":
        X = np.column_stack([X, np.full(N_ROWS, N_TRIALS)])
        return X, rng.binomial(N_TRIALS, expit(f)), truth
    y, own = positive(kind.removeprefix("zero_inflated_"), np.exp(f), g, h, rng)
    if kind.startswith("zero_inflated"):
        truth["zero_probit"], y = h, y * (rng.random(N_ROWS) > ndtr(h))
    return X, y, truth | own


def replicate(seed, name, parameters):
    """Ranks (200, parameters) of the truth (first) and of the draws among all of them."""
    rng = np.random.default_rng(seed)
    X, y, truth = simulate(name, rng, parameters)
    kind = name.split(",")[0] if "control" not in name else "normal"
    model = UnitTargets(likelihood=kind, fit_intercept=False)
    model = FirstCutAtZero() if name == "ordinal" else model
    model.set_params(random_state=seed, **DRAWS | {"prior_scale": 1.0} | parameters).fit(X, y)
    ranks = []
    for block, value in truth.items():
        draws = model.posterior_.pooled(block)[: N_RANKS - 1].reshape(N_RANKS - 1, -1)
        draws = draws[:, -np.size(value) :]  # without what is fixed, which comes first
        ranks.append(np.vstack([np.reshape(value, (1, -1)), draws]).argsort(0).argsort(0))
    return np.hstack(ranks)


def calibration(name, parameters, seeds):
    """What the page says of the ranks of all replications."""
    ranks = np.array([replicate(seed, name, parameters) for seed in seeds])
    covered, low, high = coverage(ranks[:, 0])
    return {
        "chi_square": float(chi_square(ranks[:, 0])),
        "p": float(p_value(ranks)),
        "covered": float(covered),
        "interval": [float(low), float(high)],
        "histogram": histogram(ranks[:, 0]).tolist(),
    }


def main():
    constants = {"settings": SETTINGS, "draws": DRAWS}
    args = parse_args(__doc__, seeds=200, quick_seeds=3, runs="sbc_glm", constants=constants)
    rows, found, outside = [], [], []
    warnings.simplefilter("ignore", SamplingWarning)  # of so few draws
    figure, axes = new_figure(len(SETTINGS), width=2.6, height=2.2, in_a_row=5)
    for ax, (name, parameters) in zip(axes, SETTINGS.items(), strict=True):
        run = partial(calibration, name, parameters, args.seeds)
        one = finished(args, name, run, n_replications=len(args.seeds))
        if one is None:
            continue
        low, high = one["interval"]
        interval = f"{100 * one['covered']:.1f}% ({100 * low:.1f} to {100 * high:.1f})"
        size = sum(one["histogram"])
        rows.append([name, size, f"{one['chi_square']:.1f}", f"{one['p']:.4f}", interval])
        if one["p"] < 0.01 or not low <= 0.9 <= high:
            found.append(name)
        if not 0.88 <= one["covered"] <= 0.92:
            outside.append(name)
        draw_panel(ax, name, np.array(one["histogram"]))
    control = [name for name in found if name.startswith("control")]
    others = ", ".join(name for name in found if name not in control)
    outside = ", ".join(name for name in outside if not name.startswith("control"))
    verdict = (
        f"At the 1% level departures were found for: {others or 'none of them'}; the control was "
        f"{'found' if control else 'NOT found'}. Coverage is outside of 88% to 92% for: "
        f"{outside or 'none of them'}."
    )
    body = BODY.format(
        n_rows=N_ROWS,
        d=N_FEATURES,
        n_trials=N_TRIALS,
        n_groups=N_GROUPS,
        n_classes=N_CLASSES,
        repetitions=len(args.seeds),
        table=markdown_table(["fit", "ranks", "chi-square", "p", "coverage of 90%"], rows),
        verdict=verdict,
    )
    caption = "Histograms of ranks; the band is two standard deviations of a uniform count."
    files = [save_figure(args, figure, "sbc_glm", caption)]
    spread = f"Seeds 0 to {args.seeds[-1]}, one a replication."
    title = "Simulation-based calibration of generalised linear models"
    write_results(args, "sbc_glm", title, body, files, spread=spread)


if __name__ == "__main__":
    main()
