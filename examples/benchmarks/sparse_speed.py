"""Cost of a step with a spike-and-slab prior, and the share of its latent variables in it.

    SKBAYES_DATA=folder OMP_NUM_THREADS=1 python examples/benchmarks/sparse_speed.py

Steps with ``adaptation="sa"`` and with ``adaptation=None`` (the latents stay, so that the
difference is their update) are differences of two fits that differ in length only, each the
smallest processor time of one thread in several repeats, which take turns.
"""

import time
import warnings

import numpy as np
from _common import load_mnist, markdown_table, parse_args, write_results

from skbayes_sgmcmc import SparseBayesianClassifier, SparseBayesianRegressor

BODY = """
Microseconds a step of one chain, float32. "Wide": the regression of D1, 100 rows, 1,000 features,
minibatches of 50, SGLD. "Network": 784-400-400-10 on MNIST, minibatches of 100, SGHMC, the prior on
all weights. The compiled rows, which long runs use where numba is installed (extra `fast`), compile
the latents' update, their part of the gradient, a linear model's gradient, and SGLD's step.

{table}

"Share" is the part of a whole step that the latents' update takes.
"""


def wide(**settings):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 1000))
    y = X[:, :3] @ [3.0, 2.0, 1.0] + rng.standard_normal(100)
    return SparseBayesianRegressor(sampler="sgld", batch_size=50, **settings), X, y, 0.001


def network(**settings):
    X, y, _, _ = load_mnist()
    model = SparseBayesianClassifier(
        hidden_layer_sizes=(400, 400), sampler="sghmc", batch_size=100, **settings
    )
    return model, X[:10_000], y[:10_000], 0.001


CASES = {"wide": (wide, 3000), "network": (network, 60)}


def measure(make, n_steps, compiled, repeats):
    """Seconds a step with the latents at rest and with their update."""
    lengths = (n_steps, 3 * n_steps)
    times = {(adaptation, length): [] for adaptation in (None, "sa") for length in lengths}
    for repeat in range(repeats + 1):
        for (adaptation, length), found in times.items():
            model, X, y, step = make(
                adaptation=adaptation, compiled=compiled, n_chains=1, n_draws=2, burn_in=0,
                thinning=length // 2, dtype="float32", random_state=0, init="random",
                standardize=False,
            )  # fmt: skip
            model.set_params(step_size=step)
            start = time.process_time()
            model.fit(X, y)
            if repeat:  # the first one compiles
                found.append(time.process_time() - start)
    return [
        (min(times[adaptation, lengths[1]]) - min(times[adaptation, lengths[0]])) / (2 * n_steps)
        for adaptation in (None, "sa")
    ]


def main():
    args = parse_args(__doc__, 1, 1, numbers={"repeats": (5, 1)})
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (make, n_steps) in CASES.items():
            for compiled in (True, False):
                steps = max(10, n_steps // 10) if args.quick else n_steps
                rest, moving = measure(make, steps, compiled, args.repeats)
                rows.append([
                    f"{name}, {'compiled' if compiled else 'torch alone'}",
                    f"{1e6 * rest:.0f}", f"{1e6 * moving:.0f}", f"{1.0 - rest / moving:.0%}",
                ])  # fmt: skip
    header = ["", "latents at rest", "with their update", "share"]
    body = BODY.format(table=markdown_table(header, rows))
    write_results(args, "sparse_speed", "Speed of spike-and-slab priors", body)


if __name__ == "__main__":
    main()
