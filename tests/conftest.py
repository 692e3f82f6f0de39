"""Fixtures of several files, and options: shifted seeds, numbers of random cases."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # one process for each core: their threads would wait for each other. Libraries read it once
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from _seeds import shift as shift_seeds


def pytest_addoption(parser):
    parser.addoption(
        "--shift-seeds",
        type=int,
        default=0,
        help="add this to every seed, of data and of chains: bounds must hold at any seed",
    )
    group = parser.getgroup("fuzz", "random cases (tests/fuzz)")
    group.addoption("--fuzz-cases", type=int, default=1000, help="number of cases in all")
    group.addoption("--fuzz-seed", type=int, default=0, help="seed of the cases")


def pytest_configure(config):
    shift_seeds(config.getoption("--shift-seeds"))


@pytest.fixture(autouse=True)
def same_seed():
    """Fits without random_state are the same in each run of a test: they ask NumPy for a seed."""
    np.random.seed(0)  # noqa: NPY002  - that is what they ask


@pytest.fixture
def figures():
    """Figures without a screen, closed after each test."""
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)
