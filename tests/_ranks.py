"""What the two ranks of test_ranks.py do: ``python _ranks.py folder rank``.

Each writes what it has drawn and the errors that it has met to the folder.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import time
import warnings
from contextlib import redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from _environment import SET
from _inside import limits
from sklearn.base import clone
from sklearn.datasets import make_classification

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.ranks import Ranks
from skbayes_sgmcmc._engine import fingerprint
from skbayes_sgmcmc._engine.descent import Descent
from skbayes_sgmcmc.samplers import SGLD

N_RANKS = 2
#: seconds for which a rank waits for one that does not come
PATIENCE = 1.0
#: steps between two looks at the chains of a fit with a file
CHUNK = 64
#: a step of its third chunk
LAST = 2 * CHUNK + 20

X, Y = make_classification(203, 5, random_state=0)
#: labels of which the rows say nothing, so that a descent stops soon
CHANCE = np.random.default_rng(2).integers(0, 2, len(X))
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
REAL = X @ [1.0, -1.0, 0.5, 0.0, 0.0] + np.random.default_rng(1).standard_normal(len(X))
SHORT = {"n_chains": 2, "n_draws": 30, "burn_in": 30, "thinning": 1, "random_state": 0}
#: 500 steps
LONG = SHORT | {"n_chains": 1, "n_draws": 100, "burn_in": 100, "thinning": 4}
PLAIN = {"step_size": 0.1, "batch_size": 21}
MLP = {"hidden_layer_sizes": 7, "batch_size": 21}


class Rows(torch.utils.data.Dataset):
    """A dataset that remembers which items were asked for."""

    def __init__(self):
        self.targets, self.asked = Y, []

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        self.asked.append(i)
        return X[i].astype(np.float32), Y[i]


def module(**others):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    return sk.BayesianModuleClassifier(net, **(SHORT | PLAIN | others))


#: name -> estimator, y, sample_weight
FITS = {
    "logistic": (sk.BayesianLogisticRegression(compiled=False, **PLAIN, **SHORT), Y, None),
    "logistic, all rows": (sk.BayesianLogisticRegression(**SHORT), Y, WEIGHT),
    "logistic, control variates": (
        sk.BayesianLogisticRegression(
            gradient="linear_control_variates", batch_size=31, sampler="sgld", **SHORT
        ),
        Y,
        WEIGHT,
    ),
    "logistic, mclmc": (sk.BayesianLogisticRegression(sampler="mclmc", **SHORT), Y, None),
    "glm": (sk.BayesianGLMRegressor(sampler="sghmc", batch_size=30, **SHORT), REAL, None),
    "mlp": (sk.BayesianMLPClassifier(**MLP, **LONG), Y, None),
    "mlp, psgld": (sk.BayesianMLPClassifier(sampler="psgld", **MLP, **SHORT), Y, WEIGHT),
    "mlp, mclmc": (  # whose start is found by a descent
        sk.BayesianMLPClassifier(sampler="mclmc", dtype="float64", **MLP, **SHORT),
        CHANCE,
        WEIGHT,
    ),
    "mlp, learned scale": (
        sk.BayesianMLPRegressor(prior_scale="learned", **MLP, **SHORT),
        REAL,
        None,
    ),
    "sparse": (sk.SparseBayesianRegressor(batch_size=21, **SHORT), REAL, None),
    "module": (module(), Y, None),
}


def fitted(name, **others):
    """A fit of the table, with other parameters."""
    estimator, y, weight = FITS[name]
    return clone(estimator).set_params(**others).fit(X, y, sample_weight=weight)


class Steps(SGLD):
    """Counts the steps of a fit, and calls ``at_last`` at the end of every ``last`` of them.

    The first step, which has no progress yet, begins anew: rank 0 takes some before it, which tell
    the sampler of a file from others.
    """

    taken, last, at_last = 0, 0, None

    def euler(self, theta, state, step):
        super().euler(theta, state, step)
        Steps.taken = Steps.taken + 1 if step.progress else 1
        if Steps.last and Steps.taken % Steps.last == 0:
            Steps.at_last(theta)


def fitted_in_chunks(path, last=0, at_last=None):
    """Draws of a fit of three chunks of ``CHUNK`` steps, with a file."""
    Steps.taken, Steps.last, Steps.at_last = 0, last, at_last
    length = {"burn_in": CHUNK, "n_draws": 2 * CHUNK, "thinning": 1, "n_chains": 1}
    clf = clone(FITS["logistic"][0]).set_params(sampler=Steps(), checkpoint=path, **length)
    with limits(chunk_steps=CHUNK):
        return clf.fit(X, Y).posterior_["coef"]


def changed(**others):
    clone(FITS["logistic"][0]).set_params(**others).fit(X, Y)


#: name -> a call that ranks with chains of their own must refuse
REFUSED_CHAINS = {
    "few chains": lambda: changed(n_chains=1),
    "file": lambda: changed(checkpoint="fit.npz"),
}


def refused(rank):
    """Name -> a call that all ranks must refuse, with the same message."""
    second = rank == 1
    plain = clone(FITS["logistic"][0])
    lda = sk.LatentDirichletAllocation(
        n_components=2, **{k: v for k, v in SHORT.items() if k != "n_chains"}
    )
    return {
        "rows": lambda: plain.fit(X[second:], Y[second:]),
        "columns": lambda: plain.fit(X[:, second:], Y),
        "other rows": lambda: plain.fit(X, 1 - Y if second else Y),
        "weights": lambda: plain.fit(X, Y, sample_weight=2.0 * WEIGHT if second else WEIGHT),
        "step_size": lambda: clone(plain).set_params(step_size=0.2 if second else 0.1).fit(X, Y),
        "seed": lambda: clone(plain).set_params(random_state=rank).fit(X, Y),
        "prior": lambda: clone(plain).set_params(prior_scale=1.0 + rank).fit(X, Y),
        "version": lambda: other_version(plain, second),
        "no seed": lambda: clone(plain).set_params(random_state=None).fit(X, Y),
        "n_jobs": lambda: clone(plain).set_params(n_jobs=2).fit(X, Y),
        "few rows": lambda: clone(plain).set_params(batch_size=1).fit(X, Y),
        "mala": lambda: sk.BayesianLogisticRegression(sampler="mala", **SHORT).fit(X, Y),
        "augment": lambda: module(augment=lambda x, rng: x).fit(X, Y),
        "no data": lambda: sk.sample(lambda theta: -(theta**2).sum(1), 2, random_state=0),
        "topics": lambda: lda.fit(np.abs(X).round().astype(int)),
    }


def other_version(estimator, second):
    with mock.patch.object(fingerprint, "__version__", f"0.0.{1 - second}"):
        estimator.fit(X, Y)


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def main(folder, rank):
    found = {"errors": {}, "draws": {}}
    with sk.data_parallel():
        for name in FITS:
            estimator = fitted(name)
            found["draws"][name] = pickle.loads(pickle.dumps(estimator)).posterior_.draws
        found["errors"] = {name: error_of(call) for name, call in refused(rank).items()}
        found["asked"] = [asked_for(burn_in) for burn_in in (10, 30)]
        found["compiled"] = fitted("logistic", compiled="auto", n_draws=1).compiled_
        found["drifted"] = drifted(rank)
        found["descended"] = descended(rank)
        found["resumed"] = interrupted_and_resumed(folder / f"of_{rank}")
        found["damaged"] = error_of(lambda: fitted_in_chunks(damaged(folder / f"of_{rank}", rank)))
        found["printed"] = [printed()]
        found["columns"] = exchanged_columns(rank)
    found["environment"] = SET
    # outside, each rank is alone again
    found["outside"] = error_of(lambda: changed(random_state=rank, n_draws=2))
    own = [dist.new_group([each]) for each in range(N_RANKS)][rank]
    with sk.data_parallel(own, chain_group=dist.group.WORLD):
        found["by chain"] = fitted("logistic").posterior_.draws
        found["printed"].append(printed())
        found["errors"] |= {name: error_of(call) for name, call in REFUSED_CHAINS.items()}
    found["not a rank"] = error_of(
        lambda: in_group(own if rank == 0 else dist.GroupMember.NON_GROUP_MEMBER)
    )
    group = dist.new_group(timeout=timedelta(seconds=PATIENCE))
    started = time.monotonic()
    if rank == 0:
        with sk.data_parallel(group):
            found["alone"] = error_of(lambda: fitted("logistic")), time.monotonic() - started
    dist.barrier()
    (folder / f"{rank}.pickle").write_bytes(pickle.dumps(found))
    with sk.data_parallel():
        died = error_of(lambda: fitted_in_chunks(folder / "fit.npz", LAST * rank, die))
    (folder / f"died.{rank}.txt").write_text(died)


def asked_for(burn_in):
    """How many items of a dataset a fit asks for."""
    rows = Rows()
    module(n_draws=5, burn_in=burn_in).fit(rows)
    return len(rows.asked)


def drifted(rank):
    """Draws of a fit in which rank 1 is a little beside rank 0 at the end of every chunk."""
    return fitted_in_chunks(None, CHUNK, lambda theta: theta.add_(0.001 * rank))


def descended(rank):
    """Draws of a fit whose descent takes rank 1 a little beside rank 0 in each of its parts."""
    loss = Descent._loss

    def shifted(self, active):
        self.phi += 0.001 * rank
        return loss(self, active)

    with mock.patch.object(Descent, "_loss", shifted):
        return fitted("mlp, mclmc").posterior_["weight_1"]


def damaged(folder, rank):
    """A checkpoint, which can't be read on rank 0 and does not exist on others."""
    path = folder / "damaged.npz"
    if rank == 0:
        path.write_text("not a checkpoint")
    return path


def printed():
    """What a fit prints that is asked to."""
    with redirect_stdout(io.StringIO()) as text:
        fitted("logistic", verbose=1)
    return text.getvalue()


def exchanged_columns(rank):
    """Sums and rank 0's values of tensors whose numbers are not in one piece of memory."""
    ranks, found = Ranks(dist.group.WORLD), []
    for exchange in (ranks.add_up, ranks.follow_first):
        columns = (torch.arange(6.0).view(2, 3) + 10.0 * rank).mT
        exchange(columns)
        found.append(columns.tolist())
    return found


def in_group(group):
    with sk.data_parallel(group):
        pass


def interrupted_and_resumed(folder):
    """Draws of a fit that stopped in its third chunk, and the files that it left."""
    folder.mkdir()
    with suppress(KeyboardInterrupt):
        fitted_in_chunks(folder / "fit.npz", LAST, stop)
    files = [path.name for path in folder.iterdir()]
    return fitted_in_chunks(folder / "fit.npz"), files


def stop(theta):
    raise KeyboardInterrupt


def die(theta):
    """As a machine's failure does."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    here, number = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{here / 'store'}",
        rank=number,
        world_size=N_RANKS,
        timeout=timedelta(seconds=60),
    )
    main(here, number)
    with suppress(RuntimeError):
        dist.destroy_process_group()
