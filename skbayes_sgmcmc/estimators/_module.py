"""What the estimators of torch modules share: the module, what is sampled, the shapes of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from .._data.images import shape_in
from .._data.layout import PLAIN, Layout, as_array, is_several, of_sequence
from .._exceptions import RandomLayerWarning, not_allowed, warn
from .._validation import brief, check_choice, check_int, check_random_state, check_sizes, is_real
from ._last_layer import LastLayer

if TYPE_CHECKING:
    from torch import nn

    from ..models.networks.distillation import Blueprint
    from ..models.networks.model import NetworkModel
    from ..models.networks.module_checks import Rows
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
    n_workers: int
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
        check_int("n_workers", self.n_workers, low=0)
        self._check_center()
        return super()._check()

    def _check_center(self) -> None:
        center = self.prior_center
        if is_real(center) and center == 0:
            return
        check_choice("prior_center", center, (0, "module"))
        name = "prior_center='module' is not allowed"
        if not self._has_weights:
            raise not_allowed(
                f"{name} with module={brief(self.module)}, which is built anew for each fit: give "
                "a torch.nn.Module with trained weights, a pair of a callable and weights, or "
                "prior_center=0."
            )
        if self._spike_slab() is not None or self.prune is not None:
            raise not_allowed(
                f"{name} with a spike-and-slab prior or pruning, which set weights to zero: give "
                "prior_center=0."
            )

    @property
    def _has_weights(self) -> bool:
        """Whether ``module`` has weights of its own, and is not only a function that builds one."""
        from torch import nn

        return isinstance(self.module, nn.Module | tuple)

    @property
    def _starts_at_module(self) -> bool:
        """Whether chains start near the values of the module."""
        if isinstance(self.init, str) and self.init == "auto":
            return self._has_weights and self._spike_slab() is None
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
            raise not_allowed(
                "module and sample_parameters are not allowed to change in partial_fit: keep those "
                "of the earlier calls, or start a new stream with a clone of the estimator.",
                "a-later-call-of-partial_fit-differs",
            )

    def _build(self, n_outputs: int) -> nn.Module:
        """The estimator's own copy of the module."""
        from torch import nn

        from ..models.networks.module import build, in_one_precision, own_copy, with_weights

        if isinstance(self.module, nn.Module):
            return own_copy(self.module)
        # weights that are not sampled stay as they are built, so these follow the seed, too
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        built = build(self._architecture(n_outputs), seed=seed)
        if self._has_weights:
            built = with_weights(built, self.module[1])
        return in_one_precision(built)

    def _architecture(self, n_outputs: int) -> Any:
        from ..models.networks.module import bind

        widths = {
            "n_features": self.n_features_in_,
            "input_shape": self._row_shape(),
            "n_outputs": n_outputs,
        }
        return bind(self.module[0] if self._has_weights else self.module, **widths)

    def _make_network(self, n_outputs: int) -> Network:
        from ..models.networks.module import ModuleNetwork
        from ..models.networks.module_calls import light_copy

        start = "module" if self._starts_at_module else "random"
        head = self._linear_head(start)
        if head is not None:
            return head
        return ModuleNetwork(
            light_copy(self._module), self._vectorized, self._sampled_names, start, self._layout
        )

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
            raise not_allowed(
                f"input_shape={self.input_shape!r} is not allowed: a row of X has {X.shape[1]} "
                "numbers."
            )
        module = self._build(self._n_outputs)
        dtype = precision(module)
        with np.errstate(over="ignore"):  # only shapes matter here
            few = torch.from_numpy(np.ascontiguousarray(self._rows(X[:2]), np.float32)).to(dtype)
        outputs, x = self._try(module, few)
        check_outputs("module", self.module, outputs, (len(few), self._n_outputs))
        self._check_behaviour(module, x)
        self._sampled_names = select(module, self.sample_parameters, x)
        self._check_gradients(module, x)
        self._module, self._made_from = module.requires_grad_(False), self._recipe
        self._split(x)
        if self._vectorized:  # raises an error if vmap can't
            network = self._make_network(self._n_outputs)
            theta = torch.from_numpy(network.values()).to(dtype)
            few = few if self._body is None else self._body(few)
            network.forward(theta.expand(2, -1).clone(), few[None])

    def _try(self, module: nn.Module, few: Any) -> tuple[Any, Rows]:
        """The module's outputs for a few rows, and these as the module takes them.

        Whole numbers in a single array are given as such only to modules that take them.
        """
        import torch

        from ..models.networks.module_checks import Rows, call, main_output
        from ..models.networks.module_ids import UnknownId

        layouts = [self._layout]
        if self._layout.whole.any() and not self._layout.several:
            layouts.append(self._layout.with_floats())
        reasons: list[Exception] = []
        for layout in layouts:
            x = Rows(few, layout)
            try:
                with torch.no_grad():
                    outputs = main_output(call(module, x))
            except UnknownId:
                raise
            except (RuntimeError, ValueError, IndexError, TypeError, KeyError) as error:
                reasons.append(error)
            else:
                self._layout = layout
                return outputs, x
        why = str(reasons[0])
        if len(reasons) > 1:
            why = f"as whole numbers: {why}; as floating-point numbers: {reasons[1]}"
        hint = "give the input_shape that the module expects, such as (channels, height, width)"
        raise not_allowed(
            f"module={brief(self.module)} is not allowed with input_shape={self.input_shape!r}: it "
            f"does not take rows of shape {self._row_shape()} ({why}). If these are images or "
            f"sequences, {hint}; else change the module's inputs.",
            "a-module-is-not-allowed",
        ) from reasons[0]

    def _check_behaviour(self, module: nn.Module, x: Rows) -> None:
        """Refuse a module that is no function of single rows; warn of random layers."""
        from ..models.networks import module_checks as checks

        checks.batch_norms(module)
        changed = checks.changed_by_forward(module, x)
        if changed is not None:
            raise not_allowed(
                f"module={brief(self.module)} is not allowed: its forward changes {changed!r} in "
                "evaluation mode; a posterior needs a function that stays the same.",
                "a-module-is-not-allowed",
            )
        part = checks.first_random(module, x)
        if part is not None:
            raise not_allowed(
                f"module={brief(self.module)} is not allowed: two evaluations of the same rows in "
                f"evaluation mode differ, first in {part!r}, and the density of a posterior must "
                "not be random; switch this off when self.training is false.",
                "a-module-is-not-allowed",
            )
        if checks.mixes_rows(module, x):
            raise not_allowed(
                f"module={brief(self.module)} is not allowed: its output for a row depends on the "
                "rows beside it. Rows are on the first axis of its inputs and outputs (for layers "
                "of sequences, batch_first=True).",
                "a-module-is-not-allowed",
            )
        layers = checks.random_layers(module, x)
        if layers:
            more = len(layers) - NAMED_LAYERS
            named = ", ".join(layers[:NAMED_LAYERS]) + (f" and {more} more" if more > 0 else "")
            warn(
                f"the module has dropout or other random layers ({named}), which are switched off "
                "while sampling and in predictions: the density of a posterior must not be random. "
                "The prior and the average over draws regularise the network instead.",
                "random-layers-are-switched-off",
                RandomLayerWarning,
            )

    def _check_gradients(self, module: nn.Module, x: Rows) -> None:
        """Refuse a choice of parameters in none of which the outputs have a gradient."""
        from ..models.networks.module_checks import without_gradient

        still = without_gradient(module, self._sampled_names, x)
        if not still:
            return
        more = len(still) - NAMED_LAYERS
        named = ", ".join(map(repr, still[:NAMED_LAYERS])) + (f" and {more} more" * (more > 0))
        reason = "its forward does not use them, or does so under torch.no_grad or detach()"
        if len(still) == len(self._sampled_names):
            raise not_allowed(
                f"sample_parameters={self.sample_parameters!r} is not allowed: the outputs of the "
                f"module have no gradient in {named}: {reason}. Change the module, or select "
                "other parameters.",
                "parameters-without-a-gradient",
            )
        warn(
            f"the outputs of the module have no gradient in {named}: {reason}. Their draws will be "
            "those of the prior. Change the module, or select other parameters.",
            "parameters-without-a-gradient",
        )

    def _student(self, X: Array) -> Blueprint:
        from ..models.networks.distillation import Trainable

        if self._layout.whole.any():
            raise not_allowed(
                "distill is not allowed with rows of whole numbers, to which it would add noise."
            )
        blueprint: Blueprint = super()._student(X)
        if self._has_weights or len(self._sampled_names) < len([*self._module.parameters()]):
            # the student learns what is sampled, and has the rest
            blueprint = replace(
                blueprint, architecture=Trainable(self._module, self._sampled_names)
            )
        return blueprint

    # rows -----------------------------------------------------------------------------------------

    def _row_shape(self) -> tuple[int, ...]:
        """Shape of a row as the module gets it; several arguments lie in one flat row."""
        if self.input_shape is not None:
            return check_sizes("input_shape", self.input_shape)
        one = self._layout != PLAIN and not self._layout.several
        return self._layout.fields[0].shape if one else super()._row_shape()

    def _fit_inputs(self, X: Array, weight: Array | None) -> None:
        super()._fit_inputs(X, weight)
        if self.standardize and self._layout.several:  # whole numbers stay as they are
            self._x_center = np.where(self._layout.whole, 0.0, self._x_center)
            self._x_scale = np.where(self._layout.whole, 1.0, self._x_scale)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Sample the posterior of the parameters.

        Parameters
        ----------
        X : array, tuple or mapping of arrays, or dataset
            Rows. A dataset is map-style, such as a ``torch.utils.data.Dataset``; its items are
            fetched by minibatch and are (x, y), mappings with a label, or x alone.
        y : array of shape (n_samples,) or (n_samples, n_outputs), or None, default=None
            Targets. None: those of the items of a dataset.
        sample_weight : array of shape (n_samples,) or None, default=None
            Nonnegative weights of the rows. A weight is the exponent of the likelihood of its row.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A parameter, the module or the data are invalid.
        SamplingError
            Every chain diverged. The estimator then stays as it was before the call.
        """
        return super().fit(X, y, sample_weight)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy of a classifier, or the coefficient of determination R^2 of a regressor.

        Parameters
        ----------
        X : array, tuple or mapping of arrays, or dataset
            Rows.
        y : array of shape (n_samples,) or (n_samples, n_outputs), or None, default=None
            Targets. None: those of the items of a dataset.
        sample_weight : array of shape (n_samples,) or None, default=None
            Weights of the rows.

        Returns
        -------
        float
        """
        if y is None and _is_dataset(X):
            from .._data.datasets import targets_of

            y = targets_of(X, self.n_workers)
        return float(super().score(X, y, sample_weight))

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        if _is_dataset(X):
            return self._validate_dataset(X, y, reset=reset)
        X = _as_arrays(X)
        if reset:
            X = self._by_name(X)
            self._layout = self._layout_of(X)
        flat, y = super()._validate_xy(self._flat(X), as_array(y), reset=reset)
        if reset:
            self._shape_in = None if self._layout.several else shape_in(X)
        return flat, y

    def _validate_dataset(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        from .._data.datasets import layout_of_items, targets_of

        if self.standardize:
            raise not_allowed(
                "standardize=True is not allowed with a dataset, which is never in memory as a "
                "whole: scale its items, and give standardize=False."
            )
        if reset:
            self._layout, self._shape_in = layout_of_items(X), None
        y = targets_of(X, self.n_workers) if y is None else np.asarray(as_array(y))
        if len(y) != len(X):
            raise not_allowed(
                f"y of length {len(y)} is not allowed: the dataset has {len(X)} items."
            )
        # the targets are checked along with rows of zeros, which take no memory
        blank = np.broadcast_to(np.float32(0.0), (len(X), self._layout.size))
        _, y = super()._validate_xy(blank, y, reset=reset)
        return self._dataset_rows(X), y

    def _dataset_rows(self, X: Any) -> Any:
        from .._data.datasets import DatasetRows
        from .._data.layout import Field

        layout = self._layout
        if layout == PLAIN:  # the fit was to an array of rows
            layout = Layout((Field(0, (self.n_features_in_,), "float"),))
        return DatasetRows(X, layout, self._row_shape(), self.n_workers)

    def _validate_rows(self, X: Any) -> Any:
        if _is_dataset(X):
            return self._dataset_rows(X)
        return super()._validate_rows(self._flat(_as_arrays(X)))

    def _layout_of(self, X: Any) -> Layout:
        """What of a row of X is which argument of the module."""
        if is_several(X):
            if self.input_shape is not None:
                raise not_allowed(
                    f"input_shape={self.input_shape!r} is not allowed with several arrays, whose "
                    "rows reach the module in the shapes that they have: give input_shape=None."
                )
            return Layout.of(X)
        shaped = shape_in(X) is not None
        whole = isinstance(X, np.ndarray) and X.dtype.kind in "iub" and X.ndim > 1
        if not shaped and not whole:
            return PLAIN  # rows of numbers, which scikit-learn checks
        layout = Layout.of(X)
        if self.standardize:
            layout = layout.with_floats()
        given = None if self.input_shape is None else check_sizes("input_shape", self.input_shape)
        shape = layout.fields[0].shape
        if given is not None and given != shape:
            self._check_shape(X, shape, given)
            layout = Layout((replace(layout.fields[0], shape=given),))
        return layout

    def _by_name(self, X: Any) -> Any:
        """A table whose columns are arguments of the module, as a mapping of columns."""
        from ..models.networks.module import argument_names

        columns = list(getattr(X, "columns", ()))
        named = len(columns) > 1 and set(columns) <= set(argument_names(self.module))
        return {name: X[name].to_numpy() for name in columns} if named else X

    def _flat(self, X: Any) -> Any:
        """X as rows of numbers."""
        layout = self._layout
        if layout.several and hasattr(X, "columns"):
            X = {name: X[name].to_numpy() for name in X.columns}
        if layout.several or is_several(X):
            return layout.flat(X)
        shape = shape_in(X)
        if shape is not None:
            self._check_shape(X, shape, self._row_shape())
            X = np.asarray(X).reshape(len(X), -1)
        if isinstance(X, np.ndarray) and X.dtype.kind in "iuf":
            layout.fields[0].check_whole("X", X)
        return X

    def _check_shape(self, X: Any, shape: tuple[int, ...], given: tuple[int, ...]) -> None:
        """Refuse rows that are not flat and have another shape than ``given``."""
        if len(shape) == 1 or shape == given:
            return
        if self.input_shape is None:
            raise not_allowed(
                f"X of shape {(len(X), *shape)} is not allowed: the estimator was fitted to rows "
                f"of shape {given}."
            )
        raise not_allowed(
            f"X of shape {(len(X), *shape)} is not allowed with input_shape={self.input_shape!r}: "
            f"give input_shape={shape}, or rows of numbers."
        )


def _as_arrays(X: Any) -> Any:
    """Lists and tensors as arrays; everything else as it is."""
    rows = isinstance(X, list) or (isinstance(X, tuple) and not is_several(X))
    return of_sequence("X", X) if rows else as_array(X)


def _is_dataset(X: Any) -> bool:
    """Whether X is a map-style dataset, without importing torch for what is an array or a table."""
    if isinstance(X, np.ndarray | list | tuple) or type(X) is dict or hasattr(X, "__array__"):
        return False
    from .._data.datasets import is_dataset

    return is_dataset(X)
