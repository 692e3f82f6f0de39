"""The posterior of a last layer of 100,000 rows of 512 features and 10 classes: what it takes.

python examples/benchmarks/last_layer.py

The features are cached first, as they are when the part before the last layer is frozen. They are
simulated, or those of a small network of images of Fashion-MNIST and their mirror images.
"""

import time
import warnings
from functools import partial

import numpy as np
import torch
from _common import finished, load_mnist, markdown_table, parse_args, write_results
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, SamplingWarning
from skbayes_sgmcmc.diagnostics import summary

N_CLASSES, N_TRAINED, EPOCHS = 10, 10_000, 5
BODY = """{table}

The layer has {n_parameters:,} weights and biases, all rows fit into memory, and all parameters of
the estimator are the defaults (`sample_parameters="last_layer"`): {n_chains} chains, whose prior
scale is learned. Seconds are processor time of one thread for `fit`, the features included, which
here are the rows themselves. R-hat and the effective sample size are the worst of all weights and
biases. The target is 30 s on two cores for an R-hat of 1.02.

Simulated: positive parts of normal numbers whose principal axes have sds from 4 to 0.18, and
classes drawn from a softmax of a linear function of them. Images: features of a convolutional
network (16 and 32 channels), trained for {epochs} epochs on {n_trained} images of Fashion-MNIST,
of all training images and of mirror images.
"""


def simulated(n_rows, width):
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((width, width)))[0]
    spread = 4.0 * np.arange(1, width + 1) ** -0.5
    X = np.maximum((rng.standard_normal((n_rows, width)) * spread) @ axes, 0.0).astype(np.float32)
    logits = X @ (rng.standard_normal((width, N_CLASSES)) * 4.0 / np.sqrt(width))
    logits -= logits.mean(0)
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(1)


def of_images(n_rows, width, n_trained):
    X, y, *_ = load_mnist("fashion_mnist")
    images = torch.from_numpy(X.reshape(-1, 1, 28, 28))
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 49, width), nn.ReLU(),
    )  # fmt: skip
    net = nn.Sequential(body, nn.Linear(width, N_CLASSES))
    adam, codes = torch.optim.Adam(net.parameters(), lr=1e-3), torch.from_numpy(y)
    for _ in range(EPOCHS):
        for rows in torch.randperm(min(n_trained, len(y))).split(100):
            adam.zero_grad()
            nn.functional.cross_entropy(net(images[rows]), codes[rows]).backward()
            adam.step()
    both, labels = torch.cat([images, images.flip(3)])[:n_rows], np.concatenate([y, y])[:n_rows]
    with torch.no_grad():
        return torch.cat([body(some) for some in both.split(1000)]).numpy(), labels


def measured(rows):
    """Seconds, steps, R-hat and effective sample size of a fit to some rows."""
    X, y = rows()
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
    n_rows, width, n_trained = (2_000, 32, 200) if args.short else (100_000, 512, N_TRAINED)
    lines, chains = [], None
    for name, rows in {
        "simulated": partial(simulated, n_rows, width),
        "images": partial(of_images, n_rows, width, n_trained),
    }.items():
        found = finished(args, name, partial(measured, rows))
        if found is not None:
            chains = found["chains"]
            lines.append(
                [name, f"{n_rows:,} x {width}", f"{found['fit']:.0f}", f"{found['steps']:,}",
                 f"{found['R-hat']:.3f}", f"{found['ESS']:.0f}"]
            )  # fmt: skip
    table = markdown_table(["features", "rows", "seconds", "steps", "R-hat", "ESS"], lines)
    body = BODY.format(
        table=table, n_parameters=N_CLASSES * (width + 1), n_chains=chains, epochs=EPOCHS,
        n_trained=f"{n_trained:,}",
    )  # fmt: skip
    write_results(args, "last_layer", "A last layer of many rows", body)


if __name__ == "__main__":
    main()
