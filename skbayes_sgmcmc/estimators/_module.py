"""What the estimators of torch modules share: the module, and what of it is sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import is_classifier
from torch import Tensor, nn

from .._arrays import Array
from .._data.datasets import DatasetRows, layout_of_items, targets_of
from .._data.images import flat_rows, shape_in
from .._data.kept_rows import KeptRows
from .._data.layout import PLAIN, Argument, Layout, is_several
from .._engine.settings import Settings
from .._exceptions import later_not_allowed, not_allowed
from .._table_columns import is_table, of_tensor
from .._validation import brief, check_choice, check_random_state, check_sizes, is_auto, is_real
from ..models.networks import module as modules
from ..models.networks.distillation import Blueprint, Trainable, Without
from ..models.networks.head import LinearHead
from ..models.networks.model import NetworkModel
from ..models.networks.module_checks import Rows
from ..models.networks.module_copies import PickleOnly, light_copy
from ..models.networks.network import Network
from ..models.networks.selection import select
from . import _module_checks as checks
from . import _module_rows as module_rows
from ._last_layer import LastLayer
from ._module_rows import is_dataset_like
from ._parameters import Check, check_any_prior
from ._sparsity import compress

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..models.networks.pruning import Pruning
    from ..priors import LearnedScale, Prior, SpikeSlab
    from ..samplers import Sampler


@dataclass(kw_only=True, eq=False, repr=False)
class ModuleEstimator(LastLayer):
    """Mixin of estimators of a torch module that the user gives.

    ``fit`` keeps its own copy of the module, ``_module``. Parameters that are not sampled, and
    buffers, keep the values that they have there.
    """

    input_shape: Sequence[int] | None = None
    sample_parameters: str | Sequence[str] | Callable[..., bool] = "trainable"
    prior: Prior | SpikeSlab | Literal["normal", "laplace", "spike_slab"] = "normal"
    prior_scale: float | Sequence[float] | LearnedScale | str = "auto"
    prior_center: Literal[0, "module"] = 0
    prune: float | Pruning | None = None
    standardize: bool = False
    augment: Callable[..., Any] | None = None
    n_workers: int = 0
    sampler: str | Sampler = "auto"
    init: ArrayLike | Literal["auto", "module", "random", "map"] = "auto"
    validation_fraction: float = 0.15

    module: Any = field(init=False)
    # of regressors
    _family: Any = field(init=False)
    likelihood: Any = field(init=False)
    #: the parameters that ``_module`` and ``_sampled_names`` were made from
    _made_from: tuple[Any, Any] = field(default=(None, None), init=False)
    #: the final softmax or sigmoid of the module, which ``_module`` does without
    _left_out: str | None = field(default=None, init=False)
    #: multiplications of its linear layers and convolutions for a row
    _counted_products = 0

    # parameters -----------------------------------------------------------------------------------

    _checks: ClassVar[dict[str, Check]] = {"prior": check_any_prior}
    _read_with_draws: ClassVar[tuple[str, ...]] = ("input_shape",)

    def _check_together(self, settings: Settings) -> None:
        super()._check_together(settings)
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
        if self._sparsity:
            raise not_allowed(
                f"{name} with a spike-and-slab prior or pruning, which set weights to zero: give "
                "prior_center=0."
            )

    @property
    def _has_weights(self) -> bool:
        """Whether ``module`` has weights of its own, and is not only a function that builds one."""
        return isinstance(self.module, nn.Module | tuple)

    @property
    def _starts_at_module(self) -> bool:
        """Whether chains start near the values of the module."""
        if is_auto(self.init):
            return self._has_weights and self._sparsity.prior is None
        return isinstance(self.init, str) and self.init == "module"

    def _settings(self) -> Any:
        # the network starts there, and the rest is as for "auto"
        at_module = isinstance(self.init, str) and self.init == "module"
        return Settings.of(self, **({"init": "auto"} if at_module else {}))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        contains = self._has_weights or hasattr(self, "_module")
        # first, so that skops comes to it before it comes to a module
        return {"_files": PickleOnly()} | state if contains else state

    compress = compress

    # rows -----------------------------------------------------------------------------------------

    def _row_shape(self) -> tuple[int, ...]:
        """Shape of a row as the module gets it; several arguments lie in one flat row."""
        if self.input_shape is not None:
            return check_sizes("input_shape", self.input_shape)
        one = self._layout != PLAIN and not self._layout.several
        return self._layout.arguments[0].shape if one else super()._row_shape()

    def _fit_inputs(self, X: Array, weight: Array | None) -> None:
        super()._fit_inputs(X, weight)
        if self.standardize and self._layout.several:  # whole numbers stay as they are
            self._x_center = np.where(self._layout.whole, 0.0, self._x_center)
            self._x_scale = np.where(self._layout.whole, 1.0, self._x_scale)

    def _validate_xy(self, X: Any, y: Any, *, reset: bool, weight: Any = None) -> tuple[Any, Array]:
        if is_dataset_like(X):
            return self._validate_dataset(X, y, reset=reset)
        X = module_rows.as_arrays(X)
        if reset:
            X = module_rows.by_name(X, self.module)
            self._layout = module_rows.layout_of(X, self.input_shape, self.standardize)
        flat = self._flat(X)
        flat, y = super()._validate_xy(flat, y, reset=reset, weight=weight)  # type: ignore[misc]
        if reset:
            self._shape_in = None if self._layout.several else shape_in(X)
        return flat, y

    def _validate_dataset(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        if self.standardize:
            raise not_allowed(
                "standardize=True is not allowed with a dataset, which is never in memory as a "
                "whole: scale its items, and give standardize=False."
            )
        if reset:
            self._layout, self._shape_in = layout_of_items(X), None
        y = targets_of(X, self.n_workers) if y is None else np.asarray(of_tensor(y))
        if len(y) != len(X):
            raise not_allowed(
                f"y of length {len(y)} is not allowed: the dataset has {len(X)} items."
            )
        # the targets are checked along with rows of zeros, which take no memory
        blank = np.broadcast_to(np.float32(0.0), (len(X), self._layout.size))
        _, y = super()._validate_xy(blank, y, reset=reset)  # type: ignore[misc]
        return self._dataset_rows(X), y

    def _dataset_rows(self, X: Any) -> Any:
        layout = self._layout
        if layout == PLAIN:  # of a fit to an array of rows
            layout = Layout((Argument(0, (self.n_features_in_,), "float"),))
        return DatasetRows(X, layout, self._row_shape(), self.n_workers)

    def _validate_rows(self, X: Any) -> Any:
        if is_dataset_like(X):
            return self._dataset_rows(X)
        return super()._validate_rows(self._flat(module_rows.as_arrays(X)))

    def _flat(self, X: Any) -> Any:
        """X as rows of numbers."""
        layout = self._layout
        if layout.several and is_table(X):
            X = module_rows.columns(X)
        if layout.several or is_several(X):
            return layout.flat(X)
        shape = shape_in(X)
        if shape is not None:
            module_rows.check_shape(X, shape, self._row_shape(), self.input_shape)
            X = flat_rows(X)
        if isinstance(X, np.ndarray) and X.dtype.kind in "iuf":
            layout.arguments[0].check_whole("X", X)
        return X

    # the module -----------------------------------------------------------------------------------

    @property
    def _recipe(self) -> tuple[Any, Any]:
        chosen = self.sample_parameters
        return self.module, chosen if isinstance(chosen, str) or callable(chosen) else [*chosen]

    def _same_module(self) -> bool:
        """Whether the module and what is sampled of it are those of the earlier call."""
        before, now = self._made_from, self._recipe
        return before[0] is now[0] and before[1] == now[1]

    def _continues(self) -> bool:
        return self._same_module() and super()._continues()

    def _check_stream(self) -> None:
        super()._check_stream()
        if hasattr(self, "posterior_") and not self._same_module():
            raise later_not_allowed(
                "module and sample_parameters are not allowed to change in partial_fit: keep those "
                "of the earlier calls, or start a new stream with a clone of the estimator."
            )

    def _build(self, n_outputs: int) -> nn.Module:
        """The estimator's own copy of the module."""
        if isinstance(self.module, nn.Module):
            return modules.own_copy(self.module)
        # weights that are not sampled stay as they are built, so these follow the seed, too
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        built = modules.build(self._architecture(n_outputs), seed=seed)
        if self._has_weights:
            built = modules.with_weights(built, self.module[1])
        return modules.in_one_precision(built)

    def _architecture(self, n_outputs: int) -> Any:
        widths = {
            "n_features": self.n_features_in_,
            "input_shape": self._row_shape(),
            "n_outputs": n_outputs,
        }
        return modules.bind(self.module[0] if self._has_weights else self.module, **widths)

    def _make_model(self, rows: KeptRows, *, first: bool) -> Any:
        if not first:  # rows of whole numbers may reach the module as such, or as others do
            self._try(self._module, self._few(self._module, rows.x))
        return super()._make_model(rows, first=first)

    def _make_network(self, n_outputs: int) -> Network:
        start = "module" if self._starts_at_module else "random"
        if self._head is not None:
            return LinearHead(self._head, start)
        network = modules.ModuleNetwork(
            light_copy(self._module), self._vectorized, self._sampled_names, start, self._layout
        )
        network.counted_products = self._counted_products
        return network

    def _model_kind(self, network: Network) -> tuple[type[NetworkModel], dict[str, Any]]:
        kind, options = super()._model_kind(network)
        if self.prior_center == "module":
            options = options | {"center": network.values()}
        return kind, options

    def _check_network(self, X: Array) -> None:
        """Make ``_module``, and look at what it does with a few rows."""
        if self.input_shape is not None and math.prod(self._row_shape()) != X.shape[1]:
            raise not_allowed(
                f"input_shape={self.input_shape!r} is not allowed: a row of X has {X.shape[1]} "
                "numbers."
            )
        module = self._build(self._n_outputs)
        few = self._few(module, X)
        with checks.counted_products(module) as products:
            outputs, x = self._try(module, few)
        self._counted_products = products()
        modules.check_outputs("module", self.module, outputs, (len(few), self._n_outputs))
        checks.check_behaviour(self.module, module, x)
        of_targets = (None,) if is_classifier(self) else (self._family.link, self.likelihood)
        self._left_out = checks.check_range(self.module, module, x, *of_targets)
        self._sampled_names = names = select(module, self.sample_parameters, x)
        checks.check_gradients(module, names, self.sample_parameters, x)
        checks.check_parametrizations(self.module, module, names, x)
        self._module, self._made_from = module.requires_grad_(False), self._recipe
        self._split(x)
        if self._vectorized:  # raises an error if vmap can't
            network = self._make_network(self._n_outputs)
            theta = torch.from_numpy(network.values()).to(few.dtype)
            few = few if self._body is None else self._body(few)
            network.forward(theta.expand(2, -1).clone(), few[None])

    def _few(self, module: nn.Module, X: Any) -> Tensor:
        """A few rows in the precision of the module."""
        with np.errstate(over="ignore"):  # only shapes and types matter here
            few = np.ascontiguousarray(self._rows(X[:2]), np.float32)
        return torch.from_numpy(few).to(modules.precision(module))

    def _try(self, module: nn.Module, few: Tensor) -> tuple[Any, Rows]:
        """The module's outputs for a few rows, and these as the module takes them."""
        shapes = self.input_shape, self._row_shape()
        outputs, x = checks.tried(self.module, module, few, self._layout, *shapes)
        self._layout = x.layout
        return outputs, x

    def _student(self, X: Array) -> Blueprint:
        if self._layout.whole.any():
            raise not_allowed(
                "distill is not allowed with rows of whole numbers, to which it would add noise."
            )
        if self._layout.several:
            raise not_allowed(
                "distill is not allowed with several arrays: a student takes one array of rows."
            )
        blueprint: Blueprint = super()._student(X)  # type: ignore[misc]
        return blueprint

    def _student_architecture(self) -> Any:
        if self._has_weights or len(self._sampled_names) < len([*self._module.parameters()]):
            # the student learns what is sampled, and has the rest
            return Trainable(self._module, self._sampled_names)
        architecture = super()._student_architecture()  # type: ignore[misc]
        return architecture if self._left_out is None else Without(architecture, self._left_out)

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
        return super().fit(X, y, sample_weight)  # type: ignore[misc]

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
        if y is None and is_dataset_like(X):
            y = targets_of(X, self.n_workers)
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]
