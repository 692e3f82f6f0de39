"""One plain network in the place of a posterior."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from .._data.images import check_image_shape, flat_images
from .._validation import check_int, check_random_state, check_real, check_sizes
from ._base import all_or_nothing
from ._probabilities import ProbabilityClassifier

if TYPE_CHECKING:
    from torch import nn

    from ..models.networks.distillation import Blueprint

Array = NDArray[Any]

#: rows that go through the network at once in predictions
PREDICTION_ROWS = 2000


class DistilledClassifier(ProbabilityClassifier, BaseEstimator):
    r"""One deterministic network that imitates the averaged predictions of a posterior.

    A student network is trained on a Bayesian classifier's probabilities, averaged over its draws,
    at training rows with some noise (Korattikara et al. 2015). It predicts in the time and memory
    of one draw, and with nearly the error and calibration of all of them.
    :meth:`BayesianMLPClassifier.distill` makes one of a classifier that is fitted; ``fit`` fits the
    classifier first.

    Parameters
    ----------
    estimator : estimator
        A Bayesian classifier of this package; ``fit`` fits a clone of it.
    student : None, int, sequence of int or callable, default=None
        The network. None: the estimator's own (of logistic regression, a linear one); numbers:
        units of the hidden layers of a perceptron with ReLUs; a callable without arguments builds a
        ``torch.nn.Module`` that maps rows as the estimator's network sees them (n, ...) to logits
        (n, n_classes). It may have batch norms and dropout.
    n_epochs : "auto" or int, default="auto"
        Passes over the rows. "auto": 30, more where that is less than 8000 steps.
    batch_size : int, default=100
        Rows in a minibatch.
    learning_rate : float, default=0.001
        Adam's, at first; it falls to zero along half a cosine.
    perturbation : float, default=0.3
        Standard deviation of the Gaussian noise on the rows, new at every epoch, in units of each
        feature's. It shows the student where the draws disagree, which at training rows they
        seldom do.
    n_draws : int, default=4
        Draws, chosen anew by weight for every 2000 rows, whose averaged probabilities are the
        targets. More make targets less noisy, and cost a prediction each.
    device : str, default="auto"
        Where the student is trained: "cpu", "cuda", ...; "auto" takes CUDA if there.
    random_state : int, RandomState or None, default=None
        Seed of the student's start, the order of rows, the noise and the choice of draws; the
        estimator has its own.
    verbose : int, default=0
        Print a line an epoch if positive.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels.
    weights_ : dict of str to array
        The student's parameters (and statistics of batch norms), by their names in the module.
    loss_curve_ : array of shape (n_epochs,)
        Mean cross-entropy in each epoch, in nats, to the noisy targets.
    n_features_in_ : int
        Numbers in a row.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    skbayes_sgmcmc.to_onnx, skbayes_sgmcmc.to_torch : Export, of posteriors too.

    Notes
    -----
    It has no draws: uncertainties of the parameters, and the split of entropies into two parts, are
    the estimator's alone.

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

    classes_: Array
    n_features_in_: int

    def __init__(
        self,
        estimator: Any,
        *,
        student: Any = None,
        n_epochs: Any = "auto",
        batch_size: int = 100,
        learning_rate: float = 0.001,
        perturbation: float = 0.3,
        n_draws: int = 4,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.estimator = estimator
        self.student = student
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.perturbation = perturbation
        self.n_draws = n_draws
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Self:
        """Draw the estimator's posterior and train a student on its predictions.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), or images
            Rows, as the estimator takes them.
        y : array of shape (n_samples,)
            Labels.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A parameter or the data are not allowed.
        FloatingPointError
            The student left the finite numbers.
        """
        self._check()
        check_array(X, allow_nd=True)  # dense, said before the posterior is drawn
        return self._distill(clone(self.estimator).fit(X, y), X)

    @all_or_nothing
    def _distill(self, teacher: Any, X: Any) -> Self:
        """Train the student of a fitted classifier."""
        import torch

        from .._engine.settings import resolve_device
        from ..models.networks import distillation as training
        from ..models.networks.ensemble import Inputs
        from ..models.networks.module import build, check_outputs

        settings = self._check()
        rows = check_array(teacher._validate_x(X), dtype=(np.float64, np.float32))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng, device = np.random.default_rng(seed), resolve_device(self.device)
        blueprint = self._blueprint(teacher._student(rows), len(teacher.classes_))
        with training.seeded(seed, device):
            network = build(blueprint.architecture, "student")
            n_parameters = sum(p.numel() for p in network.parameters())
            dtype = settings.resolve_dtype(device, n_parameters)
            inputs = Inputs(blueprint.center, blueprint.scale, blueprint.row_shape, dtype)
            module = torch.nn.Sequential(inputs, network).to(device, dtype)
            some = torch.from_numpy(rows[:2].copy()).to(device)
            with torch.no_grad():
                outputs = module.eval()(some)
            check_outputs("student", self.student, outputs, (len(some), len(teacher.classes_)))
            weights = teacher.posterior_.spaced()[1]
            targets = training.few_draws(teacher._predict_block, weights, self.n_draws, rng)
            plan = training.Training(
                self.n_epochs, self.batch_size, self.learning_rate, self.perturbation
            )
            self.loss_curve_ = plan.run(module, rows, targets, rng, self._report)
        self.classes_, self.n_features_in_ = teacher.classes_, teacher.n_features_in_
        if hasattr(teacher, "feature_names_in_"):
            self.feature_names_in_ = teacher.feature_names_in_
        self._architecture, self._row_shape = blueprint.architecture, blueprint.row_shape
        self._x_center, self._x_scale = blueprint.center, blueprint.scale
        self.weights_ = {name: v.cpu().numpy() for name, v in network.state_dict().items()}
        return self

    def _check(self) -> Any:
        """Check every parameter, before any work."""
        from .._engine.settings import Settings, is_auto

        if not hasattr(self.estimator, "distill"):
            raise ValueError(
                f"estimator={self.estimator!r} is not allowed: give a Bayesian classifier of this "
                "package."
            )
        if not (self.student is None or callable(self.student)):
            check_sizes("student", self.student)
        if not is_auto(self.n_epochs):
            check_int("n_epochs", self.n_epochs)
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
        """The student, given one like the teacher's draws."""
        from ..models.networks.module import Architecture

        if self.student is None:
            return own
        if callable(self.student):
            return replace(own, architecture=self.student)
        sizes = (math.prod(own.row_shape), *check_sizes("student", self.student), n_classes)
        return replace(own, architecture=Architecture("mlp", sizes, "relu"))

    def _report(self, line: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {line}", flush=True)

    # prediction -----------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Array:
        """The student's class probabilities.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), or images
            Rows, as the estimator takes them.

        Returns
        -------
        array of shape (n_samples, n_classes)
        """
        import torch

        check_is_fitted(self)
        flat, image_shape = flat_images(X)
        check_image_shape(image_shape, self._row_shape)
        rows = validate_data(self, flat, reset=False, dtype=(np.float64, np.float32))
        module = self._module(self._dtype())
        with torch.no_grad():
            logits = [
                module(torch.from_numpy(rows[part].copy())).double()
                for part in gen_batches(len(rows), PREDICTION_ROWS)
            ]
        return np.asarray(torch.cat(logits).softmax(1))

    def _dtype(self) -> Any:
        """The precision in which the student was trained."""
        import torch

        return torch.from_numpy(next(iter(self.weights_.values()))).dtype

    def _module(self, dtype: Any) -> nn.Sequential:
        """The student as a module that maps rows to logits, for predictions."""
        import torch

        from ..models.networks.ensemble import Inputs
        from ..models.networks.module import build

        network = build(self._architecture, "student").to(dtype)
        network.load_state_dict({name: torch.tensor(v) for name, v in self.weights_.items()})
        inputs = Inputs(self._x_center, self._x_scale, self._row_shape, dtype)
        return torch.nn.Sequential(inputs, network).eval()

    def _torch_module(self, n_draws: int | None = None) -> nn.Module:
        """Predictions as a torch module."""
        import torch

        if n_draws is not None:
            raise ValueError(f"n_draws={n_draws!r} is not allowed: a student has no draws.")
        return torch.nn.Sequential(*self._module(torch.float32), torch.nn.Softmax(dim=1))
