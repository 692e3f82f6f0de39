"""
Mixed signals, and which of them can be trusted
===============================================

Microphones hear all voices at once. Independent component analysis separates them, and a posterior
says which of the separated voices the data determine.
"""

# %%
# Five sources, mixed by a random matrix. Two of them are normal noise, and no method can tell one
# normal source from another: every rotation of the two fits equally well.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import FastICA

from skbayes_sgmcmc import BayesianICA

rng = np.random.default_rng(0)
t = np.arange(1500) / 1500
sources = np.column_stack(
    [
        np.sin(2 * np.pi * 9 * t) ** 9,  # a beat
        rng.laplace(size=1500),  # crackle
        rng.standard_t(2.5, size=1500),  # rare bursts
        rng.standard_normal(1500),
        rng.standard_normal(1500),
    ]
)
sources /= sources.std(axis=0)
X = sources @ rng.standard_normal((5, 5))

# %%
# ``FastICA`` returns five components, all of the same apparent quality. So does the posterior mean,
# but ``instability_`` adds how much each of them varies over the draws. And the fit warns: as the
# rotation of the two normal sources is open, the chains cannot agree on it.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ica = BayesianICA(n_draws=500, random_state=0).fit(X)
print(*(str(warning.message).partition(",")[0] + ")" for warning in caught))
fast = FastICA(random_state=0, max_iter=2000).fit(X)


def quality(separated):
    """Largest absolute correlation of each separated signal with a source, and which source."""
    corr = np.abs(np.corrcoef(separated.T, sources.T)[:5, 5:])
    return corr.max(axis=1), corr.argmax(axis=1)


separated = ica.transform(X)
order = np.argsort(ica.instability_)
corr, which = quality(separated)
names = ["beat", "crackle", "bursts", "normal", "normal"]
for i in order:
    print(f"instability {ica.instability_[i]:8.4f}: {names[which[i]]:8} correlation {corr[i]:.3f}")
print("correlations of FastICA:", np.sort(quality(fast.transform(X))[0])[::-1].round(3))

# %%
# Components from the most certain to the least. The three other sources are found, and the last two
# are marked as not determined. The scale of the bars is logarithmic.

fig, axes = plt.subplot_mosaic(
    [[f"signal {k}", "bars"] for k in range(5)], figsize=(9.5, 5), width_ratios=(2.4, 1)
)
for k, i in enumerate(order):
    ax = axes[f"signal {k}"]
    ax.plot(separated[:, i][:600], color=f"C{k}", linewidth=0.8)
    ax.set(yticks=[], ylabel=names[which[i]])
    ax.tick_params(labelbottom=k == 4)
axes["signal 0"].set_title("Separated signals, named by the closest source")
axes["signal 4"].set_xlabel("time")
axes["bars"].barh(np.arange(5), ica.instability_[order], color=[f"C{k}" for k in range(5)])
axes["bars"].set(xscale="log", xlim=(0.005, 1), yticks=[], title="Instability")
axes["bars"].invert_yaxis()
plt.show()
