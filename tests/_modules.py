"""Rows of digits, a trained module and budgets of seconds, for the tests of modules."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

X, y = load_digits(return_X_y=True)
X, y = X[:200] / 16.0, y[:200]
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1, "random_state": 0,
        "step_size": 1e-3, "prior_scale": "fan_in"}  # fmt: skip


def module(n_features, n_outputs):
    """Four layers, one of them a batch norm."""
    return nn.Sequential(
        nn.Linear(n_features, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, n_outputs)
    )


def norm_module():
    """The same for images of digits."""
    return nn.Sequential(nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))


def trained():
    """A network with values that no initialisation would give."""
    module = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for value in (*module.parameters(), module[1].running_mean):
            value.copy_(torch.from_numpy(5.0 + rng.standard_normal(value.shape)))
        module[1].running_var.uniform_(0.5, 2.0, generator=torch.Generator().manual_seed(0))
    return module
