"""Tables as people have them, for test_frames.py and test_frames_refused.py."""

import numpy as np
import pandas as pd

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.priors import LearnedScale

RNG = np.random.default_rng(0)
N = 120
CITIES = RNG.choice(["Bern", "Oslo", "Rome"], N, p=[0.5, 0.4, 0.1])
AGE = RNG.normal(40.0, 10.0, N)
MEMBER = RNG.random(N) < 0.5
KIND = RNG.choice(["a", "b"], N)
ROOMS = RNG.integers(1, 5, N)
REAL = 0.1 * (AGE - 40.0) + (CITIES == "Oslo") - (CITIES == "Rome") + RNG.normal(size=N)
GAPS = {"age": np.arange(N) % 7 == 3, "city": np.arange(N) % 10 == 4, "member": np.arange(N) == 5}
ENCODED = [
    "age", "age missing", "city=Bern", "city=Oslo", "city=Rome", "city missing",
    "member", "member missing", "kind=a", "kind=b", "rooms",
]  # fmt: skip


def frame(**types):
    """The table with categories, text, booleans and gaps; ``types`` of some columns of pandas."""
    made = pd.DataFrame(
        {"age": AGE, "city": CITIES, "member": MEMBER, "kind": KIND, "rooms": ROOMS}
    ).astype({"city": "category", "member": "boolean"} | types)
    return made.assign(**{name: made[name].mask(gap) for name, gap in GAPS.items()})


TINY = {"n_chains": 2, "n_draws": 5, "burn_in": 4, "thinning": 1, "random_state": 0}
SMALL = {"n_chains": 2, "n_draws": 50, "random_state": 0}
#: every estimator that takes tables, with targets for it; max_steps bounds descents to starts
FITS = {
    "logistic": (sk.BayesianLogisticRegression(**TINY), REAL > 0.0),
    "three classes": (sk.BayesianLogisticRegression(**TINY), np.digitize(REAL, [-0.5, 0.5])),
    "learned": (sk.BayesianLogisticRegression(prior_scale="learned", **TINY), REAL > 0.0),
    "relevance": (sk.BayesianGLMRegressor(prior_scale=LearnedScale(inputs=True), **TINY), REAL),
    "glm": (sk.BayesianGLMRegressor(**TINY), REAL),
    "ordinal": (sk.BayesianOrdinalClassifier(**TINY), np.digitize(REAL, [-0.5, 0.5])),
    "mlp": (sk.BayesianMLPClassifier(hidden_layer_sizes=3, max_steps=9, **TINY), REAL > 0.0),
    "mlp regressor": (sk.BayesianMLPRegressor(hidden_layer_sizes=3, max_steps=9, **TINY), REAL),
    "sparse": (sk.SparseBayesianClassifier(max_steps=9, **TINY), REAL > 0.0),
    "sparse regressor": (sk.SparseBayesianRegressor(max_steps=9, **TINY), REAL),
}
