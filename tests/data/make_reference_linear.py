"""Make ``reference_linear.npz``: long NUTS runs of linear models whose prior scales are learned.

The scales are parameters here, which the package integrates out: w_j = s u_j z_j with
z_j ~ N(0, 1), u_j = 1 / sd(x_j), and s^2 ~ IG(a, a s_0^2); with a scale for each feature
s_j^2 ~ IG(a, b) and b ~ Gamma(a, 1 / s_0^2). a = 5 and s_0 = min(1, 2 / sqrt(number of features)).
The intercept of two classes is flat. Those of more classes are flat in units of the one scale.

For each set the file holds, under the keys ``<name>/...``, the mean and sd of "coef", "intercept"
and "log_scale", and the Monte Carlo standard errors of the means (suffix ``_mcse``), and
``max_rhat``.

Command (sets may be named to make only those; the file is updated after each)::

    python make_reference_linear.py [set ...]

Made with numpyro 0.22.0, jax 0.10.2 and scikit-learn 1.9.1 on one CPU core.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.datasets
from _nuts import N_CHAINS, drawn, moments, update
from numpyro.infer import NUTS
from scipy.linalg import helmert

OUTPUT = Path(__file__).with_name("reference_linear.npz")
#: name: (data set, whether each feature has its own scale)
SETS = {
    "iris": ("iris", False),
    "breast_cancer": ("breast_cancer", False),
    "breast_cancer_ard": ("breast_cancer", True),
}


class Logistic:
    """-log posterior of logistic regression, as a function of a dict of parameters."""

    def __init__(self, name, own):
        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
        self.X, self.units = jnp.asarray(X - X.mean(0)), jnp.asarray(1.0 / X.std(0))
        self.center, self.own, self.K = X.mean(0), own, 1 if y.max() == 1 else int(y.max()) + 1
        self.y, self.d = jnp.asarray(y), X.shape[1]
        # orthonormal columns that span the intercepts' space
        self.Q = np.ones((1, 1)) if self.K == 1 else helmert(self.K).T
        self.a, self.s_0 = 5.0, min(1.0, 2.0 / np.sqrt(self.d))

    def start(self, rng):
        n = self.d if self.own else 1
        found = {"z": (self.K, self.d), "b": (self.Q.shape[1],), "log_s": (n,)}
        found |= {"x": ()} if self.own else {}
        return {k: 0.1 * rng.standard_normal((N_CHAINS, *shape)) for k, shape in found.items()}

    def coefficients(self, p):
        """Coefficients (..., K, d), and intercepts (..., K) of rows that are not centred."""
        coef = p["z"] * jnp.exp(p["log_s"])[..., None, :] * self.units
        return coef, p["b"] @ self.Q.T

    def energy(self, p):
        coef, b = self.coefficients(p)
        z = self.X @ coef.T + b
        if self.K == 1:
            nll = jnp.sum(jax.nn.softplus(z[:, 0]) - self.y * z[:, 0])
        else:
            nll = -jnp.sum(jax.nn.log_softmax(z, axis=1)[jnp.arange(len(self.y)), self.y])
        rate, hyper = self.a * self.s_0**2, 0.0
        if self.own:  # x = log(b / (a s_0^2))
            rate, hyper = rate * jnp.exp(p["x"]), self.a * (jnp.exp(p["x"]) - p["x"])
        log_s = p["log_s"]
        scales = 2 * self.a * log_s + rate * jnp.exp(-2 * log_s) - self.a * jnp.log(rate)
        relative = 0.0 if self.K == 1 or self.own else self.Q.shape[1] * jnp.sum(log_s)
        return nll + 0.5 * jnp.sum(p["z"] ** 2) + jnp.sum(scales) + hyper + relative


def make(name):
    model, seed = Logistic(*SETS[name]), list(SETS).index(name)
    kernel = NUTS(potential_fn=model.energy, dense_mass=True, target_accept_prob=0.9)
    start = model.start(np.random.default_rng(seed))
    p, run = drawn(kernel, seed, init_params=start, n_warmup=800, n_draws=3000)
    coef, b = (np.asarray(v) for v in model.coefficients(p))
    shift = coef @ model.center  # to intercepts of rows as they are; they sum to zero
    b = b - shift if model.K == 1 else b - shift + shift.mean(-1, keepdims=True)
    found, quality = moments({"coef": coef, "intercept": b, "log_scale": p["log_s"]})
    print(f"{name}: {quality}, {run}", flush=True)
    return found


if __name__ == "__main__":
    update(OUTPUT, SETS, make)
