"""
Chains on a Dask cluster
========================

``n_jobs`` sends chains to the processes of joblib, and joblib sends them to a cluster. The draws
are the same to the last bit, wherever a chain runs.
"""

# %%
# A scheduler with four workers. Here they are threads of this process; on a cluster,
# ``Client("tcp://scheduler:8786")`` is the only line that changes.

import joblib
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.datasets import load_wine

from skbayes_sgmcmc import BayesianLogisticRegression

cluster = LocalCluster(n_workers=4, threads_per_worker=1, processes=False, dashboard_address=None)
client = Client(cluster)

# %%
# Each worker runs one of four chains. Threads of joblib run the same four chains without the
# cluster, and end with the same draws.

X, y = load_wine(return_X_y=True, as_frame=True)
X = X[["alcohol", "flavanoids", "color_intensity", "proline"]]
X = (X - X.mean()) / X.std()
clf = BayesianLogisticRegression(n_jobs=4, n_draws=500, random_state=0)
with joblib.parallel_config("dask", client=client):
    there = clone(clf).fit(X, y)
with joblib.parallel_config("threading"):
    here = clone(clf).fit(X, y)
for name, draws in there.posterior_.draws.items():
    print(f"{name:10} the same to the last bit: {np.array_equal(draws, here.posterior_[name])}")
client.close()
cluster.close()

# %%
# What the workers sent back: the coefficients of the first class, chain by chain. Chains that ran
# on different machines must agree as well as chains of one machine, and R-hat is computed over
# them.

fig, axes = plt.subplots(1, 4, figsize=(10.5, 3), sharey=True)
r_hat = there.summary()["r_hat"]
for j, (ax, name) in enumerate(zip(axes, X.columns, strict=True)):
    for chain in range(4):
        draws = there.posterior_["coef"][chain, :, 0, j]
        ax.hist(draws, bins=25, density=True, histtype="step", color=f"C{chain}",
                label=f"worker {chain + 1}")  # fmt: skip
    ax.set(title=name, xlabel="coefficient", yticks=[])
axes[-1].legend()
print(f"largest R-hat {np.max(r_hat):.3f}")
plt.show()
