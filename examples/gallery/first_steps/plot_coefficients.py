"""
What the data say about each coefficient
========================================

A forest plot of a linear regression, and why two of its coefficients are so uncertain.
"""

# %%
# Ten measurements of 442 patients predict how far diabetes has progressed a year later. The scale
# of the prior is learned, and rows need no scaling.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import BayesianRidge

from skbayes_sgmcmc import BayesianGLMRegressor
from skbayes_sgmcmc.inspection import CoefficientDisplay

X, y = load_diabetes(return_X_y=True, as_frame=True)
reg = BayesianGLMRegressor(random_state=0).fit(X, y)
print(reg.summary())

# %%
# ``r_hat`` near 1 says that the chains agree; ``ess`` is the number of independent draws that
# would give the same precision.

# %%
# The intervals of ``s1`` (total cholesterol) and ``s2`` (low-density lipoproteins) are the widest.
# Does it follow that the two do not matter? The joint posterior says otherwise. The data know a sum
# of the two well and their difference hardly at all, because the measurements rise and fall
# together.

draws = reg.sample_posterior(1000, random_state=0)["coef"]
s1, s2 = (draws[:, X.columns.get_loc(name)] for name in ("s1", "s2"))
print(f"correlation of the measurements {np.corrcoef(X['s1'], X['s2'])[0, 1]:.2f}")
print(f"correlation of the draws        {np.corrcoef(s1, s2)[0, 1]:.2f}")
print(f"sd of s1 {s1.std():.0f}, of s2 {s2.std():.0f}, of their sum {(s1 + s2).std():.0f}")

# %%
# A forest plot is the table as a picture. :class:`~sklearn.linear_model.BayesianRidge` is shown for
# comparison: it takes one best scale of the prior, where the estimator above averages over scales.
# They agree on the coefficients that the data determine. On ``s1``, ``s2`` and ``s3`` they do not,
# because there the prior decides. On the right are the draws of the two most uncertain ones.

ridge = BayesianRidge().fit(X, y)

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.5), width_ratios=(1.3, 1))
CoefficientDisplay.from_estimator(reg, ax=left, label="BayesianGLMRegressor")
left.errorbar(
    ridge.coef_,
    np.arange(len(ridge.coef_)) + 0.3,  # below the others
    xerr=1.645 * np.sqrt(np.diag(ridge.sigma_)),
    fmt="s",
    markersize=4,
    linewidth=1,
    color="C1",
    label="BayesianRidge",
)
left.set_title("Coefficients with 90% intervals")
left.legend()

right.plot(s1, s2, ".", markersize=3, alpha=0.4)
right.axhline(0, color="0.7", linewidth=1, zorder=0)
right.axvline(0, color="0.7", linewidth=1, zorder=0)
right.set(
    title="1,000 draws of two of them", xlabel="coefficient of s1", ylabel="coefficient of s2"
)
plt.show()
