"""Estimators that have been written to a file, and read again; and draws that are in one."""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import joblib
import numpy as np
import pytest

from skbayes_sgmcmc import skops_trusted_types


def by_pickle(estimator):
    return pickle.loads(pickle.dumps(estimator))


def by_joblib(estimator):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "estimator.joblib"
        joblib.dump(estimator, path)
        return joblib.load(path)


def by_skops(estimator):
    skops = pytest.importorskip("skops.io")
    return skops.loads(skops.dumps(estimator), trusted=skops_trusted_types())


def in_a_file(values):
    """Whether an array of draws, or a part of one, is a map of a file."""
    while isinstance(values, np.ndarray):
        values = values.base
    return isinstance(values, mmap.mmap)
