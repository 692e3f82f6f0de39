"""Bayesian regression of ordered classes."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import Array
from .._draws import prediction
from .._draws.storage import Storage
from .._exceptions import not_allowed, warn
from .._labels import codes_of, declared_order
from ..schedules import MixingDistance, Schedule
from ._linear import LinearClassifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .._data.kept_rows import KeptRows
    from ..priors import LearnedScale, Prior
    from ..samplers import Sampler


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
    prior_scale : float, array of shape (n_features,), "learned" or LearnedScale, default="learned"
        Standard deviation of the normal prior, or scale b of the Laplace prior, in units of the
        coefficients. "learned": coefficient j has the prior sd s / sd(x_j), and s is
        learned from the data, so the units of the features do not matter. Units are those of the
        first rows in streams. ``LearnedScale(inputs=True)`` learns one scale for each feature (see
        :class:`~skbayes_sgmcmc.priors.LearnedScale`).
    class_weight : dict, "balanced" or None, default=None
        Weight of each class, as in scikit-learn: the exponent of the likelihood of its rows.
        ``partial_fit`` refuses "balanced", since it does not know later rows.
    categorical_features : "from_dtype", array of str, int or bool, or None, default="from_dtype"
        Columns of X that hold categories, by their names or indices, or a boolean for each column.
        "from_dtype": those columns of tables that are categories, strings, or objects with strings.
        Each category becomes an indicator, and gaps are allowed in all columns of tables (see
        :doc:`tables of mixed columns </tables>`).
    sampler : str or Sampler, default="auto"
        Sampler, as a name or as an object with parameters such as ``SGHMC(friction=0.05)``. Names:
        "sgld", "psgld", "sghmc", "sgnht", "msgnht", "mclmc" and "mala" (exact, with all rows in
        every step). "auto": "sghmc" if steps take all rows and the prior is smooth, otherwise, or
        if a parameter of steps is given, "sgld".
    integrator : str, default="auto"
        Integrator that discretises the sampler's dynamics: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most accurate integrator, or "euler" if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
        "auto": a fixed step for each sampler, in coordinates where the posterior is close to a
        standard normal. With ``sampler="psgld"``, "auto" raises an error if the features are so
        correlated that a diagonal preconditioner would need very long runs.
    preconditioner : "auto", None, "hessian", "diagonal" or array, default="auto"
        Constant preconditioner M, of shape (P, P) or (P,) for P parameters. "hessian": the inverse
        of the curvature of the posterior. "diagonal": the inverse of its diagonal. "auto":
        "hessian" for up to 2000 parameters, otherwise "diagonal", with other lengths in
        a few directions if steps take all rows; None if ``step_size`` is a number.
    gradient : str, default="auto"
        Estimator of the gradient: "minibatch", or "control_variates" centred at the MAP (Baker et
        al. 2019), for ``fit`` only, or "linear_control_variates", which are fitted to the Gaussian
        approximation, with importance-sampled rows. "auto": "linear_control_variates" with a matrix
        preconditioner, otherwise "control_variates"; "minibatch" if ``step_size`` is a number.
    batch_size : "auto" or int, default="auto"
        Number of rows in a minibatch, at most all rows. "auto": all rows of a small data set,
        otherwise as many as keep the gradient noise small; 100 if ``step_size`` is a number.
    n_chains : int, default=4
        Number of chains. Each chain has its own starting point, and R-hat compares the chains.
    n_draws : "auto" or int, default="auto"
        Number of draws kept per chain. "auto": 1000, or fewer if they would need more than 1 GiB,
        and for more than 10,000 parameters, but at least 250 if memory allows.
    burn_in : "auto" or int, default="auto"
        Number of steps before the first draw in ``fit``. "auto": about as many steps as the chains
        need to forget their starting points.
    thinning : "auto", int or MixingDistance, default="auto"
        Number of steps between two draws of a chain in ``fit``. "auto": at most 20, depending on
        the step size; a tenth of a pass, at most 100, if ``step_size`` is a number.
    max_steps : int or None, default=None
        Bound on the steps of each chain in ``fit``, which makes a fit shorter. Lengths that are
        "auto" shrink in proportion; given ones that take more steps are refused. None: no bound.
        ``partial_fit`` takes one pass over its rows, and ignores ``burn_in``, ``thinning`` and
        ``max_steps``.
    temperature : float or Schedule, default=1.0
        Temperature T of the target exp(-U/T): 1 samples the posterior, 0 is an optimiser.
    init : "auto", "random", "map", "gaussian" or array, default="auto"
        Starting points of the chains. "random": near zero. "map": the maximum of the posterior.
        "gaussian": draws of the Gaussian approximation of the posterior. An array is broadcast to
        (n_chains, n_parameters). "auto": "gaussian" with a matrix preconditioner, otherwise "map";
        "random" if ``step_size`` is a number.
    total_samples : float or None, default=None
        Number of rows N of the whole stream in ``partial_fit``. None: the rows seen so far.
    warm_start : bool, default=False
        If True, the next ``fit`` continues from the last state of the chains, after a burn-in,
        since its posterior may be another. ``burn_in=0`` leaves that out.
    compiled : "auto" or bool, default="auto"
        Whether to use the compiled code of the extra ``fast`` where it applies: SGLD and pSGLD by
        Euler steps on a CPU. It has its own random number generator, so the same seed gives
        different draws.
    device : str, default="auto"
        Torch device, such as "cpu" or "cuda". "auto" is CUDA for fits that are large enough to be
        faster there, otherwise the CPU; see ``device_``.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float64 on a CPU for up to 100,000 parameters, otherwise
        float32.
    storage : Storage or None, default=None
        Precision and location of the stored draws, such as ``Storage(dtype="bfloat16",
        dir="draws")``. None: in memory, in the precision of the sampling.
    checkpoint : path or None, default=None
        File that lets an interrupted fit resume if it is called again with the same data and
        parameters. On a CPU, the draws are then bit-identical to those of an uninterrupted fit. The
        file is kept after the fit. With ``n_jobs``, each group of chains has a file of its own:
        "fit.0-1.npz" beside "fit.npz" for the chains 0 and 1.
    n_jobs : int or None, default=None
        Number of groups of chains that run in parallel through joblib, in processes that take
        seconds to start: fits of a minute or more gain by it. None: a single group.
    random_state : int, RandomState or None, default=None
        Seed. Chain c has the same random numbers for every value of ``n_chains`` and ``n_jobs``.
    verbose : int, default=0
        If positive, print steps and the time left. R-hat or the loss comes with them.
        Scikit-learn's callbacks work, too.

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
    n_chains_, n_draws_ : int
        Number of chains in ``posterior_`` and number of draws of each chain.
    n_steps_ : int
        Number of steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        Step size eta of the last step.
    batch_size_ : int
        Number of rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators used in the last call; () if none.
    not_compiled_ : dict of str to str
        Why each of the other accelerators was not used, by name; {} with ``compiled=False``.
    sampling_threshold_ : dict or None
        Noise at up to 50 steps. "step": their numbers. "noise_ratio": alpha_t, the ratio of the
        gradient noise to the injected noise in the worst direction; chains sample the posterior
        where it is far below 1. "gradient_noise" (smallest and largest coordinate) and
        "injected_noise": variances, for
        :class:`~skbayes_sgmcmc.inspection.NoisePhaseDisplay`. None after ``partial_fit``, with
        batch norms, and if the sampler injects no noise of this kind.
    device_ : str
        Device of the last call: as given, or what "auto" has chosen.
    n_features_in_ : int
        Number of features seen in ``fit``.
    feature_names_in_ : array of shape ``(n_features_in_,)``
        Names of the features, if X had string column names.

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

    prior: Prior | Literal["normal", "laplace"] = "normal"
    prior_scale: ArrayLike | LearnedScale | Literal["learned"] = "learned"
    class_weight: dict[Any, float] | Literal["balanced"] | None = None
    categorical_features: ArrayLike | Literal["from_dtype"] | None = "from_dtype"
    sampler: str | Sampler = "auto"
    integrator: str = "auto"
    step_size: float | Schedule | Literal["auto"] = "auto"
    preconditioner: ArrayLike | Literal["auto", "hessian", "diagonal"] | None = "auto"
    gradient: str = "auto"
    batch_size: int | Literal["auto"] = "auto"
    n_chains: int = 4
    n_draws: int | Literal["auto"] = "auto"
    burn_in: int | Literal["auto"] = "auto"
    thinning: int | MixingDistance | Literal["auto"] = "auto"
    max_steps: int | None = None
    temperature: float | Schedule = 1.0
    init: ArrayLike | Literal["auto", "random", "map", "gaussian"] = "auto"
    total_samples: float | None = None
    warm_start: bool = False
    compiled: bool | Literal["auto"] = "auto"
    device: str = "auto"
    dtype: str = "auto"
    storage: Storage | None = None
    checkpoint: str | os.PathLike[str] | None = None
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on classes that have no order
        return tags

    def _check_labels(self, labels: Array, y: Any, known: Any = None) -> None:
        declared = declared_order(y)
        if declared is not None and known is not None and hasattr(self, "posterior_"):
            places = codes_of(declared, known)
            if (np.diff(places[places >= 0]) < 0).any():
                raise not_allowed(
                    f"y with the ordered categories {declared.tolist()} is not allowed: the "
                    f"classes are {known.tolist()}, the lowest first. Give the same order in "
                    "every call, or start a new stream with a clone of the estimator.",
                    "a-later-call-of-partial_fit-differs",
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
        from ..models.ordinal import OrdinalModel

        return OrdinalModel

    def _set_attributes(self) -> None:
        self.coef_ = self.posterior_.mean("coef")
        self.cutpoints_ = self.posterior_.mean("cutpoints")

    # predictions ----------------------------------------------------------------------------------

    def _predict_block(self, draws: Any, x: Any) -> Array:
        import torch

        from ..models.ordinal import log_probabilities

        f = np.asarray(x @ self.posterior_.select("coef", draws).T).T
        cutpoints = prediction.tensor_of(self.posterior_.select("cutpoints", draws))
        log_p = log_probabilities(torch.from_numpy(f.copy()), cutpoints)
        return np.asarray(log_p.exp_())

    def _has_valid_draws(self) -> bool:
        return bool((np.diff(self.posterior_.pooled("cutpoints")) > 0.0).all())

    def _logit_module(self, coef: Tensor, cutpoints: Tensor) -> nn.Module:
        from ..models.ordinal import OrdinalOutputs

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
