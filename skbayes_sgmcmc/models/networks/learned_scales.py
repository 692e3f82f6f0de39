"""Networks with a normal prior of learned scales, one for each group of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._metric import State
from ...priors.factorised import Prior
from ...priors.learned_scale import LearnedScale
from .._protocol import named_blocks
from ..likelihoods.base import Likelihood
from ..linear.scale_groups import ScaleGroups
from .model import NetworkModel
from .network import Network

#: number of steps between two draws of the scales. A draw takes as long as some steps of a small
#: network, in fewer steps the weights hardly change, and compiled steps are taken at once till then
GIBBS_EVERY = 50


class LearnedScalesModel(NetworkModel):
    """A network with a normal prior; its scales are latent variables, drawn by Gibbs sampling.

    Every block of weights and every block of biases has one scale. There are more of them for the
    first layer of perceptrons, where each input, or each of the network's ``input_parts``, has a
    scale of its own if the prior's ``inputs`` is true, and for their last layer, where each of the
    likelihood's ``output_groups`` has one. The likelihood's own parameters keep the scale 1.

    Arguments are as in :class:`NetworkModel`, but ``prior_scale`` is the hyperprior of the scales.
    The state of a chain has the entries of :class:`ScaleGroups`. Draws have one entry for each
    block, "scale_" and the block's name, and "scale_inputs", the common scale of the inputs.
    """

    def __init__(
        self,
        network: Network,
        likelihood: Likelihood,
        prior: Prior,
        prior_scale: LearnedScale,
        output_gain: float = 1.0,
        **options: Any,
    ):
        prior_scale = prior_scale.resolved(shape=1.0, inputs=True)
        given = "fan_in" if isinstance(prior_scale.scale, str) else prior_scale.scale
        super().__init__(network, likelihood, prior, given, output_gain, **options)
        typical = self.rates**-0.5
        if isinstance(prior_scale.scale, str):
            typical = prior_scale.typical(typical)
        self.scale_shapes: dict[str, tuple[int, ...]] = {}
        group, start, first = np.full(self.n_parameters, -1), 0, []
        for name, shape in network.shapes.items():
            within, kept = self._within(name, shape, prior_scale.inputs)
            place = self.places()[name]
            group[place] = start + within.ravel()
            first += [place.start + int(np.argmax(within == i)) for i in range(within.max() + 1)]
            self.scale_shapes[name] = kept
            start = len(first)
        shared = network.input_block if prior_scale.inputs else None
        n_shared = 0 if shared is None else self.scale_shapes[shared][0]
        self.groups = ScaleGroups(prior_scale, group, typical[first], n_shared)
        self.recorded = self.groups.recorded

    def _within(
        self, name: str, shape: tuple[int, ...], inputs: bool
    ) -> tuple[Array, tuple[int, ...]]:
        """Group of every coefficient within a block, and the shape of the block's scales."""
        within = np.zeros(shape, dtype=int)
        if inputs and name == self.network.input_block:
            parts = self.network.input_parts
            within += (np.arange(shape[0]) if parts is None else parts)[:, None]
            return within, (int(within.max()) + 1,)
        columns = self.likelihood.output_groups
        if name != self.network.output_block or len(columns) == 1:
            return within, ()
        for number, part in enumerate(columns):
            within[:, part] = number
        return within, (len(columns),)

    # latent variables -----------------------------------------------------------------------------

    after_every = GIBBS_EVERY

    def init_state(self, theta: Tensor) -> State:
        return super().init_state(theta) | self.groups.init_state(theta)

    def after_step(
        self,
        theta: Tensor,
        state: State,
        aux: dict[str, Tensor],
        k: int,
        rng: ChainRandom,
        temperature: float,
    ) -> bool:
        """Draw the scales after steps 0, ``GIBBS_EVERY``, 2 ``GIBBS_EVERY`` and so on.

        At temperature 0 they stay as they are: the maximum over the scales and the weights is where
        both vanish, and a descent would take blocks there.
        """
        if temperature == 0.0 or k % GIBBS_EVERY:
            return False
        self.groups.draw(self._from_center(theta), state, rng, temperature)
        return True

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Draws of the blocks, and of the scales of every block."""
        parts = super().unpack(draws)
        scales = named_blocks(parts.pop("scales"), self.scale_shapes)
        parts |= {f"scale_{name}": scale for name, scale in scales.items()}
        if "shared_scale" in parts:
            parts["scale_inputs"] = parts.pop("shared_scale")
        return parts

    # densities ------------------------------------------------------------------------------------

    def log_prior(self, theta: Tensor) -> Tensor:
        """log p(theta), with the scales integrated out."""
        return self.groups.log_density(self._from_center(theta))

    def prior_potential(self, theta: Tensor, state: State) -> Tensor:
        return self.groups.potential(self._from_center(theta), state)

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        self.groups.gradient(self._from_center(theta), state, out, scale)

    def prior_rates(self, state: State) -> Tensor:
        return state["prior_rate"]
