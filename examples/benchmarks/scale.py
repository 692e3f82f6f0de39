"""What a fit of many rows costs: seconds beside scikit-learn's, and memory beyond the rows.

python examples/benchmarks/scale.py

Rows are standard normal numbers in float32, in a file that the script writes to a temporary folder
and maps into memory. A run's memory is what the anonymous memory of the process grows at most:
pages of a map belong to the file, and the system takes them back when it needs them.
"""

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from _common import markdown_table, parse_args, write_results
from sklearn.linear_model import LogisticRegression

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, BayesianMLPClassifier

BLOCK = 100_000
BODY = """{table}

{n_features} features in float32. Time is processor time of one thread; "over scikit-learn" compares
it with `LogisticRegression(C=1)`, whose maximum is that of the same posterior, fitted to an array
of the same rows in the same process. Memory is what anonymous memory grows at most during `fit`,
draws included; means and sds are those of the coefficients, compared with scikit-learn's maximum
and with the fit of the array, in posterior sds. "Slices only" is a table that can only be sliced,
like a dataset of h5py or zarr, in memory: its fits draw minibatches from one pool of rows.
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


def measured(fit):
    """What ``fit`` returns, its seconds of processor time, and the MB that it adds at most."""
    before, seen, done = anonymous(), [0.0], threading.Event()

    def watch():
        while not done.wait(0.005):
            seen.append(anonymous() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.process_time()
    try:
        fitted = fit()
    finally:
        seconds = time.process_time() - started
        done.set()
        watcher.join()
    return fitted, seconds, max(seen)


def against(draws, mean, sd):
    """Largest difference of means in sds, and largest ratio of sds."""
    ratio = draws.std((0, 1)) / sd
    away = np.abs(draws.mean((0, 1)) - mean) / sd
    return f"{away.max():.2f}", f"{max(ratio.max(), 1.0 / ratio.min()) - 1.0:.0%}"


def rows_of(folder, n_rows, n_features, *, beside):
    """Rows of the table for one size; ``beside``: with scikit-learn and with other ways to read."""
    path, found = Path(folder) / "x.npy", []
    y = write_rows(path, n_rows, n_features)
    size = f"{n_rows:,}"
    ours = BayesianLogisticRegression(random_state=0)
    mapped = np.load(path, mmap_mode="r")
    fits = {"memory map": lambda: ours.fit(mapped, y)}
    peer = None
    if beside:
        X = np.load(path)
        peer = measured(lambda: LogisticRegression(C=1.0).fit(X, y))
        found.append(
            [size, "array", "scikit-learn", f"{peer[1]:.2f}", "1", f"{peer[2]:.0f}", "", ""]
        )
        fits = {"array": lambda: ours.fit(X, y)} | fits
        fits["slices only"] = lambda: ours.fit(Slices(X), y)
        sd = ours.fit(X, y).posterior_["coef"].std((0, 1))
    for kind, fit in fits.items():
        model, seconds, memory = measured(fit)
        ratio, apart = "", ("", "")
        if peer is not None:
            ratio = f"{seconds / peer[1]:.1f}"
            apart = against(model.posterior_["coef"], peer[0].coef_, sd)
        found.append(
            [size, kind, "logistic regression", f"{seconds:.1f}", ratio, f"{memory:.0f}", *apart]
        )
    if beside:
        short = {"n_draws": 20, "burn_in": 200, "thinning": 1, "random_state": 0}
        others = {
            "normal GLM": BayesianGLMRegressor(random_state=0),
            "perceptron, 220 steps": BayesianMLPClassifier(sampler="psgld", **short),
        }
        for name, model in others.items():
            _, seconds, memory = measured(lambda model=model: model.fit(mapped, y))
            found.append([size, "memory map", name, f"{seconds:.1f}", "", f"{memory:.0f}", "", ""])
    path.unlink()
    return found


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1)
    n_features = 10 if args.short else 100
    few, many = (20_000, 40_000) if args.short else (500_000, 2_000_000)
    rng = np.random.default_rng(0)
    start = rng.standard_normal((1000, n_features))
    for model in (BayesianLogisticRegression(), BayesianGLMRegressor()):  # whatever is imported
        model.fit(start, rng.integers(0, 2, 1000))
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(folder, few, n_features, beside=True)
        rows += rows_of(folder, many, n_features, beside=False)
    header = ["rows", "X", "fit", "seconds", "over scikit-learn", "memory, MB"]
    table = markdown_table([*header, "means, sds away", "sds"], rows)
    body = BODY.format(table=table, n_features=n_features)
    write_results(args, "scale", "Many rows", body)


if __name__ == "__main__":
    main()
