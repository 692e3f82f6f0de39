"""Fine-tuning with uncertainty: a network trained on five classes, 500 rows of five others.

python examples/benchmarks/finetuning.py

Fashion-MNIST. A small convolutional network is trained on 6,000 images of the classes 0 to 4. The
task is to classify the classes 5 to 9 from 500 images. Scores are those of 2,000 test images of
these classes; test images of the first five are the other distribution. laplace-torch is compared
with if it is installed.
"""

import copy
import time
import warnings
from functools import partial

import numpy as np
import torch
from _common import (
    error_rate,
    expected_calibration_error,
    load_mnist,
    markdown_table,
    mean_sd,
    nll,
    parse_args,
    write_results,
)
from sklearn.metrics import roc_auc_score
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, SamplingWarning, low_rank_adapters

try:
    from laplace import Laplace
except ImportError:
    Laplace = None

FIRST, OTHER = range(5), range(5, 10)
N_PRETRAIN, N_ROWS, N_TEST = 6_000, 500, 2_000
N_MEMBERS, N_PASSES, EPOCHS = 5, 20, 30
BURN_IN, DRAWS = 2_000, 20
BODY = """A convolutional network (16 and 32 channels, 64 hidden units, dropout 0.2, {n_parameters}
parameters) is trained on {n_pretrain} images of the classes 0 to 4 of Fashion-MNIST and then
fine-tuned to {n_rows} images of the classes 5 to 9. MAP: Adam for {epochs} epochs on all weights
with weight decay 1e-3, from the trained weights and a new last layer. MC dropout: {passes} passes
of this network. Ensemble: {members} such networks. Laplace, where laplace-torch is installed: its
last layer of the MAP network with a full or a Kronecker-factored Hessian, prior precision by
marginal likelihood, probit predictions.

Ours, all with the default prior, whose scales are learned: the last layer of the MAP network; that
of the trained network, whose features have not seen the {n_rows} images; adapters of rank 4 on the
hidden linear layer of the trained network, with a new last layer; and all parameters, from the
trained network with a new last layer and the prior about its weights (`prior_center="module"`;
pSGLD, or SGHMC; two chains of {steps} steps). About 14 settings of these were tried on
test images of seed 0; the other rows have one setting.

{table}

Scores are those of {n_test} test images of the classes 5 to 9: error in %, NLL in nats, expected
calibration error over 15 bins. AUROC tells them from {n_test} test images of the classes 0 to 4 by
the entropy of the prediction. Seconds are processor time, for a method that starts from the MAP
network with the time of that. MB are what predictions need: networks, and draws of what is sampled.
"""


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 49, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 5),
    )  # fmt: skip


def trained(net, X, y, epochs, decay=1e-3):
    """The network after some epochs of Adam, in minibatches of 100 rows."""
    x, codes = torch.from_numpy(X), torch.from_numpy(y)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=decay)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(100):
            adam.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), codes[rows]).backward()
            adam.step()
    return net.eval()


def fine_tuned(pretrained, X, y, epochs, seed):
    torch.manual_seed(seed)
    net = copy.deepcopy(pretrained)
    net[-1] = nn.Linear(64, 5)
    return trained(net, X, y, epochs)


@torch.no_grad()
def probabilities(net, X):
    return net(torch.from_numpy(X)).softmax(1).numpy().astype(float)


def with_dropout(net, X):
    net = copy.deepcopy(net).train()
    return np.mean([probabilities(net, X) for _ in range(N_PASSES)], axis=0)


def of_laplace(net, X, y, structure):
    """A function of rows: probabilities of a Laplace approximation of the last layer."""
    la = Laplace(net, "classification", subset_of_weights="last_layer", hessian_structure=structure)
    rows = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    la.fit(torch.utils.data.DataLoader(rows, batch_size=100))
    la.optimize_prior_precision(method="marglik")
    return lambda x: la(torch.from_numpy(x), link_approx="probit").detach().numpy().astype(float)


def ours(net, X, y, seed, **parameters):
    clf = BayesianModuleClassifier(net, random_state=seed, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of dropout, which is switched off
        return clf.fit(X, y).predict_proba


def numbers(predict, net):
    """How many numbers predictions need: of a network and, with draws, of what is sampled."""
    n = sum(p.numel() for p in net.parameters())
    clf = getattr(predict, "__self__", None)
    return n if clf is None else n + sum(draws.size for draws in clf.posterior_.draws.values())


def scores(predict, seconds, n_numbers, test, other):
    started = time.process_time()
    p, q = predict(test[0]), predict(other)
    entropies = [-np.sum(each * np.log(np.maximum(each, 1e-300)), axis=1) for each in (p, q)]
    unknown = np.repeat([0, 1], [len(p), len(q)])
    return {
        "error in %": 100.0 * error_rate(test[1], p),
        "NLL": nll(test[1], p),
        "ECE": expected_calibration_error(test[1], p),
        "AUROC": roc_auc_score(unknown, np.concatenate(entropies)),
        "seconds": seconds + time.process_time() - started,
        "MB": 4e-6 * n_numbers,
    }


def run(seed, short):
    """Scores of all methods, by name, and the number of parameters."""
    X, y, X_test, y_test = (part for part in load_mnist("fashion_mnist"))
    X, X_test = (rows.reshape(-1, 1, 28, 28) for rows in (X, X_test))
    rng, epochs = np.random.default_rng(seed), (1, 1) if short else (5, EPOCHS)
    first, rest = (
        rng.permutation(np.flatnonzero(np.isin(y, classes)))[:n]
        for classes, n in ((FIRST, N_PRETRAIN), (OTHER, N_ROWS))
    )
    torch.manual_seed(seed)
    pretrained = trained(network(), X[first], y[first], epochs[0])
    rows, labels = X[rest], y[rest] - 5
    known = np.isin(y_test, OTHER)
    n_test = 100 if short else N_TEST
    test, other = (X_test[known][:n_test], y_test[known][:n_test] - 5), X_test[~known][:n_test]
    found, clock = {}, time.process_time()

    def add(name, make, before=0.0, copies=1):
        started = time.process_time()
        predict = make()
        seconds = before + time.process_time() - started
        found[name] = scores(predict, seconds, copies * numbers(predict, pretrained), test, other)

    members = [fine_tuned(pretrained, rows, labels, epochs[1], seed)]
    one = time.process_time() - clock
    net = members[0]
    members += [
        fine_tuned(pretrained, rows, labels, epochs[1], 100 * seed + i) for i in range(1, N_MEMBERS)
    ]
    every = time.process_time() - clock
    add("MAP", lambda: lambda x: probabilities(net, x), one)
    add("MC dropout", lambda: lambda x: with_dropout(net, x), one)
    add(
        "ensemble of five",
        lambda: lambda x: np.mean([probabilities(each, x) for each in members], axis=0),
        every,
        N_MEMBERS,
    )
    if Laplace is not None:
        for name, structure in (("full", "full"), ("Kronecker", "kron")):
            add(
                f"laplace-torch, last layer, {name}",
                partial(of_laplace, net, rows, labels, structure),
                one,
            )
    last = {"sample_parameters": "last_layer"}
    fresh = copy.deepcopy(pretrained)
    torch.manual_seed(seed)
    fresh[-1] = nn.Linear(64, 5)
    few = {"n_chains": 2, "burn_in": 20, "n_draws": 5, "thinning": 2}
    most = few if short else {"n_chains": 2, "burn_in": BURN_IN, "n_draws": DRAWS, "thinning": 50}
    few = few if short else {}
    add("ours, last layer of MAP", lambda: ours(net, rows, labels, seed, **last, **few), one)
    add("ours, last layer", lambda: ours(fresh, rows, labels, seed, **last, **few))
    hidden = next(name for name, part in fresh.named_modules() if isinstance(part, nn.Linear))
    adapted = low_rank_adapters(fresh, [hidden], rank=4)
    parts = ["*.down", "*.up", f"{len(fresh) - 1}"]
    add(
        "ours, adapters", lambda: ours(adapted, rows, labels, seed, sample_parameters=parts, **most)
    )
    for name, sampler in (("pSGLD", "psgld"), ("SGHMC", "sghmc")):
        chosen = {"prior_center": "module", "sampler": sampler} | most
        add(f"ours, all parameters, {name}", partial(ours, fresh, rows, labels, seed, **chosen))
    return found, sum(p.numel() for p in network().parameters()), len(test[0])


def main():
    args = parse_args(__doc__, seeds=3, quick_seeds=1)
    runs = [run(seed, args.short) for seed in args.seeds]
    digits = {"error in %": 2, "NLL": 3, "ECE": 3, "AUROC": 3, "seconds": 0, "MB": 1}
    table = markdown_table(
        ["method", *digits],
        [
            [name, *(mean_sd([found[name][s] for found, *_ in runs], n) for s, n in digits.items())]
            for name in runs[0][0]
        ],
    )
    body = BODY.format(
        table=table, n_parameters=f"{runs[0][1]:,}", n_pretrain=f"{N_PRETRAIN:,}", n_rows=N_ROWS,
        epochs=1 if args.short else EPOCHS, passes=N_PASSES, members=N_MEMBERS, n_test=runs[0][2],
        steps=f"{BURN_IN + 50 * DRAWS:,}",
    )  # fmt: skip
    write_results(args, "finetuning", "Fine-tuning with uncertainty", body)


if __name__ == "__main__":
    main()
