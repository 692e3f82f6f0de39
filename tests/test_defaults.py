"""What "auto" means for perceptrons that regress: the sampler, the rows of a step, the lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skbayes_sgmcmc import BayesianMLPRegressor
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc.models._tuning import NETWORK_NUMBERS, ROWS_OF_ALL_STEPS, AutoValues, ManyModes

RUN = {"n_chains": 2, "n_draws": 4, "burn_in": 20, "thinning": 1, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def rows(n, p=3):
    return Data({"x": torch.zeros(n, p), "y": torch.zeros(n, 1)}, n)


@pytest.mark.parametrize(
    ("n", "step_size", "batch_size", "expected"),
    [
        (100, "auto", "auto", "mclmc"),
        (NETWORK_NUMBERS // 4, "auto", "auto", "mclmc"),  # 3 features and a target
        (NETWORK_NUMBERS // 4 + 1, "auto", "auto", "psgld"),
        (100, 1e-3, "auto", "psgld"),  # a given step was chosen for the sampler that it had
        (100, "auto", 50, "psgld"),  # MCLMC is for all rows
        (10**6, "auto", 10**6, "mclmc"),
    ],
)
def test_the_sampler_depends_on_the_rows_of_a_step(n, step_size, batch_size, expected):
    assert ManyModes(None).default_sampler(rows(n), step_size, batch_size) == expected


def test_chains_with_all_rows_take_fewer_steps_of_many():
    """3,000 steps up to 2,500 rows; of four times as many, half."""
    values = AutoValues("minibatch", "map", step_size=1e-3)
    for n, expected in ((10, 3000), (ROWS_OF_ALL_STEPS, 3000), (4 * ROWS_OF_ALL_STEPS, 1500)):
        assert ManyModes(None).lengths(values, n, n, 100) == (expected, expected // 100)
    assert ManyModes(None).lengths(values, 10_000, 100, 100)[0] == 3000  # minibatches


def test_small_tables_are_fitted_by_mclmc_with_all_rows_in_float32():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), rng.standard_normal(300)
    reg = BayesianMLPRegressor(**RUN).fit(X, y)
    assert set(reg.posterior_.statistics) == {"energy_error", "undone", "length"}
    assert reg.batch_size_ == 300
    assert reg.posterior_["weight_1"].dtype == np.float32
    assert reg.posterior_["weight_1"].shape == (2, 4, 3, 16)
    assert reg.posterior_["bias_5"].shape == (2, 4, 2)  # mean and log sd
    assert reg.relevance_.shape == (3,)


@pytest.mark.parametrize(
    ("parameters", "noise", "learned"),
    [
        ({"prior": "laplace"}, "log_noise", False),
        ({"likelihood": "student_t"}, "log_noise", True),
        ({"noise": 0.5}, None, True),
        ({"prior_scale": "fan_in"}, None, False),
    ],
)
def test_defaults_that_do_not_fit_each_other_give_way(parameters, noise, learned):
    """Scales of normal priors only can be learned; sigma(x) belongs to the normal likelihood."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    reg = BayesianMLPRegressor(sampler="psgld", **RUN, **parameters).fit(X, y)
    assert ("log_noise" in reg.posterior_.draws) == (noise is not None)
    assert hasattr(reg, "relevance_") == learned


def test_an_integrator_belongs_to_a_sampler():
    X = np.zeros((10, 2))
    with pytest.raises(ValueError, match="integrator='baoab' is not allowed with sampler='auto'"):
        BayesianMLPRegressor(integrator="baoab").fit(X, X[:, 0])
