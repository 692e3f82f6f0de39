"""What does not reach the user: numpy's warnings."""

from __future__ import annotations

import numpy as np
import pytest

from skbayes_sgmcmc._draws.posterior_samples import PosteriorSamples
from skbayes_sgmcmc.diagnostics import autocorrelation_time, effective_sample_size, mcse, r_hat
from skbayes_sgmcmc.models.ica.model import ICAModel
from skbayes_sgmcmc.priors import Laplace, Normal


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_figures_of_chains_that_stand_still():
    """Each in another place: R-hat is infinite; without any spread there is nothing to say."""
    apart = PosteriorSamples({"theta": np.repeat([[[0.0]], [[1.0]]], 10, axis=1)})
    assert r_hat(apart, "theta") > 1e3
    for figure in (effective_sample_size, mcse):
        figure(apart, "theta")
    assert np.isnan(autocorrelation_time(np.ones((2, 50))))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("prior", [Normal(), Laplace()])
def test_expectations_far_from_a_prior_have_their_limits(prior):
    mean, sd, rates = np.array([1e200]), np.array([1e-200]), np.ones(1)
    assert prior.expected_potential(mean, sd, rates) >= 1e200
    assert prior.expected_gradient(mean, sd, rates) >= 1.0
    assert prior.expected_curvature(mean, sd, rates) in (0.0, 1.0)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_units_that_float32_lacks_are_infinite_components():
    """The end of a fit refuses them, by an error that gives dtype='float64' as the remedy."""
    model = ICAModel(np.eye(2), Normal(), 1.0, 1e100 * np.eye(2))
    draws = np.tile(np.eye(2, dtype=np.float32).ravel(), (1, 3, 1))
    assert not np.isfinite(model.unpack(draws)["components"]).all()
