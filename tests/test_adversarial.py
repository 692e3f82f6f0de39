"""The fast gradient sign attack: its direction is that of the averaged prediction's gradient."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from _cases import cases
from _posteriors import with_draws, with_posterior
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.inspection import AdversarialCurveDisplay, _adversarial, fgsm

#: budgets too small to mix, on purpose: what is looked at holds for any draws
pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.usefixtures("figures"),
]

SHORT = {"n_chains": 2, "n_draws": 6, "burn_in": 100, "thinning": 5, "random_state": 0}
#: bounds the descents to the starts, too
BRIEF = SHORT | {"max_steps": 130, "calibrate": False}
#: of perceptrons: differences need more digits than float32 has, and are of averages over draws
DOUBLE = SHORT | {
    "sampler": "psgld",
    "prior_scale": "fan_in",
    "dtype": "float64",
    "calibrate": False,
}
DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS / 16.0


def module():
    """With batch norms, whose statistics belong to the draws."""
    return nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


CLASSIFIERS = {
    "logistic": sk.BayesianLogisticRegression(n_chains=2, n_draws=6, random_state=0),
    "ordinal": sk.BayesianOrdinalClassifier(n_chains=2, n_draws=6, random_state=0),
    "relu": sk.BayesianMLPClassifier(hidden_layer_sizes=(9, 7), **DOUBLE),
    "tanh": sk.BayesianMLPClassifier(hidden_layer_sizes=9, activation="tanh", **DOUBLE),
    "sigmoid": sk.BayesianMLPClassifier(hidden_layer_sizes=9, activation="logistic", **DOUBLE),
    "cnn": sk.BayesianCNNClassifier(
        conv_channels=3, kernel_size=3, hidden_layer_sizes=5, dtype="float64", **BRIEF
    ),
    "module": sk.BayesianModuleClassifier(module, standardize=True, **SHORT),
}


def rows_of_classes(n_features, n_classes, n_rows=120):
    """Rows whose features have centres and scales of their own, and labels that are strings."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n_rows)
    X = rng.standard_normal((n_rows, n_features))
    X[:, 0] += 2.0 * y
    return 5.0 + X * np.geomspace(0.1, 10.0, n_features), np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module")
def network():
    """A network for digits after few steps, whose single draws are poor and unlike."""
    clf = sk.BayesianMLPClassifier(hidden_layer_sizes=12, **DOUBLE)
    return clf.fit(DIGITS[::3], LABELS[::3])


# direction ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_features", "n_classes"),
    [(name, 16, 3) for name in CLASSIFIERS]
    + [(name, n_features, 2) for name in ("logistic", "relu", "tanh") for n_features in (1, 16)],
)
@pytest.mark.parametrize(
    "weights", [pytest.param(None, marks=pytest.mark.slow), np.r_[0.0, np.geomspace(1.0, 0.05, 5)]]
)
def test_direction_is_that_of_finite_differences(name, n_features, n_classes, weights):
    """Of log p(y|x) averaged over all draws by weight, in the units of X.

    Central differences in float64 of 1e-5 of a feature's sd are right to about 1e-8 of the
    largest slope (in sds), so slopes above 1e-6 of it have the right sign; and the exact slopes
    are parallel to the differences to 1e-6. (ReLUs have kinks, at which differences are off: a
    step meets one in few rows, so there one row in twenty may differ.)
    """
    X, y = rows_of_classes(n_features, n_classes)
    clf = with_posterior(CLASSIFIERS[name].fit(X, y), weights=weights)
    rows, labels = X[:40], np.roll(y, 1)[:40]  # labels that are unlike the predictions too
    codes = np.searchsorted(clf.classes_, labels)
    sd, slopes = X.std(axis=0), np.empty(rows.shape)
    for j in range(n_features):
        step = np.zeros(n_features)
        step[j] = 1e-5 * sd[j]
        up, down = (
            clf.predict_log_proba(at)[range(40), codes] for at in (rows + step, rows - step)
        )
        slopes[:, j] = (up - down) / 2e-5
    clear = np.abs(slopes) > 1e-6 * np.abs(slopes).max(axis=1, keepdims=True)
    assert clear.mean() > 0.5
    moved = fgsm(clf, rows, labels, eps=0.5, clip=None)
    right = ~clear | np.isclose(moved, rows - 0.5 * np.sign(slopes), rtol=0, atol=1e-12)
    pooled = clf.posterior_.pooled_weights()
    pooled = np.ones(clf.posterior_.n_pooled) if pooled is None else pooled
    log_weights = np.log(np.maximum(pooled, 1e-300))
    exact = _adversarial._slopes(clf, rows, codes, log_weights) * sd
    cosine = np.sum(exact * slopes, axis=1) / np.linalg.norm(exact, axis=1)
    right &= (cosine / np.linalg.norm(slopes, axis=1) > 1.0 - 1e-6)[:, None]
    least = 0.95 if name in ("relu", "cnn") else 1.0
    assert right.all(axis=1).mean() >= least


def logistic(coef, intercept, weights=None):
    """A logistic regression of two classes with the given draws, (draws, features)."""
    X = np.vstack([np.eye(len(coef[0])), -np.eye(len(coef[0]))])
    clf = sk.BayesianLogisticRegression(n_chains=1, n_draws=6, random_state=0).fit(X, X[:, 0] > 0)
    draws = {
        "coef": np.array(coef)[None, :, None, :],
        "intercept": np.array(intercept)[None, :, None],
    }
    return with_draws(clf, draws, weights)


def test_direction_of_a_logistic_regression_by_hand():
    """One draw: the sign of its coefficients, the other way for the other label; 0 stays."""
    clf = logistic([[2.0, -1.0, 0.0]], [0.3])
    X = np.array([[0.1, -0.4, 0.2], [-3.0, 0.0, 1.0]])
    moved = fgsm(clf, X, [True, False], eps=0.25, clip=None)
    np.testing.assert_allclose(moved - X, [[-0.25, 0.25, 0.0], [0.25, -0.25, 0.0]], atol=1e-15)


@cases("dtype", [np.float32, np.float64])
@cases("label", [False, True])
def test_direction_where_probabilities_round_to_one_or_zero(dtype, label):
    """Log odds of 150 and 900, so that p (1 - p) is e^-150 and less than any number.

    The first draw's slope, (1, -1), outweighs the second's, (-1, 1) times 1000, by e^750 / 1000;
    without the first draw it is the second's.
    """
    coef = np.array([[1.0, -1.0], [-1000.0, 1000.0]], dtype)
    X = np.zeros((1, 2), dtype)
    odds = np.array([150.0, 900.0], dtype)
    for weights, signs in ((None, [1.0, -1.0]), (np.array([0.0, 1.0]), [-1.0, 1.0])):
        moved = fgsm(logistic(coef, odds, weights), X, [label], eps=1.0, clip=None)
        np.testing.assert_array_equal(moved[0], signs if not label else np.negative(signs))


@pytest.mark.parametrize("weights", [None, np.geomspace(1.0, 0.05, 6)])
@pytest.mark.parametrize("name", ["logistic", "relu", "cnn"])
def test_blocks_of_rows_and_draws_do_not_show(name, weights, limits, monkeypatch):
    """Slopes are the same to rounding of sums in another order, from one draw and row at a time."""
    X, y = rows_of_classes(16, 3)
    clf = with_posterior(CLASSIFIERS[name].fit(X, y), weights=weights)
    X = X[:30]
    whole = fgsm(clf, X, eps=1.0, clip=None)
    sizes, blocks = [], type(clf)._iter_logits

    def recorded(self, x):
        for draws, f in blocks(self, x):
            sizes.append(f.shape)
            yield draws, f

    monkeypatch.setattr(type(clf), "_iter_logits", recorded)
    limits(block_numbers=1, gradient_rows=7)
    np.testing.assert_array_equal(fgsm(clf, X, eps=1.0, clip=None), whole)
    assert {shape[0] for shape in sizes} == {1}
    assert max(shape[1] for shape in sizes) == 7
    assert len(sizes) == 12 * -(-len(X) // 7)


# what is attacked ---------------------------------------------------------------------------------


def test_the_predicted_label_is_attacked_unless_one_is_given(network):
    predicted = network.predict(DIGITS)
    wrong = predicted != LABELS
    assert 10 < wrong.sum() < len(LABELS) / 2
    attacked = fgsm(network, DIGITS, eps=0.1)
    np.testing.assert_array_equal(attacked, fgsm(network, DIGITS, predicted, eps=0.1))
    at_true = fgsm(network, DIGITS, LABELS, eps=0.1)
    np.testing.assert_array_equal(attacked[~wrong], at_true[~wrong])
    assert (attacked[wrong] != at_true[wrong]).any(axis=1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_move_by_eps_within_the_range(network, dtype):
    """Each moves by eps or not at all, up to the rounding of an addition, but for clipping."""
    X = DIGITS[:50].astype(dtype)
    before = X.copy()
    free = fgsm(network, X, eps=0.3, clip=None)
    np.testing.assert_array_equal(X, before)
    assert free.dtype == dtype and free.shape == X.shape
    moves = np.abs(free.astype(float) - X)
    tolerance = 2.0 * np.finfo(dtype).eps
    assert (np.minimum(moves, np.abs(moves - float(dtype(0.3)))) <= tolerance).all()
    assert free.min() < 0.0 and free.max() > 1.0
    clipped = fgsm(network, X, eps=0.3)
    assert clipped.dtype == dtype
    np.testing.assert_array_equal(clipped, free.clip(0.0, 1.0))
    np.testing.assert_array_equal(fgsm(network, X, eps=0.3, clip=(-0.1, 1.5)), free.clip(-0.1, 1.5))
    np.testing.assert_array_equal(fgsm(network, X, eps=0), X)


def test_images_keep_their_shape():
    """(rows, channels, height, width), and whole numbers are made float64."""
    images = DIGITS.reshape(-1, 1, 8, 8)
    clf = sk.BayesianCNNClassifier(conv_channels=3, kernel_size=3, hidden_layer_sizes=5, **BRIEF)
    clf.fit(images[::3], LABELS[::3])
    attacked = fgsm(clf, images[:20], eps=0.1)
    assert attacked.shape == (20, 1, 8, 8)
    np.testing.assert_array_equal(attacked.reshape(20, 64), fgsm(clf, DIGITS[:20], eps=0.1))
    whole = np.round(16.0 * DIGITS[:20]).astype(np.int64)
    moved = fgsm(clf, whole, eps=0.5, clip=(0, 16))
    assert moved.dtype == np.float64
    assert set(np.abs(moved - whole).ravel()) == {0.0, 0.5}


@pytest.mark.parametrize(
    "clf",
    [
        CLASSIFIERS["logistic"],
        sk.BayesianMLPClassifier(hidden_layer_sizes=20, **DOUBLE | {"burn_in": 1000}),
        pytest.param(
            sk.BayesianCNNClassifier(
                conv_channels=6, kernel_size=3, hidden_layer_sizes=20, **SHORT | {"burn_in": 300}
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["logistic", "mlp", "cnn"],
)
def test_attacks_on_true_labels_lower_likelihood_and_accuracy(clf):
    """The likelihood falls at a small eps, and accuracy on new digits falls with eps.

    In one row of a hundred or so the likelihood may rise: equal pixels meet in a max pool, a kink.
    """
    clf = clone(clf).fit(DIGITS[::2], LABELS[::2])
    X, y = DIGITS[1::2], LABELS[1::2]
    rows = np.arange(len(y))
    before = clf.predict_log_proba(X)[rows, y]
    after = clf.predict_log_proba(fgsm(clf, X, y, eps=1e-5, clip=None))[rows, y]
    assert np.mean(after < before) > 0.97
    scores = [clf.score(fgsm(clf, X, y, eps=eps), y) for eps in (0.0, 0.1, 0.2, 0.4)]
    assert scores[0] > 0.8
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.5 * scores[0]


def test_searches_are_looked_into_and_frames_taken(network):
    import pandas as pd

    frame = pd.DataFrame(DIGITS[:300], columns=[f"pixel {j}" for j in range(64)])
    search = GridSearchCV(network, {"step_size": [0.01, 0.001]}, cv=2).fit(frame, LABELS[:300])
    attacked = fgsm(search, frame, eps=0.1)
    best = search.best_estimator_
    assert isinstance(attacked, np.ndarray)
    np.testing.assert_array_equal(attacked, fgsm(best, frame, best.predict(frame), eps=0.1))


# curves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attacked", ["predicted", "true"])
def test_every_point_of_the_curve_is_an_attack(network, attacked):
    """Accuracy and mean entropy of the rows that ``fgsm`` makes."""
    X, y, eps = DIGITS[:200], LABELS[:200], [0.0, 0.1, 0.3]
    display = AdversarialCurveDisplay.from_estimator(network, X, y, eps=eps, attacked=attacked)
    np.testing.assert_array_equal(display.eps, eps)
    for i, strength in enumerate(eps):
        moved = fgsm(network, X, y if attacked == "true" else None, eps=strength)
        assert display.values["accuracy"][i] == pytest.approx(network.score(moved, y), abs=1e-12)
        entropy = network.predict_uncertainty(moved).total.mean()
        assert display.values["entropy"][i] == pytest.approx(entropy, rel=1e-6)
    assert display.values["accuracy"][0] > display.values["accuracy"][2]


def test_lines_of_the_curve(network):
    X, y = DIGITS[:100], LABELS[:100]
    display = AdversarialCurveDisplay.from_estimator(network, X, y)
    np.testing.assert_allclose(display.eps, np.linspace(0.0, 0.5, 11))
    assert [ax.get_ylabel() for ax in display.axes_] == ["accuracy"]
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), display.values["accuracy"])
    assert [t.get_text() for t in display.ax_.get_legend().get_texts()] == ["BayesianMLPClassifier"]
    assert display.plot(display.ax_, name="again", color="k") is display
    assert len(display.ax_.lines) == 2 and display.lines_[0].get_color() == "k"
    both = display.plot(metric=["accuracy", "entropy"])
    assert both.axes_[1].get_ylabel() == "mean predictive entropy (nats)"
    np.testing.assert_array_equal(both.lines_[1].get_ydata(), display.values["entropy"])
    _, ax = plt.subplots()
    assert display.plot(ax).ax_ is ax and display.figure_ is ax.figure


# errors -------------------------------------------------------------------------------------------


@cases("attack", [
    lambda clf, X, y, **given: fgsm(clf, X, y, **{"eps": 0.1} | given),
    AdversarialCurveDisplay.from_estimator,
])  # fmt: skip
@cases(
    "changes, message",
    [
        ({"eps": -0.1}, r"eps=-0.1 is not allowed: give a number in \[0, inf\)"),
        ({"eps": np.nan}, "eps=nan is not allowed"),
        ({"eps": np.inf}, "eps=inf is not allowed"),
        ({"eps": "0.1"}, "eps='0.1' is not allowed"),
        ({"eps": True}, "eps=True is not allowed"),
        ({"eps": None}, "eps=None is not allowed"),
        ({"clip": (1, 0)}, r"clip=\(1, 0\) is not allowed: give \(low, high\) or None"),
        ({"clip": (0, 1, 2)}, r"clip=\(0, 1, 2\)"),
        ({"clip": 1.0}, r"clip=1.0 is not allowed: give \(low, high\)"),
        ({"clip": (0, np.nan)}, "clip=nan is not allowed"),
        ({"clip": "01"}, "clip='01'"),
        ({"clip": (0.0, 0.5)}, r"clip=\(0.0, 0.5\) is not allowed for X between 0 and 1: give"),
        ({"X": csr_matrix(DIGITS)}, "X in a sparse format is not allowed"),
        ({"X": DIGITS[:, :9]}, "9 features"),
        ({"X": np.full((2, 64), np.nan)}, "NaN"),
        ({"y": LABELS[:5]}, "inconsistent numbers of samples"),
        ({"y": np.full(len(DIGITS), 11)}, r"y has labels \[11\] that are not in classes_=\[0, 1"),
    ],
)
def test_bad_parameters(attack, changes, message, network, monkeypatch):
    """Before any work."""
    monkeypatch.setattr(type(network), "_iter_logits", None)
    monkeypatch.setattr(type(network), "_predict_block", None)
    given = {"X": DIGITS, "y": LABELS} | changes
    with pytest.raises(ValueError, match=message):
        attack(network, given.pop("X"), given.pop("y"), **given)


@cases(
    "changes, message",
    [
        ({"eps": []}, "eps=None is not allowed"),
        ({"eps": [0.1, -1.0]}, "eps=-1.0 is not allowed"),
        ({"attacked": "all"}, "attacked='all' is not allowed: give one of 'predicted', 'true'"),
        ({"metric": "nll"}, "metric='nll' is not allowed: give one of 'accuracy', 'entropy'"),
    ],
)
def test_bad_parameters_of_the_curve(changes, message, network):
    with pytest.raises(ValueError, match=message):
        AdversarialCurveDisplay.from_estimator(network, DIGITS, LABELS, **changes)


def test_estimators_that_cannot_be_attacked(network):
    X, y = DIGITS[:60], LABELS[:60] > 4
    with pytest.raises(NotFittedError, match="not fitted"):
        fgsm(sk.BayesianMLPClassifier(), X, eps=0.1)
    sparse = sk.BayesianLogisticRegression(n_chains=1, n_draws=6, random_state=0)
    sparse.fit(csr_matrix(X), y)
    with pytest.raises(ValueError, match=r"sparse format .* X.toarray\(\)"):
        fgsm(sparse, csr_matrix(X), eps=0.1)
    assert fgsm(sparse, X, eps=0.1).shape == X.shape
    pipe = make_pipeline(PCA(5), sk.BayesianMLPClassifier(hidden_layer_sizes=5, **DOUBLE))
    pipe.fit(X, y)
    message = r"step 'pca' \(PCA\) is not allowed: .* pipeline\[-1\], .* pipeline\[:-1\].transform"
    with pytest.raises(ValueError, match=message):
        fgsm(pipe, X, eps=0.1)
    assert fgsm(pipe[-1], pipe[0].transform(X), eps=0.1, clip=None).shape == (60, 5)
    regressor = sk.BayesianMLPRegressor(hidden_layer_sizes=5, max_steps=130, **SHORT).fit(X, y)
    with pytest.raises(ValueError, match="is not allowed: give a classifier"):
        fgsm(regressor, X, eps=0.1)


def test_attacks_go_through_scalers(network):
    """In the units of X, with the signs of the last step's gradients: scales are positive."""
    X, y = DIGITS[:60], LABELS[:60] > 4
    last = sk.BayesianMLPClassifier(hidden_layer_sizes=5, **DOUBLE)
    pipe = make_pipeline(MinMaxScaler((-1.0, 2.0)), "passthrough", StandardScaler(), last)
    search = GridSearchCV(pipe, {"bayesianmlpclassifier__step_size": [0.01]}, cv=2).fit(X, y)
    pipe = search.best_estimator_
    z = pipe[:-1].transform(X)
    behind = np.sign(fgsm(pipe[-1], z, eps=0.1, clip=None) - z)
    for estimator in (pipe, search):
        moved = fgsm(estimator, X, eps=0.1, clip=None)
        np.testing.assert_allclose(moved, X + 0.1 * behind, rtol=0, atol=1e-12)
    attacked = fgsm(pipe, X, y, eps=0.2)
    display = AdversarialCurveDisplay.from_estimator(pipe, X, y, eps=[0.0, 0.2], attacked="true")
    found = [pipe.score(X, y), pipe.score(attacked, y)]
    np.testing.assert_allclose(display.values["accuracy"], found)
    assert found[0] > found[1]
