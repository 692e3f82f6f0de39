"""What a fit leaves and what predictions return is finite, or an error says what to change."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    BayesianOrdinalClassifier,
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    SamplingError,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
)
from skbayes_sgmcmc._data.scaling import center_and_scale
from skbayes_sgmcmc._exceptions import explain_full_memory

pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]

RUN = {"n_draws": 20, "burn_in": 20, "thinning": 1, "n_chains": 2, "random_state": 0}
MLP = {"hidden_layer_sizes": (5,), "step_size": 1e-3}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X[:, 0] + 0.1 * RNG.standard_normal(60)
LABELS = (Y > 0).astype(int)

CLASSIFIERS = {
    "mlp": BayesianMLPClassifier(**MLP),
    "raw": BayesianMLPClassifier(**MLP, standardize=False),
    "cnn": BayesianCNNClassifier(step_size=1e-3, image_shape=(1, 2, 2), kernel_size=1),
    "sparse": SparseBayesianClassifier(),
    "logistic": BayesianLogisticRegression(),
    "ordinal": BayesianOrdinalClassifier(),
    "logistic_sgld": BayesianLogisticRegression(step_size=0.1),
    "ica": BayesianICA(),
    "ica_raw": BayesianICA(whiten=False),
}
REGRESSORS = {"mlp": BayesianMLPRegressor(**MLP), "sparse": SparseBayesianRegressor()}


# data ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e160, -1e300, 1e-170])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_rows_beyond_the_range_are_refused_by_name(name, size):
    """Squares of 1e160 overflow, and of 1e-170 are zero: sds, curvatures, whitenings of them."""
    with pytest.raises(ValueError, match=r"^X is not allowed: its largest magnitude is \d"):
        CLASSIFIERS[name].set_params(**RUN).fit(X * size, LABELS)


@pytest.mark.parametrize("size", [1e160, -1e300, 1e-170])
@pytest.mark.parametrize("name", REGRESSORS)
def test_targets_beyond_the_range_are_refused_by_name(name, size):
    regressor = REGRESSORS[name].set_params(**RUN)
    with pytest.raises(ValueError, match=r"^y is not allowed: .*; (divide|multiply) it by"):
        regressor.fit(X, Y * size)
    with pytest.raises(ValueError, match=r"^X is not allowed"):
        regressor.fit(X * size, Y)
    assert not hasattr(regressor, "posterior_")


def test_sparse_rows_are_looked_at_too():
    with pytest.raises(ValueError, match="^X is not allowed"):
        BayesianLogisticRegression(**RUN).fit(sp.csr_matrix(X * 1e160), LABELS)


@pytest.mark.parametrize("size", [1e149, 1e-148])
def test_units_within_the_range_change_nothing_but_units(size):
    """To rounding: the network sees the same standardised numbers."""
    power = 2.0 ** np.round(np.log2(size))
    plain = BayesianMLPRegressor(**MLP, **RUN).fit(X, Y)
    moved = BayesianMLPRegressor(**MLP, **RUN).fit(X * power, Y * power)
    for a, b in zip(plain.predict(X, True), moved.predict(X * power, True), strict=True):
        np.testing.assert_allclose(b / power, a, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_of_any_size_have_a_centre_and_a_scale(dtype, weighted):
    """Powers of two cost no bit, so that columns of all sizes have those of the first, moved."""
    top = np.finfo(dtype).maxexp - 6
    powers = np.array([0, 40, top // 2, top, -40, -top // 2, 20 - top])
    column = (X[:, :1] + 3.0).astype(dtype)
    weight = RNG.uniform(0.5, 2.0, 60) if weighted else None
    center, scale = center_and_scale(np.ldexp(column, powers), weight)
    expected = center_and_scale(column, weight)
    for found, one in zip((center, scale), expected, strict=True):
        np.testing.assert_allclose(np.ldexp(found, -powers), np.broadcast_to(one, 7), rtol=1e-6)
    assert center_and_scale(np.full((9, 1), 1e-30, dtype), None)[1] == 1.0  # a constant


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("constant", [0.1, 1.7e18, 1e30])
@pytest.mark.parametrize("spread", [0, 3])
def test_constants_of_any_size_are_no_inputs(dtype, constant, spread):
    """Within 0.3 of zero, also if the last bits of large ones differ by ``spread`` units.

    The mean of twelve times 1.7e18, a time in nanoseconds, is off by 256, which was an input.
    """
    bits = spread * np.spacing(dtype(constant)) * (np.arange(12) % 2)
    column = (dtype(constant) + bits).astype(dtype)[:, None]
    center, scale = center_and_scale(column, RNG.uniform(0.5, 2.0, 12))
    assert np.abs((column - center) / scale).max() <= 0.3


# after a fit --------------------------------------------------------------------------------------


def test_a_fit_whose_predictions_overflow_is_an_error():
    """Means are finite, and the sds of three targets are not."""
    settings = MLP | RUN | {"step_size": 1000.0, "noise": "infer"}
    regressor = BayesianMLPRegressor(**settings, dtype="float32")
    with pytest.raises(SamplingError, match="reduce step_size"):
        regressor.fit(X, np.c_[Y, Y, Y])
    assert not hasattr(regressor, "posterior_")


def test_a_fit_that_fails_at_its_end_leaves_the_estimator_as_it_was():
    regressor = BayesianMLPRegressor(**(MLP | RUN), noise="infer", dtype="float32").fit(X, Y)
    before = regressor.predict(X)
    with pytest.raises(SamplingError):
        regressor.set_params(step_size=1000.0).fit(X, np.c_[Y, Y, Y])
    np.testing.assert_array_equal(regressor.predict(X), before)


def test_a_rate_that_no_data_allow_is_an_error():
    documents = RNG.poisson(1.0, (20, 8))
    with pytest.raises((SamplingError, ValueError)):
        DeepPoissonFactorAnalysis(n_components=(3,), r_rate=1e10, **RUN).fit(documents)


# memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocate", [torch.empty, np.empty], ids=["torch", "numpy"])
def test_a_full_memory_says_what_to_change(monkeypatch, allocate):
    """On a CPU torch's is a RuntimeError. 2**52 numbers are more than any processor can address."""

    def too_much(*args, **kwargs):
        allocate(2**52)

    monkeypatch.setattr("skbayes_sgmcmc._engine.run._run_groups", too_much)
    classifier = BayesianMLPClassifier(**MLP, **RUN)
    with pytest.raises(
        MemoryError, match=r"^the device's memory is full: .*smaller batch_size.* \("
    ):
        classifier.fit(X, LABELS)
    assert not hasattr(classifier, "posterior_")


def test_other_errors_are_not_taken_for_a_full_memory():
    with pytest.raises(RuntimeError, match="^another$"), explain_full_memory("nothing"):
        raise RuntimeError("another")
    with (
        pytest.raises(MemoryError, match="inner"),
        explain_full_memory("outer"),
        explain_full_memory("inner"),
    ):
        raise MemoryError


# predictions --------------------------------------------------------------------------------------

REFUSED = r"^X is not allowed: its largest magnitude is \d.*e\+"


@pytest.mark.parametrize("method", ["predict_proba", "predict", "predict_uncertainty"])
def test_rows_that_overflow_are_refused_by_classifiers(method):
    classifier = BayesianMLPClassifier(**MLP, **RUN, dtype="float32").fit(X, LABELS)
    with pytest.raises(ValueError, match=REFUSED):
        getattr(classifier, method)(X * 1e39)
    with pytest.raises(ValueError, match=REFUSED):
        classifier.predict_proba_samples(X * 1e39)


@pytest.mark.parametrize(
    "method",
    ["predict", "predict_quantiles", "predict_interval", "sample_y", "predict_log_density"],
)
def test_rows_that_overflow_are_refused_by_regressors(method):
    regressor = BayesianMLPRegressor(**MLP, **RUN, dtype="float32").fit(X, Y)
    targets = (Y,) if method == "predict_log_density" else ()
    with pytest.raises(ValueError, match=REFUSED):
        getattr(regressor, method)(X * 1e39, *targets)


def test_rows_that_overflow_are_refused_by_ica():
    ica = BayesianICA(**RUN).fit(X * 1e-10)
    with pytest.raises(ValueError, match=REFUSED):
        ica.transform(X * 1e300)
    with pytest.raises(ValueError, match=REFUSED):
        BayesianICA(**RUN).fit(X * 1e10).inverse_transform(X * 1e300)


# counts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1e7, 1e10, 1e19, 1e300])
@pytest.mark.parametrize("topics", [LatentDirichletAllocation, DeepPoissonFactorAnalysis])
def test_documents_of_more_words_than_can_be_counted_are_refused(topics, count):
    """Topics of 1e10 words asked for 9.6 TB, 1e19 are no int64, and float32 counts to 1.6e7."""
    message = r"^X is not allowed: document 3 has \S+ words, and more than 10,000,000 can't"
    documents = np.ones((5, 2))
    documents[3] = count
    model = topics(**RUN)
    for given in (documents, sp.csr_matrix(documents)):
        with pytest.raises(ValueError, match=message):
            model.fit(given)
    assert not hasattr(model, "posterior_")
    with pytest.raises(ValueError, match=message):
        model.set_params(n_components=2, n_draws=2, burn_in=1).fit(np.ones((5, 2))).perplexity(
            given
        )
