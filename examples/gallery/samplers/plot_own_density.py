"""
A log density of your own
=========================

Any function of a tensor that torch can differentiate is a target. Here it is a model of dose and
response that no estimator of the package has.
"""

# %%
# How many of 20 animals respond at each of eight doses? The curve has a lowest and a highest level,
# a middle and a slope. With so few data, its parameters are correlated and anything but normal.

import matplotlib.pyplot as plt
import numpy as np
import torch

from skbayes_sgmcmc import sample
from skbayes_sgmcmc.diagnostics import effective_sample_size, r_hat

dose = np.array([0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 50.0])
responders = np.array([1, 2, 2, 5, 11, 14, 17, 17])
animals = 20


def curve(theta, log_dose):
    """Probability of a response, of shape (chains, doses)."""
    floor = torch.sigmoid(theta[:, 0:1] - 2.0)
    ceiling = floor + (1.0 - floor) * torch.sigmoid(theta[:, 1:2] + 2.0)
    middle, slope = 1.0 + theta[:, 2:3], torch.exp(0.5 * theta[:, 3:4])
    return floor + (ceiling - floor) * torch.sigmoid(slope * (log_dose - middle))


# %%
# The log density is the sum of a standard normal prior of the four parameters and of the binomial
# log likelihood: one number for each chain.

log_dose, successes = torch.tensor(np.log(dose)), torch.tensor(responders)


def log_density(theta):
    p = curve(theta, log_dose)
    log_lik = successes * torch.log(p) + (animals - successes) * torch.log1p(-p)
    return log_lik.sum(1) - 0.5 * (theta**2).sum(1)


posterior = sample(
    log_density,
    4,
    sampler="mala",
    step_size=0.04,
    n_chains=20,
    burn_in=500,
    n_draws=400,
    thinning=5,
    random_state=0,
)
print("R-hat", r_hat(posterior, "theta").round(3))
print("ESS  ", effective_sample_size(posterior, "theta").round())

# %%
# MALA accepts or rejects each step, so that the size of its steps causes no bias. About six in ten
# accepted steps are best in theory; here there are more, and no harm is done.

print("accepted", posterior.statistics["acceptance_rate"].mean().round(2))

# %%
# Left: draws of the curve. Right: the dose that half of the animals respond to. A normal
# approximation would miss the long tail on the right, which matters most to whoever sets the dose.

grid = np.geomspace(0.05, 100, 300)
theta = torch.tensor(posterior["theta"].reshape(-1, 4))
with torch.no_grad():
    curves = curve(theta, torch.tensor(np.log(grid))).numpy()
reaches = curves.max(axis=1) > 0.5
half = grid[(curves[reaches] > 0.5).argmax(axis=1)]
print(f"dose for half of the animals: median {np.median(half):.1f}, "
      f"90% interval {np.quantile(half, 0.05):.1f} to {np.quantile(half, 0.95):.1f}")  # fmt: skip

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), width_ratios=(1.4, 1))
left.plot(grid, curves[::150].T, color="C0", alpha=0.15, linewidth=0.8)
left.plot(grid, curves.mean(axis=0), color="C0", label="posterior mean, and draws")
left.plot(dose, responders / animals, "o", color="black", label="observed")
left.set(xscale="log", xlabel="dose", ylabel="fraction that responds", ylim=(0, 1))
left.legend(loc="upper left")
right.hist(half, bins=np.geomspace(1, 20, 60), density=True, color="C0", alpha=0.6)
right.axvline(np.median(half), color="black", linewidth=1)
right.set(xlabel="dose for half of the animals", ylabel="density", xlim=(1, 15))
plt.show()
