"""What ``network_speed.py`` compares with: other libraries' steps, and plain ways to predict.

Each ``..._steps`` function returns {label: ``run(n)`` that takes n steps and returns the network's
position}, and each library does it in the fastest way found with its public names. A library that
cannot be imported is left out, with a line.
"""

import itertools
import types

import numpy as np
import torch
from torch.func import functional_call, vmap

PRIOR_VARIANCE, RATE = 1.0, 1e-4


def posteriors_steps(net, X, y, batch):
    import posteriors

    rows, codes, n_rows = torch.from_numpy(X), torch.from_numpy(y), len(X)

    def log_posterior(parameters, data):
        logits = functional_call(net, parameters, (data[0],))
        log_lik = -n_rows * torch.nn.functional.cross_entropy(logits, data[1])
        squares = sum(p.square().sum() for p in parameters.values())
        return log_lik - squares / (2 * PRIOR_VARIANCE), torch.empty(0)

    sgld = posteriors.sgmcmc.sgld.build(log_posterior, lr=RATE / n_rows)
    state = sgld.init({name: p.detach().clone() for name, p in net.named_parameters()})

    def run(n):
        nonlocal state
        for chosen in torch.randint(n_rows, (n, batch)):
            state, _ = sgld.update(state, (rows[chosen], codes[chosen]))
        return state.params

    return {"posteriors, SGLD": run}


def in_jax(sizes):
    """Starting weights, log prior and log likelihood of a row, for jax."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    start = [
        (jnp.asarray(rng.standard_normal(pair) * np.sqrt(2.0 / pair[0]), "float32"),
         jnp.zeros(pair[1], "float32"))
        for pair in itertools.pairwise(sizes)
    ]  # fmt: skip

    def log_prior(theta):
        return -sum(jnp.sum(p**2) for p in jax.tree.leaves(theta)) / (2 * PRIOR_VARIANCE)

    def log_lik(theta, x, code):
        h = x
        for weight, bias in theta[:-1]:
            h = jax.nn.relu(h @ weight + bias)
        weight, bias = theta[-1]
        return jax.nn.log_softmax(h @ weight + bias)[code]

    return start, log_prior, log_lik


def blackjax_steps(sizes, X, y, batch, chains):
    import blackjax
    import jax
    import jax.numpy as jnp

    start, log_prior, log_lik = in_jax(sizes)
    rows, codes, n_rows = jnp.asarray(X), jnp.asarray(y), len(X)
    estimate = blackjax.sgmcmc.gradients.grad_estimator
    sgld = blackjax.sgld(estimate(log_prior, lambda theta, d: log_lik(theta, *d), n_rows))

    def step(key, theta, chosen):
        return sgld.step(key, theta, (rows[chosen], codes[chosen]), RATE / n_rows)

    @jax.jit
    def scan(theta, noise, chosen):
        def body(theta, now):
            return jax.vmap(step)(now[0], theta, now[1]), None

        return jax.lax.scan(body, theta, (noise, chosen))[0]

    theta, calls = jax.tree.map(lambda p: jnp.stack([p] * chains), start), 0

    def run(n):
        nonlocal theta, calls
        calls += 1
        first, second = jax.random.split(jax.random.key(calls))
        noise = jax.random.split(first, (n, chains))
        chosen = jax.random.randint(second, (n, chains, batch), 0, n_rows)
        theta = jax.block_until_ready(scan(theta, noise, chosen))
        return theta

    return {"blackjax, SGLD": run}


def sgmcmcjax_steps(sizes, X, y, batch):
    import jax
    import jax.experimental
    import jax.numpy as jnp

    # SGMCMCJax imports this module, gone from jax, for its progress bar, which is not used here.
    if not hasattr(jax.experimental, "host_callback"):
        jax.experimental.host_callback = types.ModuleType("host_callback")
    from sgmcmcjax import kernels

    start, log_prior, log_lik = in_jax(sizes)
    data = jnp.asarray(X), jnp.asarray(y)

    def runner(build):
        init, kernel, get_params = build(RATE / len(X), log_lik, log_prior, data, batch)
        state, calls = init(jax.random.key(0), start), 0

        @jax.jit
        def scan(state, keys):
            def body(state, now):
                return kernel(*now, state), None

            return jax.lax.scan(body, state, (jnp.arange(len(keys)), keys))[0]

        def run(n):
            nonlocal state, calls
            calls += 1
            keys = jax.random.split(jax.random.key(calls), n)
            state = jax.block_until_ready(scan(state, keys))
            return get_params(state)

        return run

    return {
        "SGMCMCJax, SGLD": runner(kernels.build_sgld_kernel),
        "SGMCMCJax, pSGLD": runner(kernels.build_psgld_kernel),
    }


def peer_steps(net, sizes, X, y, batch):
    """{(label, chains): run} of the libraries that there are."""
    found = {}
    for make, chains in (
        (lambda: posteriors_steps(net, X, y, batch), 1),
        (lambda: blackjax_steps(sizes, X, y, batch, 1), 1),
        (lambda: blackjax_steps(sizes, X, y, batch, 4), 4),
        (lambda: sgmcmcjax_steps(sizes, X, y, batch), 1),
    ):
        try:
            found |= {(label, chains): run for label, run in make().items()}
        except ImportError as error:
            print("left out:", error, flush=True)
    return found


# predictions --------------------------------------------------------------------------------------


def predictors(net, states, X):
    """Plain ways to average a module's probabilities over draws ``states`` {name: (draws, ...)}."""
    rows, n_draws = torch.from_numpy(X), len(next(iter(states.values())))

    def call(state, x):
        return torch.softmax(functional_call(net, state, (x,)), -1)

    def loop():
        each = ({name: values[k] for name, values in states.items()} for k in range(n_draws))
        return sum(call(state, rows) for state in each) / n_draws

    def mapped(size=1000):
        return torch.cat([vmap(call, (0, None))(states, x).mean(0) for x in rows.split(size)])

    def batched(size=1000):
        layers = list(zip(*[iter(states.values())] * 2, strict=True))  # weights, biases
        found = []
        for x in rows.split(size):
            h = x.expand(n_draws, -1, -1)
            for weight, bias in layers[:-1]:
                h = torch.relu_(torch.baddbmm(bias[:, None], h, weight.mT))
            weight, bias = layers[-1]
            found.append(torch.softmax(torch.baddbmm(bias[:, None], h, weight.mT), -1).mean(0))
        return torch.cat(found)

    return {"loop over draws": loop, "vmap, 1,000 rows": mapped, "bmm, 1,000 rows": batched}
