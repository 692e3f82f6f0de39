"""Fixtures of several files."""

import matplotlib
import matplotlib.pyplot as plt
import pytest


@pytest.fixture
def figures():
    """Figures without a screen, closed after each test."""
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)
