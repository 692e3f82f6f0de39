"""Peers of ``tabular.py`` that are not trained here: scikit-learn, boosting, bde; and ours.

The functions are called by ``_tabular_worker.py``, whose docstring says what they return. Libraries
are imported inside of them, since no environment has all. A "held-out tenth" are training rows, the
same for every method that needs some.
"""

import numpy as np
from _tabular_worker import NormalMixture
from scipy.optimize import minimize
from sklearn.model_selection import train_test_split

#: probabilities below this are raised to it
SMALLEST = 1e-6
MIN_SD = 1e-3


def held_out_tenth(X, y, seed, classes):
    """X and y of nine tenths, and of the held-out tenth."""
    strata = y if classes and np.bincount(y).min() > 1 else None
    parts = train_test_split(X, y, test_size=0.1, random_state=seed, stratify=strata)
    return parts[0], parts[2], parts[1], parts[3]


def bounded(proba):
    proba = np.maximum(np.asarray(proba, dtype=np.float64), SMALLEST)
    return proba / proba.sum(axis=1, keepdims=True)


def rmse(prediction, y):
    return max(float(np.sqrt(np.mean((prediction - y) ** 2))), MIN_SD)


def normal_by_held_out(model, X, y, seed):
    """Two fits: to nine tenths for the sd, the RMSE on the others, and to all rows for the mean."""
    X_most, y_most, X_few, y_few = held_out_tenth(X, y, seed, False)
    sigma = rmse(model.fit(X_most, y_most).predict(X_few), y_few)
    model.fit(X, y)
    return lambda X: NormalMixture(model.predict(X), sigma)


def some_rows(y, n, seed):
    """n row numbers, or all if there are fewer."""
    return np.random.default_rng(seed).permutation(len(y))[:n]


# This package


class Ours:
    """The predictive distribution of a fitted regressor, a mixture over its draws."""

    def __init__(self, model, X):
        self.model, self.X = model, X
        self.mean, self.sd = model.predict(X, return_std=True)

    def log_density(self, y):
        return self.model.predict_log_density(self.X, y)

    def interval(self, level):
        return self.model.predict_interval(self.X, coverage=level).T

    def draws(self, n, rng):
        return self.model.sample_y(self.X, n, random_state=int(rng.integers(2**31))).T


def ours_regression(X, y, seed, **options):
    from skbayes_sgmcmc import BayesianMLPRegressor

    model = BayesianMLPRegressor(random_state=seed, **options).fit(X, y)
    return lambda X: Ours(model, X)


def ours_classification(X, y, seed, **options):
    from skbayes_sgmcmc import BayesianMLPClassifier

    return BayesianMLPClassifier(random_state=seed, **options).fit(X, y).predict_proba


# bde, on JAX


def bde_regression(X, y, seed, **options):
    from bde import BdeRegressor
    from bde.loss.loss import GaussianNLL
    from scipy.special import softplus

    model = BdeRegressor(seed=seed, loss=GaussianNLL(), **options).fit(X, y)

    def predict(X):
        raw = np.asarray(model.predict(X, raw=True))
        raw = raw.reshape(-1, len(X), 2)
        return NormalMixture(raw[..., 0], softplus(raw[..., 1]) + 1e-6)

    return predict


def bde_classification(X, y, seed, **options):
    from bde import BdeClassifier

    model = BdeClassifier(seed=seed, **options).fit(X, y)
    return lambda X: bounded(model.predict_proba(X))


# scikit-learn


def linear_regression(X, y, seed):
    """Ridge regression; sigma is the RMSE on a held-out tenth of a fit to the others."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 5, 30)))
    return normal_by_held_out(model, X, y, seed)


def linear_classification(X, y, seed):
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = LogisticRegressionCV(
        Cs=np.logspace(-4, 1, 8),
        scoring="neg_log_loss",
        max_iter=300,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    model = make_pipeline(StandardScaler(), model).fit(X, y)
    return lambda X: bounded(model.predict_proba(X))


def mlp_regression(X, y, seed, **options):
    """sigma is the RMSE on a held-out tenth; the network that predicts has seen all rows."""
    from sklearn.neural_network import MLPRegressor

    return normal_by_held_out(MLPRegressor(random_state=seed, **options), X, y, seed)


def mlp_classification(X, y, seed, **options):
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(random_state=seed, **options).fit(X, y)
    return lambda X: bounded(model.predict_proba(X))


def gp_regression(X, y, seed, n_fit, n_rows):
    """The kernel is fitted to ``n_fit`` rows; predictions condition on ``n_rows``."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    few, rows = some_rows(y, n_fit, seed), some_rows(y, n_rows, seed)
    first = GaussianProcessRegressor(kernel, random_state=seed).fit(X[few], y[few])
    model = first
    if len(rows) > len(few):
        model = GaussianProcessRegressor(first.kernel_, optimizer=None).fit(X[rows], y[rows])

    def predict(X):
        mean, sd = model.predict(X, return_std=True)
        return NormalMixture(mean, np.maximum(sd, MIN_SD))

    return predict


def gp_classification(X, y, seed, n_fit, n_rows):
    """The kernel is fitted to ``n_fit`` rows; the approximate posterior is that of ``n_rows``."""
    from sklearn.base import clone
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel() * RBF(np.sqrt(X.shape[1]))
    few, rows = some_rows(y, n_fit, seed), some_rows(y, n_rows, seed)
    model = GaussianProcessClassifier(kernel, random_state=seed).fit(X[few], y[few])
    if len(rows) > len(few) and len(np.unique(y)) == 2:
        model = clone(model).set_params(kernel=model.kernel_, optimizer=None)
        model.fit(X[rows], y[rows])
    return lambda X: bounded(model.predict_proba(X))


def forest_regression(X, y, seed, n_trees):
    """A normal with variance a + b v, v the variance over trees; a, b fitted out of bag."""
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(n_trees, random_state=seed).fit(X, y)
    trees = model.estimators_

    def over_trees(X, out=None):
        """Mean and variance over all trees, or over those that have not seen a row."""
        X = X.astype(np.float32)
        sums = np.zeros((3, len(X)))
        for t, tree in enumerate(trees):
            found = tree.predict(X)
            use = np.ones(len(X)) if out is None else out[t]
            sums += use * np.stack([np.ones(len(X)), found, found**2])
        count = np.maximum(sums[0], 1.0)
        mean = sums[1] / count
        return mean, np.maximum(sums[2] / count - mean**2, 0.0), sums[0]

    out = np.ones((n_trees, len(X)), dtype=bool)
    for t, rows in enumerate(model.estimators_samples_):
        out[t, rows] = False
    mean, variance, count = over_trees(X, out)
    squares, variance = (y - mean)[count > 1] ** 2, variance[count > 1]

    def loss(logs):
        v = MIN_SD**2 + np.exp(logs[0]) + np.exp(logs[1]) * variance
        return np.mean(np.log(v) + squares / v)

    a, b = np.exp(minimize(loss, [np.log(0.1 * squares.mean()), 0.0], method="Nelder-Mead").x)

    def predict(X):
        mean, variance, _ = over_trees(X)
        return NormalMixture(mean, np.sqrt(MIN_SD**2 + a + b * variance))

    return predict


def forest_classification(X, y, seed, n_trees):
    """The probabilities have the weight of ``n_trees`` rows, the uniform ones that of one."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(n_trees, random_state=seed).fit(X, y)
    n_classes = len(model.classes_)
    return lambda X: (n_trees * model.predict_proba(X) + 1.0 / n_classes) / (n_trees + 1.0)


# Boosting


def xgboost_regression(X, y, seed, **options):
    """sigma is the RMSE on a held-out tenth; the trees that predict have seen all rows."""
    from xgboost import XGBRegressor

    model = XGBRegressor(random_state=seed, n_jobs=1, **options)
    return normal_by_held_out(model, X, y, seed)


def xgboost_classification(X, y, seed, **options):
    from xgboost import XGBClassifier

    X, y, X_few, y_few = held_out_tenth(X, y, seed, True)
    model = XGBClassifier(random_state=seed, n_jobs=1, **options)
    model.fit(X, y, eval_set=[(X_few, y_few)], verbose=False)
    return lambda X: bounded(model.predict_proba(X))


CATBOOST = {"thread_count": 1, "verbose": False, "allow_writing_files": False}


def catboost_regression(X, y, seed, **options):
    """Each tree ensemble of ten virtual ones gives a mean and a variance."""
    from catboost import CatBoostRegressor

    loss = {"loss_function": "RMSEWithUncertainty", **CATBOOST}
    model = CatBoostRegressor(random_seed=seed, **loss, **options).fit(X, y)

    def predict(X):
        found = model.virtual_ensembles_predict(
            X, prediction_type="TotalUncertainty", virtual_ensembles_count=10, thread_count=1
        )
        return NormalMixture(found[:, 0], np.sqrt(np.maximum(found[:, 1] + found[:, 2], 1e-6)))

    return predict


def catboost_classification(X, y, seed, **options):
    from catboost import CatBoostClassifier

    X, y, X_few, y_few = held_out_tenth(X, y, seed, True)
    model = CatBoostClassifier(random_seed=seed, **CATBOOST, **options)
    model.fit(X, y, eval_set=(X_few, y_few))
    return lambda X: bounded(model.predict_proba(X))


def ngboost_regression(X, y, seed, early_stopping_rounds, **options):
    from ngboost import NGBRegressor

    X, y, X_few, y_few = held_out_tenth(X, y, seed, False)
    model = NGBRegressor(random_state=seed, verbose=False, **options)
    model.fit(X, y, X_few, y_few, early_stopping_rounds=early_stopping_rounds)

    def predict(X):
        found = model.pred_dist(X, max_iter=model.best_val_loss_itr)
        return NormalMixture(found.loc, np.maximum(found.scale, MIN_SD))

    return predict


def ngboost_classification(X, y, seed, early_stopping_rounds, **options):
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    n_classes = len(np.unique(y))
    X, y, X_few, y_few = held_out_tenth(X, y, seed, True)
    model = NGBClassifier(
        Dist=k_categorical(n_classes), random_state=seed, verbose=False, **options
    )
    model.fit(X, y, X_few, y_few, early_stopping_rounds=early_stopping_rounds)
    return lambda X: bounded(model.predict_proba(X, max_iter=model.best_val_loss_itr))
