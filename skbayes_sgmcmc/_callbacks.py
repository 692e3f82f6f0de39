"""Support for callbacks of scikit-learn 1.9 and later; without effect in older versions."""

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


#: number of blocks of a run, each of which is one progress event
BLOCKS = 20


class Progress:
    """Converts finished fractions of a run to ``BLOCKS`` callback tasks, and prints if verbose.

    Parameters
    ----------
    estimator : estimator
        Estimator whose callbacks are called.
    data : dict
        "X" and "y" of the fit, for callbacks that request them. Values may be functions.
    """

    def __init__(self, estimator: Any, data: dict[str, Any]):
        self.estimator = estimator
        self.data = data
        self.done = 0
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
            if self.estimator.verbose:
                name = type(self.estimator).__name__
                print(f"[{name}] {100 * self.done // BLOCKS}% of the steps", flush=True)
            if self.context is not None:
                block = self.context.subcontext(task_name="block of steps")
                block.call_on_fit_task_begin(estimator=self.estimator, **self.data)
                self._end(block, fitted)

    def close(self) -> None:
        """Report the end of the fit."""
        if self.context is not None:
            self._end(self.context, dict)

    def _end(self, context: Any, fitted: Callable[[], dict[str, Any] | None]) -> None:
        context.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=fitted, **self.data
        )
