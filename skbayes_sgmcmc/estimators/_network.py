"""Code that estimators of networks share: standardised inputs, the model, its predictions."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.utils.sparsefuncs import inplace_column_scale

from .._arrays import Array
from .._data.layout import PLAIN, Layout
from .._data.rows import StoredRows
from .._data.scaling import center_and_scale
from .._draws.posterior_samples import PosteriorSamples, kept_with_posterior
from .._exceptions import FIT_REMEDY, explain_full_memory, not_allowed, warn
from .._limits import LIMITS, slices
from .._modes import usual_modes
from ..schedules import Schedule, number_if_constant
from ._base import SGMCMCEstimator
from ._classifier import BayesianClassifier
from ._learned_scale import NETWORK, can_learn, check_prior_scale, learned_scale
from ._mixing import MIXING, MustMix
from ._regressor import BayesianRegressor
from ._sense import check_drift, check_spread, check_strays
from ._sparsity import Sparsity, set_zeros

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .._data.kept_rows import KeptRows
    from .._draws.storage import Storage
    from .._engine.settings import Settings
    from ..models.likelihoods.base import Likelihood
    from ..models.networks.distillation import Blueprint
    from ..models.networks.model import NetworkModel
    from ..models.networks.network import Network
    from ..priors.factorised import Prior
    from ..priors.learned_scale import LearnedScale
    from ._fitting import Task


#: prior sd of a classifier's logits with ``prior_scale="fan_in"``: probabilities near 0 and 1 are
#: then as likely as others
LOGIT_GAIN = 4.0


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkEstimator(SGMCMCEstimator):
    """Mixin of estimators with a network as model. Subclasses make the network."""

    chain_method: str = "auto"
    precision: str = "full"
    storage: Storage | None = None

    prior_scale: Any = field(init=False)
    standardize: bool = field(init=False)
    n_features_in_: int = field(init=False)
    _n_outputs: int = field(init=False)
    #: parameters that only some estimators have
    augment: Any = field(default=None, init=False)
    prune: Any = field(default=None, init=False)
    #: what of a row is which argument of the network
    _layout: Layout = field(default=PLAIN, init=False)
    #: blocks of weights with a spike-and-slab prior, and pruned blocks, in the network's order
    _sparse_blocks: tuple[str, ...] = field(init=False)
    _pruned_blocks: tuple[str, ...] = field(init=False)
    #: set only on copies of the estimator that predict several blocks
    _network: Network | None = field(default=None, init=False)
    #: all draws by the device that blocks of one call have sent them to; None: each sends its own
    _sent: dict[str, Any] | None = field(default=None, init=False)

    def _make_network(self, n_outputs: int) -> Network:
        """The network for rows with the columns of the fit."""
        from ..models.networks.module import ModuleNetwork, build

        return ModuleNetwork(build(self._architecture(n_outputs)), self._vectorized)

    def _learned_scale(self) -> LearnedScale | None:
        """The hyperprior of the scales, or None if the scales are given."""
        unasked = can_learn(self.prior) and self.prune is None and not _is_cold(self.temperature)
        return learned_scale(self.prior_scale, NETWORK, unasked=unasked)

    @property
    def _vectorized(self) -> bool:
        return self.chain_method == "vectorized"

    def _architecture(self, n_outputs: int) -> Any:
        """A callable that builds the network of one draw as a ``torch.nn.Module``."""
        raise NotImplementedError

    def _samplers(self) -> tuple[str, ...]:
        return (*super()._samplers(), "mclmc")

    def _check_network(self, X: Array) -> None:
        """Raise ``ValueError`` if the network does not fit the data."""

    def _check_together(self, settings: Settings) -> None:
        super()._check_together(settings)
        scales, learned = self.prior_scale, self._learned_scale() is not None
        words = ("auto", "fan_in", "learned")
        allowed = "'auto', 'fan_in', 'learned', a positive number, or one number a layer"
        check_prior_scale(scales, self.prior, allowed, learned=learned, words=words)
        if learned:
            if self.prune is not None:
                raise not_allowed(
                    f"prior_scale={scales!r} is not allowed with prune={self.prune!r}: the "
                    "weights that are pruned would draw the scales to zero; give prune=None, or "
                    "prior_scale='fan_in' or numbers."
                )
            if _is_cold(self.temperature):
                warn(
                    f"prior_scale={scales!r} with temperature={self.temperature!r}: below 1 the "
                    "most probable scales of a network make its weights vanish, and its "
                    "predictions are the same for all rows. Give prior_scale='fan_in'.",
                    "the-fit-does-not-describe-its-data",
                )
        self._sparsity.check(self.temperature)

    def _check_stream(self) -> None:
        super()._check_stream()
        if self.prune is not None:
            raise not_allowed(
                f"prune={self.prune!r} is not allowed in partial_fit: the fraction of zeros grows "
                "towards the end of a run, and a stream has no known end. Give prune=None."
            )

    def _prior(self) -> Prior:
        from ..priors.factorised import Normal

        return super()._prior() if self._sparsity.prior is None else Normal()

    @property
    def _sparsity(self) -> Sparsity:
        """What sets weights to zero, for networks that allow it."""
        return Sparsity.of(self.prior, self.prune, self.temperature)

    @explain_full_memory(FIT_REMEDY)
    def _model(self, likelihood: Likelihood, n_outputs: int, output_gain: float) -> NetworkModel:
        from .._engine.settings import check_network_memory

        network = self._make_network(n_outputs)
        check_network_memory(sum(map(math.prod, network.shapes.values())), self.n_chains)
        kind, options = self._model_kind(network)
        given = "fan_in" if isinstance(self.prior_scale, str) else self.prior_scale
        return kind(
            network,
            likelihood,
            self._prior(),
            self._learned_scale() or given,
            output_gain,
            augment=self.augment,
            precision=self.precision,
            chain_method=self.chain_method,
            **options,
        )

    def _model_kind(self, network: Network) -> tuple[type[NetworkModel], dict[str, Any]]:
        """Class of the model, and its options besides the network, the likelihood and the prior."""
        from ..models.networks.learned_scales import LearnedScalesModel
        from ..models.networks.model import NetworkModel

        if self._sparsity:
            self._sparse_blocks, self._pruned_blocks = self._sparsity.blocks(network)
            return self._sparsity.model_kind(self._sparse_blocks, self._pruned_blocks)
        return (NetworkModel if self._learned_scale() is None else LearnedScalesModel), {}

    def _set_attributes(self) -> None:
        super()._set_attributes()
        if self._sparsity:
            set_zeros(self)

    # inputs ---------------------------------------------------------------------------------------

    def _row_shape(self) -> tuple[int, ...]:
        """Shape of a row as the network sees it."""
        return (self._columns.width,)

    def _fit_inputs(self, X: Array, weight: Array | None) -> None:
        """Store the centre and the scale of each feature."""
        if not self.standardize:
            self._x_center, self._x_scale = np.zeros(1), np.ones(1)
            return
        self._x_center, self._x_scale = center_and_scale(X, weight)

    def _inputs(self, X: Any) -> Any:
        """X as the network sees it; differentiable if X is a tensor.

        Many rows stay where they are, and are standardised when they are read.
        """
        center, scale = self._x_center, self._x_scale
        if sp.issparse(X):
            inputs = sp.csr_matrix(X, copy=True)
            inplace_column_scale(inputs, np.broadcast_to(1.0 / scale, inputs.shape[1:]))
            if not np.any(center):
                return inputs
            from ..models.designs.indicators import ShiftedRows

            return ShiftedRows(inputs, -center / scale)
        large = isinstance(X, np.ndarray) and X.nbytes > LIMITS.held_bytes
        if large or isinstance(X, StoredRows):
            from .._data.stored_inputs import ScaledRows

            rows = X if isinstance(X, StoredRows) else StoredRows(X)
            return ScaledRows(rows, center, scale, self._row_shape())
        if not isinstance(X, np.ndarray):
            center, scale = X.new_tensor(center), X.new_tensor(scale)
        return ((X - center) / scale).reshape(-1, *self._row_shape())

    # predictions ----------------------------------------------------------------------------------

    def _fitted_network(self) -> Network:
        """The network that the draws belong to, made once for all blocks of a call."""
        return self._network or self._make_network(self._n_outputs)

    @explain_full_memory("predict fewer rows at once")
    @usual_modes()
    def _outputs(self, draws: Any, x: Array) -> Array:
        """Outputs (draws, rows, k) of some pooled draws, computed a few draws at a time."""
        import torch

        from .._draws.prediction import tensor_of
        from .._engine.devices import prediction_device
        from ..models.networks.compiled import compiled_outputs_pay, write_outputs

        posterior = self.posterior_
        chosen = np.arange(posterior.n_pooled)[draws]
        first = tensor_of(posterior.select(next(iter(posterior.draws)), slice(0, 1)))
        network = self._fitted_network()
        products = len(chosen) * x.shape[0] * network.row_products
        device = prediction_device(self.device, products, getattr(self, "device_", "cpu"))
        # averages over draws, and softmax, are faster along rows than along a few outputs
        shape = len(chosen), self._n_outputs, x.shape[0]
        out = torch.empty(shape, dtype=first.dtype, device=device)
        with torch.no_grad():
            inputs = network.rows(self._inputs(x), first.dtype, device)
            if self.compiled is not False and compiled_outputs_pay(network, inputs, len(chosen)):
                for some in slices(len(chosen), network.draws_at_once(1)):
                    theta = self._positions(chosen[some], network)
                    write_outputs(network, theta, inputs, out[some].numpy())
            else:
                for some, f in self._iter_outputs(chosen, inputs, x.shape[0], device):
                    out[some] = f.mT
        return out.mT.cpu().numpy()

    def _iter_outputs(
        self, chosen: Array, inputs: Any, n_rows: int, device: str
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield outputs (draws, rows, k) for the network's ``rows``, a few chosen draws at a time.

        Each block comes with the places of its draws in ``chosen``. The outputs are differentiable
        with respect to the inputs.
        """
        network = self._fitted_network()
        for some in slices(len(chosen), network.draws_at_once(n_rows)):
            theta, state = self._on(device, chosen[some], network)
            yield some, network.outputs(theta, inputs.to(theta.dtype), state)

    def _on(self, device: str, chosen: Array, network: Network) -> tuple[Tensor, Any]:
        """Some pooled draws on a device: positions (draws, n_parameters), and the buffers."""
        if self._sent is None or device == "cpu":
            return self._sent_to(device, chosen, network)
        some = _as_slice(chosen)
        if not isinstance(some, slice):  # no view of all draws
            return self._sent_to(device, chosen, network)
        if device not in self._sent:
            everything = np.arange(self.posterior_.n_pooled)
            self._sent[device] = self._sent_to(device, everything, network)
        theta, state = self._sent[device]
        return theta[some], {name: values[some] for name, values in state.items()}

    def _sent_to(self, device: str, chosen: Array, network: Network) -> tuple[Tensor, Any]:
        import torch

        theta = torch.from_numpy(self._positions(chosen, network)).to(device)
        state = {name: torch.from_numpy(self.posterior_.select(name, chosen)).to(device)
                 for name in network.buffers}  # fmt: skip
        return theta, state

    def _predictor(self) -> Any:
        ready = copy.copy(self)
        ready._network = self._fitted_network()
        if sum(block.nbytes for block in self.posterior_.draws.values()) <= LIMITS.auto_bytes:
            ready._sent = {}
        return ready._predict_block

    def _positions(self, draws: Array, network: Network) -> Array:
        """Some pooled draws as positions (draws, n_parameters)."""
        posterior, names = self.posterior_, tuple(network.shapes)
        if posterior.n_pooled * sum(network.sizes) > LIMITS.block_numbers:
            return _joined(posterior, names, draws)
        return _all_positions(posterior, names)[_as_slice(draws)]

    def _export_parts(self, chosen: Array) -> tuple[nn.Module, nn.Module]:
        """Modules for the inputs and the outputs of some pooled draws, as parts of ensembles."""
        import torch

        from ..models.networks.ensemble import Inputs

        network, posterior = self._fitted_network(), self.posterior_
        draws = {name: torch.from_numpy(posterior.select(name, chosen)).float()
                 for name in (*network.shapes, *network.buffers)}  # fmt: skip
        inputs = Inputs(self._x_center, self._x_scale, self._row_shape(), layout=self._layout)
        return inputs, network.stacked(draws)

    def _check_run(self, run: Any) -> None:
        super()._check_run(run)
        check_drift(self, run)
        check_spread(self, run)
        check_strays(self, run)

    def _must_mix(self, task: Task) -> MustMix:
        posterior, X, n_rows = self.posterior_, task.rows.x, task.rows.x.shape[0]
        rows = np.linspace(0, n_rows - 1, min(n_rows, MIXING.rows)).astype(int)
        draws = slice(0, posterior.n_pooled)
        f = self._predict_block(draws, X[np.unique(rows)])
        by_chain = f.reshape(posterior.n_chains, posterior.n_draws, -1)
        outputs = self._output_labels()
        labels = [f"prediction of {of}row {row}" for row in np.unique(rows) for of in outputs]
        return MustMix(
            {"predictions": by_chain},
            {"predictions": labels},
            MIXING.predictions_r_hat,
            MIXING.modes_ess,
            share=MIXING.predictions,
        )

    def _output_labels(self) -> list[str]:
        """What the network's outputs are called before the name of a row: "class 1, "."""
        raise NotImplementedError


def _as_slice(chosen: Array) -> Any:
    """The slice of these numbers, which views of draws need; the numbers unless they are one."""
    some = slice(int(chosen[0]), int(chosen[-1]) + 1)
    return some if np.array_equal(chosen, np.arange(some.start, some.stop)) else chosen


def _joined(posterior: PosteriorSamples, names: tuple[str, ...], draws: Any) -> Array:
    """Some pooled draws of blocks beside each other, (draws, numbers)."""
    blocks = [posterior.select(name, draws) for name in names]
    return np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1)


@kept_with_posterior
def _all_positions(posterior: PosteriorSamples, names: tuple[str, ...]) -> Array:
    """All pooled draws of blocks: joining them takes as long as predicting some rows."""
    return _joined(posterior, names, slice(None))


def _is_cold(temperature: Any) -> bool:
    """Whether chains end at a temperature below 1; at 0 learned scales stay where they begin."""
    temperature = number_if_constant(temperature)
    if isinstance(temperature, Schedule):
        n_steps = 10**5  # of a long run
        return bool(temperature.values(np.array([n_steps - 1]), n_steps)[0] < 1.0)
    return isinstance(temperature, Real) and 0.0 < float(temperature) < 1.0


class NetworkClassifier(NetworkEstimator, BayesianClassifier):
    """Base class of classifiers that apply a softmax to the outputs of a network for a target."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = tags.classifier_tags.multi_label = True
        return tags

    def _make_model(self, rows: KeptRows, *, first: bool) -> Any:
        from ..models.likelihoods.base import Categorical, Categoricals

        classes = self._classes
        self._n_outputs = classes.n_outputs
        if first:
            self._fit_inputs(rows.x, rows.weight)
            self._check_network(rows.x)
        likelihood = Categoricals(classes.sizes) if classes.several else Categorical()
        return self._model(likelihood, self._n_outputs, LOGIT_GAIN)

    def _predict_block(self, draws: Any, x: Any) -> Array:
        with np.errstate(over="ignore"):  # outputs that are further apart than the largest number
            return self._classes.in_each(partial(softmax, axis=2), self._outputs(draws, x))

    def _output_labels(self) -> list[str]:
        return [f"class {name} in " for name in self._classes.names]

    def _iter_logits(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        n_draws = self.posterior_.n_pooled
        return self._iter_outputs(np.arange(n_draws), self._inputs(x)[None], len(x), str(x.device))

    def _student(self, X: Array) -> Blueprint:
        from ..models.networks.distillation import Blueprint

        architecture = self._student_architecture()
        return Blueprint(architecture, self._x_center, self._x_scale, self._row_shape())

    def _student_architecture(self) -> Any:
        """A callable that builds a student like the network."""
        return self._architecture(self._n_outputs)

    def _ensemble(self, chosen: Array, weights: Array) -> nn.Module:
        from ..models.networks.ensemble import MeanProbabilities

        return MeanProbabilities(*self._export_parts(chosen), weights, self._classes.sizes)

    def _torch_module(self, n_draws: int | None = None) -> nn.Module:
        from torch.nn import Sequential

        from ..models.networks.ensemble import ByTarget

        mean, classes = super()._torch_module(n_draws), self._classes
        if not classes.several:
            return mean
        return Sequential(mean, ByTarget(classes.sizes, self._multilabel))


class NetworkRegressor(NetworkEstimator, BayesianRegressor):
    """Base class of regressors with a likelihood that depends on the outputs of a network."""

    # it decides on the noise: that of "auto", and whether the sigma of spikes is the noise
    _read_with_draws: ClassVar[tuple[str, ...]] = ("prior",)
    #: outputs beyond which means are linear in them, for a logarithmic link
    _y_bend: Array

    def _check_together(self, settings: Settings) -> None:
        if self._sparsity.prior is not None and self.likelihood != "normal":
            raise not_allowed(
                f"likelihood={self.likelihood!r} is not allowed with a spike-and-slab prior: give "
                "likelihood='normal', or another prior."
            )
        named = isinstance(self.noise, str) and self.noise != "infer"
        if self._sparsity.prior is not None and named:
            raise not_allowed(
                f"noise={self.noise!r} is not allowed with a spike-and-slab prior: give "
                "noise='infer', so that the prior's sigma is also the noise, or a number."
            )
        super()._check_together(settings)

    def _make_model(self, rows: KeptRows, *, first: bool) -> Any:
        if first:
            self._fit_inputs(rows.x, rows.weight)
            self._fit_targets(rows.target, rows.weight)
        likelihood = self._likelihood()
        self._n_outputs = likelihood.n_outputs
        if first:
            self._check_network(rows.x)
        return self._model(likelihood, self._n_outputs, 1.0)

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        super()._fit_targets(y, weight)
        if self._family.link == "log":  # from one sd above the mean on
            mean = self._y_typical
            variance = np.average(np.square(y - mean), axis=0, weights=weight)
            self._y_bend = np.log1p(np.sqrt(variance) / mean)

    def _likelihood(self) -> Likelihood:
        from ..models.likelihoods.base import LatentGaussian, LinearAbove

        if self._sparsity.prior is not None and isinstance(self.noise, str):
            return LatentGaussian(self._n_targets)
        given = super()._likelihood()
        return LinearAbove(given, self._y_bend) if self._family.link == "log" else given

    def _predict_block(self, draws: Any, x: Any) -> Array:
        return self._outputs(draws, x)

    def _output_labels(self) -> list[str]:
        n, choice = self._n_targets, self._choice
        if choice.own is not None:
            return [f"output {j} of the network in " for j in range(choice.own.n_outputs)]
        targets = [""] if n == 1 else [f"output {j} in " for j in range(n)]
        noise = [f"the noise of {name}" for name in targets] if choice.heteroscedastic else []
        return [*targets, *noise]
