"""What ``glm.py`` compares: ``predict(X, y, X_test, seed)`` of our estimator and of its peers.

Each returns a distribution of the targets of test rows: scipy's, or what has the same methods.
Ours returns the fitted estimator and the rows. statsmodels and bambi are left out where they are
not installed.
"""

import logging
from functools import partial

import numpy as np
import scipy.stats
from scipy.special import logsumexp
from sklearn.linear_model import ARDRegression, BayesianRidge, GammaRegressor, PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianGLMRegressor

try:  # here, so that no fit is charged for the import
    import statsmodels.api as sm
except ImportError:
    sm = None
try:
    import bambi
    import pandas as pd
except ImportError:
    bambi = None


def ours(likelihood):
    def predict(X, y, X_test, seed):
        model = BayesianGLMRegressor(likelihood=likelihood, random_state=seed).fit(X, y)
        return model, X_test

    return predict


# scikit-learn -------------------------------------------------------------------------------------


def normal_peer(kind):
    def predict(X, y, X_test, seed):
        mean, sd = (
            make_pipeline(StandardScaler(), kind()).fit(X, y).predict(X_test, return_std=True)
        )
        return scipy.stats.norm(mean, sd)

    return predict


def poisson_peer(X, y, X_test, seed):
    model = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.0, max_iter=1000))
    return scipy.stats.poisson(model.fit(X, y).predict(X_test))


def gamma_peer(X, y, X_test, seed):
    model = make_pipeline(StandardScaler(), GammaRegressor(alpha=0.0, max_iter=1000)).fit(X, y)
    residuals = y / model.predict(X) - 1.0
    dispersion = np.sum(residuals**2) / (len(y) - X.shape[1] - 1)
    return scipy.stats.gamma(1.0 / dispersion, scale=dispersion * model.predict(X_test))


# statsmodels --------------------------------------------------------------------------------------


def with_ones(X, X_test):
    """Standardised features behind a column of ones, of both parts."""
    scaler = StandardScaler().fit(X)
    return [np.hstack([np.ones((len(x), 1)), scaler.transform(x)]) for x in (X, X_test)]


def statsmodels_normal(X, y, X_test, seed):
    design, test = with_ones(X, X_test)
    found = sm.OLS(y, design).fit()
    predicted = found.get_prediction(test)
    return scipy.stats.t(found.df_resid, predicted.predicted_mean, predicted.se_obs)


def statsmodels_gamma(X, y, X_test, seed):
    design, test = with_ones(X, X_test)
    found = sm.GLM(y, design, sm.families.Gamma(sm.families.links.Log())).fit()
    return scipy.stats.gamma(1.0 / found.scale, scale=found.scale * found.predict(test))


def statsmodels_poisson(X, y, X_test, seed):
    design, test = with_ones(X, X_test)
    return scipy.stats.poisson(sm.GLM(y, design, sm.families.Poisson()).fit().predict(test))


def statsmodels_negative_binomial(X, y, X_test, seed):
    design, test = with_ones(X, X_test)
    fitted = sm.NegativeBinomial(y, design).fit(disp=0, maxiter=200)
    return negative_binomial(np.exp(test @ fitted.params[:-1]), 1.0 / fitted.params[-1])


def negative_binomial(mean, size):
    return scipy.stats.nbinom(size, size / (size + mean))


# bambi --------------------------------------------------------------------------------------------


class Mixture:
    """The mixture over draws of one of scipy's distributions, frozen with (draws, rows).

    Quantiles are those of one new target of each draw.
    """

    def __init__(self, law, seed):
        self.law, self.dist = law, law.dist
        self.targets = law.rvs(random_state=seed)

    def mean(self):
        return self.law.mean().mean(0)

    def logpdf(self, y):
        return self._mixed(self.law.logpdf(y))

    def logpmf(self, y):
        return self._mixed(self.law.logpmf(y))

    def _mixed(self, log_p):
        return logsumexp(log_p, axis=0) - np.log(len(log_p))

    def ppf(self, q):
        return np.quantile(self.targets, q, axis=0)


def normal_draws(mean, own):
    return scipy.stats.norm(mean, own("sigma"))


def gamma_draws(mean, own):
    shape = own("alpha")
    return scipy.stats.gamma(shape, scale=mean / shape)


def poisson_draws(mean, own):
    return scipy.stats.poisson(mean)


def negative_binomial_draws(mean, own):
    return negative_binomial(mean, own("alpha"))


#: of each of bambi's families: its link, and scipy's distribution for draws of the mean
BAMBI = {
    "gaussian": ("identity", normal_draws),
    "gamma": ("log", gamma_draws),
    "poisson": ("log", poisson_draws),
    "negativebinomial": ("log", negative_binomial_draws),
}


def bambi_peer(family, X, y, X_test, seed):
    logging.getLogger("pymc").setLevel(logging.ERROR)
    link, law = BAMBI[family]
    scaler = StandardScaler().fit(X)
    names = [f"x{j}" for j in range(X.shape[1])]
    frame, test = (pd.DataFrame(scaler.transform(x), columns=names) for x in (X, X_test))
    frame["y"] = y
    model = bambi.Model(f"y ~ {' + '.join(names)}", frame, family=family, link=link)
    found = model.fit(cores=1, random_seed=seed, progressbar=False)
    model.predict(found, data=test, kind="response_params")

    def own(name):
        return found.posterior[name].to_numpy().reshape(-1, 1)

    mean = found.posterior["mu"].to_numpy()
    return Mixture(law(mean.reshape(-1, len(test)), own), seed)


REAL = {
    "BayesianGLMRegressor": ours("normal"),
    "the same, Student-t": ours("student_t"),
    "BayesianRidge": normal_peer(BayesianRidge),
    "ARDRegression": normal_peer(ARDRegression),
}
POSITIVE = {"BayesianGLMRegressor, gamma": ours("gamma"), "GammaRegressor": gamma_peer}
COUNTS = {
    "BayesianGLMRegressor, Poisson": ours("poisson"),
    "PoissonRegressor": poisson_peer,
    "BayesianGLMRegressor, neg. binomial": ours("negative_binomial"),
}
if sm is not None:
    REAL["statsmodels OLS"] = statsmodels_normal
    POSITIVE["statsmodels GLM, gamma"] = statsmodels_gamma
    COUNTS["statsmodels GLM, Poisson"] = statsmodels_poisson
    COUNTS["statsmodels NegativeBinomial"] = statsmodels_negative_binomial
if bambi is not None:
    REAL["bambi, normal"] = partial(bambi_peer, "gaussian")
    POSITIVE["bambi, gamma"] = partial(bambi_peer, "gamma")
    COUNTS["bambi, Poisson"] = partial(bambi_peer, "poisson")
    COUNTS["bambi, neg. binomial"] = partial(bambi_peer, "negativebinomial")
