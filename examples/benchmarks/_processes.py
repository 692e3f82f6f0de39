"""What several processes cost: ranks that share minibatches, and chains on Dask's workers."""

import multiprocessing
import os
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

import joblib
import numpy as np
import torch
import torch.distributed as dist
from sklearn.base import clone

from skbayes_sgmcmc import BayesianLogisticRegression, BayesianMLPClassifier, data_parallel

N_WORKERS = 4
#: repetitions of a sum over the ranks, and of a fit of chains
SUMS, FITS = 50, 3
PLAIN = {
    "sampler": "sgld", "step_size": 1e-3, "init": "random", "compiled": False, "n_draws": 1,
    "thinning": 1, "random_state": 0,
}  # fmt: skip
LINEAR = {"prior_scale": 1.0, "preconditioner": None, "gradient": "minibatch"}
NETWORK = {"hidden_layer_sizes": (400, 400), "dtype": "float32", "n_chains": 1}


def cases(short):
    """(name, estimator, features, rows of a step, steps) of the fits that ranks share."""
    linear = BayesianLogisticRegression(**PLAIN, **LINEAR)
    layers = BayesianMLPClassifier(**PLAIN, **NETWORK)
    return [
        ("logistic regression", linear, 100, 100, 20 if short else 500),
        ("perceptron 784-400-400-2", layers, 784, 128, 2 if short else 60),
        ("perceptron 784-400-400-2", layers, 784, 2048, 2 if short else 12),
    ]


def rank_rows(short):
    """Rows of the table: milliseconds of a step by one process and by two ranks."""
    one, two = (of_ranks(n, short) for n in (1, 2))
    table = []
    for (name, _, _, size, _), (alone, _, n), (both, summed, _) in zip(
        cases(short), one, two, strict=True
    ):
        times = f"{alone:.2f}", f"{both:.2f}", f"{summed:.2f}"
        table.append([name, f"{n:,}", str(size), *times, f"{both / alone:.2f}"])
    return table


def of_ranks(n_ranks, short):
    """For each case: ms of a step and of a sum over the ranks alone, and numbers in the sum."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=one_rank, args=(Path(folder), rank, n_ranks, short, queue))
            for rank in range(n_ranks)
        ]
        for rank in ranks:
            rank.start()
        found = queue.get()
        for rank in ranks:
            rank.join()
    return found


def one_rank(folder, rank, n_ranks, short, queue):
    """What a rank does; rank 0 reports."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=n_ranks)
    found = []
    for _, estimator, n_features, size, n_steps in cases(short):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((3 * size, n_features)).astype(np.float32)
        y = (X[:, 0] > 0.0).astype(int)
        seconds = []
        for burn_in in (1, n_steps, 3 * n_steps):  # the first fit imports what there is
            fit = clone(estimator).set_params(burn_in=burn_in, batch_size=size)
            with data_parallel():
                dist.barrier()
                started = time.perf_counter()
                fit.fit(X, y)
                seconds.append(time.perf_counter() - started)
        draws = fit.posterior_.draws.values()
        numbers = torch.zeros(fit.n_chains_, sum(d[0, 0].size for d in draws))
        dist.barrier()
        started = time.perf_counter()
        for _ in range(SUMS):
            dist.all_reduce(numbers)
        summed = (time.perf_counter() - started) / SUMS
        step = (seconds[2] - seconds[1]) / (2 * n_steps)
        found.append((1e3 * step, 1e3 * summed, numbers.shape[1]))
    if rank == 0:
        queue.put(found)
    dist.barrier()
    dist.destroy_process_group()


def worker_rows(short):
    """Rows of the table: seconds of four chains on joblib's own workers and on Dask's.

    Each pair is the time that passed, and processor time of this process and of all workers.
    """
    from dask.distributed import Client, LocalCluster

    warnings.simplefilter("ignore")  # that rows are sent with every task
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000 if short else 100_000, 50))
    y = (X[:, 0] > 0.0).astype(int)
    run = PLAIN | {"burn_in": 20 if short else 20_000, "batch_size": 100}
    model = BayesianLogisticRegression(n_chains=N_WORKERS, n_jobs=N_WORKERS, **run, **LINEAR)
    options = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": 50}
    seconds = {"loky": [], "dask": []}
    with (
        LocalCluster(N_WORKERS, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
    ):
        for _ in range(1 + FITS):  # the first fit imports what there is
            for name, found in seconds.items():
                given = {"client": client} if name == "dask" else {}
                with joblib.parallel_config(name, **given):
                    started = time.perf_counter(), processor_time()
                    clone(model).fit(X, y)
                    ended = time.perf_counter(), processor_time()
                    found.append(np.subtract(ended, started))
    loky, dask = (np.median(found[1:], axis=0) for found in seconds.values())
    ours = (f"{passed:.1f} / {used:.1f}" for passed, used in (loky, dask))
    return [[f"{len(X):,}", *ours, " / ".join(f"{ratio:.2f}" for ratio in dask / loky)]]


def processor_time():
    """Seconds of processor time of this process and of its descendants, as long as they live."""
    import psutil

    this, total = psutil.Process(), 0.0
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.Error):
            used = process.cpu_times()
            total += used.user + used.system
    return total
