r"""Feed-forward networks as functions of flat parameters, for many chains at once.

A network maps positions (chains, n_parameters) and inputs (chains or 1, rows, ...) to outputs
(chains, rows, n_outputs). It also maps the derivatives of a loss with respect to the outputs to
the derivatives with respect to the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from ..._arrays import Array
from ..._draws.storage import dtype_name
from ..._limits import LIMITS
from .._linalg import is_sparse
from ..designs.indicators import ShiftedRows, indicator_design, sparse_design
from .passes import Rounded

#: sd of the starts of chains around the values of a module, relative to these values
START_SPREAD = 0.01


class Network:
    """Base class of networks."""

    #: name and shape of every block of parameters, in the order of theta
    shapes: dict[str, tuple[int, ...]]
    #: number of inputs of a unit, for every block of weights; the other blocks are biases and
    #: similar parameters
    fan_in: dict[str, int]
    #: names of values that depend on a draw but are not sampled, such as statistics of batch norms
    buffers: Sequence[str] = ()
    #: name of the block of weights (n_features, units) whose rows belong to the input features, if
    #: there is one; and which learned scale those of each feature have, counted from 0. None: its
    #: own
    input_block: str | None = None
    input_parts: Array | None = None
    #: name of the block of weights (units, n_outputs) whose columns belong to the outputs, and of
    #: the biases (n_outputs,) that are added to products with it; None if there are none
    output_block: str | None = None
    output_bias: str | None = None
    #: name of the sampler that ``sampler="auto"`` means. None: it depends on the rows
    sampler: str | None = None
    #: whether ``dtype="auto"`` means float32 even for small networks
    single_precision: bool = False
    #: whether the last block of weights in ``fan_in`` belongs to the outputs
    ends_in_outputs: bool = True
    #: whether outputs are linear in theta
    linear: bool = False
    #: whether its operations are known to be recordable on a GPU
    recordable: bool = True
    #: whether ``row_products`` are all that a row takes; a user's module may have frozen parts
    counts_products: bool = False
    #: whether rows may be a ``DesignBatch``
    takes_sparse: bool = False
    #: "module": chains start near the network's own values
    start: str = "random"

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers of parameters of the blocks."""
        return [math.prod(shape) for shape in self.shapes.values()]

    @property
    def row_products(self) -> int:
        """About how many multiplications the outputs of a row take: at least one a parameter."""
        return sum(self.sizes)

    def blocks(self, theta: Tensor) -> Iterator[Tensor]:
        """Views (..., *shape) of the blocks of positions (..., n_parameters)."""
        parts = zip(theta.split_with_sizes(self.sizes, -1), self.shapes.values(), strict=True)
        return (part.view(theta.shape[:-1] + shape) for part, shape in parts)

    def init(self, rng: np.random.Generator) -> Array:
        """Random weights of variance 2 / fan-in (He et al. 2015); the other blocks are zero."""
        if self.start == "module":
            return near(self.values(), self.sizes, rng)
        parts = []
        for name, size in zip(self.shapes, self.sizes, strict=True):
            if name in self.fan_in:
                parts.append(rng.standard_normal(size) * np.sqrt(2.0 / self.fan_in[name]))
            else:
                parts.append(self._start_of(name, size))
        return np.concatenate(parts)

    def _start_of(self, name: str, size: int) -> Array:
        """Where a block that is not of weights starts."""
        return np.zeros(size)

    def takes(self, x: Any, device: str) -> bool:
        """Whether products with these rows are quicker as a CSR matrix, which the network takes."""
        if not self.takes_sparse or device != "cpu":
            return False
        return x.is_sparse if isinstance(x, ShiftedRows) else sp.issparse(x) and is_sparse(x)

    def rows(self, x: Any, dtype: torch.dtype, device: str) -> Any:
        """Rows as :meth:`outputs` takes them: a tensor (1, rows, ...), or a ``DesignBatch``."""
        if self.takes(x, device):
            return sparse_design(x, dtype).whole()
        dense = x[:] if not hasattr(x, "toarray") else x.toarray()
        rows = torch.from_numpy(np.ascontiguousarray(dense, dtype_name(dtype))).to(device)
        design = indicator_design(rows) if self.takes_sparse and device == "cpu" else None
        return rows[None] if design is None else design.whole()

    def values(self) -> Array:
        """The network's own values of its parameters, (n_parameters,); only modules have some."""
        raise NotImplementedError

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        """Outputs (chains, rows, n_outputs), given the ``buffers`` (chains, ...) of draws.

        None: those of the rows, as in steps.
        """
        raise NotImplementedError

    def in_bfloat16(self) -> Any:
        """Passes of this network in bfloat16; inputs and results keep theta's precision."""
        return Rounded(self)

    def buffer_values(self, theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        """The ``buffers`` for one position (n_parameters,), computed over the rows x."""
        return {}

    def draws_at_once(self, n_rows: int) -> int:
        """How many draws can predict ``n_rows`` rows at once."""
        return 1

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        """A torch module that maps rows (rows, ...) to the outputs of several draws.

        Its outputs have shape (draws, rows, n_outputs). ``draws`` are draws of ``shapes`` and
        ``buffers``, in float32.
        """
        raise NotImplementedError

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        """Outputs, and a tape of intermediate results for :meth:`backward`."""
        raise NotImplementedError

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        """Add d loss / d theta to ``out``, for delta = d loss / d outputs.

        ``delta`` may be overwritten.
        """
        raise NotImplementedError


class ReferenceClass(Network):
    """A network with one output f as a classifier of two classes, with the logits 0 and f."""

    def __init__(self, network: Network):
        self.network = network
        self.shapes, self.fan_in = network.shapes, network.fan_in
        self.buffers, self.single_precision = network.buffers, network.single_precision
        self.linear, self.takes_sparse = network.linear, network.takes_sparse
        self.recordable = network.recordable

    @property
    def row_products(self) -> int:
        return self.network.row_products

    def init(self, rng: np.random.Generator) -> Array:
        return self.network.init(rng)

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        return _after_zero(self.network.outputs(theta, x, buffers))

    def draws_at_once(self, n_rows: int) -> int:
        return self.network.draws_at_once(n_rows)

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        return nn.Sequential(self.network.stacked(draws), nn.ConstantPad1d((1, 0), 0.0))

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        f, tape = self.network.forward(theta, x)
        return _after_zero(f), tape

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        self.network.backward(tape, delta[..., 1:].contiguous(), out)


def near(values: Array, sizes: Sequence[int], rng: np.random.Generator) -> Array:
    """The values of blocks of these sizes, plus normal numbers in proportion to each block."""
    blocks = np.split(values, np.cumsum(sizes)[:-1])
    lengths = np.array([_root_mean_square(block) for block in blocks])
    spread = np.repeat(np.where(lengths > 0.0, lengths, _root_mean_square(values)), sizes)
    return np.asarray(values + START_SPREAD * spread * rng.standard_normal(len(values)))


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _after_zero(f: Tensor) -> Tensor:
    return nn.functional.pad(f, (1, 0))


def draws_that_fit(network: Network, n_rows: int, widest: int) -> int:
    """Largest number of draws whose outputs of the widest layer, and parameters, are a block."""
    of_parameters = LIMITS.drawn_numbers // max(1, sum(network.sizes))
    return max(1, min(LIMITS.block_numbers // (n_rows * widest), of_parameters))
