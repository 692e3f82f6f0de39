"""
A likelihood of your own
========================

A machine lasts a time that is neither normal nor a count. Any distribution of ``torch`` becomes the
likelihood of a network: here a Weibull distribution of durations.
"""

# %%
# The lifetimes of 250 machines by their load. The shape of the Weibull distribution changes with
# the load: at low loads machines fail at random, at high loads they wear out.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.distributions import Weibull
from torch.nn.functional import softplus

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianMLPRegressor, TorchLikelihood


def lifetimes(load, rng):
    return 10 * np.exp(-0.8 * load) * rng.weibull(1.0 + 2.0 * load)


rng = np.random.default_rng(0)
load, load_test = rng.uniform(0, 1.5, 250), rng.uniform(0, 1.5, 500)
years, years_test = lifetimes(load, rng), lifetimes(load_test, rng)

# %%
# The likelihood is a function from the network's outputs to a distribution. The outputs start near
# zero, where the function must be sensible: a lifetime of some years, and a shape near one.

typical = float(np.median(years))


def weibull(outputs):
    scale = typical * torch.exp(outputs[:, 0])
    return Weibull(scale, 0.1 + softplus(outputs[:, 1] + 0.5))


reg = BayesianMLPRegressor(
    hidden_layer_sizes=8,
    likelihood=TorchLikelihood(weibull, n_outputs=2),
    burn_in=800,
    n_draws=40,
    thinning=10,
    random_state=0,
).fit(load[:, None], years)

# %%
# The nearest model without a custom likelihood is a gamma regression, which has the same shape for
# all loads. The mean log density of new machines decides between the two; larger is better.

gamma = BayesianGLMRegressor(likelihood="gamma", n_draws=250, random_state=0)
gamma.fit(load[:, None], years)
for name, model in {"Weibull network": reg, "gamma regression": gamma}.items():
    density = model.predict_log_density(load_test[:, None], years_test).mean()
    print(f"{name:17} log density of new machines {density:.3f}")

# %%
# What is the chance that a new machine lasts five years? Both models answer for every load, from
# simulated lifetimes. The truth is dashed.

grid = np.linspace(0, 1.5, 60)
truth = np.exp(-((5 / (10 * np.exp(-0.8 * grid))) ** (1.0 + 2.0 * grid)))
fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.8))
for k, (name, model) in enumerate({"Weibull network": reg, "gamma regression": gamma}.items()):
    ax = axes[k]
    new = model.sample_y(grid[:, None], n_samples=1000, random_state=0)
    low, middle, high = np.quantile(new, [0.05, 0.5, 0.95], axis=-1)
    ax.plot(load, years, ".", color="0.35", markersize=3)
    ax.fill_between(grid, low, high, alpha=0.3, linewidth=0, color=f"C{k}", label="90% interval")
    ax.plot(grid, middle, color=f"C{k}", label="median")
    ax.set(title=name, xlabel="load", ylabel="lifetime in years", ylim=(0, 42))
    ax.legend()
    axes[2].plot(grid, np.mean(new > 5, axis=-1), color=f"C{k}", label=name)
axes[2].plot(grid, truth, "--", color="black", linewidth=1.2, label="truth")
axes[2].set(title="Chance of lasting five years", xlabel="load", ylabel="probability")
axes[2].legend()
plt.show()
