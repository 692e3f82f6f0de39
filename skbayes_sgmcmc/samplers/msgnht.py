r"""Multivariate stochastic gradient Nose-Hoover thermostat (Li, Chen, Fan & Carin 2016).

SDE (unscaled time): :math:`d\theta = p\,dt;\; dp = -\xi\odot p\,dt - \nabla U\,dt +
\sqrt{2DT}\,dW;\; d\xi = (p\odot p/T - 1)/\mu\,dt`. The marginal invariant density of theta is
:math:`e^{-U/T}`.
"""

from __future__ import annotations

from torch import Tensor

from ._momentum import ThermostatSampler


class MSGNHT(ThermostatSampler):
    r"""Stochastic gradient Nose-Hoover thermostat with one friction variable per parameter.

    Euler step: :math:`\theta \leftarrow \theta + v;\; v \leftarrow v - a\odot v - \eta g
    + \sqrt{2\alpha\eta T/N}\,\xi;\; a \leftarrow a + (v\odot v - \eta T/N)/(T\mu)`.
    The paper's symmetric splitting is ``integrator="splitting"``.

    Parameters
    ----------
    friction : float, default=0.1
        alpha, the friction of one step. It sets the injected noise and the initial value of a.
        With 0 no noise is injected, for gradients with enough noise of their own.
    diffusion : float or None, default=None
        The paper's D. If given, alpha = D h = D sqrt(eta/N) replaces ``friction``.
    mass : float or "auto", default="auto"
        Thermostat mass mu > 0. "auto" is (eta/N) / (0.3 alpha)^2: the thermostat relaxes in a
        few 1/alpha steps. With the published value, 1.0, it needs about alpha N / eta steps.
    initial_friction : float or None, default=None
        Initial value of a, which is xi_0 h in the paper's symbols. None means alpha.

    References
    ----------
    Li, Chen, Fan & Carin (2016), High-order stochastic gradient thermostats for Bayesian learning
    of deep models, AAAI.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import MSGNHT
    >>> MSGNHT(diffusion=5.0, mass=1.0)
    MSGNHT(diffusion=5.0, mass=1.0)
    """

    def kinetic(self, v: Tensor) -> Tensor:
        return v * v
