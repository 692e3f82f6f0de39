"""Bayesian logistic regression."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._callbacks import with_callbacks
from .._validation import check_choice, check_real
from ._base import BayesianClassifier, all_or_nothing

Array = NDArray[Any]


class BayesianLogisticRegression(BayesianClassifier):
    """PLACEHOLDER"""

    def __init__(
        self,
        *,
        prior: Any = "normal",
        prior_scale: Any = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        sampler: Any = "sgld",
        integrator: str = "auto",
        step_size: Any = "auto",
        batch_size: Any = "auto",
        n_chains: int = 4,
        n_draws: Any = "auto",
        burn_in: Any = "auto",
        thinning: Any = "auto",
        temperature: Any = 1.0,
        preconditioner: Any = "auto",
        gradient: str = "auto",
        init: Any = "auto",
        shared_minibatch: bool = False,
        compiled: Any = "auto",
        total_samples: float | None = None,
        checkpoint: Any = None,
        device: str = "auto",
        dtype: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ):
        self.prior = prior
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.sampler = sampler
        self.integrator = integrator
        self.step_size = step_size
        self.batch_size = batch_size
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.burn_in = burn_in
        self.thinning = thinning
        self.temperature = temperature
        self.preconditioner = preconditioner
        self.gradient = gradient
        self.init = init
        self.shared_minibatch = shared_minibatch
        self.compiled = compiled
        self.total_samples = total_samples
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianLogisticRegression:
        """Draw the posterior of the coefficients.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Labels of at least two classes.
        sample_weight : array of shape (n_samples,) or None, default=None
            Exponents of the rows' likelihoods, not negative.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A parameter or the data are not allowed.
        SamplingError
            Every chain left the finite numbers; nothing is fitted then.
        """
        settings = self._check()
        X, y = self._validate_xy(X, y, reset=True)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        X, codes, weight = self._weighted_rows(X, codes, classes, sample_weight)
        present = len(np.unique(codes))
        if present < 2:
            raise ValueError(
                f"y has {present} class with positive weight: classification needs at least 2 classes."
            )
        previous = getattr(self, "_chain_state", None) if self.warm_start else None
        if previous is not None and not np.array_equal(classes, self.classes_):
            previous = None
        self._run(X, codes, weight, classes, settings, previous=previous)
        self._warn_of_mixing(("coef", "intercept") if self.fit_intercept else ("coef",))
        return self

    @all_or_nothing
    @with_callbacks
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> BayesianLogisticRegression:
        """Go on sampling with new rows of a stream, for one pass over them.

        The target is the posterior of ``total_samples`` data if that is given, else of the rows
        seen so far; the newest ``n_draws`` draws of each chain are kept. The first call after
        ``fit`` starts a new stream, unless ``warm_start=True``.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            New rows.
        y : array of shape (n_samples,)
            Their labels.
        classes : array of shape (n_classes,) or None, default=None
            All classes that will occur; needed in the first call unless y has them all.
        sample_weight : array of shape (n_samples,) or None, default=None
            Exponents of the rows' likelihoods.

        Returns
        -------
        self
        """
        settings = self._check()
        if self.checkpoint is not None:
            raise ValueError(
                f"checkpoint={self.checkpoint!r} is not allowed in partial_fit, whose calls are short: "
                "save the estimator between calls instead."
            )
        first = not hasattr(self, "posterior_")
        X, y = self._validate_xy(X, y, reset=first)
        check_classification_targets(y)
        if first:
            known = np.unique(y) if classes is None else np.unique(classes)
            if len(known) < 2:
                raise ValueError(
                    f"classes={known.tolist()} is not allowed: give all classes (at least 2) in the "
                    "first call of partial_fit."
                )
        else:
            known = self.classes_
            if classes is not None and not np.array_equal(np.unique(classes), known):
                raise ValueError(
                    f"classes={classes!r} is not allowed: the first call gave {known.tolist()}."
                )
        unseen = np.setdiff1d(y, known)
        if len(unseen):
            raise ValueError(
                f"y has labels {unseen.tolist()} that are not in classes={known.tolist()}: name every "
                "class in the first call of partial_fit."
            )
        codes = np.searchsorted(known, y)
        X, codes, weight = self._weighted_rows(X, codes, known, sample_weight)
        previous = None if first else getattr(self, "_chain_state", None)
        self._run(X, codes, weight, known, settings, previous=previous, stream=True)
        return self

    # fitting --------------------------------------------------------------------------------------

    def _check(self) -> Any:
        """Check every parameter, before any work."""
        from ..models.priors import PRIORS, Prior
        from ..settings import Settings

        if not isinstance(self.prior, Prior):
            check_choice("prior", self.prior, PRIORS)
        if isinstance(self.prior_scale, Real):
            check_real("prior_scale", self.prior_scale, low=0.0)
        else:
            scales = np.asarray(self.prior_scale, dtype=float)
            if scales.ndim != 1 or not (np.isfinite(scales) & (scales > 0)).all():
                raise ValueError(
                    f"prior_scale={self.prior_scale!r} is not allowed: give a positive number, or an "
                    "array of them of shape (n_features,)."
                )
        check_choice("fit_intercept", self.fit_intercept, (True, False))
        if self.total_samples is not None:
            check_real("total_samples", self.total_samples, low=0.0)
        return Settings.of(self)

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        return validate_data(  # type: ignore[no-any-return]
            self, X, y, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32)
        )

    def _weighted_rows(
        self, X: Any, codes: Array, classes: Array, sample_weight: Any
    ) -> tuple[Any, Array, Array | None]:
        """Rows of positive weight, and their weights (None if all are one)."""
        if np.ndim(self.prior_scale) == 1 and len(self.prior_scale) != X.shape[1]:
            raise ValueError(
                f"prior_scale of length {len(self.prior_scale)} is not allowed: X has "
                f"{X.shape[1]} features."
            )
        if sample_weight is None and self.class_weight is None:
            return X, codes, None
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            per_class = compute_class_weight(
                self.class_weight, classes=classes, y=classes[codes], sample_weight=sample_weight
            )
            weight = weight * per_class[codes]
        if not (weight > 0).all():
            X, codes, weight = X[weight > 0], codes[weight > 0], weight[weight > 0]
        if len(codes) == 0:
            raise ValueError(
                "sample_weight is zero for every row: give some rows a positive weight."
            )
        return X, codes, weight

    def _run(
        self,
        X: Any,
        codes: Array,
        weight: Array | None,
        classes: Array,
        settings: Any,
        *,
        previous: Any,
        stream: bool = False,
    ) -> None:
        from ..models.logistic import LogisticModel
        from ..models.priors import PRIORS

        prior = PRIORS[self.prior]() if isinstance(self.prior, str) else self.prior
        model = LogisticModel(X.shape[1], len(classes), prior, self.prior_scale, self.fit_intercept)
        device = settings.resolve_device()
        dtype = settings.resolve_dtype(device, model.n_parameters)
        data = model.make_data(X, codes, weight, dtype, device)
        n_steps = None
        if stream:
            held = data.total
            seen = held + (previous.rows_seen if previous is not None else 0.0)
            data.total = max(float(self.total_samples or 0.0), seen)
            n_steps = -(-data.n_rows // (100 if self.batch_size == "auto" else self.batch_size))
        run = self._sample(
            model,
            data,
            settings,
            dtype=dtype,
            device=device,
            previous=previous,
            stream=stream,
            n_steps=n_steps,
        )
        run.state.rows_seen = seen if stream else data.total
        self._chain_state = run.state if stream or self.warm_start else None
        self.classes_ = classes
        self.coef_ = self.posterior_.mean("coef")
        self.intercept_ = self.posterior_.mean("intercept")

    # prediction -----------------------------------------------------------------------------------

    def _predict_block(self, draws: slice, x: Any) -> Array:
        from ..models.logistic import predict_proba

        coef = self.posterior_.pooled("coef")[draws]
        return predict_proba(coef, self.posterior_.pooled("intercept")[draws], x)

    def decision_function(self, X: Any) -> Array:
        """Logits at the posterior mean, (n_samples,) or (n_samples, n_classes)."""
        X = self._validate_x(X)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores.ravel() if scores.shape[1] == 1 else scores

    def _labels(self) -> dict[str, list[str]]:
        features = self._feature_labels()
        if len(self.classes_) == 2:
            return {"coef": features, "intercept": ["intercept"]}
        return {
            "coef": [f"{c}: {name}" for c in self.classes_ for name in features],
            "intercept": [f"{c}: intercept" for c in self.classes_],
        }
