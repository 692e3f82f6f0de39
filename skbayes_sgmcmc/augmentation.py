"""Random augmentation of the images of a minibatch.

Give an augmentation, or several in a :class:`Compose`, as ``augment`` of ``BayesianCNNClassifier``.
Augmentations are applied to the network's input: standardised images, where 0 is the mean of a
channel. All images of a minibatch are changed at once, on the device, with random numbers from each
chain's own stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from ._exceptions import undefined
from ._sklearn import BaseEstimator
from ._validation import check_int, check_real

if TYPE_CHECKING:
    from ._data.chain_random import ChainRandom

__all__ = [
    "Augmentation",
    "Compose",
    "RandomCrop",
    "RandomErasing",
    "RandomFlip",
    "RandomRotation",
]


class Augmentation(BaseEstimator):
    """Base class of augmentations; subclasses implement ``change``."""

    #: number of random numbers that one image needs
    NUMBERS = 1

    def __call__(self, x: Tensor, rng: ChainRandom) -> Tensor:
        """Augment images of shape (chains, n, channels, height, width).

        Images that all chains share have shape (n, channels, height, width).
        """
        images = x.reshape(-1, *x.shape[-3:])
        u = rng.uniform(x.shape[-4], self.NUMBERS, dtype=x.dtype)
        u = (u if x.ndim == 5 else u[:1]).reshape(len(images), self.NUMBERS)
        return self.change(images, u).reshape(x.shape)

    def change(self, x: Tensor, u: Tensor) -> Tensor:
        """Augment images x (n, channels, height, width), given uniform numbers u (n, NUMBERS)."""
        raise undefined(self, "change(x, u)")


class RandomFlip(Augmentation):
    """Mirror an image horizontally, with a given probability.

    Parameters
    ----------
    probability : float, default=0.5
        Probability that an image is mirrored.

    Examples
    --------
    >>> from skbayes_sgmcmc.augmentation import Compose, RandomCrop, RandomFlip
    >>> Compose([RandomCrop(padding=2), RandomFlip()])
    Compose(parts=[RandomCrop(padding=2), RandomFlip()])
    """

    def __init__(self, probability: float = 0.5):
        self.probability = probability

    def change(self, x: Tensor, u: Tensor) -> Tensor:
        check_real("probability", self.probability, low=0.0, high=1.0, closed="both")
        return torch.where((u[:, 0] < self.probability)[:, None, None, None], x.flip(-1), x)


class RandomCrop(Augmentation):
    """Shift an image by up to ``padding`` pixels in each direction, and fill the gap with 0.

    Parameters
    ----------
    padding : int, default=4
        Largest shift, in pixels.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianCNNClassifier
    >>> from skbayes_sgmcmc.augmentation import RandomCrop
    >>> clf = BayesianCNNClassifier(augment=RandomCrop(padding=2))
    """

    NUMBERS = 2

    def __init__(self, padding: int = 4):
        self.padding = padding

    def change(self, x: Tensor, u: Tensor) -> Tensor:
        most = check_int("padding", self.padding, low=0)
        n, _, height, width = x.shape
        wide = pad(x, (most, most, most, most))
        shift = (u * (2 * most + 1)).long()
        rows = shift[:, :1] + torch.arange(height, device=x.device)
        columns = shift[:, 1:] + torch.arange(width, device=x.device)
        image = torch.arange(n, device=x.device)[:, None, None]
        chosen = wide.movedim(1, -1)[image, rows[:, :, None], columns[:, None, :]]
        return chosen.movedim(-1, 1)


class RandomRotation(Augmentation):
    """Rotate an image about its centre with bilinear interpolation, and fill the corners with 0.

    Parameters
    ----------
    degrees : float, default=15.0
        Bound on the angle, which is uniform in [-degrees, degrees].

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianCNNClassifier
    >>> from skbayes_sgmcmc.augmentation import RandomRotation
    >>> clf = BayesianCNNClassifier(augment=RandomRotation(degrees=10.0))
    """

    def __init__(self, degrees: float = 15.0):
        self.degrees = degrees

    def change(self, x: Tensor, u: Tensor) -> Tensor:
        bound = check_real("degrees", self.degrees, low=0.0, high=180.0, closed="both")
        angle = (2.0 * u[:, 0] - 1.0) * (bound * torch.pi / 180.0)
        cosine, sine = torch.cos(angle), torch.sin(angle)
        ratio, zero = x.shape[-2] / x.shape[-1], torch.zeros_like(angle)
        matrix = torch.stack(
            [cosine, -sine * ratio, zero, sine / ratio, cosine, zero], dim=1
        ).reshape(-1, 2, 3)
        grid = affine_grid(matrix, list(x.shape), align_corners=False)
        return grid_sample(x, grid, align_corners=False)


class RandomErasing(Augmentation):
    """Set a random rectangle of an image to 0, with a given probability.

    Parameters
    ----------
    probability : float, default=0.5
        Probability that a rectangle of an image is set to 0.
    largest : float, default=0.4
        Largest side of the rectangle, as a fraction of the image's side. The sides are uniform up
        to this bound.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianCNNClassifier
    >>> from skbayes_sgmcmc.augmentation import RandomErasing
    >>> clf = BayesianCNNClassifier(augment=RandomErasing(largest=0.3))
    """

    NUMBERS = 5

    def __init__(self, probability: float = 0.5, largest: float = 0.4):
        self.probability = probability
        self.largest = largest

    def change(self, x: Tensor, u: Tensor) -> Tensor:
        check_real("probability", self.probability, low=0.0, high=1.0, closed="both")
        largest = check_real("largest", self.largest, low=0.0, high=1.0, closed="right")
        inside = (u[:, 4] < self.probability)[:, None, None]
        for axis, side in enumerate(x.shape[-2:]):
            length = u[:, axis] * largest * side
            start = u[:, 2 + axis] * (side - length)
            at = torch.arange(side, device=x.device) + 0.5
            within = (at >= start[:, None]) & (at < (start + length)[:, None])
            inside = inside & (within[:, :, None] if axis == 0 else within[:, None, :])
        return x.masked_fill(inside[:, None], 0.0)


class Compose(BaseEstimator):
    """Apply several augmentations one after another.

    Parameters
    ----------
    parts : sequence of callables
        The augmentations, in order.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianCNNClassifier
    >>> from skbayes_sgmcmc.augmentation import Compose, RandomCrop, RandomFlip
    >>> clf = BayesianCNNClassifier(augment=Compose([RandomCrop(padding=2), RandomFlip()]))
    """

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts

    def __call__(self, x: Tensor, rng: ChainRandom) -> Tensor:
        for part in self.parts:
            x = part(x, rng)
        return x
