"""Fits with a known right answer, of kinds that were once wrong in silence.

Where :mod:`fuzz_property` gives estimators all that is allowed and little time, a case here is an
ordinary fit. Its answer is compared with that of an equal problem (small group ids for large ones,
codes for ordered categories, an exposure of 1 for one of 1e-12), or with scikit-learn's. Fits that
are right warn of nothing but slow mixing.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from fuzz_property import Broken
from hypothesis import strategies as st
from sklearn.decomposition import FastICA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPRegressor,
    BayesianModuleClassifier,
    BayesianOrdinalClassifier,
    SamplingWarning,
)

#: what a short run may say of itself
MIXING = ".*(have not mixed|have not reached|not calibrated)"


@dataclass(frozen=True)
class Truth:
    """A problem with a known answer: its kind, its size and a seed."""

    kind: str
    n: int
    d: int
    option: int
    seed: int


def truths():
    """Problems of all kinds."""
    return st.builds(
        Truth,
        kind=st.sampled_from(sorted(KINDS)),
        n=st.sampled_from([30, 60, 200, 500]),
        d=st.integers(1, 4),
        option=st.integers(0, 11),
        seed=st.integers(0, 10_000),
    )


def check_truth(case):
    """Raise :class:`Broken` if the answer is wrong, or if a right one is called wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SamplingWarning)
        warnings.filterwarnings("ignore", MIXING, SamplingWarning)
        try:
            KINDS[case.kind](case, np.random.default_rng(case.seed))
        except SamplingWarning as warning:
            raise Broken(f"a right fit is called wrong: {warning}") from None
    return case.kind


def _require(holds, message):
    if not holds:
        raise Broken(message)


def _alike(one, other, name, most):
    """Means within ``most`` posterior sds, for equal problems."""
    a, b = one.posterior_.mean(name), other.posterior_.mean(name)
    away = np.abs(a - b) / np.maximum(other.posterior_.std(name), 1e-300)
    _require(away.max() < most, f"means of {name} differ by {away.max():.2f} sds")


# kinds --------------------------------------------------------------------------------------------


def rare_class(case, rng):
    """Logistic regression of rare events, plain and balanced, beside scikit-learn's maximum.

    The mean of a posterior with few events is up to an sd from its maximum.
    """
    n = 20 * case.n
    X = rng.standard_normal((n, case.d + 1))
    rate = (0.02, 0.005, 0.001)[case.option % 3]
    logit = np.log(rate / (1.0 - rate)) + X[:, 0] * (case.option % 2)
    y = (logit + rng.logistic(size=n) > 0.0).astype(int)
    y[:2] = 0, 1
    kind = {"class_weight": "balanced"} if case.option % 4 == 3 else {}
    ours = BayesianLogisticRegression(random_state=case.seed, **kind).fit(X, y)
    theirs = LogisticRegression(C=1.0, **kind).fit(X, y)
    away = np.abs(ours.coef_ - theirs.coef_) / ours.posterior_.std("coef")
    _require(away.max() < 1.5, f"coefficients are {away.max():.2f} sds from the maximum")


def exposure(case, rng):
    """Counts with a constant exposure or offset of any size: an intercept that is shifted."""
    X = rng.standard_normal((case.n, case.d))
    likelihood = ("poisson", "negative_binomial", "gamma")[case.option % 3]
    y = rng.poisson(np.exp(0.3 * X[:, 0] + 1.0)) + 0.5 * (likelihood == "gamma")
    size = float(rng.uniform(-12.0, 12.0))
    counts = likelihood != "gamma"  # only rates of counts have an exposure
    name, value = ("exposure", 10.0**size) if counts and case.option % 2 else ("offset", 30 * size)
    fits = []
    for column in (value, 1.0 if name == "exposure" else 0.0):
        glm = BayesianGLMRegressor(likelihood=likelihood, random_state=case.seed)
        glm.set_params(**{name: case.d})
        fits.append(glm.fit(np.c_[X, np.full(case.n, column)], y))
    moved, plain = fits
    _alike(moved, plain, "coef", 0.3)
    shift = np.log(value) if name == "exposure" else value
    away = np.ravel(moved.intercept_) + shift - np.ravel(plain.intercept_)
    away = np.abs(away) / plain.posterior_.std("intercept").ravel()
    _require(away.max() < 0.3, f"the intercept is {away.max():.2f} sds off")


def group_ids(case, rng):
    """Groups of any labels are those of small numbers, to the bit."""
    codes = rng.integers(0, 5, case.n)
    x = rng.standard_normal(case.n)
    y = x + codes + rng.standard_normal(case.n)
    base = (2**53, 10**18, 2**63, "id-")[case.option % 4]
    ids = [f"{base}{k}" if isinstance(base, str) else base + k for k in range(5)]
    labels = pd.Series([ids[k] for k in codes])
    found = []
    for column in (labels, pd.Series(codes)):
        X = pd.DataFrame({"x": x, "account": column})
        glm = BayesianGLMRegressor(groups="account", n_draws=50, burn_in=100, random_state=0)
        found.append(glm.fit(X, y).predict(X))
    _require(np.array_equal(*found), f"groups from {base} are others than groups from 0")


def ordered(case, rng):
    """Ordered categories in the declared order, and half steps, are codes with other names."""
    n_classes = 3 + case.option % 3
    X = rng.standard_normal((case.n, case.d))
    code = np.argsort(np.argsort(X[:, 0] + rng.logistic(size=case.n))) * n_classes // case.n
    names = list(rng.permutation([f"class {k}" for k in range(n_classes)]))
    kind = pd.CategoricalDtype(names, ordered=True)
    y = code * 0.5 if case.option % 2 else pd.Series([names[k] for k in code]).astype(kind)
    short = {"n_draws": 50, "burn_in": 100, "random_state": 0}
    ours = BayesianOrdinalClassifier(**short).fit(X, y)
    plain = BayesianOrdinalClassifier(**short).fit(X, code)
    _require(np.array_equal(ours.coef_, plain.coef_), "the order of the classes is another one")
    wanted = np.arange(n_classes) * 0.5 if case.option % 2 else names
    _require(list(ours.classes_) == list(wanted), f"classes_ is {ours.classes_}")


def separable(case, rng):
    """Ordered classes that X separates, or nearly: no chain is lost, training rows are right."""
    n_classes = 2 + case.option % 6
    X = rng.standard_normal((case.n, case.d))
    noisy = X[:, 0] + 0.05 * (case.option % 2) * rng.standard_normal(case.n)
    y = np.argsort(np.argsort(noisy)) * n_classes // case.n
    clf = BayesianOrdinalClassifier(random_state=case.seed).fit(X, y)
    _require(clf.posterior_["coef"].shape[0] == clf.n_chains, "chains were dropped")
    # 30 rows leave the borders of seven narrow classes open; by chance at most half are right
    _require(clf.score(X, y) > 0.7, f"accuracy {clf.score(X, y):.2f}")


SOURCES = (
    lambda rng, n: rng.uniform(-1.0, 1.0, n),
    lambda rng, n: rng.laplace(size=n),
    lambda rng, n: np.sign(rng.standard_normal(n)) + 0.2 * rng.standard_normal(n),
    lambda rng, n: rng.standard_t(4, n),
    lambda rng, n: np.sin(rng.uniform(0.0, 2.0 * np.pi, n)),
)


def sources(case, rng):
    """Components of any kurtosis, found as well as FastICA finds them."""
    k, n = 2 + case.option % 3, 1000 + 2 * case.n
    S = np.column_stack([SOURCES[rng.integers(len(SOURCES))](rng, n) for _ in range(k)])
    S /= S.std(0)
    X = S @ np.linalg.qr(rng.standard_normal((k, k)))[0] @ np.diag(rng.uniform(0.5, 2.0, k))

    def found(T):
        return np.abs(np.corrcoef(T.T, S.T)[:k, k:]).max(0).min()

    fast = found(FastICA(k, random_state=0, max_iter=1000).fit_transform(X))
    ours = found(BayesianICA(n_draws=100, random_state=case.seed).fit(X).transform(X))
    _require(ours > 0.95 * fast - 0.02, f"correlation {ours:.2f}, FastICA's {fast:.2f}")


def few_rows(case, rng):
    """A network of few rows: sds of new rows are those of their intervals, within a factor of 2."""
    n = 25 + case.n % 41
    X = rng.standard_normal((n + 200, case.d))
    y = X[:, 0] + rng.standard_normal(n + 200)
    reg = BayesianMLPRegressor(max_steps=1500, random_state=case.seed).fit(X[:n], y[:n])
    near = X[n:][(np.abs(X[n:]) <= np.abs(X[:n]).max(0)).all(1)]
    sd = reg.predict(near, return_std=True)[1]
    low, high = reg.predict_interval(near, coverage=0.9).T
    ratio = sd / ((high - low) / 3.29)
    _require(ratio.max() < 2.0, f"an sd is {ratio.max():.1f} times that of its interval")


def endings(case, rng):
    """A module that ends in probabilities is as good as one that ends in logits."""
    k = 2 + case.option % 3
    X = rng.standard_normal((200, 3))
    y = np.digitize(X[:, 0], np.linspace(-1.0, 1.0, k + 1)[1:-1])
    loss = []
    for end in ([], [(torch.nn.Softmax(-1), torch.nn.LogSoftmax(-1))[case.option % 2]]):
        torch.manual_seed(case.seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, k), *end
        )
        clf = BayesianModuleClassifier(net, max_steps=600, random_state=case.seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*probabilities", SamplingWarning)
            loss.append(log_loss(y, clf.fit(X, y).predict_proba(X)))
    _require(loss[1] < loss[0] + 0.1, f"log loss {loss[1]:.3f}, of logits {loss[0]:.3f}")


def threads(case, rng):
    """One object fitted in two threads is one whole fit."""
    X = rng.standard_normal((case.n, case.d + 1))
    y = rng.integers(0, 2, case.n)
    y[:2] = 0, 1
    parts = (X, y), (X[:, : case.d], y + 5)
    clf = BayesianLogisticRegression(n_draws=20, burn_in=50, random_state=0)
    failed = []

    def fit(part):
        try:
            clf.fit(*part)
        except Exception as error:
            failed.append(error)

    both = [threading.Thread(target=fit, args=(part,)) for part in parts]
    for one in both:
        one.start()
    for one in both:
        one.join()
    texts = [str(error) for error in failed]
    _require(len(failed) < 2 and all("thread" in text for text in texts), f"errors: {texts}")
    whole = parts[int(clf.classes_[0] == 5)]
    _require(clf.n_features_in_ == whole[0].shape[1], "columns of one fit, classes of the other")
    alone = BayesianLogisticRegression(n_draws=20, burn_in=50, random_state=0).fit(*whole)
    _require(np.array_equal(clf.posterior_["coef"], alone.posterior_["coef"]), "draws are mixed")


KINDS = {
    kind.__name__: kind
    for kind in (
        rare_class, exposure, group_ids, ordered, separable, sources, few_rows, endings, threads,
    )
}  # fmt: skip
