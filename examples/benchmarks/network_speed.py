"""Cost of a step of SGLD and pSGLD on networks, next to bare torch SGD, and of predictions.

    SKBAYES_DATA=folder OMP_NUM_THREADS=1 python examples/benchmarks/network_speed.py

The large network is 784-400-400-10 on MNIST, batch 100, float32. Bare SGD is a loop over
``torch.nn.Linear`` layers, cross-entropy, ``backward`` and ``torch.optim.SGD``. Ours are
differences of two fits that differ in length only, so that the set-up drops out. The convolutional
network is that of P5 (5 x 5 x 32, 5 x 5 x 64, 200-200), which bare SGD has with the channels last.
The small network is 13-50-1, regression on 500 rows, batch 50. Everything is in one process and
takes turns, in processor time of one thread, which other work on the machine changes less than wall
time; smallest of the repeats.
"""

import functools
import itertools
import os
import time
import warnings

import numpy as np
import torch
from _common import load_mnist, markdown_table, parse_args, write_results
from _images import cnn_module

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    _fused,
)

BATCH, HIDDEN = 100, (400, 400)


def bare_mlp():
    layers = []
    for before, after in itertools.pairwise([784, *HIDDEN, 10]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def bare_cnn():
    net = cnn_module((1, 28, 28), (32, 64))((200, 200), 0.0)
    return net.to(memory_format=torch.channels_last)


def bare_sgd(net, X, y, n_steps):
    """Seconds a step of torch's own SGD."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    rows, codes = torch.from_numpy(X), torch.from_numpy(y)

    def run(n):
        for chosen in torch.randint(len(X), (n, BATCH)):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(rows[chosen]), codes[chosen]).backward()
            optimiser.step()

    run(5)
    start = time.process_time()
    run(n_steps)
    return (time.process_time() - start) / n_steps


def step_time(estimator, X, y, n_steps):
    """Seconds a step, from fits of n_steps and of three times as many."""

    def fit_time(n):
        start = time.process_time()
        estimator.set_params(thinning=n // 2).fit(X, y)
        return time.process_time() - start

    fit_time(20)
    return (fit_time(3 * n_steps) - fit_time(n_steps)) / (2 * n_steps)


def network(sampler, n_chains, compiled):
    return large(BayesianMLPClassifier, sampler, n_chains, compiled, hidden_layer_sizes=HIDDEN)


def cnn(sampler, compiled):
    layers = {"conv_channels": (32, 64), "kernel_size": 5, "hidden_layer_sizes": (200, 200)}
    return large(BayesianCNNClassifier, sampler, 1, compiled, **layers)


def large(kind, sampler, n_chains, compiled, **layers):
    return kind(
        **layers,
        standardize=False,
        prior_scale=1.0,
        sampler=sampler,
        step_size=1e-4,
        batch_size=BATCH,
        n_chains=n_chains,
        n_draws=2,
        burn_in=0,
        compiled=compiled,
        dtype="float32",
        device="cpu",
        random_state=0,
    )


def small_network(n_chains):
    return BayesianMLPRegressor(
        hidden_layer_sizes=50,
        step_size=1e-3,
        batch_size=50,
        n_chains=n_chains,
        n_draws=2,
        burn_in=0,
        compiled=False,
        device="cpu",
        random_state=0,
    )


def main():
    args = parse_args(__doc__, seeds=3, quick_seeds=1)
    warnings.simplefilter("ignore")
    _fused.WORTH_NUMBERS = 0  # compile, however short the run
    n_steps = 40 if args.quick else 400
    X, y, X_test, _ = load_mnist()
    X, y = X[:20_000], y[:20_000]
    rng = np.random.default_rng(0)
    X_small, y_small = rng.standard_normal((500, 13)), rng.standard_normal(500)
    jobs = {("bare SGD", 1): functools.partial(bare_sgd, bare_mlp(), X, y, n_steps)}
    for sampler in ("sgld", "psgld"):
        for compiled in (False, "auto"):
            for chains in (1, 4):
                label = f"{sampler}, {'compiled step' if compiled else 'torch alone'}"
                jobs[label, chains] = functools.partial(
                    step_time, network(sampler, chains, compiled), X, y, n_steps // chains
                )
    few = n_steps // 10
    jobs["CNN, bare SGD", 1] = functools.partial(bare_sgd, bare_cnn(), X, y, few)
    for sampler, compiled in (("sgld", False), ("psgld", False), ("sgld", True), ("psgld", True)):
        label = f"CNN, {sampler}, {'compiled step' if compiled else 'torch alone'}"
        jobs[label, 1] = functools.partial(step_time, cnn(sampler, compiled), X, y, few)
    for chains in (1, 8):
        jobs["small network, psgld", chains] = functools.partial(
            step_time, small_network(chains), X_small, y_small, 10 * n_steps
        )
    ms = dict.fromkeys(jobs, np.inf)
    for _ in args.seeds:
        for key, job in jobs.items():
            ms[key] = min(ms[key], 1e3 * job())
            print(key, f"{ms[key]:.3f} ms", flush=True)
    fitted = network("sgld", 1, False).set_params(n_draws=100, thinning=1).fit(X, y)
    start = time.process_time()
    fitted.predict_proba(X_test)
    prediction = time.process_time() - start

    rows = []
    for (label, chains), value in ms.items():
        bare = ms["CNN, bare SGD" if label.startswith("CNN") else "bare SGD", 1]
        by_bare = "-" if label.startswith("small") else f"{value / bare:.2f}"
        rows.append([label, chains, f"{value:.3f}", by_bare, f"{value / ms[label, 1]:.2f}"])
    header = ["step", "chains", "ms", "/ bare SGD", "/ one chain"]
    write_results(
        args,
        "network_speed",
        "Speed of networks",
        f"""
784-400-400-10 (478,410 parameters), batch 100, float32; "small" is 13-50-1, batch 50, float64. A
step moves all chains. Targets on this table: SGLD and pSGLD at most 1.25 times bare SGD by torch
alone and 1.0 times with compiled steps, on the CNN at most 1.05 times; four chains at most 3.2
times one; eight chains of the small network at most twice one.

{markdown_table(header, rows)}

Predictions of 100 draws for 10,000 rows: {prediction:.1f} s of processor time
({2e-9 * 478410 * 100 * 10_000 / prediction:.0f} GFLOP/s).
""",
        spread=f"Smallest of {len(args.seeds)} repeats.",
    )


if __name__ == "__main__":
    assert os.environ.get("OMP_NUM_THREADS") == "1", "set OMP_NUM_THREADS=1"
    main()
