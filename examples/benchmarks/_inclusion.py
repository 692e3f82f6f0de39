"""Exact inclusion probabilities of linear spike-and-slab models, and problems to compare them on.

The posterior is that of the estimators' model: standardised features (and targets, in regression),
an intercept of N(0, 1), coefficients from Laplace(0, sigma v_0) or N(0, sigma^2 v_1), delta from
Beta(1, p), which is integrated out, and in regression sigma^2 from IG(nu / 2, nu lambda / 2). The
evidence of each of the 2^p sets of slabs comes from importance sampling.
"""

import itertools

import numpy as np
from scipy.special import betaln, gammaln, logsumexp

#: default hyperparameters of SpikeSlab: v_1, nu and lambda
V_1, NU, LAMBDA = 10.0, 1.0, 0.1
#: degrees of freedom of the proposals; rounds that adapt them, and their draws
DF, ROUNDS, ADAPTING = 6.0, 3, 500
#: draws of a rough log evidence; sets of slabs this far below the best are not looked at again
ROUGH, FAR = 200, 12.0
#: rows that score predictions
N_TEST = 4000


class Model:
    """The density of the intercept, the coefficients and log sigma, given which have a slab."""

    def __init__(self, X, y, classes):
        X = (X - X.mean(0)) / X.std(0)
        self.rows, self.classes, self.p = np.column_stack([np.ones(len(X)), X]), classes, X.shape[1]
        p = y.mean() if classes else None
        self.y = np.where(y > 0, 1.0, -1.0) if classes else (y - y.mean()) / y.std()
        noise = 1.0 / np.sqrt(p * (1.0 - p)) if classes else 1.0
        self.v_0 = min(0.1, 0.4 * noise / np.sqrt(len(X)))
        self.gram, self.moment = self.rows.T @ self.rows, self.rows.T @ self.y

    def log_prior(self, theta, slabs):
        beta, log_sigma = theta[:, 1 : self.p + 1], self._log_sigma(theta)
        z = np.abs(beta) * np.exp(-log_sigma)[:, None]
        slab = -0.5 * z**2 / V_1 - 0.5 * np.log(2.0 * np.pi * V_1)
        spike = -z / self.v_0 - np.log(2.0 * self.v_0)
        found = np.where(slabs, slab, spike).sum(1) - self.p * log_sigma
        found += -0.5 * theta[:, 0] ** 2 - 0.5 * np.log(2.0 * np.pi)
        if self.classes:
            return found
        return found - NU * log_sigma - 0.5 * NU * LAMBDA * np.exp(-2.0 * log_sigma)

    def log_lik(self, theta):
        if self.classes:
            margin = theta @ (self.rows * self.y[:, None]).T
            low = np.minimum(margin, 0.0).sum(1)
            np.abs(margin, out=margin)
            np.exp(np.negative(margin, out=margin), out=margin)
            return low - np.log1p(margin, out=margin).sum(1)
        beta, log_sigma = theta[:, :-1], theta[:, -1]
        squares = self.y @ self.y - 2.0 * beta @ self.moment
        squares += np.einsum("ij,ij->i", beta @ self.gram, beta)
        return -0.5 * squares * np.exp(-2.0 * log_sigma) - len(self.y) * log_sigma

    def _log_sigma(self, theta):
        return np.zeros(len(theta)) if self.classes else theta[:, -1]

    def start(self, slabs):
        """Mode and inverse curvature of the density with spikes that are rounded at zero."""
        at, variance = np.zeros(self.p + 1), 1.0
        for _ in range(40):
            width = self.v_0 * np.sqrt(variance)
            spike = 1.0 / (width * np.maximum(np.abs(at[1:]), 0.7 * width))
            rate = np.append(1.0, np.where(slabs, 1.0 / (V_1 * variance), spike))
            if self.classes:
                q = 1.0 / (1.0 + np.exp(-self.rows @ at))
                weight = np.maximum(q * (1.0 - q), 1e-6)[:, None]
                curvature = (self.rows * weight).T @ self.rows + np.diag(rate)
                slope = self.rows.T @ ((self.y > 0.0) - q) - rate * at
                step = np.linalg.solve(curvature, slope)
                at = at + step / max(1.0, np.abs(step).max())
            else:
                curvature = self.gram / variance + np.diag(rate)
                at = np.linalg.solve(curvature, self.moment / variance)
                rest = np.mean((self.y - self.rows @ at) ** 2)
                variance = max(rest, 1e-6)
        covariance = np.linalg.inv(curvature)
        if self.classes:
            return at, covariance
        last = 0.5 / len(self.y)
        covariance = np.pad(covariance, (0, 1))
        covariance[-1, -1] = last
        return np.append(at, 0.5 * np.log(variance)), covariance


def log_evidence(model, slabs, n_draws, rng):
    """Log evidence of a set of slabs by adaptive importance sampling, and the sample's ESS."""
    mean, covariance = model.start(slabs)
    d = len(mean)
    for n in [min(ADAPTING, n_draws)] * ROUNDS + [n_draws]:
        root = np.linalg.cholesky(covariance)
        away = rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(DF, n) / DF)[:, None]
        theta = mean + away @ root.T
        constant = gammaln(0.5 * (DF + d)) - gammaln(0.5 * DF) - 0.5 * d * np.log(DF * np.pi)
        proposal = constant - np.log(np.diag(root)).sum()
        proposal = proposal - 0.5 * (DF + d) * np.log1p((away**2).sum(1) / DF)
        log_weight = model.log_prior(theta, slabs) + model.log_lik(theta) - proposal
        weight = np.exp(log_weight - logsumexp(log_weight))
        ess = 1.0 / (weight**2).sum()
        share = min(1.0, ess / (5.0 * d))
        off = theta - weight @ theta
        mean = (1.0 - share) * mean + share * (weight @ theta)
        covariance = (1.0 - share) * covariance + share * (weight[:, None] * off).T @ off
    return logsumexp(log_weight) - np.log(n_draws), ess


def exact_inclusion(X, y, classes, n_draws=3000):
    """Inclusion probabilities, and the smallest ESS of a set with a probability above 1e-3."""
    model, rng = Model(X, y, classes), np.random.default_rng(0)
    p = model.p
    sets = np.array(list(itertools.product([False, True], repeat=p)))
    count = sets.sum(1)
    log_prior = betaln(1.0 + count, 2.0 * p - count) - betaln(1.0, p)
    found = np.array([log_evidence(model, slabs, ROUGH, rng) for slabs in sets])
    likely = found[:, 0] + log_prior
    for j in np.flatnonzero(likely > likely.max() - FAR):
        found[j] = log_evidence(model, sets[j], n_draws, rng)
    probability = np.exp(found[:, 0] + log_prior - logsumexp(found[:, 0] + log_prior))
    return probability @ sets, float(found[probability > 1e-3, 1].min())


# problems -----------------------------------------------------------------------------------------

#: classes or normal targets, rows, coefficients, intercept or noise, correlation of neighbours
PROBLEMS = {
    "rare, 1 in 100": (True, 5000, [1.0, 0.5, *6 * [0.0]], -5.2, 0.0),
    "rare, 1 in 25": (True, 2000, [0.8, -0.8, 0.4, *5 * [0.0]], -3.9, 0.0),
    "rare, 1 in 400": (True, 5000, [1.2, -0.8, *6 * [0.0]], -7.0, 0.0),
    "balanced": (True, 300, [1.0, -0.7, 0.4, *5 * [0.0]], 0.0, 0.0),
    "no signal": (True, 500, 8 * [0.0], 0.0, 0.0),
    "few rows": (True, 40, [2.0, -1.5, *6 * [0.0]], 0.0, 0.0),
    "correlated": (True, 400, [1.0, 0.0, 0.0, 0.7, *4 * [0.0]], 0.0, 0.9),
    "eight weak": (True, 1000, [0.3, -0.2, 0.25, -0.3, 0.2, 0.3, -0.25, 0.2], 0.0, 0.0),
    "regression, one of eight": (False, 100, [0.5, *7 * [0.0]], 1.0, 0.0),
    "regression, low noise": (False, 60, [1.0, -0.5, 0.2, 0.1, *4 * [0.0]], 0.1, 0.0),
    "regression, high noise": (False, 200, [1.0, -0.5, 0.5, 0.25, *4 * [0.0]], 3.0, 0.0),
    "regression, few rows": (False, 30, [1.0, 0.7, *6 * [0.0]], 1.0, 0.0),
    "regression, correlated": (False, 150, [1.0, 0.0, 0.0, 0.7, *4 * [0.0]], 1.0, 0.9),
    "regression, all eight": (False, 150, [0.3, -0.4, 0.5, -0.3, 0.4, 0.3, -0.5, 0.4], 1.0, 0.0),
    "regression, no signal": (False, 200, 8 * [0.0], 1.0, 0.0),
    "regression, many rows": (False, 20_000, [0.5, 0.03, 0.02, *5 * [0.0]], 1.0, 0.0),
}


def make_problem(name, seed):
    """X, y, and new rows and targets."""
    classes, n, coef, level, correlation = PROBLEMS[name]
    rng, total = np.random.default_rng(seed), n + N_TEST
    X = rng.standard_normal((total, len(coef)))
    for j in range(1, len(coef)):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1.0 - correlation**2) * X[:, j]
    if classes:
        y = (level + X @ coef + rng.logistic(size=total) > 0.0).astype(int)
    else:
        y = X @ coef + level * rng.standard_normal(total)
    return X[:n], y[:n], X[n:], y[n:]
