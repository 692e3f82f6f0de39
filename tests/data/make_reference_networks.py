"""Make reference_networks.npz: long NUTS runs of the posteriors of eight small networks.

    SKBAYES_DATA=folder python tests/data/make_reference_networks.py [name ...]

needs numpyro and jax, which the package does not, and not the package: the densities below were
written a second time. Learned scales are integrated out, so that NUTS samples the weights and, with
one scale for each input, log b. Half of the chains start where Adam stops, half at random.

For each network "NAME/...": ``mean`` and ``sd``, of shape (chains, 2, rows), of f (the regression
function) in both halves of every chain or, of shape (chains, 2, rows, classes), of the
probabilities of the classes; several targets have an axis of their own, and the classes of all
follow each other. ``r_hat``, the median and the largest one of these; ``nll`` of new targets, of
all chains and of each, where several columns of classes have the sum of theirs; ``last``
positions, in the order of the estimator's parameters; ``log_density`` at these, up to a constant;
``seconds`` of processor time.
"""

import sys
import time
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benchmarks"))
from _network_truth import CASES, FILE, load

jax.config.update("jax_enable_x64", True)

CHAINS = 4
TYPICAL_NOISE, NOISE_FLOOR, LOGIT_GAIN = 0.3, 1e-3, 4.0
#: shape of the hyperprior of learned scales, and their typical size in units of fan-in's
A, WIDER = 1.0, 2.0


def rounding(y):
    """1/sqrt(12) of the smallest gap, if most targets occur more than once."""
    values, counts = np.unique(y, return_counts=True)
    return np.diff(values).min() / np.sqrt(12) if counts[counts > 1].sum() > 0.5 * len(y) else 0.0


class Posterior:
    """The density of one case, as a function of theta and log b."""

    def __init__(self, name):
        self.case = case = CASES[name]
        X, y, X_new, self.y_new = load(name)
        center, scale = X.mean(0), X.std(0)
        self.X, self.X_new = (X - center) / scale, (X_new - center) / scale
        self.several = y.ndim == 2
        y, self.y_new = (values.reshape(len(values), -1) for values in (y, self.y_new))
        n_targets = y.shape[1]
        if case.noise is None:
            self.y, classes = jnp.asarray(y), [int(labels.max()) + 1 for labels in y.T]
            self.ends = np.cumsum(classes)
            n_outputs = self.ends[-1]
        else:
            self.y_center, self.y_scale = y.mean(0), y.std(0)
            self.y = jnp.asarray((y - self.y_center) / self.y_scale)
            n_outputs = n_targets
            if case.noise == "heteroscedastic":  # of one target
                self.floor = max(NOISE_FLOOR, rounding(y) / self.y_scale[0])
                n_outputs = 2
        self.sizes = (X.shape[1], *case.hidden, n_outputs)
        self.own = n_targets if case.noise == "infer" else 0
        self.n = sum(a * b + b for a, b in pairwise(self.sizes)) + self.own
        self.typical, self.group, self.group_typical = self.groups()
        self.counts = np.bincount(self.group[self.group >= 0])

    def groups(self):
        """The scale of every parameter, its group (-1: none), and the typical scale of groups."""
        scales, group, last, start = [], [], len(self.sizes) - 2, 0
        gain = 1.0 if self.case.noise else LOGIT_GAIN
        for layer, (before, after) in enumerate(pairwise(self.sizes)):
            spread = gain / np.sqrt(before) if layer == last else np.sqrt(2.0 / before)
            within = np.zeros((before, after), int)
            if layer == 0:
                within += np.arange(before)[:, None]  # one for each input
            elif layer == last and self.case.noise == "heteroscedastic":
                within += np.arange(2)  # one for means, one for the noise
            for block, scale in ((within, spread), (np.zeros(after, int), 1.0)):
                group.append(start + block.ravel())
                scales.append(np.full(block.size, scale))
                start += block.max() + 1
        if self.own:
            group.append(np.full(self.own, -1))
            scales.append(np.ones(self.own))
        scales, group = np.concatenate(scales), np.concatenate(group)
        typical = np.minimum(WIDER * scales, 1.0)
        return scales, group, np.array([typical[group == g][0] for g in range(start)])

    def outputs(self, theta, X):
        h, start = X, 0
        for layer, (before, after) in enumerate(pairwise(self.sizes)):
            middle, stop = start + before * after, start + before * after + after
            h = h @ theta[start:middle].reshape(before, after) + theta[middle:stop]
            h = jax.nn.relu(h) if layer < len(self.sizes) - 2 else h
            start = stop
        return h

    def noise_sd(self, theta, f):
        """Of each row and target."""
        if self.own:
            return TYPICAL_NOISE * jnp.exp(theta[-self.own :]) * jnp.ones_like(f)
        t = f[:, 1:] + np.log(TYPICAL_NOISE)
        return self.floor + jnp.where(t > 0.0, 1.0 + t, jnp.exp(jnp.minimum(t, 0.0)))

    def log_lik(self, theta):
        f = self.outputs(theta, self.X)
        if self.case.noise is None:
            rows, logits = jnp.arange(len(f)), jnp.split(f, self.ends[:-1], axis=1)
            return sum(
                (of_target[rows, labels] - logsumexp(of_target, axis=1)).sum()
                for of_target, labels in zip(logits, self.y.T, strict=True)
            )
        sd = self.noise_sd(theta, f)
        return (-0.5 * ((self.y - f[:, : self.y.shape[1]]) / sd) ** 2 - jnp.log(sd)).sum()

    def log_prior(self, theta, log_b):
        if self.case.prior == "fan_in":
            return -0.5 * jnp.sum((theta / self.typical) ** 2)
        inside = self.group >= 0
        squares = jnp.zeros(len(self.counts)).at[self.group[inside]].add(theta[inside] ** 2)
        n, shared = self.sizes[0], self.group_typical[0]
        b = A * jnp.asarray(self.group_typical) ** 2
        b = b.at[:n].set(jnp.exp(log_b))
        k = A + 0.5 * self.counts
        learned = (gammaln(k) + A * jnp.log(b) - k * jnp.log(b + 0.5 * squares)).sum()
        hyper = A * log_b - jnp.exp(log_b) / shared**2
        return learned + hyper - 0.5 * jnp.sum(theta[~inside] ** 2)

    def log_density(self, z):
        """Of z = (theta, log b); log b is there for learned scales only."""
        theta = z[: self.n]
        return self.log_lik(theta) + self.log_prior(theta, z[-1])

    def log_marginal(self, theta):
        """Of theta, with log b integrated out by the trapezoidal rule."""
        if self.case.prior == "fan_in":
            return self.log_density(theta)
        x = jnp.linspace(-25.0, 12.0, 4001)
        over = jax.vmap(lambda log_b: self.log_prior(theta, log_b))(x)
        return self.log_lik(theta) + logsumexp(over) + jnp.log(x[1] - x[0])

    # starts ---------------------------------------------------------------------------------------

    def random_start(self, rng):
        parts = []
        for before, after in pairwise(self.sizes):
            weight = rng.standard_normal((before, after)) * np.sqrt(2.0 / before)
            parts += [weight.ravel(), np.zeros(after)]
        if self.case.noise == "heteroscedastic":
            parts[-2].reshape(-1, 2)[:, 1] = 0.0
        return np.concatenate([*parts, np.zeros(self.own + (self.case.prior == "learned"))])

    def optimised(self, z, n_steps=3000, rate=0.01):
        """Adam on all rows."""
        gradient = jax.grad(lambda z: -self.log_density(z))

        def step(k, carry):
            z, m, v = carry
            g = gradient(z)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            up, down = m / (1 - 0.9 ** (k + 1.0)), v / (1 - 0.999 ** (k + 1.0))
            return z - rate * up / (jnp.sqrt(down) + 1e-8), m, v

        return jax.lax.fori_loop(0, n_steps, step, (z, 0 * z, 0 * z))[0]

    # what is kept ---------------------------------------------------------------------------------

    def predictions(self, z):
        """(chains, draws, rows, ...): f or probabilities; and the noise's sd, or None."""
        f = jax.lax.map(jax.vmap(lambda one: self.outputs(one[: self.n], self.X_new)), z)
        if self.case.noise is None:
            logits = jnp.split(f, self.ends[:-1], axis=-1)
            return np.concatenate([jax.nn.softmax(of_target) for of_target in logits], -1), None
        sd = jax.vmap(jax.vmap(self.noise_sd))(z[..., : self.n], f)
        found = np.asarray(f[..., : self.y.shape[1]]) * self.y_scale + self.y_center
        return found, np.asarray(sd) * self.y_scale

    def nll(self, found, noise):
        """Of the mixture over all given draws (chains, draws, rows, ...)."""
        flat = found.reshape(-1, *found.shape[2:])
        if noise is None:
            starts, rows = np.r_[0, self.ends[:-1]], np.arange(len(self.y_new))
            return -np.log(flat.mean(0)[rows[:, None], starts + self.y_new]).sum(1).mean()
        sd = noise.reshape(flat.shape)
        z = (self.y_new - flat) / sd
        logs = (-0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi)).sum(2)
        return -(logsumexp(logs, axis=0) - np.log(len(flat))).mean()


def run(name):
    started, case, model = time.process_time(), CASES[name], Posterior(name)
    rng = np.random.default_rng(1)
    starts = np.stack([model.random_start(rng) for _ in range(CHAINS)])
    starts[: CHAINS // 2] = jax.lax.map(jax.jit(model.optimised), starts[: CHAINS // 2])
    kernel = NUTS(
        potential_fn=lambda z: -model.log_density(z), target_accept_prob=0.8, max_tree_depth=8
    )
    mcmc = MCMC(
        kernel, num_warmup=case.warmup, num_samples=case.draws, num_chains=CHAINS,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.run(
        jax.random.PRNGKey(0), init_params=jnp.asarray(starts),
        extra_fields=("num_steps", "diverging", "accept_prob"),
    )  # fmt: skip
    z = np.asarray(mcmc.get_samples(group_by_chain=True))
    extra = {key: np.asarray(value) for key, value in mcmc.get_extra_fields(True).items()}
    found, noise = model.predictions(z)
    nll = [model.nll(found, noise)]
    nll += [model.nll(found[c : c + 1], None if noise is None else noise[c : c + 1])
            for c in range(CHAINS)]  # fmt: skip
    if case.noise is not None and not model.several:
        found = found[..., 0]
    # where a probability is 0 or 1 in all draws, R-hat is not a number
    r_hat = split_gelman_rubin(found.astype(float))
    r_hat = r_hat[np.isfinite(r_hat)]
    last = z[:, -1, : model.n]
    halves = found.reshape(CHAINS, 2, -1, *found.shape[2:])
    kept = {
        "mean": halves.mean(2), "sd": halves.std(2),
        "r_hat": np.array([np.median(r_hat), r_hat.max()]),
        "nll": np.array(nll),
        "last": last,
        "log_density": np.array([model.log_marginal(jnp.asarray(one)) for one in last]),
        "seconds": np.array(time.process_time() - started),
    }  # fmt: skip
    print(
        name, "R-hat", np.round(kept["r_hat"], 3), "NLL", np.round(kept["nll"], 3),
        "leapfrogs", extra["num_steps"].mean(1).round(), "diverging", extra["diverging"].mean(1),
        "accepted", extra["accept_prob"].mean(1).round(2), f"{kept['seconds']:.0f} s", flush=True,
    )  # fmt: skip
    return kept


def main():
    found = dict(np.load(FILE)) if FILE.exists() else {}
    for name in sys.argv[1:] or CASES:
        for key, value in run(name).items():
            small = key in ("mean", "sd")
            found[f"{name}/{key}"] = value.astype(np.float32) if small else value
        np.savez_compressed(FILE, **found)


if __name__ == "__main__":
    main()
