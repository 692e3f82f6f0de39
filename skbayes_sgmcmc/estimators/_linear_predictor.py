"""Linear predictors f of rows, from draws in units of users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arrays import Array
from .tables.columns import Columns
from .tables.groups import Groupings, effect_names, exported_effects, with_groups
from .tables.offsets import offsets_of

if TYPE_CHECKING:
    from .._draws.posterior_samples import PosteriorSamples
    from ..models.linear.outputs import LinearOutputs


@dataclass(frozen=True)
class LinearPredictor:
    """The linear predictor of a generalised linear model: users know ``center + scale * f``."""

    columns: Columns
    groupings: Groupings
    #: centre and scale of f, without offsets, in units of users
    center: float
    scale: float
    #: centre of the offsets of the first fit, in units of users
    offset_center: float

    @property
    def constant(self) -> float:
        """The centre for intercepts: the offsets of the model are relative to theirs."""
        return self.center - self.offset_center

    @property
    def blocks(self) -> list[str]:
        """Names of the draws of coefficients, in the order of their columns."""
        return [*effect_names(self.groupings), "coef"]

    def inputs(self, X: Any) -> tuple[Any, Array | None]:
        """Columns of effects and features, and offsets of rows in units of f."""
        offset = offsets_of(self.columns, X)
        if offset is not None:
            offset = (offset - self.offset_center) / self.scale
        return with_groups(self.groupings, X, self.columns.of_features(X)), offset

    def _coefficients(self, posterior: PosteriorSamples, draws: Any) -> tuple[Array, Array]:
        """Coefficients (draws, columns) of :meth:`inputs`, and intercepts (draws, 1)."""
        coef = np.concatenate([posterior.select(name, draws) for name in self.blocks], axis=1)
        return coef, posterior.select("intercept", draws)[:, None]

    def of(
        self, posterior: PosteriorSamples, draws: Any, columns: Any, offset: Array | None
    ) -> Array:
        """f (draws, rows) of :meth:`inputs` for some of the pooled draws."""
        from ..models._linalg import row_products

        coef, intercept = self._coefficients(posterior, draws)
        f = np.asarray(row_products(columns, coef)).T
        f = (f + intercept - self.constant) / self.scale
        return f if offset is None else f + offset

    def sds(self, posterior: PosteriorSamples, columns: Any) -> Array:
        """Sds (rows,) of f over all draws."""
        from ..models.moments.few_draws import largest_sd, roots_of

        coef, intercept = self._coefficients(posterior, slice(None))
        return largest_sd(columns, roots_of(coef[:, None] / self.scale, intercept / self.scale))

    def module(
        self, posterior: PosteriorSamples, chosen: Array, known: float | None
    ) -> LinearOutputs:
        """f of some draws as a torch module, which takes all columns and offsets as they are.

        ``known`` is as in :class:`LinearOutputs`.
        """
        from ..models.linear.outputs import LinearOutputs

        special, scale = self.columns.special, self.scale
        coef = np.zeros((len(chosen), self.columns.width))
        coef[:, self.columns.features] = posterior.select("coef", chosen) / scale
        if "offset" in special:
            coef[:, special["offset"]] = 1.0 / scale
        intercept = (posterior.select("intercept", chosen) - self.center) / scale
        return LinearOutputs(
            coef,
            intercept,
            exported_effects(self.groupings, posterior, chosen, scale),
            special.get("exposure"),
            known,
        )
