"""Modes of torch that a caller may be in, and torch's global random numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: torch's global random numbers are put aside by one thread at a time
_ASIDE = threading.RLock()


@contextmanager
def usual_modes() -> Iterator[None]:
    """Compute with gradients and in full precision, whatever mode the caller is in.

    Tensors of ``torch.inference_mode`` have no gradients, and ``torch.autocast`` rounds products.
    Decorates functions, too.
    """
    import torch

    with torch.inference_mode(False), in_full_precision():  # the first ends torch.no_grad, too
        yield


@contextmanager
def in_full_precision() -> Iterator[None]:
    """Compute in full precision, with or without gradients as the caller does."""
    import torch

    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


@contextmanager
def numbers_put_aside(seed: int | None = None, devices: Sequence[Any] = ()) -> Iterator[None]:
    """Let torch's global random numbers start from a seed, and be as before afterwards.

    ``devices`` are GPUs whose numbers are put aside, too; those of others stay as they are.
    """
    import torch

    with _ASIDE, torch.random.fork_rng(devices=list(devices)):
        if seed is not None:  # not torch.manual_seed, which would change the state of GPUs
            torch.default_generator.manual_seed(seed)
            for each in devices:
                with torch.cuda.device(each):
                    torch.cuda.manual_seed(seed)
        yield


class OwnNumbers:
    """Torch's global random numbers of work in parts: each part goes on where the last one ended.

    Between the parts, torch's numbers are free for the work of other threads.
    """

    def __init__(self, seed: int, devices: Sequence[Any] = ()):
        self._seed, self._devices = seed, list(devices)
        #: of the CPU and of the devices, where the last part ended; None before the first
        self._states: tuple[Any, list[Any]] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let torch's global random numbers be these, and be as before afterwards."""
        import torch

        with numbers_put_aside(self._seed, self._devices):
            if self._states is not None:
                own, on_devices = self._states
                torch.random.set_rng_state(own)
                for device, state in zip(self._devices, on_devices, strict=True):
                    torch.cuda.set_rng_state(state, device)
            yield
            on_devices = [torch.cuda.get_rng_state(device) for device in self._devices]
            self._states = torch.random.get_rng_state(), on_devices
