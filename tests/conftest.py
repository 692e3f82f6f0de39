"""Fixtures of several files, and options: shifted seeds, numbers of random cases."""

import os
from contextlib import ExitStack

if "PYTEST_XDIST_WORKER" in os.environ:
    # one process for each core: their threads would wait for each other. Libraries read it once
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from _inside import Interrupt, having
from _inside import limits as set_limits
from _seeds import shift as shift_seeds
from sklearn.datasets import load_iris, make_classification


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The cases of a file run in one process, which makes the fits that they share only once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


@pytest.fixture(autouse=True)
def same_seed():
    """Fits without random_state are the same in each run of a test: they ask NumPy for a seed."""
    np.random.seed(0)  # noqa: NPY002 - the one that scikit-learn's check_random_state uses


@pytest.fixture(scope="module")
def iris():
    """Three classes of flowers."""
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def binary():
    """Two classes."""
    return make_classification(400, 6, n_informative=4, random_state=0)


@pytest.fixture
def limits():
    """``limits(block_rows=50)`` sets limits of memory and of blocks (_limits.py) for a test."""
    with ExitStack() as stack:
        yield lambda **values: stack.enter_context(set_limits(**values))


@pytest.fixture
def threads():
    """Jobs are threads: to start processes takes ten seconds."""
    with joblib.parallel_config("threading"):
        yield


@pytest.fixture
def replaced(monkeypatch):
    """``replaced(name, value)`` replaces a function in all modules that have it.

    Where modules have other functions of this name, it is given as ``module.name``.
    """

    def replace(name, value):
        home, _, name = name.rpartition(".")
        for module in having(name, home):
            monkeypatch.setattr(module, name, value)

    return replace


@pytest.fixture
def interrupt_after():
    """``interrupt_after(0.3, estimator, *data)`` presses Ctrl-C after this share of a fit's steps.

    It returns what the fit says, and leaves the estimator without the callback that did it.
    """
    pytest.importorskip("sklearn.callback")

    def interrupted(share, estimator, *data):
        estimator.set_callbacks(Interrupt(share))
        with pytest.raises(KeyboardInterrupt) as caught:
            estimator.fit(*data)
        estimator.set_callbacks()
        return str(caught.value)

    return interrupted


@pytest.fixture
def figures():
    """Figures without a screen, closed after each test."""
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)
