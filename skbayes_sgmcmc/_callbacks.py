"""Progress through scikit-learn's callbacks (1.9 and later); without effect in older versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    HAS_CALLBACKS = True
except ImportError:  # scikit-learn < 1.9
    HAS_CALLBACKS = False

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in for scikit-learn's class."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method unchanged."""
        return method


#: one progress event per block of a run
BLOCKS = 20


class Progress:
    """Turns finished fractions of a run into ``BLOCKS`` callback tasks, and prints if verbose."""

    def __init__(self, estimator: Any):
        self.estimator = estimator
        self.done = 0
        self.context: Any = None
        if HAS_CALLBACKS:
            self.context = estimator._init_callback_context(max_subtasks=BLOCKS)
            self.context.call_on_fit_task_begin(estimator=estimator)

    def __call__(self, fraction: float) -> None:
        blocks = int(fraction * BLOCKS)
        while self.done < blocks:
            self.done += 1
            if self.estimator.verbose:
                name = type(self.estimator).__name__
                print(f"[{name}] {100 * self.done // BLOCKS}% of the steps", flush=True)
            if self.context is not None:
                block = self.context.subcontext(task_name="block of steps")
                block.call_on_fit_task_begin(estimator=self.estimator)
                block.call_on_fit_task_end(estimator=self.estimator)

    def close(self) -> None:
        """The fit has ended."""
        if self.context is not None:
            self.context.call_on_fit_task_end(estimator=self.estimator)
