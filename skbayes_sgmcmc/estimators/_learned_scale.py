"""The parameter ``prior_scale`` of estimators whose normal priors can learn their scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._exceptions import not_allowed

if TYPE_CHECKING:
    from ..priors.learned_scale import LearnedScale


class LearnableScales:
    """Mixin of estimators: ``prior_scale="learned"``, "auto" or a :class:`LearnedScale`."""

    prior: Any
    prior_scale: Any
    #: values of the hyperprior's parameters that are "auto"
    _auto_shape = 1.0
    _auto_inputs = True

    def _learned_scale(self) -> LearnedScale | None:
        """The hyperprior of the scales, or None if the scales are given."""
        from ..priors.learned_scale import LearnedScale

        given = self.prior_scale
        if isinstance(given, str):
            auto = given == "auto" and self._learns_unasked()
            given = LearnedScale() if auto or given == "learned" else None
        if not isinstance(given, LearnedScale):
            return None
        return given.resolved(shape=self._auto_shape, inputs=self._auto_inputs)

    def _learns_unasked(self) -> bool:
        """Whether "auto" means "learned"."""
        return self._can_learn()

    def _can_learn(self) -> bool:
        """Whether the prior's scales can be learned."""
        from ..priors.factorised import Normal

        return self.prior == "normal" if isinstance(self.prior, str) else type(self.prior) is Normal

    def _check_learned(self) -> None:
        """Raise ``ValueError`` if scales can't be learned with the other parameters."""
        if not self._can_learn():
            raise not_allowed(
                f"prior_scale={self.prior_scale!r} is not allowed with prior={self.prior!r}: only "
                "normal priors can learn their scales; give prior='normal', or prior_scale as "
                "numbers."
            )
        if not isinstance(self.prior_scale, str):
            self.prior_scale.check("prior_scale")
