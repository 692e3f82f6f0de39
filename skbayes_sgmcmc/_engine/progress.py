"""What a run reports while it goes on: how far it is, and how well its chains fit the rows."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..models._protocol import Model

if TYPE_CHECKING:
    from .chains import Chains

#: rows of which a report has the negative log likelihood
REPORTED_ROWS = 500
#: seconds between two looks at what workers have reported
LOOK_EVERY = 0.25


@dataclass(frozen=True, kw_only=True)
class Report:
    """Progress of a run at one time.

    Attributes
    ----------
    step, n_steps : int
        Number of steps so far, and of the whole run.
    nll : callable
        Returns the negative log likelihood of a row, averaged over the chains' positions; NaN if
        the model has none.
    chains : Chains or None
        The chains at this time; None if they run in workers.
    one_mode : bool
        Whether R-hat of the chains' parameters means something.
    """

    step: int
    n_steps: int
    nll: Callable[[], float]
    chains: Chains | None = None
    one_mode: bool = False

    @property
    def fraction(self) -> float:
        """Finished fraction of the run, in whole percent."""
        return (100 * self.step // self.n_steps) / 100.0


#: called about 100 times in a run
OnProgress = Callable[[Report], None]


@torch.no_grad()
def mean_nll(chains: Chains) -> float:
    """Negative log likelihood of a row, averaged over some rows and the chains' positions."""
    target = chains.target
    if type(target.model).log_lik is Model.log_lik:
        return np.nan
    return float(-target.log_lik_of_rows(target.to_theta(chains.phi), REPORTED_ROWS).mean())


class Board:
    """A file in which workers on this machine write how far they are.

    Parameters
    ----------
    path : Path
        The file.
    n_groups : int
        Number of workers.
    """

    def __init__(self, path: Path, n_groups: int):
        self.path = path
        self.shape = (n_groups, 2)

    def write(self, group: int, report: Report) -> None:
        """Replace what a worker has written; without effect in workers on other machines."""
        if self.path.exists():
            numbers = np.memmap(self.path, float, "r+", shape=self.shape)
            numbers[group] = report.step, report.nll()

    def read(self, n_steps: int) -> Report:
        """The report of all workers together: the step of the slowest, the average of the NLL."""
        numbers = np.array(np.memmap(self.path, float, "r", shape=self.shape))
        return Report(
            step=int(numbers[:, 0].min()), n_steps=n_steps, nll=lambda: float(numbers[:, 1].mean())
        )


@contextmanager
def watched(on_progress: OnProgress, n_groups: int, n_steps: int) -> Iterator[Board]:
    """A board for workers, of which a thread reports while they run."""
    with tempfile.TemporaryDirectory() as folder:
        board = Board(Path(folder) / "progress", n_groups)
        np.zeros(board.shape).tofile(board.path)
        ended = threading.Event()

        def look() -> None:
            before = 0.0
            while not ended.wait(LOOK_EVERY):
                report = board.read(n_steps)
                if report.fraction > before:
                    before = report.fraction
                    on_progress(report)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield board
        finally:
            ended.set()
            thread.join()
        on_progress(board.read(n_steps))
