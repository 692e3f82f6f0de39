"""
Attacks by small changes
========================

A change of each pixel that the eye hardly sees can turn a 3 into an 8 for a classifier. Does a
posterior fall for it as easily, and does it at least notice?
"""

# %%
# The fast gradient sign method moves each pixel by ``eps`` in the direction that hurts most. It is
# computed through the averaged prediction: the attacker knows the whole posterior. The single
# network is the same model with one chain that has cooled down to its mode.
#
# Each chain of a network explores one part of the posterior only, and the fit would warn that the
# chains do not agree. An average over several parts is still better than a single network, and the
# warning is turned off here.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skbayes_sgmcmc import BayesianMLPClassifier, SamplingWarning
from skbayes_sgmcmc.inspection import AdversarialCurveDisplay, fgsm

warnings.simplefilter("ignore", SamplingWarning)
X, y = load_digits(return_X_y=True)
X = X / 16.0
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
posterior = BayesianMLPClassifier(burn_in=1500, n_draws=30, thinning=40, random_state=0)
single = BayesianMLPClassifier(temperature=0.0, n_chains=1, burn_in=2500, n_draws=1, random_state=0)
models = {"posterior": posterior, "single network": single}
for model in models.values():
    model.fit(X_train, y_train)

# %%
# Below is an image, what the attack adds, and what each model then sees.

eps = 0.15
row = 7
for name, model in models.items():
    attacked = fgsm(model, X_test[row : row + 1], y_test[row : row + 1], eps=eps)
    before, after = model.predict_proba(X_test[row : row + 1])[0], model.predict_proba(attacked)[0]
    print(f"{name:15} a {y_test[row]}: before {before.argmax()} ({before.max():.2f}), "
          f"after {after.argmax()} ({after.max():.2f})")  # fmt: skip

# %%
# Neither model is safe. The posterior loses its accuracy a little more slowly, and its entropy
# rises as it does: a rule that refuses uncertain images would refuse most of those it gets wrong.

strengths = np.linspace(0.0, 0.4, 9)
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(10.5, 3.6), width_ratios=(1.2, 1.2, 1))
for k, (name, model) in enumerate(models.items()):
    AdversarialCurveDisplay.from_estimator(
        model,
        X_test,
        y_test,
        eps=strengths,
        attacked="true",
        metric=["accuracy", "entropy"],
        name=name,
        ax=[left, middle],
        color=f"C{k}",
    )
middle.set_ylim(0, np.log(10))
attacked = fgsm(posterior, X_test[row : row + 1], y_test[row : row + 1], eps=eps)[0]
right.imshow(np.hstack([X_test[row].reshape(8, 8), np.zeros((8, 1)), attacked.reshape(8, 8)]),
             cmap="gray_r", vmin=0, vmax=1)  # fmt: skip
right.set(title=f"before, and after eps = {eps}", xticks=[], yticks=[])
right.spines[:].set_visible(False)
plt.show()
