"""Classes of each target of a classifier: codes of labels, and predictions in the shape of y."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .._arrays import Array
from .._exceptions import NOT_ALLOWED, later_not_allowed, not_allowed
from .._labels import codes_of, known_codes, label_array
from .._validation import check_array, class_weights, column_or_1d

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Classes:
    """The classes of each target, and the outputs of the model that belong to it.

    A model has one output for each class: first those of the first target, then those of the
    second. Each label of a multilabel y is a target with the classes 0 and 1.
    """

    #: the classes of each target
    of_each: tuple[Array, ...]
    #: whether y has two dimensions, and whether each of its columns is 0 or 1
    several: bool = False
    multilabel: bool = False

    @classmethod
    def of_several(cls, of_each: Sequence[Array]) -> Self:
        """Those of several targets, which are multilabel if all labels are 0 or 1."""
        if all(set(known.tolist()) <= {0, 1} for known in of_each):
            return cls((np.array([0, 1]),) * len(of_each), several=True, multilabel=True)
        return cls(tuple(of_each), several=True)

    @classmethod
    def of_labels(cls, labels: Array, classes: Any) -> Self:
        """Those of labels, or those that a stream declares: a list, or one for each column.

        Numbers of columns, which ``MLPClassifier`` takes for multilabel targets, say that these are
        0 and 1.
        """
        if labels.ndim == 1:
            known = labels if classes is None else label_array("classes", classes)
            return cls((np.unique(known),))
        if classes is None:
            return cls.of_several([np.unique(column) for column in columns(labels)])
        k, listed = labels.shape[1], list(classes) if np.iterable(classes) else []
        dimensions = {np.ndim(known) for known in listed}
        if dimensions == {0} and np.array_equal(listed, np.arange(k)):
            return cls.of_several([np.array([0, 1])] * k)
        if len(listed) != k or dimensions != {1}:
            raise later_not_allowed(
                f"classes={classes!r} is not allowed with y of {k} columns: give a list with the "
                "classes of each column."
            )
        return cls.of_several([np.unique(label_array("classes", known)) for known in listed])

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Those of a fitted classifier."""
        if estimator._multilabel:
            return cls.of_several([np.array([0, 1])] * len(estimator.classes_))
        several = isinstance(estimator.classes_, list)
        return cls.of_several(estimator.classes_) if several else cls((estimator.classes_,))

    @property
    def attribute(self) -> Any:
        """The attribute ``classes_``."""
        if self.multilabel:  # numbers of labels, as MLPClassifier has them
            return np.arange(self.n_targets)
        return list(self.of_each) if self.several else self.of_each[0]

    @property
    def n_targets(self) -> int:
        return len(self.of_each)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.of_each))

    @property
    def n_outputs(self) -> int:
        return sum(self.sizes)

    @property
    def listed(self) -> list[Any]:
        """The classes for messages: a list, or one list for each target."""
        each = [known.tolist() for known in self.of_each]
        return each if self.several else each[0]

    @property
    def names(self) -> list[str]:
        """What the outputs are called."""
        if not self.several:
            return [f"{label!r}" for label in self.of_each[0].tolist()]
        named = enumerate(known.tolist() for known in self.of_each)
        return [f"{label!r} of target {j}" for j, known in named for label in known]

    @property
    def choices(self) -> dict[Any, int]:
        """Places of the outputs by label, by number of a label, or by target and label."""
        if self.multilabel:
            return {j: 2 * j + 1 for j in range(self.n_targets)}
        labels = [(j, label) for j, known in enumerate(self.of_each) for label in known.tolist()]
        return {key if self.several else key[1]: place for place, key in enumerate(labels)}

    # labels ---------------------------------------------------------------------------------------

    def labels(self, y: Any) -> Array:
        """Labels y for predictions, which have the shape of those of fit."""
        if not self.several:
            return np.asarray(column_or_1d(label_array("y", y)))
        y = label_array("y", y)
        found = check_array(y, accept_sparse="csr", dtype=None, ensure_2d=False, input_name="y")
        self.check_shape(found)
        return found.toarray() if sp.issparse(found) else found

    def check_shape(self, labels: Any) -> None:
        """Raise ``ValueError`` if labels are not of these targets."""
        expected = (self.n_targets,) if self.several else ()
        if labels.shape[1:] != expected:
            shape = f"(n_samples, {self.n_targets})" if self.several else "(n_samples,)"
            raise later_not_allowed(
                f"y of shape {labels.shape} is not allowed: give shape {shape}, as in the first "
                "call."
            )

    def codes(self, labels: Array) -> Array:
        """Places (n,) or (n, k) of labels among the classes of their target, or -1."""
        found = list(map(codes_of, columns(labels), self.of_each))
        return np.stack(found, axis=1) if self.several else found[0]

    def known_codes(
        self, labels: Array, known: str, remedy: str, section: str = NOT_ALLOWED
    ) -> Array:
        """The same; labels that are none of the classes are refused."""
        found = []
        for j, (column, classes) in enumerate(zip(columns(labels), self.of_each, strict=True)):
            where = f" of target {j}" if self.several else ""
            found.append(known_codes(column, classes, known, remedy, where, section))
        return np.stack(found, axis=1) if self.several else found[0]

    def given(self, codes: Array) -> Array:
        """Labels, as the user gave them, of codes (...,) or (..., k)."""
        if not self.several:
            return self.of_each[0][codes]
        found = [known[codes[..., j]] for j, known in enumerate(self.of_each)]
        mixed = len({column.dtype.kind for column in found}) > 1  # text would swallow numbers
        return np.stack([c.astype(object) for c in found] if mixed else found, axis=-1)

    def counts(self, codes: Array) -> Array:
        """Number of rows of each output's class, (n_outputs,)."""
        counted = zip(columns(codes), self.sizes, strict=True)
        return np.concatenate([np.bincount(code, minlength=size) for code, size in counted])

    def weights(self, given: Any, codes: Array, sample_weight: Any) -> Array:
        """Weights of rows by the parameter ``class_weight``: products over the targets."""
        if not self.several:
            return class_weights(given, self.of_each[0], codes, sample_weight)[codes]
        if not isinstance(given, str) and np.shape(given) != (self.n_targets,):
            raise not_allowed(
                f"class_weight={given!r} is not allowed with {self.n_targets} targets: give a "
                "list with a dict for each target, or 'balanced'."
            )
        each = [given] * self.n_targets if isinstance(given, str) else given
        args = zip(each, self.of_each, columns(codes), strict=True)
        found = (class_weights(one, known, code, sample_weight)[code] for one, known, code in args)
        return np.prod(list(found), axis=0)

    # predictions of all outputs -------------------------------------------------------------------

    def parts(self, values: Array, axis: int = -1) -> list[Array]:
        """The outputs of each target."""
        return np.split(values, np.cumsum(self.sizes)[:-1], axis)

    def in_each(self, function: Callable[[Array], Array], values: Array) -> Array:
        """A function of the outputs (..., classes) of a target, applied to all of them."""
        if self.n_targets == 1:
            return function(values)
        return np.concatenate([function(part) for part in self.parts(values)], axis=-1)

    def per_target(self, function: Callable[[Array], Array], values: Array) -> Array:
        """One number (...,) of the outputs (..., classes) of each target, shaped like y."""
        found = [function(part) for part in self.parts(values)]
        return np.stack(found, axis=-1) if self.several else found[0]

    def most_probable(self, proba: Array) -> Array:
        """Codes of the most probable classes."""
        return self.per_target(lambda p: np.asarray(p.argmax(axis=-1)), proba)

    def shaped(self, values: Array, axis: int = -1) -> Any:
        """Probabilities as users get them: of the label 1, or a list with one array a target."""
        if self.multilabel:
            return values.take(np.arange(1, self.n_outputs, 2), axis)
        return self.parts(values, axis) if self.several else values

    def log_of_labels(self, proba: Array, codes: Array, least: float = TINY) -> Array:
        """Log probabilities (..., rows) of the labels of rows, summed over the targets.

        ``least`` is the smallest probability that a label may have.
        """
        rows = np.arange(len(codes))
        of_each = zip(self.parts(proba), columns(codes), strict=True)
        return np.sum([logs(part[..., rows, code], least) for part, code in of_each], axis=0)


def logs(proba: Array, least: float = TINY) -> Array:
    """Logarithms of probabilities, which may be zero."""
    return np.log(np.maximum(proba, least))


def columns(values: Array) -> list[Array]:
    """The columns of (n, k) values, each of its own type, or (n,) values as the only one."""
    if values.ndim == 1:
        return [values]
    of_any_type = values.dtype.kind == "O"  # numbers beside texts
    return [label_array("y", column) if of_any_type else column for column in values.T]


def n_columns(y: Any) -> int:
    """Number of columns of y; 1 if it has one dimension, or another shape than targets have."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:  # of ragged lists
        return 1
    return int(shape[1]) if len(shape) == 2 else 1
