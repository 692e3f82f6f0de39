"""SGLD by hand in jax, jitted over many steps: what another library can at best do."""

import numpy as np
from _network_peers import PRIOR_VARIANCE, RATE, in_jax


def sgld(workload, X, y, chains):
    """``run(n)`` that takes n steps of all chains in one compiled loop (``lax.scan``)."""
    import jax
    import jax.numpy as jnp

    start, log_prior, log_lik = (
        in_jax(workload.sizes) if workload.sizes else convolutions(workload.module())
    )
    rows, codes, n_rows = jnp.asarray(X.reshape(len(X), -1)), jnp.asarray(y), len(X)
    rate = RATE / n_rows

    def potential(theta, x, labels):
        found = jax.vmap(lambda row, code: log_lik(theta, row, code))(x, labels)
        return -log_prior(theta) - found.mean() * n_rows

    def step(theta, key):
        first, second = jax.random.split(key)
        chosen = jax.random.randint(first, (workload.batch,), 0, n_rows)
        slopes = jax.grad(potential)(theta, rows[chosen], codes[chosen])
        leaves, form = jax.tree.flatten(theta)
        keys = jax.random.split(second, len(leaves))
        noise = [jax.random.normal(k, p.shape, p.dtype) for k, p in zip(keys, leaves, strict=True)]
        noise = jax.tree.unflatten(form, noise)
        return jax.tree.map(
            lambda p, g, xi: p - rate * g + np.sqrt(2.0 * rate) * xi, theta, slopes, noise
        )

    @jax.jit
    def scan(theta, keys):
        return jax.lax.scan(lambda at, now: (jax.vmap(step)(at, now), None), theta, keys)[0]

    theta, calls = jax.tree.map(lambda p: jnp.stack([p] * chains), start), 0

    def run(n):
        nonlocal theta, calls
        calls += 1
        keys = jax.random.split(jax.random.key(calls), (n, chains))
        theta = jax.block_until_ready(scan(theta, keys))
        return theta

    return run


def convolutions(module):
    """Starting weights, log prior and log likelihood of a network of ``cnn_module``, for jax."""
    import jax
    import jax.numpy as jnp
    from torch import nn

    layers = [layer for layer in module if isinstance(layer, nn.Conv2d | nn.Linear)]
    start = [tuple(jnp.asarray(p.detach().numpy()) for p in layer.parameters()) for layer in layers]
    n_convolved = sum(isinstance(layer, nn.Conv2d) for layer in layers)

    def log_prior(theta):
        return -sum(jnp.sum(p**2) for p in jax.tree.leaves(theta)) / (2 * PRIOR_VARIANCE)

    def log_lik(theta, x, code):
        h = x.reshape(1, 1, 28, 28)
        for weight, bias in theta[:n_convolved]:
            h = jax.lax.conv_general_dilated(h, weight, (1, 1), "SAME") + bias[:, None, None]
            h = jax.nn.relu(h)
            h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        h = h.reshape(-1)
        for weight, bias in theta[n_convolved:-1]:
            h = jax.nn.relu(weight @ h + bias)
        weight, bias = theta[-1]
        return jax.nn.log_softmax(weight @ h + bias)[code]

    return start, log_prior, log_lik


def numbers(workload, small, chains, steps):
    """Time of a step; the first call compiles."""
    import time

    X, y = workload.data(small)
    run = sgld(workload, X, y, chains)
    run(steps)
    found = []
    for _ in range(3):
        start = time.perf_counter()
        theta = run(steps)
        found.append((time.perf_counter() - start) / steps)
    import jax

    if not all(np.isfinite(np.asarray(p)).all() for p in jax.tree.leaves(theta)):
        raise ValueError("the chains have diverged")
    return {"ms": 1e3 * min(found), "device": str(jax.devices()[0]), "jax": jax.__version__}
