"""What the estimators of torch modules share: how the module is built, and the shapes of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.images import shape_in
from .._validation import check_sizes
from ._sparse import SparseNetwork

Array = NDArray[Any]


class ModuleEstimator(SparseNetwork):
    module: Any
    input_shape: Any
    n_features_in_: int

    def _check(self) -> Any:
        from ..models.networks.module import check_builder

        check_builder("module", self.module)
        if self.input_shape is not None:
            check_sizes("input_shape", self.input_shape)
        return super()._check()

    def _architecture(self, n_outputs: int) -> Any:
        from ..models.networks.module import bind

        widths = {
            "n_features": self.n_features_in_,
            "input_shape": self._row_shape(),
            "n_outputs": n_outputs,
        }
        return bind(self.module, **widths)

    def _check_network(self, X: Array) -> None:
        # two rows through the module: its output must be (rows, n_outputs)
        import torch

        from ..models.networks.module import check_outputs

        if self.input_shape is not None and math.prod(self._row_shape()) != X.shape[1]:
            raise ValueError(
                f"input_shape={self.input_shape!r} is not allowed: a row of X has {X.shape[1]} "
                "numbers."
            )
        network = self._make_network(self._n_outputs)
        theta = torch.from_numpy(network.init(np.random.default_rng(0))).float()[None]
        with np.errstate(over="ignore"):  # only shapes matter here
            x = torch.from_numpy(np.ascontiguousarray(self._inputs(X[:2]), np.float32))[None]
        try:
            with torch.no_grad():
                outputs = network.outputs(theta, x)[0]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            hint = "give the input_shape that the module expects, such as (channels, height, width)"
            raise ValueError(
                f"module={self.module!r} is not allowed with input_shape={self.input_shape!r}: it "
                f"does not take rows of shape {self._row_shape()} ({error}). If these are images "
                f"or sequences, {hint}; else change the module's inputs."
            ) from error
        if self._vectorized:
            network.forward(theta.expand(2, -1), x)  # raises an error if vmap can't
        check_outputs("module", self.module, outputs, (x.shape[1], self._n_outputs))

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
