"""The parameter ``prior_scale`` of estimators with normal priors that can learn their scales."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

from .._exceptions import not_allowed
from .._validation import check_scale, check_scales

if TYPE_CHECKING:
    from ..priors.learned_scale import LearnedScale

#: what "auto" means for the parameters of the hyperprior, in linear models and in networks
LINEAR, NETWORK = {"shape": 5.0, "inputs": False}, {"shape": 1.0, "inputs": True}
#: the shape of the scale of a column of categories in linear models, with "auto". With that of
#: LINEAR, columns that say nothing kept half of their typical scale
CATEGORICAL_SHAPE = 2.0


def learned_scale(
    prior_scale: Any, auto: dict[str, Any], *, unasked: bool = False
) -> LearnedScale | None:
    """The hyperprior of the scales, or None if the scales are given.

    ``unasked``: whether the scale "auto" means "learned". ``auto`` are the hyperprior's parameters
    where these are "auto".
    """
    from ..priors.learned_scale import LearnedScale

    given = prior_scale
    if isinstance(given, str):
        given = LearnedScale() if given == "learned" or (given == "auto" and unasked) else None
    return given.resolved(**auto) if isinstance(given, LearnedScale) else None


def can_learn(prior: Any) -> bool:
    """Whether the scales of a prior can be learned."""
    from ..priors.factorised import Normal

    return prior == "normal" if isinstance(prior, str) else type(prior) is Normal


def check_prior_scale(
    prior_scale: Any, prior: Any, allowed: str, *, learned: bool, words: tuple[str, ...] = ()
) -> None:
    """Raise ``ValueError`` if the scales are not allowed, or can't be learned for this prior."""
    if isinstance(prior_scale, Real):
        check_scale("prior_scale", prior_scale)
    elif not learned:
        if not (isinstance(prior_scale, str) and prior_scale in words):
            check_scales("prior_scale", prior_scale, allowed)
    elif not can_learn(prior):
        raise not_allowed(
            f"prior_scale={prior_scale!r} is not allowed with prior={prior!r}: only normal priors "
            "can learn their scales; give prior='normal', or prior_scale as numbers."
        )
    elif not isinstance(prior_scale, str):
        prior_scale.check("prior_scale")
