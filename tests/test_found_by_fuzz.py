"""What the fuzz (``tests/fuzz``) found: one test for each, which fails without its mend."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from _cases import cases
from scipy.sparse import csr_array
from torch import nn
from torch.distributions import Laplace

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.models._linalg import inverse_root
from skbayes_sgmcmc.models.ica.model import aligned
from skbayes_sgmcmc.models.likelihoods.base import LatentGaussian
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.spike_slab_model import SparseNetworkModel
from skbayes_sgmcmc.priors import Normal, SpikeSlab
from skbayes_sgmcmc.samplers import MSGNHT, SGHMC, SGNHT
from skbayes_sgmcmc.schedules import MixingDistance

pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]

RUN = {"n_draws": 4, "burn_in": 2, "thinning": 1, "n_chains": 2, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = X[:, 0]
LABELS = np.arange(12) % 2


# data ---------------------------------------------------------------------------------------------


def test_features_of_a_last_layer_that_overflow_are_refused():
    """Rows of 1e40 are infinite in the module's float32: numpy warned of their differences."""
    rows = np.where(np.arange(12)[:, None] < 7, X, 1e40)
    with pytest.raises(ValueError, match="features of row 7 before the module's last layer"):
        sk.BayesianModuleClassifier(nn.Linear(3, 2), **RUN).fit(rows, LABELS)


def test_weights_that_float32_takes_for_zero_are_refused():
    """Their sum was zero, by which a float was divided."""
    network = sk.BayesianMLPClassifier(hidden_layer_sizes=3, dtype="float32", **RUN)
    with pytest.raises(ValueError, match="^sample_weight has no value of 1e-15 or more"):
        network.fit(X, LABELS, sample_weight=np.full(12, 1e-300))
    network.fit(X, LABELS, sample_weight=np.where(LABELS, 1.0, 1e-300))


def test_errors_of_a_students_rows_name_them():
    student = sk.DistilledClassifier(sk.BayesianLogisticRegression(**RUN))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        student.fit(np.where(X > 0, np.nan, X).astype(object), LABELS)


def test_rows_of_a_student_may_be_larger_than_float32():
    """Rows and the student are in float64, only their perturbation was not."""
    student = sk.DistilledClassifier(
        sk.BayesianLogisticRegression(**RUN), n_epochs=2, random_state=0
    )
    near = student.fit(X * 2.0**20, LABELS).predict_proba(X * 2.0**20)
    far = student.fit(X * 2.0**140, LABELS).predict_proba(X * 2.0**140)
    # the teachers agree to 1e-9, and powers of two round nothing else
    np.testing.assert_allclose(far, near, atol=1e-6)


# fits ---------------------------------------------------------------------------------------------


def test_predictions_whose_spread_overflows_end_the_fit():
    """Outputs and targets of 1e140: each draw's mean is finite, the variance of all is not."""

    def build():
        return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))

    model = sk.BayesianModuleRegressor(build, step_size=1e-3, sample_parameters="all", **RUN)
    with pytest.raises(sk.SamplingError, match="too large for finite means"):
        model.fit(X * 1e140, Y * 1e140)
    assert not hasattr(model, "posterior_")


def test_draws_beyond_the_precision_of_their_storage_end_the_fit():
    """Numpy warned of the cast to float32; the error is ours."""
    model = sk.BayesianLogisticRegression(
        step_size=1.0, prior_scale=1e15, storage=sk.Storage("float32"), **RUN
    )
    with pytest.raises(sk.SamplingError, match="too large for finite means"):
        model.fit(X * 1e50, LABELS)


def test_a_start_at_a_huge_temperature_warns_of_nothing():
    """The matrix exponential overflowed, with scipy's warning; the error is ours."""
    with pytest.raises(sk.SamplingError):
        sk.BayesianICA(temperature=1e18, **RUN).fit(X)


def test_chains_of_a_glm_at_temperature_zero_find_the_maximum():
    """Their approximation has no spread, whose root was asked for. With flat intercepts and a noise
    of unit scale a priori, the maximum of this noiseless line has a slope of almost one."""
    run = RUN | {"burn_in": 500}
    model = sk.BayesianGLMRegressor(temperature=0.0, prior_scale=10.0, **run).fit(X, Y)
    draws = model.posterior_["coef"]
    assert np.ptp(draws, axis=(0, 1)).max() < 1e-3  # a sd at T = 1 is about 0.03
    np.testing.assert_allclose(model.coef_, [1.0, 0.0, 0.0], atol=0.05)


@pytest.mark.parametrize(
    "parameters",
    [{"temperature": 1e18, "sampler": "sgld"}, {"sampler": "psgld", "noise": 1e-26}],
    ids=str,
)
def test_an_approximation_that_overflows_is_an_error_of_ours(parameters):
    """Not a LinAlgError, a RuntimeWarning, or a step size that nobody gave."""
    rows, y = (1e-40 * X, 1e-40 * Y) if "noise" in parameters else (X[:, :1], 1e8 * Y)
    with pytest.raises(sk.SamplingError, match="could not be approximated by a Gaussian"):
        sk.BayesianGLMRegressor(**parameters, **RUN).fit(rows, y)


def test_topics_that_left_the_finite_numbers_end_in_our_error(monkeypatch):
    """Numpy's multinomial refused probabilities of NaN before the divergence was seen."""
    counts = np.array([[1e6, 3.0, 2e5, 1e4], [2.0, 9e5, 1.0, 300.0]])
    model = sk.DeepPoissonFactorAnalysis((3, 2), step_size=1e3, **RUN)
    with pytest.raises(sk.SamplingError):
        model.fit(counts)


def two_targets(scale=1.0):
    return np.c_[Y, X[:, 1]] * scale


@pytest.mark.parametrize("y", [Y, two_targets()], ids=["one", "two"])
def test_sparse_regressors_have_a_density_of_their_targets(y):
    """The noise is a latent variable, and its density had none.

    With one target the density was zero, and so were the scores of mixing distances and what a
    checkpoint knows of the fit; with two, both crashed. Its gradient is that of the chains.
    """
    y = y.reshape(12, -1)
    network, noise = MLP((3, y.shape[1]), "relu"), LatentGaussian(y.shape[1])
    model = SparseNetworkModel(
        network, noise, Normal(), 1.0, spike_slab=SpikeSlab(), sparse_blocks=("weight_1",)
    )
    data = model.make_data(X, y, None, torch.float64, "cpu")
    model = model.bound(data)
    theta = torch.from_numpy(model.init(np.random.default_rng(0)))[None]
    batch = Batch(data.fields, 1.0, True, 12)
    at, out = theta.clone().requires_grad_(), torch.zeros_like(theta)
    (expected,) = torch.autograd.grad(-model.log_lik(at, batch).sum(), at)
    model.likelihood_gradient(theta, batch, model.init_state(theta), None, out=out, scale=1.0)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert expected.abs().max() > 0.1


def test_sparse_regressors_of_two_targets_have_checkpoints_and_mixing_distances(tmp_path):
    path = tmp_path / "fit.npz"
    model = sk.SparseBayesianRegressor(step_size=1e-4, checkpoint=path, **RUN)
    plain = sk.SparseBayesianRegressor(step_size=1e-4, **RUN).fit(X, two_targets())
    for _ in range(2):  # the second finds the file
        found = model.fit(X, two_targets()).posterior_["weight_1"]
        np.testing.assert_array_equal(found, plain.posterior_["weight_1"])
    distance = MixingDistance(n_steps=200)
    model.set_params(checkpoint=None, thinning=distance, batch_size=5).fit(X, two_targets())


# sample -------------------------------------------------------------------------------------------


@cases(
    "density, message",
    [
        (lambda t: -(t**2).sum(), r"Tensor of shape \(\) for theta of shape \(2, 3\)"),
        (lambda t: -(t**2), r"Tensor of shape \(2, 3\)"),
        (lambda t: None, r"NoneType of shape \(\)"),
        (lambda t: -(t.detach() ** 2).sum(1), "without a gradient in theta"),
    ],
)
def test_densities_of_another_shape_are_refused(density, message):
    with pytest.raises(ValueError, match=f"^log_density returned .*{message}"):
        sk.sample(density, 3, n_draws=2, burn_in=1, n_chains=2, random_state=0)


def test_draws_of_a_density_that_are_too_large_end_the_run():
    """As in estimators: chains of a narrow density left bfloat16, and their means were infinite."""
    narrow = {"n_draws": 10, "burn_in": 0, "thinning": 2, "n_chains": 1, "random_state": 0}
    with pytest.raises(sk.SamplingError, match="too large for finite means"):
        sk.sample(lambda t: -0.5e8 * (t**2).sum(1), 2, storage=sk.Storage("bfloat16"), **narrow)


def test_a_density_without_data_has_no_minibatch_noise():
    """So its threshold is met at any step; the covariance of one score was NaN."""
    posterior = sk.sample(
        lambda t: -0.5 * (t**2).sum(1),
        3,
        step_size=0.1,
        thinning=MixingDistance(n_steps=50),
        burn_in=10,
        n_chains=2,
        random_state=0,
    )
    assert posterior.n_draws > 0 and np.isfinite(posterior["theta"]).all()


def test_deviations_of_huge_draws():
    """Beyond the square root of the largest number, up to rounding those of small ones."""
    draws = RNG.standard_normal((2, 10, 3))
    small, huge = (sk.PosteriorSamples({"x": draws * 2.0**power}).std("x") for power in (0, 900))
    np.testing.assert_allclose(np.ldexp(huge, -900), small, rtol=1e-14)


def test_coefficients_beyond_half_precision_are_refused_without_warnings_of_numpy():
    """Columns of 1e-140 make them 1e179, which bfloat16 can't hold."""
    rng = np.random.default_rng(0)
    X, y = 1e-140 * rng.integers(-3, 4, (12, 3)), 1e40 * rng.standard_normal(12)
    reg = sk.BayesianGLMRegressor(
        likelihood="student_t", sampler="msgnht", storage=sk.Storage("bfloat16"), **RUN
    )
    with pytest.raises(sk.SamplingError, match="too large for finite means"):
        reg.fit(X, y)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")  # of eight draws
@pytest.mark.parametrize("scale", [1e-140, 1.0])
def test_a_constant_target_has_the_least_noise(scale):
    """1e14 times: the mode of log sigma was -1e14. Targets are known to a millionth of the unit."""
    y = RNG.standard_normal((12, 2)) * [1.0, 0.0]
    weight = np.where(np.arange(12) == 0, 1e14, 1.0)
    reg = sk.BayesianModuleRegressor(nn.Linear(3, 2), **RUN)
    X = scale * RNG.standard_normal((12, 3))
    mean, sd = reg.fit(X, y, sample_weight=weight).predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 0.0, atol=1e-5)
    np.testing.assert_allclose(sd[:, 1], 1e-6, rtol=0.5)


@pytest.mark.parametrize("kind", [SGNHT, MSGNHT])
def test_thermostats_that_turn_within_a_step_are_refused(kind):
    """Their friction became a large negative number in the first step, and chains were lost."""
    X, y = RNG.standard_normal((12, 1)), RNG.standard_normal((12, 2))
    reg = sk.BayesianModuleRegressor(nn.Linear(1, 2), sampler=kind(friction=1000.0), **RUN)
    with pytest.raises(ValueError, match=r"sampler.friction=1000.0 .* sampler.mass='auto'.* 3.3"):
        reg.fit(X, y)
    given = {"sampler": kind(friction=1000.0, mass=1.0), "integrator": "splitting"}
    reg.set_params(**given, step_size=1e-3).fit(X, y)


def test_momenta_that_euler_steps_lengthen_are_refused():
    """They are multiplied by 1 - friction. Other integrators solve the friction exactly."""

    def normal(t):
        return -0.5 * (t**2).sum(1)

    given = {"sampler": SGHMC(friction=2.5), "step_size": 0.1}
    with pytest.raises(ValueError, match=r"sampler.friction=2.5 .* integrator='euler'"):
        sk.sample(normal, 3, integrator="euler", **given, **RUN)
    sk.sample(normal, 3, integrator="baoab", **given, **RUN)


def test_a_sampler_with_own_parameters_is_named_if_its_chains_diverge():
    """These may be the cause; with a step size of "auto", it is not the remedy, either."""
    X, y = RNG.standard_normal((12, 1)), RNG.standard_normal(12)
    kind = {"hidden_layer_sizes": (3,), "step_size": 1e6}
    with pytest.raises(
        sk.SamplingError, match=r"sampler SGHMC\(friction=0.001\)\). Reduce step_size"
    ):
        sk.BayesianMLPRegressor(sampler=SGHMC(friction=1e-3), **kind, **RUN).fit(X, y)
    with pytest.raises(sk.SamplingError, match=r"last step size 1e\+06\). Reduce step_size"):
        sk.BayesianMLPRegressor(sampler="sghmc", **kind, **RUN).fit(X, y)


@cases(
    "kind",
    [
        sk.BayesianLogisticRegression,
        sk.BayesianOrdinalClassifier,
        sk.BayesianGLMRegressor,
        sk.SparseBayesianRegressor,
        sk.SparseBayesianClassifier,
    ],
)
def test_sparse_rows_without_stored_numbers_are_zeros(kind):
    """A check of magnitudes stopped at them with scikit-learn's error; the bound is rounding."""
    zeros, y = np.zeros((12, 2)), np.arange(12) % 2
    sparse, dense = kind(**RUN).fit(csr_array(zeros), y), kind(**RUN).fit(zeros, y)
    np.testing.assert_allclose(sparse.predict(zeros), dense.predict(zeros), rtol=1e-6)


@pytest.mark.parametrize("size", [0.0, 1e-200])
def test_unmixing_rows_that_are_nearly_zero_have_an_order(size):
    """At a temperature of 10^6 a component may be zero; its length was divided by."""
    w = np.array([[[0.0, 2.0], [size, 0.0]]])
    np.testing.assert_array_equal(aligned(w, np.eye(2))[0], w[0, ::-1])


def test_a_threshold_that_is_not_reached_is_named_with_its_thinning():
    """A narrow prior makes minibatch noise large; the error named nothing that was given."""
    clf = sk.BayesianMLPClassifier(
        hidden_layer_sizes=(3,), thinning=MixingDistance(n_steps=5, noise_ratio=1e-12),
        sampler="sgld", step_size=0.1, batch_size=4, n_draws=2, burn_in=1, n_chains=2,
        random_state=0,
    )  # fmt: skip
    with pytest.raises(sk.SamplingError, match=r"no draw was kept .* thinning=MixingDistance\("):
        clf.fit(RNG.standard_normal((12, 2)), np.arange(12) % 2)


@pytest.mark.filterwarnings("error:.*not writable:UserWarning")
@pytest.mark.parametrize(
    "regressor",
    [
        sk.BayesianGLMRegressor(**RUN),
        sk.BayesianMLPRegressor(hidden_layer_sizes=3, step_size=1e-3, **RUN),
        sk.BayesianMLPRegressor(
            hidden_layer_sizes=3, step_size=1e-6, **RUN,
            likelihood=sk.TorchLikelihood(lambda outputs: Laplace(outputs[:, 0], 1.0)),
        ),
    ],
)  # fmt: skip
def test_columns_of_pandas_as_targets_and_weights_are_no_warning(regressor):
    """pandas 3 gives arrays that can't be written to, of which torch warned once a process."""
    y, weight = Y.copy(), np.ones(12)
    y.flags.writeable = weight.flags.writeable = False
    torch.set_warn_always(True)
    try:
        regressor.fit(X, y, sample_weight=weight)
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize(
    "parameters", [{"init": 1e10}, {"temperature": 1e18, "standardize": False}], ids=str
)
def test_errors_of_sampling_name_extreme_parameters(parameters):
    """Not only the step size: with a start of 1e10, no step is small enough."""
    (name, value), *_ = parameters.items()
    reg = sk.BayesianMLPRegressor(hidden_layer_sizes=3, **RUN | parameters)
    with pytest.raises(
        sk.SamplingError, match=rf"{name}={re.escape(repr(value))} is extreme.* More"
    ):
        reg.fit(X, Y)
    assert np.isfinite(reg.set_params(**{name: 1.0}).fit(X, Y).predict(X)).all()


def test_noise_beyond_all_numbers_is_summarised():
    """Its standard deviation is infinite at such a temperature, which the table shows."""
    reg = sk.BayesianMLPRegressor(hidden_layer_sizes=3, temperature=1e6, step_size=0.1, **RUN)
    table = reg.fit(X, Y).summary()
    assert np.isinf(table["mean"][list(table["name"]).index("noise")])


def test_columns_of_tables_with_the_largest_numbers_are_refused():
    """Their sums overflow before anything refuses them."""
    table = pd.DataFrame({"id": [f"row {i // 2}" for i in range(12)], "x": 1e308 * np.ones(12)})
    with pytest.raises(ValueError, match="X is not allowed"):
        sk.BayesianGLMRegressor(**RUN).fit(table, Y)


def test_curvatures_that_overflow_once_they_are_scaled_are_no_factorisation():
    # an array that is finite and has a vanishing diagonal raised scipy's "infs or NaNs"
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        inverse_root(np.array([[0.0, 1e200], [1e200, 1.0]]))
