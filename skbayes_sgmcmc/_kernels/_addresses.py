"""Calls of a compiled function by its address, from other compiled functions.

Numba compiles what a function calls once more along with it. By its address, long code is compiled
once, and all callers have its sums in the same order.
"""

from __future__ import annotations

from typing import Any

import numba
from numba._dispatcher import compute_fingerprint
from numba.core import cgutils
from numba.extending import intrinsic

#: by function and by what numba tells types apart with, which takes a hundredth of their time
_known: dict[tuple[Any, bytes], int] = {}


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """Address of the code for arguments of these types, which is compiled if there is none."""
    key = function, compute_fingerprint(arguments)
    if key not in _known:
        types = tuple(numba.typeof(argument) for argument in arguments)
        function.compile(types)
        code = function.overloads[types]
        _known[key] = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
    return _known[key]


def called(function: Any) -> Any:
    """What calls ``function(*arguments)``, in compiled code, as ``(address, arguments)``.

    The address is that for arguments of the same types.
    """

    @intrinsic
    def call(_, address, arguments):
        function.compile(arguments.types)
        result = function.overloads[arguments.types].signature.return_type

        def generate(context, builder, signature, given):
            types = arguments.types
            code = context.call_conv.get_function_type(result, types).as_pointer()
            status, value = context.call_conv.call_function(
                builder,
                builder.inttoptr(given[0], code),
                result,
                types,
                cgutils.unpack_tuple(builder, given[1], len(types)),
            )
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return value

        return result(address, arguments), generate

    return call
