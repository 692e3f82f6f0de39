"""Averages over draws of networks that are calibrated with rows that shorter runs have not seen."""

from __future__ import annotations

import copy

import joblib
import numpy as np
import pytest
from _cases import cases
from _posteriors import assert_same_draws
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, train_test_split

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    SamplingError,
    SamplingWarning,
    to_torch,
)
from skbayes_sgmcmc.estimators._calibration import (
    CalibratedClassifier,
    best_power,
    with_one_more_draw,
)
from skbayes_sgmcmc.estimators._network import NetworkClassifier

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore:the chains:skbayes_sgmcmc.SamplingWarning")

#: max_steps bounds the descents to the starts, too
SHORT = {"n_draws": 10, "burn_in": 200, "thinning": 5, "n_chains": 2, "max_steps": 250,
         "random_state": 0}  # fmt: skip


def rows(n=120, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, np.argmax(X[:, :classes] + 0.5 * rng.standard_normal((n, classes)), axis=1)


def fitted(calibrate=True, **options):

    X, y = rows()
    return BayesianMLPClassifier(calibrate=calibrate, **SHORT | options).fit(X, y)


def power_of(proba, codes, weight):
    """The power of one target."""
    return best_power([proba], [codes], weight)


@pytest.fixture(scope="module")
def usual():
    """Not to be changed."""
    return fitted()


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    return BayesianMLPClassifier(random_state=0).fit(X, y), X_test, y_test


# the power ----------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("power", [0.7, 1.0, 1.8])
def test_the_power_that_was_lost_is_found(power):
    """Labels drawn from p, which is seen as p^(1 / power): 40,000 rows say it to 3%.

    One row says so little about the logarithm of the power (its sd is about 1.5) that the prior,
    whose sd is 0.25, keeps most of them within 0.1 of 0, and those that are very wrong within 0.5.
    """
    rng = np.random.default_rng(1)
    logits = 2.0 * rng.standard_normal((40_000, 4))
    p = softmax(logits, axis=1)
    codes = (rng.random((len(p), 1)) > p.cumsum(1)[:, :-1]).sum(1)
    seen, one = softmax(logits / power, axis=1), np.ones(len(p))
    assert power_of(seen, codes, one) == pytest.approx(power, rel=0.03)
    single = [power_of(seen[[i]], codes[[i]], one[:1]) for i in range(100)]
    assert np.median(np.abs(np.log(single))) < 0.1
    assert np.abs(np.log(single)).max() < 0.5


def test_rows_count_by_their_weights_and_zeros_are_no_error():
    """A weight of two is a row twice; a class with probability zero has a finite logarithm."""
    p = np.array([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [1.0, 0.0]])
    codes = np.array([0, 1, 1, 0])
    twice = power_of(np.repeat(p, 2, axis=0), np.repeat(codes, 2), np.ones(8))
    assert power_of(p, codes, np.full(4, 2.0)) == pytest.approx(twice, rel=1e-6)
    assert np.isfinite(power_of(p, np.array([0, 1, 1, 1]), np.ones(4)))


@pytest.mark.statistical
def test_one_row_whose_class_no_draw_thought_possible_does_not_outweigh_the_others():
    """Probability zero is "below 1 / n" after n draws: 360 rows keep their power to a tenth.

    Its logarithm would be -708, as much as hundreds of rows, and bring 1.8 to below 1: one of 20
    fits of digits had an expected calibration error of .12 instead of .02.
    """
    rng = np.random.default_rng(2)
    p = softmax(2.0 * rng.standard_normal((360, 10)), axis=1)
    codes = (rng.random((len(p), 1)) > p.cumsum(1)[:, :-1]).sum(1)
    seen = softmax(np.log(p) / 1.8, axis=1)
    known = power_of(with_one_more_draw(seen, 200), codes, np.ones(360))
    assert known == pytest.approx(power_of(seen, codes, np.ones(360)), rel=0.02)
    seen[0], codes[0] = np.eye(10)[3], 4
    assert power_of(seen, codes, np.ones(360)) < 1.0
    assert power_of(with_one_more_draw(seen, 200), codes, np.ones(360)) == pytest.approx(
        known, rel=0.1
    )


# fits ---------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_digits_are_calibrated_by_default(digits):
    """The average is too unsure; calibrated, its log loss on new rows is 10% lower or more.

    At six seeds the fall was 25 to 40%.
    """
    clf, X, y = digits
    before = log_loss(y, clf.predict_proba_samples(X).mean(0))
    assert clf.calibration_power_ > 1.1
    assert log_loss(y, clf.predict_proba(X)) < 0.9 * before


def test_probabilities_are_the_power_of_the_average_over_the_draws(digits):
    clf, X, _ = digits
    mean = clf.predict_proba_samples(X).astype(np.float64).mean(0)
    wanted = softmax(clf.calibration_power_ * np.log(mean), axis=1)
    np.testing.assert_allclose(clf.predict_proba(X), wanted, rtol=1e-4, atol=1e-12)
    assert np.array_equal(clf.predict(X), clf.classes_[mean.argmax(1)])
    assert clf.predict_uncertainty(X).epistemic.min() > -1e-6  # of the draws as they are


def test_draws_are_those_of_a_fit_that_is_not_calibrated(usual):
    other = fitted(False)
    assert usual.calibration_power_ != 1.0 and other.calibration_power_ == 1.0
    assert_same_draws(usual, other)
    for seed in (lambda: 3, lambda: np.random.RandomState(3)):
        few = {"burn_in": 20, "max_steps": 70}
        one, again = (fitted(True, random_state=seed(), **few) for _ in range(2))
        assert one.calibration_power_ == again.calibration_power_ != 1.0


def test_a_shorter_run_that_is_certain_of_a_wrong_class_moves_a_fit_s_power_little(
    usual, monkeypatch
):
    """One row of 24 in each of three runs takes it from 1.4 to 1.0; at its word, to 0.14."""
    mean = NetworkClassifier._mean_proba

    def certain(clf, x):
        proba = mean(clf, x)
        worst = proba.min(axis=1).argmin()
        proba[worst] = proba[worst].argmin() == np.arange(proba.shape[1])
        return proba

    monkeypatch.setattr(NetworkClassifier, "_mean_proba", certain)
    assert fitted().calibration_power_ > 0.6 * usual.calibration_power_


@cases(
    "n, options, calibrates",
    [
        (50, {"step_size": 0.001}, False),
        (50, {"temperature": 0.5}, False),
        (49, {}, False),
        (50, {}, True),
    ],
)
def test_auto_leaves_chosen_steps_and_temperatures_and_few_rows_as_they_are(n, options, calibrates):
    """49 rows hold out too few; and who gives a temperature has decided on the sharpness."""
    clf = BayesianMLPClassifier(**SHORT | {"burn_in": 20} | options).fit(*rows(n))
    assert (clf.calibration_power_ != 1.0) == calibrates


def test_memory_maps_are_calibrated_as_arrays(tmp_path):
    """joblib makes them of what its workers share: a vote with n_jobs=2 is that with n_jobs=1."""
    X, y = rows(60)
    np.save(tmp_path / "X.npy", X)
    clf = BayesianMLPClassifier(**SHORT | {"burn_in": 20})
    power = copy.deepcopy(clf).fit(X, y).calibration_power_
    clf.fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y)
    assert clf.calibration_power_ == power != 1.0


@pytest.mark.slow
@pytest.mark.statistical
def test_wine_is_calibrated_by_default():
    """178 rows, which are too few to be as sure as is right: a lower log loss on new rows.

    Of five splits by 0.02, from .07 to .05, with powers from 1.4 to 1.5; scikit-learn's
    MLPClassifier has .054.
    """
    X, y = load_wine(return_X_y=True)
    before, after = [], []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        clf = BayesianMLPClassifier(max_steps=1500, random_state=0).fit(X[train], y[train])
        assert clf.calibration_power_ > 1.1
        after.append(log_loss(y[test], clf.predict_proba(X[test])))
        clf.calibration_power_ = 1.0
        before.append(log_loss(y[test], clf.predict_proba(X[test])))
    assert np.mean(after) < 0.9 * np.mean(before)


@cases("n_steps, runs", [(100, [50]), (1500, [750]), (3000, [750, 750]), (8000, [1000] * 3)])
def test_all_runs_together_take_half_of_the_steps_at_most(n_steps, runs, monkeypatch):
    """Fewer runs rather than shorter ones, also of fits whose lengths are given.

    The steps themselves are of no account: here they are a cheap sampler's, or none.
    """
    taken = []

    def counted(self, task, rows, seed, n_steps):
        taken.append(n_steps)
        return np.full((len(rows), 3), 1 / 3)

    monkeypatch.setattr(CalibratedClassifier, "_given_others", counted)
    cheap = {"sampler": "sgld", "step_size": 1e-4, "n_chains": 1, "hidden_layer_sizes": 2}
    fitted(burn_in=n_steps - 50, max_steps=n_steps, **cheap)
    assert taken == runs


def test_shorter_runs_begin_where_the_fit_does():
    """Also if every chain has a start of its own."""
    options = {"hidden_layer_sizes": 2, "n_chains": 3, "n_draws": 2}
    n_parameters = 4 * 2 + 2 + 2 * 3 + 3
    for init in (np.zeros(n_parameters), np.zeros((1, n_parameters)), np.zeros((3, n_parameters))):
        assert fitted(init=init, **options).calibration_power_ != 1.0


def held_out(X, codes, seed=0):
    return CalibratedClassifier._held_out(None, X, codes, np.random.RandomState(seed))


def test_every_class_is_known_to_shorter_runs():
    """The only row of a class, and the two of another, are never all held out."""
    codes = np.array([0] * 50 + [1] * 40 + [2, 3, 3])
    for seed in range(20):
        parts = held_out(np.arange(len(codes))[:, None], codes, seed)
        assert len(parts) == 3 and len({*np.concatenate(parts).tolist()}) == 3 * 17
        for part in parts:
            assert {*np.delete(codes, part).tolist()} == {0, 1, 2, 3}
    X, _ = rows(len(codes))
    clf = BayesianMLPClassifier(calibrate=True, **SHORT).fit(X, codes)
    assert clf.predict_proba(X).shape == (len(codes), 4)


def test_weights_images_and_two_rows():
    X, y = rows()
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    clf = BayesianMLPClassifier(calibrate=True, class_weight="balanced", **SHORT)
    assert clf.fit(X, y, sample_weight=weight).calibration_power_ != 1.0
    images = np.random.default_rng(1).random((60, 8, 8))
    labels = (images[:, :4].mean((1, 2)) > 0.5).astype(int)
    cnn = BayesianCNNClassifier(conv_channels=(2,), hidden_layer_sizes=(), calibrate=True, **SHORT)
    assert cnn.fit(images, labels).calibration_power_ != 1.0
    few = BayesianMLPClassifier(calibrate=True, **SHORT | {"burn_in": 20}).fit(X[:2], [0, 1])
    assert few.calibration_power_ == 1.0


def test_shorter_runs_have_not_seen_the_rows_that_they_predict(monkeypatch):
    """Together, the rows of a run and those that it predicts are all rows, each once."""
    seen, predicted = [], []
    run, mean = NetworkClassifier._run, NetworkClassifier._mean_proba

    def run_of(clf, task):
        seen.append(task.rows.x)
        run(clf, task)

    def mean_proba(clf, x):
        predicted.append(x)
        return mean(clf, x)

    monkeypatch.setattr(NetworkClassifier, "_run", run_of)
    monkeypatch.setattr(NetworkClassifier, "_mean_proba", mean_proba)
    fitted()
    everything = np.unique(seen.pop(0), axis=0)
    assert len(seen) == len(predicted) > 0
    for known, new in zip(seen, predicted, strict=True):
        both = np.concatenate([known, new])
        assert len(both) == len(everything)
        assert np.array_equal(np.unique(both, axis=0), everything)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_copies_of_a_row_are_held_out_together(kind):
    """A run that knew one of them would be too sure of the others, as after oversampling."""
    X, y = rows(60)
    X, y = np.tile(X, (4, 1)), np.tile(y, 4)
    for part in held_out(kind(X), y):
        assert len(part) == 4 * 11 and (np.bincount(part % 60, minlength=60) % 4 == 0).all()


def test_equal_rows_with_different_labels_are_no_copies():
    """Rows of a few categories say much of each other, and so do those of the fit."""
    X, y = np.repeat(np.eye(2), 50, axis=0), np.arange(100) % 2
    assert [len(part) for part in held_out(X, y)] == [19] * 3


@pytest.mark.statistical
def test_held_out_rows_count_by_their_weights():
    """Two of five labels are wrong, and have a weight of a thousandth.

    The power stays above 0.85 (1.04 to 1.5 at six seeds). Counted as whole rows, they would say
    that the network is far too sure: 0.58 to 0.75.
    """
    rng = np.random.default_rng(0)
    X, y = rows(300)
    wrong = rng.random(300) < 0.4
    weight = np.where(wrong, 1e-3, 1.0)
    y[wrong] = (y[wrong] + 1) % 3
    clf = BayesianMLPClassifier(calibrate=True, **SHORT).fit(X, y, sample_weight=weight)
    assert clf.calibration_power_ > 0.85


# what follows it ----------------------------------------------------------------------------------


def test_exports_students_and_files_have_the_power(usual, tmp_path):
    """Log probabilities of a student and of its torch module differ by its own power alone."""
    import torch

    clf, X = copy.copy(usual), rows()[0]
    clf.calibration_power_ = 2.0
    wanted = clf.predict_proba(X)
    with torch.no_grad():
        found = to_torch(clf)(torch.from_numpy(X).float()).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    student = clf.distill(X, n_epochs=2, random_state=0)
    with torch.no_grad():
        found = to_torch(student)(torch.from_numpy(X).float()).numpy()
    np.testing.assert_allclose(found, student.predict_proba(X), atol=1e-5)
    clf.calibration_power_ = 1.0
    plain = clf.distill(X, n_epochs=2, random_state=0).predict_log_proba(X)
    np.testing.assert_allclose(
        student.predict_log_proba(X), log_softmax(2.0 * plain, axis=1), atol=1e-8
    )
    clf.calibration_power_ = 2.0
    joblib.dump(clf, tmp_path / "clf.joblib")
    assert np.array_equal(joblib.load(tmp_path / "clf.joblib").predict_proba(X), wanted)


def test_a_stream_is_not_calibrated(usual):
    """Its rows are gone; a power of other rows would be wrong in silence."""
    assert copy.deepcopy(usual).partial_fit(*rows()).calibration_power_ == 1.0


def test_shorter_runs_that_diverge_are_warned_of(monkeypatch):
    """The posterior of the fit itself is fine, and stays."""

    def diverges(*args):
        raise SamplingError("diverged")

    monkeypatch.setattr(CalibratedClassifier, "_given_others", diverges)
    with pytest.warns(SamplingWarning, match="not calibrated.*give calibrate=False"):
        clf = fitted()
    assert clf.calibration_power_ == 1.0 and clf.predict_proba(rows()[0]).shape == (120, 3)


def test_shorter_runs_say_nothing(recwarn, capsys):
    """Their chains are too short to mix, which is of no account: no warning, line or file."""
    clf = fitted(verbose=1, burn_in=500, max_steps=550, hidden_layer_sizes=(4,))
    lines = capsys.readouterr().out
    assert "100%" in lines and lines.count("step 550 of 550") == 1
    texts = [str(w.message) for w in recwarn]
    assert not [text for text in texts if text not in clf._fit_warnings]
