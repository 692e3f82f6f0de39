r"""Stochastic gradient Nose-Hoover thermostat (Ding et al. 2014), with one thermostat per chain.

SDE (unscaled time): :math:`d\theta = p\,dt;\; dp = -\xi p\,dt - \nabla U\,dt + \sqrt{2DT}\,dW;\;
d\xi = (\overline{p^2}/T - 1)/\mu\,dt`. The marginal invariant density of theta is
:math:`e^{-U/T}` for any mass mu, even if the gradient carries white noise of unknown size.
"""

from __future__ import annotations

from torch import Tensor

from ._momentum import ThermostatSampler


class SGNHT(ThermostatSampler):
    r"""Stochastic gradient Nose-Hoover thermostat with one friction variable per chain.

    Euler step: :math:`\theta \leftarrow \theta + v;\; v \leftarrow v - a v - \eta g
    + \sqrt{2\alpha\eta T/N}\,\xi;\; a \leftarrow a + (\overline{v^2} - \eta T/N)/(T\mu)`,
    where the mean is over the parameters of the chain.

    Parameters
    ----------
    friction : float, default=0.1
        alpha, the friction of one step. It sets the injected noise and the initial value of a.
        With 0 no noise is injected, for gradients with enough noise of their own.
    diffusion : float or None, default=None
        D of Li et al. (2016). If given, alpha = D h = D sqrt(eta/N) replaces ``friction``.
    mass : float or "auto", default="auto"
        Thermostat mass mu > 0. "auto" is (eta/N) / (0.3 alpha)^2: the thermostat relaxes in a
        few 1/alpha steps. With the published value, 1.0, it needs about alpha N / eta steps.
    initial_friction : float or None, default=None
        Initial value of a, which is xi_0 h in the papers' symbols. None means alpha.

    References
    ----------
    Ding, Fang, Babbush, Chen, Skeel & Neven (2014), Bayesian sampling using stochastic gradient
    thermostats.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import SGNHT
    >>> SGNHT(mass=1.0)
    SGNHT(mass=1.0)
    """

    def kinetic(self, v: Tensor) -> Tensor:
        return (v * v).mean(1, keepdim=True)
