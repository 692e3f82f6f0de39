"""Regressors that let the user choose the distribution of the targets."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data.scaling import center_and_scale
from .._validation import check_choice, check_real
from ._network import NetworkRegressor
from ._regressor import BayesianRegressor

if TYPE_CHECKING:
    from ..models.likelihoods import Likelihood, StudentT

Array = NDArray[Any]

#: values of ``likelihood``: for targets on a scale, which are standardised, and for counts
SCALED = ("normal", "student_t")
COUNTS = ("poisson", "negative_binomial")
#: values of ``noise`` that are not numbers
AUTO, INFER, HETEROSCEDASTIC = "auto", "infer", "heteroscedastic"


class LikelihoodChoice(BayesianRegressor):
    """Mixin of regressors: the parameters ``likelihood`` and ``noise``.

    Targets are standardised, unless they are counts.
    """

    likelihood: Any
    noise: Any
    #: mean counts of the targets of the first fit
    _y_rate: Array
    #: the likelihood of the latest chains
    _sampled: tuple[str, bool]

    def _check(self) -> Any:
        if self._given_t() is None:
            check_choice("likelihood", self.likelihood, (*SCALED, *COUNTS))
        else:
            self.likelihood.check("likelihood")
        self._check_noise()
        return super()._check()

    def _check_noise(self) -> None:
        noise, likelihood = self.noise, self._kind[0]
        if isinstance(noise, str) and noise in (AUTO, INFER):
            return
        if likelihood in COUNTS:
            raise ValueError(
                f"noise={noise!r} is not allowed with likelihood={likelihood!r}, whose rates "
                "determine the variance of the counts: give noise='infer', or likelihood='normal'."
            )
        if isinstance(noise, Real):
            check_real("noise", noise, low=0.0)
        elif not (isinstance(noise, str) and noise == HETEROSCEDASTIC):
            raise ValueError(
                f"noise={noise!r} is not allowed: give 'auto', 'infer', 'heteroscedastic' or a "
                "positive number."
            )
        elif likelihood != "normal":
            raise ValueError(
                f"noise='heteroscedastic' is not allowed with likelihood={likelihood!r}: give "
                "likelihood='normal', or noise='infer'."
            )

    def _given_t(self) -> StudentT | None:
        """Student's t distribution, if it was given as an object."""
        from ..models.likelihoods import StudentT

        return self.likelihood if isinstance(self.likelihood, StudentT) else None

    @property
    def _kind(self) -> tuple[str, bool]:
        """The likelihood's name, and whether its noise depends on the row."""
        name = self.likelihood if self._given_t() is None else "student_t"
        if not isinstance(self.noise, str):
            return name, False
        own = name == "normal" and self.prior == "normal"
        return name, self.noise == HETEROSCEDASTIC or (self.noise == AUTO and own)

    def _previous(self, *, stream: bool, same: bool = True) -> Any:
        # other likelihoods have other parameters, and see targets in other units
        return super()._previous(stream=stream, same=same and self._continues())

    def _continues(self) -> bool:
        return getattr(self, "_sampled", None) == self._kind

    def _check_stream(self) -> None:
        super()._check_stream()
        if hasattr(self, "posterior_") and not self._continues():
            raise ValueError(
                f"likelihood={self.likelihood!r} with noise={self.noise!r} is not allowed: earlier "
                "calls had another likelihood. Keep theirs, or start a new stream with a clone of "
                "the estimator."
            )

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        X, y = super()._validate_xy(X, y, reset=reset)
        if self._kind[0] in COUNTS:
            from ..models.count_likelihoods import check_counts

            check_counts(y)
        return X, y

    def _make_model(self, X: Any, y: Array, weight: Array | None, *, first: bool) -> Any:
        model = super()._make_model(X, y, weight, first=first)
        self._sampled = self._kind
        return model

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        if self._kind[0] in COUNTS:
            from ..models.count_likelihoods import typical_rates

            self._y_center, self._y_scale = np.zeros(y.shape[1]), np.ones(y.shape[1])
            self._y_rate = typical_rates(y, weight)
        else:
            from ..models.likelihoods import rounding

            self._y_center, self._y_scale = center_and_scale(y, weight)
            self._y_rounding = rounding(y, weight) / self._y_scale

    def _likelihood(self) -> Likelihood:
        from ..models.count_likelihoods import NegativeBinomial, Poisson
        from ..models.likelihoods import Gaussian, Heteroscedastic, StudentNoise

        name, heteroscedastic = self._kind
        if name == "poisson":
            return Poisson(self._y_rate)
        if name == "negative_binomial":
            return NegativeBinomial(self._y_rate)
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

    def _output_labels(self) -> list[str]:
        n = self._n_targets
        targets = [""] if n == 1 else [f"output {j} in " for j in range(n)]
        noise = [f"the noise of {name}" for name in targets] if self._kind[1] else []
        return [*targets, *noise]
