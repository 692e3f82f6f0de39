"""Experiment P7 in full: its network with 500 units for 100 epochs (Li et al. 2016a, appendix G).

SKBAYES_DATA=folder python examples/benchmarks/p7_cifar10_cnn500.py

100 epochs take an hour and a half of a core for each method: give ``--epochs 5 --subset 20000`` for
less, or ``--device cuda`` on a GPU.
"""

from dataclasses import replace

import p7_cifar10_cnn
from _images import CNN_BODY, main

REMARKS = """

The paper's order holds: the average over pSGLD's draws has the lower error from the first epoch on.
Single draws of SGLD hardly change after 40 epochs, and the more of them are averaged, the nearer
the average comes to one network. The runs were interrupted and went on from their checkpoints, so
that they have no time.
"""
EXPERIMENT = replace(
    p7_cifar10_cnn.EXPERIMENT,
    name="p7_cifar10_cnn500",
    title="P7: a convolutional network with 500 units on CIFAR-10, 100 epochs",
    body=p7_cifar10_cnn.BODY.strip().replace("200 units", "500 units") + CNN_BODY + REMARKS,
    plan=[([(500,)], ["psgld", "sgld"], 1)],
    epochs=100,
    blocks=5,
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
