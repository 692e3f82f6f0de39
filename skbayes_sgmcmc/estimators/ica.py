"""Bayesian independent component analysis."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import Array
from .._data.kept_rows import KeptRows
from .._exceptions import later_not_allowed, not_allowed, warn
from .._limits import LIMITS
from .._validation import (
    check_array,
    check_choice,
    check_int,
    check_is_fitted,
    check_magnitude,
    check_predictions,
    check_scale,
    validate_data,
)
from ._descriptions import LINEAR, SHARED, described
from ._mixing import MustMix, short_name
from ._parameters import Check, unless
from ._transformer import BayesianTransformer

if TYPE_CHECKING:
    from .._engine.settings import Settings
    from ..models.ica.model import ICAModel
    from ..priors import Prior
    from ..samplers import Sampler
    from ._fitting import Task


@described(SHARED | LINEAR)
@dataclass(eq=False, repr=False)
class BayesianICA(BayesianTransformer):
    r"""Bayesian independent component analysis, sampled by stochastic-gradient MCMC.

    .. math::
        p(x, W) = |\det W| \prod_i p_i(w_i^\top x) \; \prod_{ij} p(W_{ij}), \qquad
        W_{ij} \sim N(0, s^2)

    Here x are centred and whitened rows, and the sources are y = W x. FastICA estimates a single
    matrix W. This estimator draws W from its posterior, by Langevin dynamics in the metric of the
    natural gradient, and so measures how certain each component is. For example, Gaussian sources
    cannot be separated, and their ``instability_`` is large. The defaults need no tuning.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of sources. None: the number of features.
    whiten : bool, default=True
        If True, the centred rows are reduced to their first ``n_components`` principal components,
        scaled to variance 1 and rotated towards the features. If False, W acts on the centred rows,
        and there must be as many components as features.
    density : {"extended", "logistic"}, default="extended"
        Densities p_i of the sources, of variance 3.3. "extended": each component has the density
        with heavy, normal or light tails that is most likely at the mode, as in extended infomax.
        "logistic": 1 / (4 cosh^2(y/2)) for all, as in Welling & Teh, for heavy tails only.
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on the entries of W.
    prior_scale : float, default=1.0
        Scale s of the prior; 1 / s^2 is the precision lambda of Welling & Teh. For comparison,
        sources have standard deviations of about 1.8. For whitened data, the rows of W have norms
        of about 1.8.
    sampler : str or Sampler, default="rsgld"
        Sampler, as a name or as an object with parameters such as ``RSGLD(divergence=False)``,
        which omits the divergence of the metric, as in Welling & Teh. "rsgld" is SGLD in the metric
        of the natural gradient. "mala" is the Metropolis-adjusted Langevin sampler (exact, with all
        rows in every step). "sgld", "psgld", "sghmc", "sgnht" and "msgnht" do not use the metric,
        and need a number for ``step_size``.
    {integrator}
    step_size : "auto", float or Schedule, default="auto"
        Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
        The epsilon of Welling & Teh is 2 eta / N. "auto": 0.2 / (largest curvature), or less if
        alpha_t would otherwise exceed 0.1.
    gradient : str, default="auto"
        Estimator of the gradient: "minibatch", or "control_variates" centred at the MAP (Baker et
        al. 2019), for ``fit`` only. "auto": "control_variates" with ``step_size="auto"`` unless a
        minibatch has all rows, and "minibatch" if ``step_size`` is a number.
    {batch_size} {n_chains}
    n_draws : "auto" or int, default="auto"
        Number of draws kept per chain. "auto": 1000, or fewer if they would need more than 1 GiB.
    {burn_in} {thinning} {max_steps} {temperature}
    init : "auto", "random" or array of shape (n_components, n_features), default="auto"
        Starting points of the chains. "auto": draws of a Gaussian approximation around the mode
        that gradient descent finds; their spread is large in directions of W that the data do not
        determine. "random": the sources of the mode, with a different random rotation for each
        chain; sources of the same kind may then get each other's density. An array is an unmixing
        matrix like ``components_``, or one such matrix for each chain.
    {total_samples}
    warm_start : bool, default=False
        If True, the next ``fit`` continues from the last state of the chains and keeps the
        whitening of the first ``fit``.
    compiled : "auto" or bool, default="auto"
        Whether to use the compiled code of the extra ``fast`` where it applies: SGLD and pSGLD with
        the Euler integrator, in long runs on a CPU. It has its own random number generator, so the
        same seed gives different draws.
    {device} {dtype} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Posterior mean of the unmixing matrix of X, including the whitening.
    mixing_ : array of shape (n_features, n_components)
        Pseudo-inverse of ``components_``.
    mean_ : array of shape (n_features,)
        Mean of X.
    whitening_ : array of shape (n_components, n_features)
        Whitening matrix K, with x = K (X - mean). It is the identity if ``whiten=False``.
    instability_ : array of shape (n_components,)
        :math:`I_i = \sum_j \mathrm{var}(W_{ij})\,\mathrm{var}(x_j)` with variances over the
        posterior and over the rows, in the order of the components (not sorted). This is the part
        of a source's variance (about 3.3 in total) that is due to the uncertainty of W. If a source
        contradicts its density, the fit warns, and all of its variance is added.
    density_shapes_ : array of shape (n_components,)
        Shapes of the densities of the sources: 1 is logistic, 0 normal, and negative ones have
        lighter tails.
    posterior_ : PosteriorSamples
        Draws "components" of shape (n_chains, n_draws, n_components, n_features). The signs and the
        order of the components are aligned over draws and chains.
    {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_} {compiled_} {not_compiled_}
    {sampling_threshold_} {device_} {n_features_in_} {feature_names_in_}

    See Also
    --------
    sklearn.decomposition.FastICA : A single unmixing matrix, by fixed-point iteration.
    skbayes_sgmcmc.diagnostics.amari_distance : Error of an unmixing matrix, given the true mixing.
    skbayes_sgmcmc.inspection.InstabilityDisplay : A figure of ``instability_``.

    Notes
    -----
    The shapes of the densities are chosen before sampling and are the same for all chains. The
    posterior does not depend on the order (of equal shapes) and the signs of the components. Each
    draw is therefore aligned with the mode, by the assignment with the largest absolute
    correlations.

    References
    ----------
    Welling & Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics, section 5.3.
    Lee, Girolami & Sejnowski (1999), ICA using an extended infomax algorithm for mixed subgaussian
    and supergaussian sources.
    Amari, Cichocki & Yang (1996), A new learning algorithm for blind signal separation.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import BayesianICA
    >>> from skbayes_sgmcmc.diagnostics import amari_distance
    >>> rng = np.random.default_rng(0)
    >>> mixing = np.array([[1.0, 0.5], [-0.3, 1.0]])
    >>> X = rng.laplace(size=(500, 2)) @ mixing.T
    >>> ica = BayesianICA(random_state=0).fit(X)
    >>> bool(amari_distance(ica.components_, mixing) < 0.1)
    True
    >>> ica.transform(X).shape
    (500, 2)
    """

    n_components: int | None = None
    _: KW_ONLY
    whiten: bool = True
    density: Literal["extended", "logistic"] = "extended"
    prior: Prior | Literal["normal", "laplace"] = "normal"
    prior_scale: float = 1.0
    sampler: str | Sampler = "rsgld"
    gradient: str = "auto"
    init: ArrayLike | Literal["auto", "random"] = "auto"

    # before sampling ------------------------------------------------------------------------------

    def _samplers(self) -> tuple[str, ...]:
        return ("rsgld", *super()._samplers(), "mala")

    #: numbers of components and features of the fitted model, whether rows are whitened, densities
    _shape: tuple[int, int, bool, str] = field(init=False)

    _checks: ClassVar[dict[str, Check]] = {
        "n_components": unless(None, check_int),
        "prior_scale": check_scale,
    }

    def _check_together(self, settings: Settings) -> None:
        super()._check_together(settings)
        if isinstance(self.init, str):
            check_choice("init", self.init, ("auto", "random"))
        if isinstance(self.sampler, str):
            metric = self.sampler in ("rsgld", "mala")
        else:
            metric = self.sampler.uses_metric(True)
        if settings.auto and not metric:
            raise not_allowed(
                f"step_size='auto' is not allowed with sampler={self.sampler!r} here: give a "
                "number, or sampler='rsgld' or 'mala', which move in the natural gradient's metric."
            )

    def _validate(self, X: Any, *, reset: bool) -> Array:
        rows = 2 if reset else 1
        X = validate_data(
            self, X, reset=reset, dtype=(np.float64, np.float32), ensure_min_samples=rows
        )
        if reset:
            check_magnitude("X", X)
        return np.asarray(X)

    def _validate_rows(self, X: Any) -> Array:
        return self._validate(X, reset=False)

    def _asked_shape(self, X: Array) -> tuple[int, int, bool, str]:
        n_features = X.shape[1]
        n_components = n_features if self.n_components is None else self.n_components
        check_int("n_components", n_components, high=n_features)
        if not self.whiten and n_components != n_features:
            raise not_allowed(
                f"n_components={n_components} is not allowed with whiten=False, which needs one "
                f"component per feature ({n_features}): give n_components=None, or whiten=True."
            )
        return n_components, n_features, bool(self.whiten), self.density

    def _encoded(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool, stream: bool
    ) -> KeptRows:
        X = self._validate(X, reset=first)
        shape = self._asked_shape(X)
        if not first and shape != self._shape:
            raise later_not_allowed(
                f"n_components={self.n_components!r} with whiten={self.whiten!r} and "
                f"density={self.density!r} is not allowed here: earlier calls had {self._shape[0]} "
                f"components, whiten={self._shape[2]} and density={self._shape[3]!r}. Keep them, "
                "or start a new stream with a clone of the estimator."
            )
        self._shape = shape
        return KeptRows(X, None)

    def _meaning(self) -> tuple[Any, ...]:
        return self._shape

    def _make_model(self, rows: KeptRows, *, first: bool) -> ICAModel:
        from ..models.ica.model import ICAModel
        from ..models.ica.start import mode_start, symmetric_whitening

        if first:
            X, (n_components, n_features, whiten, density) = rows.x, self._shape
            rounding = float(np.abs(X).max() * np.finfo(X.dtype).eps)
            self.mean_ = X.mean(axis=0, dtype=np.float64)
            self.whitening_ = np.eye(n_features)
            if whiten:
                centred = X - self.mean_
                self.whitening_ = symmetric_whitening(centred, n_components, rounding)
            x = self._inputs(X)
            self._x_variance = x.var(axis=0, dtype=np.float64)
            self._reference, self.density_shapes_ = mode_start(
                x, 0.0 if whiten else rounding, learn_shapes=density == "extended"
            )
        prior, shapes = self._prior(), self.density_shapes_
        return ICAModel(self._reference, prior, self.prior_scale, self.whitening_, shapes)

    def _inputs(self, X: Any) -> Array:
        return (X - self.mean_) @ self.whitening_.T

    def _starts(self) -> Any:
        """``init`` as the engine expects it: flattened unmixing matrices of whitened rows."""
        if isinstance(self.init, str):
            return "gaussian" if self.init == "auto" else self.init
        init, shape = np.asarray(self.init, dtype=float), self.whitening_.shape
        if init.shape not in (shape, (self.n_chains, *shape)):
            raise not_allowed(
                f"init of shape {init.shape} is not allowed: give 'auto', 'random', or unmixing "
                f"matrices, an array of shape {shape} or {(self.n_chains, *shape)}."
            )
        w = init @ np.linalg.pinv(self.whitening_)
        return w.reshape(*init.shape[:-2], -1)

    # sampling -------------------------------------------------------------------------------------

    def _run(self, task: Task) -> None:
        super()._run(replace(task, settings=replace(task.settings, init=self._starts())))

    def _judge(self, task: Task) -> None:
        self._check_densities(task.rows.x)
        super()._judge(task)

    def _check_densities(self, X: Array) -> None:
        """Count sources that contradict their densities as unknown, and warn of them."""
        from ..models.ica.densities import contradicted

        y = (X[:: -(-len(X) // LIMITS.part_rows)] - self.mean_) @ self.components_.T
        wrong = contradicted(y, self.density_shapes_)
        if not wrong.any():
            return
        self.instability_[wrong] += y.var(axis=0)[wrong]
        remedy = "Give density='extended'."
        if self.density == "extended":
            remedy = "Fit anew to all rows, or begin the stream with a larger part of them."
        names = ", ".join(self.get_feature_names_out()[wrong])
        warn(
            f"{names} in {short_name(self)} do not have the densities that density_shapes_ says, "
            "and may be mixtures: normal sources, or sources with lighter tails, need other "
            f"densities than those with heavy tails. {remedy}",
            "densities-do-not-suit-the-sources",
        )

    def _must_mix(self, task: Task) -> MustMix:
        return MustMix({"components": self.posterior_["components"]}, self._labels())

    def _set_attributes(self) -> None:
        posterior = self.posterior_
        self.components_ = posterior.mean("components")
        self.mixing_ = np.linalg.pinv(self.components_)
        # in the coordinates of W, where whitened features are uncorrelated
        draws = posterior.pooled("components") @ np.linalg.pinv(self.whitening_)
        weights = posterior.pooled_weights()
        away = draws - np.average(draws, axis=0, weights=weights)
        variance = np.average(away**2, axis=0, weights=weights)
        self.instability_ = variance @ self._x_variance

    # predictions ----------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Compute the sources of the rows, averaged over the posterior.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        X = self._validate_x(X)
        with np.errstate(all="ignore"):  # what is not finite is refused
            sources = ((X - self.mean_) @ self.components_.T).astype(X.dtype)
        return check_predictions(sources, X)

    def inverse_transform(self, X: Any) -> Array:
        """Compute the rows that have the given sources.

        Parameters
        ----------
        X : array of shape (n_samples, n_components)
            Sources.

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        check_is_fitted(self, "posterior_")
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(self.components_):
            raise not_allowed(
                f"X with {X.shape[1]} columns is not allowed: there are {len(self.components_)} "
                "components; give one column for each of them."
            )
        with np.errstate(all="ignore"):  # what is not finite is refused
            rows = (X @ self.mixing_.T + self.mean_).astype(X.dtype)
        return check_predictions(rows, X)

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        names = self.get_feature_names_out().tolist()
        return {"components": {"component": names, "feature": self._columns.feature_labels}}
