"""Runs of networks that end as soon as their draws are settled (``_engine/settled.py``)."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_blobs

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor, SamplingWarning
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc._engine import run
from skbayes_sgmcmc._engine.settled import settled
from skbayes_sgmcmc._engine.target import Target
from skbayes_sgmcmc.models import Model
from skbayes_sgmcmc.samplers import MCLMC

#: two parts: 1,500 steps, and as many again
TWO_PARTS = {"hidden_layer_sizes": (4,), "n_chains": 2, "max_steps": 3000, "calibrate": False}
#: so few draws that those of one half are always far from those of the other
NEVER_SETTLED = {**TWO_PARTS, "n_draws": 6}


def blobs(n=150):
    return make_blobs(n, centers=2, cluster_std=3.0, random_state=0)


def test_a_run_ends_when_nothing_is_left_to_learn():
    """Two clouds that overlap: the draws of the first quarter say what those of all steps would.

    In 12 of 12 seeds; one of five may need more, since rounding changes the draws.
    """
    lengths = []
    for seed in range(5):
        clf = BayesianMLPClassifier((8,), calibrate=False, random_state=seed).fit(*blobs())
        assert clf.posterior_.n_draws == 100
        lengths.append(clf.n_steps_)
    assert 1400 <= sorted(lengths)[3] <= 1500


def test_runs_with_minibatches_take_at_least_half_of_their_steps():
    """On tables of many rows, a quarter of the steps lost up to 0.03 of log loss."""
    clf = BayesianMLPClassifier((8,), sampler="mclmc", batch_size=50, random_state=0)
    clf.set_params(n_chains=2, calibrate=False).fit(*blobs())
    assert clf.n_steps_ >= 2900


def test_chains_that_still_learn_take_all_their_steps():
    """Of 5,875 steps: parts end at whole draws."""
    X, y = load_wine(return_X_y=True)
    clf = BayesianMLPClassifier(n_draws=6, n_chains=1, random_state=0).fit(X, y)
    assert 5500 <= clf.n_steps_ <= 6000


@pytest.mark.parametrize(
    "given",
    [
        {"burn_in": 1500},
        {"thinning": 15},
        {"max_steps": 2900},  # a first part would be shorter than the shortest run
    ],
)
def test_lengths_that_are_given_are_kept(given):
    clf = BayesianMLPClassifier(**{**TWO_PARTS, **given}, random_state=0).fit(*blobs(20))
    assert 2900 <= clf.n_steps_ <= 3000


def test_noise_that_depends_on_the_row_takes_all_steps():
    X, y = blobs(20)
    reg = BayesianMLPRegressor(hidden_layer_sizes=(4,), n_chains=2, max_steps=3000, random_state=0)
    assert reg.fit(X, y).n_steps_ == 3000


def groups(n=150):
    """Means of twenty groups, of which the rows have the numbers."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.integers(0, 20, n), rng.uniform(-1, 1, n)].astype(float)
    return X, rng.standard_normal(20)[X[:, 0].astype(int)] + 0.3 * X[:, 1]


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_a_run_goes_on_if_its_potential_still_falls():
    """By 6 of its sds while the first draws are kept; those of the longer run are nats of a row
    better.
    """
    X, y = groups()
    short = BayesianMLPRegressor((8, 8), n_chains=2, max_steps=6000, random_state=0)
    with pytest.warns(SamplingWarning, match="Give burn_in=6000 or more and a larger max_steps"):
        short.fit(X, y)
    longer = clone(short).set_params(max_steps=None).fit(X, y)
    assert [short.n_steps_, longer.n_steps_] == [6000, 24_000]
    gain = longer.predict_log_density(X, y) - short.predict_log_density(X, y)
    assert gain.mean() > 0.2


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(
    ("given", "n_steps"),
    [
        ({}, 24_000),
        ({"max_steps": 18_500}, 18_000),
        ({"max_steps": 11_500}, 6000),
        ({"max_steps": 1000}, 1000),
        ({"burn_in": 1000, "thinning": 1}, 1100),
        ({"thinning": 1}, 3100),
        ({"n_draws": 10}, 6000),  # of which the warning says nothing either
        ({"step_size": 1e-4}, 150),
    ],
)
def test_automatic_lengths_go_on_within_max_steps(monkeypatch, given, n_steps):
    monkeypatch.setattr(run, "fall_of_potential", lambda *rest: 3.0)
    reg = BayesianMLPRegressor((2,), n_chains=1, random_state=0, **given).fit(*groups(30))
    assert reg.n_steps_ == n_steps
    assert reg.posterior_.n_draws == given.get("n_draws", 100)


@pytest.mark.usefixtures("threads")
def test_the_draws_of_all_workers_decide(monkeypatch):
    seen = []
    monkeypatch.setattr(run, "settled", lambda target, draws, level: seen.append(len(draws)))
    given = NEVER_SETTLED | {"n_jobs": 2, "init": "random"}  # no descent, which takes longer
    clf = BayesianMLPClassifier(**given, random_state=0).fit(*blobs())
    assert seen == [2]
    assert clf.n_steps_ > 2500  # None is not True


def test_a_run_that_is_interrupted_in_a_later_part_goes_on_there(interrupt_after, tmp_path):
    X, y = load_iris(return_X_y=True)
    clf = BayesianMLPClassifier(**NEVER_SETTLED, random_state=0)
    whole = clf.fit(X, y).posterior_
    clf.set_params(checkpoint=tmp_path / "fit.npz")
    message = interrupt_after(0.8, clf, X, y)
    assert 2250 < int(message.split("at step ")[1].split()[0]) <= 3000
    again = clf.fit(X, y).posterior_
    for name, draws in whole.draws.items():
        np.testing.assert_array_equal(draws, again.draws[name])


def test_chains_that_diverge_in_a_part_are_named_and_not_in_the_next():
    X, y = load_iris(return_X_y=True)
    # the product of three weights overflows
    sizes = [(4, 4), (4,), (4, 4), (4,), (4, 3), (3,)]
    init = np.full((3, sum(map(math.prod, sizes))), 0.1)
    init[1] = 1e13
    given = {"hidden_layer_sizes": (4, 4), "n_chains": 3, "init": init}
    clf = BayesianMLPClassifier(**{**NEVER_SETTLED, **given}, random_state=0)
    with pytest.warns(SamplingWarning, match=r"1 of 3 chains diverged \(chain 1 by step \d+ of"):
        clf.fit(X, y)
    assert clf.posterior_.n_chains == 2
    assert clf.n_steps_ > 2500


def test_chains_keep_their_names_in_later_parts(monkeypatch):
    """The second chain leaves the finite numbers after 100 steps, and then, which was the third,
    after 2,000.
    """
    finish, taken = MCLMC.finish, []

    def breaking(self, theta, *rest):
        finish(self, theta, *rest)
        taken.append(theta)
        if len(taken) in (100, 2000):
            theta[1] = math.nan

    monkeypatch.setattr(MCLMC, "finish", breaking)
    given = {**NEVER_SETTLED, "n_chains": 4, "sampler": "mclmc", "compiled": False}
    with pytest.warns(SamplingWarning, match=r"2 of 4 chains diverged \(chain 1 by .*, chain 2 by"):
        clf = BayesianMLPClassifier(**given, random_state=0).fit(*blobs(20))
    assert clf.posterior_.n_chains == 2


class Means(Model):
    """Rows with the density N(y; theta, 1): the log likelihood of a draw is known."""

    shapes = MappingProxyType({"mean": (1,)})

    def log_prior(self, theta):
        return -0.5 * (theta**2).sum(1)

    def log_lik(self, theta, batch):
        return -0.5 * (batch.fields["y"][None] - theta) ** 2


class Wide(Means):
    shapes = MappingProxyType({"mean": (1000,)})

    def log_lik(self, theta, batch):
        return super().log_lik(theta[:, :1], batch)


def is_settled(draws, y, weight=None):
    weight = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    data = Data({"y": torch.tensor(y, dtype=torch.float64)}, len(y), weight)
    return settled(Target(Means(), data), np.asarray(draws, dtype=float)[..., None], 1.0)


def draws_of(first, second, sd=1.0):
    """Draws (4 chains, 100) with these means of the halves, and this sd."""
    draws = np.random.default_rng(0).standard_normal((4, 2, 50))
    draws -= draws.mean((0, 2), keepdims=True)
    draws *= sd / draws.std((0, 2), keepdims=True)
    return (draws + np.array([first, second])[:, None]).reshape(4, 100)


#: rows around zero, at which means that move gain as much as they lose
AROUND = np.linspace(-2.0, 2.0, 50)


@pytest.mark.parametrize(("move", "enough"), [(0.0, True), (0.02, True), (0.04, False)])
def test_draws_are_settled_if_they_do_not_move(move, enough):
    """A row at y has the log likelihood y theta, but for theta's square, with the sd |y| 0.15: the
    median row moves by 0, 0.13 and 0.27 of its sds.
    """
    assert is_settled(draws_of(-move / 2, move / 2, sd=0.15), AROUND) == enough


@pytest.mark.parametrize(
    ("gain", "enough"), [(-0.05, True), (0.0, True), (0.004, True), (0.009, False)]
)
def test_draws_are_settled_if_rows_gain_nothing(gain, enough):
    """All rows are at 10: a mean that moves by g / 10 gains g. A loss is no reason to go on."""
    assert is_settled(draws_of(0.0, gain / 10.0), np.full(50, 10.0)) == enough


def test_rows_of_no_weight_gain_nothing():
    """Half of the rows gain .009, half lose it."""
    draws, y = draws_of(0.0, 9e-4), np.repeat([-10.0, 10.0], 25)
    assert is_settled(draws, y)
    assert is_settled(draws, y, np.repeat([1.0, 1e-6], 25))
    assert not is_settled(draws, y, np.repeat([1e-6, 1.0], 25))


def test_a_potential_that_falls_is_not_settled():
    """A thousand parameters far from the prior's typical set: no row tells, the potential does."""

    rng, y = np.random.default_rng(0), torch.tensor(AROUND)
    draws = rng.standard_normal((4, 100, 1000))
    draws[..., 0] = draws_of(0.0, 0.0)
    target = Target(Wide(), Data({"y": y}, len(y)))
    assert settled(target, draws, 1.0)
    draws[..., 1:] *= np.linspace(1.4, 1.0, 100)[:, None]
    assert not settled(target, draws, 1.0)
    assert settled(target, draws, 100.0)  # at which such a fall is nothing
