"""Experiment P7: a convolutional network on CIFAR-10, pSGLD against SGLD (Li et al. 2016a, fig. 9).

SKBAYES_DATA=folder python examples/benchmarks/p7_cifar10_cnn.py

20 epochs take a quarter of an hour of a core for each of the four methods: give ``--epochs 5
--subset 20000`` for less, or ``--device cuda`` on a GPU.
"""

from _common import load_cifar10
from _images import CNN_BODY, Experiment, cnn_module, main, methods

from skbayes_sgmcmc import BayesianCNNClassifier

BODY = """
CIFAR-10 without augmentation, three convolutions of 5 x 5 with 32, 32 and 64 channels, each with
ReLU and a 2 x 2 max pool, and a fully connected ReLU layer of 200 units, inputs divided by 255 less
their mean. Where the data folder has JPEG files, errors are not those of the original images. The
paper shows only curves: pSGLD converges faster and to a lower error than SGLD.
"""
METHODS = methods(psgld=1e-3, rmsprop=1e-3, sgld=0.1, sgd=0.1)


def estimator(size, **settings):
    return BayesianCNNClassifier(
        image_shape=(3, 32, 32), conv_channels=(32, 32, 64), kernel_size=5,
        hidden_layer_sizes=size, **settings,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="p7_cifar10_cnn",
    title="P7: a convolutional network on CIFAR-10",
    body=BODY.strip() + CNN_BODY,
    load=load_cifar10,
    estimator=estimator,
    module=cnn_module((3, 32, 32), (32, 32, 64)),
    methods=METHODS,
    plan=[([(200,)], ["psgld", "sgld", "rmsprop", "sgd"], 1)],
    published={},
    epochs=20,
    blocks=2,
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
