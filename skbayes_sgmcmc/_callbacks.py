"""Support for callbacks of scikit-learn 1.9 and later; without effect in older versions."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # see _sklearn.py
    HAS_CALLBACKS: bool

    class CallbackSupportMixin:
        """Callbacks of a fit."""

        def set_callbacks(self, *callbacks: Any) -> Self: ...

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]: ...

else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks

        HAS_CALLBACKS = True
    except ImportError:  # scikit-learn < 1.9
        HAS_CALLBACKS = False

        class CallbackSupportMixin:
            """Stands in for scikit-learn's class."""

        def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
            """Return the method unchanged."""
            return method


#: number of blocks of a run; each is one progress event
BLOCKS = 20


class ProgressLine:
    """One line that says how far a fit is: a bar on a screen, printed again in a file."""

    def __init__(self, name: str):
        self.name = name
        self.screen = is_screen(sys.stdout)
        self.figures: dict[str, float] = {}
        self.first: tuple[float, int] | None = None
        self.width = 0

    def show(self, step: int, n_steps: int) -> None:
        """Print the step, the time that is left, and the latest figures."""
        now = time.monotonic()
        if self.first is None or step <= self.first[1]:  # the first, or those of a repeated run
            self.first = now, step  # a fit that resumes does not begin at 0
        done = "#" * (BLOCKS * step // n_steps)  # plain characters, which every screen has
        bar = f"|{done:.<{BLOCKS}}| " if self.screen else ""
        percent, count = f"{100 * step // n_steps:3d}%", f", step {step} of {n_steps}"
        began, start = self.first
        figures = [f"{name} {value:.3g}" for name, value in self.figures.items()]
        if start < step < n_steps:
            left = round((now - began) * (n_steps - step) / (step - start))
            figures.insert(0, f"{left // 60}:{left % 60:02d} left")
        rest = "".join(f", {each}" for each in figures)
        texts = [f"[{self.name}] {bar}{percent}{count}{rest}",
                 f"[{self.name}] {bar}{percent}{rest}",
                 f"[{self.name}] {percent}{rest}", f"{percent}{rest}"]  # fmt: skip
        if self.screen:
            # what fills more than one line of a terminal cannot be renewed
            room = columns_of(sys.stdout) - 1
            text = next((each for each in texts if len(each) <= room), texts[-1][:room])
            print("\r" + text.ljust(min(self.width, room)), end="", flush=True)
        else:
            text = texts[0]
            print(text, flush=True)
        self.width = len(text)

    def close(self) -> None:
        """End the line."""
        if self.screen and self.width:
            print(flush=True)


def is_screen(stream: Any) -> bool:
    """Whether a line of the stream can be renewed: that of a terminal or of a notebook."""
    notebook = type(stream).__module__.partition(".")[0] == "ipykernel"
    return notebook or bool(getattr(stream, "isatty", bool)())


def columns_of(stream: Any) -> int:
    """Width of a terminal; more than any line where it is not known, as in a notebook."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or sys.maxsize
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


def leave_callbacks(estimator: Any) -> None:
    """Remove the callbacks of an estimator, if it can have any."""
    if HAS_CALLBACKS:
        estimator.set_callbacks()


class Progress:
    """Converts reports of a run to ``BLOCKS`` callback tasks, and prints them if verbose.

    ``data`` are "X" and "y" of the call, for callbacks that request them.
    """

    def __init__(self, estimator: Any, data: dict[str, Any]):
        self.estimator = estimator
        self.data = data
        self.done = self.shown = 0
        self.line = ProgressLine(type(estimator).__name__) if estimator.verbose else None
        self.context: Any = None
        if HAS_CALLBACKS:
            self.context = estimator._init_callback_context(max_subtasks=BLOCKS)
            self.context.call_on_fit_task_begin(estimator=estimator, **data)

    def __call__(self, fraction: float, fitted: Callable[[], dict[str, Any] | None]) -> None:
        """Report that this fraction of the run is done.

        ``fitted`` returns the attributes with which a copy of the estimator predicts as if the fit
        had ended here, or None if that is not possible yet. It is called only for callbacks that
        request this copy.
        """
        blocks = int(fraction * BLOCKS)
        while self.done < blocks:
            self.done += 1
            if self.context is not None:
                block = self.context.subcontext(task_name="block of steps")
                block.call_on_fit_task_begin(estimator=self.estimator, **self.data)
                self._end(block, fitted)

    def show(self, step: int, n_steps: int, figures: Callable[[], dict[str, float]]) -> None:
        """Print the progress if verbose. ``figures`` are computed ``BLOCKS`` times."""
        if self.line is None:
            return
        blocks = BLOCKS * step // n_steps
        if blocks > self.shown:
            self.line.figures = {k: v for k, v in figures().items() if math.isfinite(v)}
        if blocks > self.shown or self.line.screen:
            self.line.show(step, n_steps)
        self.shown = blocks

    def close(self) -> None:
        """Report the end of the fit."""
        if self.line is not None:
            self.line.close()
        if self.context is not None:
            self._end(self.context, dict)

    def _end(self, context: Any, fitted: Callable[[], dict[str, Any] | None]) -> None:
        context.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=fitted, **self.data
        )
