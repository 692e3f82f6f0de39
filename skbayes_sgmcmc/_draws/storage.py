"""Storage of draws: arrays in memory or memory-mapped files, in full or half precision.

numpy has no bfloat16. Such numbers are stored as the ``uint16`` of their bits, which are the upper
half of a float32.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np

from .._arrays import Array
from .._exceptions import explained, not_allowed
from .._sklearn import BaseEstimator
from .._validation import check_choice

ENCODED = np.dtype(np.uint16)
#: how the names of files begin that only show that a folder takes files
PROBE = ".skbayes-"


class Storage(BaseEstimator):
    """Precision and location of the stored draws.

    Parameters
    ----------
    dtype : {"auto", "float32", "float64", "bfloat16"}, default="auto"
        Precision of the stored draws. "auto" is the precision of the sampling. "bfloat16" needs
        half the space of float32; its relative rounding error is at most 1/512.
    dir : path or None, default=None
        Folder for memory-mapped files. None keeps the draws in memory. On Linux and macOS the files
        have no names, and are deleted together with the estimator.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianMLPClassifier, Storage
    >>> clf = BayesianMLPClassifier(storage=Storage("bfloat16"))
    >>> clf.set_params(storage__dtype="float32").storage
    Storage(dtype='float32')
    """

    def __init__(self, dtype: str = "auto", dir: str | os.PathLike[str] | None = None):
        self.dtype = dtype
        self.dir = dir

    def __getstate__(self) -> dict[str, Any]:
        # a path is stored as text, because files without pickle cannot hold path objects
        folder = os.fspath(self.dir) if isinstance(self.dir, os.PathLike) else self.dir
        return super().__getstate__() | {"dir": folder}

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is that of the object."""
        check_choice(f"{name}.dtype", self.dtype, ("auto", "float32", "float64", "bfloat16"))
        if self.dir is None:
            return
        refused = f"{name}.dir={self.dir!r} is not allowed"
        if not isinstance(self.dir, str | os.PathLike) or not os.fspath(self.dir):
            raise not_allowed(f"{refused}: give the name of a folder, or None.")
        refused = f"{name}.dir={os.fspath(self.dir)!r} is not allowed"
        if not os.path.isdir(self.dir):
            raise not_allowed(f"{refused}: there is no such folder.")
        check_writable(refused, os.fspath(self.dir))


def check_writable(refused: str, folder: str | os.PathLike[str]) -> None:
    """Raise ``ValueError`` if no file can be made in a folder; ``refused`` begins the message."""
    try:
        tempfile.TemporaryFile(dir=os.fspath(folder), prefix=PROBE).close()
    except OSError as error:  # /proc, a disk that is read-only, a folder of someone else
        raise not_allowed(
            f"{refused}: no file can be made there ({error.strerror}); give another folder."
        ) from None


def allocate(shape: tuple[int, ...], dtype: str, folder: Any = None) -> Array:
    """Allocate an array for draws in memory, or in a new file in ``folder``.

    On Linux and macOS the file disappears when the array is no longer used.

    Raises
    ------
    OSError
        There is not enough room in the folder. The message states the size that is needed.
    """
    kind = ENCODED if dtype == "bfloat16" else np.dtype(dtype)
    if folder is None:
        return np.empty(shape, kind)
    size = int(np.prod(shape)) * kind.itemsize
    try:
        # a kill leaves nothing behind: the file has no name, and lives as long as its map
        with tempfile.TemporaryFile(dir=folder, prefix="draws-", suffix=".bin") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(size, 1))  # a full disk fails now
            else:
                os.truncate(file.fileno(), max(size, 1))
            # no np.memmap, which joblib sends to processes by the name of its file
            return np.ndarray(shape, kind, mmap.mmap(file.fileno(), max(size, 1)))
    except OSError as error:
        raise explained(
            OSError(
                error.errno,
                f"storage.dir={str(folder)!r} has no room for the draws ({size / 2**20:.3g} MiB): "
                "give another folder, fewer draws, or storage.dtype='bfloat16'",
            ),
            "the-memory-is-full",
        ) from error


def dtype_name(dtype: Any) -> str:
    """The name of a torch dtype in numpy."""
    return str(dtype).removeprefix("torch.")


def encode(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert values for storage in an array of this dtype.

    bfloat16 rounds to the nearest number, and ties to even.
    """
    if dtype != ENCODED:
        return values
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF).astype(np.uint32)) >> 16
    return np.where(np.isfinite(values), rounded, bits >> 16).astype(ENCODED)


def decode(values: Array) -> Array:
    """The numbers that an array of draws stores; the bits of bfloat16 numbers become float32."""
    if values.dtype != ENCODED:
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)
