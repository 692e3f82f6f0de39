"""Bayesian logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from .._arrays import Array
from .._limits import LIMITS
from .._modes import usual_modes
from .._validation import is_auto
from ._descriptions import LINEAR, SHARED, described
from ._linear import LinearClassifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .._engine.settings import Settings
    from ..priors import LearnedScale
    from ._fitting import Task


@described(SHARED | LINEAR)
@dataclass(kw_only=True, eq=False, repr=False)
class BayesianLogisticRegression(LinearClassifier):
    r"""Bayesian logistic regression, sampled by stochastic-gradient MCMC.

    .. math::
        p(y|x, \beta) = \sigma(\beta^\top x + b) \text{ or } \mathrm{softmax}(Bx + b),\qquad
        \beta_j \sim N(0, s_j^2) \text{ or } \mathrm{Laplace}(0, s_j), \qquad b \text{ flat}

    The defaults need no tuning and no scaled features. The chains start from a Gaussian
    approximation of the posterior and move in its whitened coordinates with a fixed dimensionless
    step size. Control variates reduce the gradient noise, and the minibatches are large enough to
    keep it small. With a number for ``step_size``, the samplers are the plain ones of the
    literature.

    Parameters
    ----------
    fit_intercept : bool, default=True
        If True, the model has an intercept. With more than two classes, the intercepts sum to zero.
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on the coefficients. The intercept has a flat prior. With more than two classes and
        one learned scale, the intercepts are flat in units of the scale.
    prior_scale : "auto", "learned", LearnedScale, float or array (n_features,), default="auto"
        Scale of the prior. "learned": coefficient j has the prior sd s / sd(x_j), and s is learned
        from the data, so the units of the features do not matter. Units are those of the first rows
        in streams. ``LearnedScale(inputs=True)`` learns one scale for each feature (see
        :class:`~skbayes_sgmcmc.priors.LearnedScale`). Numbers are standard deviations of the normal
        prior, or scales b of the Laplace prior, in units of the coefficients: a normal prior with
        scale s corresponds to ``C = s**2`` in scikit-learn's ``LogisticRegression``. "auto":
        "learned" with a normal prior, but 1.0 for arrays of more than 2000 features, where a
        learned scale mixes slowly, and for other priors.
    {class_weight} {categorical_features} {sampler} {integrator} {step_size}
    preconditioner : "auto", None, "hessian", "diagonal" or array, default="auto"
        Constant preconditioner M, of shape (P, P) or (P,) for P parameters. "hessian": the inverse
        of the curvature of the posterior. "diagonal": the inverse of its diagonal. "auto":
        "hessian" for up to 2000 parameters, otherwise "diagonal", in the principal axes of the
        features if these are dense, in memory and at most 1 GiB, and the prior is normal with one
        scale, and with other lengths in a few directions if steps take all rows; None if
        ``step_size`` is a number.
    {gradient} {batch_size} {n_chains} {n_draws} {burn_in} {thinning} {max_steps} {temperature}
    {init} {total_samples} {warm_start}
    compiled : "auto" or bool, default="auto"
        Whether to use the compiled code of the extra ``fast`` where it applies: plain SGLD for two
        classes on a CPU. It has its own random number generator, so the same seed gives different
        draws.
    {device}
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float64 on a CPU for up to 100,000 parameters, otherwise,
        or in principal axes (see ``preconditioner``), float32.
    {storage} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels.
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
        Posterior mean of the coefficients. A column of categories has one for each category, and
        one with gaps has two.
    intercept_ : array of shape (1,) or (n_classes,)
        Posterior mean of the intercepts.
    posterior_ : PosteriorSamples
        Draws "coef" of shape (n_chains, n_draws, 1 or n_classes, n_features) and "intercept" of
        shape (n_chains, n_draws, 1 or n_classes). With learned scales also "scale", of shape
        (n_chains, n_draws), or (n_chains, n_draws, n_features) and "shared_scale" with one scale
        for each feature.
    {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_}
    compiled_ : tuple of str
        Names of the accelerators used in the last call, such as ("linear_sgld",); () if none.
    {not_compiled_} {sampling_threshold_} {device_} {n_features_in_} {feature_names_in_}

    See Also
    --------
    sklearn.linear_model.LogisticRegression : The maximum of the posterior with a given scale.
    skbayes_sgmcmc.sample : Draws from any log density.

    Notes
    -----
    With ``step_size="auto"``, every step costs a few products with a (P, P) matrix in addition to
    the gradient of the minibatch. The draws are n_chains * n_draws * P numbers.

    With two classes, ``predict_proba`` integrates over a normal logit with the draws' mean and
    variance, where this variance is small: as exact as the average over all draws to 0.001, in a
    thousandth of the time. Other rows average over a part of the draws, which are given the mean
    and the covariance of all. ``predict_proba_samples`` and ``predict_uncertainty`` use the draws
    themselves.

    References
    ----------
    Welling & Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics.
    Leimkuhler & Matthews (2013), Rational construction of stochastic numerical methods.
    Baker, Fearnhead, Fox & Nemeth (2019), Control variates for stochastic gradient MCMC.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X, y)
    >>> clf.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    >>> clf.posterior_
    PosteriorSamples(4 chains x 1000 draws, {coef: (3, 4), intercept: (3,), scale: ()})
    >>> bool(clf.predict_uncertainty(X).epistemic.max() < 0.2)
    True
    """

    fit_intercept: bool = True
    prior_scale: ArrayLike | LearnedScale | Literal["auto", "learned"] = "auto"
    class_weight: dict[Any, float] | Literal["balanced"] | None = None

    def _model_class(self) -> Any:
        from ..models.linear.rotated import RotatedLogisticModel

        return RotatedLogisticModel

    def _in_coordinates(self, task: Task) -> Any:
        model, rows = super()._in_coordinates(task), task.rows
        # chains that may go on, in a stream or a warm start, stay in the user's coordinates
        kept = task.stream or self.warm_start
        if kept or model.row_space is not None or not self._may_rotate(rows.x, task.settings):
            return model
        return model.for_features(rows.x, rows.weight)

    def _may_rotate(self, X: Any, settings: Settings) -> bool:
        """Whether rows may be rotated: no setting is about coordinates, and a copy is small."""
        from .._data.rows import bytes_in_memory

        free = is_auto(settings.preconditioner) and isinstance(settings.init, str)
        return settings.auto and free and bytes_in_memory(X) <= LIMITS.auto_bytes

    def _set_attributes(self) -> None:
        self.coef_ = self.posterior_.mean("coef")
        self.intercept_ = self.posterior_.mean("intercept")

    @usual_modes()
    def _mean_proba(self, x: Any) -> Array:
        """Averages over all draws, or from moments of the logits where these say as much."""
        from ..models.moments.softmax import moments_of

        moments = moments_of(self.posterior_)
        if moments is None:
            return super()._mean_proba(x)
        proba, far = moments.probabilities(x)
        if len(far):
            proba[far] = super()._mean_proba(x if len(far) == len(proba) else x[far])
        return proba

    def _predict_block(self, draws: slice, x: Any) -> Array:
        from ..models.linear.logistic import predict_proba

        posterior = self.posterior_
        return predict_proba(
            posterior.select("coef", draws), posterior.select("intercept", draws), x
        )

    def _logit_module(self, coef: Tensor, intercept: Tensor) -> nn.Module:
        import torch

        from ..models.networks.ensemble import StackedLinear

        if len(self.classes_) == 2:  # the first class's logit is zero
            coef, intercept = (
                torch.cat([torch.zeros_like(each), each], dim=1) for each in (coef, intercept)
            )
        return StackedLinear(coef.mT, intercept)

    def _ratio_title(self) -> str:
        classes = self.classes_.tolist()
        return f"odds of {classes[1]!r}" if len(classes) == 2 else "odds of the class"

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        two, feature = len(self.classes_) == 2, {"feature": self._columns.feature_labels}
        label = {"class_label": (self.classes_[1:] if two else self.classes_).tolist()}
        return {"coef": label | feature, "intercept": label} | self._scale_axes()

    def _labels(self) -> dict[str, list[str]]:
        if len(self.classes_) > 2:
            return super()._labels() | {"intercept": [f"{c}: intercept" for c in self.classes_]}
        own = {"coef": self._columns.feature_labels, "intercept": ["intercept"]}
        return super()._labels() | own
