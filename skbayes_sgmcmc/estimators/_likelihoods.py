"""The parameters ``likelihood`` and ``noise`` of regressors: the distribution of the targets."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arrays import Array
from .._data.scaling import center_and_scale, robust_center_and_scale
from .._exceptions import not_allowed
from .._validation import BOUNDS, check_choice, check_ratio, check_real

if TYPE_CHECKING:
    from ..models.likelihoods.base import Likelihood, Parametric
    from ..models.likelihoods.distributions import TorchLikelihood


@dataclass(frozen=True)
class Family:
    """What estimators need to know of the targets of a likelihood before they make it."""

    #: function of the mean that the outputs are: "identity" (targets are standardised), "log",
    #: "logit", or "none" if nothing is known of it
    link: str
    #: where its class is, below ``models.likelihoods``. The constructor takes the typical means of
    #: the targets, unless they are standardised
    module: str = "base"
    name: str = "Likelihood"
    #: whether a few targets may be of any size: they are standardised by medians then
    heavy_tails: bool = False
    #: whether the targets are counts of events, which have rates and exposures
    counts: bool = False
    #: whether a number of trials is known of every row
    trials: bool = False
    #: whether the targets are times, or bounds of them
    times: bool = False
    #: whether a target that is met exactly has a density without bound as the noise vanishes
    continuous: bool = False

    @property
    def standardised(self) -> bool:
        return self.link == "identity"

    @property
    def at_zero(self) -> float:
        """The mean at an output of zero."""
        return {"identity": 0.0, "log": 1.0, "logit": 0.5}[self.link]

    @property
    def kind(self) -> Any:
        """The class of the likelihood; importing it imports torch."""
        return getattr(import_module(f"..models.likelihoods.{self.module}", __package__), self.name)


#: values of ``likelihood``
FAMILIES = {
    "normal": Family("identity", continuous=True),
    "student_t": Family("identity", heavy_tails=True, continuous=True),
    "poisson": Family("log", "counts", "Poisson", counts=True),
    "negative_binomial": Family("log", "counts", "NegativeBinomial", counts=True),
    "zero_inflated_poisson": Family("log", "zero_inflated", "ZeroInflatedPoisson", counts=True),
    "zero_inflated_negative_binomial": Family(
        "log", "zero_inflated", "ZeroInflatedNegativeBinomial", counts=True
    ),
    "gamma": Family("log", "gamma", "Gamma", continuous=True),
    "tweedie": Family("log", "tweedie", "CompoundPoisson", continuous=True),
    "log_normal": Family("log", "survival", "LogNormal", times=True, continuous=True),
    "weibull": Family("log", "survival", "Weibull", times=True, continuous=True),
    "binomial": Family("logit", "binomial", "Binomial", trials=True),
}
#: those that networks have, too
OF_NETWORKS = tuple(
    name for name in FAMILIES if name not in ("gamma", "log_normal", "weibull", "binomial")
)
#: a likelihood of the user's own
OWN = Family("none", "distributions", "DistributionLikelihood")
#: values of ``noise`` that are not numbers
AUTO, INFER, HETEROSCEDASTIC = "auto", "infer", "heteroscedastic"
#: most rows with the same target, beyond the coefficients, for a learned noise if there are few
#: others: the noise is then about 0.3 exp(-10) units of y
MOST_ALIKE = 10.0
#: with fewer rows, noise is the same for all: they do not say how it depends on x
FEWEST_FOR_OWN_NOISE = 20


@dataclass(frozen=True)
class Choice:
    """What the parameters ``likelihood`` and ``noise`` of a regressor say."""

    #: the parameter ``likelihood``
    given: Any
    noise: Any
    #: whether normal noise with "auto" depends on the row
    own_noise: bool

    @property
    def parametric(self) -> Parametric | None:
        """A likelihood that was given as an object with a parameter."""
        from ..models.likelihoods.base import Parametric

        return self.given if isinstance(self.given, Parametric) else None

    @property
    def own(self) -> TorchLikelihood | None:
        """A likelihood of the user's own."""
        from ..models.likelihoods.distributions import TorchLikelihood

        return self.given if isinstance(self.given, TorchLikelihood) else None

    @property
    def name(self) -> Any:
        """The likelihood's name, or the user's own."""
        return self.given if self.parametric is None else self.parametric.family

    @property
    def heteroscedastic(self) -> bool:
        """Whether the noise depends on the row."""
        if self.own is not None or not isinstance(self.noise, str):
            return False
        unasked = self.noise == AUTO and self.name == "normal" and self.own_noise
        return unasked or self.noise == HETEROSCEDASTIC

    @property
    def family(self) -> Family:
        return FAMILIES[self.name] if self.own is None else OWN

    def check(self, names: tuple[str, ...], *, linear: bool) -> None:
        """Raise ``ValueError`` if this is none of some likelihoods, or one with another noise.

        Linear models, which need to know the link, have none of the user's own, and the same noise
        for all rows.
        """
        if self.parametric is not None or (self.own is not None and not linear):
            self.given.check("likelihood")
        else:
            check_choice("likelihood", self.given, names)
        noise = self.noise
        if linear and isinstance(noise, str) and noise != INFER:
            raise not_allowed(f"noise={noise!r} is not allowed: give 'infer' or a positive number.")
        if isinstance(noise, str) and noise in (AUTO, INFER):
            return
        if not self.family.standardised:
            raise not_allowed(
                f"noise={noise!r} is not allowed with likelihood={self.name!r}: its variance "
                "follows from the mean. Give noise='infer', or likelihood='normal'."
            )
        if isinstance(noise, Real):
            low, high = BOUNDS.smallest_data, BOUNDS.largest_data
            check_real("noise", noise, low=low, high=high, closed="both")
        elif not (isinstance(noise, str) and noise == HETEROSCEDASTIC):
            raise not_allowed(
                f"noise={noise!r} is not allowed: give 'auto', 'infer', 'heteroscedastic' or a "
                "positive number."
            )
        elif self.name != "normal":
            raise not_allowed(
                f"noise='heteroscedastic' is not allowed with likelihood={self.name!r}: give "
                "likelihood='normal', or noise='infer'."
            )

    def units(self, y: Array, weight: Array | None) -> tuple[Array, Array]:
        """Centres and scales of standardised targets."""
        standard = robust_center_and_scale if self.family.heavy_tails else center_and_scale
        center, scale = standard(y, weight)
        if not isinstance(self.noise, str):
            for one in scale:
                check_ratio("noise", self.noise, "the spread of y", float(one))
        return center, scale

    def check_intercept(self, y: Array) -> None:
        """Raise ``ValueError`` if linear models leave the intercept, with its flat prior, open."""
        if self.family.kind.bounds_intercept(y):
            return
        what = f"the value {y[0, 0]:g}"
        if self.family.times:
            what = f"no {'upper' if y[0, 1] == 0.0 else 'lower'} bound"
        raise not_allowed(
            f"y with {what} in every row is not allowed with likelihood={self.given!r}: it leaves "
            "the intercept without a bound. Give rows with other targets, or fit_intercept=False."
        )

    def check_spread(
        self, y: Array, weight: Array | None, n_features: int, fit_intercept: bool, offset: Any
    ) -> None:
        """Raise ``ValueError`` if linear models leave no noise: most targets have the same value.

        If they meet n targets exactly, the likelihood is proportional to noise^-n near zero. Each
        other row has a factor of noise^df or less with Student's t distribution, where df > 2, and
        forbids this with all others. An interval of times is met by each of its values.
        """
        family = self.family
        if not family.continuous or not isinstance(self.noise, str):
            return
        if offset is not None and not family.standardised:  # products with exp(offset) are rounded
            return
        weight = np.ones(len(y)) if weight is None else weight
        low, high = y[:, 0], np.where(y[:, -1] < y[:, 0], np.inf, y[:, -1])
        exact = (low == high) & (family.standardised | (low > 0.0))
        values, place = np.unique(low[exact], return_inverse=True)
        alike = np.bincount(place, weight[exact])
        if not fit_intercept:
            alike = np.where(values == family.at_zero, alike, 0.0)
        if not alike.any():
            return
        most = int(alike.argmax())
        value, share = values[most], alike[most] / weight.sum()
        others = float(weight[(value < low) | (value > high)].sum())
        if others > 0.0 and not family.heavy_tails:
            return
        if alike[most] - 2.0 * others > MOST_ALIKE + n_features:
            less = "" if offset is None else " - offset"
            noise = f" and noise={self.noise!r}" if family.standardised else ""
            remedy = "the noise as a number, or " if family.standardised else ""
            raise not_allowed(
                f"y{less} with the value {value:g} in {share:.0%} of the rows is not allowed with "
                f"likelihood={self.given!r}{noise}: it leaves no noise to learn. Give {remedy}rows "
                "with other targets."
            )

    def likelihood(self, n_targets: int, scale: Any, rounding: Any, typical: Any) -> Likelihood:
        """The likelihood of targets with their typical means, or standardised by their scale.

        ``rounding`` is how far standardised targets are rounded.
        """
        from ..models.likelihoods.base import Gaussian, Heteroscedastic
        from ..models.likelihoods.distributions import DistributionLikelihood
        from ..models.likelihoods.student import StudentNoise

        if self.own is not None:
            return DistributionLikelihood(self.own, n_targets)
        fixed = {} if self.parametric is None else self.parametric.fixed()
        if not self.family.standardised:
            return self.family.kind(typical, **fixed)
        if self.heteroscedastic:
            return Heteroscedastic(n_targets, floor=rounding)
        noise = None if isinstance(self.noise, str) else np.asarray(self.noise / scale)
        if self.name == "normal":
            return Gaussian(n_targets, noise)
        return StudentNoise(n_targets, noise, **fixed)
