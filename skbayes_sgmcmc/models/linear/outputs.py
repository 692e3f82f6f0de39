"""Linear predictors of several draws as a torch module, for ``torch.export`` and ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..._arrays import Array
from ..._data.sending import exported
from ..networks.ensemble import StackedLinear


class LinearOutputs(StackedLinear):
    """Outputs of a generalised linear model for rows as the user has them.

    Parameters
    ----------
    coef : array of shape (draws, columns)
        Coefficients of all columns of the rows; zeros for those that are no features.
    intercept : array of shape (draws,)
        Intercepts.
    effects : sequence of (int, array, int or None, array)
        Effects of groups: the column that holds the groups, their labels (n_groups,), the column
        with these slopes, if any, and the effects (draws, n_groups).
    exposure : int or None, default=None
        Column that is added as its logarithm.
    known : int, float or None, default=None
        Column with a second output, which is known; a float is its value in every row.
    """

    def __init__(
        self,
        coef: Array,
        intercept: Array,
        effects: Sequence[tuple[int, Any, int | None, Array]] = (),
        exposure: int | None = None,
        known: int | float | None = None,
    ):
        super().__init__(exported(coef[..., None]), exported(intercept[:, None]))
        self.columns = [(column, slope) for column, _, slope, _ in effects]
        self.labels = nn.ParameterList([nn.Parameter(exported(one[1]), False) for one in effects])
        self.effects = nn.ParameterList([nn.Parameter(exported(one[3]), False) for one in effects])
        self.exposure, self.known = exposure, known

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (draws, rows, 1 or 2) of rows (rows, columns)."""
        f = super().forward(x)
        if self.exposure is not None:
            f = f + torch.log(x[:, self.exposure, None])
        parts = zip(self.columns, self.labels, self.effects, strict=True)
        for (column, slope), labels, effects in parts:
            ones = (x[:, column, None] == labels).to(x.dtype)
            ones = ones if slope is None else ones * x[:, slope, None]
            f = f + ones @ effects[..., None]
        if self.known is None:
            return f
        constant = isinstance(self.known, float)
        known = torch.full_like(x[:, 0], self.known) if constant else x[:, int(self.known)]
        return torch.cat([f, known[None, :, None].expand_as(f)], dim=2)
