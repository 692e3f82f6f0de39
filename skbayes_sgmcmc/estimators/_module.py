"""What the estimators of torch modules share: the module, what is sampled, the shapes of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data.images import shape_in
from .._exceptions import RandomLayerWarning, warn
from .._validation import check_choice, check_sizes
from ._last_layer import LastLayer

if TYPE_CHECKING:
    from torch import nn

    from ..models.networks.distillation import Blueprint
    from ..models.networks.model import NetworkModel
    from ..models.networks.network import Network

Array = NDArray[Any]

#: number of random layers that a warning names
NAMED_LAYERS = 3


class ModuleEstimator(LastLayer):
    """Mixin of estimators whose network is a torch module that the user gives.

    ``fit`` keeps its own copy of the module, ``_module``. Parameters that are not sampled, and
    buffers, keep the values that they have there.
    """

    module: Any
    input_shape: Any
    sample_parameters: Any
    prior_center: Any
    init: Any
    n_features_in_: int
    #: the parameters that ``_module`` and ``_sampled_names`` were made from
    _made_from: tuple[Any, Any]

    # parameters -----------------------------------------------------------------------------------

    def _check(self) -> Any:
        from ..models.networks.module import check_module
        from ..models.networks.selection import check_selection

        check_module("module", self.module)
        check_selection(self.sample_parameters)
        if self.input_shape is not None:
            check_sizes("input_shape", self.input_shape)
        self._check_center()
        return super()._check()

    def _check_center(self) -> None:
        center = self.prior_center
        if isinstance(center, Real) and not isinstance(center, bool) and center == 0:
            return
        check_choice("prior_center", center, (0, "module"))
        name = "prior_center='module' is not allowed"
        if not self._is_instance:
            raise ValueError(
                f"{name} with module={self.module!r}, which is built anew for each fit: give a "
                "torch.nn.Module with trained weights, or prior_center=0."
            )
        if self._spike_slab() is not None or self.prune is not None:
            raise ValueError(
                f"{name} with a spike-and-slab prior or pruning, which set weights to zero: give "
                "prior_center=0."
            )

    @property
    def _is_instance(self) -> bool:
        """Whether ``module`` is a module, and not a function that builds one."""
        from torch import nn

        return isinstance(self.module, nn.Module)

    @property
    def _starts_at_module(self) -> bool:
        """Whether chains start near the values of the module."""
        if isinstance(self.init, str) and self.init == "auto":
            return self._is_instance and self._spike_slab() is None
        return isinstance(self.init, str) and self.init == "module"

    def _settings(self) -> Any:
        from .._engine.settings import Settings, is_auto

        others = {}
        if is_auto(self.sampler) and not is_auto(self.integrator):
            others["sampler"] = "psgld"
        if isinstance(self.init, str) and self.init == "module":
            others["init"] = "auto"  # the network starts there, and the rest is as for "auto"
        return Settings.of(self, **others)

    # the module -----------------------------------------------------------------------------------

    @property
    def _recipe(self) -> tuple[Any, Any]:
        chosen = self.sample_parameters
        return self.module, chosen if isinstance(chosen, str) or callable(chosen) else [*chosen]

    def _same_module(self) -> bool:
        """Whether the module and what is sampled of it are those of the earlier call."""
        before, now = getattr(self, "_made_from", (None, None)), self._recipe
        return before[0] is now[0] and before[1] == now[1]

    def _previous(self, *, stream: bool, same: bool = True) -> Any:
        return super()._previous(stream=stream, same=same and self._same_module())

    def _check_stream(self) -> None:
        super()._check_stream()
        if hasattr(self, "posterior_") and not self._same_module():
            raise ValueError(
                "module and sample_parameters are not allowed to change in partial_fit: keep those "
                "of the earlier calls, or start a new stream with a clone of the estimator."
            )

    def _build(self, n_outputs: int) -> nn.Module:
        """The estimator's own copy of the module."""
        from ..models.networks.module import build, in_one_precision, own_copy

        if self._is_instance:
            return own_copy(self.module)
        return in_one_precision(build(self._architecture(n_outputs)))

    def _architecture(self, n_outputs: int) -> Any:
        from ..models.networks.module import bind

        widths = {
            "n_features": self.n_features_in_,
            "input_shape": self._row_shape(),
            "n_outputs": n_outputs,
        }
        return bind(self.module, **widths)

    def _make_network(self, n_outputs: int) -> Network:
        from ..models.networks.module import ModuleNetwork, light_copy

        start = "module" if self._starts_at_module else "random"
        head = self._linear_head(start)
        if head is not None:
            return head
        return ModuleNetwork(light_copy(self._module), self._vectorized, self._sampled_names, start)

    def _model_kind(self, network: Network) -> tuple[type[NetworkModel], dict[str, Any]]:
        kind, options = super()._model_kind(network)
        if self.prior_center == "module":
            options = options | {"center": network.values()}
        return kind, options

    def _check_network(self, X: Array) -> None:
        """Make ``_module``, and look at what it does with a few rows."""
        import torch

        from ..models.networks.module import check_outputs, precision
        from ..models.networks.selection import select

        if self.input_shape is not None and math.prod(self._row_shape()) != X.shape[1]:
            raise ValueError(
                f"input_shape={self.input_shape!r} is not allowed: a row of X has {X.shape[1]} "
                "numbers."
            )
        module = self._build(self._n_outputs)
        dtype = precision(module)
        with np.errstate(over="ignore"):  # only shapes matter here
            x = torch.from_numpy(np.ascontiguousarray(self._rows(X[:2]), np.float32)).to(dtype)
        outputs = self._try(module, x)
        check_outputs("module", self.module, outputs, (len(x), self._n_outputs))
        self._check_behaviour(module, x)
        self._sampled_names = select(module, self.sample_parameters, x)
        self._module, self._made_from = module.requires_grad_(False), self._recipe
        self._split(x)
        if self._vectorized:  # raises an error if vmap can't
            network = self._make_network(self._n_outputs)
            theta = torch.from_numpy(network.values()).to(dtype)
            x = x if self._body is None else self._body(x)
            network.forward(theta.expand(2, -1).clone(), x[None])

    def _try(self, module: nn.Module, x: Any) -> Any:
        """The module's outputs for a few rows."""
        import torch

        from ..models.networks.module_checks import call, main_output

        try:
            with torch.no_grad():
                return main_output(call(module, x))
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            hint = "give the input_shape that the module expects, such as (channels, height, width)"
            raise ValueError(
                f"module={self.module!r} is not allowed with input_shape={self.input_shape!r}: it "
                f"does not take rows of shape {self._row_shape()} ({error}). If these are images "
                f"or sequences, {hint}; else change the module's inputs."
            ) from error

    def _check_behaviour(self, module: nn.Module, x: Any) -> None:
        """Refuse a module that is no function of single rows; warn of random layers."""
        from ..models.networks import module_checks as checks

        checks.batch_norms(module)
        changed = checks.changed_by_forward(module, x)
        if changed is not None:
            raise ValueError(
                f"module={self.module!r} is not allowed: its forward changes {changed!r} in "
                "evaluation mode; a posterior needs a function that stays the same."
            )
        part = checks.first_random(module, x)
        if part is not None:
            raise ValueError(
                f"module={self.module!r} is not allowed: two evaluations of the same rows in "
                f"evaluation mode differ, first in {part!r}, and the density of a posterior must "
                "not be random; switch this off when self.training is false."
            )
        if checks.mixes_rows(module, x, x[-1:]):
            raise ValueError(
                f"module={self.module!r} is not allowed: its output for a row depends on the rows "
                "beside it. Rows are on the first axis of its inputs and outputs (for layers of "
                "sequences, batch_first=True)."
            )
        layers = checks.random_layers(module, x)
        if layers:
            more = len(layers) - NAMED_LAYERS
            named = ", ".join(layers[:NAMED_LAYERS]) + (f" and {more} more" if more > 0 else "")
            warn(
                f"the module has dropout or other random layers ({named}), which are switched off "
                "while sampling and in predictions: the density of a posterior must not be random. "
                "The prior and the average over draws regularise the network instead.",
                RandomLayerWarning,
            )

    def _student(self, X: Array) -> Blueprint:
        from ..models.networks.distillation import Trainable

        blueprint: Blueprint = super()._student(X)
        if self._is_instance or len(self._sampled_names) < len([*self._module.parameters()]):
            # the student learns what is sampled, and has the rest
            blueprint = replace(
                blueprint, architecture=Trainable(self._module, self._sampled_names)
            )
        return blueprint

    # rows -----------------------------------------------------------------------------------------

    def _row_shape(self) -> tuple[int, ...]:
        return super()._row_shape() if self.input_shape is None else self._given_shape()

    def _given_shape(self) -> tuple[int, ...]:
        return check_sizes("input_shape", self.input_shape)

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        flat, y = super()._validate_xy(self._flat(X), y, reset=reset)
        if reset:
            self._shape_in = shape_in(X)
        return flat, y

    def _validate_rows(self, X: Any) -> Any:
        return super()._validate_rows(self._flat(X))

    def _flat(self, X: Any) -> Any:
        """X with rows of numbers, where its rows have the shape ``input_shape``."""
        shape = shape_in(X)
        if shape is None:
            return X
        if self.input_shape is None or shape != self._given_shape():
            raise ValueError(
                f"X of shape {(len(X), *shape)} is not allowed with "
                f"input_shape={self.input_shape!r}: give input_shape={shape}, or rows of numbers."
            )
        return np.asarray(X).reshape(len(X), -1)
