"""Regressors that let the user choose the distribution of the targets."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data.scaling import center_and_scale, robust_center_and_scale
from .._exceptions import not_allowed
from .._validation import LARGEST_DATA, SMALLEST_DATA, check_choice, check_ratio, check_real
from ._network import NetworkRegressor
from ._regressor import BayesianRegressor

if TYPE_CHECKING:
    from ..models.likelihoods import Likelihood, StudentT
    from ..models.torch_likelihood import TorchLikelihood

Array = NDArray[Any]


@dataclass(frozen=True)
class Family:
    """What estimators need to know of the targets of a likelihood before they make it.

    Attributes
    ----------
    link : {"identity", "log", "logit", "none"}
        Function of the mean that the outputs are. With "identity", targets are standardised. With
        "none", nothing is known of it.
    module, name : str
        Where its class is, below ``models``. The constructor takes the typical means of the
        targets, unless they are standardised.
    heavy_tails : bool
        Whether a few targets may be of any size: targets are standardised by medians then.
    counts : bool
        Whether the targets are counts of events, which have rates and exposures.
    trials : bool
        Whether a number of trials is known of every row.
    """

    link: str
    module: str = "likelihoods"
    name: str = "Likelihood"
    heavy_tails: bool = False
    counts: bool = False
    trials: bool = False

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
        return getattr(import_module(f"..models.{self.module}", __package__), self.name)


#: values of ``likelihood``
FAMILIES = {
    "normal": Family("identity"),
    "student_t": Family("identity", heavy_tails=True),
    "poisson": Family("log", "count_likelihoods", "Poisson", counts=True),
    "negative_binomial": Family("log", "count_likelihoods", "NegativeBinomial", counts=True),
    "gamma": Family("log", "gamma_likelihood", "Gamma"),
    "binomial": Family("logit", "binomial_likelihood", "Binomial", trials=True),
}
#: a likelihood of the user's own
OWN = Family("none", "torch_likelihood", "DistributionLikelihood")
#: values of ``noise`` that are not numbers
AUTO, INFER, HETEROSCEDASTIC = "auto", "infer", "heteroscedastic"
#: with fewer rows, noise is the same for all: they do not say how it depends on x
FEWEST_FOR_OWN_NOISE = 20


class LikelihoodChoice(BayesianRegressor):
    """Mixin of regressors: the parameters ``likelihood`` and ``noise``."""

    likelihood: Any
    noise: Any
    #: names of the likelihoods that the estimator has
    _likelihoods: tuple[str, ...] = ("normal", "student_t", "poisson", "negative_binomial")
    #: whether it can also be one of the user's own
    _any_likelihood = False
    #: means of the targets of the first fit, for links other than the identity
    _y_typical: Array
    #: whether the latest fit had too few rows for a noise of their own
    _few_rows = False

    def _check(self) -> Any:
        if self._given_t() is None and self._given_own() is None:
            check_choice("likelihood", self.likelihood, self._likelihoods)
        else:
            self.likelihood.check("likelihood")
        self._check_noise()
        return super()._check()

    def _check_noise(self) -> None:
        noise, likelihood = self.noise, self._kind[0]
        if isinstance(noise, str) and noise in (AUTO, INFER):
            return
        if not self._family.standardised:
            raise not_allowed(
                f"noise={noise!r} is not allowed with likelihood={likelihood!r}, whose variance "
                "follows from the mean: give noise='infer', or likelihood='normal'."
            )
        if isinstance(noise, Real):
            check_real("noise", noise, low=SMALLEST_DATA, high=LARGEST_DATA, closed="both")
        elif not (isinstance(noise, str) and noise == HETEROSCEDASTIC):
            raise not_allowed(
                f"noise={noise!r} is not allowed: give 'auto', 'infer', 'heteroscedastic' or a "
                "positive number."
            )
        elif likelihood != "normal":
            raise not_allowed(
                f"noise='heteroscedastic' is not allowed with likelihood={likelihood!r}: give "
                "likelihood='normal', or noise='infer'."
            )

    def _given_t(self) -> StudentT | None:
        """Student's t distribution, if it was given as an object."""
        from ..models.likelihoods import StudentT

        return self.likelihood if isinstance(self.likelihood, StudentT) else None

    def _given_own(self) -> TorchLikelihood | None:
        """A likelihood of the user's own; linear models, which need to know its link, have none."""
        from ..models.torch_likelihood import TorchLikelihood

        given = self.likelihood
        return given if self._any_likelihood and isinstance(given, TorchLikelihood) else None

    def _adapt_to(self, n_rows: int) -> None:
        self._few_rows = n_rows < FEWEST_FOR_OWN_NOISE

    @property
    def _kind(self) -> tuple[Any, bool]:
        """The likelihood's name, or the user's own; and whether its noise depends on the row."""
        if self._given_own() is not None:
            return self.likelihood, False
        name = self.likelihood if self._given_t() is None else "student_t"
        if not isinstance(self.noise, str):
            return name, False
        plain = isinstance(self.prior, str) and self.prior == "normal"  # it may not be checked yet
        own = name == "normal" and plain and not self._few_rows
        return name, self.noise == HETEROSCEDASTIC or (self.noise == AUTO and own)

    @property
    def _family(self) -> Family:
        return FAMILIES[self._kind[0]] if self._given_own() is None else OWN

    def _meaning(self) -> tuple[Any, ...]:
        # other likelihoods have other parameters, and see targets in other units
        return self._kind, *super()._meaning()

    def _check_stream(self) -> None:
        super()._check_stream()
        if self._fitted_as is not None and self._fitted_as[0] != self._kind:
            raise not_allowed(
                f"likelihood={self.likelihood!r} with noise={self.noise!r} is not allowed: earlier "
                "calls had another likelihood. Keep theirs, or start a new stream with a clone of "
                "the estimator.",
                "a-later-call-of-partial_fit-differs",
            )

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        X, y = super()._validate_xy(X, y, reset=reset)
        own = self._given_own()
        kind = self._family.kind if own is None else self._likelihood()
        kind.check_targets(self._with_known(X, y))
        return X, y

    def _with_known(self, X: Any, y: Array) -> Array:
        """Targets, followed by what is known of their rows."""
        return y

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        """Units of the targets; y as in :meth:`_with_known`."""
        if self._family.standardised:
            from ..models.likelihoods import rounding

            standard = robust_center_and_scale if self._family.heavy_tails else center_and_scale
            self._y_center, self._y_scale = standard(y, weight)
            self._y_rounding = rounding(y, weight) / self._y_scale
            if not isinstance(self.noise, str):
                for scale in self._y_scale:
                    check_ratio("noise", self.noise, "the spread of y", float(scale))
        else:
            self._y_center, self._y_scale = np.zeros(self._n_targets), np.ones(self._n_targets)
            if self._given_own() is None:
                self._y_typical = self._family.kind.typical_means(y, weight)

    def _likelihood(self) -> Likelihood:
        from ..models.likelihoods import Gaussian, Heteroscedastic, StudentNoise
        from ..models.torch_likelihood import DistributionLikelihood

        (name, heteroscedastic), own = self._kind, self._given_own()
        if own is not None:
            return DistributionLikelihood(own, self._n_targets)
        if not self._family.standardised:
            return self._family.kind(self._y_typical)
        if heteroscedastic:
            return Heteroscedastic(self._n_targets, floor=self._y_rounding)
        noise = None if isinstance(self.noise, str) else np.asarray(self.noise / self._y_scale)
        if name == "normal":
            return Gaussian(self._n_targets, noise)
        given = self._given_t()
        df = None if given is None or isinstance(given.df, str) else float(given.df)
        return StudentNoise(self._n_targets, noise, df)


class LikelihoodRegressor(LikelihoodChoice, NetworkRegressor):
    """Base class of networks with the parameters ``likelihood`` and ``noise``."""

    _any_likelihood = True
    #: outputs beyond which means are linear in them, for a logarithmic link
    _y_bend: Array

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        super()._fit_targets(y, weight)
        if self._family.link == "log":  # from one sd above the mean on
            mean = self._y_typical
            variance = np.average(np.square(y - mean), axis=0, weights=weight)
            self._y_bend = np.log1p(np.sqrt(variance) / mean)

    def _likelihood(self) -> Likelihood:
        from ..models.likelihoods import LinearAbove

        given = super()._likelihood()
        return LinearAbove(given, self._y_bend) if self._family.link == "log" else given

    def _output_labels(self) -> list[str]:
        n, own = self._n_targets, self._given_own()
        if own is not None:
            return [f"output {j} of the network in " for j in range(own.n_outputs)]
        targets = [""] if n == 1 else [f"output {j} in " for j in range(n)]
        noise = [f"the noise of {name}" for name in targets] if self._kind[1] else []
        return [*targets, *noise]
