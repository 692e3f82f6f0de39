"""
Uncertainty over a plane
========================

Where do the classes overlap, and where have there been no rows? A posterior of networks tells the
two apart. A single network, or a forest, has one number for both.
"""

# %%
# The rows of two noisy half moons fill a small part of the plane. The chains are shorter than by
# default, which takes a third of the time and changes little here.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

from skbayes_sgmcmc import BayesianMLPClassifier

X, y = make_moons(200, noise=0.25, random_state=0)
clf = BayesianMLPClassifier(burn_in=1000, n_draws=50, thinning=10, random_state=0).fit(X, y)
network = MLPClassifier((32, 32), max_iter=3000, random_state=0).fit(X, y)
forest = RandomForestClassifier(random_state=0).fit(X, y)

# %%
# The entropy of the averaged prediction is the sum of two parts. The aleatoric part stays even if
# the best network were known: the moons overlap. The epistemic part is disagreement among the
# networks of the posterior. More rows would take it away.

x1, x2 = np.meshgrid(np.linspace(-3.5, 4.5, 90), np.linspace(-3.2, 3.7, 80))
plane = np.column_stack([x1.ravel(), x2.ravel()])
uncertainty = clf.predict_uncertainty(plane)

far = np.array([[-3.0, 3.0], [4.0, -3.0], [4.0, 3.0], [-3.0, -3.0]])
print("P(class 1) at the four corners")
for name, model in {"posterior": clf, "network": network, "forest": forest}.items():
    print(f"{name:10}", model.predict_proba(far)[:, 1].round(2))

# %%
# Far from all rows, the single network is as sure as in the middle of a moon, and the forest nearly
# so. Between the moons the posterior's uncertainty is aleatoric; where there are no rows it is
# epistemic, and largest where the networks draw the boundary in different ways. It is not large
# everywhere: a network extends what it has learned along straight lines, and where all
# networks do so in the same way, they look certain.

panels = {
    "Posterior: P(class 1)": (clf.predict_proba(plane)[:, 1], "p"),
    "MLPClassifier: P(class 1)": (network.predict_proba(plane)[:, 1], "p"),
    "RandomForestClassifier: P(class 1)": (forest.predict_proba(plane)[:, 1], "p"),
    "Posterior: entropy": (uncertainty.total, "nats"),
    "aleatoric part": (uncertainty.aleatoric, "nats"),
    "epistemic part": (uncertainty.epistemic, "nats"),
}
fig, axes = plt.subplots(2, 3, figsize=(10, 6), sharex=True, sharey=True)
for ax, (title, (values, kind)) in zip(axes.flat, panels.items(), strict=True):
    shown = ax.pcolormesh(
        x1,
        x2,
        values.reshape(x1.shape),
        cmap="RdBu_r" if kind == "p" else "viridis",
        vmin=0.0,
        vmax=1.0 if kind == "p" else np.log(2.0),
        rasterized=True,
    )
    for label, marker in ((0, "o"), (1, "^")):
        ax.plot(*X[y == label].T, marker, color="white", markeredgecolor="black", markersize=3.5,
                markeredgewidth=0.5)  # fmt: skip
    ax.set_title(title)
    if ax in axes[:, -1]:
        fig.colorbar(shown, ax=axes[0 if kind == "p" else 1], label=kind)
plt.show()
