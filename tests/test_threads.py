"""Chains and predictions in several threads compute what they do in turn.

joblib's threading backend lets groups of chains share the model. A cache that one thread replaces
between another one's look and use hands out the wrong chain's numbers, which nothing else notices.
With a switch interval of 1e-6 s (the default is 5e-3) threads change places within nearly every
step. Without the mend a CNN's draws differ by 0.003 in one repetition, and fits of modules stop
with errors of torch.
"""

from __future__ import annotations

import pickle
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _inside import having
from joblib import parallel_config
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._limits import LIMITS
from skbayes_sgmcmc.models._constants import Constant
from skbayes_sgmcmc.models._threads import few_threads, serial_products
from skbayes_sgmcmc.models.designs.design import DenseDesign
from skbayes_sgmcmc.models.likelihoods.base import Categorical
from skbayes_sgmcmc.models.networks.blocks import Blocks
from skbayes_sgmcmc.models.networks.latents import Latents
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.priors import Normal, SpikeSlab
from skbayes_sgmcmc.samplers import SGLD

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

RUN = {"n_draws": 5, "burn_in": 75, "thinning": 1, "n_chains": 4, "random_state": 0}
X = np.random.default_rng(0).standard_normal((60, 16))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
COUNTS = np.random.default_rng(1).poisson(1.0, (30, 12))


def batch_normed(n_features_in=16, n_outputs=2):
    return nn.Sequential(
        nn.Linear(n_features_in, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, n_outputs)
    )


CASES = {
    "cnn": (
        sk.BayesianCNNClassifier(
            conv_channels=(3, 4), hidden_layer_sizes=(5,), step_size=1e-3, image_shape=(1, 4, 4)
        ),
        X,
        Y,
    ),
    "mlp": (sk.BayesianMLPClassifier(hidden_layer_sizes=(6, 5), step_size=1e-2), X, Y),
    "bfloat16": (
        sk.BayesianMLPClassifier(hidden_layer_sizes=(6,), step_size=1e-2, precision="bfloat16"),
        X,
        Y,
    ),
    "schedule": (sk.BayesianMLPRegressor(hidden_layer_sizes=(6,), step_size=1e-3), X, X[:, :2]),
    "module": (sk.BayesianModuleClassifier(batch_normed, step_size=1e-2), X, Y),
    "module_in_turn": (
        sk.BayesianModuleClassifier(batch_normed, step_size=1e-2, chain_method="sequential"),
        X,
        Y,
    ),
    "sparse": (sk.SparseBayesianClassifier(step_size=1e-3, compiled=False), X, Y),
    "sparse_compiled": (sk.SparseBayesianRegressor(step_size=1e-4, compiled=True), X, X[:, 0]),
    "logistic": (sk.BayesianLogisticRegression(step_size=0.1, compiled=False), X, Y),
    "logistic_auto": (sk.BayesianLogisticRegression(), X, Y),
    "ica": (sk.BayesianICA(), X[:, :3], None),
    "lda": (
        sk.LatentDirichletAllocation(n_components=3, compiled=False, batch_size=5),
        COUNTS,
        None,
    ),
    "dpfa": (
        sk.DeepPoissonFactorAnalysis(n_components=(4, 3), compiled=False, batch_size=5),
        COUNTS,
        None,
    ),
}


@pytest.fixture
def short_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def draws(estimator, x, y):
    posterior = estimator.set_params(**RUN, n_jobs=4).fit(x, y).posterior_
    return {name: np.array(values) for name, values in posterior.draws.items()}


def in_turn(n_jobs):
    """In the place of joblib's ``Parallel``: the same calls, one after another."""
    return lambda calls: [function(*given, **named) for function, given, named in calls]


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.slow if name == "dpfa" else ()) for name in CASES]
)
def test_chains_in_threads_draw_what_they_draw_in_turn(case, short_switches, limits, monkeypatch):
    """Equal to the last bit: each group of chains has the same work and its own random numbers."""
    estimator, x, y = CASES[case]
    # gains of latent variables are computed for blocks of steps: many blocks in these few steps
    limits(chunk_steps=2)
    with parallel_config("threading"):
        with monkeypatch.context() as patch:
            [patch.setattr(module, "Parallel", in_turn) for module in having("Parallel")]
            expected = draws(estimator, x, y)
        found = draws(estimator, x, y)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def torn(instance, name, other):
    """The instance with an attribute that another thread replaces right after each assignment."""

    class Torn(type(instance)):
        def __setattr__(self, key, value):
            super().__setattr__(key, other if key == name else value)

    instance.__class__ = Torn
    return instance


def test_caches_that_another_thread_replaces_are_not_returned():
    """Every cache of the models: what comes back belongs to the arguments, whoever wrote last."""
    theta, theirs = torch.zeros(1, 5, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)
    mlp = MLP((4, 1), "relu")
    torn(mlp, "_seen", [(theirs, mlp._views(theirs))])
    assert float(mlp.layers(theta)[0][0].abs().sum()) == 0.0

    constant = torn(Constant(np.full(5, 3.0)), "_kept", {"another key": theirs})
    np.testing.assert_array_equal(constant.like(theta, 0.5), np.full(5, 1.5))

    network = NetworkModel(mlp, Categorical(), Normal(), 1.0)
    latents = Latents(SpikeSlab(), Blocks(["weight_1"], network.places()), learn_sigma=False)
    expected = [latents._gain(k) for k in (0, LIMITS.chunk_steps)]
    latents._gains = (-1, [])
    torn(latents, "_gains", (7, [99.0] * LIMITS.chunk_steps))
    assert [latents._gain(k) for k in (0, LIMITS.chunk_steps)] == expected


def blas_threads() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_what_precedes_chains_computes_products_in_one_thread(monkeypatch):
    """NumPy's threads and torch's, which take turns there, would wait for each other."""
    seen = []
    look = DenseDesign.transposed_times

    def looked(self, r, **options):
        seen.append(blas_threads())
        return look(self, r, **options)

    monkeypatch.setattr(DenseDesign, "transposed_times", looked)
    X = np.random.default_rng(0).standard_normal((60, 3))
    with threadpool_limits(limits=2, user_api="blas"):
        sk.BayesianLogisticRegression(n_draws=10, random_state=0).fit(X, X[:, 0] > 0)
        assert blas_threads() == {2}
    assert seen
    assert all(found == {1} for found in seen)


@pytest.mark.parametrize("fails", [False, True])
def test_the_last_of_overlapping_fits_restores_the_threads(fails):
    """Were each to restore what it found, the second to end would leave the single thread."""
    with threadpool_limits(limits=2, user_api="blas"):
        first, second = serial_products(), serial_products()
        first.__enter__()
        second.__enter__()
        error = (ValueError, ValueError(), None) if fails else (None, None, None)
        with suppress(ValueError):
            first.__exit__(*error)
        assert blas_threads() == {1}  # the second still needs it
        with suppress(ValueError):
            second.__exit__(*error)
        assert blas_threads() == {2}


def meanwhile(monkeypatch, place, look):
    """Call ``look`` in another thread, once, when a fit comes to this function."""
    owners, name = place
    function, pending = getattr(owners[0], name), [look]

    def looked(*args, **kwargs):
        if pending:
            thread = threading.Thread(target=pending.pop())
            thread.start()
            thread.join()
        return function(*args, **kwargs)

    for owner in owners:
        monkeypatch.setattr(owner, name, looked)


#: what a fit passes before it has draws
DRAW = having("draw"), "draw"
FITTED_TWICE = {
    "classifier": (sk.BayesianLogisticRegression(step_size=0.1), "predict_proba", (X, Y), DRAW),
    "regressor": (sk.BayesianGLMRegressor(), "predict", (X, X[:, 0]), DRAW),
    "ica": (sk.BayesianICA(step_size=0.1), "transform", (X[:, :3],), DRAW),
    "lda": (CASES["lda"][0], "transform", (COUNTS,), DRAW),
    "student": (
        sk.DistilledClassifier(sk.BayesianLogisticRegression(**RUN), n_epochs=2),
        "predict_proba",
        (X, Y),
        ([having("Training")[0].Training], "run"),
    ),
}


@pytest.mark.parametrize("case", FITTED_TWICE)
def test_an_object_has_one_fit_at_a_time_which_appears_as_a_whole(case, monkeypatch):
    """Another thread is refused a second fit, and predicts with the earlier one until the end."""
    estimator, method, (x, *y), place = FITTED_TWICE[case]
    run = {k: v for k, v in RUN.items() if k in estimator.get_params()}
    estimator = clone(estimator).set_params(**run).fit(x, *y)
    before, seen = getattr(estimator, method)(x), []

    def look():
        for name in ("fit", "partial_fit"):
            if hasattr(estimator, name):
                with pytest.raises(RuntimeError, match="is being fitted by another call"):
                    getattr(estimator, name)(x, *y)
        copy = pickle.loads(pickle.dumps(estimator))
        seen.extend(getattr(each, method)(x) for each in (estimator, copy))
        getattr(clone(estimator).fit(x, *y), method)(x)  # a clone is another object

    meanwhile(monkeypatch, place, look)
    fewer = [values[::2] for values in (x, *y)]
    assert estimator.set_params(random_state=1).fit(*fewer) is estimator
    for values in seen:
        np.testing.assert_array_equal(values, before)
    assert len(seen) == 2
    after = getattr(estimator, method)(x)
    np.testing.assert_array_equal(after, getattr(clone(estimator).fit(*fewer), method)(x))
    assert not np.array_equal(after, before)
    estimator.fit(*fewer)  # the end of a fit lets in the next


def test_parameters_that_are_set_during_a_fit_are_of_the_next(monkeypatch):
    """The fit ends with the draws it began with, and does not take the new value back."""
    estimator = sk.BayesianLogisticRegression(**RUN)
    expected = estimator.fit(X, Y).posterior_["coef"]
    meanwhile(monkeypatch, DRAW, lambda: estimator.set_params(n_draws=7))
    np.testing.assert_array_equal(estimator.fit(X, Y).posterior_["coef"], expected)
    assert estimator.n_draws == 7


def test_a_fit_that_fails_lets_in_the_next():
    estimator = sk.BayesianLogisticRegression(**RUN)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        estimator.fit(X, Y[:-1])
    assert estimator.fit(X, Y).n_draws_ == RUN["n_draws"]


# threads of torch ---------------------------------------------------------------------------------


class Counting(SGLD):
    """SGLD that notes torch's number of threads at each step."""

    def euler(self, theta, state, step):
        NOTED.append(torch.get_num_threads())
        super().euler(theta, state, step)


NOTED: list[int] = []


@pytest.mark.parametrize(("most", "threads"), [(LIMITS.threaded_products, 1), (0, 2)])
@pytest.mark.parametrize("estimator", [sk.BayesianLogisticRegression, sk.BayesianMLPClassifier])
def test_small_steps_have_one_thread_and_the_number_is_restored(limits, estimator, most, threads):
    """Threads that wait for each other at every operation take minutes on a busy machine."""
    limits(threaded_products=most)
    before = torch.get_num_threads()
    NOTED.clear()
    try:
        torch.set_num_threads(2)
        run = RUN | {"n_draws": 3, "burn_in": 2, "step_size": 1e-3, "compiled": False}
        estimator(sampler=Counting(), integrator="euler", **run).fit(X, Y)
        with pytest.raises(ValueError, match="step_size"):
            estimator(sampler=Counting(), **(run | {"step_size": -1.0})).fit(X, Y)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(NOTED) == {threads}


def test_a_thread_that_begins_in_the_fit_of_another_gets_the_number_back():
    """torch gives a new thread the latest number of threads, which is one during a fit."""
    before, found, begun, end = torch.get_num_threads(), [], threading.Event(), threading.Event()
    model, data = SimpleNamespace(row_products=1.0, counts_products=True), (1, 1)

    def first():
        with few_threads(model, *data):
            begun.set()
            end.wait(60.0)
        found.append(torch.get_num_threads())

    def second():
        with few_threads(model, *data), few_threads(model, *data):
            found.append(torch.get_num_threads())
        found.append(torch.get_num_threads())

    torch.set_num_threads(2)
    try:
        for target in (first, second):
            thread = threading.Thread(target=target)
            thread.start()
            if target is first:
                assert begun.wait(60.0)
                long = thread
            else:
                thread.join()
        end.set()
        long.join()
        assert found == [1, 2, 2]
        assert torch.get_num_threads() == 2
    finally:
        end.set()
        torch.set_num_threads(before)
