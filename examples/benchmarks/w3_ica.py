"""Independent components: stochastic and corrected Langevin (Welling & Teh 2011, figures 4 to 6).

    python examples/benchmarks/w3_ica.py

Part "artificial": six channels, three sources of high kurtosis and three Gaussian ones (figures 4
and 5). Part "channels": ten super-Gaussian sources in place of the MEG recording (figure 6).
"""

import time
import warnings

import numpy as np
import scipy.stats
from _common import markdown_table, new_figure, parse_args, save_figure, write_results
from scipy.optimize import linear_sum_assignment

from skbayes_sgmcmc import BayesianICA, SamplingError, SamplingWarning
from skbayes_sgmcmc.diagnostics import amari_distance, r_hat
from skbayes_sgmcmc.schedules import Polynomial

BATCH, GAMMA, THRESHOLD = 100, 0.55, 0.1
#: the paper's steps are counted from 1; from there most chains leave the finite numbers
FIRST_STEP = 20
THINNING = 50
NAMES = ("stochastic Langevin", "corrected Langevin")


def schedule(eps, first_step=FIRST_STEP):
    """eps / N t^-.55, in eta = eps N / 2."""
    return Polynomial(a=eps / 2.0, b=first_step, gamma=GAMMA)


def mixed(sources, rng):
    """Standardised sources mixed by a random matrix; both."""
    sources = (sources - sources.mean(0)) / sources.std(0)
    mixing = rng.standard_normal((sources.shape[1],) * 2)
    return sources @ mixing.T, mixing


def artificial(rng, n=1000):
    """Three sources of high kurtosis (a power of Laplace numbers) and three Gaussian ones."""
    peaked = rng.laplace(size=(n, 3))
    peaked = np.sign(peaked) * np.abs(peaked) ** 1.5
    return mixed(np.c_[peaked, rng.standard_normal((n, 3))], rng)


def channels(rng, n):
    """Ten super-Gaussian sources, from a kurtosis of about 15 to nearly Gaussian."""
    shapes = np.linspace(0.6, 1.7, 10)
    sources = np.stack([scipy.stats.gennorm.rvs(b, size=n, random_state=rng) for b in shapes], 1)
    return (*mixed(sources, rng), scipy.stats.kurtosis(sources, fisher=False))


def fitted(X, **parameters):
    """The fitted estimator, and its seconds of processor time."""
    start = time.process_time()
    with warnings.catch_warnings():  # the Gaussian components do not mix, and are not meant to
        warnings.simplefilter("ignore", SamplingWarning)
        model = BayesianICA(whiten=False, density="logistic", random_state=0, **parameters)
        ica = model.fit(X)
    return ica, time.process_time() - start


def both(X, seeds, *, eps, n_steps, corrected_eta, corrected_steps, **parameters):
    """Stochastic Langevin, and corrected Langevin from where it ends."""
    sgld, seconds = fitted(
        X,
        n_chains=len(seeds),
        step_size=schedule(eps),
        batch_size=BATCH,
        burn_in=0,
        thinning=THINNING,
        n_draws=n_steps // THINNING,
        **parameters,
    )
    mala, corrected_seconds = fitted(
        X,
        n_chains=sgld.n_chains_,
        sampler="mala",
        step_size=corrected_eta,
        init=sgld.posterior_["components"][:, -1],
        burn_in=0,
        thinning=10,
        n_draws=corrected_steps // 10,
    )
    return (sgld, mala), (seconds, corrected_seconds)


def matched(components, mixing):
    """For each source the row that finds it: by the shares of the posterior mean's sources."""
    shares = np.abs(components @ mixing)
    rows, columns = linear_sum_assignment(
        shares / np.linalg.norm(shares, axis=1, keepdims=True), maximize=True
    )
    return rows[np.argsort(columns)]


def late(ica, threshold_step):
    """Draws (chains, draws, d, d) and their weights, from where alpha_t < .1 on."""
    first = 0 if threshold_step is None else threshold_step // THINNING
    weights = ica.posterior_.weights
    draws = ica.posterior_["components"][:, first:]
    return draws, np.ones(draws.shape[1]) if weights is None else weights[first:]


def instability(draws, weights, X):
    """I_i = sum_j var(W_ij) var(x_j) of each chain."""
    mean = np.average(draws, axis=1, weights=weights)
    variance = np.average((draws - mean[:, None]) ** 2, axis=1, weights=weights)
    return variance @ X.var(0)


# part "artificial"


def figures_4_and_5(args):
    rng = np.random.default_rng(1)
    X, mixing = artificial(rng)
    fits, seconds = both(
        X, args.seeds, eps=4.0, n_steps=args.steps, corrected_eta=0.05,
        corrected_steps=args.corrected_steps, init="random",
    )  # fmt: skip
    sgld, mala = fits
    survivors = n_survivors(X, args.seeds)
    trace = sgld.sampling_threshold_
    # alpha_t is proportional to eta_t
    crossing = trace["noise_ratio"][-1] * (args.steps + FIRST_STEP) ** GAMMA / THRESHOLD
    crossing = min(int(crossing ** (1.0 / GAMMA)), args.steps // 2)
    parts = [late(sgld, crossing), late(mala, None)]
    figures = [
        draw_figure_4(args, X, mixing, fits, parts),
        draw_figure_5(args, matched(mala.components_, mixing), parts),
    ]
    rows = []
    for name, ica, (draws, weights), used in zip(NAMES, fits, parts, seconds, strict=True):
        order = matched(ica.components_, mixing)
        distance = np.average(
            amari_distance(draws, mixing, normalize=False).mean(0), weights=weights
        )
        peaked = amari_distance(draws[:, :, order[:3]], mixing[:, :3], normalize=False)
        index = instability(draws, weights, X)[:, order]
        mean = np.average(draws, axis=1, weights=weights).mean(0)[order[:3]]
        rows.append([
            name, f"{distance:.2f}", f"{np.average(peaked.mean(0), weights=weights):.3f}",
            f"{amari_distance(mean, mixing[:, :3], normalize=False):.3f}",
            ", ".join(f"{v:.3f}" for v in np.median(index[:, :3], axis=0)),
            ", ".join(f"{v:.2f}" for v in np.sort(np.median(index[:, 3:], axis=0))),
            f"{used:.0f}",
        ])  # fmt: skip
    header = ["", "Amari distance of a draw", "of its peaked sources", "of their mean",
              "instability, peaked", "Gaussian", "seconds"]  # fmt: skip
    body = ARTIFICIAL.format(
        first=FIRST_STEP,
        lost=sgld.n_chains_ - survivors,
        n_chains=sgld.n_chains_,
        steps=args.steps,
        corrected_steps=args.corrected_steps,
        crossing=crossing,
        acceptance=mala.posterior_.statistics["acceptance_rate"].mean(),
        table=markdown_table(header, rows),
        agreement=agreement(parts, matched(mala.components_, mixing)),
    )
    return body, figures


def n_survivors(X, seeds):
    """Chains that are still finite after 200 steps that are counted from 1."""
    options = {"n_chains": len(seeds), "batch_size": BATCH, "init": "random", "burn_in": 0}
    try:
        ica, _ = fitted(X, step_size=schedule(4.0, 1.0), n_draws=100, thinning=2, **options)
    except SamplingError:
        return 0
    return ica.n_chains_


def agreement(parts, order):
    """Of the stable rows: largest difference of means in sds, and the range of ratios of sds."""
    moments = []
    for draws, weights in parts:
        stable = draws[:, :, order[:3]]
        mean = np.average(stable, axis=1, weights=weights)
        square = np.average(stable**2, axis=1, weights=weights).mean(0)
        moments.append((mean.mean(0), np.sqrt(square - mean.mean(0) ** 2)))
    (mean, sd), (corrected_mean, corrected_sd) = moments
    away, ratio = np.abs(mean - corrected_mean) / corrected_sd, sd / corrected_sd
    return (
        f"at most {away.max():.2f} sd, and ratios of sds are {ratio.min():.2f} to {ratio.max():.2f}"
    )


def draw_figure_4(args, X, mixing, fits, parts):
    figure, (first, second, histogram, bars) = new_figure(4, width=3.6)
    for ax, name, ica, thinning in zip((first, second), NAMES, fits, (THINNING, 10), strict=True):
        distance = amari_distance(ica.posterior_["components"][0], mixing, normalize=False)
        shown = np.arange(len(distance)) * thinning >= 500  # "first few hundred removed"
        step = (np.arange(len(distance))[shown] + 1) * thinning
        online = np.cumsum(distance[shown]) / np.arange(1, shown.sum() + 1)
        every = max(1, len(step) // 2000)
        step = step / 1000
        ax.plot(step[::every], distance[shown][::every], linewidth=0.3, color="C0")
        ax.plot(step, online, linewidth=2.0, color="C3", label="online average")
        ax.set(title=name, xlabel="thousands of steps", ylabel="Amari distance", ylim=(0, None))
        ax.legend(fontsize=8)
    for name, (draws, weights) in zip(NAMES, parts, strict=True):
        distance = amari_distance(draws, mixing, normalize=False)
        tiled = np.tile(weights, len(draws))
        histogram.hist(distance.ravel(), 60, weights=tiled, density=True, alpha=0.5, label=name)
    histogram.set(title="draws of all chains", xlabel="Amari distance", yticks=[])
    histogram.margins(y=0.35)
    histogram.legend(fontsize=8)
    draw_bars(bars, [np.sort(instability(*part, X)[0]) for part in parts])
    ticks = [0.1, 0.3, 1.0, 3.0, 10.0]
    bars.set(yscale="log", ylim=(0.1, 10.0))
    bars.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    bars.minorticks_off()
    return save_figure(
        args, figure, "w3_amari",
        "Amari distance of one chain's draws, its distribution once α_t < 0.1, and the sorted "
        "instability of that chain's components (the paper's figure 4).",
    )  # fmt: skip


def draw_bars(ax, values, labels=NAMES):
    width = 0.8 / len(values)
    for k, (heights, label) in enumerate(zip(values, labels, strict=True)):
        ax.bar(np.arange(1, len(heights) + 1) + (k - 0.5 * (len(values) - 1)) * width, heights,
               width, label=label)  # fmt: skip
    numbers = np.arange(1, len(values[0]) + 1)
    ax.set(xlabel="component, sorted", ylabel="instability", xticks=numbers)
    ax.legend(fontsize=8)


def draw_figure_5(args, order, parts):
    """Densities of W_11 - W_12 and W_11 - W_21, of a peaked row; then of a Gaussian row."""
    figure, axes = new_figure(4, width=3.4, height=3.2)
    pairs = [((order[0], 0), (order[0], 1)), ((order[3], 0), (order[4], 0))]
    titles = ("two entries of a peaked source", "an entry of two Gaussian ones")
    for p, ((first, second), title) in enumerate(zip(pairs, titles, strict=True)):
        both_draws = [(draws[:, :, *first], draws[:, :, *second]) for draws, _ in parts]
        ends = [np.quantile(np.concatenate([d[k].ravel() for d in both_draws]), [0.001, 0.999])
                for k in (0, 1)]  # fmt: skip
        for k, (name, (_, weights)) in enumerate(zip(NAMES, parts, strict=True)):
            x, y = both_draws[k]
            ax = axes[2 * p + k]
            ax.hist2d(x.ravel(), y.ravel(), 60, range=ends, weights=np.tile(weights, len(x)),
                      cmap="Blues", rasterized=True)  # fmt: skip
            ax.set_title(f"{name}:\n{title}", fontsize=9)
            ax.tick_params(labelsize=8)
    return save_figure(
        args, figure, "w3_marginals",
        "Marginals of two entries of W, all chains, draws aligned for order and signs (the paper's "
        "figure 5).",
    )  # fmt: skip


# part "channels"


def figure_6(args):
    rng = np.random.default_rng(2)
    X, mixing, kurtosis = channels(rng, args.rows)
    fits, seconds = both(
        X, args.seeds[:2], eps=0.1, n_steps=args.steps, corrected_eta=0.1,
        corrected_steps=args.corrected_steps // 10, init="auto",
    )  # fmt: skip
    default, default_seconds = fitted(X)
    fits, seconds = (*fits, default), (*seconds, default_seconds)
    labels = (*NAMES, "defaults")
    order = matched(default.components_, mixing)
    index = [ica.instability_[matched(ica.components_, mixing)] for ica in fits]
    figure, (ax,) = new_figure(1, width=6.0)
    draw_bars(ax, [np.sort(values) for values in index], labels)
    figures = [save_figure(
        args, figure, "w3_channels",
        "Sorted instability of ten components (the paper's figure 6, whose data are missing).",
    )]  # fmt: skip
    rows = [
        [label, *(f"{v:.4f}" for v in values), f"{ica.n_steps_:,}", f"{used:.0f}"]
        for label, values, ica, used in zip(labels, index, fits, seconds, strict=True)
    ]
    rows.insert(0, ["kurtosis", *(f"{k:.1f}" for k in kurtosis), "", ""])
    header = ["", *(f"{k + 1}" for k in range(len(order))), "steps", "seconds"]
    body = CHANNELS.format(
        rows=len(X),
        steps=args.steps,
        corrected_steps=args.corrected_steps // 10,
        table=markdown_table(header, rows),
        acceptance=fits[1].posterior_.statistics["acceptance_rate"].mean(),
        travelled=schedule(0.1).values(np.arange(args.steps), args.steps).sum(),
        alpha=fits[0].sampling_threshold_["noise_ratio"][-1],
        batch=default.batch_size_,
        r_hats=", ".join(f"{r_hat(i.posterior_, 'components').max():.2f}" for i in fits),
        distances=", ".join(
            f"{amari_distance(i.components_, mixing, normalize=False):.3f}" for i in fits
        ),
        rank=scipy.stats.spearmanr(kurtosis, index[2]).statistic,
    )
    return body, figures


def main():
    numbers = {
        "steps": (500_000, 10_000),
        "corrected-steps": (100_000, 2_000),
        "rows": (17_730, 2_000),
    }
    args = parse_args(
        __doc__, seeds=4, quick_seeds=2, numbers=numbers, parts=["artificial", "channels"]
    )
    bodies, figures = [], []
    for part, run in (("artificial", figures_4_and_5), ("channels", figure_6)):
        if part in args.parts:
            body, drawn = run(args)
            bodies.append(body.strip())
            figures += drawn
    spread = "All chains are of seed 0."
    title = "W3: independent component analysis"
    write_results(args, "w3_ica", title, "\n\n".join(bodies), figures, spread)


ARTIFICIAL = """
## Artificial data (figures 4 and 5)

Six channels of 1,000 rows: three sources of high kurtosis (Laplace numbers to the power 1.5) and
three Gaussian ones, mixed by a random matrix; N(0, 1) prior on the entries of W, which acts on the
rows as they are. Stochastic Langevin with the metric's divergence: batch 100,
ε = 4/N t^-.55 (η = εN/2), {steps:,} steps, {n_chains} chains from random rotations of the mode's
sources. Counted from t = 1, as printed, {lost} of {n_chains} chains leave the finite numbers in
their first steps; t starts at {first} here. Corrected Langevin: ε = 0.1/N,
{corrected_steps:,} steps (published: 500,000) from the last draw of each stochastic chain; it
accepts {acceptance:.1%}.

The sampling threshold α_t < 0.1 is met at step {crossing:,} (published: around 10,000; it depends
on the sources). Draws before this step are left out below. The others are weighted by their step
sizes, which is equivalent to collecting them by mixing distance. Amari distances are sums, as in
the paper; "peaked" are the three sources of high kurtosis, and columns with several numbers are
medians over the chains.

{table}

Between the samplers, means of the stable rows' entries differ by {agreement}. Published: the same
picture, without numbers. The three stable components are those of high kurtosis; directions among
the Gaussian ones cannot be determined, so their instability is large and differs between runs and
samplers.
"""

CHANNELS = """
## Ten channels in place of MEG (figure 6)

{rows:,} rows of ten sources of generalised normal distributions (the MEG recording is not
available), sorted by kurtosis (3: Gaussian; the paper reports 15.4 for the most stable component
and 3.4 for the least), mixed by a random matrix. Stochastic Langevin: batch 100, ε = 0.1/N t^-.55,
{steps:,} steps, two chains; corrected Langevin: {corrected_steps:,} steps (published: 100,000) of ε
= 0.2/N (published: 1/N), which accepts {acceptance:.1%}. "Defaults":
`BayesianICA(whiten=False, density="logistic")`, four chains with control variates on minibatches of
{batch} rows.

Instability by source:

{table}

α_t at the last step of stochastic Langevin is {alpha:.4f}; its steps add up to η = {travelled:.0f}
only. That is too little for some entries to mix, so its instabilities are too small. In the order
of the table, the largest R-hats are {r_hats}, and Amari distances of the posterior means
{distances}. Rank correlation of kurtosis and instability: {rank:.2f} (defaults). Published:
instabilities of both samplers very similar, the most stable component is the one of largest
kurtosis; 800 s for 500,000 stochastic steps, 9,000 s for 100,000 corrected ones.
"""


if __name__ == "__main__":
    main()
