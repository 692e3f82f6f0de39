"""The posterior of a last layer of 100,000 rows of 512 features and 10 classes: what it takes.

python examples/benchmarks/last_layer.py

The features are simulated, or those of a perceptron that is trained here, on all images of MNIST.
"""

import time
import warnings
from functools import partial

import numpy as np
import torch
from _common import finished, load_mnist, markdown_table, nll, parse_args, write_results
from _images import train_by_adam
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, SamplingWarning
from skbayes_sgmcmc.diagnostics import summary

N_CLASSES = 10
EPOCHS = 10
BODY = """{table}

The layer has {n_parameters:,} weights and biases, all rows fit into memory, and all parameters of
the estimator but the prior's scale are the defaults (`sample_parameters="last_layer"`): {n_chains}
chains. The scale of the prior is the one under which the rows are likeliest (`auto`, the default),
sampled along with the weights (`learned`) or given (`fan_in`). Seconds are processor time of one
thread for `fit`, features and the estimate of the scale included. R-hat and the effective sample
size are the worst of all weights and biases; then comes R-hat of a sampled scale. The target is
30 s on two cores for an R-hat of 1.02.

Simulated: the features are positive parts of normal numbers whose principal axes have sds from 4 to
0.18, and the classes are drawn from a softmax of a linear function of them. MNIST: the features are
the last hidden layer of a perceptron with two layers of {width} units, which Adam has trained for
{epochs} epochs on the same {n_images:,} images, so that its classes are nearly certain: their mean
largest probability is {certain:.3f}. The NLL is that of the {n_test:,} test images, and {plain:.3f}
for the perceptron itself.

A sampled scale does not mix. The chains start at the maximum of the posterior, with a scale of 0.10
in the units of the features; the draws have {first:.2f} in their first quarter and {last:.2f} in
the last one, so the scale is still on its way. Every step moves the {n_parameters:,} weights
independently and changes their common length by about 0.5%, and where classes are nearly certain
the data bound this length only loosely: the NLL hardly depends on it. That is why the default
estimates the scale. With one number the chains nearly reach the R-hat of the target, but not its
time. They need more steps than for the simulated features, because the few rows whose classes are
uncertain have other principal axes than all rows: the largest curvature in the coordinates of the
chains is 9, and would be 6 with the principal axes of these rows. A fifth of the time are the
estimate and the maximum of the posterior.
"""


def simulated(n_rows, width):
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((width, width)))[0]
    spread = 4.0 * np.arange(1, width + 1) ** -0.5
    X = np.maximum((rng.standard_normal((n_rows, width)) * spread) @ axes, 0.0).astype(np.float32)
    logits = X @ (rng.standard_normal((width, N_CLASSES)) * 4.0 / np.sqrt(width))
    logits -= logits.mean(0)
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(1)


def fitted(module, X, y, **options):
    """Seconds, steps, R-hat and effective sample size of a fit, and the estimator."""
    clf = BayesianModuleClassifier(
        module, sample_parameters="last_layer", random_state=0, **options
    )
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # R-hat is in the table
        clf.fit(X, y)
    seconds = time.process_time() - started
    table = summary(clf.posterior_)
    layer = np.array([name != "scale" for name in table["name"]])
    numbers = {"fit": seconds, "steps": clf.n_steps_, "chains": clf.n_chains}
    numbers["R-hat"] = float(np.max(table["r_hat"][layer]))
    numbers["ESS"] = float(np.min(table["ess"][layer]))
    if not layer.all():
        numbers["R-hat of the scale"] = float(table["r_hat"][~layer][0])
        quarters = np.array_split(clf.posterior_["scale"], 4, axis=1)
        numbers["first"], numbers["last"] = (float(quarters[q].mean()) for q in (0, -1))
    return numbers, clf


def of_simulated(n_rows, width):
    X, y = simulated(n_rows, width)
    torch.manual_seed(0)
    return fitted(nn.Linear(width, N_CLASSES), X, y)[0]


def of_trained(n_rows, width, epochs, prior_scale):
    X, y, X_test, y_test = load_mnist()
    X, y = X[:n_rows], y[:n_rows]
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, N_CLASSES),
    )  # fmt: skip
    train_by_adam(net, torch.from_numpy(X), torch.from_numpy(y), epochs)
    with torch.no_grad():
        p, p_test = (net(torch.from_numpy(rows)).softmax(1).numpy() for rows in (X, X_test))
    numbers, clf = fitted(net, X, y, prior_scale=prior_scale)
    own = {"certain": float(p.max(1).mean()), "plain": float(nll(y_test, p_test))}
    return numbers | own | {"NLL": float(nll(y_test, clf.predict_proba(X_test)))}


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1, runs="last_layer")
    n_rows, n_images, width = (2_000, 2_000, 32) if args.short else (100_000, 60_000, 512)
    epochs = 1 if args.short else EPOCHS
    settings = {"rows": n_rows, "features": width, "classes": N_CLASSES}
    found = {
        ("simulated", n_rows, "auto"): finished(
            args, "simulated auto", partial(of_simulated, n_rows, width), **settings
        )
    }
    settings = settings | {"rows": n_images, "epochs": epochs}
    for scale in ("auto", "learned", "fan_in"):
        run = partial(of_trained, n_images, width, epochs, scale)
        found["MNIST", n_images, scale] = finished(
            args, f"MNIST {scale}", run, **settings, prior_scale=scale
        )
    if None in found.values():
        raise SystemExit("--no-new needs stored runs.")
    lines = []
    for (data, rows, scale), numbers in found.items():
        of_scale, score = (numbers.get(name) for name in ("R-hat of the scale", "NLL"))
        lines.append(
            [
                data, f"{rows:,} x {width}", scale, f"{numbers['fit']:.0f}",
                f"{numbers['steps']:,}", f"{numbers['R-hat']:.3f}", f"{numbers['ESS']:.0f}",
                "" if of_scale is None else f"{of_scale:.2f}",
                "" if score is None else f"{score:.3f}",
            ]
        )  # fmt: skip
    header = ["features", "rows", "scale", "seconds", "steps", "R-hat", "ESS", "R-hat of scale"]
    trained = found["MNIST", n_images, "learned"]
    body = BODY.format(
        table=markdown_table([*header, "NLL"], lines), n_parameters=N_CLASSES * (width + 1),
        n_chains=trained["chains"], width=width, epochs=epochs, n_images=n_images, n_test=10_000,
        certain=trained["certain"], plain=trained["plain"], first=trained["first"],
        last=trained["last"],
    )  # fmt: skip
    write_results(args, "last_layer", "A last layer of many rows", body)


if __name__ == "__main__":
    main()
