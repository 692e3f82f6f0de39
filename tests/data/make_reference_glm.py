"""Make ``reference_glm.npz``: long NUTS runs of generalised linear models and their data.

All scales are parameters here, which the package integrates out: coefficients are w_j = s u_j z_j
with z_j ~ N(0, 1), u_j = 1 / sd(x_j), s^2 ~ IG(5, 5 s_0^2) and s_0 = min(1, 2 / sqrt(number of
features)); effects of groups are s z_g with s^2 ~ IG(1, s_0^2) and s_0 = 2 / sqrt(number of
groups), at least 0.3 and at most 1. The intercept is flat. Real targets are standardised, those of
Student's t distribution by their median and 1.4826 times the median distance from it. log(noise /
0.3), log((df - 2) / 8) and log(dispersion / 0.3) are standard normal; so are log(dispersion) of
Tweedie targets divided by their mean and log(sigma) of times. Zero probabilities are uniform, and
powers are between 1.01 and 1.99. Times are pairs of bounds.

For each set the file holds, under the keys ``<name>/...``, "X", "y", the mean and sd of every block
of draws, in the units of users, with the Monte Carlo standard errors of the means (suffix
``_mcse``), and ``max_rhat``. Scales are in logarithms.

Command (sets may be named to make only those; the file is updated after each)::

    python make_reference_glm.py [set ...]

Made with numpyro 0.22.0 and scikit-learn 1.9.1 on one CPU core.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from _nuts import drawn, moments, of_model, update
from jax.scipy.special import ndtr
from sklearn.datasets import load_diabetes, load_linnerud

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benchmarks"))
from _glm_sets import SETS

OUTPUT = Path(__file__).with_name("reference_glm.npz")
#: parameters of the likelihoods
OWN = {
    "normal": ["log_noise"],
    "student_t": ["log_noise", "log_df"],
    "gamma": ["log_dispersion"],
    "negative_binomial": ["log_dispersion"],
    "zero_inflated_poisson": ["zero_probit"],
    "zero_inflated_negative_binomial": ["zero_probit", "log_dispersion"],
    "tweedie": ["log_dispersion", "power_probit"],
    "log_normal": ["log_sigma"],
    "weibull": ["log_sigma"],
}
#: largest number of amounts in a Tweedie target
MOST_AMOUNTS = 150
#: Crowder (1978), Beta-binomial anova for proportions: germinated seeds on 21 plates
GERMINATED = [10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]
SEEDS = [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]
VARIETY = [0] * 11 + [1] * 10
EXTRACT = [0] * 5 + [1] * 6 + [0] * 5 + [1] * 5


def data(name):
    """X and y of a set; those of simulated sets depend on the name alone."""
    rng = np.random.default_rng(list(SETS).index(name))
    if name == "linnerud":
        bunch = load_linnerud()
        return bunch.data, bunch.target[:, 1]
    if name.startswith("diabetes"):
        return load_diabetes(return_X_y=True, scaled=False)
    if name.startswith("seeds"):
        both = np.multiply(VARIETY, EXTRACT)
        columns = [SEEDS, *([range(21)] if name.endswith("plates") else []), VARIETY, EXTRACT, both]
        return np.column_stack(columns).astype(float), np.array(GERMINATED, float)
    if name == "rates":
        X = rng.standard_normal((80, 5)) @ rng.standard_normal((5, 5))
        time = rng.gamma(2.0, 2.0, 80)
        y = rng.poisson(time * np.exp(0.3 + 0.3 * X[:, 0] - 0.2 * X[:, 1]))
        return np.column_stack([time, X]), y.astype(float)
    if name == "wide_counts":
        X = rng.standard_normal((40, 60))
        return X, rng.poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.5 * X[:, 1])).astype(float)
    if name == "overdispersed":
        X = rng.standard_normal((120, 5))
        rate = rng.gamma(2.0, 0.5, 120) * np.exp(1.0 + 0.4 * X[:, 0] - 0.3 * X[:, 1])
        return X, rng.poisson(rate).astype(float)
    if name in NEW:
        return simulated(name, rng)
    sizes = rng.integers(1, 10, 25)
    group, x = np.repeat(np.arange(25), sizes), rng.standard_normal(sizes.sum())
    shift, slope = rng.standard_normal((2, 25))
    y = 10.0 + (2.0 + slope[group]) * x + 2.0 * shift[group] + 3.0 * rng.standard_normal(len(x))
    return np.column_stack([group, x]), y


NEW = ("visits", "catches", "rain", "survival_log_normal", "survival_weibull")


def simulated(name, rng):
    """Counts with too many zeros, rainfall, and times of which some are only bounded."""
    n = 150
    X = rng.standard_normal((n, 4)) @ (np.eye(4) + 0.3 * rng.standard_normal((4, 4)))
    mean = np.exp(0.5 + 0.4 * X[:, 0] - 0.3 * X[:, 1])
    if name == "visits":
        time = rng.gamma(4.0, 0.5, n)
        return np.column_stack([time, X]), rng.poisson(time * mean) * (rng.random(n) > 0.3) * 1.0
    if name == "catches":
        counts = rng.poisson(mean * rng.gamma(3.0, 1.0 / 3.0, n))
        return X, counts * (rng.random(n) > 0.25) * 1.0
    if name == "rain":  # p = 1.6, phi = 1.5, a = 2 / 3
        return X, rng.gamma(rng.poisson(mean**0.4 / 0.6) / 1.5) * 0.9 * mean**0.6
    error = rng.standard_normal(n) if name.endswith("normal") else np.log(rng.exponential(size=n))
    time, end = mean * np.exp(0.7 * error), rng.exponential(4.0, n)
    low, high = np.minimum(time, end), np.where(time <= end, time, np.inf)
    seen = time <= end
    rounded, early = seen & (np.arange(n) % 4 == 0), seen & (np.arange(n) % 10 == 1)
    low = np.where(rounded, np.floor(time), np.where(early, 0.0, low))
    return X, np.column_stack([low, np.where(rounded, np.ceil(time), high)])


def log_sum_of_amounts(y, mean, dispersion, power):
    """Log densities of Tweedie targets: a sum over the number of amounts, as it is defined."""
    rate = mean ** (2.0 - power) / (dispersion * (2.0 - power))
    shape, scale = (2.0 - power) / (power - 1.0), dispersion * (power - 1.0) * mean ** (power - 1.0)
    j = jnp.arange(1.0, MOST_AMOUNTS)[:, None]
    known = jnp.where(y > 0.0, y, 1.0)
    terms = dist.Poisson(rate).log_prob(j) + dist.Gamma(j * shape, 1.0 / scale).log_prob(known)
    return jnp.where(y > 0.0, jax.scipy.special.logsumexp(terms, axis=0), -rate)


def log_of_bounds(y, f, sigma, normal):
    """Log densities of times, or log probabilities between bounds."""
    low, high = y.T
    law = dist.Normal(f, sigma) if normal else dist.Gumbel(-f, sigma)  # of -log T
    log_low = jnp.log(jnp.where(low > 0.0, low, 1.0))
    log_high = jnp.log(jnp.where(jnp.isfinite(high), high, 1.0))
    below = law.cdf if normal else lambda x: 1.0 - law.cdf(-x)
    least = jnp.where(low > 0.0, below(log_low), 0.0)
    most = jnp.where(jnp.isfinite(high), below(log_high), 1.0)
    inside = jnp.log(jnp.where(low < high, most - least, 1.0))
    return jnp.where(low == high, law.log_prob(log_low if normal else -log_low) - log_low, inside)


def precision(name, shape, typical):
    """A scale s with s^2 ~ IG(shape, shape * typical^2), by its logarithm."""
    log_s = numpyro.sample(name, dist.ImproperUniform(dist.constraints.real, (), ()))
    b = shape * typical**2
    numpyro.factor(f"{name}_prior", -2.0 * shape * log_s - b * jnp.exp(-2.0 * log_s))
    return jnp.exp(log_s)


def model(kind, columns, X, y):
    special = [columns[c] for c in ("exposure", "n_trials", "groups") if c in columns]
    features = np.delete(X, special, axis=1)
    d, center, scale = features.shape[1], features.mean(0), features.std(0)
    real = kind in ("normal", "student_t")
    y_center, y_scale = (y.mean(), y.std()) if real else (0.0, 1.0)
    if kind == "student_t":
        y_center = np.median(y)
        y_scale = 1.4826 * np.median(np.abs(y - y_center))
    times = kind in ("log_normal", "weibull")
    typical = 0.0 if real or times or kind == "binomial" else np.log(y.mean())
    s = precision("log_scale", 5.0, min(1.0, 2.0 / np.sqrt(d)))
    w = s * numpyro.sample("z", dist.Normal(0, 1).expand([d]).to_event(1))
    b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (), ()))
    f = ((features - center) / scale) @ w + b
    if "exposure" in columns:
        exposure = X[:, columns["exposure"]]
        f, typical = f + np.log(exposure), np.log(y.sum() / exposure.sum())
    f = f + typical
    if "groups" in columns:
        _, group = np.unique(X[:, columns["groups"]], return_inverse=True)
        name = f"x{columns['groups']}"
        terms = {name: np.ones(len(y))}
        if "group_slopes" in columns:
            x = X[:, columns["group_slopes"]]
            terms[f"{name}_x{columns['group_slopes']}"] = x
        for term, x in terms.items():
            unit = 1.0 if term == name else 1.0 / x.std()
            n_groups = group.max() + 1
            typical_sd = min(1.0, max(0.3, 2.0 / np.sqrt(n_groups)))
            sd = unit * precision(f"log_sd_{term}_in_units", 1.0, typical_sd)
            z = numpyro.sample(f"z_{term}", dist.Normal(0, 1).expand([n_groups]).to_event(1))
            numpyro.deterministic(f"log_sd_{term}", jnp.log(sd * y_scale))
            effects = numpyro.deterministic(f"effect_{term}", sd * z * y_scale) / y_scale
            f = f + effects[group] * x
    coef = numpyro.deterministic("coef", y_scale * w / scale)
    numpyro.deterministic("intercept", y_center + y_scale * (b + typical) - coef @ center)
    own = {each: numpyro.sample(each, dist.Normal(0, 1)) for each in OWN.get(kind, [])}
    target = (y - y_center) / y_scale
    if real:
        noise = 0.3 * jnp.exp(own["log_noise"])
        law = dist.Normal(f, noise)
        if kind == "student_t":
            law = dist.StudentT(2.0 + 8.0 * jnp.exp(own["log_df"]), f, noise)
    elif kind == "poisson":
        law = dist.Poisson(jnp.exp(f))
    elif kind == "binomial":
        law = dist.Binomial(X[:, columns["n_trials"]].astype(int), logits=f)
    elif kind == "zero_inflated_poisson":
        law = dist.ZeroInflatedPoisson(ndtr(own["zero_probit"]), jnp.exp(f))
    elif kind == "zero_inflated_negative_binomial":
        size = 1.0 / (0.3 * jnp.exp(own["log_dispersion"]))
        counts = dist.NegativeBinomial2(jnp.exp(f), size)
        law = dist.ZeroInflatedDistribution(counts, gate=ndtr(own["zero_probit"]))
    elif kind == "tweedie":
        power = 1.01 + 0.98 * ndtr(own["power_probit"])
        phi = jnp.exp(own["log_dispersion"] + (2.0 - power) * typical)
        numpyro.factor("y", log_sum_of_amounts(y, jnp.exp(f), phi, power).sum())
        return
    elif times:
        sigma = jnp.exp(own["log_sigma"])
        numpyro.factor("y", log_of_bounds(y, f, sigma, kind == "log_normal").sum())
        return
    else:
        size = 1.0 / (0.3 * jnp.exp(own["log_dispersion"]))
        law = dist.Gamma(size, size * jnp.exp(-f)) if kind == "gamma" else (
            dist.NegativeBinomial2(jnp.exp(f), size))  # fmt: skip
    numpyro.sample("y", law, obs=jnp.asarray(target))


def make(name):
    kind, columns = SETS[name]
    X, y = data(name)
    seed = list(SETS).index(name)
    draws, run = drawn(of_model(model, 0.9), seed, kind, columns, X, y, n_warmup=600, n_draws=2500)
    found, quality = moments({
        part: x for part, x in draws.items()
        if not (part.startswith(("z", "b")) or part.endswith("units"))
    })  # fmt: skip
    print(f"{name}: {quality}, {run}", flush=True)
    return {"X": X, "y": y} | found


if __name__ == "__main__":
    update(OUTPUT, SETS, make)
