"""Make ``reference_ordinal.npz``: long NUTS runs of ordinal regressions and their data.

The model is that of ``BayesianOrdinalClassifier`` with its defaults: coefficients s / sd(x_j) z_j
with z_j ~ N(0, 1), s^2 ~ IG(5, 5 s_0^2) and s_0 = min(1, 2 / sqrt(number of features)); a flat
first cut point; log-normal gaps with the sd 2 of logarithms and the gaps of equally probable
classes as medians. NUTS moves in log(exp(gap / median) - 1), with the Jacobian in the density.

For each set the file holds, under the keys ``<name>/...``, "X", "y", the mean and sd of "coef",
"cutpoints", "log_gaps" and "log_scale", the Monte Carlo standard errors of the means (suffix
``_mcse``), and ``max_rhat``.

Command (sets may be named to make only those; the file is updated after each)::

    python make_reference_ordinal.py [set ...]

Made with numpyro 0.22.0 and scikit-learn 1.9.1 on one CPU core.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from _nuts import drawn, moments, of_model, update
from jax.nn import softplus
from scipy.special import logit
from sklearn.datasets import load_iris

OUTPUT = Path(__file__).with_name("reference_ordinal.npz")
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
    given = SETS.index(name), X, y, int(y.max()) + 1
    draws, run = drawn(of_model(model, 0.95), *given, n_warmup=1000, n_draws=2500)
    parts = ("coef", "cutpoints", "log_gaps", "log_scale")
    found, quality = moments({part: draws[part] for part in parts})
    print(f"{name}: {quality}, {run}", flush=True)
    return {"X": X, "y": y} | found


if __name__ == "__main__":
    update(OUTPUT, SETS, make)
