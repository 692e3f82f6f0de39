"""Compiled code on disk, which is used only along with the sources that it was made from."""

from __future__ import annotations

import gc
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache

FOLDER = Path(__file__).parent
#: digest of all files of this folder, and of the polynomials: numba compares the file of the
#: function alone, and not those of the functions that it calls
SOURCES = hashlib.sha256(
    b"".join(
        path.read_bytes()
        for path in [FOLDER.parent / "_polynomials.py", *sorted(FOLDER.glob("*.py"))]
    )
).digest()


class KeptCode(FunctionCache):
    """Compiled code of a function; without a disk that can be read and written, there is none."""

    def __init__(self, function: Any):
        super().__init__(function)
        self._cache_file._source_stamp = SOURCES

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """As numba's, with the names of the functions that a closure holds.

        Numba pickles them, and a compiled function has another pickle in each process.
        """
        held = [cell.cell_contents for cell in self._py_func.__closure__ or ()]
        return sig, codegen.magic_tuple(), tuple(function.__name__ for function in held)

    def load_overload(self, *args: Any) -> Any:
        with suppress(Exception):  # a damaged file is as good as none
            return super().load_overload(*args)

    def save_overload(self, *args: Any) -> None:
        with suppress(Exception):
            try:
                self._cache_file._load_index()
            except OSError:  # the disk cannot be read
                raise
            except Exception:  # the index is damaged, and would stay in the way of later code
                self.flush()
            super().save_overload(*args)
        gc.collect()  # numba's tracebacks hold every frame below, with its rows, in cycles


def keep(compiled: Any) -> Any:
    """Let a function that numba compiles keep its code on disk, where numba would."""
    with suppress(Exception):  # no folder that can be written to
        compiled._cache = KeptCode(compiled.py_func)
    return compiled
