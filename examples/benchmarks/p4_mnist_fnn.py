"""Experiment P4: a fully connected network on MNIST (Li et al. 2016a, table 2, fig. 4).

SKBAYES_DATA=folder python examples/benchmarks/p4_mnist_fnn.py

The table is written after every seed. ``--epochs 2 --subset 5000`` sees that it runs.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _common import (
    REPOSITORY,
    error_rate,
    expected_calibration_error,
    load_mnist,
    markdown_table,
    mean_sd,
    new_figure,
    nll,
    save_figure,
    write_results,
)

from skbayes_sgmcmc import BayesianMLPClassifier, SamplingWarning
from skbayes_sgmcmc.samplers import PSGLD, SGLD
from skbayes_sgmcmc.schedules import BlockDecay

BATCH, BURN_IN, THINNING, EPOCHS = 100, 300, 200, 100
AS_PUBLISHED = PSGLD(adapt="always", lag=False)
COLD = "T = 1/N"

# name: sampler, first step size, temperature ("T = 1/N" or a number), prior variance,
# published error in % by hidden units, whether it is an optimiser, and its line in the figure
METHODS = {
    "psgld": (
        "pSGLD, as published, T = 1/N, σ² = 1",
        (AS_PUBLISHED, 5e-4, COLD, 1.0, {400: 1.45, 800: 1.32, 1200: 1.24}, False),
        ("C0", "-"),
    ),
    "psgld100": (
        "pSGLD, as published, T = 1/N, σ² = 100",
        (AS_PUBLISHED, 5e-4, COLD, 100.0, {400: 1.40, 800: 1.26, 1200: 1.14}, False),
        ("C2", "-"),
    ),
    "sgld": (
        "SGLD, T = 1/N",
        (SGLD(), 0.5, COLD, 1.0, {400: 1.64, 800: 1.41, 1200: 1.40}, False),
        ("C1", "-"),
    ),
    "rmsprop": (
        "RMSprop (pSGLD, T = 0)",
        (AS_PUBLISHED, 5e-4, 0.0, 1.0, {400: 1.59, 800: 1.43, 1200: 1.39}, True),
        ("C4", "--"),
    ),
    "sgd": (
        "SGD (SGLD, T = 0)",
        (SGLD(), 0.5, 0.0, 1.0, {400: 1.72, 800: 1.47, 1200: 1.47}, True),
        ("C3", "--"),
    ),
    "psgld_t1": ("pSGLD, T = 1", (AS_PUBLISHED, 5e-4, 1.0, 1.0, {}, False), ("C0", ":")),
    "sgld_t1": ("SGLD, T = 1", (SGLD(), 0.5, 1.0, 1.0, {}, False), ("C1", ":")),
}
BODY = """
MNIST, a fully connected ReLU network 784-{hidden}-{hidden}-10, inputs divided by 255, He
initialisation, prior N(0, σ²) on all weights and biases (σ² = 1 if not said), minibatches of
{batch}, {epochs} epochs on {rows} rows, step size 5e-4 (pSGLD, RMSprop) or 0.5 (SGLD, SGD) halved
every {block} epochs, burn-in {burn_in} steps. Every {thinning}th iterate is kept ({n_draws} draws;
the paper keeps every 100th, which would take 1.1 GB), and probabilities are averaged over them,
weighted by step size. "As published" is `PSGLD(adapt="always", lag=False)`, and the temperature
T = 1/N is that of the authors' code, whose noise is smaller by the square root of N than the
paper's equations ask for; T = 1 is the posterior's temperature, with the same steps. RMSprop and
SGD are the same runs without noise: "averaged" is over the same iterates, "last" the last of them.

{table}

Error in % of the 10,000 test images (a binomial standard error is 0.12%), NLL in nats, expected
calibration error over 15 bins; "last draw" is the error of the last single network, beside that of
the average; minutes of one processor for the fit. The paper does not say whether the optimisers'
iterates were averaged; its figures are put beside the last iterates here.

{verdict}
"""
REMARKS = """
pSGLD comes first as in the paper, but with smaller margins, as SGLD, RMSprop and SGD are all better
here than published; SGLD does not come before SGD. The differences between the rows of T = 1/N and
T = 0 are within a binomial standard error, so one seed does not settle their order. At these
temperatures it is averaging, and not noise, that improves the probabilities (NLL, ECE). At T = 1
single draws are wrong on 3 to 4% of the images and their average on about 2%: averaging gains most
there, but the cold chains predict better.
""".strip()


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--subset", type=int, help="only so many training rows")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds (default 1)")
    parser.add_argument("--hidden", type=int, default=400, help="units of both hidden layers")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--quick", action="store_true", help="2 epochs of 5000 rows, 1 seed")
    parser.add_argument(
        "--out", type=Path, help="folder of the results (default docs/results; quick: a temporary)"
    )
    args = parser.parse_args()
    if args.quick:
        args.epochs, args.subset, args.seeds = 2, 5000, 1
    args.quick = args.epochs < EPOCHS or args.subset is not None
    args.seeds = list(range(args.seeds))
    if args.out is None:
        quick_folder = Path(tempfile.gettempdir()) / "skbayes-quick-results"
        args.out = quick_folder if args.quick else REPOSITORY / "docs" / "results"
    (args.out / "figures").mkdir(parents=True, exist_ok=True)
    return args


def lengths(args, n_rows):
    """Steps of an epoch, steps between draws and number of draws."""
    epoch = n_rows // BATCH
    thinning = THINNING if args.epochs >= 20 else max(1, epoch // 10)
    return epoch, thinning, (args.epochs * epoch - BURN_IN * (not args.quick)) // thinning


def run(args, method, data, seed):
    """Scores by kind of prediction, errors by draw, minutes of the fit."""
    X, y, X_test, y_test = data
    sampler, first, temperature, variance, _, _ = METHODS[method][1]
    epoch, thinning, n_draws = lengths(args, len(X))
    model = BayesianMLPClassifier(
        hidden_layer_sizes=(args.hidden, args.hidden),
        prior_scale=variance**0.5,
        standardize=False,
        sampler=sampler,
        step_size=BlockDecay(first, every=max(1, args.epochs // 5) * epoch, factor=0.5),
        batch_size=BATCH,
        n_chains=1,
        n_draws=n_draws,
        burn_in=0 if args.quick else BURN_IN,
        thinning=thinning,
        temperature=1.0 / len(X) if temperature == COLD else temperature,
        init="random",
        device="cpu",
        dtype="float32",
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of few effective draws of one chain
        start = time.process_time()
        model.fit(X, y)
        minutes = (time.process_time() - start) / 60
    weights = model.posterior_.weights
    share = (weights / np.cumsum(weights))[:, None, None]
    wrong, averaged, last, row = np.zeros((2, n_draws)), [], [], 0
    for p in model.iter_proba_samples(X_test):
        rows = slice(row, row + p.shape[1])
        row = rows.stop
        last.append(p[-1].astype(float))
        wrong[1] += (p.argmax(axis=2) != y_test[rows]).sum(axis=1)
        running = np.empty(p.shape)  # averages of the first 1, 2, ... draws
        running[0] = p[0]
        for k in range(1, n_draws):
            running[k] = running[k - 1] + share[k] * (p[k] - running[k - 1])
        wrong[0] += (running.argmax(axis=2) != y_test[rows]).sum(axis=1)
        averaged.append(running[-1])
    scores = {}
    for kind, parts in (("averaged", averaged), ("last", last)):
        p = np.concatenate(parts)
        error, loss = 100 * error_rate(y_test, p), nll(y_test, p)
        scores[kind] = error, loss, expected_calibration_error(y_test, p)
    return scores, 100 * wrong / len(y_test), minutes


def make_rows(args, results):
    """Rows of the table; ``results[method]`` are those of the seeds that have run."""
    rows = []
    for method in args.methods:
        name, (*_, published, optimiser), _ = METHODS[method]
        minutes = mean_sd([minutes for _, _, minutes in results[method]], 1)
        for kind in ("last", "averaged") if optimiser else ("averaged",):
            scores = np.array([scores[kind] for scores, _, _ in results[method]])
            cells = [mean_sd(scores[:, k], digits) for k, digits in enumerate((2, 4, 4))]
            figure = published.get(args.hidden) if kind == "last" or not optimiser else None
            label = f"{name}, {kind}" if optimiser else name
            cells.append("" if figure is None else f"{figure:.2f}")
            if kind == "averaged":
                cells.append(mean_sd([scores["last"][0] for scores, _, _ in results[method]], 2))
            rows.append([label, *cells, *[""] * (kind == "last"), minutes])
    return rows


def verdict(args, results):
    """Whether pSGLD has the published error and is ahead of SGLD and the last iterates."""

    def error(method, kind="averaged"):
        return np.mean([scores[kind][0] for scores, _, _ in results[method]])

    texts = []
    for method in ("psgld", "psgld100"):
        published = METHODS[method][1][4].get(args.hidden)
        if method in results and published is not None:
            got = error(method)
            words = "reproduced (to 0.12%)" if got <= published + 0.12 else "not reached"
            texts.append(f"{METHODS[method][0]}: {got:.2f}% for {published:.2f}%, {words}.")
    rivals = {"sgld": "averaged", "rmsprop": "last", "sgd": "last"}
    if "psgld" in results and all(rival in results for rival in rivals):
        got = error("psgld")
        by = ", ".join(
            f"{error(rival, kind) - got:+.2f} ({METHODS[rival][0].split(' (')[0]}, {kind})"
            for rival, kind in rivals.items()
        )
        texts.append(f"Errors beyond that of pSGLD as published with σ² = 1, in %: {by}.")
        losses = [
            np.mean([scores[kind][1] for scores, _, _ in results[method]])
            for method, kind in (
                ("psgld", "averaged"),
                ("rmsprop", "averaged"),
                ("rmsprop", "last"),
            )
        ]
        texts.append(
            f"RMSprop averaged over the same iterates: {error('rmsprop') - got:+.2f}; NLL of pSGLD "
            "{:.4f}, of RMSprop averaged {:.4f}, last {:.4f}.".format(*losses)
        )
    if not args.quick and args.hidden == 400:
        texts.append(REMARKS)
    return "\n\n".join(texts)


def draw_figure(args, results, n_rows):
    epoch, thinning, n_draws = lengths(args, n_rows)
    burn_in = 0 if args.quick else BURN_IN
    epochs = (burn_in + thinning * np.arange(1, n_draws + 1)) / epoch
    figure, axes = new_figure(2, width=4.6, height=3.8)
    for method in args.methods:
        name, _, (color, style) = METHODS[method]
        _, curves, _ = results[method][0]
        for ax, curve in zip(axes, curves, strict=True):
            ax.plot(epochs, curve, color=color, ls=style, lw=1.2, label=name)
    for ax, title in zip(axes, ("running average", "single draws"), strict=True):
        ax.set(title=title, xlabel="epoch")
        if not args.quick:
            ax.set_ylim(1.2, 4.8)
    axes[0].set_ylabel("test error, %")
    axes[0].legend(frameon=False, fontsize=7)
    caption = (
        "Test error of the running average, and of single draws, against epochs (seed 0), "
        "as in fig. 4."
    )
    return save_figure(args, figure, "p4_mnist_fnn", caption)


def write(args, results, n_rows, n_seeds):
    _, thinning, n_draws = lengths(args, n_rows)
    header = ["method", "error, %", "NLL", "ECE", "published, %", "last draw, %", "minutes"]
    body = BODY.format(
        hidden=args.hidden,
        batch=BATCH,
        epochs=args.epochs,
        rows=f"{n_rows:,}",
        block=max(1, args.epochs // 5),
        burn_in=0 if args.quick else BURN_IN,
        thinning=thinning,
        n_draws=n_draws,
        table=markdown_table(header, make_rows(args, results)),
        verdict=verdict(args, results),
    )
    figure = draw_figure(args, results, n_rows)
    spread = "Seed 0."
    if n_seeds > 1:
        spread = f"Seeds 0 to {n_seeds - 1}; ± is the standard deviation over them."
    title = "P4: a fully connected network on MNIST"
    write_results(args, "p4_mnist_fnn", title, body, [figure], spread=spread)


def main():
    args = parse()
    data = load_mnist()
    if args.subset is not None:
        data = data[0][: args.subset], data[1][: args.subset], *data[2:]
    results = {method: [] for method in args.methods}
    for seed in args.seeds:
        for method in args.methods:
            got = run(args, method, data, seed)
            results[method].append(got)
            print(time.strftime("%H:%M:%S"), seed, method, got[0], f"{got[2]:.2f}", flush=True)
        write(args, results, len(data[1]), seed + 1)


if __name__ == "__main__":
    main()
