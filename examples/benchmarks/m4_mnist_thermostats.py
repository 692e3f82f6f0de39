"""Experiment M4: thermostats on networks for MNIST (Li et al. 2016b, fig. 4).

SKBAYES_DATA=folder python examples/benchmarks/m4_mnist_thermostats.py

The numbers of finished runs are stored in the file ``--runs``. A command that was interrupted, or
that asks for more seeds or parts, does only the runs that are missing. ``--quick`` and ``--epochs 2
--subset 5000`` are short.
"""

import warnings
from functools import partial

import numpy as np
from _common import (
    error_rate,
    finished,
    load_mnist,
    markdown_table,
    mean_sd,
    new_figure,
    nll,
    parse_args,
    save_figure,
    write_results,
)

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    SamplingError,
    SamplingWarning,
)
from skbayes_sgmcmc.samplers import MSGNHT
from skbayes_sgmcmc.schedules import MultiStep

EPOCHS, CNN_EPOCHS, SWEEP_EPOCHS, BATCH, UNITS = 40, 2, 2, 100, 100
DIFFUSION, STEP = 5.0, 1e-4
DEPTHS = (2, 3, 4)
ACTIVATIONS = {"relu": "ReLU", "logistic": "sigmoid"}
INTEGRATORS = {"E": "euler", "S": "splitting"}
SWEEP = (1e-4, 4e-4, 8e-4, 1.6e-3, 2.3e-3, 3.2e-3, 4.5e-3, 6.4e-3)
#: training rows over which the NLL is computed
CURVE_ROWS = 10_000
PARTS = (*ACTIVATIONS, "sweep", "cnn")
#: of parts whose schemes hardly differ, the first three seeds are enough
MOST_SEEDS = {"logistic": 3, "cnn": 3}

BODY = """
MNIST ({rows} training rows), inputs divided by 255, prior N(0, 1) on all weights and biases, He
initialisation, minibatches of {batch}, T = 1. mSGNHT with D = {D:g} and thermostat mass 1, step h =
{h:g}, halved at half of the epochs: `MSGNHT(diffusion={D:g}, mass=1.0)` with `step_size` = N h² =
{eta:.2g}, divided by 4 there. S: splitting, E: Euler; both have the same starts and minibatches.
NLL is in nats per row, of single networks on the training rows. The paper has curves and no table.

{parts}
"""
FNN = """
## Networks of 2, 3 and 4 hidden layers of {units} units, {epochs} epochs

{table}

The training NLL (mean of the last tenth of the epochs) is that of single networks on the first
{curve:,} rows; S - E is the mean of the seeds' differences (of sigmoid units, of three seeds).
"Last" is the test error in % of the last network; "averaged" and "its NLL" are test error and NLL
of probabilities averaged over the second half of the epochs. Published (ReLU): S is below E at
every depth, and more so at greater depth; at depth 4 E fails at h = 1e-4 (the paper's curve there
is for 5e-5).

{verdict}
"""
SWEEP_TEXT = """
## Step sizes

Training NLL (last network, first {curve:,} rows) after {epochs} epochs at a constant h, seed 0.

{table}

"Largest h" is the largest at which the chain stays finite. An NLL of 2.303 is that of guessing.
"""
CNN = """
## A convolutional network

Convolutions of 8 and 16 channels, 5 × 5, each with a ReLU and a 2 × 2 max pool, and {units} hidden
units; {epochs} epochs. The paper's network is described in an appendix that we do not have.

{table}
"""


# One run


def network(kind):
    """Class and parameters of ``(activation, depth)`` or ``"cnn"``."""
    if kind == "cnn":
        return BayesianCNNClassifier, {
            "image_shape": (1, 28, 28),
            "conv_channels": (8, 16),
            "kernel_size": 5,
            "hidden_layer_sizes": (UNITS,),
        }
    activation, depth = kind
    return BayesianMLPClassifier, {
        "hidden_layer_sizes": (UNITS,) * depth,
        "activation": activation,
    }


def sample(data, kind, letter, h, epochs, seed, halve):
    """Curves and scores of a chain with one draw at the end of every epoch."""
    X, y, X_test, y_test = data
    estimator, parameters = network(kind)
    epoch = len(X) // BATCH
    model = estimator(
        **parameters,
        prior_scale=1.0,
        standardize=False,
        sampler=MSGNHT(diffusion=DIFFUSION, mass=1.0),
        integrator=INTEGRATORS[letter],
        step_size=MultiStep(len(X) * h**2, [max(1, epochs // 2) * epoch] * halve, factor=0.25),
        batch_size=BATCH,
        n_chains=1,
        n_draws=epochs,
        burn_in=0,
        thinning=epoch,
        init="random",
        device="cpu",
        dtype="float32",
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of few draws of one chain
        try:
            model.fit(X, y)
        except SamplingError:
            return {"diverged": True}
    few = slice(0, CURVE_ROWS)
    on_train = np.concatenate(list(model.iter_proba_samples(X[few])), axis=1)
    on_test = np.concatenate(list(model.iter_proba_samples(X_test)), axis=1)
    late = on_test[epochs // 2 :].mean(axis=0)
    return {
        "diverged": False,
        "nll": [nll(y[few], p) for p in on_train],
        "error": [100 * error_rate(y_test, p) for p in on_test],
        "averaged": 100 * error_rate(y_test, late),
        "averaged_nll": nll(y_test, late),
    }


def run(args, data, kind, letter, h=STEP, epochs=None, seed=0, halve=True):
    """The numbers of one run."""
    epochs = args.epochs if epochs is None else epochs
    name = kind if kind == "cnn" else f"{kind[0]}{kind[1]}"
    name += f"-{letter}-h{h:g}-seed{seed}-{epochs}x{len(data[0])}{'' if halve else '-constant'}"
    settings = {"network": kind, "integrator": letter, "h": h, "seed": seed, "epochs": epochs,
                "rows": len(data[0]), "halve": halve}  # fmt: skip
    found = finished(args, name, partial(sample, data, kind, letter, h, epochs, seed, halve),
                     **settings)  # fmt: skip
    if found is None:
        raise SystemExit(f"{args.runs} does not hold the run {name!r}.")
    return found


# Parts


def last_nll(found):
    """Mean training NLL of the last tenth of the epochs."""
    if found["diverged"]:
        return np.nan
    return float(np.mean(found["nll"][-max(1, len(found["nll"]) // 10) :]))


def last_errors(found):
    if found["diverged"]:
        return np.nan, np.nan, np.nan
    return found["error"][-1], found["averaged"], found["averaged_nll"]


def comparison(label, runs):
    """A row of a table: ``runs`` are those of each seed, by the integrator's letter."""
    nlls = {letter: np.array([last_nll(found) for found in runs[letter]]) for letter in runs}
    errors = {letter: np.array([last_errors(found) for found in runs[letter]]) for letter in runs}
    cells = [mean_sd(nlls[letter], 4) for letter in "ES"]
    cells.append(mean_sd(nlls["S"] - nlls["E"], 4))
    for k, digits in enumerate((2, 2, 4)):
        cells += [mean_sd(errors[letter][:, k], digits) for letter in "ES"]
    return [label, *cells]


HEADER = ["", "NLL, E", "NLL, S", "S - E", "last, E", "last, S", "averaged, E", "averaged, S",
          "its NLL, E", "its NLL, S"]  # fmt: skip


def verdict(results):
    parts = []
    for (activation, depth), runs in results.items():
        both = np.array([[last_nll(found) for found in runs[letter]] for letter in "ES"])
        lower = int(np.sum(both[1] <= both[0]))
        parts.append(
            f"{ACTIVATIONS[activation]}, depth {depth}: S at or below E in {lower} of "
            f"{both.shape[1]} seeds, diverged: E {np.isnan(both[0]).sum()}, "
            f"S {np.isnan(both[1]).sum()}."
        )
    return "\n".join(f"- {part}" for part in parts)


def fnn(args, runs, activations):
    kinds = [(activation, depth) for activation in activations for depth in DEPTHS]
    results = {kind: {letter: [] for letter in INTEGRATORS} for kind in kinds}
    for kind in kinds:
        for seed in args.seeds[: MOST_SEEDS.get(kind[0])]:
            for letter in INTEGRATORS:
                results[kind][letter].append(runs(kind, letter, seed=seed))
    rows = [
        comparison(f"{ACTIVATIONS[activation]}, depth {depth}", found)
        for (activation, depth), found in results.items()
    ]
    text = FNN.format(
        units=UNITS,
        epochs=args.epochs,
        curve=CURVE_ROWS,
        table=markdown_table(HEADER, rows),
        verdict=verdict(results),
    )
    return text, [draw_figure(args, results, activations)]


def sweep(args, runs):
    epochs = min(SWEEP_EPOCHS, args.epochs)
    rows = []
    for activation, name in ACTIVATIONS.items():
        for depth in DEPTHS:
            for letter in INTEGRATORS:
                cells, largest = ["diverged"] * len(SWEEP), "none"
                for i, h in enumerate(SWEEP):
                    found = runs((activation, depth), letter, h=h, epochs=epochs, halve=False)
                    if found["diverged"]:
                        break  # larger steps would too
                    cells[i], largest = f"{found['nll'][-1]:.3f}", f"{h:g}"
                rows.append([f"{name}, depth {depth}, {letter}", *cells, largest])
    header = ["", *(f"h = {h:g}" for h in SWEEP), "largest h"]
    table = markdown_table(header, rows)
    return SWEEP_TEXT.format(curve=CURVE_ROWS, epochs=epochs, table=table), []


def cnn(args, runs):
    found = {
        letter: [
            runs("cnn", letter, epochs=args.cnn_epochs, seed=seed)
            for seed in args.seeds[: MOST_SEEDS["cnn"]]
        ]
        for letter in INTEGRATORS
    }
    table = markdown_table(HEADER, [comparison("CNN", found)])
    return CNN.format(units=UNITS, epochs=args.cnn_epochs, table=table), []


def draw_figure(args, results, activations):
    """Training NLL and test error by epoch, mean over seeds: colours are depths."""
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, axes = new_figure(2 * len(activations), width=3.3, height=3.3)
    for (activation, depth), runs in results.items():
        place = 2 * activations.index(activation)
        for letter, style in (("E", "--"), ("S", "-")):
            good = [found for found in runs[letter] if not found["diverged"]]
            if not good:
                continue
            for ax, what in zip(axes[place : place + 2], ("nll", "error"), strict=True):
                curve = np.mean([found[what] for found in good], axis=0)
                epochs = np.arange(1, len(curve) + 1)
                line = {"color": f"C{depth - 2}", "ls": style, "lw": 1.2}
                ax.plot(epochs, curve, **line, label=f"depth {depth}, {letter}")
    for i, ax in enumerate(axes):
        name = ACTIVATIONS[activations[i // 2]]
        what = "test error, %" if i % 2 else "training NLL"
        ax.set(title=name, xlabel="epoch", ylabel=what, yscale="log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
    axes[0].legend(frameon=False, fontsize=7)
    caption = (
        "Training NLL and test error of single networks at the end of each epoch, mean over the "
        "seeds; E: Euler, S: splitting."
    )
    return save_figure(args, figure, "m4_mnist_thermostats", caption)


def main():
    numbers = {"epochs": (EPOCHS, 2), "cnn-epochs": (CNN_EPOCHS, 1), "subset": (None, 5000)}
    args = parse_args(__doc__, 3, 1, numbers=numbers, parts=PARTS, runs="m4_mnist_thermostats",
                      constants={"batch": BATCH, "units": UNITS, "diffusion": DIFFUSION,
                                 "curve_rows": CURVE_ROWS})  # fmt: skip
    data = load_mnist()
    data = data[0][: args.subset], data[1][: args.subset], *data[2:]
    runs = partial(run, args, data)
    activations = [part for part in args.parts if part in ACTIVATIONS]
    made = [fnn(args, runs, activations)] if activations else []
    made += [part(args, runs) for part in (sweep, cnn) if part.__name__ in args.parts]
    body = BODY.format(
        rows=f"{len(data[0]):,}",
        batch=BATCH,
        D=DIFFUSION,
        h=STEP,
        eta=len(data[0]) * STEP**2,
        parts="\n\n".join(text.strip() for text, _ in made),
    )
    figures = [figure for _, some in made for figure in some]
    title = "M4: thermostats on networks for MNIST"
    spread = "Seed 0." if len(args.seeds) == 1 else None
    write_results(args, "m4_mnist_thermostats", title, body, figures, spread)


if __name__ == "__main__":
    main()
