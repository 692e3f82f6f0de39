"""Cost of a step of SGLD and pSGLD on networks, next to bare torch SGD, and of predictions.

    SKBAYES_DATA=folder OMP_NUM_THREADS=1 python examples/benchmarks/network_speed.py

The large network is 784-400-400-10 on MNIST, batch 100, float32. Bare SGD is a loop over
``torch.nn.Linear`` layers, cross-entropy, ``backward`` and ``torch.optim.SGD``. Ours are
differences of two fits that differ in length only, so that the set-up drops out. The convolutional
network is that of P5 (5 x 5 x 32, 5 x 5 x 64, 200-200), which bare SGD has with the channels last.
The small network is 13-50-1, regression on 500 rows, batch 50. Everything is in one process and
takes turns; smallest of the repeats. With one thread it is in processor time, which other work on
the machine changes less than wall time. With more (no ``OMP_NUM_THREADS``), on a quiet machine, it
is in wall time, and four chains are also measured in that many processes (``n_jobs``). Other
libraries (``requirements-peers.txt``) are in it if they are installed: with ``NPROC=1``, so that
jax has one thread.
"""

import functools
import itertools
import resource
import time
import warnings

import numpy as np
import torch
from _common import load_mnist, markdown_table, parse_args, write_results
from _images import cnn_module
from _network_peers import peer_steps, predictors

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
)

BATCH, HIDDEN = 100, (400, 400)
THREADS = torch.get_num_threads()
clock = time.process_time if THREADS == 1 else time.perf_counter


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
    start = clock()
    run(n_steps)
    return (clock() - start) / n_steps


def step_time(estimator, X, y, n_steps):
    """Seconds a step, from fits of n_steps and of three times as many."""

    def fit_time(n):
        start = clock()
        estimator.set_params(thinning=n // 2).fit(X, y)
        return clock() - start

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


def peer_time(run, n_steps):
    """Seconds a step of another library, which compiles at the first call."""
    run(n_steps)
    start = clock()
    position = run(n_steps)
    seconds = (clock() - start) / n_steps
    leaves = torch.utils._pytree.tree_leaves(position)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves)
    return seconds


def prediction_times(X, y, X_test):
    """Seconds and extra MB of 100 draws' average, ours and in plain torch: (label, s, MB) rows."""
    clf = network("sgld", 1, False).set_params(n_draws=100, thinning=1).fit(X, y)
    ways = {"skbayes_sgmcmc": lambda: clf.predict_proba(X_test)}
    states = {}
    for layer, place in enumerate((0, 2, 4), 1):
        draws = [clf.posterior_[f"{kind}_{layer}"][0] for kind in ("weight", "bias")]
        states[f"{place}.weight"] = torch.tensor(draws[0]).mT.contiguous()
        states[f"{place}.bias"] = torch.tensor(draws[1])
    ways |= predictors(bare_mlp(), states, X_test)
    rows, expected = [], ways["skbayes_sgmcmc"]()
    with torch.no_grad():
        for label, way in ways.items():
            before = peak_memory()
            start = clock()
            p = np.asarray(way())
            seconds = clock() - start
            np.testing.assert_allclose(p, expected, atol=1e-4)
            rows.append([label, f"{seconds:.1f}", f"{peak_memory() - before:.0f}"])
            print(*rows[-1], flush=True)
    return rows


def peak_memory():
    """MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make_jobs(X, y, n_steps):
    """What returns the seconds of a step, by label and number of chains."""
    jobs = {("bare SGD", 1): functools.partial(bare_sgd, bare_mlp(), X, y, n_steps)}
    for sampler in ("sgld", "psgld"):
        for compiled in (False, True):
            for chains in (1, 4):
                label = f"{sampler}, {'compiled step' if compiled else 'torch alone'}"
                jobs[label, chains] = functools.partial(
                    step_time, network(sampler, chains, compiled), X, y, n_steps // chains
                )
            if THREADS > 1:
                model = network(sampler, 4, compiled).set_params(n_jobs=THREADS)
                jobs[f"{label}, n_jobs={THREADS}", 4] = functools.partial(
                    step_time, model, X, y, n_steps
                )
    few = n_steps // 10
    jobs["CNN, bare SGD", 1] = functools.partial(bare_sgd, bare_cnn(), X, y, few)
    for sampler, compiled in (("sgld", False), ("psgld", False), ("sgld", True), ("psgld", True)):
        label = f"CNN, {sampler}, {'compiled step' if compiled else 'torch alone'}"
        jobs[label, 1] = functools.partial(step_time, cnn(sampler, compiled), X, y, few)
    rng = np.random.default_rng(0)
    X_small, y_small = rng.standard_normal((500, 13)), rng.standard_normal(500)
    for chains in (1, 8):
        jobs["small network, psgld", chains] = functools.partial(
            step_time, small_network(chains), X_small, y_small, 10 * n_steps
        )
    for key, take_steps in peer_steps(bare_mlp(), (784, *HIDDEN, 10), X, y, BATCH).items():
        jobs[key] = functools.partial(peer_time, take_steps, n_steps // key[1])
    return jobs


def main():
    args = parse_args(__doc__, seeds=3, quick_seeds=1)
    warnings.simplefilter("ignore")
    n_steps = 40 if args.quick else 400
    X, y, X_test, _ = load_mnist()
    X, y = X[:20_000], y[:20_000]
    jobs = make_jobs(X, y, n_steps)
    ms = dict.fromkeys(jobs, np.inf)
    for _ in args.seeds:
        for key, job in jobs.items():
            ms[key] = min(ms[key], 1e3 * job())
            print(key, f"{ms[key]:.3f} ms", flush=True)
    predictions = prediction_times(X, y, X_test)
    rows = []
    for (label, chains), value in ms.items():
        bare = ms["CNN, bare SGD" if label.startswith("CNN") else "bare SGD", 1]
        by_bare = "-" if label.startswith("small") else f"{value / bare:.2f}"
        alone = label.split(", n_jobs")[0], 1
        by_one = f"{value / ms[alone]:.2f}" if alone in ms else "-"
        rows.append([label, chains, f"{value:.3f}", by_bare, by_one])
    header = ["step", "chains", "ms", "/ bare SGD", "/ one chain"]
    time_of = "Processor time" if THREADS == 1 else f"Wall time, {THREADS} threads"
    write_results(
        args,
        "network_speed",
        "Speed of networks",
        f"""
784-400-400-10 (478,410 parameters), batch 100, float32; "small" is 13-50-1, batch 50, float64. A
step moves all chains. {time_of}. Targets on this table: SGLD and pSGLD at most 1.25 times bare SGD
by torch alone and 1.0 times with compiled steps, on the CNN at most 1.05 times; four chains at most
3.2 times one; eight chains of the small network at most twice one.

{markdown_table(header, rows)}

The next table has average probabilities of 100 draws for {len(X_test):,} rows ({
            1e-10
            * 478410
            * len(X_test)
            * 2:.2f} TFLOP), computed by this package and by plain torch, and the rise in the
process's peak memory (in this order, so that a way that needs less memory than an earlier one shows
0):

{markdown_table(["prediction", "s", "extra MB"], predictions)}
""",
        spread=f"Smallest of {len(args.seeds)} repeats.",
    )


if __name__ == "__main__":
    main()
