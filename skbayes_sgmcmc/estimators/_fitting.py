"""How fitting methods change an estimator: at their end, at once, and one of them at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._data.kept_rows import KeptRows
from .._exceptions import MORE, SamplingError, collected_warnings, explained
from .._imports import imported_whole
from .._searches import leave
from ._mixing import short_name

if TYPE_CHECKING:
    from .._engine.settings import Settings

#: by its id, each object that a call is fitting; an attribute would be copied and saved with it
_taken: dict[int, object] = {}


@dataclass(frozen=True)
class Task:
    """What a call of ``fit`` or ``partial_fit`` samples, checked and encoded."""

    model: Any
    rows: KeptRows
    settings: Settings
    #: earlier chains, if they continue
    previous: Any = None
    #: whether the rows are a part of a stream
    stream: bool = False
    #: X and y of the call, for callbacks
    data: dict[str, Any] = field(default_factory=dict)


def all_or_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a fitting method replace the fit of its estimator at its end, or leave it as it was.

    The method computes with a copy. Until it ends, other threads see the earlier fit as a whole.
    """

    @functools.wraps(method)
    def guarded(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        copy = object.__new__(type(estimator))
        with _alone(estimator), _alone(copy):
            before = dict(vars(estimator))
            vars(copy).update(before)
            search = vars(copy).pop("_search_file", None)
            take = search and functools.partial(leave, search)
            imported_whole("torch")
            with collected_warnings(lambda: short_name(copy), take) as texts:
                method(copy, *args, **kwargs)
            copy._fit_warnings = texts
            _take_over(estimator, before, vars(copy))
        return estimator

    return guarded


@contextmanager
def extremes_named(estimator: Any) -> Iterator[None]:
    """Let errors of sampling name the parameters that are likely to be their cause."""
    try:
        yield
    except SamplingError as error:
        found = [
            f"{name}={value!r}"
            for name, value in estimator.get_params().items()
            if name != "total_samples" and _is_extreme(value)
        ]
        if found:
            text, *where = str(error).partition(f" {MORE}")
            verb = "is" if len(found) == 1 else "are"
            advice = f" {' and '.join(found)} {verb} extreme: try moderate numbers."
            error.args = ("".join([text, advice, *where]),)
        raise


def _is_extreme(value: Any) -> bool:
    """Whether a parameter is named where chains diverge."""
    if isinstance(value, tuple | list):
        return any(map(_is_extreme, value))
    return isinstance(value, float) and not 1e-6 <= abs(value or 1.0) <= 1e6


@contextmanager
def _alone(estimator: Any) -> Iterator[None]:
    """Raise an error if another call is fitting this object."""
    own = object()
    if _taken.setdefault(id(estimator), own) is not own:  # one step, which no thread can interrupt
        raise explained(
            RuntimeError(
                f"this {type(estimator).__name__} is being fitted by another call, in another "
                "thread or one that has called this function: wait until that call ends, or fit "
                "sklearn.base.clone(estimator)."
            ),
            "an-estimator-is-being-fitted",
        )
    try:
        yield
    finally:
        del _taken[id(estimator)]


def renew_attributes(estimator: Any) -> None:
    """Set the attributes that summarise ``posterior_``; those of an earlier fit are gone."""
    attributes = vars(estimator)
    for name in attributes.pop("_summaries", ()):
        attributes.pop(name, None)
    others = set(attributes)
    estimator._set_attributes()
    estimator._summaries = tuple(sorted(attributes.keys() - others))


def _take_over(estimator: Any, before: dict[str, Any], fitted: dict[str, Any]) -> None:
    """Give an estimator what its fitted copy has changed; parameters set meanwhile stay."""
    new = {k: v for k, v in fitted.items() if k not in before or before[k] is not v}
    kept = {k: v for k, v in vars(estimator).items() if k in fitted or k not in before}
    estimator.__dict__ = kept | new
