"""What the precision of products does to the posterior: functions of three networks.

    OMP_NUM_THREADS=1 python examples/benchmarks/precision.py

TF32 is that of GPUs, made here on a CPU: factors of every product and convolution are rounded to 10
bits behind the point, and sums stay in float32. "bfloat16" is ``precision="bfloat16"``.
"""

import contextlib
import warnings
from functools import partial
from itertools import combinations

import numpy as np
import torch
from _common import SHORT_CHAINS, finished, markdown_table, nll, parse_args, write_results
from _network_truth import Moments, differences, predictions
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch.utils._python_dispatch import TorchDispatchMode

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    SamplingWarning,
)

#: the data of a network, and the estimator without its precision
CASES = {
    "regression": ("diabetes", BayesianMLPRegressor, {"hidden_layer_sizes": (50,)}),
    "perceptron": ("digits", BayesianMLPClassifier, {"hidden_layer_sizes": (100,)}),
    "convolutions": ("digits", BayesianCNNClassifier, {}),
}
WAYS = ("full", "TF32", "bfloat16")
MOST_NEW = 100
#: with ``calibrate``, the temperature would hide a difference of the posteriors
FIXED = {"compiled": False, "n_chains": 4}
BODY = """
Functions are compared, because weights cannot be: the mean of y, or the probabilities of the
classes, at {rows} held-out rows. Estimators have their defaults{short}, but for `compiled=False`
and, for classes, `calibrate=False`: four chains, whose parameters, noise, likelihood, updates and
predictions are in float32 in every row.

Mean: the median over rows of the distance between means of the four chains, in sds of the
posterior. Sd: the median ratio of sds. "Another seed" compares full precision with itself: the
average over pairs of seeds, with the largest distance and the ratio furthest from 1. The other rows
compare each seed with the same seed in full precision. NLL is that of the held-out rows, in nats.

{table}

{verdict}
"""
VERDICT = """TF32 {tf32}; bfloat16 {bfloat16}. There is no `precision="auto"`: on a GPU, TF32
shortened a step of the perceptron with one chain by 13% and bfloat16 by 19%
([gpu.md](gpu.md)), and both are choices of the user: `precision="bfloat16"`, and torch's
`torch.set_float32_matmul_precision("high")` for TF32."""


class TF32(TorchDispatchMode):
    """Products and convolutions whose factors have 10 bits behind the point."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        first = FACTORS.get(func.overloadpacket.__name__)
        if first is not None:
            args = [a if i < first else rounded(a) for i, a in enumerate(args)]
        return func(*args, **(kwargs or {}))


#: where the factors begin among the arguments of an operation
FACTORS = {"mm": 0, "bmm": 0, "convolution": 0, "convolution_backward": 0, "addmm": 1, "addmm_": 1,
           "baddbmm": 1, "baddbmm_": 1, "_addmm_activation": 1}  # fmt: skip


def rounded(value):
    """To the nearest number of TF32, ties to even; other values as they are."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def split(name):
    """Training and held-out rows, in the range of networks."""
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    if name == "digits":
        X = X / 16.0
    classes = y if name == "digits" else None
    return train_test_split(
        X.astype(np.float32), y, test_size=MOST_NEW, random_state=0, stratify=classes
    )


def moments(args, case, way, seed):
    """Means and sds of every chain's function (flat lists), and the NLL."""
    data, estimator, given = CASES[case]
    X, X_new, y, y_new = split(data)
    if data == "digits" and estimator is BayesianCNNClassifier:
        X, X_new = X.reshape(-1, 8, 8), X_new.reshape(-1, 8, 8)
    given = given | FIXED | (SHORT_CHAINS if args.short else {})
    if data == "digits":
        given["calibrate"] = False
    if way == "bfloat16":
        given["precision"] = way
    model = estimator(random_state=seed, **given)
    with warnings.catch_warnings(), TF32() if way == "TF32" else contextlib.nullcontext():
        warnings.simplefilter("ignore", SamplingWarning)
        model.fit(X, y)
    found = Moments.of(predictions(model, X_new.reshape(len(X_new), -1)))
    if data == "digits":
        score = nll(y_new, model.predict_proba(X_new))
    else:
        score = -float(np.mean(model.predict_log_density(X_new, y_new)))
    shape = found.mean.shape
    return {"mean": np.round(found.mean, 6).ravel().tolist(), "shape": list(shape),
            "sd": np.round(found.sd, 6).ravel().tolist(), "nll": score}  # fmt: skip


def read(numbers):
    shape = numbers["shape"]
    return Moments(*(np.reshape(numbers[key], shape) for key in ("mean", "sd")))


def furthest(pairs):
    """The average distance and ratio, the largest distance, and the ratio furthest from 1."""
    distance, ratio = np.array(pairs).T
    return (f"{distance.mean():.3f}, {distance.max():.3f}",
            f"{ratio.mean():.3f}, {ratio[np.abs(np.log(ratio)).argmax()]:.3f}")  # fmt: skip


def compare(results, seeds):
    """Rows of the table, and for each precision whether it stays within what a seed does."""
    lines, outside = [], {way: [] for way in WAYS[1:]}
    for case in CASES:
        done = [s for s in seeds if all(results.get((case, way, s)) for way in WAYS)]
        runs = {way: [results[case, way, s] for s in done] for way in WAYS}
        full = [read(run) for run in runs["full"]]
        floor = [differences(a.pooled(), b.pooled()) for a, b in combinations(full, 2)]
        for way in WAYS:
            pairs = floor if way == "full" else [
                differences(read(run).pooled(), one.pooled())
                for run, one in zip(runs[way], full, strict=True)]  # fmt: skip
            scores = [run["nll"] for run in runs[way]]
            label = "full, another seed" if way == "full" else way
            lines.append([case, label, len(done), *furthest(pairs), f"{np.mean(scores):.4f}"])
            if way != "full" and not within(pairs, floor):
                outside[way].append(case)
    return lines, outside


def within(pairs, floor):
    """Whether average distance and ratio are no further off than the furthest pair of seeds."""
    off = [max(d for d, _ in floor), max(abs(np.log(r)) for _, r in floor)]
    distance, ratio = np.mean(pairs, axis=0)
    return distance <= off[0] and abs(np.log(ratio)) <= off[1]


def main():
    args = parse_args(__doc__, 4, 2, runs="precision")
    results = {}
    for case in CASES:
        for seed in args.seeds:
            for way in WAYS:
                run = partial(moments, args, case, way, seed)
                results[case, way, seed] = finished(args, f"{case}-{way}-{seed}", run, case=case)
    lines, outside = compare(results, args.seeds)
    header = [
        "network",
        "products",
        "seeds",
        "mean: average, largest",
        "sd: average, furthest",
        "NLL",
    ]
    said = {way.lower(): "moves nothing by more than another seed does" if not cases else
            "goes beyond what another seed does on " + ", ".join(cases)
            for way, cases in outside.items()}  # fmt: skip
    body = BODY.format(rows=MOST_NEW, short=" but short chains" if args.short else "",
                       table=markdown_table(header, lines),
                       verdict=VERDICT.format(**said))  # fmt: skip
    write_results(args, "precision", "Products in TF32 and bfloat16", body, [])


if __name__ == "__main__":
    main()
