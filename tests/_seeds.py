"""The option ``--shift-seeds``: every whole number that is given as a seed is another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

#: what is added to each seed, for processes that tests start
SHIFT = 0


@contextmanager
def as_given() -> Iterator[None]:
    """Seeds are what they say: for data that stored references belong to."""
    moved = {name: getattr(np.random, name) for name in NUMPYS}
    for name, original in NUMPYS.items():
        setattr(np.random, name, original)
    try:
        yield
    finally:
        for name, one in moved.items():
            setattr(np.random, name, one)


#: what numpy has before seeds are moved
NUMPYS = {name: getattr(np.random, name) for name in ("RandomState", "SeedSequence", "default_rng")}


def shift(by: int) -> None:
    """Add ``by`` to every seed from now on: numpy's, hence scikit-learn's and ours, and torch's.

    The generators stay of numpy's classes, which code asks for with ``isinstance``. Torch's own
    seed is moved in ``torch.manual_seed`` only.
    """
    global SHIFT
    if not by:
        return
    import torch

    SHIFT = by

    def moved(seed):
        return seed + by if isinstance(seed, int | np.integer) else seed

    class RandomState(np.random.RandomState):
        def __init__(self, seed=None):
            super().__init__(moved(seed))

    class SeedSequence(np.random.SeedSequence):
        def __init__(self, entropy=None, *, spawn_key=(), **options):
            # children are made of their parent's entropy, which has been moved
            first = moved(entropy) if not spawn_key else entropy
            super().__init__(first, spawn_key=spawn_key, **options)

    default_rng, manual_seed = np.random.default_rng, torch.manual_seed
    np.random.RandomState, np.random.SeedSequence = RandomState, SeedSequence
    np.random.default_rng = lambda seed=None: default_rng(moved(seed))
    torch.manual_seed = lambda seed: manual_seed(moved(seed))
