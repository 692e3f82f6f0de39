"""Code that all classifiers share: fitting from labels, streams of rows, predictions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import Bunch, get_tags

from .._arrays import Array
from .._data.kept_rows import KeptRows
from .._draws import prediction
from .._draws.posterior_samples import quantiles
from .._exceptions import LATER_CALL, later_not_allowed, not_allowed
from .._labels import codes_of, in_order
from .._limits import LIMITS
from .._validation import (
    central,
    check_classification_targets,
    check_int,
    check_is_fitted,
    check_predictions,
    check_real,
)
from ._base import SGMCMCEstimator
from ._class_order import check_classes
from ._classes import Classes, columns, logs, n_columns
from ._fitting import Task
from ._methods import fit, log_joint
from ._probabilities import ProbabilityClassifier
from ._sense import SENSE, check_classification, some_of_each
from .tables.checks import validate_xy, weighted

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.networks.distillation import Blueprint
    from .distilled import DistilledClassifier


class BayesianClassifier(ProbabilityClassifier, SGMCMCEstimator):
    """Base class of all classifiers that sample a posterior."""

    class_weight: Any
    n_features_in_: int
    #: rows of each class that a stream has had so far, and whether a warning was about their order
    _stream_classes: Array | None = None
    _order_warned = False

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Continue sampling with new rows of a stream, for one pass over these rows.

        The target is the posterior given ``total_samples`` rows or, if that is None, given the rows
        seen so far. The newest ``n_draws`` draws of each chain are kept. The first call after
        ``fit`` starts a new stream, unless ``warm_start=True``.

        Logistic regression with the defaults keeps rows, up to a million numbers, until a Gaussian
        says the same, which is then the prior of later rows; earlier draws are moved along with the
        posterior. After one pass, means were within 0.13 posterior sds of those of ``fit``, and sds
        within 6%, also if rows were sorted by label. Many more rows that are not in random order
        lose some of what they say, and a warning says so; shuffle them. With ``total_samples``,
        which rows that come again need, and for other estimators, minibatches of a call stand for
        all rows: with a single pass, means were within about one sd, and sds 0.7 to 2.3 times those
        of the posterior.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            New rows, in a form that ``fit`` takes.
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Their labels. Where ``fit`` takes datasets, None means those of the items.
        classes : array of shape (n_classes,), list of arrays or None, default=None
            All classes of the stream. Required in the first call, unless y contains all classes.
            If y has several columns: a list with the classes of each, or None if they are 0 and 1.
        sample_weight : array of shape (n_samples,) or None, default=None
            Nonnegative weights of the rows, as for ``fit``.

        Returns
        -------
        self
        """
        self._fit(X, y, sample_weight, stream=True, classes=classes)
        return self

    fit = fit
    log_joint = log_joint

    def _check_stream(self) -> None:
        super()._check_stream()
        if isinstance(self.class_weight, str):
            raise not_allowed(
                f"class_weight={self.class_weight!r} is not allowed in partial_fit, since later "
                "rows may have other shares of the classes: give a dict with a weight for each."
            )

    def _encoded(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        first: bool,
        stream: bool,
        classes: Any = None,
    ) -> KeptRows:
        X, labels = self._validate_xy(X, y, reset=first, weight=sample_weight)
        labels = labels.toarray() if sp.issparse(labels) else labels
        if stream and not first:
            known = self._same_classes(labels, y, classes)
        else:
            known = self._first_classes(labels, y, classes, stream=stream)
        remedy = "give all classes in the first call of partial_fit."
        codes = known.known_codes(labels, "classes", remedy, LATER_CALL)
        factors = None
        if self.class_weight is not None:
            weighted(codes, codes, sample_weight)  # our errors, not those of scikit-learn
            factors = known.weights(self.class_weight, codes, sample_weight)
        rows = weighted(X, codes, sample_weight, factors)
        present = max(len(np.unique(code)) for code in columns(rows.target))
        if present < 2 and not stream:
            where = " in each column" if known.several else ""
            raise not_allowed(
                f"y has {present} class with positive weight{where}: classification needs at least "
                "2 classes."
            )
        if first:
            self._stream_classes, self._order_warned = None, False
        self.classes_, self._multilabel = known.attribute, known.multilabel
        return rows

    def _first_classes(self, labels: Array, y: Any, classes: Any, *, stream: bool) -> Classes:
        """The classes that a stream declares in its first call, or those that labels have."""
        self._check_labels(labels, y, classes)
        declared = None if labels.ndim == 2 else self._declared_order(labels, classes, y)
        if stream and classes is None:
            classes = declared
        known = Classes.of_labels(labels, classes)
        if labels.ndim == 1:
            known = Classes((in_order(known.of_each[0], declared),))
        if stream and max(known.sizes) < 2:
            raise later_not_allowed(
                f"classes={known.listed} is not allowed: give all classes (at least 2) in the "
                "first call of partial_fit."
            )
        return known

    def _same_classes(self, labels: Array, y: Any, classes: Any) -> Classes:
        """The classes of a stream in its later calls, which may give them again."""
        known = self._classes
        known.check_shape(labels)
        self._check_labels(labels, y, self.classes_)
        if classes is None:
            return known
        again = Classes.of_labels(labels, classes)
        pairs = zip(again.of_each, known.of_each, strict=True)
        if any(len(a) != len(b) or (codes_of(a, b) < 0).any() for a, b in pairs):
            raise later_not_allowed(
                f"classes={classes!r} is not allowed: the first call gave {known.listed}. "
                "Give the same classes, or None."
            )
        return known

    def _meaning(self) -> tuple[Any, ...]:
        return self._columns.meaning, self._classes.listed

    def _judge(self, task: Task) -> None:
        super()._judge(task)
        if task.stream:
            check_classes(self, task.rows.target)
        else:
            self._calibrate(task)

    def _is_complete(self, target: Any, *, after_others: bool) -> bool:
        seen = self._classes.counts(target) > 0
        if after_others and self._stream_classes is not None:
            seen |= self._stream_classes > 0
        return bool(seen.all())

    # what subclasses add --------------------------------------------------------------------------

    def _check_labels(self, labels: Array, y: Any, known: Any = None) -> None:
        """Refuse labels that are no classes; y is as given, ``known`` the classes if given."""
        for column in columns(labels):
            check_classification_targets(column)

    def _declared_order(self, labels: Array, *given: Any) -> Array | None:
        """The order of the classes if the user has declared one that the model knows."""
        return None

    def _calibrate(self, task: Task) -> None:
        """Calibrate the predictions of a finished fit, for estimators that do."""

    def _validate_xy(self, X: Any, y: Any, *, reset: bool, weight: Any = None) -> tuple[Any, Any]:
        several = n_columns(y) > 1
        if several and not get_tags(self).target_tags.multi_output:
            raise not_allowed(
                f"y with {n_columns(y)} columns is not allowed with {type(self).__name__}, which "
                "has one target: give one column, take BayesianMLPClassifier, or fit one model a "
                "column with sklearn.multioutput.MultiOutputClassifier."
            )
        return validate_xy(self, X, y, reset=reset, weight=weight, multi_output=several)

    def _outcomes(self, draws: Array, x: Any) -> list[Array]:
        return [self._predict_block(draws, x)]

    def _iter_logits(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Logits (draws, rows, classes) of dense rows, differentiable with respect to the rows.

        Yields a few of the pooled draws at a time, with their indices; together all draws, in
        order. Memory is bounded if the caller releases each block before it takes the next.
        """
        raise NotImplementedError

    def _student(self, X: Array) -> Blueprint:
        """Blueprint of a student of this classifier: a network like that of one draw."""
        raise NotImplementedError

    # prediction -----------------------------------------------------------------------------------

    def _probabilities(self, X: Any) -> Array:
        return self._mean_proba(self._validate_x(X))

    def _check_sense(self, rows: KeptRows) -> None:
        classes, codes = self._classes, rows.target
        # of several targets, rows that stand for all of them
        strata = np.zeros(len(codes), int) if classes.several else codes
        chosen_rows, mass = some_of_each(strata, rows.weights())
        total = self.posterior_.n_pooled
        chosen, weights = self.posterior_.spaced(min(total, SENSE.sample_size))
        predict = self._predictor()

        def with_logs(draws: slice, x: Any) -> Array:
            p = np.asarray(predict(chosen[draws], x), dtype=float)
            return np.concatenate([p, logs(p)], axis=2)

        k, some = classes.n_outputs, rows.x[chosen_rows]
        with np.errstate(all="ignore"):  # what is not finite is refused
            found = prediction.average(with_logs, some, len(chosen), 2 * k, weights)
        check_predictions(found, some)
        n_numbers = sum(math.prod(shape) for shape in self.posterior_.shapes.values())
        both = zip(classes.parts(found[:, :k]), classes.parts(found[:, k:]), strict=True)
        for j, (code, pair) in enumerate(zip(columns(codes), both, strict=True)):
            directions = min(n_numbers, len(code) - int(np.bincount(code).max()))
            of = f" of target {j}" if classes.several else ""
            if check_classification(self, *pair, code[chosen_rows], mass, directions, of):
                break

    def _mean_proba(self, x: Any) -> Array:
        """Probabilities (rows, outputs), averaged over the draws."""
        posterior, predict = self.posterior_, self._predictor()
        n_draws, weights = posterior.n_pooled, posterior.pooled_weights()
        with np.errstate(all="ignore"):  # what is not finite is refused
            proba = prediction.average(predict, x, n_draws, self._classes.n_outputs, weights)
            # rows of draws in float32 sum to 1 up to 1e-7, and scikit-learn warns beyond 1e-8
            proba = self._classes.in_each(lambda p: p / p.sum(axis=1, keepdims=True), proba)
        return check_predictions(proba, x)

    def predict_proba_samples(
        self, X: Any, n_draws: int | None = None, random_state: Any = None
    ) -> Any:
        """Predict the class probabilities of single draws.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.
        n_draws : int or None, default=None
            Number of draws, chosen with replacement in proportion to their weights. None: every
            draw once. ``predict_proba`` averages them with the weights
            ``posterior_.pooled_weights()``, which are the draws' step sizes: under a decreasing
            schedule, the plain mean is another number.
        random_state : int, RandomState or None, default=None
            Seed for the choice of draws.

        Returns
        -------
        array of shape (n_draws, n_samples, n_classes)
            For large X, use :meth:`iter_proba_samples`. With several targets, its last axis is that
            of :meth:`predict_proba`, or there is a list with one array a target.
        """
        blocks = list(self._sampled_blocks(X, n_draws, random_state))
        return self._classes.shaped(np.concatenate(blocks, axis=1))

    def iter_proba_samples(
        self, X: Any, n_draws: int | None = None, random_state: Any = None
    ) -> Iterator[Any]:
        """Yield :meth:`predict_proba_samples` in blocks (n_draws, rows, n_classes) of rows of X."""
        yield from map(self._classes.shaped, self._sampled_blocks(X, n_draws, random_state))

    def _sampled_blocks(
        self, X: Any, n_draws: int | None = None, random_state: Any = None
    ) -> Iterator[Array]:
        """Blocks (n_draws, rows, outputs) of the probabilities of draws."""
        X = self._validate_x(X)
        posterior = self.posterior_
        total = posterior.n_pooled
        if n_draws is not None:
            total = check_int("n_draws", n_draws)
        yield from self._proba_blocks(posterior.chosen(n_draws, random_state), total, X)

    def _proba_blocks(self, chosen: Any, n_chosen: int, x: Any) -> Iterator[Array]:
        """Blocks (n_chosen, rows, outputs) of the probabilities of chosen pooled draws."""
        predict = self._predictor()
        for some in LIMITS.blocks(x.shape[0], n_chosen * self._classes.n_outputs):
            rows = x[some]
            with np.errstate(all="ignore"):  # what is not finite is refused
                proba = predict(chosen, rows)
            yield check_predictions(proba, rows)

    def _new_targets(self, chosen: Array, X: Any, rng: np.random.RandomState) -> Array:
        def drawn(p: Array) -> Array:
            below = p.cumsum(axis=2)[:, :, :-1]  # without the last, which rounding leaves below 1
            return (rng.random_sample(p.shape[:2])[:, :, None] > below).sum(axis=2)

        blocks = self._proba_blocks(chosen, len(chosen), self._validate_x(X))
        codes = [self._classes.per_target(drawn, p) for p in blocks]
        return self._classes.given(np.concatenate(codes, axis=1))

    def _log_lik_blocks(self, X: Any, y: Any) -> Iterator[Array]:
        codes, start = self._known_codes(y), 0
        for p in self._sampled_blocks(X):
            stop = start + p.shape[1]
            yield self._classes.log_of_labels(p, codes[start:stop])
            start = stop

    def predict_uncertainty(self, X: Any) -> Bunch:
        """Predict the entropy of the label, in nats, and split it into two parts.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        Bunch
            Arrays of shape (n_samples,), or (n_samples, n_targets) with several targets.
            ``total``: entropy of the average over the draws, which is :meth:`predict_proba`, before
            it is calibrated if it is.
            ``aleatoric``: mean entropy over the draws, which would remain if the parameters were
            known. ``epistemic``: the difference of the two.
        """
        X = self._validate_x(X)
        posterior = self.posterior_
        with np.errstate(all="ignore"):  # what is not finite is refused
            found = prediction.uncertainty(
                self._predictor(),
                X,
                posterior.n_pooled,
                self._classes.sizes,
                posterior.pooled_weights(),
            )
        if not self._classes.several:
            found = Bunch(**{name: values[:, 0] for name, values in found.items()})
        check_predictions(found.total, X)
        return found

    def predict_set(self, X: Any, coverage: float = 0.9) -> Any:
        """Predict the smallest sets of classes that together have at least a given probability.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Probability of the set, in (0, 1).

        Returns
        -------
        array of shape (n_samples, n_classes), of bool
            Which of ``classes_`` are in the set of each row. The most probable class always is.
            With several targets, a list with one such array a target; for labels of 0 and 1, these
            two are the classes.

        Notes
        -----
        The sets hold the true class as often as ``predict_proba`` is calibrated. On average that is
        more often than ``coverage``, because the last class of a set takes its probability beyond.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skbayes_sgmcmc import BayesianLogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = BayesianLogisticRegression(random_state=0).fit(X, y)
        >>> sizes = clf.predict_set(X, coverage=0.99).sum(axis=1)
        >>> int(sizes.min()), int(sizes.max())
        (1, 3)
        """
        check_real("coverage", coverage, low=0.0, high=1.0)
        of_each = self._classes.parts(self._probabilities(X))
        sets = [prediction.smallest_set(proba, coverage) for proba in of_each]
        return sets if self._classes.several else sets[0]

    def predict_proba_interval(self, X: Any, coverage: float = 0.9) -> Any:
        """Predict central intervals of the class probabilities, over the posterior.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        array of shape (n_samples, n_classes, 2)
            Lower and upper ends of the intervals of the probabilities of single draws, which are
            not calibrated. With several targets, of the label 1, (n_samples, n_targets, 2), or a
            list with one array a target, as for :meth:`predict_proba`.
        """
        levels = central(coverage)
        X, weights = self._validate_x(X), self.posterior_.pooled_weights()
        n_draws = self.posterior_.n_pooled
        found = [
            np.moveaxis(quantiles(proba, levels, weights), 0, -1)
            for proba in self._proba_blocks(slice(0, n_draws), n_draws, X)
        ]
        return self._classes.shaped(np.concatenate(found), axis=1)

    def distill(self, X: Any, **parameters: Any) -> DistilledClassifier:
        """Train one deterministic network to imitate the average over the posterior.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Training rows, preferably those of ``fit``. Labels are not needed.
        **parameters
            Parameters of :class:`DistilledClassifier`: ``student``, ``n_epochs``, ``batch_size``,
            ``learning_rate``, ``perturbation``, ``n_draws``, ``device``, ``random_state``,
            ``verbose``.

        Returns
        -------
        DistilledClassifier
            Fitted student, with an unfitted copy of this classifier as its ``estimator``.
        """
        from .distilled import DistilledClassifier

        check_is_fitted(self, "posterior_")
        return DistilledClassifier(clone(self), **parameters)._distill(self, X)
