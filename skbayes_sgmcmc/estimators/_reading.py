"""Parameters that say what draws mean: whoever reads draws needs those of the fit."""

from __future__ import annotations

import copy
from typing import Any

from sklearn.base import BaseEstimator

from .._exceptions import LATER_CALL, NOT_ALLOWED, not_allowed, warn
from .._validation import check_is_fitted
from ._mixing import short_name


def parameters(estimator: Any) -> dict[str, Any]:
    """The parameters that the classes of an estimator name, as they are now.

    Objects with parameters of their own are copies, because ``set_params`` changes these in place.
    """
    names = (vars(kind).get("_read_with_draws", ()) for kind in type(estimator).__mro__)
    values = {name: getattr(estimator, name) for some in names for name in some}
    return {k: copy.copy(v) if isinstance(v, BaseEstimator) else v for k, v in values.items()}


def _same(now: Any, before: Any) -> bool:
    """Whether two values of a parameter are equal, as far as their texts say."""
    if isinstance(now, BaseEstimator) and type(now) is type(before):
        parts = now.get_params(deep=False), before.get_params(deep=False)
        return all(_same(*pair) for pair in zip(*(each.values() for each in parts), strict=True))
    return now is before or repr(now) == repr(before)


def check_fitted(estimator: Any) -> None:
    """Raise an error if there are no draws, or if they would now mean something else."""
    check_is_fitted(estimator, "posterior_")
    check_same(estimator)


def check_stream(estimator: Any) -> None:
    """The same for ``partial_fit``. Warn if it forgets a fit, as other libraries' does not."""
    check_same(estimator, LATER_CALL)
    if hasattr(estimator, "posterior_") and estimator._chain_state is None:
        warn(
            f"partial_fit of {short_name(estimator)} begins a new stream, and the rows of fit no "
            "longer count. Give them to partial_fit, too, or give all rows to fit.",
            LATER_CALL,
        )


def check_same(estimator: Any, section: str = NOT_ALLOWED) -> None:
    """Raise ``ValueError`` if one of the parameters is not what it was in the fit, if any."""
    for name, now in parameters(estimator).items():
        before = estimator._fitted_with.get(name, now)
        if not _same(now, before):
            raise not_allowed(
                f"{name}={now!r} is not allowed here: the draws are those of a fit with "
                f"{name}={before!r}. Give this value again, or call fit.",
                section,
            )
