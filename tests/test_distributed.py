"""Chains on the workers of Dask and Ray: the joblib backends that clusters have."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from importlib import import_module

import joblib
import pytest
import torch
from _cases import cases
from _inside import limits, modules
from _posteriors import assert_same_draws
from sklearn.base import clone
from sklearn.datasets import make_classification

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianModuleClassifier,
)

pytestmark = [
    pytest.mark.slow,  # an example of the gallery starts a cluster in every check of a change
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
]

SHORT = {"n_chains": 2, "n_draws": 20, "burn_in": 20, "thinning": 1, "random_state": 0, "n_jobs": 2}
#: seconds after which a fit that takes less than one is taken to hang
PATIENCE = 120


@pytest.fixture(scope="module")
def client():
    """Two worker processes of one thread on this machine."""
    distributed = pytest.importorskip("dask.distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(prepared)  # so that fits are quick
        yield client


@cases(
    "estimator",
    [BayesianLogisticRegression(**SHORT), BayesianMLPClassifier(hidden_layer_sizes=5, **SHORT)],
)
def test_draws_of_a_cluster_are_those_of_this_machine(client, estimator):
    """To the bit: each worker runs one chain, as each thread here, with that chain's seed."""
    X, y = make_classification(200, 5, random_state=0)
    with joblib.parallel_config("threading"):
        here = clone(estimator).fit(X, y)
    before = sum(client.run(n_tasks).values())
    with joblib.parallel_config("dask", client=client, wait_for_workers_timeout=PATIENCE):
        there = fit_in_time(clone(estimator), X, y)
    assert_same_draws(here, there)
    assert sum(client.run(n_tasks).values()) - before >= 2


#: limits of a worker, until it ends
HELD = []


class Failure:
    """An augmentation that changes nothing, and waits until two processes have called it.

    The first of them that has taken ``last`` steps is killed, as if its machine had failed. Each
    copy leaves the number of its calls in a file.
    """

    def __init__(self, folder, last):
        self.folder, self.last, self.calls, self.name = folder, last, 0, None

    def __call__(self, x, rng):
        self.calls += 1
        if self.calls == 1:
            # write after every chunk; limits that nothing holds are restored at once
            HELD.append(limits(write_seconds=0.0, write_share=1e9))
            HELD[-1].__enter__()
            self.name = uuid.uuid4().hex
            (self.folder / f"{os.getpid()}.mark").touch()
        (self.folder / f"{self.name}.calls").write_text(str(self.calls))
        stop = time.monotonic() + PATIENCE
        while self.calls == self.last // 2 and len(list(self.folder.glob("*.mark"))) < 2:
            assert time.monotonic() < stop, "no other worker has taken the other chain"
            time.sleep(0.05)
        if self.calls == self.last:
            with contextlib.suppress(FileExistsError):
                (self.folder / "killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return x


def marked(augment, **options):
    module = torch.nn.Sequential(torch.nn.Linear(5, 2))
    run = SHORT | {"burn_in": 200, "step_size": 0.1, "batch_size": 20} | options
    return BayesianModuleClassifier(module, sample_parameters="all", augment=augment, **run)


def test_the_chain_of_a_worker_that_is_killed_is_drawn_again(client, tmp_path):
    """By another worker, from its seed: the draws are those of this machine to the bit."""
    X, y = make_classification(200, 5, random_state=0)
    torch.manual_seed(0)
    here = marked(unchanged).fit(X, y)
    torch.manual_seed(0)
    with joblib.parallel_config("dask", client=client, wait_for_workers_timeout=PATIENCE):
        there = fit_in_time(marked(Failure(tmp_path, 100)), X, y)
    assert (tmp_path / "killed").exists()
    assert_same_draws(here, there)


def test_with_a_checkpoint_the_chain_of_a_killed_worker_goes_on(client, tmp_path):
    """It is killed in its second chunk of steps: the first, 1,024 steps, is not taken again."""
    X, y = make_classification(200, 5, random_state=0)
    torch.manual_seed(0)
    here = marked(unchanged, burn_in=2048).fit(X, y)
    torch.manual_seed(0)
    augment, file = Failure(tmp_path, 1500), str(tmp_path / "file.npz")
    with joblib.parallel_config("dask", client=client, wait_for_workers_timeout=PATIENCE):
        there = fit_in_time(marked(augment, burn_in=2048, checkpoint=file), X, y)
    assert {path.name for path in tmp_path.glob("*.npz")} == {"file.0-0.npz", "file.1-1.npz"}
    assert_same_draws(here, there)
    resumed, killed, whole = sorted(int(path.read_text()) for path in tmp_path.glob("*.calls"))
    assert killed == 1500
    assert 1024 <= whole - resumed < 1030  # a few calls are a start's


def test_draws_of_ray_are_those_of_this_machine():
    """Two workers on this machine, one chain each, where ray is installed: to the bit."""
    ray = pytest.importorskip("ray")
    import_module("ray.util.joblib").register_ray()
    X, y = make_classification(200, 5, random_state=0)
    estimator = BayesianLogisticRegression(**SHORT)
    here = clone(estimator).fit(X, y)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with joblib.parallel_config("ray"):
            there = fit_in_time(clone(estimator), X, y)
    finally:
        ray.shutdown()
    assert_same_draws(here, there)


def unchanged(x, rng):
    return x


def prepared():
    """Import the package."""
    modules()


def n_tasks(dask_worker):
    """Tasks that a worker has finished."""
    return dask_worker.state.executed_count


def fit_in_time(estimator, X, y):
    """The fitted estimator, or an error after ``PATIENCE`` seconds."""

    def stop(*_):
        raise TimeoutError(f"no draws after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        return estimator.fit(X, y)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
