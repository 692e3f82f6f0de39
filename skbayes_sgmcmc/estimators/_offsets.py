"""The parameters ``exposure`` and ``offset``: what is added to the linear predictor of each row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._exceptions import not_allowed
from ._columns import NamedColumns

if TYPE_CHECKING:
    from ._likelihoods import Family

Array = NDArray[Any]

#: logarithms of the factors of means beyond which no target could agree with them
LARGEST_OFFSET = 300.0


class OffsetRows(NamedColumns):
    """Mixin of linear estimators whose rows may have offsets.

    What all offsets have in common is a part of the intercept. The model therefore sees them minus
    a centre, which the first rows determine: ranges of floating-point numbers, and searches for the
    maximum, then depend on the differences between rows only.
    """

    exposure: Any
    offset: Any
    fit_intercept: bool
    _family: Family
    #: centre of the offsets of the first fit, in units of users
    _offset_center = 0.0

    def _special_values(self, X: Any) -> dict[str, Array]:
        """Exposures, offsets and numbers of trials of rows, if X has them."""
        special = self._special_columns()
        named = [name for name in self._column_parameters if name in special]
        return {name: self._values_of(X, special[name]) for name in named}

    def _offsets(self, values: dict[str, Array]) -> Array | None:
        """What these columns add to f, in units of users; None if there are none."""
        offsets = [values["offset"]] if "offset" in values else []
        if "exposure" in values:
            exposure = values["exposure"]
            if not (exposure > 0.0).all():
                raise not_allowed(
                    f"X with the exposure {exposure.min():g} is not allowed: give positive numbers "
                    f"in column {self.exposure!r}."
                )
            offsets.append(np.log(exposure))
        return np.sum(offsets, axis=0) if offsets else None

    def _fit_offsets(self, X: Any, weight: Array | None) -> Array | None:
        """Learn the centre of the offsets, and return them relative to it, if there are any."""
        offset, self._offset_center = self._offsets(self._special_values(X)), 0.0
        if offset is None or not self.fit_intercept:  # f = 0 then means what it says
            return offset
        if self._family.link == "log":  # the mean of factors exp(offset), relative to the largest
            largest = float(offset.max())
            factors = np.exp(offset - largest)
            self._offset_center = largest + math.log(np.average(factors, weights=weight))
        else:
            self._offset_center = float(np.average(offset, weights=weight))
        return offset - self._offset_center

    def _check_offsets(self, X: Any, y: Array) -> None:
        """Raise ``ValueError`` if a row's offset is beyond what its target could tell."""
        offset = self._offsets(self._special_values(X))
        if offset is None or self._family.link != "log":
            return
        away = offset - self._offset_center
        far = (away > LARGEST_OFFSET) | ((away < -LARGEST_OFFSET) & (y[:, 0] > 0.0))
        if far.any():
            row = int(far.argmax())
            names = " and ".join(n for n in ("exposure", "offset") if getattr(self, n) is not None)
            constant = "" if self.fit_intercept else ", or fit_intercept=True if it is a constant"
            raise not_allowed(
                f"{names} of row {row} of X is not allowed: it multiplies the mean of y = "
                f"{y[row, 0]:g} by exp({away[row]:.4g}), relative to typical rows of the first "
                f"call. Give values that differ less between rows{constant}.",
                "numbers-are-too-large-or-too-small",
            )
