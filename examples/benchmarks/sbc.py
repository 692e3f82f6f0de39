"""Simulation-based calibration of Bayesian logistic regression, with interval coverage.

python examples/benchmarks/sbc.py
"""

import numpy as np
from _common import markdown_table, new_figure, parse_args, save_figure, write_results
from _logistic import fit
from scipy.special import softmax
from scipy.stats import binomtest, chisquare

N_ROWS, N_FEATURES, N_BINS = 120, 4, 20
#: 4 chains of 50 draws, so far apart that they are nearly independent: ranks 0 to 200
DRAWS = {"n_chains": 4, "n_draws": 50, "thinning": 12}
#: of the interval between the 5% and 95% quantiles of 200 exact draws
NOMINAL = 0.9 * 199 / 201
SETTINGS = {
    "default": {},
    "minibatches of 50": {"batch_size": 50},
    "SGHMC, BAOAB": {"sampler": "sghmc", "integrator": "baoab"},
    "Laplace prior": {"prior": "laplace"},
    "3 classes": {"n_classes": 3},
}
BODY = """
Coefficients from the prior (scale 1, no intercept since its prior is flat), {n_rows} rows of {d}
standard normal features, labels from the model, then a fit: {repetitions} replications for each
row of the table. If the inference is calibrated, the rank of the true coefficient among its 200
draws is uniform. p: of the chi-square test of uniformity over {bins} bins, all coefficients
together. Coverage: of central intervals between the 5% and 95% quantiles of the 200 draws, with the
95% binomial interval over all coefficients; between such sample quantiles lie
0.9 (200 - 1)/(200 + 1) = {nominal:.1f}% of exact draws, the figure to compare with.

{table}

{verdict}

Power of the chi-square test at the 5% level, by simulation of ranks with as many replications of
the default's four coefficients: {power}.

Published: none; the targets are uniform ranks and nominal coverage.
"""


def replicate(seed, n_classes=2, **parameters):
    """Ranks and coverage of every coefficient in one replication."""
    rng = np.random.default_rng(seed)
    k = 1 if n_classes == 2 else n_classes
    draw = rng.laplace if parameters.get("prior") == "laplace" else rng.normal
    beta = draw(size=(k, N_FEATURES))
    while True:
        X = rng.standard_normal((N_ROWS, N_FEATURES))
        z = X @ beta.T
        p = softmax(np.hstack([0 * z, z]) if k == 1 else z, axis=1)
        y = (rng.random((N_ROWS, 1)) > p.cumsum(1)).sum(1).clip(max=n_classes - 1)
        if len(np.unique(y)) == n_classes:
            break
    model, _ = fit(X, y, fit_intercept=False, random_state=seed, **DRAWS, **parameters)
    pooled = model.posterior_.pooled("coef")
    lower, upper = np.quantile(pooled, [0.05, 0.95], axis=0)
    inside = (beta > lower) & (beta < upper)
    return (pooled < beta).sum(0).ravel(), inside.ravel()


def bins(ranks):
    """Counts of ranks 0..200 in bins, and the counts expected under uniformity."""
    n_draws = DRAWS["n_chains"] * DRAWS["n_draws"]
    edges = np.linspace(0, n_draws + 1, N_BINS + 1)
    counts = np.histogram(ranks, edges)[0]
    expected = np.histogram(np.arange(n_draws + 1), edges)[0] / (n_draws + 1) * len(ranks)
    return counts, expected


def power(n_ranks, ratio, shift=0.0, repeats=400):
    """How often the test finds draws with an sd wrong by ``ratio`` or a mean by ``shift`` sd."""
    rng = np.random.default_rng(0)
    n_draws, found = DRAWS["n_chains"] * DRAWS["n_draws"], 0
    for _ in range(repeats):
        truth = rng.standard_normal((n_ranks, 1))
        draws = shift + ratio * rng.standard_normal((n_ranks, n_draws))
        counts, expected = bins((draws < truth).sum(1))
        found += chisquare(counts, expected).pvalue < 0.05
    return found / repeats


def main():
    args = parse_args(__doc__, seeds=200, quick_seeds=8)
    rows, worst, failures = [], 1.0, []
    figure, axes = new_figure(len(SETTINGS), width=2.6, height=2.4)
    for ax, (name, parameters) in zip(axes, SETTINGS.items(), strict=True):
        results = [replicate(seed, **parameters) for seed in args.seeds]
        ranks = np.concatenate([r for r, _ in results])
        inside = np.concatenate([i for _, i in results])
        counts, expected = bins(ranks)
        p = chisquare(counts, expected).pvalue
        test = binomtest(int(inside.sum()), len(inside))
        low, high = test.proportion_ci(0.95)
        covered = f"{100 * inside.mean():.1f}% ({100 * low:.1f} to {100 * high:.1f})"
        rows.append([name, len(ranks), f"{p:.3f}", covered])
        print(rows[-1], flush=True)
        worst = min(worst, p)
        if p < 0.05 / len(SETTINGS) or not low <= NOMINAL <= high:
            failures.append(name)
        ax.bar(np.arange(N_BINS), counts, width=1.0, color="tab:blue", alpha=0.7)
        ax.axhline(expected.mean(), color="black", linewidth=1)
        band = 2 * np.sqrt(expected.mean())
        ax.axhspan(expected.mean() - band, expected.mean() + band, color="black", alpha=0.12)
        ax.set(title=name, xlabel="rank (bins)", ylim=(0, None))
    n_ranks = len(args.seeds) * N_FEATURES
    strength = ", ".join(
        f"{100 * power(n_ranks, **wrong):.0f}% for {text}"
        for text, wrong in (
            ("an sd 20% too small", {"ratio": 0.8}),
            ("an sd 20% too large", {"ratio": 1.2}),
            ("an sd 10% too small", {"ratio": 0.9}),
            ("means off by 0.2 sd", {"ratio": 1.0, "shift": 0.2}),
            ("exact draws (the level)", {"ratio": 1.0}),
        )
    )
    verdict = (
        "No departure was found (5% level, Bonferroni over the rows; the nominal coverage is in every "
        "interval)."
        if not failures
        else f"A departure was found for: {', '.join(failures)}."
    )
    body = BODY.format(
        n_rows=N_ROWS,
        d=N_FEATURES,
        repetitions=len(args.seeds),
        bins=N_BINS,
        nominal=100 * NOMINAL,
        table=markdown_table(["fit", "ranks", "p", "coverage of 90% intervals"], rows),
        verdict=verdict,
        power=strength,
    )
    caption = "Histograms of ranks; the band is two standard deviations of a uniform count."
    files = [save_figure(args, figure, "sbc", caption)]
    write_results(args, "sbc", "Simulation-based calibration", body, files, spread="")


if __name__ == "__main__":
    main()
