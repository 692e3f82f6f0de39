"""What a run samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._data.minibatch import Data
from ..models._protocol import Model

if TYPE_CHECKING:
    from .jobs import ChainState
    from .streams import Call


@dataclass(frozen=True)
class Problem:
    """What a run samples: the posterior of a model given rows, from earlier chains or anew.

    Attributes
    ----------
    model : Model
        Prior and likelihood.
    data : Data
        The rows.
    dtype : torch.dtype
        Precision of the positions.
    device : str
        Device of the positions.
    previous : ChainState or None
        Earlier chains to continue.
    stream : Call or None
        What is known of the stream, if the rows are a part of one. The run then takes one pass over
        those that are new.
    """

    model: Model
    data: Data
    dtype: torch.dtype
    device: str
    previous: ChainState | None = None
    stream: Call | None = None

    @property
    def like(self) -> Any:
        """An empty tensor of this precision, on this device."""
        return torch.empty(0, dtype=self.dtype, device=self.device)
