"""Sparse rows in memory maps, which other processes open by their path."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from skbayes_sgmcmc._engine.fingerprint import fingerprint
from skbayes_sgmcmc.models.designs.design import StoredSparseDesign


def stored_csr(folder, names=("data", "indices", "indptr")):
    """A CSR matrix, of which the arrays of these names are in memory maps."""
    x = sp.random(500, 40, 0.2, "csr", random_state=np.random.default_rng(0))
    parts = []
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(x, name))
        parts.append(np.load(folder / f"{name}.npy", mmap_mode="r" if name in names else None))
    return sp.csr_matrix(tuple(parts), shape=x.shape)


@pytest.mark.parametrize("names", [("data", "indices", "indptr"), ("data",)])
def test_maps_of_sparse_rows_go_to_other_processes_by_their_path(tmp_path, names):
    """With all three arrays in files, a pickle has no room for the 4,000 values."""
    x = stored_csr(tmp_path, names)
    factor = np.where(np.arange(500) % 2, 1, -1).astype(np.int8)
    design = StoredSparseDesign(x, torch.float64, "cpu", intercept=True).scale_rows(factor)
    sent = pickle.dumps(design)
    assert len(sent) < (4000 if len(names) == 3 else x.data.nbytes)
    there = pickle.loads(sent)
    for one in (there, pickle.loads(pickle.dumps(there))):
        for chosen in (slice(3, 90), np.array([7, 3])):
            wanted, found = (each[chosen].x.toarray() for each in (design, one))
            np.testing.assert_array_equal(found, wanted)
    assert fingerprint(there) == fingerprint(design)
    assert fingerprint(design[1:500]) != fingerprint(design[0:499])


def test_a_worker_without_the_file_of_sparse_rows_says_so(tmp_path):
    """When it needs the first row, not while it reads the pickle, where no message would show."""
    design = StoredSparseDesign(stored_csr(tmp_path), torch.float64, "cpu", intercept=False)
    there = pickle.loads(pickle.dumps(design))
    (tmp_path / "indices.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"indices\.npy.* does not exist on '"):
        there[np.array([0])]


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
def test_a_file_of_sparse_rows_that_shrinks_is_refused_before_it_is_read(tmp_path, name):
    """To read a map beyond the end of its file would kill the process, without a message."""
    design = StoredSparseDesign(stored_csr(tmp_path), torch.float64, "cpu", intercept=True)
    design[np.array([7])]
    os.truncate(tmp_path / f"{name}.npy", 200)
    with pytest.raises(RuntimeError, match=rf"{name}\.npy' of X has changed since the call began"):
        design[np.array([7])]
