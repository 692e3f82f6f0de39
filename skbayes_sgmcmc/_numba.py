"""Whether code compiled by numba, which is in the extra ``fast``, is available."""

from __future__ import annotations

from importlib.util import find_spec

from ._imports import imported_whole


def why_no_numba() -> str | None:
    """The reason why compiled code is not available; None if it is."""
    if find_spec("numba") is None:
        return "numba is not installed; install the extra 'skbayes-sgmcmc[fast]'."
    try:
        numba = imported_whole("numba")
    except Exception as error:  # another NumPy than it knows; its library does not fit in memory
        reason = str(error).partition("\n")[0]
        return f"numba can't be imported ({type(error).__name__}: {reason})."
    if numba.config.DISABLE_JIT:
        return "numba compiles nothing, because NUMBA_DISABLE_JIT is set."
    return None
