"""Where draws are kept: host arrays or files mapped into memory, in full or half precision.

bfloat16, which numpy lacks, is held as the ``uint16`` of its bits: the upper half of a float32's.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._validation import check_choice

Array = NDArray[Any]

ENCODED = np.dtype(np.uint16)


class Storage(BaseEstimator):
    """The precision and the place in which draws are kept.

    Parameters
    ----------
    dtype : {"auto", "float32", "float64", "bfloat16"}, default="auto"
        Precision of the kept draws. "auto" is the precision of the sampling. "bfloat16" needs half
        the space of float32 and rounds by at most 1/512 of each number.
    dir : path or None, default=None
        Folder for files that are mapped into memory; None keeps the draws in memory. On Linux and
        macOS the files have no names and vanish with the estimator.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianMLPClassifier, Storage
    >>> clf = BayesianMLPClassifier(storage=Storage("bfloat16"))
    >>> clf.set_params(storage__dtype="float32").storage
    Storage(dtype='float32')
    """

    def __init__(self, dtype: str = "auto", dir: Any = None):
        self.dtype = dtype
        self.dir = dir

    def __getstate__(self) -> dict[str, Any]:
        # a path is kept as text, which is all that files without pickle can hold
        folder = os.fspath(self.dir) if isinstance(self.dir, os.PathLike) else self.dir
        return super().__getstate__() | {"dir": folder}

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is the object's."""
        check_choice(f"{name}.dtype", self.dtype, ("auto", "float32", "float64", "bfloat16"))
        if self.dir is None:
            return
        refused = f"{name}.dir={self.dir!r} is not allowed"
        if not isinstance(self.dir, str | os.PathLike) or not os.fspath(self.dir):
            raise ValueError(f"{refused}: give the name of a folder, or None.")
        refused = f"{name}.dir={os.fspath(self.dir)!r} is not allowed"
        if not os.path.isdir(self.dir):
            raise ValueError(f"{refused}: there is no such folder.")
        try:
            tempfile.TemporaryFile(dir=os.fspath(self.dir)).close()
        except OSError as error:  # /proc, a disk that is read-only, a folder of someone else
            raise ValueError(
                f"{refused}: no file can be made there ({error.strerror}); give another folder."
            ) from None


def allocate(shape: tuple[int, ...], dtype: str, folder: Any = None) -> Array:
    """An array for draws in memory, or in a new file in ``folder``.

    The file is deleted when the array is no longer used, on systems that allow it at once.

    Raises
    ------
    OSError
        There is no room in the folder; the message has the size that is needed.
    """
    kind = ENCODED if dtype == "bfloat16" else np.dtype(dtype)
    if folder is None:
        return np.empty(shape, kind)
    size = int(np.prod(shape)) * kind.itemsize
    handle, name = tempfile.mkstemp(dir=folder, prefix="draws-", suffix=".bin")
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, max(size, 1))  # a full disk shows now, not in mid-run
        else:
            os.truncate(handle, max(size, 1))
        # numpy maps the file by a handle of its own
        return np.memmap(open(handle, "r+b", closefd=False), kind, "r+", shape=shape)
    except OSError as error:
        raise OSError(
            error.errno,
            f"storage.dir={str(folder)!r} has no room for the draws ({size / 2**30:.2f} GiB): give "
            "another folder, fewer draws, or storage.dtype='bfloat16'",
        ) from error
    finally:
        os.close(handle)  # else a failed fit would keep the file's space
        if os.name == "posix":
            Path(name).unlink(missing_ok=True)


def dtype_name(dtype: Any) -> str:
    """Numpy's name of a torch dtype."""
    return str(dtype).removeprefix("torch.")


def encode(values: Array, dtype: np.dtype[Any]) -> Array:
    """Values as an array of this dtype holds them; to bfloat16 by rounding to the nearest even."""
    if dtype != ENCODED:
        return values
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF).astype(np.uint32)) >> 16
    return np.where(np.isfinite(values), rounded, bits >> 16).astype(ENCODED)


def decode(values: Array) -> Array:
    """The numbers that an array of draws holds: itself, or float32 of bfloat16's bits."""
    if values.dtype != ENCODED:
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)
