"""placeholder"""


def find_kernel(posterior, minibatches, sampler, cell, *, required):
    return None
