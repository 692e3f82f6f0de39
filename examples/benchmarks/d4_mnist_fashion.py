"""Experiments D4, D5 and D6: a sparse prior of one layer, on MNIST and Fashion-MNIST.

Deng et al. (2019), table 2 and figure 2.

SKBAYES_DATA=folder python examples/benchmarks/d4_mnist_fashion.py --device cuda

``--epochs 10 --subset 10000`` is for a CPU, and ``--quick`` is shorter still. The numbers of
finished runs are stored in the file ``--runs`` and are not computed again.
"""

import warnings
from collections import OrderedDict
from functools import partial

import numpy as np
import torch
from _common import (
    finished,
    load_mnist,
    markdown_table,
    mean_sd,
    new_figure,
    parse_args,
    save_figure,
    some_draws,
    write_results,
)
from _images import score, train_by_adam
from d6_fgsm import attack
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, PosteriorSamples, SamplingWarning, SpikeSlab
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc.augmentation import (
    Compose,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomRotation,
)
from skbayes_sgmcmc.samplers import SGHMC
from skbayes_sgmcmc.schedules import Polynomial

THINNING, LEAST_DRAWS = 500, 10
STEP_SIZE = 60_000 * 5e-7
GAIN = Polynomial(a=1.0, b=1000.0, gamma=0.75)
IMAGE = (1, 28, 28)


class Standardised(nn.Module):
    """Pixels less MNIST's mean, by its standard deviation."""

    def forward(self, x):
        return (x - 0.1307) / 0.3081


def network(n_outputs, dropout=False):
    """Two convolutions of 5 x 5 and two fully connected layers: 0.68 million parameters."""
    parts = {
        "conv1": nn.Conv2d(1, 32, 5, padding="same"), "relu1": nn.ReLU(), "pool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(32, 64, 5, padding="same"), "relu2": nn.ReLU(), "pool2": nn.MaxPool2d(2),
        "flat": nn.Flatten(), "fc1": nn.Linear(3136, 200), "relu3": nn.ReLU(),
    }  # fmt: skip
    if dropout:
        parts["dropout"] = nn.Dropout(0.5)
    return nn.Sequential(OrderedDict(parts | {"fc2": nn.Linear(200, n_outputs)}))


def norm_network(n_outputs, dropout=False):
    """Two of 4 x 4 and three fully connected, the first with a batch norm: 0.49 million."""
    parts = {
        "input": Standardised(),
        "conv1": nn.Conv2d(1, 64, 4), "relu1": nn.ReLU(), "pool1": nn.MaxPool2d(2, ceil_mode=True),
        "conv2": nn.Conv2d(64, 64, 4), "relu2": nn.ReLU(), "pool2": nn.MaxPool2d(2, ceil_mode=True),
        "flat": nn.Flatten(), "fc1": nn.Linear(1600, 256), "norm": nn.BatchNorm1d(256),
        "relu3": nn.ReLU(),
    }  # fmt: skip
    if dropout:
        parts["dropout"] = nn.Dropout(0.5)
    parts |= {"fc2": nn.Linear(256, 64), "relu4": nn.ReLU(), "fc3": nn.Linear(64, n_outputs)}
    return nn.Sequential(OrderedDict(parts))


# part: data, network, inverse temperature, epochs in units of the option's, augmentation
PARTS = {
    "MNIST": ("mnist", network, 1000.0, 1, None),
    "FMNIST": ("fashion_mnist", network, 2500.0, 1, None),
    "DA-MNIST": ("mnist", norm_network, 1000.0, 1, [RandomCrop(), RandomRotation()]),
    "DA-FMNIST": ("fashion_mnist", norm_network, 2500.0, 5,
                  [RandomCrop(), RandomFlip(), RandomErasing()]),
}  # fmt: skip
# row: title, published accuracies in % by part, line
METHODS = {
    "adam": ("Adam", (99.31, 92.73, 99.54, 93.14), ("C3", "--")),
    "dropout": ("Adam, dropout 0.5", (99.38, 92.81, 99.56, 93.35), ("C1", "--")),
    "sghmc": ("SGHMC", (99.47, 92.88, 99.63, 94.29), ("C2", "-")),
    "sghmc_sa": ("SGHMC-SA", (99.59, 93.01, 99.75, 94.38), ("C0", "-")),
}


def estimator(args, module, n_rows, tau, n_steps, seed, adaptation=None, **options):
    """SGHMC on a network whose first fully connected layer has the sparse prior."""
    size = module(10).fc1.weight.numel()
    half = n_steps // 2
    thinning = min(THINNING, max(1, half // LEAST_DRAWS))
    n_draws = half // thinning
    prior = SpikeSlab(1.0, 0.1, inclusion_prior=(size, size), sigma_prior=(1000.0, 1000.0),
                      learn_sigma=True, adaptation=adaptation, gain=GAIN,
                      layers=["fc1"])  # fmt: skip
    settings = {
        "input_shape": IMAGE,
        "prior": prior,
        "prior_scale": 1.0,
        "sampler": SGHMC(friction=0.1),
        "integrator": "euler",
        "step_size": STEP_SIZE,
        "temperature": 1.0 / tau,
        "batch_size": min(args.batch, n_rows // 2),
        "n_chains": 1,
        "n_draws": n_draws,
        "thinning": thinning,
        "burn_in": n_steps - n_draws * thinning,
        "init": "random",
        "device": args.device,
        "compiled": getattr(args, "compiled", "auto"),
        "dtype": "float32",
        "random_state": seed,
    }
    return BayesianModuleClassifier(module, **(settings | options))


def by_adam(args, module, data, n_epochs, augment, dropout, seed):
    """The trained network as the only draw of an estimator, for which the attack is made."""
    X, y = data
    torch.manual_seed(seed)
    trained = module(10, dropout=dropout).to(args.device)
    rows = torch.from_numpy(X).reshape(-1, *IMAGE).to(args.device)
    batch, change = min(args.batch, len(X) // 2), None
    if augment is not None:
        rng = ChainRandom([np.random.SeedSequence(seed)], args.device)
        change = partial(augment, rng=rng)
    train_by_adam(trained, rows, torch.from_numpy(y).to(args.device), n_epochs, batch=batch,
                  augment=change)  # fmt: skip
    once = {"prior": "normal", "n_draws": 1, "thinning": 1, "burn_in": 0}
    clf = estimator(args, module, len(X), 1.0, 2, seed, **once).fit(X[:100], np.arange(100) % 10)
    values = {name: value.cpu().numpy()[None, None] for name, value in trained.state_dict().items()
              if name in clf.posterior_.draws}  # fmt: skip
    clf.posterior_ = PosteriorSamples(values)
    return clf


def run(args, part, method, seed):
    """Error in %, NLL and calibration error of average and last draw; accuracy under attack."""
    name, module, tau, times, changes = PARTS[part]
    X, y, X_test, y_test = load_mnist(name)
    few = slice(args.subset)  # of the rows of tests, too
    X, y, X_test, y_test = X[few], y[few], X_test[few], y_test[few]
    augment = None if changes is None else Compose(changes)
    n_epochs = times * args.epochs
    if method in ("adam", "dropout"):
        model = by_adam(args, module, (X, y), n_epochs, augment, method == "dropout", seed)
    else:
        n_steps = n_epochs * -(-len(X) // min(args.batch, len(X) // 2))
        adaptation = "sa" if method == "sghmc_sa" else None
        options = {"adaptation": adaptation, "augment": augment}
        model = estimator(args, module, len(X), tau, n_steps, seed, **options).fit(X, y)
    last = some_draws(model, slice(-1, None))
    attacked = slice(args.images)
    return {
        "averaged": score(y_test, model.predict_proba(X_test)),
        "last": score(y_test, last.predict_proba(X_test)),
        "n_draws": model.n_draws_,
        "attack": attack(model, X_test[attacked], y_test[attacked]),
    }


BODY = """
D4: two convolutions of 5 × 5 with 32 and 64 channels, each with a ReLU and a 2 × 2 max pool, and
fully connected layers of 200 units and 10 outputs. D5 ("DA"): convolutions of 4 × 4 with 64
channels, fully connected layers of 256 (with a batch norm), 64 and 10 units, and random crops with
rotations (MNIST) or with flips and erased rectangles (FMNIST). {rows} training images, minibatches
of {batch}, {epochs} epochs (DA-FMNIST: five times as many).

SGHMC: friction 0.1, step size 0.03 (the paper's ε = 5e-7 times N), inverse temperature τ = 1000
(MNIST) and 2500 (FMNIST), He initialisation, prior N(0, 1), and on the first fully connected layer
the spike-and-slab prior with v₀ = 1, v₁ = 0.1, σ = 1 at the start, a and b the number of its
weights, ν = λ = 1000. Its latents stay fixed (SGHMC) or adapt with the gain (k + 1000)^-0.75
(SGHMC-SA). Probabilities are averaged over every 500th iterate of the second half of the run, and
over at least ten iterates (the paper does not say over how many). Adam's step size is 1e-3.

Accuracy in % on {tests} test images (of 10,000, a binomial standard error is 0.06% on MNIST and
0.26% on FMNIST); published figures in brackets.

{accuracy}

Of the last iterate alone:

{last}

NLL in nats / expected calibration error over 15 bins, of the averages:

{calibration}

**D6**: accuracy in % of the first {images:,} test images under an attack of strength ζ at the
predicted label, clipped to [0, 1], by `fgsm` through the average over draws. The published figure
(there is no table): at ζ = 0.5 Adam and dropout are at chance, and SGHMC-SA is 11 points above
them.

{attacks}
"""


def tables(results):
    names = [part for part in PARTS if any(key[0] == part for key in results)]
    found = {}
    for kind in ("averaged", "last"):
        rows = []
        for method, (title, published, _) in METHODS.items():
            row = [title]
            for part in names:
                runs = results.get((part, method), [])
                cell = mean_sd([100.0 - r[kind][0] for r in runs], 2) if runs else ""
                row.append(f"{cell} ({published[list(PARTS).index(part)]:.2f})")
            rows.append(row)
        found[kind] = markdown_table(["accuracy, %", *names], rows)
    rows = [
        [title, *(_calibration(results.get((part, method), [])) for part in names)]
        for method, (title, *_) in METHODS.items()
    ]
    found["calibration"] = markdown_table(["NLL / ECE", *names], rows)
    strengths = [f"{eps:g}" for eps in next(iter(results.values()))[0]["attack"]["eps"]]
    parts = []
    for part in names:
        rows = [
            [title, *(mean_sd(v, 1) for v in np.transpose([r["attack"]["accuracy"] for r in runs]))]
            for method, (title, *_) in METHODS.items()
            if (runs := results.get((part, method)))
        ]
        parts.append(markdown_table([part, *strengths], rows))
    return found | {"accuracy": found["averaged"], "attacks": "\n\n".join(parts)}


def _calibration(runs):
    if not runs:
        return ""
    nll, ece = np.transpose([found["averaged"][1:] for found in runs])
    return f"{mean_sd(nll, 3)} / {mean_sd(ece, 4)}"


def draw_figure(args, results):
    names = list(dict.fromkeys(part for part, _ in results))
    figure, axes = new_figure(len(names), width=3.6, height=3.3)
    for ax, part in zip(axes, names, strict=True):
        for method, (title, _, (color, style)) in METHODS.items():
            runs = [r["attack"] for r in results.get((part, method), [])]
            if runs:
                curve = np.mean([r["accuracy"] for r in runs], axis=0)
                ax.plot(runs[0]["eps"], curve, color=color, ls=style, marker=".", label=title)
        ax.set(title=part, xlabel="ζ", ylabel="accuracy, %")
    axes[0].legend(frameon=False, fontsize=7)
    caption = "Accuracy under attack against its strength ζ."
    return save_figure(args, figure, "d4_mnist_fashion", caption)


def main():
    def more(parser):
        parser.add_argument("--device", default="cpu")
        parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))

    numbers = {
        "epochs": (200, 1),
        "subset": (None, 300),
        "images": (2000, 10),
        "batch": (1000, 100),
    }
    constants = {"thinning": THINNING, "least_draws": LEAST_DRAWS, "step_size": STEP_SIZE,
                 "gain": GAIN}  # fmt: skip
    args = parse_args(__doc__, 3, 1, numbers=numbers, parts=tuple(PARTS), runs="d4_mnist_fashion",
                      constants=constants, more=more)  # fmt: skip
    warnings.simplefilter("ignore", SamplingWarning)  # of few draws of one chain
    results = {}
    for part in args.parts:
        for method in args.methods:
            for seed in args.seeds:
                stem = (
                    f"{part}-{method}-{seed}-{args.epochs}x{args.subset}x{args.batch}x{args.images}"
                )
                settings = {"part": part, "method": method, "seed": seed, "epochs": args.epochs,
                            "subset": args.subset, "batch": args.batch,
                            "images": args.images}  # fmt: skip
                found = finished(args, stem, partial(run, args, part, method, seed), **settings)
                if found is not None:
                    results.setdefault((part, method), []).append(found)
    n_rows = args.subset or 60_000
    body = BODY.format(
        rows=f"{n_rows:,}", tests=f"{min(n_rows, 10_000):,}", batch=min(args.batch, n_rows // 2),
        epochs=args.epochs, images=args.images, **tables(results),
    )  # fmt: skip
    title = "D4, D5, D6: a sparse prior of one layer, on MNIST and Fashion-MNIST"
    figure = draw_figure(args, results)
    write_results(args, "d4_mnist_fashion", title, body, [figure])


if __name__ == "__main__":
    main()
