"""Denormal numbers count as zero while chains run, and only then."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skbayes_sgmcmc import sample
from skbayes_sgmcmc._engine.denormals import flushed_denormals


def survives():
    return bool(torch.tensor(1e-310, dtype=torch.float64) * 0.5 > 0.0)


@pytest.fixture(autouse=True)
def as_it_comes():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't flush denormal numbers")
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)


def test_they_are_zero_within_and_not_after_errors_either():
    assert survives()
    with pytest.raises(KeyError), flushed_denormals():
        assert not survives()
        raise KeyError
    assert survives()


def test_who_flushes_them_throughout_goes_on_so():
    torch.set_flush_denormal(True)
    with flushed_denormals():
        assert not survives()
    assert not survives()


def test_chains_run_without_them():
    # at temperature 0 a normal's position shrinks by a half each step: past 2^-1022 it must be
    # zero; the gradient sees what the chain sees
    seen = []

    def log_density(theta):
        seen.append(survives())
        return -0.5 * (theta**2).sum(1)

    posterior = sample(
        log_density, 2, sampler="sgld", step_size=0.5, temperature=0.0, n_chains=1, n_draws=1,
        burn_in=0, thinning=1100, init=np.ones((1, 2)), dtype="float64", random_state=0,
    )  # fmt: skip
    assert not any(seen[-1000:]) and survives()
    np.testing.assert_array_equal(posterior["theta"], 0.0)
