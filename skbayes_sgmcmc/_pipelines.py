"""Estimators of this package inside pipelines and searches."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from ._arrays import Array
from ._exceptions import not_allowed
from ._validation import check_is_fitted


def parts(estimator: Any) -> tuple[list[Pipeline], Any]:
    """The steps before the last estimator inside pipelines and searches, and that estimator."""
    before = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            if len(estimator) > 1:
                before.append(estimator[:-1])
            estimator = estimator[-1]
        else:
            return before, estimator


def last_step(estimator: Any, *rows: Any) -> tuple[Any, ...]:
    """The fitted estimator of this package inside a pipeline or search, and the rows it gets.

    Rows that are None stay so.
    """
    check_is_fitted(estimator)
    before, last = parts(estimator)
    if not hasattr(last, "posterior_"):
        raise not_allowed(
            f"estimator={estimator!r} is not allowed: give a fitted estimator of this package, or "
            "a pipeline or search that ends in one."
        )
    for steps in before:
        rows = tuple(None if X is None else steps.transform(X) for X in rows)
    return (last, *rows)


def with_column_names(estimator: Any) -> Any:
    """The last step with the names that the steps before it give to its columns, if they do.

    It is for labels only: scikit-learn warns of rows without names that such an estimator predicts.
    """
    before, last = parts(estimator)
    names: Any = None
    if not hasattr(last, "feature_names_in_"):
        for steps in before:
            try:
                names = steps.get_feature_names_out(names)
            except (AttributeError, ValueError):  # a step that names nothing
                return last
    if names is None:
        return last
    found = copy.copy(last)
    found.feature_names_in_ = np.asarray(names, dtype=object)
    return found


def name_of(estimator: Any) -> str:
    """Class of the estimator, or of the last step of a pipeline or search."""
    return type(parts(estimator)[1]).__name__


def called_from(*modules: str) -> bool:
    """Whether code of one of these modules has led to the present call."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in modules:
            return True
        frame = frame.f_back
    return False


def scaling(estimator: Any, because: str) -> tuple[Array, Array] | None:
    """Centre and scale by which the steps before the last estimator scale each column, if any do.

    Others are refused; ``because`` says why.
    """
    found = None
    steps = [step for pipeline in parts(estimator)[0] for step in pipeline.steps]
    for name, step in steps:
        if step is None or step == "passthrough":
            continue
        one = _center_and_scale(step)
        if one is None:
            raise not_allowed(
                f"a pipeline with the step {name!r} ({type(step).__name__}) is not allowed: "
                f"{because}. Give the last step, pipeline[-1], and where rows are wanted those "
                "that it gets, pipeline[:-1].transform(X)."
            )
        center, scale = (0.0, 1.0) if found is None else found
        found = center + scale * one[0], scale * one[1]
    return found


def _center_and_scale(step: Any) -> tuple[Array, Array] | None:
    """The two with which a step maps x to (x - center) / scale, if it does."""
    zero, one = np.zeros(step.n_features_in_), np.ones(step.n_features_in_)
    if getattr(step, "clip", False):
        return None
    if type(step) is MinMaxScaler:
        return -step.min_ / step.scale_, 1.0 / step.scale_
    center = None
    if type(step) is StandardScaler:  # it has a mean that it does not use
        center = step.mean_ if step.with_mean else None
    elif type(step) is RobustScaler:
        center = step.center_
    elif type(step) is not MaxAbsScaler:
        return None
    return zero if center is None else center, one if step.scale_ is None else step.scale_
