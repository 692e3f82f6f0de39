"""Make ``reference_ordinal.npz``: long NUTS runs of ordinal regressions and their data.

The model is that of ``BayesianOrdinalClassifier`` with its defaults: coefficients s / sd(x_j) z_j
with z_j ~ N(0, 1), s^2 ~ IG(5, 5 s_0^2) and s_0 = min(1, 2 / sqrt(number of features)); a flat
first cut point; log-normal gaps with the sd 2 of logarithms and the gaps of equally probable
classes as medians. NUTS moves in log(exp(gap / median) - 1), with the Jacobian in the density.

For each set the file holds, under the keys ``<name>/...``, "X", "y", the mean and sd of "coef",
"cutpoints", "log_gaps" and "log_scale", and ``max_rhat``.

Command (sets may be named to make only those; the file is updated after each)::

    python make_reference_ordinal.py [set ...]

Made with numpyro 0.22.0 and scikit-learn 1.9.1 on one CPU core.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import softplus
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy.special import logit
from sklearn.datasets import load_iris

numpyro.enable_x64()

OUTPUT = Path(__file__).with_name("reference_ordinal.npz")
N_CHAINS, N_WARMUP, N_DRAWS = 4, 1000, 2500
#: name: rows, features, classes of equal size that the first feature separates without an error
SEPARATED = {"three": (300, 1, 3), "eight_of_30": (30, 2, 8), "twelve": (1000, 2, 12)}
SETS = ("iris", *SEPARATED, "rare")


def data(name):
    """X and y of a set; those of simulated sets depend on the name alone."""
    rng = np.random.default_rng(SETS.index(name))
    if name == "iris":
        return load_iris(return_X_y=True)
    if name == "rare":  # three rows of 300 in a class between others
        X = rng.standard_normal((300, 2))
        ordered = np.sort(X[:, 0])
        return X, np.digitize(X[:, 0], [ordered[100], ordered[103], ordered[240]])
    n, d, n_classes = SEPARATED[name]
    X = rng.standard_normal((n, d))
    return X, np.digitize(X[:, 0], np.quantile(X[:, 0], np.arange(1, n_classes) / n_classes))


def model(X, y, n_classes):
    scaled, d = (X - X.mean(0)) / X.std(0), X.shape[1]
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    log_s = numpyro.sample("log_scale", flat)
    b = 5.0 * min(1.0, 2.0 / np.sqrt(d)) ** 2
    numpyro.factor("of_scale", -10.0 * log_s - b * jnp.exp(-2.0 * log_s))
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), (d,)))
    numpyro.factor("of_w", dist.Normal(0.0, jnp.exp(log_s)).log_prob(w).sum())
    first = numpyro.sample("first", flat)
    x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), (n_classes - 2,)))
    log_gaps = jnp.log(softplus(x))
    numpyro.factor("of_x", (-0.5 * (log_gaps / 2.0) ** 2 - log_gaps - softplus(-x)).sum())
    gaps = np.diff(logit(np.arange(1, n_classes) / n_classes)) * softplus(x)
    cuts = first + jnp.pad(gaps.cumsum(), (1, 0))
    edges = jnp.pad(cuts, 1, constant_values=jnp.inf).at[0].set(-jnp.inf)
    f, width = scaled @ w, jnp.pad(gaps, 1, constant_values=jnp.inf)[y]
    log_p = -softplus(f - edges[y + 1]) - softplus(edges[y] - f) + jnp.log(-jnp.expm1(-width))
    numpyro.factor("of_rows", log_p.sum())
    coef = numpyro.deterministic("coef", w / X.std(0))
    numpyro.deterministic("cutpoints", cuts + coef @ X.mean(0))
    numpyro.deterministic("log_gaps", jnp.log(gaps))


def make(name):
    X, y = data(name)
    kernel = NUTS(model, dense_mass=True, target_accept_prob=0.95,
                  init_strategy=numpyro.infer.init_to_uniform(radius=0.3))  # fmt: skip
    mcmc = MCMC(kernel, num_warmup=N_WARMUP, num_samples=N_DRAWS, num_chains=N_CHAINS,
                chain_method="sequential", progress_bar=False)  # fmt: skip
    mcmc.run(jax.random.PRNGKey(SETS.index(name)), X, y, int(y.max()) + 1,
             extra_fields=("diverging",))  # fmt: skip
    draws, out, largest, worst = mcmc.get_samples(group_by_chain=True), {"X": X, "y": y}, 0.0, 0.0
    for part in ("coef", "cutpoints", "log_gaps", "log_scale"):
        each = np.asarray(draws[part])
        out |= {f"{part}_mean": each.mean((0, 1)), f"{part}_sd": each.std((0, 1), ddof=1)}
        largest = max(largest, float(np.max(split_gelman_rubin(each))))
        worst = max(worst, float(np.max(effective_sample_size(each) ** -0.5)))
    print(f"{name}: max R-hat {largest:.4f}, MCSE {worst:.4f} sd, "
          f"{int(np.sum(mcmc.get_extra_fields()['diverging']))} divergent", flush=True)  # fmt: skip
    return {f"{name}/{key}": np.asarray(v) for key, v in (out | {"max_rhat": largest}).items()}


def main():
    saved = dict(np.load(OUTPUT)) if OUTPUT.exists() else {}
    for name in sys.argv[1:] or SETS:
        saved.update(make(name))
        np.savez_compressed(OUTPUT, **saved)


if __name__ == "__main__":
    main()
