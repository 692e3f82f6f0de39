"""Starts by descent: every chain on its own rows, with early stopping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from _cases import cases
from _posteriors import assert_same_draws
from sklearn.base import clone

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc._engine.descent import DESCENT, Descent, descend
from skbayes_sgmcmc._engine.target import Target
from skbayes_sgmcmc.models.likelihoods.base import Gaussian
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.priors import Normal

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def problem(n=120, noise=0.1, hidden=(10,), prior_scale=1.0, seed=0):
    """A smooth function of two features as the target of a network, in float64."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = np.sin(X[:, :1]) + noise * rng.standard_normal((n, 1))
    model = NetworkModel(
        MLP((2, *hidden, 1), "tanh"), Gaussian(1, np.array([0.3])), Normal(), prior_scale
    )
    return model, Target(model, model.make_data(X, y, None, torch.float64, "cpu"))


def starts(model, chains, seed=0):
    seeds = np.random.SeedSequence(seed).spawn(chains)
    return np.stack([model.init(np.random.default_rng(s)) for s in seeds]), seeds


def potential(target, theta):
    return target.potential(torch.as_tensor(theta)).numpy()


def test_descents_end_far_below_their_starts():
    """Mean potentials: a random network is about the sd of y off; a good one about the noise."""
    model, target = problem()
    theta, seeds = starts(model, 4)
    found = descend(target, Minibatches(target.data, 100), theta, seeds)
    assert (potential(target, found) < potential(target, theta) - 0.5).all()


def test_each_chain_has_its_own_rows_and_result():
    model, target = problem()
    theta, seeds = starts(model, 3)
    theta[:] = theta[0]  # the same start: what differs is the rows
    found = descend(target, Minibatches(target.data, 100), theta, seeds).numpy()
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert np.abs(found[0] - found[2]).max() > 1e-3


def test_a_chain_descends_alone_as_in_a_group():
    """The same to rounding, although other chains stop earlier or later."""
    model, target = problem()
    theta, seeds = starts(model, 3)
    together = descend(target, Minibatches(target.data, 100), theta, seeds).numpy()
    for c in range(3):
        _, seeds = starts(model, 3)  # seeds remember what was spawned
        alone = descend(
            target, Minibatches(target.data, 100), theta[c : c + 1], seeds[c : c + 1]
        ).numpy()
        np.testing.assert_allclose(alone[0], together[c], rtol=0.0, atol=1e-6)


def test_descents_stop_when_other_rows_get_worse():
    """Pure noise and a flat prior: a long descent overfits, early stopping keeps a better start.

    The loss is the mean squared error of 2,000 new rows, whose least value is the variance, 1. What
    the other rows choose is below the long descent's in the mean of four chains.
    """
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 2)), rng.standard_normal((60, 1))
    new, target_of_new = rng.standard_normal((2000, 2)), rng.standard_normal((2000, 1))
    network = MLP((2, 30, 1), "tanh")
    model = NetworkModel(network, Gaussian(1, np.array([0.3])), Normal(), 10.0)
    target = Target(model, model.make_data(X, y, None, torch.float64, "cpu"))
    theta, seeds = starts(model, 4)

    def error(theta):
        f = network.outputs(torch.as_tensor(theta), torch.from_numpy(new)[None])
        return float(((f.numpy() - target_of_new) ** 2).mean())

    stopped = descend(target, Minibatches(target.data, 100), theta, seeds)
    _, seeds = starts(model, 4)
    from skbayes_sgmcmc._engine import descent

    long = pytest.MonkeyPatch()
    # no other rows, so nothing stops it
    long.setattr(descent, "DESCENT", replace(DESCENT, fewest_rows=1000, few_steps=5000))
    overfitted = descend(target, Minibatches(target.data, 100), theta, seeds)
    long.undo()
    assert error(stopped) < 0.7 * error(overfitted)


@pytest.mark.parametrize("n", [2, DESCENT.fewest_rows - 1])
def test_few_rows_are_not_divided(n):
    model, target = problem(n)
    theta, seeds = starts(model, 2)
    found = descend(target, Minibatches(target.data, 100), theta, seeds)
    assert torch.isfinite(found).all()
    assert (potential(target, found) < potential(target, theta)).all()


@pytest.mark.parametrize("kind", [BayesianMLPRegressor, BayesianMLPClassifier])
def test_weights_of_few_rows_are_copies(kind):
    """A weight of 2 is a second copy, in the start, the noise and the first steps: to rounding.

    15 rows of weight 2 are as many as 30, and no copy of a row stands for other rows.
    """
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((15, 3)), np.arange(15) % 3
    net = kind(
        hidden_layer_sizes=8,
        n_chains=2,
        burn_in=1,
        n_draws=3,
        thinning=1,
        random_state=0,
        dtype="float64",
    )
    weighted = clone(net).fit(X, y, sample_weight=np.full(15, 2.0))
    doubled = clone(net).fit(np.repeat(X, 2, 0), np.repeat(y, 2))
    assert weighted.posterior_.draws.keys() == doubled.posterior_.draws.keys()
    assert_same_draws(weighted, doubled, atol=1e-8)


@pytest.mark.statistical
def test_weights_of_more_rows_have_the_posterior_of_copies():
    """From 20 rows on, starts and minibatches go by row, and draws are equal in distribution.

    Means of eight predictions: within four standard errors, from 16 chains. Their sds: within 25%
    in the mean, where those of weights of one are 1.2 to 1.5 times as large.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = X[:, 0] - X[:, 1] ** 2 / 2 + 0.3 * rng.standard_normal(40)
    net = BayesianMLPRegressor((4,), n_chains=16, random_state=0)

    def found(*data, **given):
        curves = clone(net).fit(*data, **given).predict_mean_samples(X[:8])
        chains = curves.reshape(16, -1, 8)
        return chains.mean(1), chains.std((0, 1)).mean()

    (weighted, sd), (doubled, sd_doubled) = (
        found(X, y, sample_weight=np.full(40, 2.0)),
        found(np.repeat(X, 2, 0), np.repeat(y, 2)),
    )
    error = np.sqrt((weighted.var(0, ddof=1) + doubled.var(0, ddof=1)) / 16)
    assert np.all(np.abs(weighted.mean(0) - doubled.mean(0)) < 4.0 * error)
    assert abs(np.log(sd / sd_doubled)) < np.log(1.25)


def test_rows_of_little_weight_do_not_stop_a_descent():
    """Half of the rows weigh a thousandth and say the opposite: their loss only ever rises.

    The mean squared error of the others is the noise's, 0.01, and little more. Where all rows that
    stop a chain counted alike, it would stay at 0.3, where it was at the first look.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    y = np.sin(X[:, :1]) + 0.1 * rng.standard_normal((200, 1))
    weight = np.where(np.arange(200) % 2, 1.0, 1e-3)
    network = MLP((2, 10, 1), "tanh")
    model = NetworkModel(network, Gaussian(1, np.array([0.3])), Normal(), 1.0)
    opposite = np.where(weight[:, None] == 1.0, y, -3.0 * y)
    target = Target(model, model.make_data(X, opposite, weight, torch.float64, "cpu"))
    theta, seeds = starts(model, 4)
    found = descend(target, Minibatches(target.data, 100), theta, seeds)
    f = network.outputs(torch.as_tensor(found), torch.from_numpy(X)[None])[..., 0].numpy()
    assert np.square(f - y[:, 0])[:, weight == 1.0].mean() < 0.05


def test_steps_are_bounded_and_batches_are_not_larger_than_the_runs():
    model, target = problem()
    theta, seeds = starts(model, 2)
    phi = torch.from_numpy(theta)
    one = Descent(target, Minibatches(target.data, 5), phi.clone(), ChainRandom(seeds))
    assert one.size == 5
    assert one.held.shape == (2, 18) and one.rows.shape == (2, 102)
    assert DESCENT.patience < DESCENT.most_steps
    for held, rows in zip(one.held, one.rows, strict=True):
        assert sorted([*held, *rows]) == list(range(120))


def test_rows_that_are_not_finite_leave_the_start():
    """Losses that are not finite never are the best, so the chain begins where it would have."""
    model, target = problem()
    bad = Data({"x": target.data.fields["x"], "y": target.data.fields["y"] * np.inf}, 120)
    broken = Target(model, bad)
    theta, seeds = starts(model, 2)
    found = descend(broken, Minibatches(bad, 100), theta, seeds)
    np.testing.assert_array_equal(found.numpy(), theta)


def test_a_class_with_one_row_and_weights():
    """The row may be among those that stop the descent; the fit knows all classes anyway."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), np.r_[np.zeros(20), np.ones(19), 2.0]
    clf = BayesianMLPClassifier(
        sampler="mclmc", n_draws=5, burn_in=50, thinning=1, n_chains=2, random_state=0
    ).fit(X, y, sample_weight=rng.uniform(0.5, 2.0, 40))
    assert clf.predict_proba(X).shape == (40, 3)
    assert np.isfinite(clf.predict_proba(X)).all()


@cases("share, held", [(1e-6, 1), (0.15, 9), (0.5, 30), (1 - 1e-9, 59)])
def test_the_share_of_rows_that_stop_a_chain(share, held):
    """At least one row stops it, and at least one remains; every row is in one of the two."""
    model, target = problem(60)
    theta, seeds = starts(model, 2)
    phi = target.from_theta(torch.from_numpy(theta)).clone()
    one = Descent(target, Minibatches(target.data, 5), phi, ChainRandom(seeds), held_share=share)
    assert one.held.shape == (2, held)
    for chain in (0, 1):
        assert sorted([*one.held[chain], *one.rows[chain]]) == list(range(60))
    assert torch.isfinite(one.run()).all()


def test_estimators_say_which_share_of_rows_stops_a_chain(monkeypatch):
    """Chains of MCLMC end their descents earlier or later, and go on with all rows."""
    from skbayes_sgmcmc._engine import descent

    seen, make = [], descent.Descent.__init__

    def spied(self, *args, **options):
        make(self, *args, **options)
        seen.append(self.held.shape[1])

    monkeypatch.setattr(descent.Descent, "__init__", spied)
    X = np.random.default_rng(0).standard_normal((40, 3))
    options = {"sampler": "mclmc", "n_draws": 5, "burn_in": 50, "thinning": 1, "n_chains": 2}
    for share in (0.1, 0.5):
        BayesianMLPClassifier(
            hidden_layer_sizes=3, validation_fraction=share, random_state=0, **options
        ).fit(X, X[:, 0] > 0)
    assert seen == [4, 20]
