"""One deterministic network that replaces a posterior."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import clone

from .._arrays import Array
from .._data.images import check_image_shape, flat_images, shape_in
from .._exceptions import explained, not_allowed
from .._limits import LIMITS, slices
from .._modes import OwnNumbers, usual_modes
from .._sklearn import BaseEstimator
from .._validation import (
    BOUNDS,
    check_array,
    check_int,
    check_is_fitted,
    check_predictions,
    check_random_state,
    check_real,
    check_sizes,
    check_unless,
    validate_data,
)
from ._classes import n_columns
from ._fitting import all_or_nothing
from ._probabilities import ProbabilityClassifier

if TYPE_CHECKING:
    from torch import nn

    from ..models.networks.distillation import Blueprint


#: why a student of several targets is refused
ONE_TARGET = (
    "distilling is not allowed with {k} targets: distil a classifier that is fitted to one column "
    "of y."
)


@dataclass(eq=False, repr=False)
class DistilledClassifier(ProbabilityClassifier, BaseEstimator):
    r"""One deterministic network that imitates the averaged predictions of a posterior.

    A student network is trained to predict the class probabilities of a Bayesian classifier,
    averaged over its draws, at training rows with added noise (Korattikara et al. 2015). The
    student needs the time and memory of a single draw, and its error and calibration are close to
    those of the full average. ``fit`` fits the classifier first. For a classifier that is already
    fitted, use :meth:`BayesianMLPClassifier.distill`.

    Parameters
    ----------
    estimator : estimator
        Bayesian classifier of this package. ``fit`` fits a clone of it.
    student : None, int, sequence of int or callable, default=None
        Architecture of the student. None: the network of the estimator, or a linear one for
        logistic regression. Numbers: a perceptron with ReLUs and hidden layers of these sizes. A
        callable without arguments must build a ``torch.nn.Module`` that maps rows (n, ...), as the
        network of the estimator sees them, to logits (n, n_classes); this module may have batch
        norms and dropout.
    n_epochs : "auto" or int, default="auto"
        Number of passes over the rows. "auto": 30, or more if 30 passes take fewer than 8000 steps.
    batch_size : int, default=100
        Number of rows in a minibatch.
    learning_rate : float, default=0.001
        Initial learning rate of Adam. It falls to zero along half a cosine.
    perturbation : float, default=0.3
        Standard deviation of the Gaussian noise that is added to the rows in every epoch, relative
        to the standard deviation of each feature. The draws seldom disagree at the training rows
        themselves; the noise shows the student regions where they do.
    n_draws : int, default=4
        Number of draws; their averaged probabilities are the targets. New draws are chosen, by
        weight, for every 2000 rows. More draws make the targets less noisy, at the cost of one
        prediction each.
    device : str, default="auto"
        Torch device for the training, such as "cpu" or "cuda". "auto" is that of the teacher's fit.
    random_state : int, RandomState or None, default=None
        Seed of the student's initial weights, the order of rows, the noise and the choice of draws.
        The estimator has its own ``random_state``.
    verbose : int, default=0
        If positive, print one line per epoch.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels.
    weights_ : dict of str to array
        Parameters of the student, and statistics of its batch norms, by their names in the module.
    loss_curve_ : array of shape (n_epochs,)
        Mean cross-entropy with the noisy targets in each epoch, in nats.
    n_features_in_ : int
        Number of values in a row.
    feature_names_in_ : array of shape ``(n_features_in_,)``
        Names of the features, if X had string column names.

    See Also
    --------
    skbayes_sgmcmc.to_onnx, skbayes_sgmcmc.to_torch : Export of students and of posteriors.

    Notes
    -----
    A student has no draws. For the uncertainty of the parameters and for the two parts of the
    predictive entropy, use the fitted Bayesian classifier.

    References
    ----------
    Korattikara, Rathod, Murphy & Welling (2015), Bayesian dark knowledge, NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianMLPClassifier(hidden_layer_sizes=20, random_state=0).fit(X, y)
    >>> student = clf.distill(X, random_state=0)
    >>> float((student.predict(X) == clf.predict(X)).mean()) > 0.95
    True
    """

    estimator: BaseEstimator
    _: KW_ONLY
    student: int | Sequence[int] | Callable[..., nn.Module] | None = None
    n_epochs: int | Literal["auto"] = "auto"
    batch_size: int = 100
    learning_rate: float = 0.001
    perturbation: float = 0.3
    n_draws: int = 4
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the estimator and train a student on its predictions.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), or images
            Rows, in a form that the estimator accepts.
        y : array of shape (n_samples,)
            Class labels.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A parameter or the data are invalid.
        FloatingPointError
            The training of the student diverged.
        """
        self._check()
        if n_columns(y) > 1:
            raise not_allowed(ONE_TARGET.format(k=n_columns(y)))
        check_array(X, allow_nd=True, input_name="X")  # dense: an error comes before any sampling
        return self._distill(clone(self.estimator).fit(X, y), X)

    @usual_modes()
    def _distill(self, teacher: Any, X: Any) -> Self:
        """Train the student on the predictions of a fitted classifier."""
        import torch

        from .._engine.devices import device_after
        from ..models.networks import distillation as training
        from ..models.networks.ensemble import Inputs, MainOutput
        from ..models.networks.module import build, check_outputs
        from ..models.networks.module_checks import Rows, leave_out_probabilities
        from ..models.networks.module_copies import converted

        settings = self._check()
        teacher._encoding.check_plain("a student")
        if teacher._classes.several:
            raise not_allowed(ONE_TARGET.format(k=teacher._classes.n_targets))
        rows = check_array(teacher._validate_x(X), dtype=(np.float64, np.float32))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        device = device_after(self.device, getattr(teacher, "device_", "cpu"))
        blueprint = self._blueprint(teacher._student(rows), len(teacher.classes_))
        cuda = [torch.device(device)] if device.startswith("cuda") else []
        numbers = OwnNumbers(seed, cuda)  # of initial values and of dropout
        with numbers.in_use():
            network = build(blueprint.architecture, "student")
            n_parameters = sum(p.numel() for p in network.parameters())
            dtype = settings.resolve_dtype(device, n_parameters)
            inputs = Inputs(blueprint.center, blueprint.scale, blueprint.row_shape, dtype)
            module = converted(torch.nn.Sequential(inputs, network, MainOutput()), device, dtype)
            some = torch.from_numpy(rows[:2].copy()).to(device)
            with torch.no_grad():
                outputs = module.eval()(some)
            check_outputs("student", self.student, outputs, (len(some), len(teacher.classes_)))
            left_out = leave_out_probabilities("student", self.student, network, Rows(inputs(some)))
            if left_out is not None:
                blueprint.architecture = training.Without(blueprint.architecture, left_out)
        weights = teacher.posterior_.spaced()[1]
        targets = training.few_draws(teacher._predict_block, weights, self.n_draws, rng)
        plan = training.Training(
            self.n_epochs, self.batch_size, self.learning_rate, self.perturbation
        )
        self.loss_curve_ = plan.run(module, rows, targets, rng, numbers, self._report)
        self.classes_, self.n_features_in_ = teacher.classes_, teacher.n_features_in_
        if hasattr(teacher, "feature_names_in_"):
            self.feature_names_in_ = teacher.feature_names_in_
        self._shape_in = shape_in(X)
        self._architecture, self._row_shape = blueprint.architecture, blueprint.row_shape
        self._x_center, self._x_scale = blueprint.center, blueprint.scale
        # the student learns from few draws at a time, and their average is not yet calibrated
        self._power = getattr(teacher, "calibration_power_", 1.0)
        self.weights_ = {name: v.cpu().numpy() for name, v in network.state_dict().items()}
        # the last step has no cross-entropy that would say so
        if not np.isfinite(self._proba(rows)).all():
            raise explained(
                FloatingPointError(
                    "the student's predictions of X are not finite: give a learning_rate smaller "
                    f"than {self.learning_rate:g}."
                ),
                "the-training-of-a-student-diverged",
            )
        return self

    def _check(self) -> Any:
        """Check every parameter before any work starts."""
        from .._engine.settings import Settings
        from ..models.networks.module import check_builder

        if not hasattr(self.estimator, "distill"):
            raise not_allowed(
                f"estimator={self.estimator!r} is not allowed: give a Bayesian classifier of this "
                "package."
            )
        if callable(self.student):
            check_builder("student", self.student)
        elif self.student is not None:
            check_sizes("student", self.student, high=BOUNDS.count)
        check_unless("auto", check_int, "n_epochs", self.n_epochs, high=BOUNDS.count)
        check_int("batch_size", self.batch_size)
        check_real("learning_rate", self.learning_rate, low=0.0)
        check_real("perturbation", self.perturbation, low=0.0, closed="left")
        check_int("n_draws", self.n_draws)
        settings = Settings(
            device=self.device, random_state=self.random_state, verbose=self.verbose
        )
        settings.check()
        return settings

    def _blueprint(self, own: Blueprint, n_classes: int) -> Blueprint:
        """The student, given a blueprint like the teacher's own network."""
        from ..models.networks.mlp import MLP

        if self.student is None:
            return own
        if callable(self.student):
            return replace(own, architecture=self.student)
        sizes = (math.prod(own.row_shape), *check_sizes("student", self.student), n_classes)
        return replace(own, architecture=MLP(sizes, "relu").module)

    def _report(self, line: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {line}", flush=True)

    # prediction -----------------------------------------------------------------------------------

    def _probabilities(self, X: Any) -> Array:
        check_is_fitted(self)
        flat, image_shape = flat_images(X)
        check_image_shape(image_shape, self._row_shape)
        rows = validate_data(self, flat, reset=False, dtype=(np.float64, np.float32))
        return check_predictions(self._proba(rows), rows)

    @usual_modes()
    def _proba(self, rows: Array) -> Array:
        import torch

        dtype = getattr(torch, next(iter(self.weights_.values())).dtype.name)  # as it was trained
        module = self._module(dtype)
        with torch.no_grad():
            logits = [
                module(torch.from_numpy(rows[part].copy())).double()
                for part in slices(len(rows), LIMITS.module_rows)
            ]
        return np.asarray((self._power * torch.cat(logits)).softmax(1))

    def _module(self, dtype: Any) -> nn.Sequential:
        """The student as a module that maps rows to logits, for predictions."""
        import torch

        from ..models.networks.ensemble import Inputs, MainOutput
        from ..models.networks.module import build
        from ..models.networks.module_copies import converted

        network = converted(build(self._architecture, "student"), "cpu", dtype)
        network.load_state_dict(
            {name: torch.tensor(v, device="cpu") for name, v in self.weights_.items()}
        )
        inputs = Inputs(self._x_center, self._x_scale, self._row_shape, dtype)
        return torch.nn.Sequential(inputs, network, MainOutput()).eval()

    def _torch_module(self, n_draws: int | None = None) -> nn.Module:
        """The predictions of the student as a torch module."""
        import torch

        from ..models.networks.ensemble import Power

        if n_draws is not None:
            raise not_allowed(
                f"n_draws={n_draws!r} is not allowed: a student has no draws; give n_draws=None."
            )
        parts = [*self._module(torch.float32), torch.nn.Softmax(dim=1)]
        return torch.nn.Sequential(*parts, *([] if self._power == 1.0 else [Power(self._power)]))
