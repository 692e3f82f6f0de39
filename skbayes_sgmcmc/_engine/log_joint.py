"""The log joint density of an estimator's model, for loops that users write themselves."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._data.minibatch import Minibatches
from .._exceptions import not_allowed
from .._modes import in_full_precision
from .._validation import check_random_state
from .problem import Problem
from .target import Target


class LogJoint:
    r"""log p(theta) + log p(y | X, theta) of a model, as a differentiable function of theta.

    The method ``log_joint`` of classifiers and regressors makes it. Minus this function is the
    potential U that their chains sample at temperature 1.

    Parameters
    ----------
    problem : Problem
        The model and its rows, and the precision and the device of theta.

    Attributes
    ----------
    n_parameters : int
        Length of theta.
    n_rows : int
        Number of rows.

    Examples
    --------
    Maximise it by a loop of one's own, with minibatches:

    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianModuleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianModuleClassifier(torch.nn.Linear(4, 3), prior_scale=1.0)
    >>> log_joint = clf.log_joint(X, y)
    >>> theta = log_joint.start(random_state=0).requires_grad_()
    >>> adam = torch.optim.Adam([theta], lr=0.1)
    >>> for step in range(200):
    ...     rows = torch.randperm(log_joint.n_rows)[:50]
    ...     loss = -log_joint(theta, rows) / log_joint.n_rows
    ...     adam.zero_grad()
    ...     loss.backward()
    ...     adam.step()
    >>> bool(-log_joint(theta) / log_joint.n_rows < 0.4)
    True
    >>> log_joint.unpack(theta)["weight"].shape
    (3, 4)
    """

    def __init__(self, problem: Problem):
        model, data = problem.model, problem.data
        if not model.marginal:
            raise not_allowed(
                f"log_joint is not allowed for {type(model).__name__}: given its parameters alone, "
                "its density is not known. Give another prior, and prune=None."
            )
        self._target = Target(model.bound(data), data, dtype=problem.dtype, device=problem.device)
        self.n_parameters, self.n_rows = model.n_parameters, data.n_rows
        # theta does not have all blocks of draws: learned scales may be integrated out
        blocks = self._blocks(np.zeros((1, self.n_parameters)))
        self._names = [name for name, values in blocks.items() if np.isfinite(values).all()]

    def __repr__(self) -> str:
        return f"LogJoint(n_parameters={self.n_parameters}, n_rows={self.n_rows})"

    def start(self, random_state: Any = None) -> Tensor:
        """A starting position (n_parameters,), as ``init="random"`` or "module" draws it.

        Parameters
        ----------
        random_state : int, RandomState or None, default=None
            Seed.
        """
        seed = check_random_state(random_state).randint(2**31 - 1)
        start = self._target.model.init(np.random.default_rng(seed))
        return torch.from_numpy(start).to(self._target.like)

    def __call__(self, theta: Tensor, rows: Any = None) -> Tensor:
        """log p(theta) + log p(y | X, theta).

        Parameters
        ----------
        theta : Tensor of shape (n_parameters,) or (n_positions, n_parameters)
            One or several positions.
        rows : array of int or None, default=None
            Numbers of the rows of a minibatch. Their log likelihood is multiplied by the number of
            all rows over their number. None: all rows.

        Returns
        -------
        Tensor of shape () or (n_positions,)
        """
        return self.log_prior(theta) + self.log_likelihood(theta, rows)

    def log_prior(self, theta: Tensor) -> Tensor:
        """log p(theta), of shape () or (n_positions,)."""
        at = self._positions(theta)
        with in_full_precision():
            return self._target.model.log_prior(at).reshape(theta.shape[:-1])

    def log_likelihood(self, theta: Tensor, rows: Any = None) -> Tensor:
        """log p(y | X, theta), of all rows or estimated from some; see :meth:`__call__`."""
        at, target = self._positions(theta), self._target
        if rows is None:
            with in_full_precision():
                return target.log_likelihood(at).reshape(theta.shape[:-1])
        chosen = np.asarray(rows)
        if chosen.ndim != 1 or len(chosen) == 0 or chosen.dtype.kind not in "iu":
            given = reprlib.repr(rows)
            raise not_allowed(f"rows={given} is not allowed: give some numbers of rows.")
        if chosen.min() < 0 or chosen.max() >= self.n_rows:
            raise not_allowed(
                f"rows={reprlib.repr(rows)} is not allowed: rows have the numbers 0 to "
                f"{self.n_rows - 1}."
            )
        batch = Minibatches(target.data, len(chosen)).batch_of(chosen)
        scale = target.data.scale * self.n_rows / len(chosen)
        with in_full_precision():
            found = (target.model.log_lik(at, batch) * batch.weight).sum(1) * scale
        return found.reshape(theta.shape[:-1])

    def unpack(self, theta: Tensor) -> dict[str, Array]:
        """Arrays of the parameters by name, as in ``posterior_``; several positions come first."""
        parts = self._blocks(self._positions(theta).detach().cpu().numpy())
        return {
            name: parts[name].reshape((*theta.shape[:-1], *parts[name].shape[1:]))
            for name in self._names
        }

    def _blocks(self, positions: Array) -> dict[str, Array]:
        """Blocks of draws with some positions, and nan for what is recorded beside them."""
        model = self._target.model
        recorded = np.full((len(positions), model.n_kept - model.n_parameters), np.nan)
        return model.unpack(np.hstack([positions, recorded.astype(positions.dtype)]))

    def _positions(self, theta: Any) -> Tensor:
        if not isinstance(theta, Tensor) or theta.ndim not in (1, 2):
            raise not_allowed(
                f"theta={reprlib.repr(theta)} is not allowed: give a tensor with one or two axes, "
                "such as torch.as_tensor(theta)."
            )
        if theta.shape[-1] != self.n_parameters:
            raise not_allowed(
                f"theta of shape {tuple(theta.shape)} is not allowed: a position has "
                f"{self.n_parameters} numbers."
            )
        return theta.to(self._target.like.device, self._target.like.dtype).reshape(
            -1, self.n_parameters
        )
