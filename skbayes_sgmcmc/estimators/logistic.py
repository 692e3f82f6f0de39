"""Bayesian logistic regression."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from .._data.scaling import center_and_scale
from .._draws import prediction
from .._draws.storage import Storage
from .._validation import check_choice, check_scale, check_scales
from ._classifier import BayesianClassifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..models.networks.distillation import Blueprint

Array = NDArray[Any]


class BayesianLogisticRegression(BayesianClassifier):
    r"""Logistic regression with a posterior drawn by stochastic-gradient MCMC.

    .. math::
        p(y|x, \beta) = \sigma(\beta^\top x + b) \text{ or } \mathrm{softmax}(Bx + b),\qquad
        \beta_j \sim N(0, s_j^2) \text{ or } \mathrm{Laplace}(0, s_j), \qquad b \text{ flat}

    The defaults need no tuning, on scaled or unscaled features: chains start from a Gaussian
    approximation of the posterior, move in its coordinates with a fixed dimensionless step, and use
    minibatches with control variates that are as large as their noise demands. A number for
    ``step_size`` gives the plain samplers of the literature instead.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Add an intercept. With more than two classes the intercepts sum to zero.
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on the coefficients; the intercept's is flat.
    prior_scale : float or array of shape (n_features,), default=1.0
        Standard deviation of the normal prior, or b of the Laplace prior, in units of the
        coefficients. The normal prior's scale s corresponds to ``C = s**2`` of scikit-learn's
        ``LogisticRegression``.
    class_weight : dict, "balanced" or None, default=None
        Likelihood exponents by class, as in scikit-learn.
    sampler : str or Sampler, default="sgld"
        The sampler, by name or as an object with parameters such as ``SGHMC(friction=0.05)``:
        "sgld", "psgld", "sghmc", "sgnht", "msgnht", or "mala" (all data at each step, exact).
    integrator : str, default="auto"
        How a step of the sampler is discretised: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most exact one, or Euler if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        eta, which multiplies the gradient of the mean potential, like a learning rate. "auto": a
        fixed step for each sampler, in coordinates in which the posterior is close to a standard
        normal. It is refused with ``sampler="psgld"`` where features are so correlated that
        pSGLD's diagonal preconditioner would need very long runs.
    preconditioner : "auto", None, "hessian", "diagonal" or array, default="auto"
        Constant preconditioner M, (P, P) or (P,) for P parameters. "hessian" is the inverse of the
        posterior's curvature. "auto": "hessian" up to 2000 parameters and "diagonal" beyond with
        ``step_size="auto"``, None with a number.
    gradient : str, default="auto"
        The gradient estimator: "minibatch" or "control_variates" (Baker et al. 2019), which are
        centred at the MAP and for ``fit`` only; or "linear_control_variates", which are fitted to
        the Gaussian approximation, with importance-sampled rows. "auto": the last where a matrix
        preconditioner is in use, "minibatch" with a number for ``step_size``.
    batch_size : "auto" or int, default="auto"
        Rows in a minibatch, at most all. "auto": all rows of small data, else what the gradient
        noise demands; 100 if ``step_size`` is a number.
    shared_minibatch : bool, default=False
        One minibatch for all chains of a step. This is faster, but the chains' errors are then
        correlated, so that R-hat and MCSE are too small.
    n_chains : int, default=4
        Number of chains. They advance together; R-hat compares them.
    n_draws : "auto" or int, default="auto"
        Draws kept of each chain. "auto": 1000, or fewer where they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Steps before the first draw. "auto": about as many as the chains need to forget where they
        started.
    thinning : "auto", int or MixingDistance, default="auto"
        Steps between two draws of a chain. "auto": at most 20, by the step size, or 100 with a
        number for ``step_size``.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser.
    init : "auto", "random", "map", "gaussian" or array, default="auto"
        Where chains start. "random": about zero. "map": at the maximum of the posterior.
        "gaussian": at draws of the Gaussian approximation. An array broadcasts to (n_chains,
        n_parameters). "auto": "gaussian" with a matrix preconditioner, else "map"; "random" with a
        number for ``step_size``.
    total_samples : float or None, default=None
        N of ``partial_fit``, the number of rows of the whole stream; None: the rows seen so far.
    warm_start : bool, default=False
        Go on from the last state of the chains at the next ``fit``.
    compiled : "auto" or bool, default="auto"
        Use the compiled code of the extra ``fast`` where it applies (plain SGLD, two classes, on a
        CPU). It has a random number generator of its own, and so other draws for the same seed.
    device : str, default="auto"
        "cpu", "cuda", ...; "auto" takes CUDA if there.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float64 on a CPU up to 100,000 parameters, else float32.
    storage : Storage or None, default=None
        Precision and place in which draws are kept, such as ``Storage(dtype="bfloat16",
        dir="draws")``. None: in memory, in the precision of the sampling.
    checkpoint : path or None, default=None
        File from which an interrupted fit with the same data and parameters goes on,
        bit-identically on a CPU. It is kept after the fit.
    n_jobs : int or None, default=None
        Groups of chains that run in parallel through joblib; None: all chains as one batch.
    random_state : int, RandomState or None, default=None
        Seed; chain c has the same random numbers whatever ``n_chains`` and ``n_jobs``.
    verbose : int, default=0
        Print progress if positive. Scikit-learn's callbacks work too.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels.
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
        Posterior mean of the coefficients.
    intercept_ : array of shape (1,) or (n_classes,)
        Posterior mean of the intercepts.
    posterior_ : PosteriorSamples
        Draws "coef" (n_chains, n_draws, 1 or n_classes, n_features) and "intercept".
    n_chains_, n_draws_ : int
        Chains and draws of each that ``posterior_`` holds.
    n_steps_ : int
        Steps of each chain in the last call of ``fit`` or ``partial_fit``.
    step_size_ : float
        eta of the last step.
    batch_size_ : int
        Rows in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators in the last call, such as ("linear_sgld",);
        () if there were none.
    n_features_in_ : int
        Features seen in ``fit``.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    sklearn.linear_model.LogisticRegression : The maximum of the same posterior.
    skbayes_sgmcmc.sample : Draws from any log density.

    Notes
    -----
    With ``step_size="auto"`` every step costs a few products with a (P, P) matrix besides the
    minibatch. Draws take n_chains * n_draws * P numbers.

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
    PosteriorSamples(4 chains x 1000 draws, {coef: (3, 4), intercept: (3,)})
    >>> bool(clf.predict_uncertainty(X).epistemic.max() < 0.2)
    True
    """

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        prior: Any = "normal",
        prior_scale: Any = 1.0,
        class_weight: Any = None,
        sampler: Any = "sgld",
        integrator: str = "auto",
        step_size: Any = "auto",
        preconditioner: Any = "auto",
        gradient: str = "auto",
        batch_size: Any = "auto",
        shared_minibatch: bool = False,
        n_chains: int = 4,
        n_draws: Any = "auto",
        burn_in: Any = "auto",
        thinning: Any = "auto",
        temperature: Any = 1.0,
        init: Any = "auto",
        total_samples: float | None = None,
        warm_start: bool = False,
        compiled: Any = "auto",
        device: str = "auto",
        dtype: str = "auto",
        storage: Storage | None = None,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.fit_intercept = fit_intercept
        self.prior = prior
        self.prior_scale = prior_scale
        self.class_weight = class_weight
        self.sampler = sampler
        self.integrator = integrator
        self.step_size = step_size
        self.preconditioner = preconditioner
        self.gradient = gradient
        self.batch_size = batch_size
        self.shared_minibatch = shared_minibatch
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.burn_in = burn_in
        self.thinning = thinning
        self.temperature = temperature
        self.init = init
        self.total_samples = total_samples
        self.warm_start = warm_start
        self.compiled = compiled
        self.device = device
        self.dtype = dtype
        self.storage = storage
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check(self) -> Any:
        settings = super()._check()
        if isinstance(self.prior_scale, Real):
            check_scale("prior_scale", self.prior_scale)
        else:
            allowed = "a positive number, or an array of them of shape (n_features,)"
            check_scales("prior_scale", self.prior_scale, allowed)
        check_choice("fit_intercept", self.fit_intercept, (True, False))
        return settings

    def _make_model(self, X: Any, weight: Array | None, n_classes: int, *, first: bool) -> Any:
        from ..models.logistic import LogisticModel

        n_features = X.shape[1]
        if np.ndim(self.prior_scale) == 1 and len(self.prior_scale) != n_features:
            raise ValueError(
                f"prior_scale of length {len(self.prior_scale)} is not allowed: X has "
                f"{n_features} features."
            )
        return LogisticModel(
            n_features, n_classes, self._prior(), self.prior_scale, self.fit_intercept
        )

    def _set_attributes(self) -> None:
        self.coef_ = self.posterior_.mean("coef")
        self.intercept_ = self.posterior_.mean("intercept")

    def _check_mixing(self, X: Any) -> None:
        names = ("coef", "intercept") if self.fit_intercept else ("coef",)
        self._warn_of_mixing({name: self.posterior_[name] for name in names})

    def _predict_block(self, draws: slice, x: Any) -> Array:
        from ..models.logistic import predict_proba

        posterior = self.posterior_
        return predict_proba(
            posterior.select("coef", draws), posterior.select("intercept", draws), x
        )

    def _iter_logits(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        import torch

        from ..models.logistic import logits

        coef, intercept = (
            torch.from_numpy(self.posterior_.pooled(name)) for name in ("coef", "intercept")
        )
        at_once = prediction.BLOCK_NUMBERS // (len(x) * len(self.classes_))
        for draws in gen_batches(len(coef), max(1, at_once)):
            z = logits(coef[draws], intercept[draws], x.to(coef.dtype))
            yield draws, z if z.shape[2] > 1 else torch.cat([torch.zeros_like(z), z], dim=2)

    def _student(self, X: Array) -> Blueprint:
        from ..models.networks.distillation import Blueprint
        from ..models.networks.module import Architecture

        n_features = X.shape[1]
        architecture = Architecture("mlp", (n_features, len(self.classes_)), "relu")
        return Blueprint(architecture, *center_and_scale(X, None), (n_features,))

    def _ensemble(self, chosen: Array, weights: Array) -> nn.Module:
        import torch

        from ..models.networks.ensemble import Inputs, MeanProbabilities, StackedLayers

        draws = (
            torch.from_numpy(self.posterior_.select(name, chosen)).float()
            for name in ("coef", "intercept")
        )
        if len(self.classes_) == 2:  # the first class's logit is zero
            draws = (torch.cat([torch.zeros_like(values), values], dim=1) for values in draws)
        coef, intercept = draws
        layer = StackedLayers([coef.mT], [intercept], torch.nn.Identity())
        unchanged = Inputs(np.zeros(1), np.ones(1), (self.n_features_in_,))
        return MeanProbabilities(unchanged, layer, weights)

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        two = len(self.classes_) == 2
        label = {"class_label": (self.classes_[1:] if two else self.classes_).tolist()}
        return {"coef": label | {"feature": self._feature_labels()}, "intercept": label}

    def _labels(self) -> dict[str, list[str]]:
        features = self._feature_labels()
        if len(self.classes_) == 2:
            return {"coef": features, "intercept": ["intercept"]}
        return {
            "coef": [f"{c}: {name}" for c in self.classes_ for name in features],
            "intercept": [f"{c}: intercept" for c in self.classes_],
        }
