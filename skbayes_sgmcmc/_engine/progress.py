"""What a run reports while it goes on: how far it is, and how well its chains fit the rows."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._arrays import Array
from .._limits import LIMITS

if TYPE_CHECKING:
    from .chains import Chains


@dataclass(frozen=True, kw_only=True)
class Report:
    """Progress of a run at one time."""

    #: number of steps so far, and of the whole run
    step: int
    n_steps: int
    #: returns the negative log likelihood of a row, averaged over the chains' positions; NaN if the
    #: model has none
    nll: Callable[[], float]
    #: returns the draws (chains, draws, n_kept) so far, and their weights, if any; None if the
    #: draws are too many to come from workers
    draws: Callable[[], tuple[Array, Array | None] | None]
    #: whether R-hat of the chains' parameters means something
    one_mode: bool
    #: whether the chains run in workers
    in_workers: bool = False

    @property
    def fraction(self) -> float:
        """Finished fraction of the run, in whole percent."""
        return (100 * self.step // self.n_steps) / 100.0


#: called about 100 times in a run
OnProgress = Callable[[Report], None]


@torch.no_grad()
def mean_nll(chains: Chains) -> float:
    """Negative log likelihood of a row, averaged over some rows and the chains' positions."""
    target, model = chains.target, chains.target.model
    theta = target.to_theta(chains.phi)
    return float(-target.mean_of_rows(model.reported, theta, model.n_reported).mean())


class Board:
    """A folder where workers on this machine write how far they are, each in a file of its own."""

    def __init__(self, folder: Path, n_groups: int):
        self.folder = folder
        self.files = [folder / f"{group}.npz" for group in range(n_groups)]
        self.times = [-np.inf] * n_groups

    def write(self, group: int, report: Report) -> None:
        """Replace what a worker has written, unless it has just done so.

        It has no effect in workers on other machines, nor if the disk is full: a fit does not end
        because of its reports.
        """
        now = time.monotonic()
        soon = now < self.times[group] + LIMITS.look_seconds and report.step < report.n_steps
        if soon or not self.folder.exists():
            return
        self.times[group] = now
        found: dict[str, Any] = {"step": np.array(report.step), "nll": np.array(report.nll())}
        known = report.draws()
        if report.one_mode and known is not None and known[0].nbytes <= LIMITS.shared_bytes:
            found["draws"] = known[0]
        new = self.folder / f"new-{group}.npz"
        with suppress(OSError):
            np.savez(new, **found)
            new.replace(self.files[group])  # at once, so that no half of a file is read

    def read(self, n_steps: int) -> Report | None:
        """The report of all workers: the slowest one's step, the average NLL; None if one lacks."""
        try:
            reports = [np.load(file) for file in self.files]
        except OSError:
            return None

        def draws() -> tuple[Array, None]:
            parts = [report["draws"] for report in reports]
            kept = min(part.shape[1] for part in parts)
            return np.concatenate([part[:, :kept] for part in parts]), None

        return Report(
            step=min(int(report["step"]) for report in reports),
            n_steps=n_steps,
            nll=lambda: float(np.mean([report["nll"] for report in reports])),
            draws=draws,
            one_mode=all("draws" in report for report in reports),
            in_workers=True,
        )


@contextmanager
def watched(on_progress: OnProgress, n_groups: int, n_steps: int) -> Iterator[Board]:
    """A board for workers; a thread reports of it while they run."""
    with tempfile.TemporaryDirectory() as folder:
        board = Board(Path(folder), n_groups)
        ended, before = threading.Event(), 0.0

        def tell() -> None:
            nonlocal before
            report = board.read(n_steps)
            if report is not None and report.fraction > before:
                before = report.fraction
                on_progress(report)

        def look() -> None:
            while not ended.wait(LIMITS.look_seconds):
                tell()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield board
        finally:
            ended.set()
            thread.join()
        tell()
