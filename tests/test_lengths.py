"""``max_steps``: one parameter that makes a fit shorter. What is counted is steps and gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from _cases import cases
from _inside import inside
from _posteriors import assert_same_draws
from sklearn.base import clone
from test_parameters import ESTIMATORS, parameters, unfitted

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    LatentDirichletAllocation,
    MixingDistance,
    SamplingError,
    SamplingWarning,
)
from skbayes_sgmcmc._engine import descent
from skbayes_sgmcmc._engine.target import Evaluator
from skbayes_sgmcmc.estimators._calibration import CALIBRATION

LENGTHS, START_SHARE, Lengths = map(inside, ("LENGTHS", "START_SHARE", "Lengths"))

#: fits that are too short to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
TARGET = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(60)
LABELS = (TARGET > 0.0).astype(int)
#: gradients of a step of MCLMC, whose default integrator is "minimal_norm"
GRADIENTS = 2


# the rule -----------------------------------------------------------------------------------------

AUTOMATIC = [set(names) for k in range(4) for names in itertools.combinations(LENGTHS, k)]


@cases("automatic", AUTOMATIC)
def test_lengths_fit_the_budget_or_are_refused(automatic):
    """Every budget up to the whole run: never more steps, never another given length.

    What is refused is refused with all smaller budgets, too, and the number of steps in the message
    is the smallest budget that is accepted.
    """
    for lengths in (Lengths(3000, 100, 30), Lengths(7, 5, 2), Lengths(0, 4, 1), Lengths(40, 30, 1)):
        accepted = []
        for budget in range(1, lengths.n_steps + 1, max(1, lengths.n_steps // 200)):
            try:
                found = lengths.within(budget, automatic)
            except ValueError as error:
                assert not accepted, (budget, accepted[0])
                least = int(str(error).split("give max_steps=")[1].split()[0])
                assert lengths.within(least, automatic).n_steps <= least
                with pytest.raises(ValueError, match=f"^max_steps={least - 1} is not allowed"):
                    lengths.within(least - 1, automatic)
                continue
            accepted.append(budget)
            assert found.n_steps <= budget
            assert found.n_draws >= 1 and found.thinning >= 1
            assert (found.burn_in > 0) == (lengths.burn_in > 0)
            for name in LENGTHS:
                assert getattr(found, name) <= getattr(lengths, name)
                if name not in automatic:
                    assert getattr(found, name) == getattr(lengths, name)
        assert lengths.within(lengths.n_steps, automatic) == lengths
        assert lengths.within(None, automatic) == lengths


@cases("budget", [3000, 1500, 750, 601])
def test_automatic_lengths_become_shorter_in_proportion(budget):
    """Up to whole numbers: the draws lose at most one step of thinning, which the burn-in gets."""
    found = Lengths(3000, 100, 30).within(budget, LENGTHS)
    assert found.n_steps == budget and found.n_draws == 100
    assert 0 <= found.burn_in - budget // 2 <= 100


def test_draws_less_than_a_step_apart_become_fewer():
    found = Lengths(3000, 100, 30).within(100, LENGTHS)
    assert found == Lengths(50, 50, 1)


# estimators ---------------------------------------------------------------------------------------


@cases("name", sorted(ESTIMATORS))
def test_every_estimator_has_the_parameter_and_it_is_off_by_default(name):
    assert parameters(ESTIMATORS[name])["max_steps"].default is None


@pytest.mark.parametrize(
    ("estimator", "rows"), list(unfitted()), ids=lambda each: type(each).__name__
)
def test_no_fit_takes_more_steps_than_it_may(estimator, rows):
    """Of automatic lengths, whose fits take at least 200 steps."""
    automatic = dict.fromkeys(LENGTHS, "auto")
    labels = np.arange(len(rows)) % 3
    estimator = clone(estimator).set_params(**automatic, max_steps=40)
    estimator.fit(rows, labels)
    assert 30 <= estimator.n_steps_ <= 40
    assert 1 <= estimator.n_draws_ < 40


def test_sweeps_of_gibbs_count_as_steps():
    counts = RNG.poisson(1.0, (20, 6))
    lda = LatentDirichletAllocation(2, algorithm="gibbs", max_steps=70, random_state=0).fit(counts)
    assert lda.n_steps_ == 70  # 700 without
    assert lda.n_draws_ == 50  # and 20 sweeps before them


def test_a_budget_that_is_large_enough_changes_nothing():
    short = {"hidden_layer_sizes": 4, "burn_in": 50, "n_draws": 10, "thinning": 2}
    for fit in (
        lambda **given: BayesianLogisticRegression(n_draws=50, random_state=0, **given).fit(
            X, LABELS
        ),
        lambda **given: BayesianMLPRegressor(**short, random_state=0, **given).fit(X, TARGET),
    ):
        assert_same_draws(fit(), fit(max_steps=10_000))


@cases(
    "given, least",
    [
        ({"n_draws": 50, "thinning": 10}, 501),
        ({"burn_in": 500}, 501),
        ({"burn_in": 400, "n_draws": 101}, 501),
        ({"burn_in": 0, "n_draws": 501}, 501),
        ({"thinning": MixingDistance(n_steps=501)}, 501),
    ],
)
def test_given_lengths_that_do_not_fit_are_refused_by_name(given, least):
    reg = BayesianMLPRegressor(**given, max_steps=500)
    names = ".*".join(f"{name}=" for name in LENGTHS if name in given)
    with pytest.raises(
        ValueError, match=rf"^max_steps=500 is not allowed with {names}.*max_steps={least} or more"
    ):
        reg.fit(X, TARGET)


def test_an_automatic_burn_in_is_a_part_of_the_steps_of_a_mixing_distance():
    """It was 3,000 steps of 100, so that no draw was kept, whatever the distance and the steps."""
    given = {"hidden_layer_sizes": 3, "calibrate": False, "n_draws": 20, "n_chains": 2}
    clf = BayesianMLPClassifier(**given, sampler="sgld", random_state=0)
    clf.set_params(thinning=MixingDistance(n_steps=100, distance=1e-9))
    assert clf.fit(X, LABELS).n_draws_ == 20


@cases(
    "burn_in, distance, error, message",
    [
        (100, 0.1, ValueError, "^burn_in=100 is not allowed .* a smaller burn_in, or a larger n_s"),
        (50, 1e9, SamplingError, "the distance of .* is more than all step sizes after the burn"),
    ],
)
def test_a_mixing_distance_without_a_draw_says_what_to_give(burn_in, distance, error, message):
    """Both said that the sampling threshold was not reached, which such runs do not look at."""
    clf = BayesianLogisticRegression(step_size=0.1, burn_in=burn_in, random_state=0)
    with pytest.raises(error, match=message):
        clf.set_params(thinning=MixingDistance(n_steps=100, distance=distance)).fit(X, LABELS)


def test_a_stream_takes_its_pass_whatever_the_lengths():
    """As the docstring says: one minibatch of the 60 rows, 20 rows each, is three steps."""
    clf = BayesianMLPClassifier(hidden_layer_sizes=3, batch_size=20, max_steps=2, random_state=0)
    assert clf.partial_fit(X, LABELS).n_steps_ == 3
    clf.set_params(burn_in=50, thinning=7, max_steps=None)
    assert clf.partial_fit(X, LABELS).n_steps_ == 3


# gradients ----------------------------------------------------------------------------------------


@pytest.fixture
def rows_of_gradients(monkeypatch):
    """Counts of rows whose gradients were computed, of all chains: of the run, and of descents."""
    counts = {"run": 0, "descent": 0, "where": "run"}

    def counted(method):
        def count(self, phi):
            counts[counts["where"]] += len(phi) * self.batch.size
            return method(self, phi)

        return count

    for name in ("gradient", "value_and_gradient"):
        monkeypatch.setattr(Evaluator, name, counted(getattr(Evaluator, name)))
    descend = descent.Descent.run

    def run(self):
        counts["where"] = "descent"
        try:
            return descend(self)
        finally:
            counts["where"] = "run"

    monkeypatch.setattr(descent.Descent, "run", run)
    return counts


@pytest.mark.parametrize("max_steps", [80, 320])
def test_gradients_of_a_network_are_in_proportion(rows_of_gradients, max_steps):
    """Each step of MCLMC takes two gradients of all rows, and those that follow a draw of the
    learned scales, every 50 steps, one more.

    Descents take a tenth of ``max_steps`` gradients of all rows at most, and without a bound ten
    times as many: about 1,000 steps of 16 of these 60 rows.
    """
    reg = BayesianMLPRegressor(hidden_layer_sizes=4, n_chains=2, max_steps=max_steps)
    reg.set_params(random_state=0).fit(X, TARGET)
    assert reg.n_steps_ == max_steps
    of_all_rows = 2 * len(X)
    expected = GRADIENTS * max_steps * of_all_rows
    assert expected <= rows_of_gradients["run"] <= expected + (5 + max_steps / 50) * of_all_rows
    assert 0 < rows_of_gradients["descent"] <= START_SHARE * max_steps * of_all_rows


def test_descents_of_few_rows_are_bounded_too(rows_of_gradients):
    """Fewer than 20 rows are not divided: 300 steps without a bound."""
    few = slice(0, 12)
    reg = BayesianMLPRegressor(hidden_layer_sizes=4, n_chains=1, max_steps=100, random_state=0)
    reg.fit(X[few], TARGET[few])
    assert rows_of_gradients["descent"] == 10 * 12


@pytest.mark.parametrize("max_steps", [100, 1600, 3200])
def test_runs_that_calibrate_are_in_proportion(monkeypatch, max_steps):
    """Together at most half as many steps as the fit; without a budget four times 750."""
    taken = []

    def counted(self, task, rows, seed, n_steps):
        taken.append(n_steps)
        return np.full((len(rows), 2), 0.5)

    monkeypatch.setattr(BayesianMLPClassifier, "_given_others", counted)
    clf = BayesianMLPClassifier(hidden_layer_sizes=3, n_chains=1, calibrate=True)
    clf.set_params(max_steps=max_steps, random_state=0).fit(X, LABELS)
    assert clf.n_steps_ == max_steps
    assert 0 < sum(taken) <= CALIBRATION.budget * max_steps
    assert len(taken) == max(1, max_steps // 1500)


def test_fits_with_a_budget_are_cloned_searched_and_warned_of_like_others():
    """A budget of 20 steps is no reason for silence."""
    reg = BayesianMLPRegressor(hidden_layer_sizes=4, max_steps=20, random_state=0)
    assert reg.get_params()["max_steps"] == 20 and "max_steps=20" in repr(reg)
    with pytest.warns(SamplingWarning, match=r"max_steps=20.*Give a larger max_steps\."):
        reg.fit(X, TARGET)
