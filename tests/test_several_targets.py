"""Classifiers of several targets: multilabel y of 0 and 1, and y with a column of labels a target.

Shapes are those of scikit-learn's classifiers. Where numbers must be equal, both sides use the same
draws, so they differ by rounding alone.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _mlp import small
from _posteriors import assert_same_draws
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.utils import get_tags

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.inspection import (
    EntropyHistogramDisplay,
    LearningCurveDisplay,
    PartialEffectDisplay,
    ReliabilityDisplay,
    fgsm,
)
from skbayes_sgmcmc.models.likelihoods.base import Categorical, Categoricals, Likelihood

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

ROUNDING = 1e-12
#: max_steps bounds the descents to the starts, too
SHORT = {"n_chains": 2, "n_draws": 5, "burn_in": 20, "thinning": 1, "max_steps": 25,
         "random_state": 0}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    """Rows, three labels of 0 and 1, and a table of three classes beside two texts."""
    X, species = load_iris(return_X_y=True)
    labels = np.column_stack([species == 0, X[:, 0] > 6.0, X[:, 1] > 3.0]).astype(int)
    table = np.column_stack([species, np.where(X[:, 1] > 3.0, "wide", "narrow")]).astype(object)
    table[:, 0] = species
    return X, labels, table


@pytest.fixture(scope="module")
def multilabel(data):
    return small().fit(data[0], data[1])


@pytest.fixture(scope="module")
def several(data):
    return small().fit(data[0], data[2])


# the density --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2), (2, 4, 4, 1)], ids=str)
def test_density_is_the_product_over_the_targets(sizes):
    rng = np.random.default_rng(0)
    f = torch.from_numpy(rng.standard_normal((3, 7, sum(sizes))) * 3.0)
    codes = np.stack([rng.integers(size, size=7) for size in sizes], axis=1)
    likelihood, own = Categoricals(sizes), torch.empty(3, 0, dtype=f.dtype)
    y = likelihood.targets(codes, f.dtype, "cpu")[None]
    alone = [
        Categorical().log_density(part, y[..., j], own)
        for j, part in enumerate(f.split(sizes, dim=2))
    ]
    found = likelihood.log_density(f, y, own)
    torch.testing.assert_close(found, sum(alone), rtol=0, atol=ROUNDING)
    slope = Likelihood.slope(likelihood, f, y, own)[0]  # by autograd
    torch.testing.assert_close(likelihood.slope(f.clone(), y, own)[0], slope, rtol=0, atol=ROUNDING)


def test_density_of_one_label_is_that_of_two_classes(data):
    """A second target that is constant has one class, which is certain: it adds its prior only."""
    X, labels, _ = data
    two = np.column_stack([labels[:, 0], np.full(len(X), 7)])
    joint, alone = (small(hidden_layer_sizes=()).log_joint(X, y) for y in (two, labels[:, 0]))
    theta = joint.start(0)
    weight, bias = theta[:-3].reshape(4, 3), theta[-3:]
    same = torch.cat([weight[:, :2].reshape(-1), bias[:2]])
    found, expected = joint.log_likelihood(theta), alone.log_likelihood(same)
    torch.testing.assert_close(found, expected, rtol=0, atol=ROUNDING * len(X))


@pytest.mark.statistical
@pytest.mark.slow
def test_targets_without_hidden_layers_are_fitted_as_alone(data):
    """Without a hidden layer, no parameter is shared, so the posterior is that of separate fits.

    800 draws of either have Monte Carlo errors of the mean probability of up to 0.5 / sqrt(ESS),
    with an ESS above 100 in all: four of the standard error of a difference, 0.07, are 0.28 at
    worst. Most probabilities vary far less; 0.03 was measured.
    """
    X, labels, _ = data
    long = partial(
        sk.BayesianMLPClassifier,
        hidden_layer_sizes=(),
        prior_scale="fan_in",
        n_draws=200,
        calibrate=False,
        random_state=0,
    )
    together = long().fit(X, labels).predict_proba(X)
    for j in range(3):
        alone = long().fit(X, labels[:, j]).predict_proba(X)[:, 1]
        assert np.abs(together[:, j] - alone).max() < 0.08


# shapes and values --------------------------------------------------------------------------------


def test_shapes_are_those_of_scikit_learn(data, multilabel, several):
    X, labels, table = data
    ours, theirs = multilabel, MLPClassifier(max_iter=1).fit(X, labels)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    for name in ("predict", "predict_proba"):
        found, expected = getattr(ours, name)(X), getattr(theirs, name)(X)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
    numbers = np.column_stack([table[:, 0], labels[:, 0] + 5]).astype(int)
    ours, theirs = small().fit(X, numbers), RandomForestClassifier(2).fit(X, numbers)
    for found, expected in zip(ours.classes_, theirs.classes_, strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(ours.predict_proba(X), theirs.predict_proba(X), strict=True):
        assert found.shape == expected.shape
    assert ours.predict(X).shape == theirs.predict(X).shape
    assert {row[1] for row in several.predict(X)} <= {"wide", "narrow"}
    assert several.predict(X)[0, 0] in (0, 1, 2)  # a number, not its text


def outputs_of(clf, X):
    """Probabilities (draws, rows, classes) of each target, from the draws alone."""
    z = (X - clf._x_center) / clf._x_scale
    hidden = np.maximum(z @ clf.posterior_.pooled("weight_1")
                        + clf.posterior_.pooled("bias_1")[:, None], 0.0)  # fmt: skip
    f = hidden @ clf.posterior_.pooled("weight_2") + clf.posterior_.pooled("bias_2")[:, None]
    sizes = [2, 2, 2] if clf._multilabel else [len(known) for known in clf.classes_]
    return [softmax(part, axis=2) for part in np.split(f, np.cumsum(sizes)[:-1], axis=2)]


def test_predictions_are_those_of_the_draws(data, multilabel, several):
    X, labels, table = data
    each = outputs_of(several, X)
    for j, p in enumerate(each):
        mean = p.mean(axis=0)
        np.testing.assert_allclose(several.predict_proba(X)[j], mean, atol=1e-9)
        np.testing.assert_allclose(several.predict_log_proba(X)[j], np.log(mean), atol=1e-7)
        np.testing.assert_allclose(several.predict_proba_samples(X)[j], p, atol=1e-9)
        ends = np.quantile(p, [0.1, 0.9], axis=0)
        found = several.predict_proba_interval(X, coverage=0.8)[j]
        np.testing.assert_allclose(np.moveaxis(found, -1, 0), ends, atol=1e-9)
        parts = several.predict_uncertainty(X)
        np.testing.assert_allclose(parts.total[:, j], entropy(mean, axis=1), atol=1e-9)
        within = entropy(p, axis=2).mean(axis=0)
        np.testing.assert_allclose(parts.aleatoric[:, j], within, atol=1e-9)
        chosen = several.predict_set(X, coverage=0.5)[j]
        assert chosen.shape == mean.shape
        assert (np.sum(mean * chosen, axis=1) >= 0.5 - 1e-9).all()
        assert chosen[np.arange(len(X)), mean.argmax(axis=1)].all()
    right = several.predict(X) == table
    assert several.score(X, table) == right.all(axis=1).mean()
    ones = np.stack([p[:, :, 1] for p in outputs_of(multilabel, X)], axis=2)
    mean = ones.mean(axis=0)
    np.testing.assert_allclose(multilabel.predict_proba(X), mean, atol=1e-9)
    np.testing.assert_allclose(multilabel.predict_proba_samples(X), ones, atol=1e-9)
    np.testing.assert_allclose(
        multilabel.decision_function(X), np.log(mean / (1 - mean)), atol=1e-5
    )
    np.testing.assert_array_equal(multilabel.predict(X), (mean > 0.5).astype(int))
    assert multilabel.predict_proba_interval(X).shape == (len(X), 3, 2)
    assert multilabel.predict_uncertainty(X).epistemic.shape == (len(X), 3)
    assert [chosen.shape for chosen in multilabel.predict_set(X)] == [(len(X), 2)] * 3
    assert multilabel.score(X, labels) == (multilabel.predict(X) == labels).all(axis=1).mean()


def test_forms_of_y_do_not_matter(data, multilabel, several):
    pd = pytest.importorskip("pandas")
    X, labels, table = data
    for y in (labels.astype(bool), sp.csr_matrix(labels), labels.tolist(), labels.astype(float)):
        assert_same_draws(small().fit(X, y), multilabel)
        assert multilabel.score(X, y) == multilabel.score(X, labels)
    frame = pd.DataFrame({"species": table[:, 0].astype(int), "sepal": table[:, 1]})
    again = small().fit(X, frame)
    assert_same_draws(again, several)
    np.testing.assert_array_equal(again.predict(X), several.predict(X))
    with pytest.warns(UserWarning, match="column-vector"):
        column = small().fit(X, labels[:, [0]])
    assert_same_draws(column, small().fit(X, labels[:, 0]))
    assert column.predict(X).shape == (len(X),)


def test_weights_of_rows_and_of_classes(data):
    X, labels, _ = data
    given = [{0: 1.0, 1: 3.0}, {0: 0.5}, {}]
    weight = np.where(labels[:, 0] == 1, 3.0, 1.0) * np.where(labels[:, 1] == 0, 0.5, 1.0)
    a = small(class_weight=given).fit(X, labels)
    assert_same_draws(a, small().fit(X, labels, sample_weight=weight))
    from sklearn.utils.class_weight import compute_sample_weight

    balanced = small(class_weight="balanced").fit(X, labels)
    assert_same_draws(
        balanced, small().fit(X, labels, compute_sample_weight("balanced", labels)), atol=1e-9
    )
    with pytest.raises(ValueError, match="class_weight=.* with 3 targets: give a list with a dict"):
        small(class_weight={0: 1.0, 1: 2.0}).fit(X, labels)


@pytest.mark.parametrize(
    "estimator",
    [
        sk.BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), step_size=0.01, **SHORT),
        sk.BayesianModuleClassifier(
            lambda n_features, n_outputs: torch.nn.Linear(n_features, n_outputs), **SHORT
        ),
        sk.SparseBayesianClassifier(**SHORT),
        sk.BayesianMLPClassifier(hidden_layer_sizes=3, calibrate=True, max_steps=60, n_chains=2),
        small(sampler="mclmc", prior_scale="learned", dtype="float32"),
    ],
    ids=["cnn", "module", "sparse", "calibrated", "learned"],
)
def test_every_network_takes_several_targets(data, estimator):
    X, labels, table = data
    tags = get_tags(estimator)
    assert tags.classifier_tags.multi_label
    assert tags.target_tags.multi_output
    clf = clone(estimator).fit(X, labels)
    assert clf.predict_proba(X).shape == (len(X), 3)
    clf = clone(estimator).fit(X, table)
    for p in clf.predict_proba(X):
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-8)
    assert clf.score(X, table) <= 1.0


def test_one_power_calibrates_all_targets(data):
    X, _, table = data
    clf = small(calibrate=True).fit(X, table)
    power = clf.calibration_power_
    assert power != 1.0
    for p, q in zip(clf.predict_proba(X), outputs_of(clf, X), strict=True):
        np.testing.assert_allclose(p, softmax(power * np.log(q.mean(axis=0)), axis=1), atol=1e-7)


def test_a_label_that_is_never_there(data):
    """Its probability falls with the rows; that of another constant column is certain."""
    X, labels, table = data
    never = np.column_stack([labels[:, 0], np.zeros(len(X), int)])
    clf = small(burn_in=1000).fit(X, never)
    assert clf.predict_proba(X).shape == never.shape
    assert not clf.predict(X)[:, 1].any()
    clf = small().fit(X, np.column_stack([table[:, 0], ["same"] * len(X)]).astype(object))
    assert (clf.predict_proba(X)[1] == 1.0).all()
    with pytest.raises(ValueError, match="y has 1 class with positive weight in each column"):
        small().fit(X, np.zeros((len(X), 2)))


# streams and files --------------------------------------------------------------------------------


def test_streams(data):
    X, labels, table = data
    first = small().partial_fit(X[:50], labels[:50])
    np.testing.assert_array_equal(first.classes_, [0, 1, 2])
    for classes in (np.arange(3), [[0, 1]] * 3):
        again = small().partial_fit(X[:50], labels[:50], classes=classes)
        assert_same_draws(again, first)
        again.partial_fit(X[50:], labels[50:], classes=classes)
        assert again.predict(X).shape == labels.shape
    known = [[0, 1, 2], ["narrow", "wide"]]
    clf = small().partial_fit(X[:50], table[:50], classes=known)  # all of the first species
    clf.partial_fit(X[50:], table[50:])
    assert [p.shape[1] for p in clf.predict_proba(X)] == [3, 2]
    for wrong, text in (
        ({"classes": [0, 1, 2]}, "give a list with the classes of each column"),
        ({"classes": [["a", "c"], ["b"]]}, "y has labels .* of target 0 that are not in classes"),
        ({"classes": [[1], ["wide"]]}, "give all classes .at least 2."),
    ):
        with pytest.raises(ValueError, match=text):
            small().partial_fit(X[:50], table[:50], **wrong)
    with pytest.raises(ValueError, match=r"the first call gave \[\[0, 1, 2\]"):
        clf.partial_fit(X, table, classes=[[0, 1], ["narrow", "wide"]])
    with pytest.raises(ValueError, match=r"y of shape \(150,\) is not allowed: give shape"):
        clf.partial_fit(X, table[:, 0])
    with pytest.raises(ValueError, match=r"y of shape \(150, 3\) is not allowed: give shape"):
        clf.partial_fit(X, labels)
    with pytest.raises(ValueError, match=r"y has labels \[5\] of target 0 that are not in classes"):
        clf.partial_fit(X, np.column_stack([np.full(len(X), 5), table[:, 1]]).astype(object))
    with pytest.raises(ValueError, match=r"y of shape \(150, 2\) is not allowed"):
        small().partial_fit(X, labels[:, 0]).partial_fit(X, labels[:, :2])


def test_warm_start_goes_on_with_the_same_targets_only(data):
    X, labels, table = data
    clf = small(warm_start=True, n_draws=3).fit(X, labels)
    state = clf._chain_state
    assert clf.fit(X, labels)._fitted_as == clf._meaning()
    assert clf._chain_state is not state
    clf.fit(X, table)
    assert_same_draws(clf, small(n_draws=3).fit(X, table))  # other classes: a new start


@pytest.mark.parametrize("which", [1, 2], ids=["multilabel", "several"])
def test_exports(data, which, tmp_path):
    X, y = data[0].astype(np.float32), data[which]
    clf = small(calibrate=True).fit(X, y)
    expected = clf.predict_proba(X)
    expected = expected if isinstance(expected, list) else [expected]
    found = sk.to_torch(clf)(torch.from_numpy(X))
    found = found if isinstance(found, tuple) else [found]
    for p, q in zip(found, expected, strict=True):
        np.testing.assert_allclose(p, q, atol=1e-5)
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    sk.to_onnx(clf, tmp_path / "clf.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "clf.onnx")
    for p, q in zip(session.run(None, {"X": X}), expected, strict=True):
        np.testing.assert_allclose(p, q, atol=1e-5)


def test_arviz_has_the_density_of_all_targets(data, multilabel, several):
    pytest.importorskip("arviz")
    X, _, table = data
    found = several.to_arviz(X, table)
    each = outputs_of(several, X)
    codes = [table[:, 0].astype(int), (table[:, 1] == "wide").astype(int)]
    rows = np.arange(len(X))
    log_p = sum(np.log(p[:, rows, code]) for p, code in zip(each, codes, strict=True))
    np.testing.assert_allclose(
        found.log_likelihood["y"].values.reshape(log_p.shape), log_p, atol=1e-7
    )
    assert found.posterior_predictive["y"].shape[-2:] == table.shape
    labels = data[1]
    dense, sparse = (multilabel.to_arviz(X, y).log_likelihood["y"]
                     for y in (labels, sp.csr_matrix(labels)))  # fmt: skip
    np.testing.assert_array_equal(sparse, dense)


# what one target only has -------------------------------------------------------------------------


def test_searches_and_multioutput(data):
    X, labels, _ = data
    search = GridSearchCV(small(), {"hidden_layer_sizes": [3, 4]}, cv=2).fit(X, labels)
    assert search.predict(X).shape == labels.shape
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_linear_classifiers_have_one_target(data):
    """The error names two remedies, and both work."""
    X, labels, _ = data
    for linear in (sk.BayesianLogisticRegression, sk.BayesianOrdinalClassifier):
        with pytest.raises(ValueError, match=r"y with 3 columns .*MultiOutputClassifier"):
            linear(**SHORT).fit(X, labels)
        each = MultiOutputClassifier(linear(**SHORT)).fit(X, labels)
        assert each.predict(X).shape == labels.shape
        assert not get_tags(linear()).target_tags.multi_output


def test_what_takes_one_target_says_so(data, multilabel, several):
    X, labels, _ = data
    for clf in (multilabel, several):
        with pytest.raises(ValueError, match=r"distilling is not allowed with \d targets"):
            clf.distill(X)
        with pytest.raises(ValueError, match=r"an attack is not allowed with \d targets"):
            fgsm(clf, X, eps=0.1)
    with pytest.raises(ValueError, match="distilling is not allowed with 3 targets"):
        sk.DistilledClassifier(small()).fit(X, labels)
    assert small().fit(X, labels[:, 0]).distill(X, n_epochs=1).predict(X).shape == (len(X),)
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="EntropyHistogramDisplay.from_estimator is not allowed"):
        EntropyHistogramDisplay.from_estimator(multilabel, X, X)
    parts = multilabel.predict_uncertainty(X)["total"]
    EntropyHistogramDisplay(parts[:75, 0], parts[75:, 0], kind="total").plot()
    with pytest.raises(ValueError, match=r"y of shape \(150, 3\) .* the diagram has one target"):
        ReliabilityDisplay.from_estimator(multilabel, X, labels)
    p = multilabel.predict_proba(X)
    ReliabilityDisplay.from_predictions(labels[:, 0], np.column_stack([1 - p[:, 0], p[:, 0]]))


def test_displays_of_several_targets(data, multilabel, several):
    pytest.importorskip("matplotlib")
    X, _, table = data
    curve = LearningCurveDisplay.from_estimator(several, X, table, metric=["error", "nll"])
    last = {name: float(values[-1]) for name, values in curve.values.items()}
    assert last["error"] == pytest.approx(1.0 - several.score(X, table))
    codes = [table[:, 0].astype(int), (table[:, 1] == "wide").astype(int)]
    rows = np.arange(len(X))
    nll = -sum(
        np.log(p[rows, code]) for p, code in zip(several.predict_proba(X), codes, strict=True)
    ).mean()
    assert last["nll"] == pytest.approx(nll)
    for clf, label, name in (
        (multilabel, 1, "probability of 1 of target 1"),
        (several, (1, "wide"), "probability of 'wide' of target 1"),
    ):
        display = PartialEffectDisplay.from_estimator(clf, X, features=[0], label=label)
        assert display.target == name
    with pytest.raises(ValueError, match="label=7 is not allowed: give one of 0, 1, 2"):
        PartialEffectDisplay.from_estimator(multilabel, X, features=[0], label=7)


def test_warnings_name_the_target(data):
    """Steps that are far too long describe labels worse than their frequencies do."""
    X, labels, _ = data
    clf = small(step_size=3.0, init="random", sampler="sgld", n_draws=20)
    with pytest.warns(UserWarning, match="training rows of target . is larger than that of the"):
        clf.fit(X, labels)


# labels that are not allowed ----------------------------------------------------------------------


def test_labels_that_are_refused(data, multilabel, several):
    X, labels, table = data
    gap = labels.astype(float)
    gap[3, 1] = np.nan
    with pytest.raises(ValueError, match="y.*row 3"):
        small().fit(X, gap)
    with pytest.raises(ValueError, match="NaN"):
        small().fit(X, sp.csr_matrix(gap))
    with pytest.raises(ValueError, match="continuous"):
        small().fit(X, X[:, :2] + 0.123)
    with pytest.raises(ValueError, match="dim 3|3 dim"):
        small().fit(X, np.zeros((len(X), 2, 2)))
    for y in (labels[:, 0], labels[:, :2]):
        with pytest.raises(ValueError, match=r"give shape \(n_samples, 3\)"):
            multilabel.score(X, y)
    with pytest.raises(ValueError, match=r"y has labels \['long'\] of target 1 that are not in"):
        several.to_arviz(X, np.column_stack([table[:, 0], ["long"] * len(X)]).astype(object))
    assert several.score(X, np.column_stack([table[:, 0], ["long"] * len(X)]).astype(object)) == 0.0
