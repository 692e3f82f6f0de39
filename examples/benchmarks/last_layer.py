"""The posterior of a last layer of 100,000 rows of 512 features and 10 classes: what it takes.

python examples/benchmarks/last_layer.py

The features are simulated, and cached first, as they are where the part before the last layer is
frozen.
"""

import time
import warnings
from functools import partial

import numpy as np
import torch
from _common import finished, markdown_table, parse_args, write_results
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, SamplingWarning
from skbayes_sgmcmc.diagnostics import summary

N_CLASSES = 10
BODY = """{table}

The layer has {n_parameters:,} weights and biases, all rows fit into memory, and all parameters of
the estimator are the defaults (`sample_parameters="last_layer"`): {n_chains} chains, whose prior
scale is learned. Seconds are processor time of one thread for `fit`, the features included, which
here are the rows themselves. R-hat and the effective sample size are the worst of all weights and
biases. The target is 30 s on two cores for an R-hat of 1.02.

The features are positive parts of normal numbers whose principal axes have sds from 4 to 0.18, and
the classes are drawn from a softmax of a linear function of them. Features of a trained network,
whose classes are nearly certain, were not measured.
"""


def simulated(n_rows, width):
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((width, width)))[0]
    spread = 4.0 * np.arange(1, width + 1) ** -0.5
    X = np.maximum((rng.standard_normal((n_rows, width)) * spread) @ axes, 0.0).astype(np.float32)
    logits = X @ (rng.standard_normal((width, N_CLASSES)) * 4.0 / np.sqrt(width))
    logits -= logits.mean(0)
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(1)


def measured(n_rows, width):
    """Seconds, steps, R-hat and effective sample size of a fit."""
    X, y = simulated(n_rows, width)
    torch.manual_seed(0)
    layer = nn.Linear(X.shape[1], N_CLASSES)
    clf = BayesianModuleClassifier(layer, sample_parameters="last_layer", random_state=0)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # R-hat is in the table
        clf.fit(X, y)
    seconds = time.process_time() - started
    table = summary(clf.posterior_)
    worst = {"R-hat": float(max(table["r_hat"])), "ESS": float(min(table["ess"]))}
    return {"fit": seconds, "steps": clf.n_steps_, "chains": clf.n_chains} | worst


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1, runs="last_layer")
    n_rows, width = (2_000, 32) if args.short else (100_000, 512)
    settings = {"rows": n_rows, "features": width, "classes": N_CLASSES}
    found = finished(args, "simulated", partial(measured, n_rows, width), **settings)
    if found is None:
        raise SystemExit("--no-new needs a stored run.")
    line = [
        f"{n_rows:,} x {width}", f"{found['fit']:.0f}", f"{found['steps']:,}",
        f"{found['R-hat']:.3f}", f"{found['ESS']:.0f}",
    ]  # fmt: skip
    body = BODY.format(
        table=markdown_table(["rows", "seconds", "steps", "R-hat", "ESS"], [line]),
        n_parameters=N_CLASSES * (width + 1), n_chains=found["chains"],
    )  # fmt: skip
    write_results(args, "last_layer", "A last layer of many rows", body)


if __name__ == "__main__":
    main()
