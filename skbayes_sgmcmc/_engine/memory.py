"""Check before a run that its chains and draws fit into memory."""

from __future__ import annotations

from .._data.memory import free_memory
from .._exceptions import not_allowed


def check_memory(n_chains: int, n_draws: int, n_kept: int, itemsize: int) -> None:
    """Raise ``ValueError`` if the draws of a run will not fit into memory."""
    _check_fits(
        n_chains * n_draws * n_kept * itemsize,
        f"n_draws={n_draws!r} is not allowed here: {n_chains} chains x {n_draws} draws x "
        f"{n_kept} numbers need",
        "give fewer draws or chains, dtype='float32', or storage=Storage(dir=...) if the estimator "
        "has this parameter.",
    )


def check_network_memory(n_parameters: int, n_chains: int) -> None:
    """Raise ``ValueError`` if the chains of a network will not fit into memory."""
    # the least there is: positions, gradients and noise in float32, the prior's rates in float64
    _check_fits(
        n_parameters * (3 * n_chains * 4 + 8),
        f"a network of {n_parameters:.3g} parameters is not allowed here: {n_chains} chains of it "
        "need at least",
        "give smaller layers (hidden_layer_sizes, conv_channels) or fewer chains.",
    )


def check_density_memory(n_parameters: int, n_chains: int) -> None:
    """Raise ``ValueError`` if the starts of a density of one's own will not fit into memory."""
    # the least there is: one start of each chain, and all of them as an array, in float64
    _check_fits(
        n_parameters * n_chains * 16,
        f"n_parameters={n_parameters} is not allowed here: the starts of {n_chains} chains need",
        "give fewer parameters or chains.",
    )


def _check_fits(needed: float, what: str, remedy: str) -> None:
    """``what`` ends before the size, in bytes, that is needed."""
    free = free_memory()
    if free is not None and needed > free:
        raise not_allowed(
            f"{what} {needed / 2**30:.3g} GiB, but {free / 2**30:.1f} GiB are free; {remedy}",
            "the-memory-is-full",
        )
