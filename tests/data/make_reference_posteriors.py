"""Make ``reference_posteriors.npz``: long NUTS runs for Bayesian logistic regression.

Model.  Binary: p(y = 1 | x) = sigmoid(x . beta + b).  K classes: softmax(B x + b), with all K x d
entries of B free and the intercepts b restricted to sum(b) = 0.  The coefficients have independent
priors, N(0, prior_scale^2), or Laplace with that scale where the set's name ends in "_laplace".
The prior on the intercepts is flat (improper).

For each set the file holds, under the keys ``<name>/...``:

* ``coef_mean``, ``coef_sd`` (K x d; 1 x d if binary), ``intercept_mean``, ``intercept_sd`` (K; 1 if
  binary), and the Monte Carlo standard error of each, the same key with ``_mcse`` appended;
* ``proba_mean`` (50 x number of classes): posterior mean of the class probabilities of rows 0..49,
  and ``proba_mean_mcse``;
* ``min_ess`` (smallest bulk effective sample size), ``max_rhat`` (largest rank-normalised split
  R-hat, bulk and folded), both over all coefficients and intercepts; ``n_draws``;
  ``sampling_seconds`` (after warm-up, on the machine that made the file); ``prior_scale``.

Command (sets may be named to make only those; the file is updated after each)::

    SKBAYES_DATA=folder python make_reference_posteriors.py [set ...]

The folder must contain ``a9a.npz`` and ``australian.npz``; the other sets come with scikit-learn.
Made with numpyro 0.22.0, jax 0.10.2 and scikit-learn 1.9.1 on one CPU core.
"""

import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.datasets
from _nuts import N_CHAINS, update
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy.linalg import null_space, solve_triangular
from scipy.special import softmax
from scipy.stats import norm, rankdata
from sklearn.preprocessing import StandardScaler

OUTPUT = Path(__file__).with_name("reference_posteriors.npz")
N_WARMUP, N_PROBA_ROWS = 1000, 50
SETS = {  # name: (prior scale, kept draws per chain)
    "australian": (10.0, 20_000),
    "breast_cancer": (1.0, 20_000),
    "wine": (1.0, 20_000),
    "iris": (1.0, 20_000),
    "a9a": (np.sqrt(10.0), 5_000),
    "australian_laplace": (1.0, 20_000),
    "breast_cancer_laplace": (1.0, 20_000),
    "digits": (np.sqrt(10.0), 10_000),
}


def load(name):
    """Return X (float64, dense) and y (0, 1, ...)."""
    if name == "a9a":
        f = np.load(Path(os.environ["SKBAYES_DATA"]) / "a9a.npz")
        indptr, y = f["indptr_train"].astype(np.int64), f["y_train"]
        X = np.zeros((len(y), int(f["n_features"])))
        X[np.repeat(np.arange(len(y)), np.diff(indptr)), f["indices_train"]] = 1.0
        return X, (y == 1).astype(int)
    if name.startswith("australian"):
        f = np.load(Path(os.environ["SKBAYES_DATA"]) / "australian.npz")
        X, y = f["X"], f["y"].astype(int)
    else:
        bundled = name.removesuffix("_laplace")
        X, y = getattr(sklearn.datasets, f"load_{bundled}")(return_X_y=True)
    if name == "digits":  # like a9a: ones and zeros, some columns with few ones or none
        return (X > 8).astype(float), y % 2
    return (X if name == "iris" else StandardScaler().fit_transform(X)), y


class Model:
    """Negative log posterior (``energy``) as a function of one flat vector theta."""

    def __init__(self, X, y, prior_scale):
        self.X, self.y, self.scale = jnp.asarray(X), jnp.asarray(y), prior_scale
        self.K, self.d = (1 if y.max() == 1 else int(y.max()) + 1), X.shape[1]
        # Orthonormal columns spanning the intercepts' space, so "flat" is flat on that plane.
        self.Q = np.eye(1) if self.K == 1 else null_space(np.ones((1, self.K)))
        self.size = self.K * self.d + self.Q.shape[1]

    def unpack(self, theta):
        """Coefficients (..., K, d) and intercepts (..., K)."""
        m = self.K * self.d
        coef = theta[..., :m].reshape((*theta.shape[:-1], self.K, self.d))
        return coef, theta[..., m:] @ self.Q.T

    def energy(self, theta, laplace=False):
        coef, intercept = self.unpack(theta)
        if self.K == 1:
            z = self.X @ coef[0] + intercept[0]
            nll = jnp.sum(jax.nn.softplus(z) - self.y * z)
        else:
            z = self.X @ coef.T + intercept
            nll = -jnp.sum(jax.nn.log_softmax(z, axis=1)[jnp.arange(len(self.y)), self.y])
        if laplace:
            return nll + jnp.sum(jnp.abs(coef)) / self.scale
        return nll + 0.5 * jnp.sum(coef**2) / self.scale**2

    def proba(self, coef, intercept):  # (draws, rows, classes), of the first rows
        z = coef @ np.asarray(self.X[:N_PROBA_ROWS]).T + intercept[..., None]
        if self.K == 1:
            z = np.concatenate([np.zeros_like(z), z], axis=1)
        return np.swapaxes(softmax(z, axis=1), 1, 2)


def laplace_approximation(model):
    """MAP and the factor L, L L^T = inverse Hessian there, for the Gaussian prior (Newton)."""
    energy, grad = jax.jit(model.energy), jax.jit(jax.grad(model.energy))
    hessian = jax.jit(jax.hessian(model.energy))
    theta = jnp.zeros(model.size)
    for _ in range(50):
        g = grad(theta)
        step = jnp.linalg.solve(hessian(theta), g)
        decrement, t = g @ step, 1.0
        # At convergence rounding hides any decrease: take the last full step and stop.
        while decrement > 1e-10 and energy(theta - t * step) > energy(theta) - 0.1 * t * decrement:
            t /= 2
        theta = theta - t * step
        if decrement < 1e-10:
            break
    chol = np.linalg.cholesky(hessian(theta))
    return np.asarray(theta), solve_triangular(chol, np.eye(model.size), lower=True).T


def ess(x):
    return effective_sample_size(np.concatenate(np.split(x, 2, axis=1)))  # half chains as chains


def rank_normalise(x):
    ranks = rankdata(x.reshape(-1, x.shape[-1]), axis=0)
    return norm.ppf((ranks - 0.375) / (len(ranks) + 0.25)).reshape(x.shape)


def moments(x):
    """Mean, sd and their MCSEs over the first two axes (chain, draw)."""
    mean, sd = x.mean((0, 1)), x.std((0, 1), ddof=1)
    mean_mcse = sd / np.sqrt(ess(x))
    # Delta method: sd(x) = sqrt(mean of squares), so its error is that of the mean square / 2 sd.
    # (NUTS draws alternate about the mean: squares have a far smaller effective size than draws.)
    square = (x - mean) ** 2
    square_mcse = square.std((0, 1)) / np.sqrt(ess(square))
    return mean, sd, mean_mcse, square_mcse / (2 * sd)


def make(name):
    prior_scale, n_draws = SETS[name]
    seed = list(SETS).index(name)
    laplace_prior = name.endswith("_laplace")
    model = Model(*load(name), prior_scale)
    # The MAP under a Laplace prior is not smooth; whiten with the Gaussian prior instead.  The
    # whitening affects the sampler's speed only, not its target.
    centre, L = laplace_approximation(model)

    def potential(phi):
        return model.energy(centre + L @ phi, laplace=laplace_prior)

    kernel = NUTS(potential_fn=potential, dense_mass=False)
    chains = {"num_chains": N_CHAINS, "chain_method": "sequential", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=N_WARMUP, num_samples=n_draws, **chains)
    key_init, key_run = jax.random.split(jax.random.PRNGKey(seed))
    # Starts wider than the posterior, so that R-hat can show a chain which has not mixed.
    mcmc.warmup(key_run, init_params=2 * jax.random.normal(key_init, (N_CHAINS, model.size)))
    start = time.perf_counter()
    mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=("num_steps", "diverging"))
    phi = np.asarray(mcmc.get_samples(group_by_chain=True))  # waits for the draws
    seconds = time.perf_counter() - start

    coef, intercept = model.unpack(centre + phi @ L.T)
    flat = np.concatenate([coef.reshape(N_CHAINS, n_draws, -1), intercept], axis=-1)
    bulk, folded = rank_normalise(flat), rank_normalise(np.abs(flat - np.median(flat, (0, 1))))
    out = {
        "prior_scale": prior_scale,
        "min_ess": ess(bulk).min(),
        "max_rhat": max(split_gelman_rubin(bulk).max(), split_gelman_rubin(folded).max()),
        "n_draws": N_CHAINS * n_draws,
        "sampling_seconds": seconds,
    }
    for part, x in (("coef", flat[..., : -model.K]), ("intercept", flat[..., -model.K :])):
        for stat, v in zip(("mean", "sd", "mean_mcse", "sd_mcse"), moments(x), strict=True):
            out[f"{part}_{stat}"] = v.reshape(model.K, -1) if part == "coef" else v
    proba = np.stack([model.proba(c, i) for c, i in zip(coef, intercept, strict=True)])
    out["proba_mean"], _, out["proba_mean_mcse"], _ = moments(proba)

    extra = mcmc.get_extra_fields()
    steps, divergent = np.mean(extra["num_steps"]), np.sum(extra["diverging"])
    print(f"{name}: min ESS {out['min_ess']:.0f}, max R-hat {out['max_rhat']:.5f}, {seconds:.0f} s")
    print(f"  {steps:.1f} leapfrog steps per draw, {divergent} divergent draws", flush=True)
    return out


if __name__ == "__main__":
    update(OUTPUT, SETS, make)
