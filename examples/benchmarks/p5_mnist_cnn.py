"""Experiment P5: a convolutional network on MNIST (Li et al. 2016a, table 3, fig. 5).

SKBAYES_DATA=folder python examples/benchmarks/p5_mnist_cnn.py

``--epochs 2 --subset 5000`` (or ``--quick``) sees that it runs; ``--device cuda`` runs it on a GPU.
"""

from dataclasses import replace

import torch
from _common import load_mnist
from _images import CNN_BODY, Experiment, cnn_module, main, methods
from torch import nn

from skbayes_sgmcmc import BayesianCNNClassifier

BODY = """
MNIST, two convolutions of 5 x 5 with 32 and 64 channels, each with ReLU and a 2 x 2 max pool, and
two fully connected ReLU layers of 200 units, inputs divided by 255.
"""
METHODS = methods(psgld=1e-3, rmsprop=1e-3, sgld=0.1, sgd=0.1)
METHODS["psgld_2"] = replace(
    METHODS["psgld"], title="pSGLD, as published, T = 1/N, step size 2e-3", step=2e-3,
    line=("C5", "-"),
)  # fmt: skip
METHODS["psgld100"] = replace(METHODS["psgld100"], title="pSGLD, as published, σ² = 100")
METHODS["halved"] = replace(
    METHODS["psgld"], title="pSGLD, as published, halved every 5 epochs", blocks=4, line=None
)
METHODS["small_start"] = replace(
    METHODS["psgld"], title="pSGLD, as published, from torch's initialisation", line=None,
    settings=lambda size: {"init": torchs_start(size)},
)  # fmt: skip
METHODS["psgld_2_t1"] = replace(
    METHODS["psgld_2"], title="pSGLD, T = 1, step size 2e-3", temperature=1.0, line=("C5", ":")
)


def estimator(size, **settings):
    return BayesianCNNClassifier(
        image_shape=(1, 28, 28), conv_channels=(32, 64), kernel_size=5, hidden_layer_sizes=size,
        **settings,
    )  # fmt: skip


def torchs_start(size):
    """Weights as torch initialises them: uniform, with a sixth of the variance of He's."""
    torch.manual_seed(0)
    flat = []
    for part in cnn_module((1, 28, 28), (32, 64))(size, 0.0):
        if isinstance(part, nn.Conv2d):
            flat += [part.weight.permute(0, 2, 3, 1), part.bias]
        elif isinstance(part, nn.Linear):
            flat += [part.weight.T, part.bias]
    return torch.cat([values.detach().flatten() for values in flat]).numpy()


EXPERIMENT = Experiment(
    name="p5_mnist_cnn",
    title="P5: a convolutional network on MNIST",
    body=BODY.strip() + CNN_BODY,
    load=load_mnist,
    estimator=estimator,
    module=cnn_module((1, 28, 28), (32, 64)),
    methods=METHODS,
    plan=[
        ([(200, 200)], ["psgld", "psgld_2"], 3),
        (
            [(200, 200)],
            ["psgld100", "halved", "small_start", "rmsprop", "sgld", "sgd", "psgld_t1"],
            1,
        ),
    ],
    published={
        ("psgld", (200, 200)): 0.45,
        ("psgld_2", (200, 200)): 0.45,
        ("sgd", (200, 200)): 0.82,
    },
    epochs=20,
    thinning=100,
    blocks=2,
    y_limits=(0.3, 2.0),
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
