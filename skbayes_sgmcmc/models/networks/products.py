"""Products of each chain's matrices, by the fastest of torch's libraries.

Small matrices use one batched product for all chains. Large float32 matrices on CPUs that are not
made by Intel use oneDNN, one chain after another. There, oneDNN is twice as fast as the default
(MKL), with the same result up to rounding. On Intel's CPUs, MKL is up to 1.5 times as fast as
oneDNN. torch offers oneDNN through an operator of its own compiler. If this operator is missing,
the batched product is used.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._limits import LIMITS

_linear: Any = getattr(getattr(torch.ops, "mkldnn", None), "_linear_pointwise", None)


def _made_by_intel() -> bool:
    # by the maker instead of by timing, so that the same machine always gives the same bits
    maker, cpuinfo = platform.processor(), Path("/proc/cpuinfo")
    if cpuinfo.exists():
        maker += cpuinfo.read_text(encoding="utf-8", errors="replace")[:1000]
    return "GenuineIntel" in maker


#: whether oneDNN is faster on this machine
PREFER_ONEDNN = _linear is not None and not _made_by_intel()


def _by_onednn(x: Tensor, other: Tensor, inner: int, columns: int) -> bool:
    return (
        PREFER_ONEDNN
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        # autograd does not know the operator
        and not (torch.is_grad_enabled() and (x.requires_grad or other.requires_grad))
        and x.shape[1] * inner * columns >= LIMITS.onednn_products
        and torch.backends.mkldnn.is_available()
    )


def affine(x: Any, weight: Tensor, bias: Tensor) -> Tensor:
    """X W + b for shapes (C, n, p), (C, p, q) and (C, 1, q); X may be a ``SparseBatch``."""
    if not isinstance(x, Tensor):
        return x.logits(weight) + bias
    if _by_onednn(x, weight, *weight.shape[1:]):
        parts = [
            _linear(x[c], weight[c].t(), bias[c, 0], "none", [], "") for c in range(len(weight))
        ]
        return parts[0][None] if len(parts) == 1 else torch.stack(parts)
    if len(weight) == 1:  # a plain product is faster than a batch of one
        return torch.addmm(bias[0], x[0], weight[0])[None]
    return torch.baddbmm(bias, x, weight)


def times_transposed(delta: Tensor, weight: Tensor) -> Tensor:
    """D W' for shapes (C, n, q) and (C, p, q)."""
    if _by_onednn(delta, weight, *weight.shape[1:]):
        parts = [_linear(delta[c], weight[c], None, "none", [], "") for c in range(len(weight))]
        return parts[0][None] if len(parts) == 1 else torch.stack(parts)
    return delta @ weight.transpose(1, 2)


def add_product(out: Tensor, x: Any, delta: Tensor) -> None:
    """Add X' D to ``out``, for shapes (C, n, p), (C, n, q) and (C, p, q)."""
    if not isinstance(x, Tensor):
        x.accumulate(out, delta, 1.0)
    elif _by_onednn(x, delta, *out.shape[1:]):
        for c in range(len(out)):
            out[c].add_(_linear(x[c].t(), delta[c].t(), None, "none", [], ""))
    elif len(out) == 1:
        out[0].addmm_(x[0].t(), delta[0])
    else:
        out.baddbmm_(x.transpose(1, 2), delta)
