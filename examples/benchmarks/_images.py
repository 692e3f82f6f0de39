"""What the experiments P4 to P7 of Li et al. (2016a) share: networks for images, method by method.

The scores of every run are stored in the file ``--runs``, and a stored run is not run again. An
interrupted benchmark goes on where it stopped, parts of it may run in several processes or on
several days, and the page is made of the runs that are stored.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import (
    error_rate,
    expected_calibration_error,
    finished,
    markdown_table,
    mean_sd,
    new_figure,
    nll,
    parse_args,
    save_figure,
    write_results,
)
from torch import nn

from skbayes_sgmcmc import SamplingError, SamplingWarning
from skbayes_sgmcmc.samplers import PSGLD, SGLD
from skbayes_sgmcmc.schedules import BlockDecay

BATCH, BURN_IN = 100, 300
AS_PUBLISHED = PSGLD(adapt="always", lag=False)
COLD = "1/N"
N_MEMBERS = 5
N_TEST = 10_000
#: bins of the histograms of weights
BINS = np.linspace(-1.0, 1.0, 201)


CNN_BODY = """ He initialisation, prior N(0, 1) on all weights and biases, minibatches of {batch},
{epochs} epochs on {rows} rows, step size 1e-3 (pSGLD, RMSprop, Adam) or 0.1 (SGLD, SGD) halved
after every {block}, burn-in {burn_in} steps. (The paper says "{{1, 2}} x 10^-3" and "{{1, 2}} x
10^-1 by a grid search".) Every {thinning}th iterate is kept ({n_draws} draws; the paper keeps every
100th), and probabilities are averaged over them, weighted by step size. "As published" and T = 1/N
are explained in [p4_mnist_fnn.md](p4_mnist_fnn.md).

{table}

Error in % of the 10,000 test images, NLL in nats, expected calibration error over 15 bins; "last
draw" is the error of the last single network; minutes are those of one processor.

{verdict}
"""


@dataclass(frozen=True)
class Method:
    """A row of the table: ``step`` is the first step size, ``line`` colour and style."""

    title: str
    sampler: Any = None
    step: float = 0.0
    temperature: Any = COLD
    prior_variance: float = 1.0
    line: tuple[str, str] | None = None
    #: kinds of predictions that get a row, with what the row's title says of them
    kinds: tuple[tuple[str, str], ...] = (("averaged", ""),)
    dropout: float = 0.0
    #: of how many parts with equal step sizes a run consists; None: of the experiment's
    blocks: int | None = None
    #: ``settings(size)`` returns further settings of the estimator
    settings: Callable[[Any], dict] = lambda size: {}


LAST_AND_AVERAGE = (("last", ", last"), ("averaged", ", averaged"))


def methods(psgld: float, rmsprop: float, sgld: float, sgd: float) -> dict[str, Method]:
    """The methods, given their first step sizes."""
    cold = "T = 1/N"
    return {
        "psgld": Method(f"pSGLD, as published, {cold}, σ² = 1", AS_PUBLISHED, psgld,
                        line=("C0", "-")),
        "psgld100": Method(f"pSGLD, as published, {cold}, σ² = 100", AS_PUBLISHED, psgld,
                           prior_variance=100.0, line=("C2", "-")),
        "distilled": Method("distilled from the first", AS_PUBLISHED, psgld,
                            kinds=(("distilled", ""),)),
        "sgld": Method(f"SGLD, {cold}", SGLD(), sgld, line=("C1", "-")),
        "rmsprop": Method("RMSprop (pSGLD, T = 0)", AS_PUBLISHED, rmsprop, 0.0, line=("C4", "--"),
                          kinds=LAST_AND_AVERAGE),
        "sgd": Method("SGD (SGLD, T = 0)", SGLD(), sgd, 0.0, line=("C3", "--"),
                      kinds=LAST_AND_AVERAGE),
        "adam": Method("Adam", kinds=(("last", ""), ("ensemble", f", ensemble of {N_MEMBERS}"))),
        "dropout": Method("Adam, dropout 0.5", kinds=(("last", ""),), dropout=0.5),
        "psgld_t1": Method("pSGLD, T = 1", AS_PUBLISHED, psgld, 1.0, line=("C0", ":")),
        "sgld_t1": Method("SGLD, T = 1", SGLD(), sgld, 1.0, line=("C1", ":")),
    }  # fmt: skip


@dataclass
class Experiment:
    """One experiment.

    Attributes
    ----------
    name, title, body : str
        Of the page; ``body`` is formatted with ``table``, ``rows``, ``epochs``, ``n_draws``...
    load : callable
        ``load()`` returns X, y, X_test, y_test.
    estimator : callable
        ``estimator(size, **settings)`` returns an estimator.
    module : callable
        ``module(size, dropout)`` returns the same network for Adam.
    methods : dict of str to Method
    plan : sequence of (sizes, methods, number of seeds)
        What runs if the options do not say.
    published : dict of (method, size) to float
        Errors in %.
    epochs : int
    remarks : str
        What the page ends with, if its runs are those of the plan.
    thinning : int
        Steps between draws that are kept.
    blocks : int
        The step size is halved after every block of epochs.
    """

    name: str
    title: str
    body: str
    load: Callable[[], Any]
    estimator: Callable[..., Any]
    module: Callable[..., Any]
    methods: dict[str, Method]
    plan: Any
    published: dict[tuple[str, Any], float]
    epochs: int
    y_limits: tuple[float, float] | None = None
    remarks: str = ""
    thinning: int = 200
    blocks: int = 5


def parse(experiment: Experiment, description: str | None) -> argparse.Namespace:
    names = [label(size) for part in experiment.plan for size in part[0]]

    def more(parser):
        parser.add_argument("--sizes", nargs="+", choices=names, default=names)
        parser.add_argument("--methods", nargs="+", choices=experiment.methods)
        parser.add_argument("--device", default="cpu")
        parser.add_argument(
            "--checkpoints", type=Path,
            help="folder of checkpoints, from which fits go on that were interrupted",
        )  # fmt: skip

    return parse_args(
        description,
        max(n_seeds for _, _, n_seeds in experiment.plan),
        1,
        numbers={"epochs": (experiment.epochs, 2), "subset": (None, 5000)},
        runs=experiment.name,
        constants={"batch": BATCH, "burn_in": BURN_IN, "thinning": experiment.thinning},
        more=more,
    )


def main(experiment: Experiment, description: str | None) -> None:
    """Run what is missing, then write the page."""
    args = parse(experiment, description)
    X, y, X_test, y_test = experiment.load()
    few = slice(args.subset)  # of the rows of tests, too
    data = X[few], y[few], X_test[few], y_test[few]
    args.rows = len(data[0])
    if args.short:
        args.sizes = args.sizes[:1]
    for sizes, names, n_seeds in experiment.plan:
        for size in (size for size in sizes if label(size) in args.sizes):
            for method in names if args.methods is None else set(names).intersection(args.methods):
                for seed in args.seeds[:n_seeds]:
                    name, settings = run_name(args, size, method, seed)
                    job = partial(run, experiment, args, size, method, seed, data)
                    finished(args, name, job, **settings)
    write(experiment, args, data)


def label(size: Any) -> str:
    """Hidden units as they stand in options and file names."""
    return "-".join(map(str, size))


def run_name(args: argparse.Namespace, size: Any, method: str, seed: int) -> tuple[str, dict]:
    """Name and settings of a run."""
    settings = {"size": label(size), "method": method, "seed": seed, "epochs": args.epochs,
                "rows": args.rows}  # fmt: skip
    return f"{label(size)}-{method}-{seed}-{args.epochs}x{args.rows}", settings


def run(experiment, args, size, method, seed, data):
    """Scores by kind of prediction, minutes of a fit, and curves of the first seed."""
    find = train if experiment.methods[method].sampler is None else sample
    try:
        found = find(experiment, args, size, method, seed, data)
    except SamplingError:  # tables say "diverged" for what is not finite
        kinds = {"averaged", "last", *(kind for kind, _ in experiment.methods[method].kinds)}
        return {"scores": {kind: [[np.nan] * 3] for kind in kinds}, "minutes": np.nan}
    if seed > 0:
        found.pop("curves", None)
    return found


def score(y, p):
    """Error in %, NLL and calibration error."""
    return [
        round(100 * error_rate(y, p), 3),
        round(nll(y, p), 5),
        round(expected_calibration_error(y, p), 5),
    ]


# sampling -----------------------------------------------------------------------------------------


def lengths(experiment, args, n_rows):
    """Steps of an epoch, burn-in, steps between draws and number of draws."""
    epoch = n_rows // BATCH
    n_steps = args.epochs * epoch
    burn_in = min(BURN_IN, n_steps // 2)
    thinning = experiment.thinning if args.epochs >= 20 else max(1, epoch // 10)
    return epoch, burn_in, thinning, (n_steps - burn_in) // thinning


def make_estimator(experiment, args, size, name, seed, n_rows):
    """The estimator of a method that samples, for one chain."""
    method = experiment.methods[name]
    epoch, burn_in, thinning, n_draws = lengths(experiment, args, n_rows)
    checkpoint = args.checkpoints
    if checkpoint is not None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        checkpoint = checkpoint / f"{run_name(args, size, name, seed)[0]}.npz"
    block = epochs_of_block(args, method.blocks or experiment.blocks) * epoch
    settings = {
        "prior_scale": method.prior_variance**0.5,
        "standardize": False,
        "sampler": method.sampler,
        "step_size": BlockDecay(method.step, every=block, factor=0.5),
        "batch_size": BATCH,
        "n_chains": 1,
        "n_draws": n_draws,
        "burn_in": burn_in,
        "thinning": thinning,
        "temperature": 1.0 / n_rows if method.temperature == COLD else method.temperature,
        "init": "random",
        "device": args.device,
        "dtype": "float32",
        "random_state": seed,
        "checkpoint": checkpoint,
    }
    return experiment.estimator(size, **settings | method.settings(size))


def sample(experiment, args, size, name, seed, data):
    X, y, X_test, y_test = data
    model = make_estimator(experiment, args, size, name, seed, len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of few effective draws of one chain
        resumed = model.checkpoint is not None and model.checkpoint.exists()
        start = time.process_time()
        model.fit(X, y)
        if name == "distilled":
            start = time.process_time()  # the teacher's minutes are in its own row
            options = {"n_epochs": 2} if args.short else {}
            student = model.distill(X, random_state=seed, **options)
        # other processes have taken a part of a fit that was interrupted
        minutes = {} if resumed else {"minutes": round((time.process_time() - start) / 60, 2)}
    if name == "distilled":
        scores = {kind: [score(y_test, fitted.predict_proba(X_test))]
                  for kind, fitted in (("distilled", student), ("teacher", model))}  # fmt: skip
        return {"scores": scores, **minutes}
    return {**predictions(model, X_test, y_test), **minutes}


def predictions(model, X_test, y_test):
    """Averaged and last probabilities, and error in % of running averages and of single draws."""
    weights = model.posterior_.weights
    n_draws = len(weights)
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
    kinds = {"averaged": averaged, "last": last}
    return {
        "scores": {kind: [score(y_test, np.concatenate(parts))] for kind, parts in kinds.items()},
        "curves": (100 * wrong / len(y_test)).round(2).tolist(),
        "weights": weight_counts(model.posterior_),
    }


def weight_counts(posterior):
    """Numbers of weights of the last draw, without biases, in each bin; the last have no end."""
    names = [name for name in posterior.draws if "weight" in name]
    inside = BINS[[0, -1]] * (1.0 - 1e-6)
    counts = (np.histogram(posterior[name][-1, -1].clip(*inside), BINS)[0] for name in names)
    return sum(counts).tolist()


def cnn_module(image_shape, channels):
    """``module(size, dropout)`` for convolutions of 5 x 5 with 2 x 2 max pools."""

    def module(size, dropout):
        before, height, width = image_shape
        parts = []
        for after in channels:
            parts += [nn.Conv2d(before, after, 5, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
            before, height, width = after, height // 2, width // 2
        units = before * height * width
        parts = [nn.Unflatten(1, image_shape), *parts, nn.Flatten()]
        for after in size:
            parts += [nn.Linear(units, after), nn.ReLU(), nn.Dropout(dropout)]
            units = after
        return nn.Sequential(*parts, nn.Linear(units, 10))

    return module


def epochs_of_block(args, blocks):
    """Epochs after which the step size is halved."""
    return max(1, args.epochs // blocks)


# Adam ---------------------------------------------------------------------------------------------


def train(experiment, args, size, name, seed, data):
    """The same network by Adam (1e-3, halved like the samplers' steps), in plain torch."""
    X, y, X_test, y_test = data
    dropout = experiment.methods[name].dropout
    x, labels = torch.from_numpy(X).to(args.device), torch.from_numpy(y).to(args.device)
    start, members = time.process_time(), []
    for member in range(1 if dropout else N_MEMBERS):
        torch.manual_seed(100 * seed + member)
        module = experiment.module(size, dropout).to(args.device)
        halve_every = epochs_of_block(args, experiment.blocks)
        train_by_adam(module, x, labels, args.epochs, halve_every=halve_every)
        with torch.no_grad():
            parts = torch.from_numpy(X_test).to(args.device).split(1000)
            members.append(torch.cat([module(part).softmax(1) for part in parts]).cpu().numpy())
    scores = {"last": [score(y_test, p) for p in members]}
    if not dropout:
        scores["ensemble"] = [score(y_test, np.mean(members, axis=0))]
    minutes = (time.process_time() - start) / 60 / len(members)
    return {"scores": scores, "minutes": round(minutes, 2)}


def train_by_adam(module, x, labels, epochs, *, batch=BATCH, halve_every=None, augment=None):
    """From He's initialisation; ``augment(x)`` changes a minibatch, if given."""
    for part in module:
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
            nn.init.zeros_(part.bias)
    optimiser = torch.optim.Adam(module.parameters(), 1e-3)
    decay = torch.optim.lr_scheduler.StepLR(optimiser, halve_every or epochs, 0.5)
    module.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), device=x.device).split(batch):
            inputs = x[rows] if augment is None else augment(x[rows])
            loss = nn.functional.cross_entropy(module(inputs), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        decay.step()
    module.eval()


# the page -----------------------------------------------------------------------------------------


def load_runs(args, size, method):
    """The finished runs of a method, in the order of their seeds."""
    runs = (args.records.stored(*run_name(args, size, method, seed)) for seed in range(100))
    return [found for found in runs if found is not None]


def collect(experiment, args, size):
    """Scores (runs, 3) by (method, kind), and the runs of each method."""
    runs = {name: load_runs(args, size, name) for name in experiment.methods}
    scores = {
        (name, kind): np.array([row for run in runs[name] for row in run["scores"][kind]], float)
        for name in experiment.methods
        for kind in (runs[name][0]["scores"] if runs[name] else ())
    }
    return scores, runs


def make_rows(experiment, size, scores, runs):
    rows = []
    for name, method in experiment.methods.items():
        for kind, words in method.kinds if runs[name] else ():
            values = scores[name, kind]
            cells = [mean_sd(values[:, k], digits) for k, digits in enumerate((2, 4, 4))]
            # the paper does not say whether iterates were averaged: its figures go with the last
            first = kind == method.kinds[0][0]
            published = experiment.published.get((name, size)) if first else None
            last = mean_sd(scores[name, "last"][:, 0], 2) if kind == "averaged" else ""
            known = [run["minutes"] for run in runs[name] if "minutes" in run]
            minutes = mean_sd(known, 1) if first and known else ""
            cells += ["" if published is None else f"{published:.2f}", last, minutes]
            rows.append([method.title + words, len(values), *cells])
    return rows


def write(experiment, args, data):
    X, _, _, _ = data
    _, burn_in, thinning, n_draws = lengths(experiment, args, len(X))
    header = ["method", "runs", "error, %", "NLL", "ECE", "published, %", "last draw, %",
              "minutes"]  # fmt: skip
    tables, all_scores, figures = [], {}, []
    for size in dict.fromkeys(size for part in experiment.plan for size in part[0]):
        scores, runs = collect(experiment, args, size)
        if scores:
            rows = make_rows(experiment, size, scores, runs)
            tables += [f"**{label(size)}**", markdown_table(header, rows)]
            all_scores[size] = scores
        if any("curves" in run for of_method in runs.values() for run in of_method):
            name = f"{experiment.name}_{label(size)}" if figures else experiment.name
            figures.append(draw_figure(experiment, args, len(X), size, name))
        figures += draw_weights(experiment, args, size)
    block = epochs_of_block(args, experiment.blocks)
    body = experiment.body.format(
        batch=BATCH, epochs=args.epochs, rows=f"{len(X):,}", burn_in=burn_in, thinning=thinning,
        n_draws=n_draws, block=f"{block} epochs" if block > 1 else "epoch",
        table="\n\n".join(tables),
        verdict="" if args.quick else verdict(experiment, all_scores),
    )  # fmt: skip
    body += "" if args.quick else experiment.remarks
    spread = "Seeds 0, 1, ...; ± is the standard deviation over runs."
    write_results(args, experiment.name, experiment.title, body, figures, spread=spread)


def verdict(experiment, scores):
    """pSGLD compared with the published errors and with the other methods."""
    lines = []
    for size, found in scores.items():
        for name in ("psgld", "psgld100"):
            published = experiment.published.get((name, size))
            if (name, "averaged") in found and published is not None:
                got, title = found[name, "averaged"][:, 0].mean(), experiment.methods[name].title
                error = (published * (100.0 - published) / N_TEST) ** 0.5  # binomial
                words = "reached" if got <= published + error else "missed"
                errors = f"{got:.2f}% (published: {published:.2f}%)"
                lines.append(f"* {label(size)}, {title}: {errors}, {words}.")
        if ("psgld", "averaged") not in found:
            continue
        error, loss, _ = found["psgld", "averaged"].mean(0)
        rivals = []
        for (name, kind), values in found.items():
            shown = kind in dict(experiment.methods[name].kinds)
            if shown and not name.startswith("psgld") and not name.endswith("_t1"):
                beyond = values.mean(0) - (error, loss, 0.0)
                rivals.append(f"{name} ({kind}) {beyond[0]:+.2f}% and {beyond[1]:+.4f}")
        if rivals:
            lines.append(f"* {label(size)}, error and NLL minus those of pSGLD as published, "
                         f"σ² = 1: {', '.join(rivals)}.")  # fmt: skip
    return "\n".join(lines)


def draw_figure(experiment, args, n_rows, size, name):
    epoch, burn_in, _, _ = lengths(experiment, args, n_rows)
    figure, axes = new_figure(2, width=4.6, height=3.8)
    for key, method in experiment.methods.items():
        runs = load_runs(args, size, key)
        if method.line is None or not runs or "curves" not in runs[0]:
            continue
        for ax, curve in zip(axes, runs[0]["curves"], strict=True):
            thinning = (args.epochs * epoch - burn_in) // len(curve)  # an older run's is another
            epochs = (burn_in + thinning * np.arange(1, len(curve) + 1)) / epoch
            ax.plot(epochs, curve, color=method.line[0], ls=method.line[1], lw=1.2,
                    label=method.title)  # fmt: skip
    for ax, title in zip(axes, ("running average", "single draws"), strict=True):
        ax.set(title=title, xlabel="epoch")
        if not args.quick and experiment.y_limits is not None:
            ax.set_ylim(*experiment.y_limits)
    axes[0].set_ylabel("test error, %")
    axes[0].legend(frameon=False, fontsize=7)
    caption = f"Test error of the running average and of single draws, {label(size)}, seed 0."
    return save_figure(args, figure, name, caption)


def draw_weights(experiment, args, size):
    """The figure of the weights of last draws, in a list, if runs of several methods hold them."""
    drawn = {}
    for key, method in experiment.methods.items():
        held = [run["weights"] for run in load_runs(args, size, key) if "weights" in run]
        if held and method.line is not None:
            drawn[method] = np.mean(held, axis=0)
    if args.quick or len(drawn) < 2:
        return []
    figure, (ax,) = new_figure(1, width=5.6, height=3.8)
    for method, counts in drawn.items():
        density = counts / counts.sum() / np.diff(BINS)
        ax.stairs(density, BINS, color=method.line[0], ls=method.line[1], label=method.title)
    ax.set(xlabel="weight", ylabel="density", yscale="log")
    figure.legend(loc="outside lower center", frameon=False, fontsize=7)
    caption = f"Weights of the last network, {label(size)}; those beyond ±1 are in the last bins."
    return [save_figure(args, figure, f"{experiment.name}_{label(size)}_weights", caption)]
