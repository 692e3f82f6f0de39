"""The densities of independent components: what they are, how they are chosen, what they find."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from _cases import cases
from _links import messages
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FastICA

from skbayes_sgmcmc import BayesianICA, SamplingWarning
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.models import Data, Model
from skbayes_sgmcmc.models.ica.densities import LOGISTIC_SD, SHAPES, Densities, shape_gains
from skbayes_sgmcmc.models.ica.model import ICAModel
from skbayes_sgmcmc.models.ica.start import mode_start
from skbayes_sgmcmc.priors.factorised import PRIORS

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

SHORT = {"n_chains": 2, "n_draws": 40, "burn_in": 200, "thinning": 5, "random_state": 0}
MIXED = np.array([1.0, -4.0, 0.0, 0.5, -0.5])


def light(rng, n, d):
    """Sources with lighter tails than a normal one: uniform, sine and square, in turn."""
    kinds = (
        lambda: rng.uniform(-1.0, 1.0, n),
        lambda: np.sin(rng.uniform(0.0, 2.0 * np.pi, n)),
        lambda: np.sign(rng.standard_normal(n)) + 0.2 * rng.standard_normal(n),
    )
    return np.stack([kinds[k % 3]() for k in range(d)], axis=1)


def heavy(rng, n, d):
    kinds = (
        lambda: rng.laplace(size=n),
        lambda: rng.standard_t(3, size=n),
        lambda: rng.exponential(size=n),
    )
    return np.stack([kinds[k % 3]() for k in range(d)], axis=1)


def both(rng, n, d):
    return np.c_[light(rng, n, d // 2), heavy(rng, n, d - d // 2)]


def mixed(sources, rng):
    sources = (sources - sources.mean(0)) / sources.std(0)
    return sources, sources @ rng.standard_normal((sources.shape[1],) * 2)


def correlations(found, sources):
    """Of each source with the component that finds it."""
    table = np.abs(np.corrcoef(found.T, sources.T)[: found.shape[1], found.shape[1] :])
    return table[linear_sum_assignment(table, maximize=True)]


# the densities ------------------------------------------------------------------------------------


def log_density(y, shape):
    """log p_s(y), without its constant and scale."""
    return -2.0 * shape * np.log(np.cosh(y / 2)) - (1.0 - shape) * y**2 * 1.5 / np.pi**2


@cases("shape", SHAPES)
def test_densities_are_densities_of_one_variance(shape):
    """Their integral is 1 and their variance that of the logistic density, by quadrature."""

    def p(y):
        at = torch.tensor([y], dtype=torch.float64)
        return float(torch.exp(Densities(np.array([shape])).log_density(at)))

    z, v = (scipy.integrate.quad(lambda y, k=k: y**k * p(y), -60, 60, limit=500)[0] for k in (0, 2))
    assert z == pytest.approx(1.0, abs=1e-6)
    assert v == pytest.approx(np.pi**2 / 3.0, abs=1e-5)


def test_members_of_the_family():
    """Shape 1 is 1 / (4 cosh^2(y/2)), shape 0 normal; kurtoses fall with the shape, to near -2."""
    y = torch.linspace(-9.0, 9.0, 50, dtype=torch.float64)[:, None]
    logistic, normal = (Densities(np.array([s])).log_density(y).numpy() for s in (1.0, 0.0))
    np.testing.assert_allclose(logistic, scipy.stats.logistic.logpdf(y[:, 0]))
    np.testing.assert_allclose(normal, scipy.stats.norm(0.0, LOGISTIC_SD).logpdf(y[:, 0]))
    grid = np.linspace(-60.0, 60.0, 20_001)
    moments = [[(np.exp(log_density(grid, s)) * grid**k).sum() for k in (0, 2, 4)] for s in SHAPES]
    kurtosis = [m4 * m0 / m2**2 - 3.0 for m0, m2, m4 in moments]
    assert kurtosis[0] == pytest.approx(1.2, abs=1e-3)
    assert (np.diff(kurtosis) < 0.0).all() and kurtosis[-1] == pytest.approx(-1.8, abs=0.05)


def test_slopes_of_the_densities():
    """Of log p and of psi, by autograd; arrays have the same curvature as tensors."""
    densities = Densities(SHAPES)
    y = torch.linspace(-6.0, 6.0, 12, dtype=torch.float64)[:, None] * torch.ones(len(SHAPES))
    y = y.double().requires_grad_(True)
    (slope,) = torch.autograd.grad(densities.log_density(y).sum(), y, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), y)
    at = y.detach()
    torch.testing.assert_close(densities.psi(at), -slope.detach())
    torch.testing.assert_close(densities.curvature(at), -bend)
    np.testing.assert_allclose(densities.curvature(at.numpy()), -bend)


@pytest.fixture(scope="module")
def model():
    return ICAModel(np.eye(5), PRIORS["normal"](), 1.0, np.eye(5), MIXED)


def test_gradients_with_different_densities(model):
    """Against autograd, also of scores and with control variates; the Hessian by differences."""
    rng = np.random.default_rng(0)
    theta = torch.from_numpy((np.eye(5) + 0.3 * rng.standard_normal((2, 5, 5))).reshape(2, 25))
    x = torch.from_numpy(rng.laplace(size=(7, 5)))
    batch = Batch({"x": x}, torch.from_numpy(rng.uniform(0.5, 2.0, 7)), True, 7)
    ours, theirs = torch.zeros_like(theta), torch.zeros_like(theta)
    model.likelihood_gradient(theta, batch, {}, None, out=ours, scale=1.0)
    Model.likelihood_gradient(model, theta, batch, {}, None, out=theirs, scale=1.0)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        model.scores(theta[:1], batch), Model.scores(model, theta[:1], batch)
    )
    data = Data({"x": x}, 7, batch.weight)
    anchor = model.anchor(theta[0].numpy(), data)
    anchored = torch.zeros_like(theta)
    batch = Batch({"x": x} | anchor.fields, batch.weight, True, 7)
    model.likelihood_gradient(theta, batch, {}, None, out=anchored, scale=1.0)
    torch.testing.assert_close(anchored + torch.from_numpy(anchor.gradient), ours)
    vector = torch.from_numpy(1e-5 * rng.standard_normal((1, 25)))
    ends = []
    for at in (theta[:1] + vector, theta[:1] - vector):
        ends.append(torch.zeros_like(at))
        model.likelihood_gradient(at, data.all_rows(), {}, None, out=ends[-1], scale=1.0)
    slope = (ends[0] - ends[1])[0].numpy() / 2e-5
    product = model.hessian_times(theta[0].numpy(), vector[0].numpy() / 1e-5, data)
    np.testing.assert_allclose(product, slope, rtol=1e-6, atol=1e-6)


# the choice ---------------------------------------------------------------------------------------


def test_the_kind_of_the_source_is_chosen():
    """By likelihood, for quantiles of uniform, normal and Laplace sources, in any units."""
    levels = (np.arange(2000) + 0.5) / 2000
    y = np.c_[levels, scipy.stats.norm.ppf(levels), scipy.stats.laplace.ppf(levels)]
    gains = shape_gains(y)
    np.testing.assert_array_equal(np.sign(SHAPES[gains.argmax(1)]), [-1, 0, 1])
    np.testing.assert_allclose(shape_gains(1e-3 * y + 7.0), gains, atol=0.01)
    # the best shape is as likely as by brute force over scales
    scales = np.linspace(1.0, 6.0, 2001)
    z = scales * (y[:, :1] - y[:, 0].mean()) / y[:, 0].std()
    at = Densities(np.array([-4.0, 0.0]))
    table = [
        (Densities(np.array([s])).log_density(torch.from_numpy(z)[..., None]).sum(0).numpy()
         + 2000 * np.log(scales)).max()
        for s in at.shapes
    ]  # fmt: skip
    assert gains[0, SHAPES == -4.0] == pytest.approx(table[0] - table[1], abs=0.01)


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("kind", [light, heavy, both])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_sources_are_found_as_by_fast_ica(kind, d, noise):
    """Correlations with the true sources are at least 0.98 times FastICA's, on average.

    With the logistic density for all sources, those of light ones were 0.7.
    """
    rng = np.random.default_rng(0)
    sources, X = mixed(kind(rng, 500, d), rng)
    X = X + noise * X.std(0) * rng.standard_normal(X.shape)
    ica = BayesianICA(**SHORT).fit(X)
    ours = correlations(ica.transform(X), sources)
    theirs = correlations(FastICA(random_state=0, max_iter=1000).fit_transform(X), sources)
    assert ours.mean() > 0.98 * theirs.mean()
    assert (np.sign(ica.density_shapes_) < 0).sum() == {light: d, heavy: 0, both: d // 2}[kind]


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [light, heavy])
@pytest.mark.parametrize("n", [600, pytest.param(10_000, marks=pytest.mark.slow)])
def test_gaussian_sources_are_unstable(kind, n):
    """However many rows there are: two of them have five times the instability of any other.

    The others' falls as 1/n: 0.06 at most with 600 rows. That of two normal densities does not. It
    is 0.6 if every angle is found, and was 0.3 and more; with logistic densities for all, it fell.
    """
    rng = np.random.default_rng(0)
    sources, X = mixed(np.c_[kind(rng, n, 2), rng.standard_normal((n, 2))], rng)
    ica = BayesianICA(n_chains=8, n_draws=40, random_state=0).fit(X)
    order = np.argsort(ica.instability_)
    assert 5.0 * ica.instability_[order[1]] < ica.instability_[order[2]]
    sure = correlations(ica.transform(X)[:, order[:2]], sources[:, :2])
    assert sure.min() > 0.95


def test_sources_that_contradict_their_density_are_not_stable():
    """Light sources with the paper's density: a warning with a remedy, and all of their variance.

    The posterior is narrow about maximally mixed sources: without it, instabilities were below .05.
    """
    rng = np.random.default_rng(0)
    sources, X = mixed(light(rng, 1000, 3), rng)
    ica = BayesianICA(density="logistic", **SHORT)
    with pytest.warns(SamplingWarning, match=r"bayesianica0, .* Give density='extended'"):
        ica.fit(X)
    assert ica.instability_.min() > 2.0
    assert correlations(ica.transform(X), sources).min() < 0.9
    said = messages(lambda: ica.set_params(density="extended").fit(X))
    assert not any("density_shapes_" in text for text in said)
    assert ica.instability_.max() < 0.1


def test_heavy_tails_have_the_papers_density():
    """To the bit the same draws as with density="logistic", if that density suits every source."""
    rng = np.random.default_rng(0)
    X = mixed(rng.laplace(size=(800, 3)) ** 3, rng)[1]
    ours, papers = (BayesianICA(density=d, **SHORT).fit(X) for d in ("extended", "logistic"))
    np.testing.assert_array_equal(ours.density_shapes_, 1.0)
    np.testing.assert_array_equal(ours.posterior_["components"], papers.posterior_["components"])


# the posterior ------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("kinds", [(light, light), (light, heavy)])
def test_means_and_sds_against_importance_sampling(kinds):
    """Two components, 200 rows: 10,000 draws of a t distribution, weighted by the posterior.

    The chains have 800 effective draws: sds are within 10%, which is four standard errors, and
    means within 0.2 of them.
    """
    rng = np.random.default_rng(0)
    X = mixed(np.c_[kinds[0](rng, 200, 1), kinds[1](rng, 200, 1)], rng)[1]
    ica = BayesianICA(n_chains=16, n_draws=100, random_state=0).fit(X)
    K, shapes = np.linalg.inv(ica.whitening_), ica.density_shapes_
    draws = (ica.posterior_["components"] @ K).reshape(-1, 4)
    x = (X - ica.mean_) @ ica.whitening_.T
    guess = scipy.stats.multivariate_t(draws.mean(0), 1.2 * np.cov(draws.T), df=8, seed=1)
    w = guess.rvs(10_000)
    log_p = scipy.stats.norm.logpdf(w).sum(1)
    log_p += 200 * np.linalg.slogdet(w.reshape(-1, 2, 2)).logabsdet
    grid = np.linspace(-60.0, 60.0, 20_001)
    for i, shape in enumerate(shapes):
        p = np.exp(log_density(grid, shape))
        width = np.sqrt((p * grid**2).sum() / p.sum()) / LOGISTIC_SD
        y = width * (w[:, 2 * i : 2 * i + 2] @ x.T)
        log_p += log_density(y, shape).sum(1)
    log_p -= guess.logpdf(w)
    weight = np.exp(log_p - log_p.max())
    assert weight.sum() ** 2 / (weight**2).sum() > 3000
    mean = np.average(w, axis=0, weights=weight)
    sd = np.sqrt(np.average((w - mean) ** 2, axis=0, weights=weight))
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.1)
    assert (np.abs(draws.mean(0) - mean) < 0.2 * sd).all()


@pytest.mark.statistical
def test_draws_of_different_densities_are_aligned():
    """From random rotations, too, all chains find the sources, in the same order.

    Two sources of the same kind may have got each other's density, which changes their scales by a
    tenth, but light and heavy ones may not: their mean sources would be mixtures.
    """
    rng = np.random.default_rng(0)
    sources, X = mixed(both(rng, 600, 4), rng)
    ica = BayesianICA(init="random", n_draws=20, burn_in=1500, random_state=1).fit(X)
    means = ica.posterior_["components"].mean(1)
    found = np.corrcoef(np.concatenate([X @ w.T for w in means], axis=1).T)
    assert min(found[4 * c + i, i] for c in range(4) for i in range(4)) > 0.98
    assert all(correlations(X @ w.T, sources).min() > 0.98 for w in means)


# streams and later fits ---------------------------------------------------------------------------


def test_densities_in_streams():
    """Those of the first rows stay; later rows that contradict them are told, with what to do."""
    rng = np.random.default_rng(0)
    sources, X = mixed(both(rng, 2000, 2), rng)
    ica = BayesianICA(n_chains=2, total_samples=2000, random_state=0)
    for _ in range(2):
        for start in range(0, 2000, 500):
            ica.partial_fit(X[start : start + 500])
    assert correlations(ica.transform(X), sources).min() > 0.98
    with pytest.raises(ValueError, match=r"density='logistic' .* had 2 .* density='extended'"):
        ica.set_params(density="logistic").partial_fit(X)
    late = BayesianICA(n_chains=2, random_state=0).partial_fit(rng.standard_t(3, size=(300, 2)))
    assert (late.density_shapes_ > 0.0).all()
    with pytest.warns(SamplingWarning, match="begin the stream with a larger part"):
        late.partial_fit(sources[:, :1] + [0.0, 1.0] * rng.uniform(-1.0, 1.0, (2000, 2)))


def test_warm_start_keeps_the_densities():
    """Chains go on with the rows' earlier densities, and begin anew if ``density`` has changed."""
    rng = np.random.default_rng(0)
    X = mixed(both(rng, 400, 3), rng)[1]
    ica = BayesianICA(warm_start=True, **SHORT).fit(X)
    shapes = ica.density_shapes_
    np.testing.assert_array_equal(ica.fit(X[:200]).density_shapes_, shapes)
    np.testing.assert_array_equal(ica.set_params(density="logistic").fit(X).density_shapes_, 1.0)


@cases("density", ["normal", None, 1.0])
def test_unknown_densities(density):
    with pytest.raises(ValueError, match=r"density=.* 'extended', 'logistic'"):
        BayesianICA(density=density).fit(np.eye(5))


def test_the_choice_does_not_depend_on_rounding():
    """The start, too, is the same for rows times 1 + 1e-15, to rounding."""
    rng = np.random.default_rng(0)
    X = mixed(both(rng, 400, 4), rng)[1]
    (one, shapes), (other, same) = (mode_start(x, learn_shapes=True) for x in (X, X * (1 + 1e-15)))
    np.testing.assert_array_equal(shapes, same)
    np.testing.assert_allclose(other, one, atol=1e-8)
