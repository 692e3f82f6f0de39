"""Simulation-based calibration of Bayesian logistic regression, with interval coverage.

python examples/benchmarks/sbc.py
"""

import numpy as np
from _common import markdown_table, new_figure, parse_args, save_figure, write_results
from _logistic import fit
from scipy.special import softmax
from scipy.stats import norm

N_ROWS, N_FEATURES, N_BINS = 120, 4, 20
#: one draw is left out, so that the truth has 200 equally probable ranks among 199 draws
DRAWS = {"n_chains": 4, "n_draws": 50, "thinning": 12}
N_RANKS = 200
N_RANDOM = 2000
SETTINGS = {
    "default": {},
    "minibatches of 50": {"batch_size": 50},
    # momentum remembers for longer: the kept draws must be nearly independent
    "SGHMC, BAOAB": {"sampler": "sghmc", "integrator": "baoab", "thinning": 60},
    "Laplace prior": {"prior": "laplace"},
    "3 classes": {"n_classes": 3},
    "control: T = 1.44": {"temperature": 1.44},
}
BODY = """
Coefficients from the prior (scale 1, no intercept since its prior is flat), {n_rows} rows of {d}
standard normal features, labels from the model, then a fit: {repetitions} replications for each row
of the table. If the inference is calibrated, the rank of the true coefficient among its 199 draws
is uniform, and a central 90% interval covers it in 90% of the replications. The minibatches have
the default's control variates. The control samples at a temperature of 1.44, so that its sds are
20% too large on purpose; the test must detect it.

Chi-square: of the ranks in {bins} bins, all coefficients together; p is that of its randomisation,
in which every replication's truth changes places with one of its draws ({n_random} times). That
keeps the dependence between the coefficients of one replication. Coverage: with its 99% interval
over replications.

{table}

{verdict}

Power of the chi-square test at the 1% level, by simulation of as many replications of four
independent coefficients: {power}.

Published: none; the targets are uniform ranks and a coverage of 90%.
"""


def replicate(seed, n_classes=2, **parameters):
    """Ranks (200, coefficients) of the truth (first) and of the draws among all of them."""
    rng = np.random.default_rng(seed)
    k = 1 if n_classes == 2 else n_classes
    draw = rng.laplace if parameters.get("prior") == "laplace" else rng.normal
    beta = draw(size=(k, N_FEATURES))
    while True:
        X = rng.standard_normal((N_ROWS, N_FEATURES))
        z = X @ beta.T
        p = softmax(np.hstack([0 * z, z]) if k == 1 else z, axis=1)
        y = (rng.random((N_ROWS, 1)) > p.cumsum(1)).sum(1).clip(max=n_classes - 1)
        # data with a class missing are left out: as that depends on the data alone, not on how the
        # truth lies in its posterior, the ranks stay uniform
        if len(np.unique(y)) == n_classes:
            break
    model, _ = fit(X, y, fit_intercept=False, random_state=seed, **DRAWS | parameters)
    draws = model.posterior_.pooled("coef")[: N_RANKS - 1].reshape(N_RANKS - 1, -1)
    return np.vstack([beta.ravel(), draws]).argsort(axis=0).argsort(axis=0)


def histogram(ranks):
    return np.bincount(ranks.ravel() * N_BINS // N_RANKS, minlength=N_BINS)


def chi_square(ranks):
    expected = ranks.size / N_BINS
    return np.sum((histogram(ranks) - expected) ** 2) / expected


def p_value(ranks):
    """Of the chi-square of ``ranks[:, 0]`` in (replications, 200, coefficients)."""
    rng, rows = np.random.default_rng(0), np.arange(len(ranks))
    random = [chi_square(ranks[rows, rng.integers(0, N_RANKS, len(rows))]) for _ in range(N_RANDOM)]
    return (1 + np.sum(random >= chi_square(ranks[:, 0]))) / (1 + N_RANDOM)


def coverage(ranks):
    """Fraction of truths within the central 90% of the ranks, and its 99% interval."""
    low, high = 0.05 * N_RANKS, 0.95 * N_RANKS
    inside = ((ranks >= low) & (ranks < high)).mean(axis=1)
    error = norm.ppf(0.995) * inside.std(ddof=1) / np.sqrt(len(inside))
    return inside.mean(), inside.mean() - error, inside.mean() + error


def power(n_ranks, ratio, shift=0.0, repeats=1000):
    """How often draws with an sd wrong by ``ratio`` or a mean by ``shift`` sd are found."""
    rng = np.random.default_rng(0)

    def statistics(ratio, shift):
        # the rank's probability of passing a draw is the truth's quantile among wrong draws
        u = norm.cdf((rng.standard_normal((repeats, n_ranks)) - shift) / ratio)
        return np.array([chi_square(row) for row in rng.binomial(N_RANKS - 1, u)])

    return np.mean(statistics(ratio, shift) > np.quantile(statistics(1.0, 0.0), 0.99))


def draw_panel(ax, name, counts):
    expected = np.sum(counts) / N_BINS
    band = 2 * np.sqrt(expected * (1 - 1 / N_BINS))
    ax.bar(np.arange(N_BINS), counts, width=1.0, color="tab:blue", alpha=0.7)
    ax.axhline(expected, color="black", linewidth=1)
    ax.axhspan(expected - band, expected + band, color="black", alpha=0.12, lw=0)
    ax.set(title=name, xlabel="rank (bins)", ylim=(0, None))


def powers(n_replications):
    wrongs = {
        "an sd 20% too large": {"ratio": 1.2},
        "an sd 20% too small": {"ratio": 0.8},
        "an sd 10% too large": {"ratio": 1.1},
        "an sd 10% too small": {"ratio": 0.9},
        "means off by 0.2 sd": {"ratio": 1.0, "shift": 0.2},
    }
    found = {text: power(n_replications * N_FEATURES, **wrong) for text, wrong in wrongs.items()}
    return ", ".join(f"{100 * value:.0f}% for {text}" for text, value in found.items())


def main():
    args = parse_args(__doc__, seeds=400, quick_seeds=20)
    rows, found = [], []
    figure, axes = new_figure(len(SETTINGS), width=2.4, height=2.4)
    for ax, (name, parameters) in zip(axes, SETTINGS.items(), strict=True):
        ranks = np.array([replicate(seed, **parameters) for seed in args.seeds])
        p, (covered, low, high) = p_value(ranks), coverage(ranks[:, 0])
        interval = f"{100 * covered:.1f}% ({100 * low:.1f} to {100 * high:.1f})"
        chi2 = f"{chi_square(ranks[:, 0]):.1f}"
        rows.append([name, ranks[:, 0].size, chi2, f"{p:.4f}", interval])
        print(rows[-1], flush=True)
        if p < 0.01 or not low <= 0.9 <= high:
            found.append(name)
        draw_panel(ax, name, histogram(ranks[:, 0]))
    control = [name for name in found if name.startswith("control")]
    others = [name for name in found if name not in control]
    verdict = (
        f"At the 1% level departures were found for: {', '.join(others) or 'none of them'}; the "
        f"control was {'found' if control else 'NOT found'}."
    )
    body = BODY.format(
        n_rows=N_ROWS,
        d=N_FEATURES,
        repetitions=len(args.seeds),
        bins=N_BINS,
        n_random=f"{N_RANDOM:,}",
        table=markdown_table(["fit", "ranks", "chi-square", "p", "coverage of 90%"], rows),
        verdict=verdict,
        power=powers(len(args.seeds)),
    )
    caption = "Histograms of ranks; the band is two standard deviations of a uniform count."
    files = [save_figure(args, figure, "sbc", caption)]
    spread = f"Seeds 0 to {args.seeds[-1]}, one a replication."
    write_results(args, "sbc", "Simulation-based calibration", body, files, spread=spread)


if __name__ == "__main__":
    main()
