"""What all estimators share: the fit that runs chains, warm starts, draws, summaries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Bunch, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import prediction
from .._callbacks import CallbackSupportMixin, Progress
from .._validation import check_int
from ..exceptions import warn
from ..samples import PosteriorSamples

if TYPE_CHECKING:
    from ..diagnostics import Summary
    from ..minibatch import Data
    from ..models._protocol import Model
    from ..sampling import Run
    from ..settings import Settings

Array = NDArray[Any]

#: a chain set with a larger R-hat or a smaller bulk ESS is warned of
R_HAT_LIMIT, ESS_LIMIT = 1.05, 100.0
#: coordinates beyond this number are checked on an even sample, since each costs a millisecond
CHECKED_COORDINATES = 300
#: draws of each chain that a stream keeps with ``n_draws="auto"``
AUTO_DRAWS = 1000


def all_or_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a fitting method leave the estimator as it was when it raises."""

    @functools.wraps(method)
    def guarded(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(estimator))
        try:
            return method(estimator, *args, **kwargs)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    return guarded


class SGMCMCEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of all estimators: subclasses make a model and its data, this runs the chains."""

    posterior_: PosteriorSamples

    def _sample(
        self,
        model: Model,
        data: Data,
        settings: Settings,
        *,
        dtype: Any,
        device: str,
        previous: Any = None,
        rows_seen: float | None = None,
    ) -> Run:
        """Run the chains and set ``posterior_`` and the attributes that describe the run."""
        from ..sampling import draw

        progress = Progress(self)
        run = draw(
            model,
            data,
            settings,
            dtype=dtype,
            device=device,
            previous=previous,
            rows_seen=rows_seen,
            on_progress=progress,
        )
        progress.close()
        draws = {name: np.ascontiguousarray(v) for name, v in model.unpack(run.draws).items()}
        posterior = PosteriorSamples(draws, run.weights, run.statistics)
        if rows_seen is not None and previous is not None:
            posterior = _newest(self.posterior_, posterior, run.state.n_drawn, settings.n_draws)
        self.posterior_ = posterior
        self.n_chains_ = self.posterior_.n_chains
        self.n_draws_ = self.posterior_.n_draws
        self.step_size_ = run.step_size
        self.batch_size_ = run.batch_size
        return run

    def _warn_of_mixing(self, names: tuple[str, ...]) -> None:
        """Warn of a large R-hat, a small ESS, or draws that do not move."""
        from ..diagnostics import effective_sample_size, r_hat

        posterior = self.posterior_
        if posterior.n_draws < 4:
            return
        thin = {}
        for name in names:
            flat = posterior[name].reshape(*posterior[name].shape[:2], -1)
            step = -(-flat.shape[2] // CHECKED_COORDINATES)
            thin[name] = flat[:, :, ::step]
        checked = PosteriorSamples(thin)
        still = [name for name in names if not _moves(thin[name])]
        if still:
            warn(
                f"the draws of {', '.join(still)} have no spread: the chains did not move. Give a "
                "larger step_size or a temperature above 0."
            )
            return
        worst = max(float(np.nanmax(r_hat(checked, name), initial=1.0)) for name in names)
        least = min(
            float(np.nanmin(effective_sample_size(checked, name), initial=np.inf)) for name in names
        )
        if worst > R_HAT_LIMIT or least < ESS_LIMIT:
            warn(
                f"the chains have not mixed well (largest R-hat {worst:.2f}, smallest effective "
                f"sample size {least:.0f} of {posterior.n_chains * posterior.n_draws} draws): "
                "uncertainties may be wrong. Give more draws or a larger thinning, another "
                "step_size, or step_size='auto'."
            )

    def sample_posterior(
        self, n_samples: int | None = None, random_state: Any = None
    ) -> dict[str, Array]:
        """Draws of the posterior, pooled over the chains.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of draws, taken with replacement by weight; None: every draw once.
        random_state : int, RandomState or None, default=None
            Seed of the choice.

        Returns
        -------
        dict of str to array of shape (n_samples, *shape)
        """
        check_is_fitted(self, "posterior_")
        if n_samples is not None:
            check_int("n_samples", n_samples)
        return self.posterior_.sample(n_samples, random_state)

    def summary(self, coverage: float = 0.9) -> Summary:
        """Table of mean, sd, central interval, ESS, R-hat and MCSE of every parameter.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability of the central interval.

        Returns
        -------
        Summary
            A dict of columns that prints as a table; ``to_frame()`` makes a DataFrame.
        """
        from ..diagnostics import summary

        check_is_fitted(self, "posterior_")
        return summary(self.posterior_, labels=self._labels(), coverage=coverage)

    def _labels(self) -> dict[str, list[str]]:
        """Names of the flattened coordinates of each block of draws."""
        return {}

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        """For each block of draws, its axes by name with the labels along them."""
        return {}

    def _log_lik_blocks(self, X: Any, y: Any) -> Iterator[Array]:
        """Blocks (draws, rows) of log p(row | draw), in the order of the rows."""
        raise NotImplementedError

    def to_arviz(self, X: Any = None, y: Any = None, *, sample_weight: Any = None) -> Any:
        """The posterior as arviz's own object; see :func:`skbayes_sgmcmc.to_arviz`."""
        from ..interop import to_arviz

        return to_arviz(self, X, y, sample_weight=sample_weight)

    def _feature_labels(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return list(names) if names is not None else [f"x{j}" for j in range(self.n_features_in_)]


def _newest(
    old: PosteriorSamples, new: PosteriorSamples, n_drawn: int, limit: int | str
) -> PosteriorSamples:
    """The newest draws of a stream: ``limit`` of them, and not the first half of all.

    The first half of a stream's draws is its burn-in, in which the target still was another one.
    """
    if old.n_chains != new.n_chains:  # a chain has diverged
        return new
    if isinstance(limit, str):
        limit = AUTO_DRAWS
    kept = max(new.n_draws, min(limit, (n_drawn + 1) // 2))
    weights = None
    if old.weights is not None and new.weights is not None:
        weights = np.concatenate([old.weights, new.weights])[-kept:]
    draws = {name: np.concatenate([old[name], new[name]], axis=1)[:, -kept:] for name in new.draws}
    return PosteriorSamples(draws, weights, new.statistics)


def _moves(draws: Array) -> bool:
    """Whether some coordinate of some chain moves by more than rounding."""
    rounding = 100 * np.finfo(draws.dtype).eps * np.abs(draws).max(axis=1)
    return bool((np.ptp(draws, axis=1) > rounding).any())


class BayesianClassifier(ClassifierMixin, SGMCMCEstimator):
    """Posterior predictions of classifiers; subclasses have ``_predict_block``."""

    classes_: Array

    def _predict_block(self, draws: slice, x: Any) -> Array:
        """Class probabilities (draws, rows, classes) of some pooled draws."""
        raise NotImplementedError

    def _validate_x(self, X: Any) -> Any:
        check_is_fitted(self, "posterior_")
        return validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=(np.float64, np.float32)
        )

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities averaged over the posterior.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples, n_classes)
        """
        X = self._validate_x(X)
        posterior = self.posterior_
        return prediction.average(
            self._predict_block,
            X,
            posterior.n_chains * posterior.n_draws,
            len(self.classes_),
            posterior.pooled_weights(),
        )

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of :meth:`predict_proba`, shape (n_samples, n_classes)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> Array:
        """Log odds of the averaged probabilities, so that they rank rows as :meth:`predict_proba`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            With two classes the log odds of the second; else the logarithms of the probabilities.
        """
        log_p = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def predict(self, X: Any) -> Array:
        """Most probable class of every row, shape (n_samples,)."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def predict_proba_samples(
        self, X: Any, n_draws: int | None = None, random_state: Any = None
    ) -> Array:
        """Class probabilities of single draws.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.
        n_draws : int or None, default=None
            Draws, taken with replacement by weight; None: every draw once.
        random_state : int, RandomState or None, default=None
            Seed of the choice.

        Returns
        -------
        array of shape (n_draws, n_samples, n_classes)
            See :meth:`iter_proba_samples` for large X.
        """
        return np.concatenate(list(self.iter_proba_samples(X, n_draws, random_state)), axis=1)

    def iter_proba_samples(
        self, X: Any, n_draws: int | None = None, random_state: Any = None
    ) -> Iterator[Array]:
        """Blocks (n_draws, rows, n_classes) of :meth:`predict_proba_samples`, in the order of X."""
        X = self._validate_x(X)
        posterior = self.posterior_
        total = posterior.n_chains * posterior.n_draws
        chosen: Any = slice(0, total)
        if n_draws is not None:
            from sklearn.utils import check_random_state

            rng = check_random_state(random_state)
            total = check_int("n_draws", n_draws)
            chosen = rng.choice(
                posterior.n_chains * posterior.n_draws, total, p=posterior.pooled_weights()
            )
        rows_at_once = max(1, prediction.BLOCK_NUMBERS // (total * len(self.classes_)))
        for start in range(0, X.shape[0], rows_at_once):
            yield self._predict_block(chosen, X[start : start + rows_at_once])

    def _log_lik_blocks(self, X: Any, y: Any) -> Iterator[Array]:
        y = column_or_1d(y)
        unseen = np.setdiff1d(y, self.classes_)
        if len(unseen):
            raise ValueError(
                f"y has labels {unseen.tolist()} that are not in classes_={self.classes_.tolist()}."
            )
        codes, start = np.searchsorted(self.classes_, y), 0
        smallest = np.finfo(np.float64).tiny
        for p in self.iter_proba_samples(X):
            rows = np.arange(p.shape[1])
            chosen = p[:, rows, codes[start + rows]]
            start += len(rows)
            yield np.log(np.maximum(chosen, smallest))

    def predict_uncertainty(self, X: Any) -> Bunch:
        """Predictive entropy in nats and its split into two parts.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        Bunch
            Arrays of shape (n_samples,): ``total``, the entropy of :meth:`predict_proba`;
            ``aleatoric``, what would remain with known parameters; ``epistemic``, their difference.
        """
        X = self._validate_x(X)
        posterior = self.posterior_
        return prediction.uncertainty(
            self._predict_block,
            X,
            posterior.n_chains * posterior.n_draws,
            len(self.classes_),
            posterior.pooled_weights(),
        )
