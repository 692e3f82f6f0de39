"""``sample`` of a user's function: what is refused before sampling, and what is said of draws."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from _cases import cases
from _targets import GaussianMean

from skbayes_sgmcmc import SamplingWarning, sample
from skbayes_sgmcmc.models import Data


def normal(theta):
    return -0.5 * (theta**2).sum(1)


def short(target, n_parameters, **settings):
    settings = {"burn_in": 200, "n_draws": 200, "random_state": 0, **settings}
    return sample(target, n_parameters, **settings)


@cases(
    "density, message",
    [
        (lambda theta: -0.5 * theta[0] ** 2, r"of shape \(4,\) for theta of shape \(1, 4\)"),
        (lambda theta: -0.5 * (theta**2).sum(0), r"of shape \(4,\) for theta of shape \(1, 4\)"),
        (lambda theta: normal(theta - theta.mean(0)), "must not depend on the others"),
        (lambda theta: normal(theta).mean().expand(len(theta)), "must not depend on the others"),
    ],
)
def test_a_density_that_mixes_rows_of_theta_is_refused(density, message):
    """With four chains of four parameters, all of them return what has the right shape."""
    with pytest.raises(ValueError, match=message):
        short(density, 4, n_chains=4)


@cases(
    "density, message",
    [
        (lambda t: normal(t.sub_(1.0)), "log_density changes theta"),
        (lambda t: normal(t.to(torch.complex64)), "returned complex numbers"),
        (lambda t: torch.tensor([-(x**2).sum().item() for x in t], requires_grad=True),
         "without a gradient in theta"),
        (lambda t: normal(t) + torch.nan, "returned nan wherever the chains start"),
    ],
)  # fmt: skip
def test_errors_in_a_density_are_explained(density, message):
    """They were errors of torch, or the advice of a smaller step size."""
    with pytest.raises(ValueError, match=message):
        short(density, 2)


def test_more_parameters_than_memory_holds_are_refused():
    """The process ended without a message where the system promises memory that it has not."""
    with pytest.raises(ValueError, match="n_parameters=10000000000000 is not .* GiB are free"):
        sample(lambda theta: -0.5 * (theta**2).sum(1), 10**13)


def test_what_belongs_to_models_or_functions_alone_is_refused():
    """Rows of a function changed the unit of its steps; a gradient of a model was not used."""
    rows = Data({"x": torch.zeros(9, 1)}, 9)
    with pytest.raises(ValueError, match="^data is not allowed with a function"):
        short(normal, 2, data=rows)
    with pytest.raises(ValueError, match="^gradient_of_potential is not allowed with a Model"):
        sample(GaussianMean(1, 1.0), data=rows, gradient_of_potential=lambda t, rng: t)


def test_a_gradient_that_moves_the_chains_is_refused():
    """The means of its draws were -9 instead of 1."""
    with pytest.raises(ValueError, match="gradient_of_potential changes theta"):
        short(lambda t: normal(t - 1.0), 2, gradient_of_potential=lambda t, rng: t.sub_(1.0))


@cases("extra", [1.0, {"norm": 2.0}, None])
def test_a_density_that_returns_more_is_refused(extra):
    with pytest.raises(ValueError, match=r"^log_density returned tuple for theta of shape"):
        short(lambda theta: (normal(theta), extra), 2)


@cases("shared", [True, False])
def test_a_random_density_is_not_taken_for_one_that_mixes_rows(shared):
    """Two calls of it differ, too, though some rows of 20 may be the same."""
    noise = torch.Generator().manual_seed(5)

    def density(theta):
        if shared:
            return normal(theta) * (0.8 + 0.4 * torch.rand(1, generator=noise))
        return normal(theta) + torch.randint(2, (len(theta),), generator=noise)

    short(density, 2, n_chains=20)


@cases(
    "gradient",
    [
        lambda theta, rng: theta.mean(0),
        lambda theta, rng: theta[:, :1],
        lambda theta, rng: theta.mean(),
        lambda theta, rng: theta.numpy(),
        lambda theta, rng: theta + rng.normal(*theta.shape),
    ],
)
def test_a_gradient_of_another_shape_is_refused(gradient):
    """The first three would be broadcast to the shape of theta, without a word."""
    with pytest.raises(ValueError, match=r"^gradient_of_potential returned .* \(4, 2\): return a"):
        short(normal, 2, gradient_of_potential=gradient)


@cases("factor", [-1.0, 0.5, 2.0])
def test_a_gradient_of_another_density_is_refused(factor):
    """Of the log density instead of its negative, or off by a factor: the draws would be wrong."""
    with pytest.raises(ValueError, match=r"^gradient_of_potential has the slope .*: return the gr"):
        short(normal, 2, gradient_of_potential=lambda theta, rng: factor * theta)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_right_a_random_and_a_lone_gradient_are_not_refused(dtype):
    """With a density far from 0, whose differences have lost digits; a function that is no density
    says nothing about its gradient."""
    short(lambda t: normal(t) + 1e4, 2, gradient_of_potential=lambda t, rng: t, dtype=dtype)
    noisy = lambda t, rng: t + 3.0 * rng.normal(2).to(t)  # noqa: E731
    short(normal, 2, gradient_of_potential=noisy, dtype=dtype)
    for nothing in (lambda t: 0.0, lambda t: t.new_zeros(len(t))):
        short(nothing, 2, gradient_of_potential=lambda t, rng: t, dtype=dtype)


def gamma(theta):
    """Of shape 2 in each coordinate; NaN at negative positions, where the gradient is finite."""
    return (torch.log(theta) - theta).sum(1)


def exponential(theta):
    return torch.where(theta[:, 0] > 0.0, -theta[:, 0], -torch.inf)


@pytest.mark.parametrize(
    ("density", "n_parameters", "value"), [(gamma, 2, "nan"), (exponential, 1, "-inf")]
)
def test_draws_outside_the_support_are_noticed(density, n_parameters, value):
    with pytest.warns(SamplingWarning, match=f"have the log density {value}: the chains have left"):
        short(density, n_parameters)


@pytest.mark.statistical
def test_what_the_warning_of_a_left_support_advises_helps():
    """A gamma distribution has the mean 2: by logarithms, and by MALA; within 4 standard errors."""
    run = {"n_chains": 40, "n_draws": 100, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error", SamplingWarning)
        by_logarithm = sample(lambda t: gamma(t.exp()) + t.sum(1), 2, thinning=10, **run)
        by_mala = sample(
            gamma, 2, sampler="mala", step_size=1.0, init=np.ones(2), thinning=5, **run
        )
    assert np.exp(by_logarithm["theta"]).mean() == pytest.approx(2.0, abs=0.15)
    assert by_mala["theta"].mean() == pytest.approx(2.0, abs=0.15)


@pytest.mark.parametrize(
    "density",
    [lambda t: 0.0 * t.sum(1), lambda t: -0.5 * t[:, 0] ** 2, lambda t: t.sum(1)],
    ids=["flat", "flat in one parameter", "growing"],
)
def test_densities_that_cannot_be_normalised_do_not_mix(density):
    """Random walks differ from each other at any length."""
    with pytest.warns(SamplingWarning, match=r"have not mixed well .* must have a finite integral"):
        short(density, 2)


@pytest.mark.parametrize("n_chains", [1, 4])
def test_nothing_is_said_of_draws_of_a_normal_distribution(n_chains):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SamplingWarning)
        sample(normal, 2, n_chains=n_chains, thinning=5, random_state=0)


@pytest.mark.parametrize(("step_size", "warned"), [(0.25, False), (1.2, True)])
def test_steps_that_are_too_long_are_said_although_chains_agree(step_size, warned):
    """SGLD on normals has the variance 1 / (1 - step_size / 2): 1.14 and 2.5; the bound is 1.5."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draws = short(normal, 20, sampler="sgld", step_size=step_size)
    assert draws["theta"].var() == pytest.approx(1.0 / (1.0 - 0.5 * step_size), rel=0.05)
    assert ["spread as at 2" in str(w.message) for w in caught] == [True] * warned


def test_a_density_may_have_parameters_of_its_own():
    """Those of an energy-based model, which stay as they are: theta alone is sampled."""
    net = torch.nn.Linear(2, 1).double()
    posterior = short(lambda theta: normal(theta) + net(theta)[:, 0], 2, sampler="mala")
    assert np.isfinite(posterior["theta"]).all()
    assert net.weight.grad is None


ROWS = torch.ones(50, 1)


@cases(
    "data, message",
    [
        (Data({"x": ROWS.numpy()}, 50), r"fields\['x'\] of type ndarray .* torch.from_numpy"),
        (Data({"x": ROWS}, 10), r"n_rows=10 .* fields\['x'\] of shape \(50, 1\)"),
        (Data({"x": ROWS}, 50, ROWS), r"n_rows=50 .* weight of shape \(50, 1\)"),
        (Data({"x": ROWS}, 50, -ROWS[:, 0]), "weight has values that are negative"),
    ],
)
def test_rows_that_are_not_those_of_the_model(data, message):
    """Before, draws were those of another posterior, in silence."""
    with pytest.raises(ValueError, match=message):
        sample(GaussianMean(1, 1.0), data=data, init=[0.0])


@cases(
    "name, change, message",
    [
        ("log_lik", lambda found: found.sum(1), r"log_lik returned Tensor of shape \(2,\)"),
        ("log_lik", lambda found: found.mean(1, keepdim=True), r"\(2, 1\) .* \(chains, rows\)"),
        ("log_lik", lambda found: found.T, r"\(5, 2\) for 2 chains and 5 rows"),
        ("log_prior", lambda found: found.sum(), r"log_prior .* of shape \(\) .* \(chains,\)"),
        ("log_lik", torch.detach, "log_lik returned a tensor without a gradient in theta"),
    ],
)
def test_a_model_with_densities_of_other_shapes(name, change, message):
    class Slip(GaussianMean):
        pass

    setattr(Slip, name, lambda *args: change(getattr(GaussianMean, name)(*args)))
    with pytest.raises(ValueError, match=message):
        sample(Slip(1, 1.0), data=Data({"x": ROWS}, 50), init=[0.0])
    with pytest.raises(ValueError, match="init returned 2 numbers, and its shapes have 1"):
        sample(type("Long", (GaussianMean,), {"init": lambda self, rng: np.zeros(2)})(1, 1.0))


def test_constant_parts_of_models_have_no_gradient():
    """A flat prior, and the likelihood of no data: the draws are those of the other part, N(0, 1).

    Means of 4,000 draws with an autocorrelation time below 20 have standard errors below 0.07.
    """

    class Flat(GaussianMean):
        def init(self, rng):
            return rng.standard_normal(1)

        def log_prior(self, theta):
            return theta.new_zeros(len(theta))

    class Alone(GaussianMean):
        def init(self, rng):
            return rng.standard_normal(1)

        def log_lik(self, theta, batch):
            return theta.new_zeros(len(theta), batch.size)

    run = {"n_draws": 1000, "step_size": 0.2, "random_state": 0}
    for posterior in (sample(Flat(1, 1.0), data=Data({"x": torch.zeros(1, 1)}, 1), **run),
                      sample(Alone(1, 1.0), **run)):  # fmt: skip
        assert abs(posterior.mean("theta")[0]) < 0.35
        assert abs(posterior.std("theta")[0] - 1.0) < 0.25
