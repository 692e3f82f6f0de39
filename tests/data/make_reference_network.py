"""Make reference_network.npz: NUTS of a small network whose prior learns its scales.

    python tests/data/make_reference_network.py

needs numpyro and jax, which the package does not. The model is that of ``LearnedScalesModel``: a
tanh network with 2 inputs and 8 hidden units, one scale for each input, one for each other block,
and normal noise that is learned. NUTS samples the weights divided by their scales, the logarithms
of the scales and of b, and the logarithm of the noise.

The file has ``X``, ``y``, ``X_new``; ``mean`` and ``sd`` of f(X_new), and those of the first and of
the second half of the chains (``halves``); ``scale_mean`` and ``scale_sd`` of log s, in the order
of ``names``; ``r_hat``, the largest one of f(X_new).
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import gelman_rubin
from numpyro.infer import MCMC, NUTS

jax.config.update("jax_enable_x64", True)

A, HIDDEN, TYPICAL_NOISE, CHAINS, DRAWS = 1.0, 8, 0.3, 4, 1500
#: "auto" typical scales: twice those of fan-in, but at most 1
TYPICAL = {"weight_1": 1.0, "bias_1": 1.0, "weight_2": 2.0 / np.sqrt(HIDDEN), "bias_2": 1.0}


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.standard_normal(60)
    return X, y, rng.uniform(-2.0, 2.0, (40, 2))


def network(w, X):
    return jnp.tanh(X @ w["weight_1"] + w["bias_1"]) @ w["weight_2"] + w["bias_2"]


def scale(name, b, shape=()):
    """log s with s^2 ~ IG(A, b)."""
    tau = numpyro.sample(f"tau_{name}", dist.Gamma(A, b).expand(shape).to_event(len(shape)))
    return numpyro.deterministic(f"log_{name}", -0.5 * jnp.log(tau))


def model(X, y):
    b = numpyro.sample("b", dist.Gamma(A, 1.0 / TYPICAL["weight_1"] ** 2))
    shapes = {"weight_1": (2, HIDDEN), "bias_1": (HIDDEN,), "weight_2": (HIDDEN,), "bias_2": ()}
    w = {}
    for name, shape in shapes.items():
        first = name == "weight_1"
        s = jnp.exp(
            scale(name, b, (2,)) if first else scale(name, A * min(TYPICAL[name], 1.0) ** 2)
        )
        z = numpyro.sample(f"z_{name}", dist.Normal().expand(shape).to_event(len(shape)))
        w[name] = numpyro.deterministic(name, z * (s[:, None] if first else s))
    noise = numpyro.sample("log_noise", dist.Normal())
    numpyro.sample("y", dist.Normal(network(w, X), TYPICAL_NOISE * jnp.exp(noise)), obs=y)


def main():
    X, y, X_new = data()
    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9), num_warmup=1000, num_samples=DRAWS,
        num_chains=CHAINS, chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.PRNGKey(0), X, y)
    draws = {name: np.asarray(v) for name, v in mcmc.get_samples(group_by_chain=True).items()}
    weights = {name: draws[name] for name in TYPICAL}
    f = np.asarray(jax.vmap(jax.vmap(lambda w: network(w, X_new)))(weights))
    halves = [f[: CHAINS // 2], f[CHAINS // 2 :]]
    names = ["weight_1[0]", "weight_1[1]", "bias_1", "weight_2", "bias_2"]
    logs = np.concatenate([draws["log_weight_1"], *(
        draws[f"log_{name}"][..., None] for name in names[2:]
    )], axis=2)  # fmt: skip
    found = {
        "X": X, "y": y, "X_new": X_new, "mean": f.mean((0, 1)), "sd": f.std((0, 1)),
        "halves": np.stack([[half.mean((0, 1)), half.std((0, 1))] for half in halves]),
        "names": np.array(names), "scale_mean": logs.mean((0, 1)), "scale_sd": logs.std((0, 1)),
        "noise_mean": draws["log_noise"].mean(), "noise_sd": draws["log_noise"].std(),
        "r_hat": np.max(gelman_rubin(f)),
    }  # fmt: skip
    print({name: np.round(found[name], 3) for name in ("r_hat", "scale_mean", "scale_sd")})
    print("scales' R-hat", np.round(gelman_rubin(logs), 3))
    np.savez_compressed(Path(__file__).parent / "reference_network.npz", **found)


if __name__ == "__main__":
    main()
