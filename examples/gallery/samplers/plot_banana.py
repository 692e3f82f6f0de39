"""
Samplers on a banana
====================

A curved and narrow density, one function, and :func:`~skbayes_sgmcmc.sample` with six samplers.
"""

# %%
# A log density takes a tensor of shape (chains, parameters) and returns one number for each chain.

import matplotlib.pyplot as plt
import numpy as np
import torch

from skbayes_sgmcmc import sample
from skbayes_sgmcmc.diagnostics import effective_sample_size, r_hat


def log_density(theta):
    x, y = theta.unbind(1)
    return -0.5 * (x / 2.0) ** 2 - 0.5 * ((y - 0.5 * x**2 + 2.0) / 0.5) ** 2


# %%
# x is N(0, 2²), and y is a parabola of x with noise, so the exact moments are known: the mean of y
# is 0 and its variance 8.25. Each sampler takes 9,000 steps in each of twenty chains. Step sizes
# are set by hand.

settings = {
    "sgld": 0.02,
    "psgld": 0.02,
    "sghmc": 0.02,
    "msgnht": 0.01,
    "mclmc": 0.02,
    "mala": 0.1,
}
posteriors = {
    name: sample(
        log_density,
        2,
        sampler=name,
        step_size=eta,
        n_chains=20,
        n_draws=400,
        burn_in=1_000,
        thinning=20,
        random_state=0,
    )
    for name, eta in settings.items()
}
ess = {name: effective_sample_size(posterior, "theta")[0] for name, posterior in posteriors.items()}
print(f"{'':8}{'mean y':>8}{'var x':>8}{'var y':>8}{'ESS x':>8}{'R-hat x':>9}")
print(f"{'exact':8}{0:8.2f}{4:8.2f}{8.25:8.2f}")
for name, posterior in posteriors.items():
    draws = posterior["theta"]
    x, y = draws[..., 0], draws[..., 1]
    print(
        f"{name:8}{y.mean():8.2f}{x.var():8.2f}{y.var():8.2f}"
        f"{ess[name]:8.0f}{r_hat(posterior, 'theta')[0]:9.3f}"
    )

# %%
# Lines are exact contours, points are draws. The effective sample size (ESS) says how many
# independent draws they are worth. MCLMC has the exact moments with the same number of steps. SGLD,
# pSGLD and MALA diffuse along the banana and need longer runs, as R-hat above 1.01 says; momentum
# carries SGHMC and mSGNHT further.

g1, g2 = np.meshgrid(np.linspace(-6.5, 6.5, 200), np.linspace(-5, 20, 200))
with torch.no_grad():
    levels = log_density(torch.tensor(np.column_stack([g1.ravel(), g2.ravel()]))).reshape(g1.shape)
fig, axes = plt.subplots(2, 3, figsize=(10, 6), sharex=True, sharey=True)
for k, (ax, (name, posterior)) in enumerate(zip(axes.flat, posteriors.items(), strict=True)):
    draws = posterior["theta"]
    ax.contour(g1, g2, levels, levels=(-4.5, -2.0, -0.5), colors="0.6", linewidths=0.8)
    ax.plot(*draws[:, ::3].reshape(-1, 2).T, ".", color=f"C{k}", markersize=2, alpha=0.5)
    ax.set(title=f"{name}: ESS of x {ess[name]:.0f}", ylim=(-5, 20))
for ax in axes[1]:
    ax.set_xlabel("x")
for ax in axes[:, 0]:
    ax.set_ylabel("y")
plt.show()
