"""The two phases of stochastic-gradient Langevin dynamics: optimisation, then sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._exceptions import not_allowed
from .._pipelines import last_step
from .._validation import check_int, check_real
from ..diagnostics import noise_variances
from ..schedules import as_schedule
from ._common import Display, pyplot


@dataclass(eq=False, repr=False)
class NoisePhaseDisplay(Display):
    """Variances per step of the gradient noise and of the injected noise, along a schedule.

    While the noise of the minibatches dominates, a chain optimises. Once the injected noise is far
    above it in every coordinate, the chain samples its posterior (Welling & Teh 2011,
    figure 2 left).

    Create a display with :meth:`from_estimator` or :meth:`from_covariance`.

    Parameters
    ----------
    steps : array of shape (n_points,)
        Step numbers of the variances.
    smallest, largest : array of shape (n_points,)
        Variance of the gradient noise in the coordinates where it is smallest and largest.
    injected : array of shape (n_points,)
        Variance of the injected noise.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curves.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    skbayes_sgmcmc.diagnostics.sampling_threshold : The ratio of the two in the worst direction.

    References
    ----------
    Welling & Teh (2011), Bayesian Learning via Stochastic Gradient Langevin Dynamics.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.inspection import NoisePhaseDisplay
    >>> from skbayes_sgmcmc.schedules import Polynomial
    >>> scores = np.random.default_rng(0).standard_normal((1000, 3))
    >>> display = NoisePhaseDisplay.from_covariance(
    ...     np.cov(scores.T), step_size=Polynomial(1.0, 0.001), n_steps=10_000, n=1000,
    ...     batch_size=10)
    >>> bool(display.largest[0] > display.injected[0])
    True
    >>> bool(display.largest[-1] < display.injected[-1])
    True

    Of a fitted estimator:

    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = BayesianLogisticRegression(sampler="sgld", step_size=Polynomial(1.0, 0.1),
    ...                                  batch_size=10, thinning=20, random_state=0)
    >>> clf.fit(scale(X[:, [1, 4, 8]]), y)
    BayesianLogisticRegression(...)
    >>> display = NoisePhaseDisplay.from_estimator(clf)
    >>> bool(display.largest[-1] < display.injected[-1])
    True
    """

    steps: Array
    smallest: Array
    largest: Array
    injected: Array

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the phases of a fit.

        With a preconditioner, coordinates are scaled such that the injected noise is the same in
        all directions.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator with ``sampling_threshold_``, or a pipeline or search that ends in one.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the curves, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        NoisePhaseDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        (last,) = last_step(estimator)
        trace = getattr(last, "sampling_threshold_", None)
        if trace is None:
            raise not_allowed(
                f"estimator={estimator!r} is not allowed: the noise of its gradients is not known; "
                "give one with a sampler that injects noise, such as sampler='sgld'."
            )
        noise = trace["gradient_noise"]
        return cls(trace["step"] - 1, noise[:, 0], noise[:, 1], trace["injected_noise"]).plot(
            ax, **kwargs
        )

    @classmethod
    def from_covariance(
        cls,
        covariance: Any,
        *,
        step_size: Any,
        n_steps: int,
        n: float,
        batch_size: int,
        temperature: float = 1.0,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the phases of a run.

        Parameters
        ----------
        covariance : array of shape (n_parameters, n_parameters)
            Covariance of the scores (gradients of the log likelihood) of single rows.
        step_size : float or Schedule
            eta, in the units of :func:`~skbayes_sgmcmc.diagnostics.noise_variances`.
        n_steps : int
            Number of steps of the run.
        n : float
            N, the number of data.
        batch_size : int
            Number of rows in a minibatch.
        temperature : float, default=1.0
            T.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the curves, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        NoisePhaseDisplay
        """
        pyplot(f"{cls.__name__}.from_covariance")  # before any work
        check_int("n_steps", n_steps)
        check_real("n", n, low=0.0)
        check_int("batch_size", batch_size)
        check_real("temperature", temperature, low=0.0)
        steps = np.unique(np.geomspace(1, n_steps, min(200, n_steps)).astype(int)) - 1
        etas = as_schedule("step_size", step_size).values(steps, n_steps)
        unit, heat = noise_variances(
            np.asarray(covariance),
            step_size=1.0,
            n=n,
            batch_size=batch_size,
            temperature=temperature,
        )
        # the former grows like eta squared, the latter like eta
        return cls(steps, etas**2 * unit.min(), etas**2 * unit.max(), etas * heat).plot(
            ax, **kwargs
        )

    def _draw(self, **kwargs: Any) -> None:
        """Plot the variances against the steps, both on logarithmic axes."""
        axes = self.ax_
        at = self.steps + 1
        axes.fill_between(at, self.smallest, self.largest, color="C1", alpha=0.3, linewidth=0)
        axes.plot(at, self.largest, **({"color": "C1", "label": "gradient noise"} | kwargs))
        axes.plot(at, self.injected, **({"color": "C0", "label": "injected noise"} | kwargs))
        axes.set(xscale="log", yscale="log", xlabel="step", ylabel="variance per step")
        axes.legend()
