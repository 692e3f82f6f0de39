"""Check before a run that its draws fit into memory."""

from __future__ import annotations

from .._data.memory import free_memory
from .._exceptions import not_allowed


def check_memory(n_chains: int, n_draws: int, n_kept: int, itemsize: int) -> None:
    """Raise ``ValueError`` if the draws of a run will not fit into memory."""
    needed = n_chains * n_draws * n_kept * itemsize
    free = free_memory()
    if free is not None and needed > free:
        raise not_allowed(
            f"n_draws={n_draws!r} is not allowed here: {n_chains} chains x {n_draws} draws x "
            f"{n_kept} numbers need {needed / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB "
            "are free; give fewer draws or chains, dtype='float32', or storage=Storage(dir=...) "
            "if the estimator has this parameter.",
            "the-memory-is-full",
        )


def check_network_memory(n_parameters: int, n_chains: int) -> None:
    """Raise ``ValueError`` if the chains of a network will not fit into memory."""
    # the least there is: positions, gradients and noise in float32, the prior's rates in float64
    needed = n_parameters * (3 * n_chains * 4 + 8)
    free = free_memory()
    if free is not None and needed > free:
        raise not_allowed(
            f"a network of {n_parameters:.3g} parameters is not allowed here: {n_chains} chains "
            f"of it need at least {needed / 2**30:.3g} GiB and {free / 2**30:.1f} GiB are free; "
            "give smaller layers (hidden_layer_sizes, conv_channels) or fewer chains.",
            "the-memory-is-full",
        )
