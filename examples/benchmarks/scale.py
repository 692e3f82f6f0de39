"""What a fit of many rows costs: seconds beside scikit-learn's, memory, and several processes.

python examples/benchmarks/scale.py

Rows are standard normal numbers in float32, in a file that the script writes to a temporary folder
and maps into memory. A run's memory is what the anonymous memory of the process grows at most:
pages of a map belong to the file, and the system takes them back when it needs them.
"""

import multiprocessing
import tempfile
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from _common import markdown_table, parse_args, write_results
from _processes import FITS as N_FITS
from _processes import rank_rows, worker_rows
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, BayesianMLPClassifier

BLOCK, REPEATS = 100_000, 3
BODY = """{table}

{n_features} features in float32. Time is processor time of one thread, the smallest of {repeats}
fits; "over scikit-learn" compares it with `LogisticRegression(C=1)`, whose maximum is that of the
same posterior, fitted to an array of the same rows in the same run. Each line has a process of its
own; memory is what anonymous memory grows at most during the first `fit`, draws included. Means and
sds are those of the coefficients: the largest distance from scikit-learn's maximum, in posterior
sds, and the largest change of an sd from the fit of the array. "Slices only" is a table that can
only be sliced, like a dataset of h5py or zarr, in memory: its fits draw minibatches from one pool
of rows.

## Several processes

Ranks of torch.distributed that share minibatches (`data_parallel`, gloo over loopback), one thread
each, with steps of SGLD:

{ranks}

"sum" is what adding up the gradient takes by itself, as a part of the time of two ranks. The two
processors of this machine are two threads of one core, so that two ranks have little more to
compute with than one process.

Four chains of plain SGLD on four worker processes, by joblib's own backend (loky) and on Dask's
workers, medians of {n_fits} fits in turn: seconds that passed / processor time of all processes,
and Dask's time over loky's (the target is 1.15). The rows are sent with every task.

{workers}
"""


class Slices:
    """A table of which only slices can be read."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __getitem__(self, rows):
        return self.values[rows]


def write_rows(path, n_rows, n_features):
    """Write rows to a file; return their labels."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(n_features) / np.sqrt(n_features)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, n_features))
    y = np.empty(n_rows, np.int8)
    for start in range(0, n_rows, BLOCK):
        x = rng.standard_normal((min(BLOCK, n_rows - start), n_features), dtype=np.float32)
        X[start : start + len(x)] = x
        y[start : start + len(x)] = rng.random(len(x)) < 1.0 / (1.0 + np.exp(-x @ w))
    X.flush()
    return y


def anonymous():
    """Memory of this process that is no page of a file, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024.0
    raise SystemExit("This benchmark reads RssAnon from /proc/self/status, which Linux has.")


@contextmanager
def growth():
    """A list, to which the growth of anonymous memory is appended all the while, in MB."""
    before, seen, done = anonymous(), [0.0], threading.Event()

    def watch():
        while not done.wait(0.005):
            seen.append(anonymous() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def models():
    """The estimators of the table, by name; parameters are those of the defaults."""
    short = {"n_draws": 20, "burn_in": 200, "thinning": 1, "random_state": 0}
    return {
        "scikit-learn": LogisticRegression(C=1.0),
        "logistic regression": BayesianLogisticRegression(prior_scale=1.0, random_state=0),
        "normal GLM": BayesianGLMRegressor(random_state=0),
        "perceptron, 220 steps": BayesianMLPClassifier(sampler="psgld", **short),
    }


def fit_seconds(model, X, y):
    started = time.process_time()
    model.fit(X, y)
    return time.process_time() - started


def measured(name, kind, path, y):
    """Seconds of processor time of a fit, MB that it adds at most, and the coefficients' moments.

    It is called in a process of its own, because memory that earlier fits have freed would hide
    what a fit needs. A small fit before it imports and compiles what there is.
    """
    warnings.simplefilter("ignore")  # few draws do not mix
    model, X = models()[name], np.load(path, mmap_mode="r" if kind == "memory map" else None)
    clone(model).fit(np.array(X[:1000]), y[:1000])
    given = Slices(X) if kind == "slices only" else X
    with growth() as memory:
        seconds = [fit_seconds(model, given, y)]
    seconds += [fit_seconds(model, given, y) for _ in range(REPEATS - 1)]
    found = {"seconds": min(seconds), "memory": max(memory)}
    if name == "logistic regression":
        draws = model.posterior_["coef"]
        found |= {"mean": draws.mean((0, 1)), "sd": draws.std((0, 1))}
    elif name == "scikit-learn":
        found["mean"] = model.coef_
    return found


def rows_of(folder, n_rows, n_features, fits):
    """Rows of the table for one size: ``fits`` are pairs of an estimator and a kind of X."""
    path, table, found = Path(folder) / "x.npy", [], {}
    y = write_rows(path, n_rows, n_features)
    for name, kind in fits:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            one = found[name, kind] = pool.submit(measured, name, kind, path, y).result()
        peer, ours = (
            found.get((each, "array")) for each in ("scikit-learn", "logistic regression")
        )
        ratio = away = width = ""
        if peer is not None and "sd" in one:
            ratio = f"{one['seconds'] / peer['seconds']:.0f}"
            away = f"{np.abs((one['mean'] - peer['mean']) / ours['sd']).max():.2f}"
            width = f"{np.abs(one['sd'] / ours['sd'] - 1.0).max():.1%}"
        cost = f"{one['seconds']:.2f}", ratio, f"{one['memory']:.0f}"
        table.append([f"{n_rows:,}", kind, name, *cost, away, width])
    path.unlink()
    return table


FEW = [
    ("scikit-learn", "array"),
    ("logistic regression", "array"),
    ("logistic regression", "memory map"),
    ("logistic regression", "slices only"),
    ("normal GLM", "memory map"),
    ("perceptron, 220 steps", "memory map"),
]


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1)
    n_features = 10 if args.short else 100
    few, many = (20_000, 40_000) if args.short else (500_000, 2_000_000)
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(folder, few, n_features, FEW)
        rows += rows_of(folder, many, n_features, FEW[2:3])
    header = ["rows", "X", "fit", "seconds", "over scikit-learn", "memory, MB"]
    table = markdown_table([*header, "means, sds away", "sds"], rows)
    columns = ["fit", "parameters", "rows a step", "one process, ms", "two ranks, ms", "sum, ms"]
    ranks = markdown_table([*columns, "ratio"], rank_rows(args.short))
    columns = ["rows", "loky, s", "Dask, s", "ratio"]
    workers = markdown_table(columns, worker_rows(args.short))
    body = BODY.format(
        table=table,
        n_features=n_features,
        repeats=REPEATS,
        ranks=ranks,
        workers=workers,
        n_fits=N_FITS,
    )
    write_results(args, "scale", "Many rows", body)


if __name__ == "__main__":
    main()
