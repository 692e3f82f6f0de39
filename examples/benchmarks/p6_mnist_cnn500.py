"""Experiment P6: a convolutional network with 500 hidden units on MNIST (Li et al. 2016a, G).

SKBAYES_DATA=folder python examples/benchmarks/p6_mnist_cnn500.py

100 epochs take one to one and a half hours of a core for each of the five methods: give ``--epochs
10`` for less, or ``--device cuda`` on a GPU.
"""

from _common import load_mnist
from _images import CNN_BODY, Experiment, cnn_module, main, methods
from p5_mnist_cnn import estimator

BODY = """
MNIST, two convolutions of 5 x 5 with 32 and 64 channels, each with ReLU and a 2 x 2 max pool, and a
fully connected ReLU layer of 500 units, inputs divided by 255.
"""
METHODS = methods(psgld=1e-3, rmsprop=1e-3, sgld=0.1, sgd=0.1)
REMARKS = """
SGD's last iterate has 0.74%, and its average 0.70% (published: 0.81%): pSGLD is ahead, as in the
paper, by 0.08 to 0.12 points, about one standard error of such a difference. RMSprop and SGLD were
run for two epochs only, which the stored runs keep: there errors are 0.97% (averaged RMSprop) to
1.48% (averaged SGD), with 1.06% for pSGLD.
"""
EXPERIMENT = Experiment(
    name="p6_mnist_cnn500",
    title="P6: a convolutional network with 500 hidden units on MNIST",
    body=BODY.strip() + CNN_BODY,
    load=load_mnist,
    estimator=estimator,
    module=cnn_module((1, 28, 28), (32, 64)),
    methods=METHODS,
    plan=[([(500,)], ["psgld", "sgld", "rmsprop", "sgd", "psgld_t1"], 1)],
    published={("psgld", (500,)): 0.56, ("sgd", (500,)): 0.81},
    epochs=100,
    remarks=REMARKS,
    y_limits=(0.3, 2.0),
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
