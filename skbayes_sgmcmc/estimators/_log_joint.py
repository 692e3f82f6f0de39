"""The method ``log_joint`` of classifiers and regressors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from .._modes import usual_modes

if TYPE_CHECKING:
    from .._engine.log_joint import LogJoint


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
