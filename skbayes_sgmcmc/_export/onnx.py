"""Export of fitted estimators to torch modules and ONNX files."""

from __future__ import annotations

import io
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.base import is_classifier

from .._exceptions import explained, extra, not_allowed
from .._pipelines import parts, scaling
from .._validation import check_is_fitted

if TYPE_CHECKING:
    from torch import nn

__all__ = ["to_onnx", "to_torch"]


def to_torch(estimator: Any, *, n_draws: int | None = None) -> nn.Module:
    """Convert a fitted estimator to a torch module that predicts the posterior average.

    Parameters
    ----------
    estimator : fitted estimator
        A Bayesian classifier or regressor, or a :class:`DistilledClassifier`; or a pipeline or
        search that ends in one. Scalers (``StandardScaler``, ``MinMaxScaler``, ``MaxAbsScaler``,
        ``RobustScaler``) of a pipeline become part of the module; other steps are refused.
    n_draws : int or None, default=None
        Number of evenly spaced draws that are averaged, with their weights. None: all draws. For a
        distilled classifier, which has no draws, only None is allowed.

    Returns
    -------
    torch.nn.Module
        Module in evaluation mode, on the CPU, in float32 and without gradients. Its input are rows
        (n, n_features) as for ``predict``; the module includes the standardisation. For a
        classifier, it returns class probabilities (n, n_classes), or as ``predict_proba`` those of
        several targets: an array or a tuple. For a regressor, it returns the mean and the standard
        deviation of a new observation, each of shape (n,) or (n, n_outputs).
        ``torch.export.export`` accepts the module with a dynamic number of rows.

    Raises
    ------
    ValueError
        The estimator is of another kind, or n_draws is invalid.
    sklearn.exceptions.NotFittedError
        The estimator is not fitted.

    Notes
    -----
    For perceptrons, convolutional networks and linear models, the module evaluates all draws at
    once. It needs memory for (rows * draws * units of the widest layer) numbers, so predict a large
    X in parts. Torch modules of the user are evaluated one draw after the other. The graph that
    ``torch.export`` makes of them grows with the number of draws; ``n_draws`` keeps it small.

    The predictions of linear models with thousands of draws are those of few that stand for all,
    and differ from the averages here by less than the Monte Carlo error of these.

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
    >>> of_draws = clf.predict_proba_samples(X[:10]).mean(axis=0)
    >>> bool(np.allclose(p, of_draws, atol=1e-5))
    True
    """
    _, last = parts(estimator)
    make = getattr(last, "_torch_module", None)
    if make is None:
        raise not_allowed(
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
    """Write a fitted estimator to an ONNX file that predicts the posterior average.

    Parameters
    ----------
    estimator : fitted estimator
        As for :func:`to_torch`.
    path : path
        File name, in an existing folder. An existing file is replaced. Draws of more than 2 GB are
        written to a second file, ``path`` + ".data".
    n_draws : int or None, default=None
        As for :func:`to_torch`.

    Raises
    ------
    ValueError
        The estimator, path or n_draws is invalid.
    ImportError
        ``onnx`` or ``onnxscript`` is not installed.
    sklearn.exceptions.NotFittedError
        The estimator is not fitted.

    Notes
    -----
    The ONNX model has one input "X", float32 of shape (n, n_features) for any n, or of shape
    ``(n, *shape of a row)`` if the estimator was fitted to images or to other rows that are not
    flat.
    For a classifier, the output is "probabilities" of shape (n, n_classes), in the order of
    ``classes_``. The metadata of the model contain ``classes_`` as JSON under "classes". With
    several targets, there is one output of the probabilities of 1, or "probabilities_0" and so on,
    as ``predict_proba`` has one array or a list. For a regressor, the outputs are "mean" and "std".

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
    path = _checked(path)
    with extra("onnx", "to_onnx needs onnx and onnxscript"):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    if getattr(getattr(parts(estimator)[1], "_layout", None), "several", False):
        raise not_allowed(
            "to_onnx is not allowed for estimators of several arrays, because the ONNX model has "
            "one input: use to_torch."
        )
    module, (_, last) = to_torch(estimator, n_draws=n_draws), parts(estimator)
    outputs, classes = ["mean", "std"], None
    if is_classifier(last) and isinstance(last.classes_, list):  # of several targets
        classes = [known.tolist() for known in last.classes_]
        outputs = [f"probabilities_{j}" for j in range(len(classes))]
    elif is_classifier(last):
        outputs, classes = ["probabilities"], last.classes_.tolist()
    row_shape = getattr(last, "_shape_in", None) or (last.n_features_in_,)  # as in fit
    program = _program(module, row_shape, outputs)
    if classes is not None:
        program.model.metadata_props["classes"] = json.dumps(classes, default=str)  # of dates
    try:  # beside the file and then moved there: readers never see half of it
        with tempfile.TemporaryDirectory(dir=path.absolute().parent) as folder:
            program.save(Path(folder) / path.name)
            for part in sorted(Path(folder).iterdir(), reverse=True):  # the model after its data
                os.replace(part, path.absolute().parent / part.name)
    except OSError as error:  # a full disk, a folder of someone else
        raise explained(
            OSError(
                error.errno,
                f"path={str(path)!r} could not be written ({error.strerror}): make room, give a "
                "file in another folder, or a smaller n_draws",
            )
        ) from error


def _checked(path: Any) -> Path:
    """The path, if it is one of a file in a folder that exists."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise not_allowed(f"path={path!r} is not allowed: give the name of a file.")
    refused = f"path={os.fspath(path)!r} is not allowed"
    path = Path(path)
    if path.is_dir():
        raise not_allowed(f"{refused}: it is a folder; give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise not_allowed(f"{refused}: its folder does not exist; give an existing one.")
    return path


def _program(module: nn.Module, row_shape: tuple[int, ...], outputs: list[str]) -> Any:
    """Convert the module to torch's ONNX program, for any number of rows."""
    import torch

    with _quiet():
        return torch.onnx.export(
            module,
            (torch.zeros(2, *row_shape, dtype=torch.float32, device="cpu"),),
            input_names=["X"],
            output_names=outputs,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            dynamo=True,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says of itself.

    This is that torchvision, which is not needed, is missing, that torch's own code uses a class
    that torch deprecates, and how many rewrite rules older versions of onnxscript have applied.
    """

    def needed(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("torchvision is not installed")

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(needed)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.filterwarnings("ignore", r".*\bLeafSpec\b", FutureWarning)
            yield
    finally:
        logger.removeFilter(needed)
