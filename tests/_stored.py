"""Rows that stay where they are, and a problem of two classes."""

import numpy as np

N, P = 2001, 5  # rows that no size of a block divides


class Table:
    """A file that only knows slices, as the least of what h5py, zarr and dask offer."""

    def __init__(self, values, chunk=None):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.asked = []
        if chunk is not None:
            self.chunks = (chunk, values.shape[1])

    def __getitem__(self, chosen):
        assert isinstance(chosen, slice) and chosen.step is None
        self.asked.append((chosen.start, chosen.stop))
        return self.values[chosen].copy()


def problem(n=N, p=P, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)).astype(dtype)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ np.linspace(-1.0, 1.0, p) - 0.5))).astype(int)
    return X, y
