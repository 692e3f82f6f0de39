"""What the estimators of torch modules share: the module, and what of it is sampled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from .._exceptions import RandomLayerWarning, not_allowed, warn
from .._validation import brief, check_choice, check_int, check_random_state, check_sizes, is_real
from ._last_layer import LastLayer
from ._module_rows import ModuleRows, is_dataset_like
from ._sparsity import Sparsity, compress

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .._data.kept_rows import KeptRows
    from ..models.networks.distillation import Blueprint
    from ..models.networks.model import NetworkModel
    from ..models.networks.module_checks import Rows
    from ..models.networks.network import Network

Array = NDArray[Any]

#: number of random layers that a warning names
NAMED_LAYERS = 3


class ModuleEstimator(ModuleRows, LastLayer):
    """Mixin of estimators whose network is a torch module that the user gives.

    ``fit`` keeps its own copy of the module, ``_module``. Parameters that are not sampled, and
    buffers, keep the values that they have there.
    """

    sample_parameters: Any
    prior_center: Any
    init: Any
    #: the parameters that ``_module`` and ``_sampled_names`` were made from
    _made_from: tuple[Any, Any]
    #: the final softmax or sigmoid of the module, which ``_module`` does without
    _left_out: str | None = None

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
        if self._sparsity:
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
            return self._has_weights and self._sparsity.prior is None
        return isinstance(self.init, str) and self.init == "module"

    def _settings(self) -> Any:
        from .._engine.settings import Settings

        # the network starts there, and the rest is as for "auto"
        at_module = isinstance(self.init, str) and self.init == "module"
        return Settings.of(self, **({"init": "auto"} if at_module else {}))

    def __getstate__(self) -> dict[str, Any]:
        from ..models.networks.module_copies import PickleOnly

        state: dict[str, Any] = super().__getstate__()
        contains = self._has_weights or hasattr(self, "_module")
        # first, so that skops comes to it before it comes to a module
        return {"_files": PickleOnly()} | state if contains else state

    @property
    def _sparsity(self) -> Sparsity:
        return Sparsity.of(self.prior, self.prune, self.temperature)

    compress = compress

    # the module -----------------------------------------------------------------------------------

    @property
    def _recipe(self) -> tuple[Any, Any]:
        chosen = self.sample_parameters
        return self.module, chosen if isinstance(chosen, str) or callable(chosen) else [*chosen]

    def _same_module(self) -> bool:
        """Whether the module and what is sampled of it are those of the earlier call."""
        before, now = getattr(self, "_made_from", (None, None)), self._recipe
        return before[0] is now[0] and before[1] == now[1]

    def _continues(self) -> bool:
        return self._same_module() and super()._continues()

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

    def _make_model(self, rows: KeptRows, *, first: bool) -> Any:
        if not first:  # rows of whole numbers may reach the module as such, or as others do
            self._try(self._module, self._few(self._module, rows.x))
        return super()._make_model(rows, first=first)

    def _make_network(self, n_outputs: int) -> Network:
        from ..models.networks.module import ModuleNetwork
        from ..models.networks.module_copies import light_copy

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

        from ..models.networks.module import check_outputs
        from ..models.networks.selection import select

        if self.input_shape is not None and math.prod(self._row_shape()) != X.shape[1]:
            raise not_allowed(
                f"input_shape={self.input_shape!r} is not allowed: a row of X has {X.shape[1]} "
                "numbers."
            )
        module = self._build(self._n_outputs)
        few = self._few(module, X)
        outputs, x = self._try(module, few)
        check_outputs("module", self.module, outputs, (len(few), self._n_outputs))
        self._check_behaviour(module, x)
        self._left_out = self._check_range(module, x)
        self._sampled_names = select(module, self.sample_parameters, x)
        self._check_gradients(module, x)
        self._check_parametrizations(module, x)
        self._module, self._made_from = module.requires_grad_(False), self._recipe
        self._split(x)
        if self._vectorized:  # raises an error if vmap can't
            network = self._make_network(self._n_outputs)
            theta = torch.from_numpy(network.values()).to(few.dtype)
            few = few if self._body is None else self._body(few)
            network.forward(theta.expand(2, -1).clone(), few[None])

    def _few(self, module: nn.Module, X: Any) -> Tensor:
        """A few rows in the precision of the module."""
        import torch

        from ..models.networks.module import precision

        with np.errstate(over="ignore"):  # only shapes and types matter here
            few = np.ascontiguousarray(self._rows(X[:2]), np.float32)
        return torch.from_numpy(few).to(precision(module))

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
        if changed:
            raise not_allowed(
                f"module={brief(self.module)} is not allowed: its forward changes {changed[0]!r} "
                "in evaluation mode; a posterior needs a function that stays the same.",
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

    def _check_range(self, module: nn.Module, x: Rows) -> str | None:
        """Take a final softmax or sigmoid of a classifier off ``module``, and return its name.

        Refuse other modules that return what the likelihood makes of their outputs.
        """
        from ..models.networks.module_checks import confined, leave_out_probabilities

        if is_classifier(self):
            return leave_out_probabilities("module", self.module, module, x)
        link = self._family.link
        if link != "none" and confined(module, x, 0.0, math.inf).any():
            what = {"identity": "standardised targets", "log": "logarithms of means"}[link]
            raise not_allowed(
                f"module={brief(self.module)} is not allowed with likelihood={self.likelihood!r}: "
                f"its outputs are {what}, which have both signs, but none is negative, whatever "
                "its parameters are; leave out the activation at its end.",
                "a-module-is-not-allowed",
            )
        return None

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

    def _check_parametrizations(self, module: nn.Module, x: Rows) -> None:
        """Refuse those that are not continuous; warn of those that are others in training."""
        from ..models.networks import module_checks as checks

        for part, names in checks.parametrized(module, self._sampled_names).items():
            if checks.jumps(module, names, x):
                raise not_allowed(
                    f"module={brief(self.module)} is not allowed: its outputs jump where the "
                    f"parameters of {part!r} change, so that these have no density that gradients "
                    "could sample; for orthogonal weights, give orthogonal_map='matrix_exp'.",
                    "a-module-is-not-allowed",
                )
            if checks.moves_in_training(module, part, x):
                warn(
                    f"training would update the buffers of {part!r}, which keep their values while "
                    "sampling, so that the weights of spectral_norm do not have the norm 1. "
                    "Register a parametrization without buffers, or select other parameters.",
                    "a-parametrization-keeps-its-buffers",
                )

    def _student(self, X: Array) -> Blueprint:
        if self._layout.whole.any():
            raise not_allowed(
                "distill is not allowed with rows of whole numbers, to which it would add noise."
            )
        if self._layout.several:
            raise not_allowed(
                "distill is not allowed with several arrays: a student takes one array of rows."
            )
        blueprint: Blueprint = super()._student(X)
        return blueprint

    def _student_architecture(self) -> Any:
        from ..models.networks.distillation import Trainable, Without

        if self._has_weights or len(self._sampled_names) < len([*self._module.parameters()]):
            # the student learns what is sampled, and has the rest
            return Trainable(self._module, self._sampled_names)
        architecture = super()._student_architecture()
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
        if y is None and is_dataset_like(X):
            from .._data.datasets import targets_of

            y = targets_of(X, self.n_workers)
        return float(super().score(X, y, sample_weight))
