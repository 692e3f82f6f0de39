"""Bayesian convolutional networks for images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import Array
from .._data.images import check_image_shape, flat_images, shape_in
from .._data.scaling import center_and_scale
from .._exceptions import not_allowed
from .._validation import check_sizes
from ._calibration import CalibratedClassifier
from ._descriptions import NETWORK, SHARED, described

if TYPE_CHECKING:
    from .._engine.settings import Settings
    from ..priors import LearnedScale, Prior
    from ..samplers import Sampler


@described(SHARED | NETWORK)
@dataclass(kw_only=True, eq=False, repr=False)
class BayesianCNNClassifier(CalibratedClassifier):
    r"""Bayesian convolutional network for images, sampled by stochastic-gradient MCMC.

    The network has convolutions with "same" padding, each followed by the activation and a max
    pool, then fully connected layers and a softmax. Image sides of length 1 are neither convolved
    nor pooled.

    Parameters
    ----------
    image_shape : tuple (channels, height, width) or None, default=None
        Image shape of a row of X. None: taken from X if X has shape (n, height, width) or (n,
        channels, height, width). If X is two-dimensional, a row is then a square image if the
        number of features is a square, and an image of height 1 otherwise.
    conv_channels : int or sequence of int, default=(8, 16)
        Number of channels after each convolution.
    kernel_size : int, default=3
        Side length of the kernels. If the image shape is guessed from a two-dimensional X, kernels
        are at most as large as the image.
    pool_size : int, default=2
        Side length of the max pools; 1 means no pooling.
    hidden_layer_sizes : int or sequence of int, default=(64,)
        Number of units of each fully connected layer.
    activation : {"relu", "tanh", "logistic"}, default="relu"
        Activation after each convolution and each hidden layer.
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on all weights and biases.
    prior_scale : str, LearnedScale, float or sequence of float, default="auto"
        Scale of the prior, as for :class:`BayesianMLPClassifier`: "auto", "learned", "fan_in" or
        numbers. A sequence has one number for each matrix or kernel.
    {class_weight}
    standardize : bool, default=True
        If True, the network sees channels scaled to mean 0 and variance 1.
    {augment} {sampler} {integrator} {step_size} {batch_size} {n_chains}
    chain_method : {"auto", "vectorized", "sequential"}, default="auto"
        Whether the chains take each step together ("vectorized") or one after the other
        ("sequential"). The draws are the same up to rounding. "auto": together, as the groups of
        one convolution, if the network is small.
    {n_draws} {burn_in} {thinning} {max_steps} {temperature} {init} {validation_fraction}
    {calibrate} {total_samples} {warm_start}
    compiled : "auto" or bool, default="auto"
        Whether to use the compiled code of the extra ``fast`` where it applies: gradients of
        networks with few channels and up to 128 units a layer and whole steps of MCLMC, and SGLD
        and pSGLD with the Euler integrator, in long runs on a CPU. The latter have a random number
        generator of their own, so the same seed gives different draws. On a GPU, whole steps are
        recorded and replayed (CUDA graphs).
    {device}
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float32, where convolutions are two to four times as
        fast as in float64. In float32, the last bits of a prediction depend on the other rows in
        the call.
    {precision} {storage} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    {classes_}
    posterior_ : PosteriorSamples
        Draws of the parameters, each of shape ``(n_chains, n_draws, *shape)``. Convolutions:
        ``kernel_1`` of shape (output channels, height, width, input channels), ``offset_1``, and so
        on. Other layers: ``weight_1`` of shape (input units, output units), ``bias_1``, and so on.
    {calibration_power_} {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_} {compiled_}
    {not_compiled_} {sampling_threshold_} {device_}
    n_features_in_ : int
        Number of values in a row.
    image_shape_ : tuple of int
        Channels, height and width of an image.

    See Also
    --------
    BayesianModuleClassifier : The same sampling for any ``torch.nn.Module``.

    Notes
    -----
    ``conv_channels=(32, 64), kernel_size=5`` with ``hidden_layer_sizes=(200, 200)`` or with
    ``hidden_layer_sizes=500`` gives the networks of Li et al. (2016).

    References
    ----------
    Li, Chen, Carlson & Carin (2016), Preconditioned stochastic gradient Langevin dynamics for deep
    neural networks, AAAI.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skbayes_sgmcmc import BayesianCNNClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = BayesianCNNClassifier(conv_channels=4, hidden_layer_sizes=(), sampler="mclmc",
    ...                             n_chains=2, burn_in=200, n_draws=20, thinning=10,
    ...                             random_state=0)
    >>> clf.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.8
    True
    >>> clf.image_shape_
    (1, 8, 8)
    """

    _read_with_draws = (
        "conv_channels", "kernel_size", "pool_size", "hidden_layer_sizes", "activation"
    )  # fmt: skip

    image_shape: tuple[int, int, int] | None = None
    conv_channels: int | Sequence[int] = (8, 16)
    kernel_size: int = 3
    pool_size: int = 2
    hidden_layer_sizes: int | Sequence[int] = (64,)
    activation: str = "relu"
    prior: Prior | Literal["normal", "laplace"] = "normal"
    prior_scale: float | Sequence[float] | LearnedScale | Literal["auto", "fan_in", "learned"] = (
        "auto"
    )
    class_weight: dict[Any, float] | list[dict[Any, float]] | Literal["balanced"] | None = None
    standardize: bool = True
    augment: Callable[..., Any] | None = None
    sampler: str | Sampler = "psgld"
    init: ArrayLike | Literal["auto", "random", "map"] = "auto"
    validation_fraction: float = 0.15
    calibrate: bool | Literal["auto"] = "auto"

    def _check_together(self, settings: Settings) -> None:
        super()._check_together(settings)
        if self.image_shape is not None:
            shape = check_sizes("image_shape", self.image_shape)
            if len(shape) != 3:
                raise not_allowed(
                    f"image_shape={self.image_shape!r} is not allowed: give (channels, height, "
                    "width)."
                )
            self._check_kernel(shape)

    def _check_order(self, shape: tuple[int, int, int]) -> None:
        """Refuse what looks like images with their channels last, which would be convolved so."""
        first, second, last = shape
        colours = last in (3, 4) and last < second
        if first > 4 and (colours or (last == 1 and first == second)):
            raise not_allowed(
                f"X with images of shape {shape} is not allowed: their channels seem to be last. "
                "Give (n, channels, height, width), by np.moveaxis(X, -1, 1); or, if there are "
                f"{first} channels, image_shape={shape}."
            )

    def _check_kernel(self, shape: tuple[int, ...]) -> None:
        side = min((side for side in shape[1:] if side > 1), default=self.kernel_size)
        if self.kernel_size > side:
            raise not_allowed(
                f"kernel_size={self.kernel_size} is not allowed for images of shape {shape}: give "
                f"at most {side}."
            )

    def _make_network(self, n_outputs: int) -> Any:
        from ..models.networks.cnn import CNN

        network = CNN(*self._shape(n_outputs))
        network.grouped = True if self._vectorized else None
        return network

    def _architecture(self, n_outputs: int) -> Any:
        return self._make_network(n_outputs).module

    def _shape(self, n_outputs: int) -> tuple[Any, ...]:
        """Shapes of images, convolutions, pools and layers: the arguments of ``CNN``."""
        sides = [side for side in self.image_shape_[1:] if side > 1]
        kernel = min([self.kernel_size, *sides])
        if kernel < self.kernel_size and kernel % 2 == 0:
            kernel -= 1  # "same" padding of even kernels is lopsided
        return (
            self.image_shape_,
            check_sizes("conv_channels", self.conv_channels),
            kernel,
            self.pool_size,
            check_sizes("hidden_layer_sizes", self.hidden_layer_sizes),
            self.activation,
            n_outputs,
        )

    # images ---------------------------------------------------------------------------------------

    def _validate_xy(self, X: Any, y: Any, *, reset: bool, weight: Any = None) -> tuple[Any, Array]:
        flat, shape = flat_images(X)
        flat, y = super()._validate_xy(flat, y, reset=reset, weight=weight)
        if reset:
            self.image_shape_ = self._resolve_shape(flat.shape[1], shape)
            self._shape_in = shape_in(X)
        else:
            check_image_shape(shape, self.image_shape_)
        return flat, y

    def _validate_rows(self, X: Any) -> Any:
        flat, shape = flat_images(X)
        flat = super()._validate_rows(flat)
        check_image_shape(shape, self.image_shape_)
        return flat

    def _resolve_shape(
        self, n_features: int, shape: tuple[int, int, int] | None
    ) -> tuple[int, int, int]:
        if self.image_shape is not None:
            given = check_sizes("image_shape", self.image_shape)
            if math.prod(given) != n_features or (shape is not None and shape != given):
                raise not_allowed(
                    f"image_shape={self.image_shape!r} is not allowed: a row of X has "
                    f"{n_features} numbers" + (f" of shape {shape}." if shape else ".")
                )
            return given[0], given[1], given[2]
        if shape is not None:
            self._check_order(shape)
            self._check_kernel(shape)
            return shape
        side = math.isqrt(n_features)
        return (1, side, side) if side * side == n_features else (1, 1, n_features)

    def _row_shape(self) -> tuple[int, ...]:
        return self.image_shape_

    def _fit_inputs(self, X: Array, weight: Array | None) -> None:
        if not self.standardize:
            super()._fit_inputs(X, weight)
            return
        images, pixels = X.reshape(-1, *self.image_shape_), math.prod(self.image_shape_[1:])
        moments = center_and_scale(images, weight, axis=(0, 2, 3))  # per channel
        self._x_center, self._x_scale = (np.repeat(m.ravel(), pixels) for m in moments)
