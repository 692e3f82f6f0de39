"""
A thermostat in a double well
=============================

Gradients of minibatches are noisy, and the noise heats a chain. A thermostat measures the
temperature and adapts its friction, without being told how large the noise is.
"""

# %%
# The target has two wells. Its gradient gets white noise of a size that no sampler knows; this is
# experiment 1 of Li et al. (2016), with one parameter.

import matplotlib.pyplot as plt
import numpy as np

from skbayes_sgmcmc import sample
from skbayes_sgmcmc.samplers import MSGNHT, SGHMC, SGLD

H = 0.15  # time step of the thermostats; eta is its square


def potential(theta):
    return (theta + 4) * (theta + 1) * (theta - 1) * (theta - 3) / 14


def noisy_gradient(theta, rng):
    exact = (((4 * theta + 3) * theta - 26) * theta - 1) / 14
    return exact + np.sqrt(2.0 / H) * rng.normal(1)


# %%
# Three samplers take equally long steps. SGLD and SGHMC believe that the gradient is exact. The
# thermostat injects no noise at all: all its heat comes from the gradient.

samplers = {
    "SGLD": (SGLD(), "euler"),
    "SGHMC": (SGHMC(friction=0.1), "splitting"),
    "thermostat (mSGNHT)": (
        MSGNHT(friction=0.0, mass=1.0, initial_friction=H),
        "splitting",
    ),
}
runs = {}
for name, (sampler, integrator) in samplers.items():
    runs[name] = sample(
        lambda theta: 0.0 * theta[:, 0],  # not called, because its gradient is given
        1,
        gradient_of_potential=noisy_gradient,
        sampler=sampler,
        integrator=integrator,
        step_size=H**2,
        n_chains=50,
        n_draws=3000,
        burn_in=1000,
        random_state=0,
    )["theta"][..., 0]

# %%
# The share of draws in the left well, and the standard deviation, beside the exact values.

grid = np.linspace(-6.5, 6.0, 2000)
density = np.exp(-potential(grid))
density /= np.trapezoid(density, grid)
mean = np.trapezoid(grid * density, grid)
sd = np.sqrt(np.trapezoid((grid - mean) ** 2 * density, grid))
print(f"{'exact':20} left {np.trapezoid(density * (grid < 0), grid):.3f}  sd {sd:.3f}")
for name, draws in runs.items():
    print(f"{name:20} left {np.mean(draws < 0):.3f}  sd {draws.std():.3f}")

# %%
# Above, one chain of each; below, the draws of all chains. SGHMC is far too hot: its draws climb
# over the walls.

fig, axes = plt.subplots(2, 3, figsize=(10, 5), height_ratios=(1, 1.4), sharex="row", sharey="row")
for k, (name, draws) in enumerate(runs.items()):
    axes[0, k].plot(draws[0, :1500], color=f"C{k}", linewidth=0.6)
    axes[0, k].set(title=name, xlabel="step")
    axes[1, k].fill_between(grid, density, color="0.85", label="exact")
    axes[1, k].hist(
        draws.ravel(), bins=120, range=(-8, 8), density=True, histtype="step", color=f"C{k}",
        label="draws", linewidth=1.5,
    )  # fmt: skip
    axes[1, k].set(xlabel="θ", xlim=(-7.5, 7))
axes[0, 0].set_ylabel("θ")
axes[1, 0].set_ylabel("density")
axes[1, 0].legend(loc="upper right")
plt.show()
