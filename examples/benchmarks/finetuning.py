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
from functools import lru_cache, partial
from types import SimpleNamespace

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
FEW_BURN_IN = 400  # of MCLMC, whose steps cost two gradients of all rows
TRIED = 18
BODY = """A convolutional network (16 and 32 channels, 64 hidden units, dropout 0.2, {n_parameters}
parameters) is trained on {n_pretrain} images of the classes 0 to 4 of Fashion-MNIST and then
fine-tuned to {n_rows} images of the classes 5 to 9. MAP: Adam for {epochs} epochs on all weights
with weight decay 1e-3, from the trained weights and a new last layer. MC dropout: {passes} passes
of this network. Ensemble: {members} such networks. Laplace, where laplace-torch is installed: its
last layer of the MAP network with a full or a Kronecker-factored Hessian, prior precision by
marginal likelihood, probit predictions.

Ours, all with the default prior, whose scales are learned, or estimated if only a last layer is
sampled. From the trained network with a new last layer, which has not seen the {n_rows} images: the
last layer; adapters of rank 4 on the hidden linear layer and the last layer; and all parameters.
From the MAP network: the last layer, and all parameters.
Where all parameters are sampled, the prior is centred at the weights of the start
(`prior_center="module"`). From the MAP network this counts the {n_rows} images twice, once in the
centre and once in the likelihood. These and the adapters have two chains, with pSGLD and SGHMC of
{steps} steps, with MCLMC of {few_steps}. About {tried} settings of adapters and all parameters were
tried on test images of seed 0, among them those of these rows; all other rows have one setting.

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


def of_ensemble(members, X):
    return np.mean([probabilities(each, X) for each in members], axis=0)


def of_laplace(s, structure):
    """A function of rows: probabilities of a Laplace approximation of the last layer."""
    la = Laplace(
        s.MAP, "classification", subset_of_weights="last_layer", hessian_structure=structure
    )
    rows = torch.utils.data.TensorDataset(torch.from_numpy(s.rows), torch.from_numpy(s.labels))
    la.fit(torch.utils.data.DataLoader(rows, batch_size=100))
    la.optimize_prior_precision(method="marglik")
    return lambda x: la(torch.from_numpy(x), link_approx="probit").detach().numpy().astype(float)


def ours(s, net, **parameters):
    clf = BayesianModuleClassifier(net, random_state=s.seed, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of dropout, which is switched off
        return clf.fit(s.rows, s.labels).predict_proba


def of_all(start, parameters, s):
    return ours(s, getattr(s, start), **parameters)


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


@lru_cache(maxsize=1)
def started(seed, short):
    """Rows, test rows and trained networks of a seed, and the seconds that these have taken."""
    X, y, X_test, y_test = load_mnist("fashion_mnist")
    X, X_test = (rows.reshape(-1, 1, 28, 28) for rows in (X, X_test))
    rng, epochs = np.random.default_rng(seed), (1, 1) if short else (5, EPOCHS)
    first, rest = (
        rng.permutation(np.flatnonzero(np.isin(y, classes)))[:n]
        for classes, n in ((FIRST, N_PRETRAIN), (OTHER, N_ROWS))
    )
    torch.manual_seed(seed)
    pretrained = trained(network(), X[first], y[first], epochs[0])
    rows, labels, known = X[rest], y[rest] - 5, np.isin(y_test, OTHER)
    n_test = tested(short)
    clock, members, seconds = time.process_time(), [], []
    for i in range(N_MEMBERS):
        # the first is the MAP network of the other methods
        members.append(
            fine_tuned(pretrained, rows, labels, epochs[1], 100 * seed + i if i else seed)
        )
        seconds.append(time.process_time() - clock)
    torch.manual_seed(seed)
    fresh = copy.deepcopy(pretrained)
    fresh[-1] = nn.Linear(64, 5)
    return SimpleNamespace(
        seed=seed, rows=rows, labels=labels, members=members, MAP=members[0], fresh=fresh,
        test=(X_test[known][:n_test], y_test[known][:n_test] - 5), other=X_test[~known][:n_test],
        seconds={"fresh": 0.0, "MAP": seconds[0], "members": seconds[-1]},
    )  # fmt: skip


def tested(short):
    return 100 if short else N_TEST


def with_adapters(s, **parameters):
    hidden = next(name for name, part in s.fresh.named_modules() if isinstance(part, nn.Linear))
    adapted = low_rank_adapters(s.fresh, [hidden], rank=4)
    parts = ["*.down", "*.up", f"{len(s.fresh) - 1}"]
    return ours(s, adapted, sample_parameters=parts, **parameters)


def methods(short):
    """By name: what a method starts from, and a function of :func:`started` that runs it."""
    few = {"n_chains": 2, "burn_in": 20, "n_draws": 5, "thinning": 2}
    most = few if short else {"n_chains": 2, "burn_in": BURN_IN, "n_draws": DRAWS, "thinning": 50}
    fewer = few if short else most | {"burn_in": FEW_BURN_IN, "thinning": 10}
    last = {"sample_parameters": "last_layer"} | (few if short else {})
    found = {
        "MAP": ("MAP", lambda s: partial(probabilities, s.MAP)),
        "MC dropout": ("MAP", lambda s: partial(with_dropout, s.MAP)),
        "ensemble of five": ("members", lambda s: partial(of_ensemble, s.members)),
    }
    if Laplace is not None:
        for name, structure in (("full", "full"), ("Kronecker", "kron")):
            laplace = partial(of_laplace, structure=structure)
            found[f"laplace-torch, last layer, {name}"] = "MAP", laplace
    found["ours, last layer of MAP"] = "MAP", lambda s: ours(s, s.MAP, **last)
    found["ours, last layer"] = "fresh", lambda s: ours(s, s.fresh, **last)
    found["ours, adapters"] = "fresh", partial(with_adapters, **most)
    for name, start in (("", "fresh"), (" from MAP", "MAP")):
        for sampler in ("pSGLD", "SGHMC") + (("MCLMC",) if name else ()):
            chosen = {"prior_center": "module", "sampler": sampler.lower()}
            chosen |= fewer if sampler == "MCLMC" else most
            found[f"ours, all parameters{name}, {sampler}"] = start, partial(of_all, start, chosen)
    return found


def run(seed, short, name):
    """Scores of one method."""
    s = started(seed, short)
    start, make = methods(short)[name]
    began = time.process_time()
    predict = make(s)
    seconds = s.seconds[start] + time.process_time() - began
    n_numbers = (N_MEMBERS if start == "members" else 1) * numbers(predict, s.fresh)
    return scores(predict, seconds, n_numbers, s.test, s.other)


def main():
    constants = {
        "pretrain": N_PRETRAIN, "rows": N_ROWS, "test": N_TEST, "epochs": EPOCHS,
        "burn_in": BURN_IN, "draws": DRAWS, "few_burn_in": FEW_BURN_IN,
    }  # fmt: skip
    args = parse_args(__doc__, seeds=3, quick_seeds=1, runs="finetuning", constants=constants)
    digits = {"error in %": 2, "NLL": 3, "ECE": 3, "AUROC": 3, "seconds": 0, "MB": 1}
    found = {name: [] for name in methods(args.short)}
    for seed in args.seeds:
        for name, scored in found.items():
            numbers = finished(args, f"{name}-{seed}", partial(run, seed, args.short, name))
            scored += [] if numbers is None else [numbers]
    table = markdown_table(
        ["method", *digits],
        [
            [name, *(mean_sd([each[score] for each in scored], n) for score, n in digits.items())]
            for name, scored in found.items()
            if scored
        ],
    )
    body = BODY.format(
        table=table, n_parameters=f"{sum(p.numel() for p in network().parameters()):,}",
        n_pretrain=f"{N_PRETRAIN:,}", n_rows=N_ROWS, epochs=1 if args.short else EPOCHS,
        passes=N_PASSES, members=N_MEMBERS, n_test=tested(args.short),
        steps=f"{BURN_IN + 50 * DRAWS:,}", few_steps=FEW_BURN_IN + 10 * DRAWS, tried=TRIED,
    )  # fmt: skip
    write_results(args, "finetuning", "Fine-tuning with uncertainty", body)


if __name__ == "__main__":
    main()
