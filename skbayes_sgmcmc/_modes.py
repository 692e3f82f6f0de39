"""Modes of torch that a caller may be in and that would change what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def usual_modes() -> Iterator[None]:
    """Compute with gradients and in full precision, whatever mode the caller is in.

    Tensors of ``torch.inference_mode`` have no gradients, and ``torch.autocast`` rounds products.
    Decorates functions, too.
    """
    import torch

    with (
        torch.inference_mode(False),  # which ends torch.no_grad, too
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield
