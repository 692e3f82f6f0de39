"""Likelihoods of the user's own, beside the library's where these are the same distributions."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.base import clone
from torch import distributions as td
from torch import nn

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianMLPRegressor,
    BayesianModuleRegressor,
    TorchLikelihood,
    to_torch,
)
from skbayes_sgmcmc.models.likelihoods.base import Gaussian, Heteroscedastic
from skbayes_sgmcmc.models.likelihoods.counts import Poisson
from skbayes_sgmcmc.models.likelihoods.distributions import DistributionLikelihood

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

RUN = {"n_draws": 20, "burn_in": 200, "thinning": 5, "n_chains": 2, "random_state": 0}
NETWORK = RUN | {"hidden_layer_sizes": 4, "sampler": "psgld"}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2))


def normal(outputs):
    return td.Normal(outputs[:, 0], 0.5)


def two_normals(outputs):
    return td.Normal(outputs, 0.5)


def correlated(outputs):
    return td.MultivariateNormal(outputs, 0.25 * torch.eye(2).to(outputs))


def heteroscedastic(outputs):
    t = outputs[:, 1] + math.log(0.3)
    return td.Normal(outputs[:, 0], 1e-3 + torch.where(t > 0.0, 1.0 + t, t.exp()))


def counts(outputs):
    return td.Poisson(outputs[:, 0].exp())


def gamma(outputs):
    return td.Gamma(2.0, 2.0 * torch.exp(-outputs[:, 0]))


class LogDensity:
    """The least that a fit needs: an asymmetric loss, as a density."""

    def __init__(self, outputs):
        self.at = outputs[:, 0]

    def log_prob(self, y):
        away = y - self.at
        return -torch.where(away > 0.0, 2.0 * away, -0.5 * away) - math.log(2.5)


# densities ----------------------------------------------------------------------------------------


@cases(
    "distribution, n_outputs, n_targets, known",
    [
        (normal, 1, 1, Gaussian(1, np.array([0.5]))),
        (two_normals, 2, 2, Gaussian(2, np.array([0.5, 0.5]))),
        (correlated, 2, 2, Gaussian(2, np.array([0.5, 0.5]))),
        (heteroscedastic, 2, 1, Heteroscedastic(1)),
        (counts, 1, 1, Poisson(np.array([1.0]))),
    ],
)
def test_densities_slopes_and_moments_are_those_of_the_same_likelihood(
    distribution, n_outputs, n_targets, known
):
    """To rounding in float64, for several chains that share their rows or not."""
    own = DistributionLikelihood(TorchLikelihood(distribution, n_outputs), n_targets)
    rng = np.random.default_rng(1)
    f = torch.from_numpy(rng.standard_normal((3, 7, n_outputs)))
    none = torch.zeros(3, 0, dtype=torch.float64)
    for shape in ((7, n_targets), (3, 7, n_targets)):
        y = torch.from_numpy(rng.poisson(2.0, shape).astype(float))
        np.testing.assert_allclose(
            own.log_density(f, y, none), known.log_density(f, y, none), rtol=1e-12
        )
        expected = known.slope(f.clone(), y, none)[0]
        np.testing.assert_allclose(own.slope(f, y, none)[0], expected, rtol=1e-9, atol=1e-12)
    a, b = (each.predictive(f, none).numpy() for each in (own, known))
    y = y[0].numpy()
    np.testing.assert_allclose(a.mean(), b.mean())
    np.testing.assert_allclose(a.variance(), np.broadcast_to(b.variance(), a.variance().shape))
    np.testing.assert_allclose(a.log_density(y).sum(2), b.log_density(y).sum(2))
    if distribution in (normal, two_normals, heteroscedastic):
        np.testing.assert_allclose(a.cdf(y), b.cdf(y), rtol=1e-6, atol=1e-12)


def test_outputs_that_are_not_finite_have_no_density_but_no_error():
    """torch refuses nan as a parameter; a chain that diverged must not end the others."""
    own = DistributionLikelihood(TorchLikelihood(normal), 1)
    f = torch.tensor([0.0, math.nan, math.inf])[:, None, None].double()
    found = own.log_density(f, torch.zeros(1, 1), torch.zeros(3, 0))
    assert torch.isfinite(found[0]).all() and torch.isnan(found[1:]).all()


# fits ---------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_a_fit_is_that_of_the_same_likelihood():
    """Counts of mean one, whose built-in units are one, too: the same steps, to rounding."""
    y = np.resize([0.0, 1.0, 2.0, 3.0, 0.0, 0.0], 40)
    y[-1] += 40.0 - y.sum()
    fixed = NETWORK | {"sampler": "sghmc", "step_size": 1e-3, "dtype": "float64", "burn_in": 20}
    bend = math.log1p(y.std())

    def bent(outputs):
        beyond = (outputs[:, 0] - bend).clamp(min=0.0)
        return td.Poisson((outputs[:, 0] - beyond).exp() * (1.0 + beyond))

    own = BayesianMLPRegressor(likelihood=TorchLikelihood(bent), **fixed).fit(X, y)
    known = BayesianMLPRegressor(likelihood="poisson", **fixed).fit(X, y)
    np.testing.assert_allclose(own.predict(X), known.predict(X), rtol=1e-8)
    np.testing.assert_allclose(
        own.predict_log_density(X, y), known.predict_log_density(X, y), rtol=1e-8
    )


@pytest.mark.parametrize("sampler", ["auto", "psgld"])
def test_everything_that_predicts_and_leaves(sampler, tmp_path):
    """Means, sds, intervals, new observations, densities, files, clones, exports."""
    y = np.exp(X[:, 0]) * RNG.gamma(2.0, 0.5, 40)
    reg = BayesianMLPRegressor(likelihood=TorchLikelihood(gamma), **NETWORK | {"sampler": sampler})
    reg = clone(reg).fit(X, y)
    mean, sd = reg.predict(X, return_std=True)
    assert np.corrcoef(np.log(mean), X[:, 0])[0, 1] > 0.7
    # of a mixture of distributions whose sd is mean / sqrt(2)
    assert (sd > 0.99 * mean / math.sqrt(2.0)).all()
    inside = reg.predict_interval(X, 0.9)
    share = np.mean(inside[:, 1] > reg.sample_y(X, 500, random_state=0).T)
    assert abs(share - 0.95) < 4.0 * math.sqrt(0.05 * 0.95 / 500.0)  # rows share draws
    assert np.isfinite(reg.predict_log_density(X, y)).all()
    state = torch.get_rng_state()
    again = reg.sample_y(X, 2, random_state=3)
    np.testing.assert_array_equal(again, reg.sample_y(X, 2, random_state=3))
    assert torch.equal(state, torch.get_rng_state())
    copy = pickle.loads(pickle.dumps(reg))
    np.testing.assert_array_equal(copy.predict(X), reg.predict(X))
    found = to_torch(reg)(torch.from_numpy(X).float())[0]
    np.testing.assert_allclose(np.ravel(found), mean, rtol=1e-4)


def test_a_module_with_two_outputs_and_one_target():
    y = X[:, 0] + np.exp(0.3 * X[:, 1]) * RNG.standard_normal(40)
    own = TorchLikelihood(heteroscedastic, n_outputs=2)
    reg = BayesianModuleRegressor(nn.Linear(2, 2), likelihood=own, **RUN).fit(X, y)
    assert reg.predict(X).shape == (40,)
    assert "log_noise" not in reg.posterior_.shapes


def test_several_targets_with_one_event():
    y = X + 0.5 * RNG.standard_normal(X.shape)
    own = TorchLikelihood(correlated, n_outputs=2)
    reg = BayesianMLPRegressor(likelihood=own, **NETWORK).fit(X, y)
    assert reg.predict(X).shape == (40, 2)
    assert reg.predict_log_density(X, y).shape == (40,)


def test_a_log_density_alone_fits_and_scores():
    """The quantile of this loss at 0.8 is where its outputs are; it has no mean."""
    y = RNG.standard_normal(40)
    reg = BayesianMLPRegressor(likelihood=TorchLikelihood(LogDensity), **NETWORK)
    with pytest.raises(ValueError, match=r"predict is not allowed .* LogDensity has no mean"):
        reg.fit(X, y).predict(X)
    assert np.isfinite(reg.predict_log_density(X, y)).all()


@cases(
    "distribution, missing",
    [
        (lambda f: td.Cauchy(f[:, 0], 0.3), "mean"),
        (lambda f: td.Pareto(torch.tensor(0.01).to(f), 0.5 + 0.1 * f[:, 0].sigmoid()), "mean"),
        (lambda f: td.StudentT(1.5, f[:, 0], 0.3), "variance"),
    ],
)
def test_distributions_without_moments(distribution, missing):
    """torch's are nan or infinite: fits ended with the advice of a smaller step size."""
    y = np.exp(X[:, 0])
    reg = BayesianMLPRegressor(likelihood=TorchLikelihood(distribution), **NETWORK).fit(X, y)
    with pytest.raises(ValueError, match=f"is not allowed with this .* has no {missing}"):
        reg.predict(X, return_std=True)
    assert np.isfinite(reg.predict_log_density(X, y)).all()
    if missing == "variance":  # nor has torch's Student distribution a cdf
        assert np.isfinite(reg.predict(X)).all()
        return
    levels = [0.05, 0.5, 0.9]
    found = reg.predict_quantiles(X[:3], levels)
    for row, quantiles in zip(X[:3], found, strict=True):
        survival = reg.predict_survival(row[None], quantiles)[0]
        np.testing.assert_allclose(1.0 - survival, levels, atol=1e-6)


def test_transformed_distributions():
    """Those of torch have no moments, and a Categorical distribution has no mean."""

    def log_normal(f):
        return td.TransformedDistribution(td.Normal(f[:, 0], 0.5), [td.ExpTransform()])

    def categorical(f):
        return td.Categorical(logits=f)

    y = np.exp(X[:, 0])
    reg = BayesianMLPRegressor(likelihood=TorchLikelihood(log_normal), **NETWORK).fit(X, y)
    same = BayesianMLPRegressor(likelihood=TorchLikelihood(log_normals), **NETWORK).fit(X, y)
    for method, more in (("predict_quantiles", ()), ("predict_survival", ([0.0, 2.0],))):
        found = getattr(reg, method)(X, *more)
        np.testing.assert_allclose(found, getattr(same, method)(X, *more), rtol=1e-4)
    outside = np.where(np.arange(40) % 2, -1.0, y)
    for given in (y, outside):
        found = reg.predict_log_density(X, given)
        np.testing.assert_allclose(found, same.predict_log_density(X, given))
    classes = BayesianMLPRegressor(likelihood=TorchLikelihood(categorical, 3), **NETWORK)
    found = classes.fit(X, np.arange(40.0) % 3).predict_log_density(X, np.arange(40.0) % 4)
    assert np.array_equal(np.isfinite(found), np.arange(40) % 4 < 3)


def log_normals(outputs):
    return td.LogNormal(outputs[:, 0], 0.5)


def jittered(outputs):
    return td.Normal(outputs[:, 0] + torch.randn(len(outputs)), 1.0)


# refusals -----------------------------------------------------------------------------------------


@cases(
    "likelihood, y, message",
    [
        (TorchLikelihood("normal"), "any", "likelihood.distribution='normal' is not allowed"),
        (TorchLikelihood(normal, 0), "any", "likelihood.n_outputs=0 is not allowed"),
        (TorchLikelihood(counts), "any", "is not allowed for y with 1 column: .*ValueError"),
        (TorchLikelihood(lambda f: td.Normal(f[:, 1], 1.0)), "any", "raises IndexError"),
        (TorchLikelihood(lambda f: None), "any", "raises AttributeError"),
        # these were sampled, or failed after all steps
        (TorchLikelihood(lambda f: td.Normal(f, 1.0)), "any", r"the shape \(20, 20\) for y of sha"),
        (TorchLikelihood(lambda f: td.Normal(f[0], 1.0)), "any", r"targets have the shape \(1,\)"),
        (TorchLikelihood(lambda f: td.Normal(f[:, 0].detach(), 1.0)), "any", "has no gradient in"),
        (TorchLikelihood(lambda f: td.Normal(f[:, 0] - f[:, 0].mean(), 1.0)), "any", "other rows"),
        (TorchLikelihood(jittered), "any", "two evaluations at the same outputs differ"),
        (
            TorchLikelihood(lambda f: td.Uniform(f[:, 0] - 4.0, f[:, 0] + 4.0)),
            "any",
            "the support must not depend on them. At outputs that chains came to, it raises",
        ),
    ],
)
def test_bad_likelihoods_are_explained(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        BayesianMLPRegressor(likelihood=likelihood, **NETWORK).fit(X, -X[:, 0])


def test_linear_models_refuse_and_other_parameters_do_not_apply():
    own = TorchLikelihood(normal)
    with pytest.raises(ValueError, match="likelihood=.* is not allowed"):
        BayesianGLMRegressor(likelihood=own).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"noise=0.5 is not allowed"):
        BayesianMLPRegressor(likelihood=own, noise=0.5, **NETWORK).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="is not allowed with a spike-and-slab prior"):
        BayesianModuleRegressor(nn.Linear(2, 1), likelihood=own, prior="spike_slab").fit(X, X[:, 0])


def test_a_distribution_without_a_cdf_says_what_to_use():
    def beta(outputs):
        return td.Beta(torch.exp(outputs[:, 0]), 2.0)

    y = RNG.uniform(0.1, 0.9, 40)
    reg = BayesianMLPRegressor(likelihood=TorchLikelihood(beta), **NETWORK).fit(X, y)
    with pytest.raises(
        ValueError,
        match=r"predict_quantiles or predict_survival is not .* Beta has no cdf.*sample_y",
    ):
        reg.predict_interval(X)
