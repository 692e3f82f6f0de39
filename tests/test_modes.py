"""Draws and predictions do not depend on modes and defaults of torch that a caller has set."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Laplace

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.inspection import fgsm

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3)).astype(np.float32)
LABELS = (X[:, 0] + RNG.logistic(size=60) > 0).astype(int)
REAL = X[:, 0] + 0.3 * RNG.standard_normal(60)
COUNTS = RNG.poisson(1.0, (30, 8))
IMAGES = RNG.standard_normal((40, 1, 6, 6)).astype(np.float32)
SHORT = {"max_steps": 16, "n_chains": 2, "random_state": 0}


def laplace(outputs):
    return Laplace(outputs[:, 0], 1.0)


def built():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


torch.manual_seed(0)
TRAINED = built()
OWN = sk.TorchLikelihood(laplace)
FITS = {
    "logistic": (sk.BayesianLogisticRegression(**SHORT), X, LABELS),
    "counts": (sk.BayesianGLMRegressor(likelihood="poisson", **SHORT), X, np.abs(REAL).round()),
    "perceptron": (sk.BayesianMLPRegressor(4, dtype="float64", **SHORT), X, REAL),
    "own likelihood": (sk.BayesianMLPRegressor(4, likelihood=OWN, **SHORT), X, REAL),
    "images": (sk.BayesianCNNClassifier(**SHORT), IMAGES, LABELS[:40]),
    "module": (sk.BayesianModuleClassifier(TRAINED, **SHORT), X, LABELS),
    "built module": (sk.BayesianModuleClassifier(built, **SHORT), X, LABELS),
    "last layer": (
        sk.BayesianModuleClassifier(TRAINED, sample_parameters="last_layer", **SHORT), X, LABELS
    ),
    "sparse": (sk.SparseBayesianRegressor(**SHORT), X, REAL),
    "topics": (sk.LatentDirichletAllocation(2, **SHORT), COUNTS, None),
    "deep topics": (sk.DeepPoissonFactorAnalysis((2, 2), **SHORT), COUNTS, None),
    "components": (sk.BayesianICA(2, **SHORT), X, None),
}  # fmt: skip


@contextmanager
def default_device(device):
    """No tensor on the device "meta" has values, so that one of ours there is an error."""
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


MODES = {
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "device": lambda: default_device("meta"),
    "precision": lambda: default_dtype(torch.bfloat16),
}


def predicted(estimator, X):
    if hasattr(estimator, "predict_proba"):
        return np.hstack([estimator.predict_proba(X), estimator.predict_proba_interval(X)[:, :, 0]])
    if hasattr(estimator, "predict"):
        return np.hstack([*estimator.predict(X, return_std=True), *estimator.predict_interval(X).T])
    return estimator.transform(X)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("name", FITS)
def test_fits_and_predictions(name):
    estimator, X, y = FITS[name]
    expected = predicted(estimator.fit(X, y), X)
    for mode, enter in MODES.items():
        if (name, mode) == ("built module", "precision"):
            continue  # the user's function builds another module then
        with enter():
            assert np.array_equal(predicted(estimator, X), expected), mode
            inside = predicted(estimator.fit(X, y), X)
        assert np.array_equal(inside, expected), mode
        assert np.array_equal(predicted(estimator, X), expected), mode


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("mode", MODES)
def test_densities_students_and_attacks(mode):
    def found(one):
        posterior = sk.sample(lambda theta: -0.5 * (theta**2).sum(1), 2, n_draws=20, random_state=0)
        log_joint = one.log_joint(X, LABELS)
        theta = log_joint.start(random_state=0).requires_grad_()
        student = one.distill(X, n_epochs=2, random_state=0)
        network = sk.BayesianMLPRegressor(4, **SHORT).log_joint(X, REAL)
        return [
            posterior["theta"],
            log_joint(theta).detach().numpy(),
            network(network.start(0)).numpy(),
            network(network.start(0), np.arange(30)).numpy(),
            fgsm(one, X, LABELS, eps=0.1, clip=None),
            student.predict_proba(X),
        ]

    one = sk.BayesianLogisticRegression(**SHORT).fit(X, LABELS)
    expected = found(one)
    with MODES[mode]():
        inside = found(one)
    for there, here in zip(inside, expected, strict=True):
        np.testing.assert_array_equal(there, here)


def test_targets_of_ones_own_likelihood_in_threads():
    """torch's global random numbers, which they are drawn with, are put aside by one at a time."""
    reg = sk.BayesianMLPRegressor(4, likelihood=OWN, **SHORT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sk.SamplingWarning)
        reg.fit(X, REAL)
    seeds = list(range(8)) * 10
    expected = [reg.sample_y(X, 20, random_state=seed) for seed in seeds[:8]]
    before, interval = torch.random.get_rng_state(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda seed: reg.sample_y(X, 20, random_state=seed), seeds)
    finally:
        sys.setswitchinterval(interval)
    assert all(np.array_equal(y, expected[k]) for y, k in zip(found, seeds, strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)
