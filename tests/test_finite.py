"""What a fit leaves and what predictions return is finite, or an error says what to change."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
import torch
from _cases import cases
from sklearn.base import clone

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.scaling import center_and_scale
from skbayes_sgmcmc._exceptions import explain_full_memory
from skbayes_sgmcmc.models.likelihoods.binomial import Binomial as BinomialLikelihood
from skbayes_sgmcmc.models.likelihoods.predictive import StudentT
from skbayes_sgmcmc.samplers import PSGLD

pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]

#: max_steps bounds the descents to the starts, too
RUN = {"n_draws": 20, "burn_in": 20, "thinning": 1, "n_chains": 2, "max_steps": 40,
       "random_state": 0}  # fmt: skip
MLP = {"hidden_layer_sizes": (5,), "step_size": 1e-3}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X[:, 0] + 0.1 * RNG.standard_normal(60)
LABELS = (Y > 0).astype(int)
COUNTS = RNG.poisson(1.0, 60).astype(float)

CLASSIFIERS = {
    "mlp": sk.BayesianMLPClassifier(**MLP),
    "raw": sk.BayesianMLPClassifier(**MLP, standardize=False),
    "cnn": sk.BayesianCNNClassifier(step_size=1e-3, image_shape=(1, 2, 2), kernel_size=1),
    "sparse": sk.SparseBayesianClassifier(),
    "logistic": sk.BayesianLogisticRegression(),
    "ordinal": sk.BayesianOrdinalClassifier(),
    "logistic_sgld": sk.BayesianLogisticRegression(step_size=0.1),
    "ica": sk.BayesianICA(),
    "ica_raw": sk.BayesianICA(whiten=False),
}
REGRESSORS = {"mlp": sk.BayesianMLPRegressor(**MLP), "sparse": sk.SparseBayesianRegressor()}


# data ---------------------------------------------------------------------------------------------


@cases("size", [1e160, -1e300, 1e-170])
@cases("name", CLASSIFIERS)
def test_rows_beyond_the_range_are_refused_by_name(name, size):
    """Squares of 1e160 overflow, and of 1e-170 are zero: sds, curvatures, whitenings of them."""
    with pytest.raises(ValueError, match=r"^X is not allowed: its largest magnitude is \d"):
        CLASSIFIERS[name].set_params(**RUN).fit(X * size, LABELS)
    if name == "logistic":
        with pytest.raises(ValueError, match="^X is not allowed"):
            CLASSIFIERS[name].fit(sp.csr_matrix(X * size), LABELS)


@cases("size", [1e160, -1e300, 1e-170])
@cases("name", REGRESSORS)
def test_targets_beyond_the_range_are_refused_by_name(name, size):
    regressor = REGRESSORS[name].set_params(**RUN)
    with pytest.raises(ValueError, match=r"^y is not allowed: .*; (divide|multiply) it by"):
        regressor.fit(X, Y * size)
    with pytest.raises(ValueError, match=r"^X is not allowed"):
        regressor.fit(X * size, Y)
    assert not hasattr(regressor, "posterior_")


@pytest.mark.parametrize("sparse", [False, True])
def test_a_column_below_the_range_is_refused_by_its_number(sparse):
    """Units and curvatures are those of single columns; a column of zeros is allowed."""
    rows = X.copy()
    rows[:, 1], rows[:, 2] = 0.0, X[:, 2] * 1e-170
    made = sp.csr_matrix if sparse else np.asarray
    for estimator, y in (
        (sk.BayesianOrdinalClassifier(**RUN), LABELS),
        (sk.BayesianLogisticRegression(**RUN), LABELS),
        (sk.BayesianGLMRegressor(**RUN, likelihood="poisson"), COUNTS),
        (sk.BayesianGLMRegressor(**RUN), Y),
    ):
        with pytest.raises(ValueError, match=r"^X is not allowed: .* column 2 is \d.*e-170"):
            estimator.fit(made(rows), y)
        assert np.isfinite(estimator.fit(made(np.ldexp(rows, [0, 0, 80, 0])), y).coef_).all()
    with pytest.raises(ValueError, match="^y is not allowed: .* its column 1 is"):
        sk.BayesianMLPRegressor(**MLP, **RUN).fit(X, np.c_[Y, Y * 1e-170])


@pytest.mark.parametrize("size", [1e149, 1e-148])
def test_units_within_the_range_change_nothing_but_units(size):
    """To rounding: the network sees the same standardised numbers."""
    power = 2.0 ** np.round(np.log2(size))
    plain = sk.BayesianMLPRegressor(**MLP, **RUN).fit(X, Y)
    moved = sk.BayesianMLPRegressor(**MLP, **RUN).fit(X * power, Y * power)
    for a, b in zip(plain.predict(X, True), moved.predict(X * power, True), strict=True):
        np.testing.assert_allclose(b / power, a, rtol=1e-6)


@pytest.mark.parametrize("size", [1e140, 1e-140])
def test_units_change_nothing_of_learned_scales(size):
    """Coefficients have the units of the features, and so has their prior."""
    power = 2.0 ** np.round(np.log2(size))
    for estimator, y in (
        (sk.BayesianGLMRegressor(**RUN), Y),
        (sk.BayesianGLMRegressor(**RUN, likelihood="poisson"), COUNTS),
        (sk.BayesianLogisticRegression(**RUN), LABELS),
    ):
        predict = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
        plain = getattr(clone(estimator).fit(X, y), predict)(X)
        moved = getattr(clone(estimator).fit(X * power, y), predict)(X * power)
        np.testing.assert_allclose(moved, plain, rtol=1e-4)


@pytest.mark.statistical
def test_units_change_no_law_of_ordinal_classes():
    """Beyond a ratio of 1e12 to the units of the gaps, rounding changes the draws, not their law.

    Probabilities differ by 0.03 at most: their sd over the draws is up to 0.2, and the averages of
    500 effective draws have a standard error of up to 0.009.
    """
    classes = np.digitize(Y, [-0.5, 0.5])
    ordinal = sk.BayesianOrdinalClassifier(n_chains=20, n_draws=50, random_state=0)
    plain = clone(ordinal).fit(X, classes).predict_proba(X)
    for power in (2.0**465, 2.0**-465):
        moved = clone(ordinal).fit(X * power, classes).predict_proba(X * power)
        np.testing.assert_allclose(moved, plain, atol=0.03)


@cases("dtype", [np.float64, np.float32])
@cases("weighted", [False, True])
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


@cases("dtype", [np.float64, np.float32])
@cases("constant", [0.1, 1.7e18, 1e30])
@cases("spread", [0, 3])
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
    regressor = sk.BayesianMLPRegressor(**settings, dtype="float32")
    with pytest.raises(sk.SamplingError, match="reduce step_size"):
        regressor.fit(X, np.c_[Y, Y, Y])
    assert not hasattr(regressor, "posterior_")


def test_a_fit_that_fails_at_its_end_leaves_the_estimator_as_it_was():
    regressor = sk.BayesianMLPRegressor(**(MLP | RUN), noise="infer", dtype="float32").fit(X, Y)
    before = regressor.predict(X)
    with pytest.raises(sk.SamplingError):
        regressor.set_params(step_size=1000.0).fit(X, np.c_[Y, Y, Y])
    np.testing.assert_array_equal(regressor.predict(X), before)


def test_a_rate_that_no_data_allow_is_an_error():
    documents = RNG.poisson(1.0, (20, 8))
    with pytest.raises((sk.SamplingError, ValueError)):
        sk.DeepPoissonFactorAnalysis(n_components=(3,), r_rate=1e10, **RUN).fit(documents)


# memory -------------------------------------------------------------------------------------------


class Greedy(PSGLD):
    """A step that asks for 2**52 numbers, which are more than any processor can address."""

    allocate = None

    def euler(self, theta, state, step):
        Greedy.allocate(2**52)


@pytest.mark.parametrize("allocate", [torch.empty, np.empty], ids=["torch", "numpy"])
def test_a_full_memory_says_what_to_change(allocate):
    """On a CPU torch's is a RuntimeError."""
    Greedy.allocate = staticmethod(allocate)
    classifier = sk.BayesianMLPClassifier(sampler=Greedy(), **MLP, **RUN)
    with pytest.raises(MemoryError, match=r"^memory is full: .*smaller batch_size.* \(") as caught:
        classifier.fit(X, LABELS)
    assert not hasattr(classifier, "posterior_")
    assert "device" not in str(caught.value)  # it is the CPU's


def test_the_cpu_is_a_remedy_for_a_full_memory_of_other_devices():
    with (
        pytest.raises(MemoryError, match="predict fewer rows, or device='cpu'; other programs"),
        explain_full_memory("predict fewer rows"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")


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


@cases("kind", ["classifier", "regressor"])
def test_rows_that_overflow_are_refused(kind):
    """By every method, in the precision of the chains."""
    of_classes = ["predict_proba", "predict", "predict_uncertainty", "predict_proba_samples"]
    of_numbers = ["predict", "predict_quantiles", "predict_interval", "sample_y"]
    network = sk.BayesianMLPClassifier if kind == "classifier" else sk.BayesianMLPRegressor
    fitted = network(**MLP, **RUN, dtype="float32").fit(X, LABELS)
    for method in of_classes if kind == "classifier" else of_numbers:
        with pytest.raises(ValueError, match=REFUSED):
            getattr(fitted, method)(X * 1e39)
    if kind == "regressor":
        with pytest.raises(ValueError, match=REFUSED):
            fitted.predict_log_density(X * 1e39, LABELS)


def test_rows_that_overflow_are_refused_by_ica():
    ica = sk.BayesianICA(**RUN).fit(X * 1e-10)
    with pytest.raises(ValueError, match=REFUSED):
        ica.transform(X * 1e300)
    with pytest.raises(ValueError, match=REFUSED):
        sk.BayesianICA(**RUN).fit(X * 1e10).inverse_transform(X * 1e300)


FAR = [1e155, 1e160, 1e300]
MODULE = {"noise": "heteroscedastic", "module": lambda: torch.nn.Linear(4, 2)}
PREDICTING = {
    **{name: (one, LABELS) for name, one in CLASSIFIERS.items()},
    "module": (sk.BayesianModuleClassifier(lambda: torch.nn.Linear(4, 2)), LABELS),
    "three_classes": (sk.BayesianLogisticRegression(), np.digitize(Y, [-0.5, 0.5])),
    "ordinal_3": (sk.BayesianOrdinalClassifier(), np.digitize(Y, [-0.5, 0.5])),
    **{name: (one, Y) for name, one in REGRESSORS.items()},
    "mlp_t": (sk.BayesianMLPRegressor(**MLP, likelihood="student_t"), Y),
    "mlp_poisson": (sk.BayesianMLPRegressor(**MLP, likelihood="poisson"), COUNTS),
    "mlp_several": (sk.BayesianMLPRegressor(**MLP), np.c_[Y, Y]),
    "module_regressor": (sk.BayesianModuleRegressor(**MODULE), Y),
    **{
        f"glm_{name}": (sk.BayesianGLMRegressor(likelihood=name), targets)
        for name, targets in {
            "normal": Y, "student_t": Y, "poisson": COUNTS, "negative_binomial": COUNTS,
            "gamma": np.exp(Y), "binomial": LABELS.astype(float), "tweedie": np.exp(Y).round(),
            "zero_inflated_poisson": COUNTS, "zero_inflated_negative_binomial": COUNTS,
            "log_normal": np.exp(Y), "weibull": np.exp(Y),
        }.items()
    },
}  # fmt: skip
#: every public method that predicts, with what it takes beside X
METHODS = {
    "decision_function": {}, "iter_proba_samples": {}, "predict": {}, "predict_interval": {},
    "predict_log_density": {"y": ...}, "predict_log_proba": {}, "predict_proba": {},
    "predict_mean_samples": {}, "predict_proba_interval": {}, "predict_proba_samples": {},
    "predict_quantiles": {}, "predict_set": {},
    "predict_survival": {"times": [0.0, 1e3]}, "predict_uncertainty": {},
    "sample_y": {"n_samples": 3, "random_state": 0}, "transform": {},
}  # fmt: skip


def numbers_of(found):
    if isinstance(found, Iterator):
        found = list(found)
    values = list(found.values()) if isinstance(found, dict) else [found]
    return np.concatenate([np.ravel(np.asarray(each, dtype=float)) for each in values])


@cases("name", PREDICTING)
def test_far_rows_and_targets_have_finite_predictions_or_are_refused(name):
    """Every method that predicts, without a warning of numpy's (``pytestmark``).

    The squares of distances overflow, which the quantiles of normal noise do not need. Logarithms
    of probabilities may be minus infinity, as scikit-learn's, and those of impossible targets.
    """
    given, y = PREDICTING[name]
    fitted = clone(given).set_params(**RUN).fit(X, y)
    listed = {each for each in dir(fitted) if each.startswith(("predict", "sample_y"))}
    assert listed <= METHODS.keys()
    for method, options in METHODS.items():
        if not hasattr(fitted, method):
            continue
        cases = [(X * size, y) for size in FAR]
        if "y" in options:
            cases += [(X, y * size) for size in FAR]
        for rows, targets in cases:
            given_y = {"y": targets} if "y" in options else {}
            try:
                values = numbers_of(getattr(fitted, method)(rows, **options | given_y))
            except ValueError as error:
                assert re.match(r"[Xy] (with .* )?is not allowed: ", str(error)), error
                continue
            least = method == "predict_log_proba" or (name == "glm_binomial" and targets is not y)
            assert not np.isnan(values).any() and (values < np.inf).all(), method
            assert least or np.isfinite(values).all(), method


def test_log_densities_far_out_are_those_of_theory():
    """Student's t at 1e200 scales, whose square overflows; a logit of 600, where p rounds to 1."""
    z, df = np.array([[1e-8, 3.0, 1e9, 1e12, 1e200]]), 4.0
    t = StudentT(np.zeros((1, 1, 1)), np.ones((1, 1, 1)), np.full((1, 1, 1), df))
    exact = scipy.stats.t(df).logpdf(z[:, :4])
    np.testing.assert_allclose(t.log_density(z)[0, :, :4], exact, rtol=1e-12)
    fall = t.log_density(z)[0, 0, 4] - t.log_density(z)[0, 0, 3]
    np.testing.assert_allclose(fall, -(df + 1.0) * 188.0 * np.log(10.0), rtol=1e-12)
    logits = torch.tensor([[[600.0, 1.0]]]).double()
    binomial = BinomialLikelihood(np.array([0.5])).predictive(logits, None).numpy()
    np.testing.assert_allclose(binomial.log_density(np.zeros((1, 1))), -600.0, rtol=1e-12)


def test_targets_too_far_for_a_density_are_named_with_their_row():
    regressor = sk.BayesianGLMRegressor(**RUN).fit(X, Y)
    far = np.where(np.arange(60) == 7, 1e200, Y)
    message = r"^y is not allowed: the target 1e\+200 of row 7 .*, and the rows X, in the units"
    with pytest.raises(ValueError, match=message):
        regressor.predict_log_density(X, far)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="Input y contains"):
            regressor.predict_log_density(X, np.where(far > 1e100, bad, Y))


# counts -------------------------------------------------------------------------------------------


@cases("count", [1e7, 1e10, 1e19, 1e300])
@cases("topics", [sk.LatentDirichletAllocation, sk.DeepPoissonFactorAnalysis])
def test_documents_of_more_words_than_can_be_counted_are_refused(topics, count):
    """Topics of 1e10 words asked for 9.6 TB, 1e19 are no int64, and float32 counts to 1.6e7."""
    message = r"^X is not allowed: document 3 has \S+ words, and more than 16,777,216 can't"
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
