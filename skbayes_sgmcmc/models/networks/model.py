"""Bayesian neural networks: a network, a likelihood of the outputs and a prior of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property, partial
from itertools import chain
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch, Data, input_rows
from ..._draws.storage import decode, dtype_name
from ..._exceptions import not_allowed
from ..._limits import LIMITS
from ..._metric import State
from ...priors.factorised import Prior
from .._constants import Constant
from .._protocol import Model
from ..density import described
from ..designs.indicators import indicator_design, sparse_design
from ..likelihoods.base import Likelihood
from ..tuning.base import ManyModes, Tuning
from . import delayed_outputs
from .compiled import CompiledPasses, PerceptronGradient, has_kernel, in_kernel, kernel_pays
from .network import Network
from .passes import InTurn

Augmentation = Callable[[Tensor, ChainRandom], Tensor]


class NetworkModel(Model):
    """A network with a factorised prior.

    Parameters
    ----------
    network : Network
        The network.
    likelihood : Likelihood
        Likelihood of the network's outputs.
    prior : Prior
        Prior of weights and biases.
    prior_scale : "fan_in", float or sequence of float
        Scale of the prior. A sequence has one scale for each layer, that is, for a block of weights
        and its biases. "fan_in" is sqrt(2 / fan-in) for weights and 1 for biases, so that the
        variance of the outputs does not depend on the width.
    output_gain : float, default=1.0
        With "fan_in", the weights of the last layer have the scale output_gain / sqrt(fan-in).
    augment : callable or None, default=None
        ``augment(x, rng)`` returns changed inputs. It is applied to every minibatch.
    precision : {"full", "bfloat16"}, default="full"
        Precision of products and convolutions in gradients. Positions, likelihoods and sums keep
        full precision.
    chain_method : {"auto", "vectorized", "sequential"}, default="auto"
        "sequential" computes one chain after another. Otherwise the network decides.
    center : array of shape (n_network_parameters,) or None, default=None
        Centre of the prior of the network's parameters. None: zero.
    """

    def __init__(
        self,
        network: Network,
        likelihood: Likelihood,
        prior: Prior,
        prior_scale: Any,
        output_gain: float = 1.0,
        augment: Augmentation | None = None,
        precision: str = "full",
        chain_method: str = "auto",
        center: Array | None = None,
    ):
        self.network = network
        self.likelihood = likelihood
        self.prior = prior
        self.smooth = prior.smooth
        low = precision == "bfloat16"
        self._passes: Any = network.in_bfloat16() if low else network
        if chain_method == "sequential":
            self._passes = InTurn(self._passes)
        self.single_precision = network.single_precision or low
        self.augment = augment
        self.counts_products, self.recordable = network.counts_products, network.recordable
        self.sums_rows = not network.buffers  # batch norms mix the rows
        self.shapes = network.shapes | likelihood.shapes
        self.n_network = sum(network.sizes)
        self.rates = prior.rates(self._scales(prior_scale, output_gain))
        self.center: Array | None = None
        if center is not None:
            self.center = np.concatenate([center, np.zeros(self.n_parameters - self.n_network)])
            self._center = Constant(self.center)
        # with less time for the means, noise that depends on the row explains what they could
        self.ends_early = not self._besides
        self.extends = True
        if self._passes is network and type(self)._aux is NetworkModel._aux and has_kernel(self):
            self.kernels = ("perceptron",)

    #: the compiled function that computes gradients, if there is one and it pays
    _kernel: PerceptronGradient | None = None

    def kernels_pay(self, data: Data, n_steps: int) -> bool:
        return kernel_pays(self.network, n_steps)

    def with_kernel(self, name: str) -> Self:
        model = copy.copy(self)
        if in_kernel(self.likelihood):
            model._kernel = PerceptronGradient(self.network, self.likelihood)
        else:
            model._passes = CompiledPasses(self.network)
        return model

    @property
    def row_products(self) -> float:
        return float(self.network.row_products)

    @property
    def tuning(self) -> Tuning:
        steep = not self.likelihood.bounded_slopes
        return ManyModes(self, guessed=True, sampler=self.network.sampler, steep=steep)

    def _scales(self, prior_scale: Any, output_gain: float) -> Array:
        network = self.network
        scales = self._fan_in_scales(output_gain)
        if not isinstance(prior_scale, str):
            values = np.asarray(prior_scale, dtype=float)
            n_layers = len(network.fan_in)
            if values.ndim == 1 and len(values) != n_layers:
                raise not_allowed(
                    f"prior_scale={prior_scale!r} is not allowed: the network has {n_layers} "
                    "layers; give one number, one number per layer, or 'fan_in'."
                )
            by_layer = dict(zip(network.fan_in, np.broadcast_to(values, n_layers), strict=True))
            # biases have the scale of the weights before them
            scale = next(iter(by_layer.values()), float(values.flat[0]))
            for name in network.shapes:
                scales[name] = scale = by_layer.get(name, scale)
        parts = [np.full(n, scales[name]) for name, n in zip(scales, network.sizes, strict=True)]
        return np.concatenate([*parts, np.ones(self.n_parameters - self.n_network)])

    def _fan_in_scales(self, output_gain: float) -> dict[str, float]:
        """The scale of every block with ``prior_scale="fan_in"``."""
        network = self.network
        fan_in = {name: math.sqrt(2.0 / n) for name, n in network.fan_in.items()}
        if fan_in and network.ends_in_outputs:
            last = next(reversed(fan_in))
            fan_in[last] *= output_gain / math.sqrt(2.0)  # no activation halves the variance
        return {name: fan_in.get(name, 1.0) for name in network.shapes}

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        """Rows of inputs and targets."""
        weights = None if weight is None else torch.from_numpy(weight).to(device, dtype)
        fields = {
            "x": self._inputs(x, dtype, device),
            "y": self.likelihood.targets(y, dtype, device),
        }
        augment = None if self.augment is None else partial(_augmented, self.augment)
        return Data(fields, len(y), weights, augment=augment)

    def _inputs(self, x: Any, dtype: Any, device: str) -> Any:
        plain = self._passes is self.network and self.augment is None
        if plain and self.network.takes(x, device):
            return sparse_design(x, dtype)
        rows = input_rows(x, dtype, device)
        if device == "cpu" and "perceptron" in self.kernels and isinstance(rows, Tensor):
            return indicator_design(rows) or rows
        return rows

    def init(self, rng: np.random.Generator) -> Array:
        start = np.concatenate(
            [self.network.init(rng), np.zeros(self.n_parameters - self.n_network)]
        )
        block = self.network.output_block
        if block is not None:
            weights = start[self.places()[block]].reshape(self.network.shapes[block])
            for columns in self._besides:
                weights[:, columns] = 0.0  # which are then the same for all rows
        return start

    def simpler(self, theta: Tensor) -> State:
        """Outputs beside the means are biases, equal for all rows."""
        return delayed_outputs.delayed(theta) if self._besides else {}

    def anneals(self, before: float, progress: float) -> bool:
        return bool(self._besides) and before < delayed_outputs.BEGIN <= progress

    def anneal(self, theta: Tensor, state: State) -> None:
        block = cast(str, self.network.output_block)
        weights = theta[:, self.places()[block]].view(len(theta), *self.network.shapes[block])
        delayed_outputs.begin(weights, self._besides, state)

    def active(self, state: State) -> State:
        return delayed_outputs.active(state)

    @property
    def _besides(self) -> tuple[slice, ...]:
        """Columns of outputs that are no means, such as noise, if their parameters are known."""
        return self.likelihood.output_groups[1:] if self.network.output_bias else ()

    @cached_property
    def _output_biases(self) -> slice:
        return self.places()[cast(str, self.network.output_bias)]

    # densities ------------------------------------------------------------------------------------

    def log_prior(self, theta: Tensor) -> Tensor:
        rates = self._rates.like(theta, 1.0).expand(theta.shape[1])
        return self.prior.log_density(self._from_center(theta), rates)

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        f = self.network.outputs(theta[:, : self.n_network], batch.by_chain("x"))
        own = self._own(theta, self.init_state(theta))
        return self.likelihood.log_density(f, batch.by_chain("y"), own)

    @cached_property
    def _rates(self) -> Constant:
        """The prior's rates, as subclasses have left them."""
        # one number if all are the same: a vector would have to come from memory at each step
        same = (self.rates == self.rates[0]).all()
        return Constant(self.rates[:1] if same else self.rates)

    def _from_center(self, theta: Tensor) -> Tensor:
        """theta minus the centre of the prior."""
        return theta if self.center is None else theta - self._center.like(theta)

    def prior_potential(self, theta: Tensor, state: State) -> Tensor:
        return self.prior.potential(self._from_center(theta), self._rates.like(theta, 1.0))

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        self.prior.gradient(self._from_center(theta), self._rates.like(theta, scale), out)

    def likelihood_gradient(
        self,
        theta: Tensor,
        batch: Batch,
        state: State,
        rng: ChainRandom,
        *,
        out: Tensor,
        scale: float,
    ) -> dict[str, Tensor]:
        if self._kernel is not None:
            self._kernel.add_gradient(theta, batch, state, out, scale)
            return {}
        return self._pull_back(theta, batch, state, *self._forward(theta, batch, state), out, scale)

    def value_and_gradient(
        self,
        theta: Tensor,
        batch: Batch,
        state: State,
        rng: ChainRandom,
        *,
        out: Tensor,
        scale: float,
    ) -> Tensor:
        if self._kernel is not None:
            return self._kernel.add_gradient(theta, batch, state, out, scale)
        f, tape = self._forward(theta, batch, state)
        rows = self.likelihood.log_density(f, batch.by_chain("y"), self._own(theta, state))
        value = (rows * batch.weight).sum(1, dtype=torch.float64).mul_(-scale)
        self._pull_back(theta, batch, state, f, tape, out, scale)
        return value

    def _forward(self, theta: Tensor, batch: Batch, state: State) -> tuple[Tensor, Any]:
        n = self.n_network
        f, tape = self._passes.forward(
            theta[:, :n] if theta.shape[1] > n else theta, batch.by_chain("x")
        )
        if self._besides:
            bias = theta[:, None, self._output_biases]
            delayed_outputs.delay(f, self._besides, state, bias)
        return f, tape

    def _pull_back(
        self,
        theta: Tensor,
        batch: Batch,
        state: State,
        f: Tensor,
        tape: Any,
        out: Tensor,
        scale: float,
    ) -> dict[str, Tensor]:
        """Add the gradient, given outputs f, to ``out``; f may be overwritten."""
        n = self.n_network
        own = theta.shape[1] > n
        delta, own_slope = self.likelihood.slope(f, batch.by_chain("y"), self._own(theta, state))
        weight = _row_weight(batch) * scale
        weighted = delta * weight
        if self._besides:
            bias_slope = out[:, None, self._output_biases]
            delayed_outputs.pull_back(weighted, self._besides, state, bias_slope)
        self._passes.backward(tape, weighted, out[:, :n] if own else out)
        if own_slope is not None:
            out[:, n:].add_((own_slope * weight).sum(1))
        return self._aux(delta, weighted)

    def _own(self, theta: Tensor, state: State) -> Tensor:
        """The likelihood's own parameters, (chains, m); densities have the state of a start."""
        return theta[:, self.n_network :]

    def _aux(self, delta: Tensor, weighted: Tensor) -> dict[str, Tensor]:
        """What :meth:`after_step` needs from a minibatch, given its slopes and weighted slopes."""
        return {}

    def derive(self, draws: Array, data: Data) -> dict[str, Array]:
        """The network's buffers for each draw, computed over all rows or an even sample."""
        network = self.network
        if not network.buffers:
            return {}
        x = data.fields["x"][:: -(-data.n_rows // LIMITS.statistics_rows)]
        found: dict[str, list[Array]] = {name: [] for name in network.buffers}
        for draw in chain.from_iterable(draws):
            theta = decode(draw[: self.n_network])
            values = network.buffer_values(torch.from_numpy(theta).to(x), x)
            for name, value in values.items():
                found[name].append(value.cpu().numpy().astype(theta.dtype))
        return {
            name: np.stack(values).reshape(*draws.shape[:2], *values[0].shape)
            for name, values in found.items()
        }

    def prior_curvature(self) -> float:
        return float(self.rates.max()) if self.prior.smooth else 0.0


def _augmented(augment: Augmentation, fields: dict[str, Any], rng: ChainRandom) -> dict[str, Any]:
    x = fields["x"]
    found = augment(x, rng)
    # modules may take images of another size
    if not isinstance(found, Tensor) or found.dtype != x.dtype or found.ndim != x.ndim:
        raise not_allowed(
            f"augment={augment!r} is not allowed: it returned {described(found)} for "
            f"{described(x)} and {dtype_name(x.dtype)}. Return a tensor of this shape and type."
        )
    return fields | {"x": found}


def _row_weight(batch: Batch) -> Any:
    """Weights (chains or 1, rows, 1); a number if all are the same."""
    if not isinstance(batch.weight, Tensor):
        return batch.weight
    return (batch.weight[None] if batch.shared else batch.weight)[..., None]
