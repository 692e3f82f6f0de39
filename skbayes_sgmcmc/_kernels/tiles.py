"""Products whose sums stay in registers while they grow.

The loops that numba makes store a sum after every four products. Here the processor's vectors are
written out: a tile is a few outputs of ``TILE`` rows, and its sums are stored once.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from . import OPTIONS

#: numbers in a vector of the processor, and rows of a tile: with four outputs, its sums take half
#: of the sixteen registers that most processors have
WIDTH = 16 if "+avx512f" in get_host_cpu_features() else 8
TILE = 2 * WIDTH

PLACE, VECTOR = ir.IntType(64), ir.VectorType(ir.FloatType(), WIDTH)
#: the first number of a vector in all places
FIRST = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), None)
#: units of a layer whose weights are looked up together
UNITS = 8
FLAGS = tuple(OPTIONS["fastmath"])


def tile(outputs: int, rows: int) -> Any:
    """A function that adds products to a tile of arrays with ``rows`` numbers in a row.

    ``add(w, outs, n_in, ins, a, sources, out, targets, o, r)`` adds the sum over i < n_in of
    w[outs[o + j] + ins[i]] a[sources[i], s] to out[targets[o + j], s], for j < ``outputs`` and s
    from r to r + TILE. Places such as ``outs`` are an array, or (first, step) if evenly spaced.
    """

    @intrinsic
    def add(typing, w, outs, n_in, ins, a, sources, out, targets, o, r):
        n = types.intp
        signature = types.void(w, outs, n, ins, a, sources, out, targets, n, n)

        def generate(context, builder, signature, arguments):
            w, outs, n_in, ins, a, sources, out, targets, o, r = (
                context.make_array(kind)(context, builder, value)
                if isinstance(kind, types.Array)
                else value
                for kind, value in zip(signature.args, arguments, strict=True)
            )
            code = Code(builder, rows)
            weights, places, sums = [], [], []
            for j in range(outputs):
                weights.append(code.place(outs, o, j))
                places.append(code.vectors(out, code.place(targets, o, j), r))
                sums.append([code.variable(code.load(place)) for place in places[j]])
            with cgutils.for_range(builder, n_in) as loop:
                inputs = code.vectors(a, code.place(sources, loop.index), r)
                inputs = [code.load(place) for place in inputs]
                weight = code.place(ins, loop.index)
                for j in range(outputs):
                    everywhere = code.repeated(w, builder.add(weights[j], weight))
                    for total, x in zip(sums[j], inputs, strict=True):
                        code.add_product(total, everywhere, x)
            for total, place in zip(chain(*sums), chain(*places), strict=True):
                builder.store(builder.load(total), place, align=4)
            return context.get_dummy_value()

        return signature, generate

    return add


@intrinsic
def add_scaled(typing, out, to, x, a, at):
    """Add x a[at + j] to out[to + j], for j < ``UNITS``."""
    n = types.intp
    signature = types.void(out, n, x, a, n)

    def generate(context, builder, signature, arguments):
        kinds, (out, to, x, a, at) = signature.args, arguments
        kind = ir.VectorType(ir.FloatType(), UNITS)
        some, places = ir.Constant(kind, ir.Undefined), ir.VectorType(ir.IntType(32), UNITS)
        factor = builder.insert_element(some, x, PLACE(0))
        factor = builder.shuffle_vector(factor, some, ir.Constant(places, None))
        target, source = (
            builder.bitcast(
                builder.gep(context.make_array(kinds[i])(context, builder, array).data, [place]),
                kind.as_pointer(),
            )
            for i, array, place in ((0, out, to), (3, a, at))
        )
        product = builder.fmul(factor, builder.load(source, align=4), flags=FLAGS)
        after = builder.fadd(builder.load(target, align=4), product, flags=FLAGS)
        builder.store(after, target, align=4)
        return context.get_dummy_value()

    return signature, generate


class Code:
    """The instructions of a tile, for arrays with ``rows`` numbers in a row."""

    def __init__(self, builder: Any, rows: int):
        self.builder, self.rows = builder, PLACE(rows)

    def number(self, array: Any, at: Any) -> Any:
        """The number of an array at a place."""
        return self.builder.load(self.builder.gep(array.data, [at]))

    def place(self, places: Any, at: Any, more: int = 0) -> Any:
        """The place number ``at + more``."""
        at = self.builder.add(at, PLACE(more))
        if hasattr(places, "data"):
            return self.number(places, at)
        first, step = (self.builder.extract_value(places, part) for part in range(2))
        return self.builder.add(first, self.builder.mul(at, step))

    def vectors(self, array: Any, row: Any, r: Any) -> list[Any]:
        """Pointers to the vectors that a tile has of a row, from the number r on."""
        first = self.builder.add(self.builder.mul(row, self.rows), r)
        pointers = (
            self.builder.gep(array.data, [self.builder.add(first, PLACE(start))])
            for start in range(0, TILE, WIDTH)
        )
        return [self.builder.bitcast(pointer, VECTOR.as_pointer()) for pointer in pointers]

    def load(self, vector: Any) -> Any:
        """The vector that a pointer is to."""
        return self.builder.load(vector, align=4)

    def repeated(self, array: Any, at: Any) -> Any:
        """A vector of the same number, that of an array at a place."""
        some = ir.Constant(VECTOR, ir.Undefined)
        vector = self.builder.insert_element(some, self.number(array, at), PLACE(0))
        return self.builder.shuffle_vector(vector, some, FIRST)

    def variable(self, value: Any) -> Any:
        """A variable, which the compiler keeps in a register."""
        return cgutils.alloca_once_value(self.builder, value)

    def add_product(self, total: Any, x: Any, y: Any) -> None:
        """Add x y to a variable."""
        product = self.builder.fmul(x, y, flags=FLAGS)
        after = self.builder.fadd(self.builder.load(total), product, flags=FLAGS)
        self.builder.store(after, total)
