"""Methods that classifiers and regressors share: ``fit`` and ``log_joint``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import clone

from .._modes import usual_modes

if TYPE_CHECKING:
    from .._engine.log_joint import LogJoint
    from ._base import SGMCMCEstimator

Fitted = TypeVar("Fitted", bound="SGMCMCEstimator")


def fit(self: Fitted, X: Any, y: Any, sample_weight: Any = None) -> Fitted:
    """Sample the posterior of the parameters.

    Parameters
    ----------
    X : array, CSR matrix or table of shape (n_samples, n_features)
        Rows. Linear models and spike-and-slab priors take CSR matrices. Estimators with
        ``categorical_features`` take tables of pandas, polars and pyarrow with categories and
        gaps.
    y : array of shape (n_samples,) or (n_samples, n_targets)
        Targets of a regressor, or labels of at least two classes. Classifiers with a network take
        several columns, in a sparse format, too: labels of 0 and 1 (multilabel), or any others
        (multi-output).
    sample_weight : array of shape (n_samples,) or None, default=None
        Nonnegative weights of the rows. A weight is the exponent of the likelihood of its row.

    Returns
    -------
    self

    Raises
    ------
    ValueError
        A parameter or the data are invalid.
    SamplingError
        Every chain diverged. The estimator then stays as it was before the call.
    """
    self._fit(X, y, sample_weight)
    return self


@usual_modes()
def log_joint(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> LogJoint:
    """Make the log joint density of the model that ``fit`` would sample.

    Use it where you want a loop of your own: an optimiser, another sampler, a diagnostic. The
    estimator is not fitted, and stays as it is.

    Parameters
    ----------
    X, y, sample_weight : arrays
        Rows, as for ``fit``.

    Returns
    -------
    LogJoint
        A function of a tensor theta, (n_parameters,) or (n_positions, n_parameters), that
        returns log p(theta) + log p(y | X, theta), and can be differentiated. Called with
        numbers of rows as a second argument, it estimates this from a minibatch. Its methods
        are ``log_prior``, ``log_likelihood``, ``start(random_state)`` and ``unpack(theta)``,
        which names the parameters.

    Raises
    ------
    ValueError
        A parameter or the data are invalid, or the prior is one of spikes and slabs.
    """
    from .._engine.log_joint import LogJoint

    one: Any = clone(self)
    task = one._task(X, y, sample_weight)
    return LogJoint(one._problem(task.model, task.rows, task.settings))
