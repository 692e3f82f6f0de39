"""A residual network with a posterior and with nine weights in ten at zero.

    python examples/resnet.py

``ResNet20`` is that of He et al. (2016) for images of 32 x 32 pixels, as a plain torch module with
batch norms. Here a narrow one learns scikit-learn's digits, enlarged, in about a minute:
convolutions but the first have a spike-and-slab prior, and are pruned while sampling.
``benchmarks/d7_resnet20.py`` is the experiment on CIFAR-10.
"""

import io
import warnings
from functools import partial

import joblib
import torch
from torch import nn
from torch.nn import functional

WIDTHS, BLOCKS = (1, 2, 4), 3


class Block(nn.Module):
    """Two convolutions of 3 x 3, with the input added to their output.

    Where the images become smaller the input has every second pixel, and zeros for new channels, so
    that shortcuts have no weights.
    """

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.stride, self.new = stride, after - before

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        shortcut = x[..., :: self.stride, :: self.stride]
        shortcut = functional.pad(shortcut, (0, 0, 0, 0, self.new // 2, self.new - self.new // 2))
        return functional.relu(y + shortcut)


class ResNet20(nn.Module):
    """Nineteen convolutions in nine residual blocks, and a linear layer: 0.27 million parameters.

    Parameters
    ----------
    n_outputs : int
        Classes.
    channels : int, default=3
        Of the images.
    width : int, default=16
        Channels of the first blocks; the last have four times as many.
    """

    def __init__(self, n_outputs, channels=3, width=16):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, before = [], width
        for stage, factor in enumerate(WIDTHS):
            for place in range(BLOCKS):
                stride = 2 if stage > 0 and place == 0 else 1
                blocks.append(Block(before, factor * width, stride))
                before = factor * width
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(before, n_outputs)

    def forward(self, x):
        x = self.blocks(functional.relu(self.norm(self.conv(x))))
        return self.linear(x.mean((2, 3)))


#: every convolution but the first
SPARSE_LAYERS = [f"blocks.{block}.conv{i}" for block in range(len(WIDTHS) * BLOCKS) for i in (1, 2)]


def main():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from skbayes_sgmcmc import BayesianModuleClassifier, Pruning, SamplingWarning, SpikeSlab
    from skbayes_sgmcmc.samplers import SGHMC
    from skbayes_sgmcmc.schedules import Exponential

    X, y = load_digits(return_X_y=True)
    X = (X.reshape(-1, 8, 8) / 16.0).repeat(4, axis=1).repeat(4, axis=2).reshape(len(X), -1)
    split = train_test_split(X.astype("float32"), y, test_size=0.3, stratify=y, random_state=0)
    X_train, X_test, y_train, y_test = split
    clf = BayesianModuleClassifier(
        partial(ResNet20, channels=1, width=4),
        input_shape=(1, 32, 32),
        prior=SpikeSlab(0.05, slab_variance=1e-2, adaptation="sa", layers=SPARSE_LAYERS),
        prune=Pruning(sparsity=0.9, start=150, interval=10),
        sampler=SGHMC(friction=0.1),
        step_size=0.02,
        temperature=Exponential(1e-3, last=1e-5),
        n_chains=1,
        n_draws=10,
        burn_in=350,
        thinning=5,
        batch_size=50,
        dtype="float32",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of few draws of one chain
        clf.fit(X_train, y_train)
    print(f"accuracy on {len(y_test)} test images: {clf.score(X_test, y_test):.3f}")
    left, size = clf.n_effective_parameters_, sum(p.numel() for p in clf.module(10).parameters())
    print(f"zeros among convolutions: {clf.sparsity_:.1%}; {left:.0f} of {size} parameters left")
    for name, fitted in (("whole", clf), ("compressed", clf.compress())):
        file = io.BytesIO()
        joblib.dump(fitted, file)
        print(f"{name}: {len(file.getbuffer()) / 1e6:.2f} MB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
