"""A callback that scores the averaged prediction while draws accumulate."""

from __future__ import annotations

from typing import Any

from .._callbacks import HAS_CALLBACKS
from .._exceptions import explained, not_allowed
from ._curves import Curves, kind_of_curves


class LearningCurve:
    r"""Scikit-learn callback that scores the averaged prediction on held-out rows during ``fit``.

    Register the callback with ``estimator.set_callbacks(LearningCurve(X, y))``. A fit reports its
    progress twenty times. At each report, every new draw is evaluated once and added to running
    averages of the predictions. Only these averages are stored: (n_chains, n_samples, n_outputs)
    numbers. The callback changes neither the draws nor their random numbers.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        Held-out rows, in the form that the estimator receives. If the estimator follows a scaler in
        a pipeline, these are scaled rows.
    y : array of shape (n_samples,) or (n_samples, n_outputs)
        Labels or targets of the rows. Bounds of times have the NLL only.
    verbose : int, default=0
        If positive, print a line at each report with new draws.

    Attributes
    ----------
    log : list of dict
        One entry for each report with new draws. "step": number of steps so far. "n_draws": number
        of draws per chain so far. The other keys are metrics with the score of the average so far:
        "error", "accuracy" and "nll" for classifiers, "rmse" and "nll" for regressors, as in
        :class:`LearningCurveDisplay`.
    values : dict of str to array of shape (n_draws,)
        Score of the average over the first t draws of every chain, for each metric.
    chain_values, draw_values : dict of str to array of shape (n_chains, n_draws)
        Scores of the averages over single chains, and scores of single draws, for each metric.

    Raises
    ------
    ImportError
        Scikit-learn is older than 1.9.

    See Also
    --------
    LearningCurveDisplay : Plot of this record, or of a fitted estimator.

    Notes
    -----
    The recorded curves equal those of :meth:`LearningCurveDisplay.from_estimator` for the same
    draws. A fit that resumes from a checkpoint scores the draws of the file at its first report.
    With ``n_jobs``, the chains report only when they end. In ``partial_fit``, the draws that will
    be kept are known only at the end of the call. In both cases there is a single report with all
    draws. If a chain diverges, its draws are lost, and the curves of the other chains are
    recomputed. A run that goes on, or is repeated, has draws of its own. In either case, curves and
    ``log`` begin anew.
    Statistics of batch norms are computed at each report for the new draws.

    Each fit starts a new record. Inside a search, the callback records only the last fit in this
    process, which is the refit with the best parameters. A saved estimator contains its callbacks.
    To leave them out, call ``estimator.set_callbacks()`` before saving.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import LearningCurve, LearningCurveDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> curve = LearningCurve(X[1::2], y[1::2])
    >>> clf = BayesianLogisticRegression(random_state=0).set_callbacks(curve)
    >>> clf = clf.fit(X[::2], y[::2])
    >>> bool(curve.values["accuracy"][-1] == clf.score(X[1::2], y[1::2]))
    True
    >>> curve.log[-1]["n_draws"], curve.draw_values["nll"].shape
    (1000, (4, 1000))
    >>> display = LearningCurveDisplay.from_callback(curve, per_chain=True)
    """

    def __init__(self, X: Any, y: Any, *, verbose: int = 0):
        if not HAS_CALLBACKS:
            raise explained(
                ImportError(
                    "LearningCurve needs the callbacks of scikit-learn 1.9 or newer. With older "
                    "versions, LearningCurveDisplay.from_estimator computes the same curves "
                    "after the fit."
                ),
                "an-extra-is-missing",
            )
        self.X = X
        self.y = y
        self.verbose = verbose
        self.curves: Curves | None = None
        self.estimator_name = ""
        self._begin()

    def _begin(self) -> None:
        self.log: list[dict[str, Any]] = []
        self.values: dict[str, Any] = {}
        self.chain_values: dict[str, Any] = {}
        self.draw_values: dict[str, Any] = {}

    # scikit-learn's protocol ----------------------------------------------------------------------

    def setup(self, estimator: Any, context: Any) -> None:
        """Check the rows against those of the fit, and start a new record."""
        if not hasattr(estimator, "_validate_rows"):
            raise not_allowed(
                f"estimator={estimator!r} is not allowed: set LearningCurve on an estimator of "
                "this package, which may be a step of a pipeline."
            )
        self.estimator_name = type(estimator).__name__
        self._begin()
        self.curves = kind_of_curves(estimator)(estimator, self.X, self.y)

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing; the record is kept."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, fitted_estimator: Any = None
    ) -> None:
        """Score the new draws."""
        if fitted_estimator is None or self.curves is None:
            return
        new = self.curves.extend(fitted_estimator)
        if not new:
            return
        if new.start == 0:
            self.log = []  # the draws of earlier entries are gone
        self.values, self.chain_values, self.draw_values = self.curves.scores()
        scores = {name: float(values[-1]) for name, values in self.values.items()}
        entry = {"step": fitted_estimator.n_steps_, "n_draws": new.stop}
        self.log.append(entry | scores)
        if self.verbose:
            listed = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            print(
                f"[{self.estimator_name}] step {entry['step']}: {entry['n_draws']} draws per "
                f"chain, {listed}",
                flush=True,
            )
