"""Fitted estimators as torch modules and ONNX files."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .._pipelines import parts, scaling

if TYPE_CHECKING:
    from torch import nn

__all__ = ["to_onnx", "to_torch"]


def to_torch(estimator: Any, *, n_draws: int | None = None) -> nn.Module:
    """Make a torch module of a fitted estimator's predictions, averaged over the posterior.

    Parameters
    ----------
    estimator : fitted estimator
        A Bayesian classifier or regressor, or a :class:`DistilledClassifier`; or a pipeline or
        search that ends in one. Scalers (``StandardScaler``, ``MinMaxScaler``, ``MaxAbsScaler``,
        ``RobustScaler``) of a pipeline become part of the module; other steps are refused.
    n_draws : int or None, default=None
        Draws of the posterior that are averaged, evenly spaced, with their weights; None: all. A
        distilled classifier has no draws: None only.

    Returns
    -------
    torch.nn.Module
        In evaluation mode, on the CPU, in float32, without gradients. It maps rows (n, n_features)
        as ``predict`` takes them (standardisation is part of it) to class probabilities
        (n, n_classes); that of a regressor to a pair, mean and standard deviation of a new
        observation, each (n,) or (n, n_outputs). ``torch.export.export`` accepts it with a dynamic
        number of rows.

    Raises
    ------
    ValueError
        The estimator is of another kind, or n_draws is not allowed.
    sklearn.exceptions.NotFittedError
        The estimator is not fitted.

    Notes
    -----
    Perceptrons and logistic regression are batched products over all draws: rows * draws * units of
    the widest layer numbers are in memory, so predict large X in parts. Other networks are run
    draw after draw, and the graph that ``torch.export`` makes of them grows with the draws:
    ``n_draws`` keeps it small.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression, to_torch
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X, y)
    >>> rows = torch.tensor(X, dtype=torch.float32)
    >>> program = torch.export.export(
    ...     to_torch(clf), (rows,), dynamic_shapes=({0: torch.export.Dim("n")},))
    >>> p = program.module()(rows[:10])
    >>> bool(np.allclose(p, clf.predict_proba(X[:10]), atol=1e-5))
    True
    """
    _, last = parts(estimator)
    make = getattr(last, "_torch_module", None)
    if make is None:
        raise ValueError(
            f"estimator={estimator!r} is not allowed: give a fitted estimator of this package."
        )
    check_is_fitted(estimator)
    before = scaling(estimator, "only scalers can be made part of a torch module")
    module: nn.Module = make(n_draws)
    if before is not None:
        from torch.nn import Sequential

        from .scaling import Scaling

        module = Sequential(Scaling(*before), module)
    return module.eval().requires_grad_(False)


def to_onnx(estimator: Any, path: str | os.PathLike[str], *, n_draws: int | None = None) -> None:
    """Write a fitted estimator's predictions, averaged over the posterior, to an ONNX file.

    Parameters
    ----------
    estimator : fitted estimator
        As for :func:`to_torch`.
    path : path
        The file, whose folder exists. It is replaced if it is there. Beyond 2 GB the draws are in a
        second file beside it, ``path`` + ".data".
    n_draws : int or None, default=None
        As for :func:`to_torch`.

    Raises
    ------
    ValueError
        The estimator, path or n_draws is not allowed.
    ImportError
        ``onnx`` or ``onnxscript`` is not installed.
    sklearn.exceptions.NotFittedError
        The estimator is not fitted.

    Notes
    -----
    The model has one input "X", float32 (n, n_features), any n; of an estimator that was fitted on
    images, or on other rows with a shape, (n, *shape). Its output is "probabilities"
    (n, n_classes) of classifiers, in the order of ``classes_``, which the model's metadata have
    under "classes" as JSON; "mean" and "std" of regressors.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import onnxruntime
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianMLPClassifier, to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianMLPClassifier(hidden_layer_sizes=20, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "iris.onnx")
    ...     to_onnx(clf, path)
    ...     session = onnxruntime.InferenceSession(path)
    >>> (p,) = session.run(None, {"X": X.astype(np.float32)})
    >>> bool(np.allclose(p, clf.predict_proba(X), atol=1e-5))
    True
    """
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise ValueError(f"path={str(path)!r} is not allowed: its folder does not exist.")
    _import_onnx()
    module, (_, last) = to_torch(estimator, n_draws=n_draws), parts(estimator)
    classifier = is_classifier(last)
    outputs = ["probabilities"] if classifier else ["mean", "std"]
    row_shape = getattr(last, "_shape_in", None) or (estimator.n_features_in_,)  # as in fit
    program = _program(module, row_shape, outputs)
    if classifier:
        program.model.metadata_props["classes"] = json.dumps(last.classes_.tolist())
    # beside the file and then moved there: readers never see half of it
    with tempfile.TemporaryDirectory(dir=path.absolute().parent) as folder:
        program.save(Path(folder) / path.name)
        for part in sorted(Path(folder).iterdir(), reverse=True):  # the model after its data
            os.replace(part, path.absolute().parent / part.name)


def _program(module: nn.Module, row_shape: tuple[int, ...], outputs: list[str]) -> Any:
    """The module as torch's ONNX program, for any number of rows."""
    import torch

    with _quiet():
        return torch.onnx.export(
            module,
            (torch.zeros(2, *row_shape),),
            input_names=["X"],
            output_names=outputs,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            dynamo=True,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says of itself.

    This is that torchvision, which is not needed, is missing, and that torch's own code uses a
    class that torch deprecates.
    """

    def needed(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("torchvision is not installed")

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(needed)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*\bLeafSpec\b", FutureWarning)
            yield
    finally:
        logger.removeFilter(needed)


def _import_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "to_onnx needs onnx and onnxscript: install the extra 'skbayes-sgmcmc[onnx]'."
        ) from error
