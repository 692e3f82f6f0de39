"""Fixtures of several files, and options: shifted seeds, numbers of random cases."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # one process for each core: their threads would wait for each other. Libraries read it once
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest


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
    shift = config.getoption("--shift-seeds")
    if shift:
        _shift(shift)


def _shift(shift):
    """Let every whole number that is given to a generator as its seed be another one.

    The generators stay of numpy's classes, which code asks for with ``isinstance``.
    """

    def moved(seed):
        return seed + shift if isinstance(seed, int | np.integer) else seed

    class RandomState(np.random.RandomState):
        def __init__(self, seed=None):
            super().__init__(moved(seed))

    class SeedSequence(np.random.SeedSequence):
        def __init__(self, entropy=None, *, spawn_key=(), **options):
            # children are made of their parent's entropy, which has been moved
            first = moved(entropy) if not spawn_key else entropy
            super().__init__(first, spawn_key=spawn_key, **options)

    default_rng = np.random.default_rng
    np.random.RandomState, np.random.SeedSequence = RandomState, SeedSequence
    np.random.default_rng = lambda seed=None: default_rng(moved(seed))


@pytest.fixture
def figures():
    """Figures without a screen, closed after each test."""
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)
