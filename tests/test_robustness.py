"""Bad input, odd shapes, divergence: what is refused, with which message, and what still works."""

from __future__ import annotations

import os
import sys
import warnings

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from _links import messages
from _process import output_of
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.scaling import center_and_scale
from skbayes_sgmcmc.samplers import MSGNHT, PSGLD, SGHMC
from skbayes_sgmcmc.schedules import Constant

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

SMALL = {"n_draws": 50, "n_chains": 2, "random_state": 0}


def small(**parameters):
    return sk.BayesianLogisticRegression(**(SMALL | parameters))


@pytest.fixture(scope="module")
def data():
    return make_classification(200, 5, random_state=0)


# parameters ---------------------------------------------------------------------------------------


@cases(
    "parameters, message",
    [
        ({"temperature": 0.0, "sampler": "mala"}, "temperature=0 is not allowed with MALA"),
        ({"prior": "cauchy"}, "prior='cauchy' is not allowed: give one of 'normal', 'laplace'"),
        ({"prior_scale": [1.0, -1.0, 1.0, 1.0, 1.0]}, "prior_scale=.*not allowed"),
        ({"prior_scale": [1.0, 2.0]}, "prior_scale of length 2 .* X has 5 features"),
        ({"preconditioner": "full"}, "preconditioner='full'.*'auto', 'hessian', 'diagonal'"),
        ({"preconditioner": np.eye(3)}, r"preconditioner of shape \(3, 3\)"),
        ({"preconditioner": np.ones(6), "sampler": "psgld"}, "preconditions by itself"),
        ({"gradient": "svrg"}, "gradient='svrg'.*'control_variates'"),
        ({"init": "zero"}, "init='zero'.*'random', 'map', 'gaussian'"),
        ({"init": np.zeros(3)}, r"init of shape \(3,\) .* broadcasts to \(2, 6\)"),
        ({"device": "nowhere"}, "device='nowhere' is not available here"),
        ({"sampler": SGHMC(friction=-0.1)}, "sampler.friction=-0.1"),
        ({"sampler": PSGLD(decay=1.0)}, r"sampler.decay=1.0 .* in \(0, 1\)"),
        ({"sampler": MSGNHT(mass=0.0)}, "sampler.mass=0.0"),
        ({"n_draws": 10**12}, "n_draws=1000000000000 is not allowed here: .* GiB are free"),
    ],
)
def test_bad_parameters_are_named(data, parameters, message):
    clf = small(**parameters)
    with pytest.raises(ValueError, match=message):
        clf.fit(*data)
    with pytest.raises(NotFittedError):
        clf.predict(data[0])


def test_unknown_names_and_impossible_pairs_list_what_is_possible(data):
    samplers = "'sgld', 'psgld', 'sghmc', 'sgnht', 'msgnht', 'mclmc', 'mala'"
    with pytest.raises(ValueError, match=f"sampler='hmc' is not allowed: give one of {samplers}"):
        small(sampler="hmc").fit(*data)
    pairs = [("sgld", "baoab"), ("psgld", "splitting"), ("mala", "euler"), ("sghmc", "leapfrog")]
    for sampler, integrator in pairs:
        with pytest.raises(ValueError, match=f"integrator='{integrator}' is not allowed with") as e:
            small(sampler=sampler, integrator=integrator).fit(*data)
        assert "give 'auto' or one of '" in str(e.value)
    with pytest.raises(ValueError, match="sampler=3"):
        small(sampler=3).fit(*data)


def test_memory_is_refused_at_the_start(data):
    """Before anything is allocated or sampled: in less than a step's time and memory."""
    for parameters in ({"n_draws": 10**10}, {"n_chains": 10**5, "n_draws": 10**7}):
        with pytest.raises(ValueError, match="fewer draws or chains, dtype='float32'"):
            sk.sample(lambda theta: -(theta**2).sum(1), 3, **parameters)


# data ---------------------------------------------------------------------------------------------


def test_bad_targets(data):
    X, y = data
    with pytest.raises(ValueError, match="1 class"):
        small().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="Unknown label type"):
        small().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small().fit(X, y[:-1])
    with pytest.raises(ValueError, match="1 class with positive weight"):
        small().fit(X, y, sample_weight=(y == 1).astype(float))


def test_bad_weights(data):
    X, y = data
    with pytest.raises(ValueError, match="zero"):
        small().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="(?i)negative value"):
        small().fit(X, y, sample_weight=np.where(np.arange(len(y)) == 3, -1.0, 1.0))
    with pytest.raises(ValueError, match="NaN"):
        small().fit(X, y, sample_weight=np.full(len(y), np.nan))
    with pytest.raises(ValueError, match="class_weight"):
        small(class_weight="heavy").fit(X, y)


def test_labels_in_partial_fit(data):
    X, y = data
    clf = small()
    with pytest.raises(ValueError, match="give all classes"):
        clf.partial_fit(X, np.zeros(len(X)))
    clf.partial_fit(X, np.zeros(len(X), int), classes=[0, 1])  # one of them may be all there is
    with pytest.raises(ValueError, match=r"labels \[2\] that are not in classes=\[0, 1\]"):
        clf.partial_fit(X, y + 1)
    assert clf.predict(X).shape == (200,)


def test_one_row():
    X = np.array([[0.5, -1.0]])
    with pytest.raises(ValueError, match="1 class"):
        small().fit(X, [1])
    for parameters in ({}, {"step_size": 0.1}, {"sampler": "sghmc"}, {"sampler": "psgld"}):
        clf = small(**parameters).partial_fit(X, [1], classes=[0, 1])
        assert np.isfinite(clf.predict_proba(X)).all()
    assert np.isfinite(small().fit(np.vstack([X, -X]), [1, 0]).predict_proba(X)).all()


def test_batch_larger_than_the_data(data):
    clf = small(batch_size=10**6, step_size=0.1).fit(*data)
    assert clf.batch_size_ == 200


@pytest.mark.parametrize("parameters", [{}, {"step_size": 0.1}, {"sampler": "psgld"}])
def test_columns_of_zeros(data, parameters):
    """The data say nothing about them: what is left is the prior, whose mean is zero.

    psgld with G = 1/lambda = 1e5 there would diverge; its cap is what is tested.
    """
    X, y = np.column_stack([data[0], np.zeros((200, 2))]), data[1]
    clf = small(n_draws=200, **parameters).fit(X, y)
    assert np.abs(clf.coef_[0, -2:]).max() < 1.0  # of a prior sd of 1
    assert np.isfinite(clf.posterior_["coef"]).all()
    assert small().fit(sp.csr_matrix(X), y).score(X, y) > 0.8
    assert np.isfinite(small(**parameters).fit(np.zeros((20, 3)), [0, 1] * 10).coef_).all()


@pytest.mark.parametrize("prior_scale", [1.0, 100.0])
def test_perfectly_separable(prior_scale):
    X = np.random.default_rng(0).standard_normal((200, 3))
    clf = small(prior_scale=prior_scale, n_draws=300).fit(X, X[:, 0] > 0)
    assert clf.coef_[0, 0] > 3.0 * clf.posterior_.std("coef")[0, 1]
    assert clf.score(X, X[:, 0] > 0) > 0.95


# shapes -------------------------------------------------------------------------------------------


def test_a_million_rows():
    """Minibatches of 100 rows: a second or two, most of it for the MAP."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10**6, 5), dtype=np.float32)
    y = (rng.random(10**6) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(int)
    clf = small().fit(X, y)
    assert clf.batch_size_ < 10_000
    # the posterior sd is 0.0022: the truth (1, 0, 0, 0, 0) lies within five of them
    np.testing.assert_allclose(clf.coef_[0], [1, 0, 0, 0, 0], atol=0.011)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(300_000, 2), (3000, 2, 10, 10)], ids=["features", "images"])
def test_inputs_in_single_precision_are_standardised_as_in_double(shape, weighted):
    # sums in float32 come to 3e8, where numbers are 32 apart: added one by one, the 1000s count for
    # 992 and the mean is off by 0.8 standard deviations. What is left is float32's rounding,
    # 6e-5 at 1000, of the mean, and with it of the scale
    rng = np.random.default_rng(0)
    X = (1000.0 + rng.standard_normal(shape)).astype(np.float32)
    weight = rng.random(len(X)).astype(np.float32) if weighted else None
    axis = (0, 2, 3) if len(shape) == 4 else 0
    center, scale = center_and_scale(X, weight, axis)
    expected, spread = center_and_scale(X.astype(np.float64), weight, axis)
    assert center.dtype == scale.dtype == np.float32
    np.testing.assert_allclose(center, expected, atol=1e-4, rtol=0.0)
    np.testing.assert_allclose(scale, spread, rtol=1e-4)


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 5000))
    y = (X[:, 0] > 0).astype(int)
    clf = small(prior_scale=0.1).fit(X, y)
    assert clf.coef_.shape == (1, 5000)
    # 5000 coefficients of which 50 directions are informed: the others have the prior's sd. 100
    # draws of an effective size of 20 at least: 4 / sqrt(2 x 20 x 5000) of the mean square is < 1%,
    # and the bias in the sd of Euler steps is below 5%
    assert np.sqrt(np.mean(clf.posterior_.std("coef") ** 2)) == pytest.approx(0.1, rel=0.1)
    assert clf.score(X, y) == 1.0


SPARSE_FIT = """
import resource, sys
import numpy as np, scipy.sparse as sp
from skbayes_sgmcmc import BayesianLogisticRegression
rng = np.random.default_rng(0)
n, d, per_row = 2000, 10**6, 50
columns = rng.integers(0, d, n * per_row)
y = np.arange(n) % 2
columns[::per_row] = y  # the first two columns say the class
X = sp.csr_matrix((np.ones(n * per_row), columns, np.arange(0, n * per_row + 1, per_row)), (n, d))
unit = 1024 if sys.platform == "linux" else 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
clf = BayesianLogisticRegression(n_chains=1, n_draws=10, burn_in=20, thinning=2, random_state=0)
clf.fit(X, y)
print(clf.score(X, y))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")
def test_a_million_sparse_columns():
    """Nothing of size rows x columns (16 GB) or columns^2 is made, nor a chunk of dense rows.

    The draws are 80 MB, a vector of parameters is 8 MB, and the noise of a chunk is one or a few of
    them. The bound is sixty vectors; a block of 100 dense rows would be 800 MB more.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    score, megabytes = map(float, output_of("-c", SPARSE_FIT, env=environment).split())
    assert score > 0.95
    assert megabytes < 600.0


# divergence and mixing ----------------------------------------------------------------------------


def state_of(clf):
    return {name: id(value) for name, value in vars(clf).items()}


@pytest.mark.parametrize("sampler", ["sgld", "sghmc"])
def test_step_size_far_too_large(data, sampler):
    """The gradient is bounded, so it takes data of 1e5 for a step of 1e9 to leave the numbers."""
    X, y = data[0] * 1e140, data[1]
    clf = small(prior_scale=1.0, sampler=sampler, step_size=1e17)
    with pytest.raises(sk.SamplingError, match="2 of 2 chains diverged") as caught:
        clf.fit(X, y)
    text = str(caught.value)
    assert "chain 0 by step" in text and "chain 1 by step" in text
    assert "last step size 1e+17" in text and "Reduce step_size" in text
    assert set(vars(clf)) == set(clf.get_params(deep=False))  # nothing half-fitted


def test_a_report_of_many_diverged_chains_stays_short(data):
    X, y = data[0] * 1e140, data[1]
    with pytest.raises(sk.SamplingError, match=r"8 of 8 chains diverged \(chain 0 by") as caught:
        small(prior_scale=1.0, step_size=1e17, n_chains=8).fit(X, y)
    assert "chain 4 by step" in str(caught.value) and " and 3 more of" in str(caught.value)


def test_a_failed_refit_changes_nothing(data):
    X, y = data
    clf = small().fit(X, y)
    before, predictions = state_of(clf), clf.predict_proba(X)
    clf.step_size = 1e17
    before["step_size"] = id(clf.step_size)
    with pytest.raises(sk.SamplingError):
        clf.fit(X[:, :3] * 1e140, y)  # other features, too
    assert state_of(clf) == before
    np.testing.assert_array_equal(clf.predict_proba(X), predictions)
    with pytest.raises(sk.SamplingError):
        clf.partial_fit(X * 1e140, y)
    assert state_of(clf) == before


def quartic(theta):
    return -0.25 * (theta**4).sum(1)


def test_remedies_for_a_density_are_those_that_it_allows():
    """It has no features, and refuses an automatic step of SGLD."""
    with pytest.raises(sk.SamplingError, match="2 of 2 chains diverged") as caught:
        sk.sample(quartic, 2, step_size=100.0, n_chains=2, n_draws=20, burn_in=20, random_state=0)
    text = str(caught.value)
    assert "Reduce step_size" in text and "auto" not in text and "features" not in text


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_some_chains_diverge(n_jobs):
    """Euler's step from 1e3 on theta^4/4 overshoots to -1e7 and on; from 0 it stays near 0."""
    init = np.array([[0.0, 0.0], [1e3, 0.0], [0.0, 0.0]])
    options = {"step_size": 0.01, "n_chains": 3, "n_draws": 300, "burn_in": 0, "random_state": 0}
    with (
        joblib.parallel_config("threading"),
        pytest.warns(sk.SamplingWarning, match=r"1 of 3 chains .*chain 1 by step \d+.*were kept"),
    ):
        posterior = sk.sample(quartic, 2, init=init, n_jobs=n_jobs, **options)
    assert posterior["theta"].shape == (2, 300, 2)
    assert np.isfinite(posterior["theta"]).all()
    # the survivors' draws are those of a run in which no chain diverges
    alone = sk.sample(quartic, 2, init=np.zeros((3, 2)), **options)
    np.testing.assert_allclose(posterior["theta"], alone["theta"][[0, 2]], rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_all_chains_diverge_in_every_job(n_jobs):
    with (
        joblib.parallel_config("threading"),
        pytest.raises(sk.SamplingError, match="3 of 3 chains .*chain 0 .*chain 1 .*chain 2 "),
    ):
        sk.sample(quartic, 2, init=np.full((3, 2), 1e3), n_chains=3, step_size=0.01, n_jobs=n_jobs)


def test_a_stream_goes_on_with_the_chains_that_are_left(data, replaced):
    """Of a start from which no chain comes back, and which is refused for that reason.

    The gradient of the prior there is 1e314, which is no number.
    """
    replaced("check_positions", lambda *_: None)
    X, y = data
    start = np.array([[0.0], [1e308], [0.0]])
    clf = small(n_chains=3, init=start, step_size=0.1, prior="normal", prior_scale=1e-3)
    with pytest.warns(sk.SamplingWarning, match="1 of 3 chains"):
        clf.partial_fit(X, y)
    assert clf.posterior_.n_chains == 2
    clf.partial_fit(X, y)
    assert clf.posterior_.n_chains == 2 and np.isfinite(clf.coef_).all()


@pytest.mark.parametrize(
    "given",
    [
        {"sampler": "sgld", "temperature": 0.0},
        {"sampler": "sghmc", "temperature": 0.0},
        {"step_size": "auto", "temperature": Constant(0.0)},
    ],
)
def test_no_spread_is_warned_of(data, given):
    """Temperature 0 is an optimiser: at its end nothing moves by more than rounding."""
    clf = small(**given, burn_in=20_000, thinning=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.warns(
            sk.SamplingWarning, match="coef, intercept, scale have no.*temperature above 0"
        ):
            clf.fit(*data)


def test_a_posterior_as_narrow_as_rounding_is_told_from_chains_that_do_not_move():
    """A larger step would change the sampler; smaller weights and a larger noise help."""
    X = np.random.default_rng(0).standard_normal((300, 2))
    y = 0.5 + X @ [0.5, -0.1]
    given = {"likelihood": "student_t", "random_state": 0}
    for noise, weight, remedy in ((1e-15, None, 1e-6), ("infer", np.full(300, 1e15), "infer")):
        reg = sk.BayesianGLMRegressor(noise=noise, **given)
        found = messages(lambda: reg.fit(X, y, weight))  # noqa: B023
        assert any("narrow as rounding errors. Give smaller weights" in text for text in found)
        assert not messages(lambda: reg.set_params(noise=remedy).fit(X, y))  # noqa: B023


@pytest.mark.statistical
def test_slow_mixing_is_warned_of(data):
    with pytest.warns(sk.SamplingWarning) as caught:
        small(step_size=1e-5).fit(*data)
    (warning,) = caught
    text = str(warning.message)
    assert "have not mixed well" in text
    assert "(largest R-hat" in text and "effective sample size" in text
    assert "Give a larger thinning, another step_size, or" in text
    assert warning.filename == __file__  # it points at the user's line


@pytest.mark.statistical
def test_good_chains_are_not_warned_of(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sk.BayesianLogisticRegression(random_state=0).fit(*data)


# what a fit must leave alone ----------------------------------------------------------------------


def test_global_state_is_left_alone(data):
    def state():
        return (
            torch.random.get_rng_state().tolist(),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            np.geterr(),
            warnings.filters[:],
        )

    X, y = data
    before = state()
    for parameters in ({}, {"step_size": 0.1, "batch_size": 10}, {"dtype": "float32"}):
        small(**parameters).fit(X, y).predict_uncertainty(X)
    sk.sample(quartic, 2, n_draws=20, burn_in=0, step_size=0.01, random_state=0)
    small().partial_fit(X, y)
    assert state() == before


def test_input_is_left_alone(data):
    X, y = (values.copy() for values in data)
    weight = np.linspace(0.0, 2.0, len(y))
    sparse = sp.csr_matrix(X)
    for kind in (X, sparse, np.asfortranarray(X)):
        for parameters in ({}, {"step_size": 0.1}):
            small(**parameters).fit(kind, y, sample_weight=weight)
            small(**parameters).partial_fit(kind, y)
    np.testing.assert_array_equal(X, data[0])
    np.testing.assert_array_equal(sparse.toarray(), data[0])
    np.testing.assert_array_equal(y, data[1])
    np.testing.assert_array_equal(weight, np.linspace(0.0, 2.0, len(y)))
    X.setflags(write=False)
    small().fit(X, y)


def test_rows_in_any_layout_are_allowed(data):
    """torch takes no arrays with negative strides, such as a reversed one."""
    X, y = data
    weight = np.linspace(0.5, 2.0, len(y))
    expected = small().fit(X, y, weight).posterior_["coef"]
    given = [np.ascontiguousarray(part[::-1])[::-1] for part in (X, y, weight)]
    assert np.array_equal(small().fit(*given).posterior_["coef"], expected)
