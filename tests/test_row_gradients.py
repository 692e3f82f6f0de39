"""Gradients of single rows, and the two uses of their noise: SGHMC's B_hat, and alpha_t."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _targets import GaussianMean

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc.diagnostics import sampling_threshold
from skbayes_sgmcmc.inspection import NoisePhaseDisplay
from skbayes_sgmcmc.samplers import PSGLD, SGHMC
from skbayes_sgmcmc.schedules import Polynomial

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3)) * [1.0, 2.0, 0.5]
LABELS = (X[:, 0] + rng.logistic(size=60) > 0.0).astype(int)
Y = X[:, 0] - X[:, 1] + rng.standard_normal(60)
WEIGHT = rng.uniform(0.5, 2.0, 60)

ROWS = {
    "two classes": (sk.BayesianLogisticRegression(), X, LABELS),
    "three classes": (sk.BayesianLogisticRegression(), X, LABELS + (X[:, 2] > 0.3)),
    "sparse": (sk.BayesianLogisticRegression(), sp.csr_matrix(X * (np.abs(X) > 0.5)), LABELS),
    "own parameters": (sk.BayesianGLMRegressor(likelihood="student_t"), X, Y),
    "network": (sk.BayesianMLPRegressor(hidden_layer_sizes=(4,)), X, Y),
    "module": (sk.BayesianModuleClassifier(torch.nn.Linear(3, 2)), X, LABELS),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("n_chains", [1, 2])
def test_gradients_of_rows_are_those_of_minibatches_of_one_row(name, n_chains):
    """Each chain has other rows; they also add up to the minibatch's gradient."""
    estimator, x, y = ROWS[name]
    task = estimator._task(x, y, WEIGHT)
    problem = estimator._problem(task.model, task.rows, task.settings)
    model, data = problem.model, problem.data
    dtype = problem.dtype
    theta = torch.from_numpy(0.3 * rng.standard_normal((n_chains, model.n_parameters))).to(dtype)
    index = np.arange(5 * n_chains).reshape(1, n_chains, 5)
    batch = next(Minibatches(data, 5).gather(index, None))
    state, random = model.init_state(theta), ChainRandom([])
    found = model.row_gradients(theta, batch, state, random)
    close = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for chain, row in np.ndindex(n_chains, 5):
        one = Minibatches(data, 1).batch_of(index[0, chain, [row]])
        out = torch.zeros_like(theta[[chain]])
        own = {key: tensor[[chain]] for key, tensor in state.items()}
        model.likelihood_gradient(theta[[chain]], one, own, random, out=out, scale=1.0)
        torch.testing.assert_close(found[chain, row], out[0], **close)
    together = torch.zeros_like(theta)
    model.likelihood_gradient(theta, batch, state, random, out=together, scale=1.0)
    torch.testing.assert_close(found.sum(1), together, **close)


# the empirical Fisher information in SGHMC --------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("dim", [1, 10])
def test_sghmc_takes_off_the_noise_that_its_rows_show(dim):
    """Minibatches of 10 of 500 rows: beta_hat is 0.74 alpha, so variances are 1.74 times too large.

    With the Fisher information they are the posterior's, to 3 standard errors between chains.
    """
    n_rows, given = 500, np.random.default_rng(0)
    x = given.standard_normal((n_rows, dim))
    x = (x - x.mean(0)) / x.std(0, ddof=1)
    found = {}
    for variance in (None, "fisher"):
        theta = sk.sample(
            GaussianMean(dim, 1e-9),
            data=Data({"x": torch.from_numpy(x)}, n_rows),
            sampler=SGHMC(friction=0.1, gradient_variance=variance),
            integrator="euler",
            step_size=3e-3,
            batch_size=10,
            n_chains=100,
            init=given.standard_normal((100, dim)) / n_rows**0.5,
            burn_in=300,
            n_draws=50,
            thinning=20,
            random_state=0,
        )["theta"]
        chains = (theta**2).mean((1, 2)) * n_rows
        found[variance] = chains.mean(), chains.std() / 10.0
    assert found[None][0] > 1.6
    assert found["fisher"][1] < 0.04
    assert abs(found["fisher"][0] - 1.0) < 3.0 * found["fisher"][1]


def test_the_fisher_information_needs_rows():
    """One row has no variance; gradients of topics are estimates, and densities have no rows."""
    sampler = SGHMC(gradient_variance="fisher")
    clf = sk.BayesianLogisticRegression(sampler=sampler, step_size=0.1, batch_size=1, max_steps=10)
    with pytest.raises(ValueError, match="batch_size=1 is not allowed with gradient_variance"):
        clf.fit(X, LABELS)
    with pytest.raises(ValueError, match="give gradient_variance='estimate'"):
        sk.sample(lambda theta: -(theta**2).sum(1), 2, sampler=sampler, step_size=0.1)
    with pytest.raises(ValueError, match="give gradient_variance='estimate'"):
        sk.LatentDirichletAllocation(2, sampler=sampler, step_size=0.1).fit(np.ones((9, 4)))
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    with pytest.raises(ValueError, match="give gradient_variance='estimate'"):
        sk.BayesianModuleClassifier(norm, sampler=sampler, step_size=0.1).fit(X, LABELS)
    with pytest.raises(ValueError, match=r"gradient_variance='fish' is not allowed"):
        SGHMC(gradient_variance="fish").check("sampler")


def test_variances_of_gradients_are_one_for_each_parameter():
    """Other shapes are refused, also one number for each of the 4 chains, which would broadcast."""
    given = {"step_size": 0.1, "n_draws": 20, "max_steps": 30, "n_chains": 4}
    for bad in (np.full(2, 0.1), np.full((4, 1), 0.1)):
        clf = sk.BayesianLogisticRegression(sampler=SGHMC(gradient_variance=bad), **given)
        with pytest.raises(ValueError, match=r"gradient_variance of shape .* give one number"):
            clf.fit(X, LABELS)


# the sampling threshold ---------------------------------------------------------------------------

MANY = np.random.default_rng(1).standard_normal((3000, 5)) * [1.0, 1.0, 1.0, 1.0, 3.0]


def mean_of(sampler, x=MANY, n_draws=50, **settings):
    """A run for the mean of normal rows, with all that the trace needs."""
    from skbayes_sgmcmc._engine.problem import Problem
    from skbayes_sgmcmc._engine.run import draw
    from skbayes_sgmcmc._engine.settings import Settings

    data = Data({"x": torch.from_numpy(x)}, len(x))
    problem = Problem(GaussianMean(x.shape[1], 1.0), data, torch.float64, "cpu")
    estimator = sk.BayesianLogisticRegression(
        sampler=sampler, n_draws=n_draws, burn_in=10, thinning=1, random_state=0, **settings
    )
    return draw(problem, replace(Settings.of(estimator), init=np.zeros(x.shape[1])))


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["sgld", SGHMC(friction=0.1), PSGLD()])
def test_the_trace_is_the_ratio_for_the_covariance_of_all_rows(sampler):
    """To 20%: the covariance comes from 1,000 pairs of rows of other chains each.

    A variance from 500 pairs has an error of 6%. The rows' scores are x - theta, so V_s is the
    covariance of x; pSGLD's V is its diagonal over n.
    """
    n, steps = 20, Polynomial(a=0.01, b=10.0, gamma=0.55)
    run = mean_of(sampler, step_size=steps, batch_size=n)
    trace, covariance = run.threshold_trace(), np.cov(MANY.T)
    eta = steps.values(trace["step"] - 1, run.n_steps)
    root = np.diag(covariance / n) ** -0.25 if isinstance(sampler, PSGLD) else None
    friction = sampler.friction if isinstance(sampler, SGHMC) else None
    given = {"n": len(MANY), "batch_size": n, "root": root, "friction": friction}
    for i in (0, 20, -1):
        expected = sampling_threshold(covariance, step_size=eta[i], **given)
        assert trace["noise_ratio"][i] == pytest.approx(expected, rel=0.2)
    injected = 2.0 * eta / len(MANY) * (friction or 1.0)
    np.testing.assert_allclose(trace["injected_noise"], injected)
    ratio = trace["gradient_noise"][:, 1] / trace["injected_noise"]
    np.testing.assert_allclose(ratio, trace["noise_ratio"], rtol=0.2)  # the worst is a coordinate


@pytest.mark.statistical
def test_directions_that_fit_the_noise_of_some_rows_do_not_count():
    """100 columns of equal variance have no worst direction, and 20,000 rows show none.

    The covariance of the pairs of rows that are looked at has one with 1.7 times this variance.
    """
    x = np.random.default_rng(2).standard_normal((20_000, 100))
    run = mean_of("sgld", x, n_draws=4, step_size=1e-3, batch_size=50)
    expected = 1e-3 * len(x) / (2 * 50)
    assert run.threshold_trace()["noise_ratio"][0] == pytest.approx(expected, rel=0.3)


def test_weights_of_two_are_rows_that_come_twice():
    """Twice as many rows: the posterior is narrower, and minibatches are as noisy as before."""
    given = {"sampler": "sgld", "step_size": 1e-3, "batch_size": 10, "init": np.zeros(4)}
    given |= {"n_draws": 4, "burn_in": 0, "thinning": 1, "preconditioner": None, "random_state": 0}
    clf = sk.BayesianLogisticRegression(prior_scale=0.01, **given)
    plain = clf.fit(X, LABELS).sampling_threshold_["noise_ratio"]
    twice = clf.fit(X, LABELS, np.full(60, 2.0)).sampling_threshold_["noise_ratio"]
    np.testing.assert_allclose(twice, 2.0 * plain, rtol=0.05)


def test_estimators_without_noise_of_minibatches_or_of_their_own():
    """With all rows alpha_t is 0; MCLMC injects no noise.

    Parts of streams are short, and would take much of their time to measure it.
    """
    clf = sk.BayesianLogisticRegression(random_state=0).fit(X, LABELS)
    assert not clf.sampling_threshold_["noise_ratio"].any()
    assert NoisePhaseDisplay.from_estimator(clf).injected.all()
    assert clf.partial_fit(X, LABELS).sampling_threshold_ is None
    net = sk.BayesianMLPRegressor((3,), sampler="mclmc", max_steps=50, n_draws=5, random_state=0)
    assert net.fit(X, Y).sampling_threshold_ is None
    with pytest.raises(ValueError, match="the noise of its gradients is not known"):
        NoisePhaseDisplay.from_estimator(net)


@pytest.mark.statistical
def test_the_trace_of_topics_is_that_of_their_documents():
    """One topic has all words, so a document's score is x - |x| phi, without Gibbs sampling.

    20%: the variance of the worst of 30 words comes from 16 pairs of documents or more.
    """
    rng, n = np.random.default_rng(0), 20
    docs = rng.poisson(rng.gamma(2.0, 5.0, (2000, 1)) * rng.dirichlet(np.full(30, 0.5)))
    lda = sk.LatentDirichletAllocation(
        1, parametrization="expanded_natural", sampler="sgld", step_size=0.01, batch_size=n,
        burn_in=500, n_draws=5, thinning=1, n_chains=2, random_state=0,
    ).fit(docs)  # fmt: skip
    scores = docs - docs.sum(1, keepdims=True) * lda.components_
    variance = scores.var(0).max() / n * (1.0 - n / len(docs))
    found = lda.sampling_threshold_["gradient_noise"][-1, 1]
    assert found == pytest.approx(0.01**2 * variance, rel=0.2)


def test_phases_of_a_fitted_network():
    """A step that falls a hundredfold, from an optimiser's to a sampler's."""
    net = sk.BayesianMLPRegressor(
        (3,), sampler="sgld", step_size=Polynomial(0.05, 5e-4), batch_size=10, n_chains=2,
        n_draws=100, burn_in=100, thinning=2, noise=1.0, random_state=0,
    ).fit(X, Y)  # fmt: skip
    display = NoisePhaseDisplay.from_estimator(net)
    assert display.steps[0] == 0 and display.steps[-1] == 299
    ratio = display.largest / display.injected
    assert ratio[0] / ratio[-1] == pytest.approx(100.0, rel=0.01)
    assert (display.smallest <= display.largest).all()


def test_variances_of_gradients_in_any_layout():
    """torch takes no arrays of another byte order, and warns of those that can't be written to."""

    def draws(variance):
        sampler = SGHMC(friction=0.3, gradient_variance=variance)
        given = {"step_size": 0.01, "n_draws": 5, "burn_in": 5, "random_state": 0}
        return sk.sample(lambda theta: -(theta**2).sum(1), 3, sampler=sampler, **given)["theta"]

    variance = np.array([0.5, 1.0, 2.0])
    kept = variance.copy()
    kept.setflags(write=False)
    for other in (variance[::-1].copy()[::-1], kept, variance.astype(">f8"), variance.tolist()):
        assert np.array_equal(draws(other), draws(variance))
