"""One run on several ranks of ``torch.distributed``, and what they must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from .. import __version__
from .._data.minibatch import Data, Minibatches
from .._data.ranks import ALONE, Ranks
from ..models._protocol import Model
from ..samplers import Sampler
from .fingerprint import fingerprint, probe, same_probe
from .settings import Settings

if TYPE_CHECKING:
    from .accelerators import Workload
    from .chains import Plan

#: rows of which ranks compare what they compute
COMPARED_ROWS = 64
#: settings in which ranks may differ, and those that have an error of their own
OWN = ("checkpoint", "device", "verbose")

_ranks: ContextVar[Ranks] = ContextVar("ranks", default=ALONE)


@contextmanager
def data_parallel(group: Any = None) -> Iterator[None]:
    r"""Spread the rows of each minibatch over the ranks of ``torch.distributed``.

    A script that several processes run, such as those that ``torchrun`` starts, calls fits in this
    context. Every rank takes the same steps with the same noise. It computes the gradient of its
    part of the minibatch, and the parts are added up once a step. When the fit ends, every rank has
    the draws that one process would have drawn with ``compiled=False``, up to the rounding of sums.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup or None, default=None
        The ranks; all of them must call the fit. None: all ranks of the default group. The timeout
        of the group is the longest time that a rank waits for another.

    Raises
    ------
    RuntimeError
        ``torch.distributed`` has not been initialised, or this process is not in the group.

    Notes
    -----
    In this context, fits raise a ``ValueError`` on every rank, before the first step, if the ranks
    have different data, parameters or versions; if ``random_state`` is not a whole number; and with
    what ranks cannot share: ``augment``, ``n_jobs``, minibatches of fewer rows than there are
    ranks, samplers that need all rows ("mala", "gibbs"), and models whose gradients are random
    (topics). If a rank stops, the others raise a :class:`~skbayes_sgmcmc.SamplingError`.

    Every rank needs the whole of X and y, such as a file that each of them maps into memory. It
    reads all rows where the fit does so before its first step (to standardise them, and for
    ``step_size="auto"`` of linear models), and its part of each minibatch from then on.

    Only rank 0 writes the checkpoint, calls callbacks and prints what ``verbose`` shows.

    Examples
    --------
    A group of one rank. With ``torchrun --nproc-per-node 2 fit.py`` the same lines spread the rows
    over two processes, if ``init_process_group`` gets the name "gloo" only:

    >>> import torch.distributed as dist
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianMLPClassifier, data_parallel
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianMLPClassifier(n_draws=20, burn_in=100, thinning=1, random_state=0)
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> with data_parallel():
    ...     clf = clf.fit(X, y)
    >>> dist.destroy_process_group()
    >>> clf.posterior_.n_draws
    20
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "data_parallel needs ranks: call torch.distributed.init_process_group('gloo'), or "
            "'nccl' with GPUs, in a script that torchrun starts."
        )
    group = dist.group.WORLD if group is None else group
    if dist.get_rank(group) < 0:
        raise RuntimeError(
            f"group={group!r} is not allowed: this process is none of its ranks; call "
            "data_parallel in its ranks only."
        )
    token = _ranks.set(Ranks(group))
    try:
        yield
    finally:
        _ranks.reset(token)


def ranks_of_run(model: Model, data: Data, settings: Settings, sampler: Sampler) -> Ranks:
    """The ranks that share a run, which this function checks before any work is done."""
    ranks = _ranks.get()
    if ranks.size == 1:
        return ALONE
    facts = {"the version of skbayes_sgmcmc": __version__}
    facts |= {"the version of torch": torch.__version__, "the version of numpy": np.__version__}
    facts["the model"] = type(model).__name__
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name not in OWN:
            # objects are compared by what they hold; what is shown tells those that differ apart
            shown = f"{value!r}" if isinstance(value, str | float | None | Integral) else ""
            facts[f"the parameter {field.name}"] = shown or f"one of digest {_digest(value)}"
    for name, rows in data.fields.items():
        facts[f"the shape of {name}"] = f"{tuple(rows.shape)}"
    facts["the sum of the weights"] = f"{data.total:.9g}"
    facts["the model's parameters"] = f"one of digest {_digest(model)}"
    ranks.agree(facts)
    _check(model, data, settings, sampler)
    return ranks


def _digest(value: Any) -> str:
    return fingerprint(value)[:8]


def _check(model: Model, data: Data, settings: Settings, sampler: Sampler) -> None:
    """Refuse a run that ranks cannot share; they agree, so all of them refuse it."""
    reason = None
    if not data.fields:
        reason = "with a log density that has no rows to share: give a model and its data"
    elif not isinstance(settings.random_state, Integral):
        reason = (
            f"with random_state={settings.random_state!r}, because every rank must draw the same "
            "noise: give a whole number"
        )
    elif settings.n_jobs not in (None, 1):
        reason = f"with n_jobs={settings.n_jobs!r}: give n_jobs=None"
    elif sampler.full_data:
        reason = (
            f"with sampler={type(sampler).__name__}, which needs all rows in every process: give "
            "another sampler, such as 'sghmc'"
        )
    elif data.augment is not None:
        reason = (
            "with augment, because its random numbers would be others on each rank: give "
            "augment=None"
        )
    if reason is not None:
        raise ValueError(f"data_parallel is not allowed {reason}.")


def check_same_run(ranks: Ranks, work: Workload, plan: Plan, accelerators: tuple[str, ...]) -> None:
    """Refuse ranks whose first step would differ: in its rows, its functions or the plan."""
    if ranks.size == 1:
        return
    size, target = work.minibatches.size, work.target
    ranks.agree(
        {
            "the number of steps": f"{plan.n_steps}",
            "the burn-in": f"{plan.burn_in}",
            "the rows of a minibatch": f"{size}",
            "compiled": f"{accelerators}",
        }
    )
    if size < ranks.size:
        raise ValueError(
            f"batch_size={size} is not allowed in data_parallel with {ranks.size} ranks: give at "
            "least one row for each rank."
        )
    compared = Minibatches(target.data, min(size, COMPARED_ROWS))
    precision = torch.finfo(target.like.dtype).eps
    found = ranks.gathered(probe(target, work.sampler, compared))
    same = [same_probe(found[0], other, precision) for other in found]
    others = [str(rank) for rank, one in enumerate(same) if not one]
    if others:
        raise ValueError(
            "data_parallel is not allowed here: rank "
            + " and rank ".join(others)
            + " computes other gradients than rank 0 for the same row numbers. Give every rank the "
            "same X and y, and the same functions."
        )
