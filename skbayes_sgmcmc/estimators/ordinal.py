"""Bayesian regression of ordered classes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import Array
from .._draws import prediction
from .._exceptions import later_not_allowed, not_allowed, warn
from .._labels import codes_of, declared_order
from ._descriptions import LINEAR, SHARED, described
from ._linear import LinearClassifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .._data.kept_rows import KeptRows
    from ..priors import LearnedScale


@described(SHARED | LINEAR)
@dataclass(kw_only=True, eq=False, repr=False)
class BayesianOrdinalClassifier(LinearClassifier):
    r"""Bayesian cumulative logit model of ordered classes, sampled by stochastic-gradient MCMC.

    .. math::
        P(y \le j \mid x) = \sigma(c_j - x^\top \beta),\qquad
        \beta_j \sim N(0, s_j^2) \text{ or } \mathrm{Laplace}(0, s_j)

    The classes, such as grades or stages, share the coefficients :math:`\beta`, and increasing cut
    points :math:`c_0 < \dots < c_{K-2}` divide the line between them: proportional odds. A positive
    coefficient makes higher classes more probable. With two classes, it is the logistic regression.

    Classes are in the order that y declares as an ordered ``Categorical`` of pandas, an ``Enum`` of
    polars or an ordered dictionary of pyarrow. Otherwise they are in the order of their labels:
    numbers, which may have fractions, such as half steps, or strings, by the alphabet.

    Tools of scikit-learn that handle labels or probabilities themselves sort the labels: scorers
    such as "neg_log_loss", ``cross_val_predict`` of probabilities, ``StackingClassifier``. For
    these, give the codes of the categories, ``y.cat.codes`` of pandas.

    The defaults need no tuning, for scaled and unscaled features.

    Parameters
    ----------
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on the coefficients. The first cut point has a flat prior. The gaps between cut points
        have log-normal priors; their medians are the gaps of equally probable classes; 90% of a gap
        are within a factor of 27 of it.
    prior_scale : "auto", "learned", LearnedScale, float or array (n_features,), default="auto"
        Scale of the prior, as of :class:`BayesianLogisticRegression`.
    {class_weight} {categorical_features} {sampler} {integrator} {step_size} {preconditioner}
    {gradient} {batch_size} {n_chains} {n_draws} {burn_in} {thinning} {max_steps} {temperature}
    {init} {total_samples} {warm_start} {compiled} {device} {dtype} {storage} {checkpoint} {n_jobs}
    {random_state} {verbose}

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels, from the lowest to the highest.
    coef_ : array of shape (n_features,)
        Posterior mean of the coefficients. A column of categories has one for each category, and
        one with gaps has two.
    cutpoints_ : array of shape (n_classes - 1,)
        Posterior mean of the cut points.
    posterior_ : PosteriorSamples
        Draws "coef" of shape (n_chains, n_draws, n_features) and "cutpoints" of shape
        (n_chains, n_draws, n_classes - 1). With learned scales also "scale", of shape
        (n_chains, n_draws), or (n_chains, n_draws, n_features) and "shared_scale" with one scale
        for each feature.
    {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_}
    compiled_ : tuple of str
        Names of the accelerators used in the last call; () if none.
    {not_compiled_} {sampling_threshold_} {device_} {n_features_in_} {feature_names_in_}

    See Also
    --------
    BayesianLogisticRegression : Classes without an order.
    BayesianGLMRegressor : Counts, and other targets that are not classes.

    References
    ----------
    McCullagh (1980), Regression models for ordinal data.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import BayesianOrdinalClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> latent = X @ [1.0, -1.0] + rng.logistic(size=300)
    >>> y = np.digitize(latent, [-1.0, 0.0, 2.0])  # classes 0 to 3
    >>> clf = BayesianOrdinalClassifier(random_state=0).fit(X, y)
    >>> clf.coef_.round(1)
    array([ 1., -1.])
    >>> clf.cutpoints_.round(1)
    array([-1.,  0.,  2.])
    >>> clf.predict_proba(X[:1]).shape
    (1, 4)
    """

    #: the cut points are the intercepts, which no parameter switches off
    fit_intercept = True
    _logit_blocks = ("coef", "cutpoints")
    #: ordered classes are not linear in the features
    _student_units = (16,)

    prior_scale: ArrayLike | LearnedScale | Literal["auto", "learned"] = "auto"
    class_weight: dict[Any, float] | Literal["balanced"] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on classes that have no order
        return tags

    def _check_labels(self, labels: Array, y: Any, known: Any = None) -> None:
        declared = declared_order(y)
        if declared is not None and known is not None and hasattr(self, "posterior_"):
            places = codes_of(declared, known)
            if (np.diff(places[places >= 0]) < 0).any():
                raise later_not_allowed(
                    f"y with the ordered categories {declared.tolist()} is not allowed: the "
                    f"classes are {known.tolist()}, the lowest first. Give the same order in "
                    "every call, or start a new stream with a clone of the estimator."
                )
        # numbers with fractions are classes, too, if they recur: stars of half steps
        recur = labels.dtype.kind == "f" and 2 * len(np.unique(labels)) <= len(labels)
        if known is None and declared is None and not recur:
            super()._check_labels(labels, y)

    def _declared_order(self, labels: Array, *given: Any) -> Array | None:
        found = next((each for each in map(declared_order, given) if each is not None), None)
        if found is None and labels.dtype.kind in "OUST":
            warn(
                f"y holds strings, so the classes are in alphabetical order: "
                f"{np.unique(labels).tolist()}, the lowest first. Give an ordered Categorical of "
                "pandas, or numbers, such as those of OrdinalEncoder(categories=[...]), to set "
                "their order.",
                "classes-are-ordered-by-the-alphabet",
            )
        return found

    def _encoded(self, *args: Any, stream: bool, **options: Any) -> KeptRows:
        rows = super()._encoded(*args, stream=stream, **options)
        if not stream and rows.target.min() > 0:
            raise not_allowed(
                f"y has no row of the lowest class, {self.classes_[0]}, with positive weight, "
                "which leaves the first cut point without a bound: leave out its rows, or give "
                "them a weight."
            )
        return rows

    def _model_class(self) -> Any:
        from ..models.linear.ordinal import OrdinalModel

        return OrdinalModel

    def _set_attributes(self) -> None:
        self.coef_ = self.posterior_.mean("coef")
        self.cutpoints_ = self.posterior_.mean("cutpoints")

    # predictions ----------------------------------------------------------------------------------

    def _predict_block(self, draws: Any, x: Any) -> Array:
        import torch

        from ..models._linalg import row_products
        from ..models.linear.ordinal import log_probabilities

        f = np.asarray(row_products(x, self.posterior_.select("coef", draws))).T
        cutpoints = prediction.tensor_of(self.posterior_.select("cutpoints", draws))
        log_p = log_probabilities(torch.from_numpy(f.copy()), cutpoints)
        return np.asarray(log_p.exp_())

    def _has_valid_draws(self) -> bool:
        return bool((np.diff(self.posterior_.pooled("cutpoints")) > 0.0).all())

    def _logit_module(self, coef: Tensor, cutpoints: Tensor) -> nn.Module:
        from ..models.linear.ordinal import OrdinalOutputs

        return OrdinalOutputs(coef, cutpoints)

    # names of draws -------------------------------------------------------------------------------

    _baselines: ClassVar[dict[str, int]] = {"cutpoints": -1}

    def _ratio_blocks(self) -> list[str]:
        return ["coef"]

    def _ratio_title(self) -> str:
        return "odds of a higher class"

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        cuts = [f"{low}|{high}" for low, high in itertools.pairwise(self.classes_.tolist())]
        own = {"coef": {"feature": self._columns.feature_labels}, "cutpoints": {"cut": cuts}}
        return own | self._scale_axes()
