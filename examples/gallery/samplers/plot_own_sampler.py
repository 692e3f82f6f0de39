"""
A sampler of your own in thirty lines
=====================================

A sampler is a step. Write the step, and every estimator, schedule, checkpoint and diagnostic of the
package works with it.
"""

# %%
# Tamed Langevin dynamics (Brosse et al. 2019) is SGLD with a bounded drift: each coordinate of the
# gradient g is divided by 1 + η|g|, so that a huge gradient cannot throw a chain away.
#
# ``theta`` has the shape (chains, parameters) and is changed in place. ``step.gradient`` is that of
# the mean potential, ``step.noise`` is ηT/N, and ``step.xi`` is standard normal noise.

import math

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression, SamplingError, sample
from skbayes_sgmcmc.samplers import SGLD, Sampler


class TamedLangevin(Sampler):
    """theta <- theta - eta g / (1 + eta |g| / strength) + sqrt(2 eta T / N) xi."""

    def __init__(self, strength=1.0):
        self.strength = strength

    def euler(self, theta, state, step):
        g = step.gradient(theta)
        theta.sub_(step.eta * g / (1.0 + step.eta * g.abs() / self.strength))
        theta.add_(step.xi, alpha=math.sqrt(2.0 * step.noise))


# %%
# First a density with a known answer. Its tails are so steep that plain SGLD, started far out,
# diverges in its first steps. Tamed steps walk in.


def log_density(theta):
    return -0.25 * (theta**4).sum(1)


samplers = {"tamed": TamedLangevin(), "plain": SGLD()}
settings = {"integrator": "euler", "step_size": 0.04, "init": np.full((50, 1), 8.0)}
settings |= {"n_chains": 50, "n_draws": 1000, "burn_in": 500, "thinning": 2, "random_state": 0}
draws = {}
for name, sampler in samplers.items():
    try:
        draws[name] = sample(log_density, 1, sampler=sampler, **settings)["theta"].ravel()
    except SamplingError as error:
        print(f"{name}: {str(error).partition('(')[0]}")

# %%
# The same class works in every estimator, with minibatches and schedules. Its step size is a
# number, because there is no rule for a new sampler. The features are rotated and scaled first
# (whitened), as the default sampler does by itself.

X, y = load_breast_cancer(return_X_y=True)
X = make_pipeline(StandardScaler(), PCA(8, whiten=True)).fit_transform(X)
default = BayesianLogisticRegression(prior_scale=1.0, random_state=0).fit(X, y)
own = BayesianLogisticRegression(
    sampler=TamedLangevin(),
    prior_scale=1.0,
    step_size=2.0,
    batch_size=len(X),
    burn_in=1000,
    n_draws=500,
    thinning=30,
    random_state=0,
).fit(X, y)
worst = max(np.max(own.summary()["r_hat"]), np.max(default.summary()["r_hat"]))
print(f"largest R-hat of both fits: {worst:.3f}")

# %%
# On the left, draws and the exact density; on the right, the posterior means and standard
# deviations of all coefficients, beside those of the default sampler.

grid = np.linspace(-3, 3, 300)
density = np.exp(-0.25 * grid**4)
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(10.5, 3.6))
left.fill_between(grid, density / np.trapezoid(density, grid), color="0.85", label="exact")
left.hist(draws["tamed"], bins=80, density=True, histtype="step", color="C0", label="draws")
left.set(xlabel="θ", ylabel="density", title="exp(-θ⁴/4)", ylim=(0, 0.5))
left.legend()
for ax, title, figure in ((middle, "posterior means", np.mean), (right, "posterior sds", np.std)):
    a, b = (figure(clf.posterior_["coef"], axis=(0, 1)).ravel() for clf in (default, own))
    ax.axline((a[0], a[0]), slope=1, color="0.7", linewidth=1)
    ax.plot(a, b, "o", color="C0", markersize=5)
    ax.set(title=title, xlabel="default sampler", ylabel="own sampler")
plt.show()
