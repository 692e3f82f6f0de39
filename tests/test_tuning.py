"""What ``step_size="auto"`` means, where it is refused, and what becomes of steps too long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from _cases import cases
from _targets import GaussianMean
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc._engine import energy
from skbayes_sgmcmc._engine.target import Target
from skbayes_sgmcmc.models import CurvedModel, Data, DensityModel, ManyModes
from skbayes_sgmcmc.models._linalg import largest_of_symmetric
from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.models.tuning.gaussian import WhitenedGaussian
from skbayes_sgmcmc.models.tuning.walls import step_at_walls
from skbayes_sgmcmc.priors import Normal
from skbayes_sgmcmc.samplers import MALA, PSGLD, SGHMC, SGLD, Sampler

#: runs too short to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

N = 200


class ShortModel(GaussianMean):
    """Two densities and a start: all that a model has to have."""

    def init(self, rng):
        return rng.standard_normal(self.n_parameters)


class MyCurved(CurvedModel, ShortModel):
    """The same with the three methods that "auto" needs."""

    def find_map(self, data):
        return data.fields["x"].sum(0).numpy() / (data.total + self.precision)

    def hessian_times(self, theta, vector, data):
        return data.total * vector

    def prior_hessian(self, theta):
        return np.full(theta.shape, self.precision)


class MyModes(ShortModel):
    """The same with the table's rates instead."""

    @property
    def tuning(self):
        return ManyModes(self)


def rows():
    x = np.random.default_rng(0).standard_normal((N, 3)) + np.array([1.0, 0.0, -2.0])
    return Data({"x": torch.from_numpy(x)}, N)


@cases("given", ["step_size='auto'", "init='map'", "gradient='control_variates'"])
@cases("model", [ShortModel(3, 1.0), DensityModel(lambda t: -(t.sum(1) ** 2), 3)])
def test_without_tuning_what_needs_the_maximum_is_refused_by_its_name(model, given):
    """Nothing that was not given is named."""
    name, value = given.replace("'", "").split("=")
    message = f"^{given} is not allowed: the maximum of the posterior density is not known; give "
    with pytest.raises(ValueError, match=message):
        sk.sample(model, data=rows(), **({"step_size": 0.1} | {name: value}))
    with pytest.raises(ValueError, match="no curvature; give preconditioner=None or an array"):
        sk.sample(model, data=rows(), preconditioner="hessian")


@pytest.mark.statistical
@pytest.mark.parametrize(("model", "step"), [(MyCurved, 0.1), (MyModes, 0.03)])
def test_models_with_tuning_of_their_own(model, step):
    """The table's step for Euler (over the largest curvature, 1.005) or the table's rate.

    The posterior is N(sum x / (N + 1), 1 / (N + 1)). With the step s the sds are 1 / sqrt(1 - s/2)
    times that, at most 2.6% more. 128 chains of 250 steps have an ESS of at least
    128 * 250 * 0.03 / 2 = 480: 0.046 sd a mean and 3.2% a sd; the bounds are four of these, and
    2.6%. A move of one step shows s itself: its variance is 2 s / N, to 1% for so many moves, and
    at most 5% more by the drift.
    """
    data = rows()
    draws = sk.sample(
        model(3, 1.0),
        data=data,
        step_size="auto",
        integrator="euler",
        batch_size=N,
        n_chains=128,
        n_draws=250,
        burn_in=400,
        random_state=0,
    )
    mean, sd = data.fields["x"].sum(0).numpy() / (N + 1), (N + 1) ** -0.5
    assert (np.abs(draws.mean("theta") - mean) < 0.18 * sd).all()
    assert (np.abs(draws.std("theta") / sd - 1.0) < 0.155).all()
    moves = np.diff(draws["theta"], axis=1)
    assert moves.var() * N / 2.0 == pytest.approx(step, rel=0.1)


class NoRule(Sampler):
    """Plain Euler, of which "auto" knows nothing."""

    def euler(self, theta, state, step):
        theta.add_(step.gradient(theta), alpha=-step.eta)


class OwnRule(NoRule):
    def own_step(self, n_parameters):
        return 0.1


def test_a_sampler_without_a_rule_needs_a_number_or_one():
    """As its error says: a number, or ``own_step``."""
    X, y = make_classification(
        100, 3, n_informative=3, n_redundant=0, n_clusters_per_class=1, random_state=0
    )
    with pytest.raises(ValueError, match="with NoRule, which has no rule .*number, or .* own_step"):
        sk.BayesianLogisticRegression(sampler=NoRule()).fit(X, y)
    for sampler, step_size in ((NoRule(), 0.1), (OwnRule(), "auto")):
        clf = sk.BayesianLogisticRegression(sampler=sampler, step_size=step_size, random_state=0)
        assert clf.fit(X, y).score(X, y) > 0.8


def test_a_sampler_without_a_step_says_what_it_lacks():
    with pytest.raises(NotImplementedError, match=r"Sampler has no method euler\(theta"):
        sk.sample(lambda theta: -(theta**2).sum(1), 1, sampler=Sampler(), step_size=0.1)


def test_samplers_own_rules():
    """MALA's is 0.8 of Roberts and Rosenthal's optimum, and friction is what a stream's step has.

    pSGLD's G is 1/(lambda + sqrt V), and never above half of what the prior's curvature allows.
    """
    assert MALA().own_step(8) == pytest.approx(0.8 * 1.65**2 / 2.0 / 2.0, rel=1e-2)
    assert SGLD().own_step(8) is None
    assert (SGLD().resistance(), SGHMC(friction=0.3).resistance()) == (1.0, 0.3)
    # four steps of friction 0.1 at 0.2, and a time that grows like 1 / eta for small ones
    assert [SGLD().spacing(0.05), SGHMC().spacing(0.2), SGHMC().spacing(0.01)] == [20.0, 4.0, 20.0]
    # SGLD moves by eta F; SGHMC has a kick of which half is left, and then an amplitude
    force, distance = np.array([10.0]), np.array([2.0])
    np.testing.assert_allclose(SGLD().largest_step(force, distance) * force, distance)
    kick = 0.5 * SGHMC().largest_step(force, distance) ** 0.5 * force
    np.testing.assert_allclose(kick, distance)
    G = PSGLD(regularization=0.5).own_preconditioner(np.array([4.0, 0.0]), 0.4)
    np.testing.assert_allclose(G, [1.0 / 2.5, 0.5 / 0.4])
    assert SGLD().own_preconditioner(np.ones(2), 1.0) is None


@pytest.mark.statistical
def test_psgld_is_refused_where_no_diagonal_preconditioner_mixes():
    """Iris as it is: means far from zero make all columns collinear with the intercept."""
    X, y = load_iris(return_X_y=True)
    message = (
        r"step_size='auto' is not allowed with PSGLD on these data: .* [0-9.e+]+ steps .*"
        "sampler='sgld'.*centre and scale.*step_size, burn_in and thinning as numbers"
    )
    with pytest.raises(ValueError, match=message):
        sk.BayesianLogisticRegression(sampler="psgld").fit(X, y)
    # who says how long the run is may have it
    lengths = {"n_draws": 20, "burn_in": 10, "thinning": 1, "n_chains": 2, "random_state": 0}
    clf = sk.BayesianLogisticRegression(sampler="psgld", **lengths).fit(X, y)
    assert clf.posterior_["coef"].shape[:2] == (2, 20)
    clf = sk.BayesianLogisticRegression(sampler="psgld").partial_fit(X[::2], y[::2])
    assert np.isfinite(clf.coef_).all()


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("estimator", "sampler"),
    [
        (sk.BayesianLogisticRegression(), "sgld"),
        (sk.BayesianLogisticRegression(), "sghmc"),
        (sk.BayesianGLMRegressor(likelihood="poisson"), "sgld"),
    ],
)
def test_plain_gradients_of_small_minibatches_take_smaller_steps(estimator, sampler):
    """Noise of minibatches is then about a tenth of that of the sampler, so sds are 5% too large.

    Without smaller steps they are 70% to 120% too large. With 20 rows of 150 the ratio was 1.09 or
    less, and sds of 2,000 draws have a standard error of 4%, so 1.2 is far from both.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2))
    y = rng.poisson(np.exp(X[:, 0])).clip(max=1 if "Logistic" in repr(estimator) else None)
    run, sds = {"n_chains": 64, "n_draws": 32, "random_state": 0}, []
    for given in ({}, {"gradient": "minibatch", "sampler": sampler, "batch_size": 20}):
        reg = clone(estimator).set_params(**run, **given).fit(X, y)
        sds.append(reg.posterior_.pooled("coef").std(axis=0))
    ratio = sds[1] / sds[0]
    assert (ratio > 0.85).all() and (ratio < 1.2).all()
    assert reg.sampling_threshold_["noise_ratio"][-1] < 0.2


def test_more_rows_than_fit_take_smaller_steps_with_psgld():
    """Minibatches of pSGLD are larger than others', and its step follows their noise."""
    X, y = make_classification(6000, 10, n_redundant=0, random_state=0)
    parameters = {"sampler": "psgld", "n_draws": 5, "thinning": 1, "burn_in": 5, "random_state": 0}
    clf = sk.BayesianLogisticRegression(**parameters).fit(X, y)
    smaller = sk.BayesianLogisticRegression(batch_size=200, **parameters).fit(X, y)
    assert clf.batch_size_ > 1000
    # eta goes with n, and G with sqrt(n): sqrt(200 / n) between them
    expected = (200 / clf.batch_size_) ** 0.5
    assert smaller.step_size_ / clf.step_size_ == pytest.approx(expected, rel=0.05)


@cases("weighted", [False, True])
@cases("n_classes", [2, 3])
def test_walls_are_where_a_row_begins_to_push(n_classes, weighted):
    """The gradient of a row with a huge value, on the way to its wall and beyond: 0, then all.

    Weights do not count, so that one of two means the same as two rows, which push separately.
    For three classes the other class that leads beyond the wall need not be the one before it: the
    bounds leave 50%.
    """
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 3)), rng.integers(0, n_classes, 200)
    x[7] = [0.0, 200.0, -100.0]
    weight = rng.uniform(0.5, 2.0, 200) if weighted else None
    model = LogisticModel(3, n_classes, Normal(), 1.0, True)
    data = model.make_data(x, y, weight, torch.float64, "cpu")
    center, precision = model.fit_gaussian(data)
    # the centre is moved along the row until its class is certain, about 5 sds away from any other
    root = np.linalg.inv(np.linalg.cholesky(precision)).T
    score = against_the_next(model, center, data, x[7], y[7])
    toward = root @ root.T @ score
    while model.walls(center, root, data)[0][7] > 6.0 or not certain(model, center, data):
        center = center + 0.1 * toward / np.sqrt(score @ toward)
    distance, force = (found[7] for found in model.walls(center, root, data))
    # the class that is the next one now need not be the one that was
    score = against_the_next(model, center, data, x[7], y[7])
    toward = root @ root.T @ score
    back = -toward / np.sqrt(score @ toward)
    pushed = []
    for share in (0.4, 2.0):
        at = torch.from_numpy((center + share * distance * back)[None])
        row = model.scores(at, data.all_rows()).numpy()[7]
        pushed.append(np.linalg.norm(row @ root))  # whatever the row's weight
    assert pushed[0] < 0.01 * force
    assert pushed[1] == pytest.approx(force, rel=1e-6 if n_classes == 2 else 0.5)
    # of every parameter, by a step of size 1
    expected = np.abs(toward / np.sqrt(np.square(root).sum(1))).max() / np.sqrt(score @ toward)
    found = model.wall_correlations(center, root, data.select(np.array([3, 7])))[1]
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.statistical
def test_walls_are_found_in_any_block_of_rows(limits):
    """The step of a row with a huge value is the same if rows are read in blocks of 50."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 3)), rng.integers(0, 2, 200)
    x[170] = [0.0, 200.0, -100.0]
    model = LogisticModel(3, 2, Normal(), 1.0, True)
    data = model.make_data(x, y, None, torch.float64, "cpu")
    center, precision = model.fit_gaussian(data)
    root = np.linalg.inv(np.linalg.cholesky(precision)).T
    toward = -root @ root.T @ data.fields["x"].held().x.numpy()[170]
    while -data.fields["x"].times(center[:, None])[170, 0] < 0.1:  # its class has to lead
        center = center + 0.1 * toward / np.sqrt(toward @ precision @ toward)
    given = SGLD(), data, data, center, root, 1.0
    whole = step_at_walls(model, *given, 10.0)
    assert whole < 5.0
    limits(narrow_rows=50)
    assert len(list(data.blocks())) == 4
    assert step_at_walls(model, *given, 10.0) == pytest.approx(whole, rel=1e-12)


def step_at_a_wall(row, distance, temperature=1.0):
    """The step of SGLD beside a row of class 0 whose wall is ``distance`` sds from the centre.

    The posterior of the rows' coefficients is standard normal here, and 100 is no limit.
    """
    x = np.vstack([row, np.full(len(row), 1e-3)])
    model = LogisticModel(len(row), 2, Normal(), 1.0, False)
    data = model.make_data(x, np.array([0, 1]), None, torch.float64, "cpu")
    center, root = -distance * x[0] / np.linalg.norm(x[0]), np.eye(len(row))
    return step_at_walls(model, SGLD(), data, data, center, root, temperature, 100.0)


def test_a_wall_counts_up_to_five_sds_from_the_centre():
    """A chain is at 4.9 sds in one direction for 10^-6 of its steps, and a throw leaves it there
    for long; beyond it does not come."""
    row = np.full(9, 1e4)
    for distance in (0.5, 2.5, 4.9):
        assert step_at_a_wall(row, distance) < 1.0
    assert step_at_a_wall(row, 5.1) == 100.0


def test_forces_at_a_wall_are_divided_by_the_temperature():
    """The density is exp(-U / T): at T = 4 a row throws as far as one of a quarter of its size."""
    row = np.full(9, 1e4)
    hot = step_at_a_wall(row, 3.0, temperature=4.0)
    assert hot == pytest.approx(4.0 * step_at_a_wall(row, 3.0), rel=1e-9)
    assert hot == pytest.approx(step_at_a_wall(row / 4.0, 3.0), rel=1e-9)


def test_a_row_of_many_columns_throws_each_coefficient_less():
    """Of nine equal columns, a third as far as a row of one column with the same length."""
    many, single = np.full(9, 1e4), np.r_[3e4, np.zeros(8)]
    assert step_at_a_wall(many, 3.0) == pytest.approx(3.0 * step_at_a_wall(single, 3.0), rel=1e-6)


def against_the_next(model, theta, data, row, label):
    """Gradient of row 7's class against the best other one; the score is 0 if the class is sure."""
    if model.k == 1:
        anywhere = torch.zeros(1, model.n_parameters).double()
        return model.scores(anywhere, data.all_rows())[7].numpy()
    logits = np.where(np.arange(model.k) == label, -np.inf, model._logits(theta, data)[7])
    contrast = np.eye(model.k)[label] - np.eye(model.k)[logits.argmax()]
    pull = torch.from_numpy(np.outer([*row, 1.0], contrast))
    return model._pull_back(pull[None])[0].numpy()


def certain(model, theta, data):
    """Whether the class of row 7 has all of the probability, up to 1e-6."""
    log_p = model.log_lik(torch.from_numpy(theta[None]), data.all_rows())[0, 7]
    return bool(log_p > -1e-6)


@pytest.mark.parametrize("n_steps", [8, 30])
def test_the_largest_curvature_is_found_from_below_in_few_products(n_steps):
    """Spectra as of whitened posteriors: most eigenvalues near 1, and a few or none beyond.

    Bound: never above the largest eigenvalue (rounding: 1e-12), and at most 5% below, which is what
    the caller adds. Power iteration, of as many products, is 20% below where two are close.
    """
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    for largest in ([4.0], [2.8, 2.6, 2.5], [1.02], [0.0]):
        spectrum = np.append(largest, np.linspace(0.5, 1.0, 60 - len(largest)) * (largest[0] > 0.0))
        matrix, products = axes * spectrum @ axes.T, []

        def times(vector, matrix=matrix, products=products):
            products.append(vector)
            return matrix @ vector

        found = largest_of_symmetric(times, 60, n_steps)
        assert 0.95 * largest[0] - 1e-12 <= found <= largest[0] + 1e-12
        assert len(products) <= n_steps
    assert np.isnan(largest_of_symmetric(lambda v: v * np.inf, 3, n_steps))


def test_the_largest_curvature_of_few_parameters_ends_with_their_number():
    """Two products span the plane, so the value is exact: 1e-12."""
    matrix = np.array([[2.0, 1.0], [1.0, 2.0]])
    assert largest_of_symmetric(lambda v: matrix @ v, 2, 30) == pytest.approx(3.0, abs=1e-12)
    assert largest_of_symmetric(lambda v: 5.0 * v, 1, 30) == pytest.approx(5.0, abs=1e-12)


# chains that diverge ------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["logistic", "student_t"])
def test_momentum_is_for_all_rows(likelihood):
    """The number of rows that are used whole does not depend on what control variates add to them.

    4,000 rows of 30 features and one are up to 2^17 numbers, and with control variates they are
    more. The sampler is chosen before these are made.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 30))
    budget = {"n_draws": 2, "burn_in": 2, "thinning": 1, "n_chains": 2, "random_state": 0}
    if likelihood == "logistic":
        model = sk.BayesianLogisticRegression(**budget).fit(
            X, X[:, 0] + rng.logistic(size=4000) > 0
        )
    else:
        y = X[:, 0] + rng.standard_t(3, size=4000)
        model = sk.BayesianGLMRegressor(likelihood=likelihood, **budget).fit(X, y)
    assert model.batch_size_ == 4000


def counts_with_step(monkeypatch, eta, **parameters):
    """An unfitted Poisson regression that takes ``eta`` for the automatic step, and its data."""
    set_step = WhitenedGaussian.set_step

    def too_large(self, values, data, request):
        set_step(self, values, data, request)
        values.step_size, values.spacing = eta, request.sampler.spacing(eta)

    monkeypatch.setattr(WhitenedGaussian, "set_step", too_large)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    reg = sk.BayesianGLMRegressor(likelihood="poisson", n_draws=100, random_state=0, **parameters)
    return reg, X, rng.poisson(np.exp(X[:, 0])).astype(float)


@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
def test_runs_with_automatic_steps_that_diverge_are_repeated(
    monkeypatch, tmp_path, interrupt_after
):
    """With a quarter of the step for all chains: the bits of a fit that begins with this step.

    A chain diverges with a step of 3.2. An interrupted repetition goes on from a file of its own.
    """
    monkeypatch.setattr(energy, "ENERGY", replace(energy.ENERGY, largest_error=np.inf))
    reg, *rows = counts_with_step(monkeypatch, 0.8)
    expected = reg.fit(*rows)
    reg, *rows = counts_with_step(monkeypatch, 3.2, checkpoint=tmp_path / "file.npz")
    assert "file.again-1.npz" in interrupt_after(0.7, reg, *rows)
    reg.fit(*rows)
    assert (reg.step_size_, reg.n_chains_) == (pytest.approx(0.8), 4)
    np.testing.assert_array_equal(reg.posterior_["coef"], expected.posterior_["coef"])


def test_a_fit_fails_if_every_repetition_diverges(monkeypatch):
    """Runs with 1e6 and three times a quarter of the last step."""
    reg, *rows = counts_with_step(monkeypatch, 1e6)
    with pytest.raises(sk.SamplingError, match=r"last step size 15625.* 64 times this step"):
        reg.fit(*rows)
    assert not hasattr(reg, "posterior_")


# steps that are too long for the posterior -------------------------------------------------------


def separated_classes(prior_scale):
    """30 rows of two classes with a gap between them; mean and sd of the slope and the intercept.

    The posterior is added up on a grid of 600 slopes and 600 intercepts.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal(30)
    x, y = x + 0.02 * np.sign(x), (x > 0.0).astype(int)
    slope = np.linspace(0.0, 5.0, 600)[:, None] * prior_scale
    intercept = np.linspace(-3.0, 3.0, 600) * prior_scale
    log_p = -0.5 * (slope / prior_scale) ** 2
    for one, sign in zip(x, 2 * y - 1, strict=True):
        log_p = log_p - np.logaddexp(0.0, -sign * (slope * one + intercept))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    means = [(p * values).sum() for values in (slope, intercept)]
    squares = [(p * values**2).sum() for values in (slope, intercept)]
    return x[:, None], y, np.array(means), np.sqrt(np.subtract(squares, np.square(means)))


@pytest.mark.statistical
@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(
    ("reg", "sampler", "prior_scale"),
    [
        (sk.BayesianGLMRegressor(likelihood="binomial"), "auto", 10.0),
        (sk.BayesianGLMRegressor(likelihood="binomial"), "sgld", 10.0),
        pytest.param(
            sk.BayesianGLMRegressor(likelihood="binomial"), "auto", 100.0, marks=pytest.mark.slow
        ),
        pytest.param(sk.BayesianOrdinalClassifier(), "auto", 100.0, marks=pytest.mark.slow),
        pytest.param(sk.BayesianLogisticRegression(), "auto", 100.0, marks=pytest.mark.slow),
    ],
)
def test_separated_classes_under_a_wide_prior(reg, sampler, prior_scale):
    """Means within 0.1 sd, sds within 10% of those of a grid.

    The posterior is nearly flat in a wedge, with a wall of all rows at its border. With steps that
    suit the Gaussian approximation, sds of the binomial fits were 1.2 times too large for a scale
    of 10, and 25 times for 100.
    """
    X, y, mean, sd = separated_classes(prior_scale)
    reg.set_params(sampler=sampler, prior_scale=prior_scale, random_state=0).fit(X, y)
    draws = reg.posterior_
    ordinal = "cutpoints" in draws.shapes
    second = -draws.pooled("cutpoints") if ordinal else draws.pooled("intercept")
    found = np.column_stack([draws.pooled("coef").ravel(), second.ravel()])
    assert np.abs((found.mean(0) - mean) / sd).max() <= 0.1
    assert np.abs(found.std(0) / sd - 1.0).max() <= 0.1


def test_steps_that_are_too_large_after_every_repetition_are_warned_of(monkeypatch):
    """No error is within a bound of zero; three repetitions divide the step by 64."""
    monkeypatch.setattr(energy, "ENERGY", replace(energy.ENERGY, largest_error=0.0))
    reg, *rows = counts_with_step(monkeypatch, 0.4)
    with pytest.warns(sk.SamplingWarning, match="steps of SGHMC are too large.*narrower prior"):
        reg.fit(*rows)
    assert reg.step_size_ == pytest.approx(0.4 / 64.0)


@pytest.mark.parametrize("squared", [0.2, 1.0])
def test_energy_errors_on_a_normal_posterior(squared):
    """Mean of Delta^2 / d of leapfrog steps of the squared length s at draws of N(0, I / N).

    Delta is s (|theta'|^2 - |theta|^2) / 8 for theta' = (1 - s/2) theta + sqrt(s) xi, in units of
    1 / sqrt(N). Means of 4,000 squares have standard errors of 2.5%.
    """
    model = GaussianMean(3, 0.0)
    data = Data({"x": torch.zeros(N, 3, dtype=torch.float64)}, N)
    rng, s = np.random.default_rng(1), squared
    draws = rng.standard_normal((4, 5000, 3)) / np.sqrt(N)
    found = energy.energy_error(Target(model, data), Minibatches(data, N), [draws], s, 1.0)
    square, growth = (s / 8.0) ** 2, s * s / 4.0
    variance = 2.0 * (s - growth) ** 2 + 2.0 * s * s + 4.0 * s * (1.0 - 0.5 * s) ** 2
    assert found == pytest.approx(square * (variance + 3.0 * growth**2), rel=0.06)
    assert energy.allowed_error(1.0, s) == pytest.approx(energy.ENERGY.largest_error * s**3 / 16.0)


@pytest.mark.parametrize(("share", "friction"), [(1.0, 0.1), (0.25, 0.05)])
def test_smaller_steps_have_less_friction(share, friction):
    """D = alpha / h stays, for steps h^2 in proportion to eta."""
    assert SGHMC().for_steps(share).friction == pytest.approx(friction)
    assert SGLD().for_steps(share).get_params() == SGLD().get_params()
