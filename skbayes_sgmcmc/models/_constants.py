"""Arrays that do not change, as tensors where they are needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from .._arrays import Array


class Constant:
    """An array of a model, which must not change, that its steps need on the device of the chains.

    The tensor is kept for the next step: sending an array to a GPU means waiting for the GPU.
    """

    def __init__(self, values: Array):
        self.values = values
        self._kept: dict[Any, Tensor] = {}

    def like(self, tensor: Tensor, scale: float = 1.0) -> Tensor:
        """The array times ``scale``, in the precision and on the device of ``tensor``."""
        return self._held((scale, tensor.dtype, tensor.device))

    def index(self, tensor: Tensor) -> Tensor:
        """The array as indices, on the device of ``tensor``."""
        return self._held((1, torch.int64, tensor.device))

    def _held(self, key: Any) -> Tensor:
        kept = self._kept  # read once: chains in other threads replace it
        if key not in kept:
            scale, dtype, device = key
            found = torch.from_numpy(np.asarray(self.values * scale)).to(device, dtype)
            if is_functorch_wrapped_tensor(found):  # it is gone when torch.func has returned
                return found
            # at most two: the gradient and the potential have different scales
            kept = {key: found, **dict(list(kept.items())[:1])}
            self._kept = kept
        return kept[key]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_kept": {}}  # the device may not be there where it is loaded
