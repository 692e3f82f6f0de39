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
REMARKS = """
The published error is missed. Its binomial standard error is 0.07%; three seeds have 0.55 to 0.58%
with the first of the paper's step sizes, and 0.60 to 0.70% with the second. What the paper leaves
open was tried, each with one seed: the prior variance of 100 that it has for perceptrons (0.53%), a
step size that is halved twice as often (0.61%) and smaller weights to begin with, as torch has them
(0.72%). To keep every 100th iterate, as the paper does, makes no clear difference: earlier runs of
seed 0, which kept every 200th, had 0.60% with the first step size and 0.54% with the second. Six
full runs on a GPU, which kept every 200th, had 0.54 to 0.66% with both ([gpu.md](gpu.md)). The
maxima of 2 x 2 are the paper's. None of this gives 0.45%: it would need ten images fewer, three
times as many as the seeds of the first step size differ by, or a training that the paper does not
describe, such as moved images.

The rows of RMSprop, SGD and T = 1 are of earlier runs, which kept every 200th iterate; so did one
of SGLD, which had 0.77%. RMSprop's average has pSGLD's error and NLL: as for the perceptrons
averaging helps, and these averages cannot be told apart. They are ahead of SGLD (0.78%) and of SGD
(0.76% last, 0.79% averaged; published 0.82%), as in the paper, by about two standard errors of such
a difference, and of RMSprop's last iterate (0.71%) by about one to two. At T = 1 single draws are
wrong on 3.7% of the images and their average on 1.1%. Adam and its ensemble of five have not been
run here. The minutes were measured on machines with other work on them.
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
    remarks=REMARKS,
    thinning=100,
    blocks=2,
    y_limits=(0.3, 2.0),
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
