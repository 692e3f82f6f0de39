"""Gradients of perceptrons and small convolutions by compiled kernels, with rows in the cache.

The outputs of perceptrons, for predictions, have a kernel, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Batch
from ..._limits import LIMITS, slices
from ..._metric import State
from ..._numba import why_no_numba
from .._threads import allowed_threads
from ..designs.indicators import IndicatorBatch
from ..likelihoods.base import (
    TYPICAL_NOISE,
    Categorical,
    Categoricals,
    Gaussian,
    Heteroscedastic,
    Likelihood,
    LinearAbove,
)
from ..likelihoods.counts import LogMean, NegativeBinomial, Poisson
from ..likelihoods.student import StudentNoise
from ..likelihoods.zero_inflated import ZeroInflatedNegativeBinomial, ZeroInflatedPoisson
from .cnn import CNN, Convolution
from .delayed_outputs import SHARE
from .mlp import ACTIVATIONS, MLP

if TYPE_CHECKING:
    from .model import NetworkModel


#: likelihoods, with the kernel's numbers
LIKELIHOODS: dict[type[Likelihood], int] = {
    Categorical: 0,
    Categoricals: 0,
    Gaussian: 1,
    Heteroscedastic: 2,
    StudentNoise: 3,
    Poisson: 4,
    NegativeBinomial: 5,
    ZeroInflatedPoisson: 6,
    ZeroInflatedNegativeBinomial: 7,
}
#: its numbers for others, which take the outputs and give it the slopes in them
OUTPUTS, SLOPES = 8, 9
NO_LABELS = np.zeros((1, 0, 1), np.int64)


def in_kernel(likelihood: Likelihood) -> bool:
    """Whether the kernel has a likelihood; of others, torch computes the slopes in the outputs."""
    return type(_unbent(likelihood)) in LIKELIHOODS


def _unbent(likelihood: Likelihood) -> Likelihood:
    return likelihood.given if isinstance(likelihood, LinearAbove) else likelihood


def has_kernel(model: NetworkModel) -> bool:
    """Whether the kernel computes the gradients of a model's network."""
    return type(model.network) in (MLP, CNN)


def kernel_pays(network: Any, n_steps: int) -> bool:
    """Whether the kernel is faster than torch, and the run long enough for compiling it."""
    top, layers = _parts(network)
    few = max(top.units[1:]) <= LIMITS.compiled_units
    few &= all(layer.multiplications <= LIMITS.compiled_products for layer in layers)
    return few and n_steps * (len(top.units) - 1 + len(layers)) >= LIMITS.worth_layers


def compiled_outputs_pay(network: Any, x: Any, n_draws: int) -> bool:
    """Whether :func:`write_outputs` is available for these rows, and faster than torch.

    The answer depends on sizes alone, so that equal calls have equal results.
    """
    if type(network) is not MLP or not isinstance(x, Tensor):
        return False
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return False
    units = network.units[1:]
    if max(units) > LIMITS.compiled_units:
        return False
    return n_draws * x.shape[1] * sum(units) >= LIMITS.worth_outputs and why_no_numba() is None


def write_outputs(network: Any, theta: Array, x: Tensor, out: Array) -> None:
    """Write the outputs of draws of a perceptron to ``out`` (draws, k, rows).

    The draws share the rows x (1, rows, columns). Results are those of the network up to rounding.
    """
    from ..._kernels.outputs import outputs

    rows, sizes = x[0].contiguous().numpy(), np.array(network.units)
    activation = list(ACTIVATIONS).index(network.activation)

    def write(some: slice) -> None:
        outputs(theta[some], rows, sizes, activation, out[some])

    n_threads = allowed_threads()
    if n_threads == 1:
        return write(slice(None))
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(write, slices(len(theta), -(-len(theta) // n_threads))))
    return None


def _parts(network: Any) -> tuple[MLP, list[Convolution]]:
    """The perceptron, and the convolutions below it."""
    return (network.top, network.layers) if isinstance(network, CNN) else (network, [])


class CompiledPasses:
    """Passes of a perceptron, which may have convolutions below it, for any likelihood.

    ``forward`` and ``backward`` are those of ``passes.py``. The second computes the outputs anew:
    it is for likelihoods that take far longer than that.
    """

    def __init__(self, network: Any):
        top, layers = _parts(network)
        #: the convolutions, in the kernel's form
        self.images = connections(layers) if layers else None
        self._sizes = np.array(top.units)
        self._activation = list(ACTIVATIONS).index(network.activation)

    def forward(self, theta: Tensor, x: Any) -> tuple[Tensor, Any]:
        theta = theta.contiguous()
        tape = theta, x, torch.zeros_like(theta)
        f = theta.new_empty(len(theta), _dense(x).shape[1], int(self._sizes[-1]))
        self._take(OUTPUTS, f, *tape)
        return f, tape

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        self._take(SLOPES, delta.contiguous(), *tape)
        out.add_(tape[2])

    def _take(self, kind: int, y: Tensor, theta: Tensor, x: Any, slope: Tensor) -> None:
        """Write outputs to y, or add to ``slope`` what slopes y in the outputs make of it."""
        from ..._kernels.perceptron import gradient

        n_chains, n_rows, k = y.shape
        none, share = np.zeros(k, np.float32), np.ones(n_chains, np.float32)
        weight = np.zeros((1, n_rows), np.float32)
        rows = y.numpy(), NO_LABELS, weight
        given = self._given(x, *rows, self._sizes[-1:], kind, none, none, share)
        gradient(theta.numpy(), *given, slope.numpy(), np.zeros(n_chains))

    def _given(
        self, x: Any, y: Array, labels: Array, weight: Array, *likelihood: Any
    ) -> tuple[Any, ...]:
        """What the kernel needs besides the positions.

        They are rows, the network, its convolutions, and weights to look up. Dense rows have
        nothing to look up.
        """
        lookups = None
        if isinstance(x, IndicatorBatch):
            rest: Any = x.rest  # a CSRBatch, as always on a CPU
            lookups = rest.for_kernels(), x.places.numpy(), x.constant.numpy()
        x = np.ascontiguousarray(_dense(x).numpy())
        x = x.reshape(*x.shape[:2], -1)
        network = self._sizes, self._activation, *likelihood
        return (x, y, labels, weight, 0), network, self.images, lookups


class PerceptronGradient(CompiledPasses):
    """The gradient of a perceptron's likelihood, and its value, in one pass over the rows.

    Results are those of the network and of the likelihood, one of ``LIKELIHOODS``, up to rounding.
    """

    def __init__(self, network: Any, likelihood: Any):
        super().__init__(network)
        given: Any = _unbent(likelihood)
        self._kind, self._counts = LIKELIHOODS[type(given)], isinstance(given, LogMean)
        self._classes = np.array(getattr(given, "sizes", self._sizes[-1:]))
        shift, bound = np.array([math.log(TYPICAL_NOISE)]), np.zeros(1)
        if isinstance(given, Heteroscedastic):
            bound = given.floor
        elif isinstance(given, Gaussian):
            shift = shift.repeat(given.n_outputs)
            if given.noise is not None:
                shift = np.log(given.noise)
            if isinstance(given, StudentNoise):
                bound = np.full(given.n_outputs, given.given_df or 0.0)
        elif self._counts:
            shift = np.log(given.typical)
            bound = likelihood.bend if likelihood is not given else np.full(len(shift), np.inf)
        self._numbers = shift.astype(np.float32), bound.astype(np.float32)

    def add_gradient(
        self, theta: Tensor, batch: Batch, state: State, out: Tensor, scale: float
    ) -> Tensor:
        """Add the scaled gradient to ``out``; return the scaled sums of -log p, (chains,)."""
        from ..._kernels.perceptron import gradient

        given, total = self.given(batch, state, len(theta), scale), np.zeros(len(theta))
        gradient(theta.contiguous().numpy(), *given, out.numpy(), total)
        return torch.from_numpy(-total)

    def given(self, batch: Batch, state: State, n_chains: int, scale: float) -> tuple[Any, ...]:
        """What the kernels need besides the positions, with scaled weights and the likelihood."""
        y, x = batch.by_chain("y"), batch.by_chain("x")
        classes = self._kind == 0
        if self._counts:  # the kernel needs logarithms of their factorials
            y = torch.cat([y, torch.lgamma(y + 1.0)], dim=2)
        y = np.ascontiguousarray(y.numpy())
        return self._given(
            x,
            np.zeros((1, 0, 1), np.float32) if classes else y,
            y.reshape(*y.shape[:2], -1) if classes else NO_LABELS,
            _weights(batch, _dense(x).shape[1], scale),
            self._classes,
            self._kind,
            *self._numbers,
            state[SHARE].numpy().ravel() if SHARE in state else np.ones(n_chains, np.float32),
        )


def _dense(x: Any) -> Tensor:
    """Dense inputs (chains or 1, rows, ...)."""
    if isinstance(x, IndicatorBatch):
        x = x.some.x
        return x if x.ndim == 3 else x[None]
    return x


def connections(layers: Sequence[Convolution]) -> tuple[Array, ...]:
    """What ``_kernels/convolutions.py`` needs of convolutions: shapes, and which units they read.

    Channels of the images come first, and those of the layers last.
    """
    shapes, sources, weights = [], [], []
    counts: list[Array] = []
    for number, layer in enumerate(layers):
        (height, width), before = layer.sides, layer.before
        # axes: pixels after the pool, its members, rows and columns of a kernel, channels
        sides = zip(layer.sides_after, layer.pool, layer.kernel, strict=True)
        y, x = (_read(*side) for side in sides)
        y, x = y[:, None, :, None, :, None, None], x[None, :, None, :, None, :, None]
        c = np.arange(before)
        unit = (c * height + y) * width + x if number == 0 else (y * width + x) * before + c
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        inside = np.broadcast_to(inside, unit.shape)
        n_in = before * math.prod(layer.kernel)
        weight = np.broadcast_to(np.arange(n_in).reshape(*layer.kernel, before), unit.shape)
        pixels, members = math.prod(layer.sides_after), math.prod(layer.pool)
        shapes.append((pixels, members, layer.after, n_in, sum(len(n) for n in counts)))
        counts.append(inside.sum((4, 5, 6)).ravel())
        sources.append(unit[inside])
        weights.append(weight[inside])
    starts = np.concatenate([[0], *counts]).cumsum()
    return np.array(shapes), starts, np.concatenate(sources), np.concatenate(weights)


def _read(after: int, pool: int, size: int) -> Array:
    """Places along a side that the members of pools read, (after, pool, size)."""
    member = np.arange(after * pool).reshape(after, pool, 1)
    return member + np.arange(size) - (size - 1) // 2


def _weights(batch: Batch, n_rows: int, scale: float) -> Array:
    """Scaled weights (chains or 1, rows)."""
    if not isinstance(batch.weight, Tensor):
        return np.full((1, n_rows), batch.weight * scale, np.float32)
    weight = np.ascontiguousarray((batch.weight * scale).float().numpy())
    return weight[None] if batch.shared else weight
