"""The residual network of examples/: its size, and that it is sampled, pruned and compressed."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from skbayes_sgmcmc import BayesianModuleClassifier, Pruning, SpikeSlab
from skbayes_sgmcmc.augmentation import Compose, RandomCrop, RandomFlip

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from resnet import SPARSE_LAYERS, ResNet20


def test_it_has_the_published_number_of_parameters():
    """He et al. (2016), table 6: 0.27 million; by hand 269,722, with those of the batch norms."""
    convolutions = 9 * (3 * 16 + 6 * 16**2 + 16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2)
    norms, linear = 2 * (7 * 16 + 6 * 32 + 6 * 64), 64 * 10 + 10
    parameters = dict(ResNet20(10).named_parameters())
    assert sum(p.numel() for p in parameters.values()) == convolutions + norms + linear == 269_722
    sparse = sum(parameters[f"{name}.weight"].numel() for name in SPARSE_LAYERS)
    assert sparse == convolutions - 9 * 3 * 16


def test_blocks_of_zeros_pass_their_input_on():
    """Without weights a block is its shortcut: every second pixel, and zeros in new channels."""
    block = ResNet20(10).blocks[3].eval()
    for p in block.parameters():
        torch.nn.init.zeros_(p)
    x = torch.rand(2, 16, 8, 8)
    y = block(x)
    assert y.shape == (2, 32, 4, 4)
    assert torch.equal(y[:, 8:24], x[..., ::2, ::2]) and not y[:, :8].any() and not y[:, 24:].any()


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_it_is_sampled_with_a_sparse_prior_augmentation_and_pruning():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((24, 3 * 32 * 32)).astype(np.float32), np.arange(24) % 3
    clf = BayesianModuleClassifier(
        partial(ResNet20, width=2), input_shape=(3, 32, 32), prior=SpikeSlab(layers=SPARSE_LAYERS),
        prune=Pruning(0.9, start=2, interval=1), sampler="sghmc",
        augment=Compose([RandomCrop(), RandomFlip()]), step_size=1e-3, batch_size=12, n_chains=2,
        burn_in=10, n_draws=2, thinning=2, random_state=0,
    ).fit(X, y)  # fmt: skip
    size = sum(clf.posterior_[f"{name}.weight"][0, 0].size for name in SPARSE_LAYERS)
    last = sum((clf.posterior_[f"{name}.weight"][:, -1] == 0.0).sum() for name in SPARSE_LAYERS)
    zeros = round(Pruning(0.9, start=2, interval=1).for_run(14).rate(13) * size)
    assert last == 2 * zeros
    np.testing.assert_array_equal(clf.compress().predict_proba(X), clf.predict_proba(X))
    assert set(clf.delta_.shape) == {len(SPARSE_LAYERS)}
