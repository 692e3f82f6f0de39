"""Untuned networks for images beside what one would otherwise train: MNIST and Fashion-MNIST.

SKBAYES_DATA=folder python examples/benchmarks/images.py

10,000 training images, all 10,000 test images; the other set's test images are out of distribution.
The scores of finished runs are stored in the file ``--runs`` and are not computed again.
"""

import copy
import time
import warnings

import numpy as np
import torch
from _common import (
    error_rate,
    expected_calibration_error,
    finished,
    load_mnist,
    markdown_table,
    mean_sd,
    nll,
    parse_args,
    write_results,
)
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from torch import nn

from skbayes_sgmcmc import BayesianCNNClassifier, BayesianMLPClassifier, SamplingWarning

OTHER = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}
N_MEMBERS, N_PASSES, HELD_OUT, PATIENCE, BATCH, DROPOUT = 5, 50, 0.1, 10, 100, 0.25
MAX_STEPS = 300
FEW_STEPS = f"BayesianCNNClassifier, `max_steps={MAX_STEPS}`"
COLUMNS = {"error": 2, "nll": 3, "ece": 3, "entropy": 2, "far": 2, "auroc": 3, "seconds": 0}
HEADER = [
    "", "test error, %", "NLL", "ECE", "entropy", "entropy of the other set", "AUROC", "seconds",
]  # fmt: skip
BODY = """
{n_train} training images, chosen by the seed, and all test images, as pixels in [0, 1]. No method
has data augmentation. The estimators of this package have no arguments but `random_state` and, in
one row, `max_steps`, so the temperature is 1, the priors are learned or "fan_in", and the
probabilities calibrated by runs that leave out rows, all as by default. MLPClassifier has
`early_stopping=True`. The convolutional networks beside `BayesianCNNClassifier` are the same
network, trained by Adam with minibatches of {batch} until the loss of a tenth of the rows, which
are held out, has not fallen for {patience} epochs; dropout ({dropout}, {passes} passes) is before
its fully connected layers. Five networks are
averaged. ECE has 15 bins. Entropy is that of the mean prediction, in nats; AUROC is that of telling
the other set's test images by it. Seconds are processor time of fits, one thread, taken while other
work ran on the machine: compare them within a table only.

{tables}

## What it shows

Targets at T = 1, untuned: on MNIST an error of at most 4.9%, NLL 0.155 and ECE 0.010 in 40 s; on
Fashion-MNIST an NLL no worse than that of the five networks.

{verdict}

The average over draws at T = 1 is underconfident: it is right more often than it says, and wider
priors, larger steps and longer runs change little of that: see
[how](../project/network_defaults.md#how-the-defaults-of-classification-were-chosen) the defaults
were chosen. Without `calibrate`, seed 0 had these figures: BayesianMLPClassifier 0.142 and 0.041 on
MNIST (NLL and ECE) and 0.403 and 0.035 on Fashion-MNIST; BayesianCNNClassifier, then with
`prior_scale="fan_in"`, 0.078 and 0.036, 0.349 and 0.051.
"""


class Network(nn.Module):
    """The network of ``BayesianCNNClassifier()`` for 28 x 28 pixels."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(784, 64), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x.view(-1, 1, 28, 28))


def adam(X, y, seed, max_epochs, dropout=0.0):
    """A network at the epoch with the lowest loss of the rows that were held out."""
    torch.manual_seed(seed)
    net = Network(dropout)
    x, labels, order = torch.from_numpy(X), torch.from_numpy(y), torch.randperm(len(X))
    held_out, rows = order.split([int(HELD_OUT * len(X)), len(X) - int(HELD_OUT * len(X))])
    optimizer, lowest, waited = torch.optim.Adam(net.parameters()), np.inf, 0
    for _ in range(max_epochs):
        net.train()
        for batch in rows[torch.randperm(len(rows))].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), labels[batch]).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            loss = float(nn.functional.cross_entropy(net(x[held_out]), labels[held_out]))
        waited += 1
        if loss < lowest:
            lowest, best, waited = loss, copy.deepcopy(net.state_dict()), 0
        if waited == PATIENCE:
            break
    net.load_state_dict(best)
    return net


def probabilities(nets, X, n_passes=1):
    """The mean of the networks' predictions; with several passes, units are dropped."""
    x, found = torch.from_numpy(X), []
    for net in nets:
        net.train(n_passes > 1)
        with torch.no_grad():
            found += [
                torch.cat([net(part).softmax(1) for part in x.split(1000)]) for _ in range(n_passes)
            ]
    return torch.stack(found).double().mean(0).numpy()


def perceptrons(X, y, seed, args, n_members=1):
    parameters = {"early_stopping": True, "max_iter": 200 if args.epochs > 5 else args.epochs}
    nets = [
        MLPClassifier(random_state=100 * seed + k, **parameters).fit(X, y) for k in range(n_members)
    ]
    return lambda Z: np.mean([net.predict_proba(Z) for net in nets], axis=0)


def convolutions(X, y, seed, args, n_members=1, dropout=0.0):
    nets = [adam(X, y, 100 * seed + k, args.epochs, dropout) for k in range(n_members)]
    return lambda Z: probabilities(nets, Z, N_PASSES if dropout else 1)


def ours(estimator, **options):
    def fit(X, y, seed, args):
        short = {"burn_in": 20, "n_draws": 5, "thinning": 1, "n_chains": 2} if args.short else {}
        return estimator(random_state=seed, **options | short).fit(X, y).predict_proba

    return fit


METHODS = {
    "MLPClassifier, early stopping": perceptrons,
    "five of them": lambda *which: perceptrons(*which, n_members=N_MEMBERS),
    "**BayesianMLPClassifier**": ours(BayesianMLPClassifier),
    "convolutions, Adam": convolutions,
    "five of them, averaged": lambda *which: convolutions(*which, n_members=N_MEMBERS),
    "convolutions, Adam, dropout": lambda *which: convolutions(*which, dropout=DROPOUT),
    "**BayesianCNNClassifier**": ours(BayesianCNNClassifier),
    FEW_STEPS: ours(BayesianCNNClassifier, max_steps=MAX_STEPS),
}


def entropy(p):
    return -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1)


def run(method, name, seed, args):
    """The scores of one fit."""
    X, y, X_test, y_test = load_mnist(name)
    far = load_mnist(OTHER[name])[2]
    rows = np.random.default_rng(seed).permutation(len(X))[: args.rows]
    start = time.process_time()
    predict = METHODS[method](np.ascontiguousarray(X[rows]), y[rows], seed, args)
    seconds = time.process_time() - start
    p, p_far = predict(X_test), predict(far)
    own, other = entropy(p), entropy(p_far)
    return {
        "error": 100 * error_rate(y_test, p),
        "nll": nll(y_test, p),
        "ece": expected_calibration_error(y_test, p),
        "entropy": float(own.mean()),
        "far": float(other.mean()),
        "auroc": float(roc_auc_score(np.repeat([0, 1], [len(own), len(other)]), [*own, *other])),
        "seconds": seconds,
    }


def verdict(scores):
    """Which targets are met, from the means over the seeds."""

    def of(name, method, column):
        values = [numbers[column] for numbers in scores.get((name, method), [])]
        return np.mean(values) if values else np.nan

    lines = []
    for method in ("**BayesianMLPClassifier**", "**BayesianCNNClassifier**", FEW_STEPS):
        found = {column: of("mnist", method, column) for column in COLUMNS}
        bounds = {"error": 4.9, "nll": 0.155, "ece": 0.010, "seconds": 40.0}
        met = [c for c, bound in bounds.items() if found[c] <= bound]
        missed = [c for c in bounds if c not in met]
        line = f"* {method} on MNIST: met {', '.join(met) or 'none'}; "
        lines.append(line + f"missed {', '.join(missed) or 'none'}.")
    for ours_, five in (
        ("**BayesianMLPClassifier**", "five of them"),
        ("**BayesianCNNClassifier**", "five of them, averaged"),
    ):
        a, b = (of("fashion_mnist", method, "nll") for method in (ours_, five))
        word = "met" if a <= b else "missed"
        lines.append(f"* {ours_} on Fashion-MNIST: NLL {a:.3f} beside {b:.3f} of the five, {word}.")
    return "\n".join(lines)


def main():
    args = parse_args(
        __doc__,
        seeds=3,
        quick_seeds=1,
        numbers={"rows": (10_000, 500), "epochs": (200, 2)},
        parts=tuple(OTHER),
        runs="images",
    )
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", SamplingWarning)
    scores = {}
    for seed in args.seeds:
        for name in args.parts:
            for method in METHODS:
                settings = {"rows": args.rows, "epochs": args.epochs, "set": name, "seed": seed}
                numbers = finished(
                    args,
                    f"{name}-{method.strip('*')}-{seed}",
                    lambda m=method, n=name, s=seed: run(m, n, s, args),
                    **settings,
                )
                if numbers is not None:
                    scores.setdefault((name, method), []).append(numbers)
                    print(name, method, seed, numbers, flush=True)
    tables = []
    for name in args.parts:
        rows = [
            [method]
            + [mean_sd([n[c] for n in scores[name, method]], d) for c, d in COLUMNS.items()]
            for method in METHODS
            if (name, method) in scores
        ]
        tables.append(f"## {name}\n\n{markdown_table(HEADER, rows)}")
    body = BODY.format(
        n_train=f"{args.rows:,}", batch=BATCH, patience=PATIENCE, dropout=DROPOUT, passes=N_PASSES,
        tables="\n\n".join(tables), verdict=verdict(scores),
    )  # fmt: skip
    write_results(args, "images", "Images, untuned", body)


if __name__ == "__main__":
    main()
