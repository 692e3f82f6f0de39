"""Low-rank adapters of linear layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..._exceptions import module_not_allowed, not_allowed
from ..._validation import check_int
from .module_copies import put


class LowRankLinear(nn.Module):
    """A linear layer plus a product of two matrices of low rank, which starts at zero.

    The layer ``base`` is not trained or sampled.
    """

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base.requires_grad_(False)
        like, d = base.weight, base.in_features
        generator = torch.Generator().manual_seed(0)  # not torch's global random numbers
        down = torch.randn(rank, d, generator=generator, dtype=torch.float32, device="cpu") / d**0.5
        self.down = nn.Parameter(down.to(like))
        self.up = nn.Parameter(like.new_zeros(base.out_features, rank))

    @property
    def weight(self) -> Tensor:
        """The sum of the layer's matrix and the product, for modules that look at it."""
        return self.base.weight + self.up @ self.down

    @property
    def bias(self) -> Tensor | None:
        """The layer's bias."""
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (..., out_features) of inputs (..., in_features)."""
        return self.base(x) + (x @ self.down.mT) @ self.up.mT


def low_rank_adapters(
    module: nn.Module, layers: str | Sequence[str] = "*", *, rank: int = 4
) -> nn.Module:
    r"""Copy a module with low-rank adapters on some of its linear layers, and freeze the rest.

    An adapted layer computes :math:`W x + b + U D x` with matrices U (outputs, rank), which starts
    at zero, and D (rank, inputs). Only these have ``requires_grad``, so they are what
    ``sample_parameters="trainable"`` samples, and draws contain only them.

    Parameters
    ----------
    module : torch.nn.Module
        Trained module. It is not changed.
    layers : str or sequence of str, default="*"
        Names of linear layers, or patterns such as "encoder.*". Layers that other modules call
        without their ``forward``, as torch's attention does with ``out_proj``, can't be adapted.
    rank : int, default=4
        Rank of the adapters.

    Returns
    -------
    torch.nn.Module
        The copy.

    Raises
    ------
    ValueError
        A pattern matches no linear layer, or the rank is not a positive number.

    References
    ----------
    Hu et al. (2022), LoRA: low-rank adaptation of large language models, ICLR. The models of the
    package ``peft`` can be given to the estimators as they are.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianModuleClassifier, low_rank_adapters
    >>> X, y = load_iris(return_X_y=True)
    >>> net = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    >>> adapted = low_rank_adapters(net, ["0", "2"], rank=2)
    >>> clf = BayesianModuleClassifier(adapted, n_chains=2, random_state=0).fit(X, y)
    >>> [name for name in clf.posterior_.draws if not name.startswith("scale_")]
    ['0.down', '0.up', '2.down', '2.up']
    """
    check_int("rank", rank)
    if not isinstance(module, nn.Module):
        raise module_not_allowed(f"module={module!r} is not allowed: give a torch.nn.Module.")
    adapted = copy.deepcopy(module).requires_grad_(False)
    linear = [name for name, part in adapted.named_modules() if type(part) is nn.Linear]
    for name in _chosen(layers, linear):
        if not name:
            return LowRankLinear(adapted.get_submodule(name), rank)  # type: ignore[arg-type]
        layer: Any = adapted.get_submodule(name)
        put(adapted, name, LowRankLinear(layer, rank))
    return adapted


def _chosen(layers: str | Sequence[str], linear: Sequence[str]) -> list[str]:
    """Names of the linear layers that patterns select, in the order of the module."""
    patterns, found = [layers] if isinstance(layers, str) else list(layers), set()
    for pattern in patterns:
        fitting = {name for name in linear if fnmatchcase(name, pattern)}
        if not fitting:
            listed = ", ".join(map(repr, linear)) or "none"
            raise not_allowed(
                f"layers={layers!r} is not allowed: {pattern!r} matches no torch.nn.Linear; the "
                f"module has {listed}."
            )
        found |= fitting
    return [name for name in linear if name in found]
