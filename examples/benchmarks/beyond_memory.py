"""A default logistic regression of more rows than memory holds, beside Newton's method.

    python examples/benchmarks/beyond_memory.py --group /sys/fs/cgroup/memory/fit

``--group`` is the folder of a control group whose memory is limited, and which each fit joins. It
is made beforehand, by root: with version 1 of control groups,

    mkdir /sys/fs/cgroup/memory/fit
    echo 2G > /sys/fs/cgroup/memory/fit/memory.limit_in_bytes

Rows are written to ``--folder``, 8 GB of them. Their pages in the system's cache are dropped before
each fit, so that it reads them from the disk.
"""

import multiprocessing
import os
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from _common import markdown_table, parse_args, write_results
from scale import growth, write_rows

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc._data.memory import whole_memory

BLOCK, N_FEATURES = 200_000, 100
#: a Newton step that is this small, in posterior sds, is the last
CLOSE = 0.01
BODY = """{table}

{n_features} features in float32, standard normal numbers, in a memory map. {limit} Seconds are
processor time of one thread; after "/" those that passed, with other work on the machine. Reading
once: blocks of the file, in order, each added up. Memory is what anonymous memory grows at most
during `fit`, draws included; pages of the map come on top as far as the limit allows, and go when
they must. Means and sds: the largest distance of a coefficient's mean from the maximum of the
posterior, which Newton's method finds with all rows, in sds of Laplace's approximation there, and
the smallest and the largest ratio of our sds to these. With so many rows this is the posterior to
far below these figures.
"""


def newton(path, y, start):
    """Maximum of the posterior, sds of Laplace's approximation, and seconds of a pass."""
    X = np.load(path, mmap_mode="r")
    w, rates = start.copy(), np.r_[np.ones(X.shape[1]), 0.0]
    while True:
        began = time.process_time()
        gradient, curvature = rates * w, np.diag(rates)
        for at in range(0, len(X), BLOCK):
            x = np.hstack([X[at : at + BLOCK], np.ones((len(y[at : at + BLOCK]), 1), X.dtype)])
            p = 1.0 / (1.0 + np.exp(-(x @ w.astype(x.dtype)).astype(float)))
            gradient += x.T @ (p - y[at : at + BLOCK]).astype(x.dtype)
            x *= np.sqrt(p * (1.0 - p)).astype(x.dtype)[:, None]
            curvature += x.T @ x
        step = np.linalg.solve(curvature, gradient)
        sd = np.sqrt(np.diag(np.linalg.inv(curvature)))
        w -= step
        if np.abs(step / sd).max() < CLOSE:
            return w, sd, time.process_time() - began


def read_once(path):
    """Seconds that pass while a file that is not in memory is read in order."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    X, started = np.load(path, mmap_mode="r"), time.perf_counter()
    for at in range(0, len(X), BLOCK):
        X[at : at + BLOCK].sum()
    return time.perf_counter() - started


def fitted(path, y, group):
    """Moments and costs of a default fit, in a process that joins the control group."""
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    warnings.simplefilter("ignore")
    reading = read_once(path)
    X, model = np.load(path, mmap_mode="r"), BayesianLogisticRegression(random_state=0)
    model.fit(np.array(X[:1000]), y[:1000])  # imports and compiles what there is
    with growth() as memory:
        cpu, wall = time.process_time(), time.perf_counter()
        model.fit(X, y)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    coef, intercept = (model.posterior_.pooled(name) for name in ("coef", "intercept"))
    draws = np.hstack([coef[:, 0], intercept])
    return {
        "reading": reading, "cpu": cpu, "wall": wall, "memory": max(memory),
        "limit": whole_memory(),
        "mean": draws.mean(0), "sd": draws.std(0),
    }  # fmt: skip


def row(folder, n_rows, group):
    path = Path(folder) / "x.npy"
    y = write_rows(path, n_rows, N_FEATURES)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        ours = pool.submit(fitted, path, y, group).result()
    mode, sd, seconds = newton(path, y, ours["mean"])
    size = path.stat().st_size
    path.unlink()
    ratios = ours["sd"] / sd
    return ours["limit"], [
        f"{n_rows:,}", f"{size / 1e9:.2g}", f"{ours['reading']:.1f}", f"{seconds:.1f}",
        f"{ours['cpu']:.0f} / {ours['wall']:.0f}", f"{ours['memory']:.0f}",
        f"{np.abs((ours['mean'] - mode) / sd).max():.2f}",
        f"{ratios.min():.2f} to {ratios.max():.2f}",
    ]  # fmt: skip


def more(parser):
    parser.add_argument("--group", type=Path, help="folder of a control group")
    parser.add_argument("--folder", type=Path, help="where rows are written")


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1, more=more)
    sizes = (20_000, 40_000) if args.short else (1_000_000, 4_000_000, 20_000_000)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        found = [row(folder, n_rows, args.group) for n_rows in sizes]
    limit = (
        "No limit of memory was set." if args.group is None
        else f"Fits ran in a control group that leaves them {found[0][0] / 2**30:.0f} GiB."
    )  # fmt: skip
    header = ["rows", "GB", "reading once, s", "one pass of Newton's method, s", "fit, s"]
    table = markdown_table(
        [*header, "memory, MB", "means, sds away", "sds"], [cells for _, cells in found]
    )
    body = BODY.format(table=table, n_features=N_FEATURES, limit=limit)
    write_results(args, "beyond_memory", "More rows than memory holds", body)


if __name__ == "__main__":
    main()
