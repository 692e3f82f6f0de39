"""Bayesian multilayer perceptrons for regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from ._descriptions import NETWORK, PERCEPTRON, SHARED, described
from ._network import NetworkRegressor
from ._perceptron import Perceptron

if TYPE_CHECKING:
    from ..models.likelihoods.distributions import TorchLikelihood
    from ..models.likelihoods.student import StudentT
    from ..models.likelihoods.tweedie import Tweedie
    from ..priors import LearnedScale, Prior
    from ..samplers import Sampler


@described(SHARED | NETWORK | PERCEPTRON)
@dataclass(eq=False, repr=False)
class BayesianMLPRegressor(Perceptron, NetworkRegressor):
    r"""Bayesian multilayer perceptron regressor, sampled by stochastic-gradient MCMC.

    .. math::
        y \sim N(f(x), \sigma^2),\quad f(x) = W_L\, a(\dots a(W_1 x + b_1) \dots) + b_L,
        \quad W, b \sim \text{prior}

    Targets are standardised internally. Predictions are in the units of y. With ``noise`` and
    ``likelihood``, the noise may depend on x, may have heavy tails, or y may be counts.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(16, 16, 16, 16)
        Number of units of each hidden layer. Several narrow layers predicted better than one wide
        layer on every table that was tried, at the same cost.
    {activation} {prior} {prior_scale}
    likelihood : str, StudentT, Tweedie or TorchLikelihood, default="normal"
        Distribution of the targets: "normal"; "student_t", with heavy tails that reduce the
        influence of outliers, or ``StudentT(df=4.0)`` with given degrees of freedom; for counts,
        "poisson" or "negative_binomial", and with more zeros "zero_inflated_poisson" or
        "zero_inflated_negative_binomial"; for amounts that are exactly zero in some rows,
        "tweedie" or ``Tweedie(power=1.5)``. Means of counts and amounts are m exp(f(x)), where m is
        the mean of y; above m + sd(y) they are linear in f(x). Any other distribution is a
        :class:`TorchLikelihood`.
    noise : "auto", "infer", "heteroscedastic" or float, default="auto"
        Standard deviation sigma of the noise. A number, in units of y, holds for all outputs.
        "infer": each output has its own sigma with the prior log(sigma / 0.3 sd(y)) ~ N(0, 1), or
        Laplace(0, 1) with ``prior="laplace"``. "heteroscedastic": sigma depends on x, through a
        second output of the network for each target. With ``likelihood="student_t"``, sigma is the
        scale, and sd(y) is 1.48 times the median distance of y from its median, which outliers do
        not change. Counts have no such noise. "auto": "heteroscedastic" with the normal likelihood
        and prior, unless the rows' weights add up to less than 20; otherwise "infer".
    {categorical_features} {standardize} {sampler} {integrator} {step_size} {batch_size} {n_chains}
    {chain_method} {n_draws} {burn_in} {thinning} {max_steps} {temperature} {init}
    {validation_fraction} {total_samples} {warm_start} {compiled} {device} {dtype} {precision}
    {storage} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    posterior_ : PosteriorSamples
        Draws "weight_1" of shape (n_chains, n_draws, n_features, units), "bias_1" and so on, for
        standardised inputs and targets. Inferred noise is "log_noise", log(sigma / 0.3 sd(y)), and
        ``summary`` shows sigma.
        ``likelihood="student_t"`` adds "log_df", log((df - 2) / 8) of the degrees of freedom df,
        and "negative_binomial" adds "log_dispersion", log(alpha / 0.3), where the variance of a
        count is mu + alpha mu^2. Other likelihoods have the parameters that they have in
        :class:`BayesianGLMRegressor`. Each has the prior of the noise.
    {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_} {compiled_} {not_compiled_}
    {sampling_threshold_} {device_} {n_features_in_} {feature_names_in_}

    See Also
    --------
    sklearn.neural_network.MLPRegressor : One network, by optimisation.
    BayesianMLPClassifier : The same for classes.

    Notes
    -----
    With ``noise="heteroscedastic"``, the noise of a row is

    .. math:: \sigma(x) = (0.001 + 0.3\, e^{s(x)})\, \mathrm{sd}(y)

    where s(x) is the second output of the network. The first term keeps the density bounded where
    the network fits some rows exactly. From sd(y) on, noise grows linearly: with t = s(x) + log 0.3
    above zero, 1 + t takes the place of :math:`0.3\, e^{s(x)} = e^t`, so that single draws cannot
    dominate the predictive standard deviation.

    For the same reason, the mean of counts is

    .. math::
        \mu = m\, e^f \text{ for } f \le b,\quad \mu = m\, e^b (1 + f - b) \text{ for } f > b,
        \quad m\, e^b = m + \mathrm{sd}(y).

    References
    ----------
    Robnik, De Luca, Silverstein & Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR.
    Sommer et al. (2025), Microcanonical Langevin ensembles, ICLR.
    Li, Chen, Carlson & Carin (2016), Preconditioned stochastic gradient Langevin dynamics for deep
    neural networks, AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import BayesianMLPRegressor
    >>> X = np.linspace(-2.0, 2.0, 100)[:, None]
    >>> y = np.sin(2.0 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(100)
    >>> reg = BayesianMLPRegressor(hidden_layer_sizes=30, random_state=0).fit(X, y)
    >>> reg.score(X, y) > 0.9
    True
    >>> mean, sd = reg.predict([[0.0], [4.0]], return_std=True)
    >>> bool(sd[1] > 2 * sd[0])
    True

    Counts, with quantiles that are whole numbers:

    >>> counts = np.random.default_rng(0).poisson(np.exp(1.0 + X[:, 0]))
    >>> reg = BayesianMLPRegressor(30, likelihood="poisson", random_state=0)
    >>> low, high = reg.fit(X, counts).predict_interval(X, 0.9).T
    >>> bool(np.mean((low <= counts) & (counts <= high)) > 0.85)
    True
    """

    hidden_layer_sizes: int | Sequence[int] = (16, 16, 16, 16)
    _: KW_ONLY
    prior: Prior | Literal["normal", "laplace"] = "normal"
    prior_scale: float | Sequence[float] | LearnedScale | str = "auto"
    likelihood: str | StudentT | Tweedie | TorchLikelihood = "normal"
    noise: float | Literal["auto", "infer", "heteroscedastic"] = "auto"
    sampler: str | Sampler = "auto"
    validation_fraction: float = 0.15
