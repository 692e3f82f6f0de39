"""Draws in half precision and on disk: the same draws, in less memory."""

import errno
import os
import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from _files import by_skops, in_a_file
from sklearn.base import clone
from sklearn.datasets import load_digits

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    PosteriorSamples,
    Storage,
    sample,
)
from skbayes_sgmcmc._draws import storage
from skbayes_sgmcmc._draws.storage import ENCODED, allocate, decode, encode

X, y = load_digits(return_X_y=True)
X, y = X[:300], y[:300]
#: max_steps bounds the descents to the starts, too
SHORT = {
    "hidden_layer_sizes": 20, "n_chains": 2, "n_draws": 20, "burn_in": 100, "thinning": 5,
    "max_steps": 200, "dtype": "float32", "calibrate": False, "random_state": 0,
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


@pytest.fixture(scope="module")
def plain():
    return BayesianMLPClassifier(**SHORT).fit(X, y)


def test_bfloat16_is_torchs():
    """Rounding to the nearest, ties to even, also at the ends of the range."""
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    values *= np.float32(10.0) ** np.arange(-20, 30).repeat(200).astype(np.float32)
    special = [0.0, -0.0, 1.0, 1.00390625, 1.01171875, np.inf, -np.inf, 3.3895314e38]
    values = np.concatenate([values, np.array(special, np.float32)])
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    np.testing.assert_array_equal(decode(encode(values, ENCODED)), expected)
    assert np.isnan(decode(encode(np.array([np.nan], np.float32), ENCODED))).all()


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draws")
    return BayesianMLPClassifier(**SHORT, storage=Storage(dir=folder)).fit(X, y)


def test_draws_on_disk_are_those_in_memory(plain, on_disk):
    for name, values in plain.posterior_.draws.items():
        assert in_a_file(on_disk.posterior_.draws[name])
        assert not in_a_file(values)
        np.testing.assert_array_equal(on_disk.posterior_[name], values)
    np.testing.assert_array_equal(on_disk.predict_proba(X), plain.predict_proba(X))


def test_draws_on_disk_and_processes(on_disk, tmp_path):
    """joblib sends an np.memmap by the name of its file, and these files have none: fits in several
    processes ended with an error after all steps, and so did predictions in processes."""
    fit = {"n_chains": 2, "n_draws": 20, "burn_in": 20, "step_size": 0.1, "random_state": 0}
    clf = BayesianLogisticRegression(**fit).fit(X, y)
    filed = clone(clf).set_params(storage=Storage(dir=tmp_path), n_jobs=2).fit(X, y)
    np.testing.assert_allclose(filed.posterior_["coef"], clf.posterior_["coef"], rtol=1e-6)
    (proba,) = joblib.Parallel(n_jobs=2)([joblib.delayed(on_disk.predict_proba)(X)])
    np.testing.assert_array_equal(proba, on_disk.predict_proba(X))


@pytest.mark.skipif(os.name != "posix", reason="the file's name is removed at once on posix only")
def test_no_file_is_left_behind(on_disk):
    assert list(Path(on_disk.storage.dir).iterdir()) == []


def test_pickling_embeds_draws_on_disk(plain, on_disk):
    loaded = pickle.loads(pickle.dumps(on_disk))
    np.testing.assert_array_equal(loaded.predict_proba(X), plain.predict_proba(X))


def test_skops_files_embed_draws_on_disk(plain, on_disk):
    loaded = by_skops(on_disk)
    assert loaded.storage.dir == str(on_disk.storage.dir)
    np.testing.assert_array_equal(loaded.predict_proba(X), plain.predict_proba(X))


def test_bfloat16_draws_predict_nearly_the_same_from_half_the_bytes(plain):
    """Weights are rounded by at most 2^-9 of themselves: logits of a few by 1e-2 at the most."""
    half = BayesianMLPClassifier(**SHORT, storage=Storage("bfloat16")).fit(X, y)
    for name, values in plain.posterior_.draws.items():
        assert half.posterior_.draws[name].nbytes == values.nbytes // 2
        np.testing.assert_allclose(half.posterior_[name], values, rtol=2.0**-8)
    assert 0.0 < np.abs(half.predict_proba(X) - plain.predict_proba(X)).max() < 0.02
    assert len(pickle.dumps(half)) < 0.6 * len(pickle.dumps(plain))
    assert half.sample_posterior(3)["weight_1"].dtype == np.float32
    assert half.posterior_.mean("bias_1").shape == (20,)


def test_a_failed_allocation_keeps_no_file_open(monkeypatch, tmp_path):
    def full(handle, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "posix_fallocate", full, raising=False)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="has no room"):
            allocate((10, 10), "float64", tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_is_said_before_any_step(monkeypatch, tmp_path):
    def full(handle, offset, size):
        assert list(tmp_path.iterdir()) == []  # a kill now would leave no file, either
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "posix_fallocate", full, raising=False)
    clf = BayesianMLPClassifier(**SHORT, storage=Storage(dir=tmp_path))
    with pytest.raises(OSError, match=r"storage\.dir=.* has no room for the draws .*fewer draws"):
        clf.fit(X, y)
    assert not hasattr(clf, "posterior_") and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("storage", ["bfloat16", Storage])
def test_a_storage_is_an_object(storage):
    with pytest.raises(ValueError, match=r"storage=.* is not allowed: give None or Storage\("):
        BayesianMLPClassifier(**SHORT, storage=storage).fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_has_a_storage_too(classes, tmp_path):
    # bfloat16 rounds by at most 1/512, of intercepts that sum to zero twice (the coordinates that
    # they are made of, and they); bits taken for numbers would be zeros, or thousands
    rows = y < classes
    settings = {"n_chains": 2, "n_draws": 20, "burn_in": 20, "random_state": 0}
    plain = BayesianLogisticRegression(**settings).fit(X[rows], y[rows])
    on_disk = BayesianLogisticRegression(**settings, storage=Storage(dir=tmp_path))
    on_disk.fit(X[rows], y[rows])
    half = BayesianLogisticRegression(**settings, storage=Storage("bfloat16")).fit(X[rows], y[rows])
    for name in ("coef", "intercept"):
        np.testing.assert_array_equal(on_disk.posterior_[name], plain.posterior_[name])
        largest = np.abs(plain.posterior_[name]).max()
        off = np.abs(half.posterior_[name] - plain.posterior_[name])
        assert 0.0 < off.max() < largest / 100


def test_sample_has_a_storage_too(tmp_path):
    def draws(storage):
        return sample(
            lambda theta: -0.5 * (theta**2).sum(1), 3, n_draws=10, burn_in=10, random_state=0,
            storage=storage,
        )["theta"]  # fmt: skip

    np.testing.assert_array_equal(draws(Storage(dir=tmp_path)), draws(None))
    np.testing.assert_allclose(draws(Storage("bfloat16")), draws(None), rtol=1 / 256)


def test_arrays_have_the_shape_and_kind_that_were_asked_for(tmp_path):
    for folder in (None, tmp_path):
        assert allocate((2, 3, 4), "float64", folder).dtype == np.float64
        assert allocate((2, 3, 4), "bfloat16", folder).shape == (2, 3, 4)


def test_some_draws_of_a_run_that_goes_on():
    """Chains that do not lie one behind another, as while they fill, are read like any others."""
    room = np.arange(2.0 * 10 * 3).reshape(2, 10, 3)
    part = PosteriorSamples({"theta": room[:, :4]})
    whole = PosteriorSamples({"theta": room[:, :4].copy()})
    for chosen in (slice(None), slice(3, 6), slice(7, None, -2), [0, 5, 5], np.arange(8) % 2 == 1):
        np.testing.assert_array_equal(part.select("theta", chosen), whole.select("theta", chosen))
    assert np.shares_memory(whole.select("theta", slice(3, 6)), whole.draws["theta"])


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("", "give the name of a folder, or None"),  # would be the working directory
        (3, "give the name of a folder, or None"),
        ("no/such/folder", "there is no such folder"),
        pytest.param(
            "/proc",
            "no file can be made there",
            marks=pytest.mark.skipif(not os.path.isdir("/proc"), reason="Linux only"),
        ),
    ],
)
def test_folders_that_take_no_files_are_refused_before_the_fit(
    tmp_path, monkeypatch, folder, message
):
    """By name, and without a trace in the working directory."""
    monkeypatch.chdir(tmp_path)
    clf = BayesianMLPClassifier(**SHORT, storage=Storage(dir=folder))
    with pytest.raises(ValueError, match=rf"storage\.dir={folder!r} is not allowed: {message}"):
        clf.fit(X, y)
    assert list(tmp_path.iterdir()) == []
