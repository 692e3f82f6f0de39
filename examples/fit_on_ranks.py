"""One fit on several processes; each reads its part of every minibatch.

torchrun --nproc-per-node 2 examples/fit_on_ranks.py
"""

import tempfile
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from skbayes_sgmcmc import BayesianMLPClassifier, SamplingWarning, data_parallel


def write_rows(path, n_rows=20_000, n_features=20):
    """Write rows to a file, and their labels beside it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    np.save(path / "X.npy", X)
    np.save(path / "y.npy", (X[:, 0] * X[:, 1] > 0.0).astype(int))


def main():
    on_gpus = torch.cuda.is_available() and dist.is_nccl_available()
    dist.init_process_group("nccl" if on_gpus else "gloo", timeout=timedelta(minutes=2))
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    if on_gpus:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder)  # on several machines: a folder that all of them see
        if rank == 0:
            write_rows(Path(folder[0]))
        dist.barrier()
        X = np.load(Path(folder[0]) / "X.npy", mmap_mode="r")
        y = np.load(Path(folder[0]) / "y.npy")
        clf = BayesianMLPClassifier(n_draws=50, burn_in=500, thinning=2, random_state=0)
        with data_parallel(), warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # 50 draws are few
            clf.fit(X, y)
        if rank == 0:
            print(f"{n_ranks} ranks, {clf.batch_size_} rows a step: accuracy {clf.score(X, y):.2f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
