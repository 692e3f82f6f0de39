"""Distillation: a student predicts as its teacher, is a plain classifier, and holds no draws."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.special
import torch
from _cases import cases
from _files import by_joblib, by_pickle, by_skops
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import nn

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianModuleClassifier,
    DistilledClassifier,
    PosteriorSamples,
)
from skbayes_sgmcmc._modes import OwnNumbers
from skbayes_sgmcmc.models.networks.distillation import Training, few_draws

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_digits(return_X_y=True)
TEST = np.random.default_rng(0).permutation(len(y)) < 600
TRAIN = ~TEST
#: max_steps bounds the descents to the starts, too
SHORT = {"n_chains": 2, "n_draws": 4, "burn_in": 60, "thinning": 5, "max_steps": 80,
         "random_state": 0}  # fmt: skip
LONGER = SHORT | {"burn_in": 400, "max_steps": 420}
#: a sampler and a prior whose draws differ much even in short chains
FIXED = {"sampler": "psgld", "prior_scale": "fan_in", "dtype": "float64"}
QUICK = {"n_epochs": 2, "random_state": 0}
STEPS = {"n_epochs": 20, "batch_size": 20, "learning_rate": 0.01, "random_state": 0}


@pytest.fixture(scope="module")
def teacher():
    """A short fit; not to be fitted again."""
    clf = BayesianMLPClassifier(hidden_layer_sizes=12, **FIXED, **LONGER)
    return clf.fit(X[:300], y[:300])


@pytest.fixture(scope="module")
def student(teacher):
    return teacher.distill(X[:300], **QUICK)


def batch_norms():
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))


def with_dropout():
    return nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, 10))


def divergence(p, q):
    """Mean Kullback-Leibler divergence of q from p, in nats."""
    return float(np.mean(scipy.special.rel_entr(p, q).sum(axis=1)))


# what it is for -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_student_predicts_as_the_posterior():
    """Held-out digits at T = 1, where single draws are far from their average as it is.

    Seeds 0 to 7: 0.975 to 0.99 of the student's predictions are the teacher's, its divergence is
    at most 0.06 of a draw's, its log loss is 0.07 to 0.12 of the way from the teacher's to a
    draw's, and its mean confidence, which decides its calibration, 0.18 to 0.30.
    """
    clf = BayesianMLPClassifier(
        hidden_layer_sizes=30,
        n_chains=2,
        n_draws=30,
        burn_in=600,
        thinning=20,
        random_state=0,
        calibrate=False,
    ).fit(X[TRAIN], y[TRAIN])
    student = clf.distill(X[TRAIN], n_epochs=60, learning_rate=0.005, random_state=0)
    p, q = clf.predict_proba(X[TEST]), student.predict_proba(X[TEST])
    draws = clf.predict_proba_samples(X[TEST], n_draws=10, random_state=0)
    assert (p.argmax(1) == q.argmax(1)).mean() > 0.965
    assert divergence(p, q) < 0.25 * np.mean([divergence(p, draw) for draw in draws])

    def loss(proba):
        return log_loss(y[TEST], proba)

    def confidence(proba):
        return proba.max(axis=1).mean()

    for score in (loss, confidence):
        of_a_draw = np.mean([score(draw) for draw in draws])
        assert abs(score(q) - score(p)) < 0.5 * abs(of_a_draw - score(p))


@pytest.mark.slow
def test_the_default_training_is_long_enough_for_few_rows():
    """A module that gets rows as they are learns slowly: the divergence is 0.003 nats.

    With 3,000 steps it was 0.07, and 5% of the labels were others than the teacher's.
    """

    def build(n_features, n_outputs):
        return nn.Sequential(nn.Linear(n_features, 16), nn.Tanh(), nn.Linear(16, n_outputs))

    rows, labels = make_moons(800, noise=0.25, random_state=0)
    clf = BayesianModuleClassifier(build, n_chains=2, random_state=0).fit(rows[:600], labels[:600])
    student = clf.distill(rows[:600], random_state=0)
    p, q = clf.predict_proba(rows[600:]), student.predict_proba(rows[600:])
    assert divergence(p, q) < 0.02


def test_targets_have_the_weighted_average_as_expectation():
    """Systematic choice: draw i occurs n w_i times, rounded up or down, on average exactly.

    2000 calls of 3 draws: a frequency has a standard deviation below 0.5 / sqrt(2000) = 0.011.
    """
    weights, rng = np.array([0.05, 0.5, 0.05, 0.1, 0.3]), np.random.default_rng(0)

    def which(chosen, rows):
        return np.eye(5)[chosen][:, None]

    choose = few_draws(which, weights, 3, rng)
    counts = np.concatenate([choose(None) for _ in range(2000)]) * 3
    assert (np.abs(counts - 3 * weights) < 1.0).all()
    np.testing.assert_allclose(counts.mean(axis=0) / 3, weights, atol=0.015)
    every = few_draws(which, np.full(5, 0.2), 100, rng)
    np.testing.assert_allclose(every(None), np.full((1, 5), 0.2))


def test_draws_of_weight_zero_are_no_teachers(teacher):
    """The same student, bit by bit, as without them; another one than of equal weights.

    Their probabilities differ by more than float32 rounds, which is about 1e-7.
    """
    draws = teacher.posterior_.draws
    students = []
    for posterior in (
        PosteriorSamples(draws, np.array([1.0, 1.0, 0.0, 0.0])),
        PosteriorSamples({name: values[:, :2] for name, values in draws.items()}),
        PosteriorSamples(draws),
    ):
        other = copy.copy(teacher)
        other.posterior_ = posterior
        students.append(other.distill(X[:300], **QUICK).predict_proba(X))
    np.testing.assert_array_equal(students[0], students[1])
    assert np.abs(students[0] - students[2]).max() > 1e-4


class Recorder(nn.Module):
    """A constant guess, with the parameters that it had at each step and whether it was trained."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.seen, self.trained = [], []

    def forward(self, x):
        self.seen.append(self.logits.detach().clone())
        self.trained.append(self.training)
        return self.logits.expand(len(x), 2)


@pytest.fixture(scope="module")
def trained():
    """A constant guess of the first class of two after 10 passes over 60 rows, and what it saw."""
    rows, module = np.arange(60.0)[:, None], Recorder()
    shown = []

    def targets(x):
        shown.append(x[:, 0].copy())
        return np.tile([1.0, 0.0], (len(x), 1))

    plan = Training(n_epochs=10, batch_size=6, learning_rate=0.01, perturbation=0.0)
    losses = plan.run(
        module, rows, targets, np.random.default_rng(0), OwnNumbers(0), lambda line: None
    )
    return module, shown, losses


def test_learning_rates_fall_along_half_a_cosine(trained):
    """Under gradients of one sign Adam moves by its rate: 0.01 (1 + cos(pi t / 100)) / 2.

    They fall by half while the guess becomes sure of itself, for which Adam's ratio is up to a
    tenth less.
    """
    module, _, _ = trained
    assert len(module.seen) == 100 and all(module.trained)
    path = torch.stack([*module.seen, module.logits.detach()])[:, 0]
    expected = 0.005 * (1.0 + np.cos(np.pi * np.arange(100) / 100))
    ratio = path.diff().numpy() / expected
    assert ratio.max() < 1.0 + 1e-6 and ratio.min() > 0.8


def test_every_pass_takes_all_rows_in_another_order(trained):
    _, shown, _ = trained
    assert len(shown) == 10
    for rows in shown:
        np.testing.assert_array_equal(np.sort(rows), np.arange(60.0))
    orders = {tuple(rows) for rows in shown}
    assert len(orders) == 10 and tuple(np.arange(60.0)) not in orders


def test_loss_curve_is_the_mean_over_rows(trained):
    """log(1 + exp(z_2 - z_1)) of the guesses of each pass, whose 10 minibatches are equal."""
    module, _, losses = trained
    difference = torch.stack(module.seen).diff(dim=1)[:, 0].view(10, 10)
    np.testing.assert_allclose(losses, torch.log1p(difference.exp()).mean(1), rtol=1e-9)


def test_noise_reaches_the_teacher(teacher, monkeypatch):
    """Teacher and student see the same noisy rows: of the sd asked for, none on constants.

    2 epochs of 300 rows: an sd is known to 1 / sqrt(2 * 600) = 3%; the bound is five times that.
    """
    seen, predict = [], BayesianMLPClassifier._predict_block

    def recorded(self, draws, x):
        seen.append(x)
        return predict(self, draws, x)

    monkeypatch.setattr(BayesianMLPClassifier, "_predict_block", recorded)
    teacher.distill(X[:300], perturbation=100.0, **QUICK)
    sd, spread = X[:300].std(axis=0), np.concatenate(seen).std(axis=0)
    np.testing.assert_array_equal(spread[sd == 0], 0.0)
    np.testing.assert_allclose(spread[sd > 0], 100.0 * sd[sd > 0], rtol=0.15)


# students -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [(), 12, (9, 7), batch_norms, with_dropout])
def test_students_of_other_architectures(teacher, architecture):
    """300 steps from a random start: 95 to 99% agreement was measured, chance has 10%."""
    student = teacher.distill(X[:300], student=architecture, **STEPS)
    agreement = (student.predict(X[:300]) == teacher.predict(X[:300])).mean()
    assert agreement > 0.9
    assert student.loss_curve_.shape == (20,)
    assert student.loss_curve_[-1] < 0.8 * student.loss_curve_[0]
    one = student.predict_proba(X[:1])
    np.testing.assert_allclose(one, student.predict_proba(X[:9])[:1], atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BayesianLogisticRegression(step_size=0.01, init="random", **LONGER),
        pytest.param(
            lambda: BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), **LONGER),
            marks=pytest.mark.slow,
        ),
        lambda: BayesianModuleClassifier(batch_norms, standardize=True, **LONGER),
    ],
    ids=["logistic", "cnn", "norms"],
)
def test_students_of_other_teachers(make):
    clf = make().fit(X[:300], y[:300])
    student = clf.distill(X[:300], **STEPS)
    assert (student.predict(X[:300]) == clf.predict(X[:300])).mean() > 0.85


class Own(nn.Module):
    """A module of a class of its own, with outputs in a mapping."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 3)

    def forward(self, x):
        return {"logits": self.head(torch.tanh(self.body(x)))}


def own():
    return Own()


@pytest.mark.parametrize(
    "module",
    [nn.Sequential(nn.Linear(64, 3)), nn.Linear(64, 3), Own(), Own, own, (own, Own())],
    ids=["sequential", "linear", "instance", "class", "function", "pair"],
)
def test_every_kind_of_module_has_a_student(module):
    """It is a copy of the same architecture, and a pickle of it predicts the same."""
    if isinstance(module, tuple):
        module = (module[0], module[1].state_dict())
    clf = BayesianModuleClassifier(module, **SHORT).fit(X[:100], y[:100] % 3)
    student = clf.distill(X[:100], **QUICK)
    assert student.weights_.keys() == clf._module.state_dict().keys()
    again = by_pickle(student)
    np.testing.assert_array_equal(again.predict_proba(X[:9]), student.predict_proba(X[:9]))


def test_students_take_one_array():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(32, 10)

        def forward(self, a, b):
            return self.head(a + b)

    parts = X[:100, :32], X[:100, 32:]
    clf = BayesianModuleClassifier(Sum(), **SHORT).fit(parts, y[:100])
    with pytest.raises(ValueError, match="distill is not allowed with several arrays"):
        clf.distill(parts)


def test_students_with_batch_norms_need_several_rows(teacher):
    with pytest.raises(ValueError, match="batch_size=1 is not allowed .* batch norm"):
        teacher.distill(X[:20], student=batch_norms, batch_size=1, n_epochs=1)


def test_two_classes_with_names_and_features():
    pytest.importorskip("pandas")
    frame, labels = load_iris(return_X_y=True, as_frame=True)
    labels = np.where(labels == 2, "virginica", "other")
    clf = BayesianMLPClassifier(hidden_layer_sizes=6, **SHORT).fit(frame, labels)
    student = clf.distill(frame, **QUICK)
    assert list(student.feature_names_in_) == list(frame.columns)
    assert set(student.predict(frame)) <= {"other", "virginica"}
    log_p = student.predict_log_proba(frame)
    np.testing.assert_allclose(student.decision_function(frame), log_p[:, 1] - log_p[:, 0])


# a plain classifier -------------------------------------------------------------------------------


def test_fit_is_a_posterior_and_then_distill(teacher, student):
    """Bit for bit; a clone is unfitted, with the parameters, and learns the same again."""
    assert clone(student).get_params()["estimator__n_draws"] == 4
    with pytest.raises(NotFittedError):
        clone(student).predict(X)
    again = clone(student).fit(X[:300], y[:300])
    np.testing.assert_array_equal(again.predict_proba(X), student.predict_proba(X))


@pytest.mark.parametrize("through", [by_pickle, by_joblib, by_skops])
def test_round_trip(teacher, student, through):
    for fitted in (student, teacher.distill(X[:300], student=(5, 4), **QUICK)):
        back = through(fitted)
        np.testing.assert_array_equal(back.predict_proba(X), fitted.predict_proba(X))


def test_file_is_one_network(student):
    weights = sum(values.nbytes for values in student.weights_.values())
    assert not hasattr(student.estimator, "posterior_")
    assert len(pickle.dumps(student)) < weights + 6000


def test_same_seed_same_student_and_no_global_random_numbers(teacher, student):
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    for architecture in (None, with_dropout):
        options = QUICK | {"student": architecture}
        a, b = (teacher.distill(X[:300], **options).predict_proba(X) for _ in range(2))
        other = teacher.distill(X[:300], **(options | {"random_state": 1})).predict_proba(X)
        np.testing.assert_array_equal(a, b)
        assert np.abs(a - other).max() > 1e-3
    assert torch.equal(before[0], torch.random.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_images():
    clf = BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), **SHORT)
    images = X[:300].reshape(-1, 8, 8)
    student = clf.fit(images, y[:300]).distill(images, **QUICK)
    p = student.predict_proba(images)
    np.testing.assert_array_equal(p, student.predict_proba(X[:300]))
    with pytest.raises(ValueError, match=r"images of shape \(1, 4, 16\), but .* \(1, 8, 8\)"):
        student.predict(images.reshape(-1, 4, 16))
    with pytest.raises(ValueError, match="64 features"):
        student.predict(X[:, :50])


def test_verbose_prints_epochs(teacher, capsys):
    teacher.distill(X[:300], verbose=1, **QUICK)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("[DistilledClassifier] epoch 2 of 2, cross-entropy ")


# what is refused ----------------------------------------------------------------------------------


@cases(
    "parameters, message",
    [
        ({"student": 2**31}, "student=2147483648 is not allowed: .* at most 1000000"),
        ({"student": lambda: "no module"}, "student=.* must build a torch.nn.Module"),
        ({"student": lambda: nn.Linear(64, 3)}, r"student=.* has the shape \(2, 3\); give"),
        ({"n_epochs": 10**30}, "n_epochs=1.* is not allowed: .* at most 1000000"),
    ],
)
def test_bad_parameters(teacher, parameters, message):
    with pytest.raises(ValueError, match=message):
        teacher.distill(X[:300], **(QUICK | parameters))


def test_bad_teachers_and_rows(teacher):
    with pytest.raises(ValueError, match=r"estimator=LogisticRegression\(\) is not allowed"):
        DistilledClassifier(LogisticRegression()).fit(X, y)
    with pytest.raises(NotFittedError):
        BayesianMLPClassifier().distill(X)
    with pytest.raises(ValueError, match="64 features"):
        teacher.distill(X[:, :50])
    with pytest.raises(TypeError, match="temperature"):
        teacher.distill(X, temperature=2.0)


def test_predictions_of_students_are_finite_or_an_error():
    """Of the training rows: the last step has no cross-entropy that would say so."""
    rows, labels = np.random.default_rng(14).standard_normal((12, 4)), np.arange(12) % 2
    clf = BayesianMLPClassifier(hidden_layer_sizes=3, n_draws=4, burn_in=5, thinning=1, n_chains=2)
    clf.set_params(random_state=0).fit(rows, labels)
    with pytest.raises(FloatingPointError, match=r"not finite: give a learning_rate.* 1e\+300"):
        clf.distill(rows, n_epochs=1, learning_rate=1e300, random_state=0)


def test_a_student_that_diverges_is_none(teacher):
    unfitted = DistilledClassifier(clone(teacher), learning_rate=1e200, **QUICK)
    with pytest.raises(FloatingPointError, match=r"learning_rate smaller than 1e\+200"):
        unfitted.fit(X[:300], y[:300])
    assert not hasattr(unfitted, "weights_")
