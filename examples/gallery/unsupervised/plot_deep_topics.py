"""
A tree of topics
================

Deep Poisson factor analysis puts a network above the topics: its units say which topics go
together.
"""

# %%
# Simulated documents of a newspaper with three sections. Each section has three topics of its own,
# and a document has topics of its section only. The model is told nothing of sections.

import matplotlib.pyplot as plt
import numpy as np

from skbayes_sgmcmc import DeepPoissonFactorAnalysis

sections = {
    "sports": ["football", "tennis", "chess"],
    "science": ["physics", "biology", "weather"],
    "culture": ["film", "opera", "books"],
}
rng = np.random.default_rng(0)
names = [topic for topics in sections.values() for topic in topics]
n_words = 20 * len(names)
truth = np.full((len(names), n_words), 0.05)
for k in range(len(names)):
    truth[k, 20 * k : 20 * k + 20] += rng.gamma(2.0, 1.0, 20)
truth /= truth.sum(axis=1, keepdims=True)
X = np.zeros((1200, n_words), dtype=int)
section = rng.integers(3, size=len(X))
for row, part in zip(X, section, strict=True):
    weight = np.zeros(len(names))
    weight[3 * part : 3 * part + 3] = rng.dirichlet(np.full(3, 0.7))
    row[:] = rng.multinomial(rng.integers(25, 60), weight @ truth)

# %%
# Nine topics below, three units above.

dpfa = DeepPoissonFactorAnalysis(
    (9, 3), doc_sweeps=8, burn_in=1000, n_draws=20, thinning=10, random_state=0
)
dpfa.fit(X)

# %%
# Topics have no numbers of their own, so each is named by the true topic that it shares most words
# with. ``weights_1`` says how each unit raises or lowers the odds that a topic is used.

topics = dpfa.components_ / dpfa.components_.sum(axis=1, keepdims=True)
overlap = topics @ truth.T
closest = overlap.argmax(axis=1)
weights = dpfa.posterior_["weights_1"].mean(axis=(0, 1))
order = np.argsort(closest)
print(f"{len(set(closest))} of {len(names)} true topics are found")
for k in order:
    print(f"{names[closest[k]]:10}" + "".join(f"{w:6.1f}" for w in weights[k]))

# %%
# Blue lines raise the odds of a topic, orange ones lower them; only weights beyond one are drawn.
# The topics of a section hang together, though no section was ever named. Units code the sections
# in their own way: one of three may be the absence of two others.

fig, ax = plt.subplots(figsize=(9.5, 4))
place = np.arange(len(order))
units = np.array([1, 4, 7])
for x, k in zip(place, order, strict=True):
    for unit, w in zip(units, weights[k], strict=True):
        if abs(w) > 1.0:
            colour = "C0" if w > 0 else "C1"
            ax.plot([unit, x], [1, 0], color=colour, linewidth=1.2 * abs(w), alpha=0.6, zorder=0)
colours = ["C2", "C3", "C4"]
ax.scatter(place, 0 * place, s=160, c=[colours[closest[k] // 3] for k in order], zorder=2)
ax.scatter(units, 0 * units + 1, s=420, color="0.3", zorder=2)
for k, x in enumerate(units):
    ax.text(x, 1, k + 1, color="white", ha="center", va="center")
for x, k in zip(place, order, strict=True):
    ax.text(x, -0.1, names[closest[k]], ha="right", va="top", rotation=35)
for k, part in enumerate(sections):
    ax.text(3 * k + 1, -0.62, part, ha="center", color=colours[k], weight="bold")
ax.text(-1.2, 1, "units", va="center")
ax.text(-1.2, 0, "topics", va="center")
ax.set(ylim=(-0.7, 1.15), xlim=(-1.3, 8.6))
ax.set_axis_off()
plt.show()
