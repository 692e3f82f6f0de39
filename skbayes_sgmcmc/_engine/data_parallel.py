"""One run on several ranks of ``torch.distributed``, and what they must agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

from .._data.minibatch import Data, Minibatches
from .._data.ranks import ALONE, Ranks
from .._exceptions import explained, not_allowed
from ..samplers import Sampler
from .fingerprint import fingerprint, probe, same_probe, versions
from .settings import Settings

if TYPE_CHECKING:
    from .lengths import Plan
    from .problem import Problem
    from .recipe import Recipe

T = TypeVar("T")

#: settings that may differ between ranks, because each has its own disk and device
OWN = ("checkpoint", "device", "storage", "verbose")


@dataclass(frozen=True)
class Grid:
    """The ranks of a run: those that share this process's minibatches, and its chains."""

    #: processes that have other rows of the same chains
    rows: Ranks = ALONE
    #: processes that have other chains
    chains: Ranks = ALONE

    @property
    def alone(self) -> bool:
        """Whether there is one process only."""
        return self.rows.size * self.chains.size == 1

    @property
    def first(self) -> bool:
        """Whether this is the process that reports."""
        return self.rows.rank == self.chains.rank == 0

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` if ranks differ in a fact."""
        self.rows.agree(facts)
        self.chains.agree(facts)

    def by_first(self, compute: Callable[[], T]) -> T:
        """What ``compute`` returns in the first process, in every process."""
        return self.chains.by_first(lambda: self.rows.by_first(compute))

    def own(self, chains: list[int]) -> list[int]:
        """Those chains that this process runs."""
        return chains[self.chains.share(len(chains))]

    def every(self, results: list[T]) -> list[T]:
        """The results of all chains, from those of this process's."""
        return [result for of_rank in self.chains.gathered(results) for result in of_rank]


_grid: ContextVar[Grid | None] = ContextVar("grid", default=None)


@contextmanager
def data_parallel(group: Any = None, *, chain_group: Any = None) -> Iterator[None]:
    r"""Spread the rows of each minibatch over the ranks of ``torch.distributed``.

    A script that several processes run, such as those that ``torchrun`` starts, calls fits in this
    context. Every rank takes the same steps with the same noise. It computes the gradient of its
    part of the minibatch, and the parts are added up once a step. When the fit ends, every rank has
    all draws. They are those of one process, up to the rounding of sums; plain SGLD of logistic
    regression, which one process compiles with random numbers of its own, needs ``compiled=False``
    for that.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup or None, default=None
        The ranks; all of them must call the fit. None: all ranks of the default group. The timeout
        of the group is the longest time that a rank waits for another.
    chain_group : torch.distributed.ProcessGroup or None, default=None
        Ranks between which the chains are divided. Each of them is in another ``group``, and all
        have the draws of all chains in the end. None: every rank of ``group`` takes the steps of
        all chains. With ``mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("chains",
        "rows"))`` eight ranks are two groups of four by ``data_parallel(mesh.get_group("rows"),
        chain_group=mesh.get_group("chains"))``.

    Raises
    ------
    RuntimeError
        ``torch.distributed`` has not been initialised, or this process is not in the group.

    Notes
    -----
    In this context, fits raise a ``ValueError`` on every rank, before the first step, if the ranks
    have different data, parameters or versions; if ``random_state`` is not a whole number; and with
    what ranks cannot share: ``augment``, ``n_jobs``, minibatches of fewer rows than there are
    ranks, samplers that need all rows ("mala", "gibbs"), and models with gradients that are random
    (topics). With ``chain_group``, so they do with ``checkpoint`` and with fewer chains than
    groups. If a rank stops, the others raise a :class:`~skbayes_sgmcmc.SamplingError`.

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
        raise explained(
            RuntimeError(
                "data_parallel needs ranks: call torch.distributed.init_process_group('gloo'), or "
                "'nccl' with GPUs, in a script that torchrun starts."
            ),
            "ranks-are-missing-or-differ",
        )
    rows = dist.group.WORLD if group is None else group
    for name, each in (("group", rows), ("chain_group", chain_group)):
        if each is not None and dist.get_rank(each) < 0:
            raise explained(
                RuntimeError(
                    f"{name}={each!r} is not allowed: this process is none of its ranks; call "
                    "data_parallel in its ranks only."
                ),
                "ranks-are-missing-or-differ",
            )
    token = _grid.set(Grid(Ranks(rows), Ranks(chain_group)))
    try:
        yield
    finally:
        _grid.reset(token)


def grid_of_run() -> Grid:
    """The ranks that share the runs of the context."""
    grid = _grid.get()
    return Grid() if grid is None or grid.alone else grid


def check_ranks(problem: Problem, settings: Settings, sampler: Sampler) -> None:
    """Refuse ranks that differ, or that cannot share a run, before any work is done."""
    grid, model, data = grid_of_run(), problem.model, problem.data
    if grid.alone:
        return
    facts = {f"the version of {name}": version for name, version in versions().items()}
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
    grid.agree(facts)
    _check(grid, data, settings, sampler)


def _digest(value: Any) -> str:
    return fingerprint(value)[:8]


def _check(grid: Grid, data: Data, settings: Settings, sampler: Sampler) -> None:
    """Refuse a run that ranks cannot share; they agree, so all of them refuse it."""
    if not isinstance(settings.random_state, Integral):
        _refuse(
            f"with random_state={settings.random_state!r}, because every rank must draw the same "
            "noise: give a whole number"
        )
    if settings.n_jobs not in (None, 1):
        _refuse(f"with n_jobs={settings.n_jobs!r}: give n_jobs=None")
    if grid.chains.size > settings.n_chains:
        _refuse(
            f"with n_chains={settings.n_chains} and {grid.chains.size} ranks in chain_group: give "
            "a chain for each of them"
        )
    if grid.chains.size > 1 and settings.checkpoint is not None:
        _refuse("with chain_group and a checkpoint: give checkpoint=None")
    if grid.rows.size == 1:
        return
    if not data.fields:
        _refuse("with a log density that has no rows to share: give a model and its data")
    if sampler.full_data:
        _refuse(
            f"with sampler={type(sampler).__name__}, which needs all rows in every process: give "
            "another sampler, such as 'sghmc'"
        )
    if data.augment is not None:
        _refuse(
            "with augment, because its random numbers would be others on each rank: give "
            "augment=None"
        )


def _refuse(reason: str) -> NoReturn:
    raise not_allowed(f"data_parallel is not allowed {reason}.", "ranks-are-missing-or-differ")


def check_same_run(grid: Grid, recipe: Recipe, plan: Plan, accelerators: tuple[str, ...]) -> None:
    """Refuse ranks if their first steps differ: in their rows, their functions or the plan."""
    if grid.alone:
        return
    size, target = recipe.minibatches.size, recipe.target
    grid.agree(
        {
            "the number of steps": f"{plan.n_steps}",
            "the burn-in": f"{plan.burn_in}",
            "the rows of a minibatch": f"{size}",
            # of maps that do not fit into a machine's memory, minibatches are other rows
            "the rows that are read at once": f"{target.data.run}",
            "compiled": f"{accelerators}",
        }
    )
    if size < grid.rows.size:
        raise not_allowed(
            f"batch_size={size} is not allowed in data_parallel with {grid.rows.size} ranks: give "
            "at least one row for each rank.",
            "ranks-are-missing-or-differ",
        )
    compared = Minibatches(target.data, min(size, 64))  # ranks compare their gradients
    precision = torch.finfo(target.like.dtype).eps
    own = probe(target, recipe.sampler, compared)
    for ranks in (grid.rows, grid.chains):
        found = ranks.gathered(own)
        same = [same_probe(found[0], other, precision) for other in found]
        if not all(same):
            raise not_allowed(
                f"data_parallel is not allowed here: rank {same.index(False)} computes other "
                "gradients than rank 0 for the same row numbers. Give every rank the same X and y, "
                "and the same functions.",
                "ranks-are-missing-or-differ",
            )
