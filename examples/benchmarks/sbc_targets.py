"""Simulation-based calibration of networks that classify several targets, with interval coverage.

Networks from the prior, rows, labels from the model, then a fit. The rank of the true probability
of a label at a new row among those of the draws is uniform if the inference is calibrated, and the
central 90% interval covers it in 90% of the replications.

python examples/benchmarks/sbc_targets.py --replications 80
"""

import argparse
import warnings

import numpy as np
from sbc import N_RANKS, coverage, p_value
from scipy.special import softmax

from skbayes_sgmcmc import BayesianMLPClassifier

N_ROWS, N_FEATURES, N_HIDDEN, N_NEW = 60, 2, 4, 3
SETTINGS = {
    "multilabel, 3 labels": ((2, 2, 2), {}),
    "3 and 2 classes": ((3, 2), {}),
    "control: T = 2": ((2, 2, 2), {"temperature": 2.0, "step_size": "auto"}),
}


def from_prior(rng, n_outputs):
    """A function of rows: a network with weights of the prior "fan_in"."""
    sizes, gains = (N_FEATURES, N_HIDDEN, n_outputs), (np.sqrt(2.0), 4.0)
    layers = [
        (rng.normal(0.0, gain / np.sqrt(before), (before, after)), rng.normal(size=after))
        for before, after, gain in zip(sizes, sizes[1:], gains, strict=False)
    ]

    def outputs(x):
        (weight, bias), (last_weight, last_bias) = layers
        return np.tanh(x @ weight + bias) @ last_weight + last_bias

    return outputs


def probabilities(f, sizes):
    return [softmax(part, axis=-1) for part in np.split(f, np.cumsum(sizes)[:-1], axis=-1)]


def replicate(seed, sizes, **parameters):
    """Ranks (200, probabilities) of the truth (first) and of the draws among all of them."""
    rng = np.random.default_rng(seed)
    while True:
        truth, X = from_prior(rng, sum(sizes)), rng.standard_normal((N_ROWS, N_FEATURES))
        each = [
            (rng.random((N_ROWS, 1)) > p.cumsum(1)[:, :-1]).sum(1)
            for p in probabilities(truth(X), sizes)
        ]
        # data with a class missing are left out, which depends on the data alone
        if all(len(np.unique(y)) == size for y, size in zip(each, sizes, strict=True)):
            break
    clf = BayesianMLPClassifier(
        hidden_layer_sizes=N_HIDDEN,
        activation="tanh",
        prior_scale="fan_in",
        standardize=False,
        sampler="mclmc",
        n_draws=N_RANKS // 4,
        burn_in=2000,
        thinning=60,
        calibrate=False,
        random_state=seed,
        **parameters,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, np.column_stack(each))
    new = rng.standard_normal((N_NEW, N_FEATURES))
    found = clf.predict_proba_samples(new)
    columns = [found] if isinstance(found, np.ndarray) else [p[..., 1:] for p in found]
    draws = np.concatenate([c.reshape(N_RANKS, -1) for c in columns], axis=1)[: N_RANKS - 1]
    p = probabilities(truth(new), sizes)
    if isinstance(found, np.ndarray):
        known = np.stack([each[:, 1] for each in p], axis=1).ravel()
    else:
        known = np.concatenate([each[:, 1:].ravel() for each in p])
    return np.vstack([known, draws]).argsort(axis=0).argsort(axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=80)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    for name, (sizes, parameters) in SETTINGS.items():
        if not name.startswith(args.only):
            continue
        ranks = np.stack(
            [replicate(seed, sizes, **parameters) for seed in range(args.replications)]
        )
        print(
            f"{name}: p {p_value(ranks):.3f}, coverage {np.round(coverage(ranks[:, 0]), 3)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
