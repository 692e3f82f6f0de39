"""Methods of ``mixed_tables.py`` for frames, called by ``_tabular_worker.py``; see its docstring.

Each sees the columns in the form that its documentation asks for. A "held-out tenth" are training
rows, the same for every method that needs some: to stop early, and for the sd of a normal where a
method predicts points only.
"""

import numpy as np
import pandas as pd
from _tabular_peers import (
    CATBOOST,
    MIN_SD,
    bounded,
    forest_classification,
    forest_regression,
    held_out_tenth,
    linear_classification,
    linear_regression,
    rmse,
)
from _tabular_worker import NormalMixture

MISSING = "missing"


class Columns:
    """Columns of texts and codes as categories, with the levels of the training rows.

    Levels that were not seen become missing, and booleans are numbers.
    """

    def __init__(self, X):
        names = [name for name in X if X[name].dtype.kind not in "biuf"]
        # as objects: an index of categories would keep those that no training row has
        levels = {name: X[name].dropna().unique().astype(object) for name in names}
        self.levels = {name: pd.Index(found) for name, found in levels.items()}
        self.flags = [name for name in X if X[name].dtype.kind == "b"]

    def categories(self, X):
        known = {}
        for name, levels in self.levels.items():
            kind = pd.CategoricalDtype(levels)
            found = X[name].where(X[name].isin(levels)).astype(kind)
            known[name] = found.cat.rename_categories(levels.astype(str))  # XGBoost has no others
        return X.assign(**known).astype(dict.fromkeys(self.flags, float))

    def texts(self, X):
        """Categories as strings, without gaps."""
        found = self.categories(X)
        return found.assign(**{name: found[name].astype(object).fillna(MISSING).astype(str)
                               for name in self.levels})  # fmt: skip

    def without_gaps(self, X, medians):
        """Categories; numbers with gaps filled by medians, and a column that marks the gaps."""
        found = self.categories(X).fillna(medians)
        marks = {f"{name} is missing": X[name].isna().astype(float) for name in medians.index}
        return found.assign(**marks)


def gaps(X):
    """Medians of the number columns of the training rows that have gaps."""
    numbers = X.select_dtypes("number")
    return numbers.loc[:, numbers.isna().any()].median()


# Encoded for scikit-learn


def one_hot(X):
    """Indicators of levels; medians for missing numbers, and a column that marks the gaps."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    columns = Columns(X)
    numbers = [name for name in X if name not in columns.levels]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, drop="if_binary")
    encoder = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), numbers),
        (encoder, list(columns.levels)),
    ).fit(columns.texts(X))
    return lambda X: encoder.transform(columns.texts(X))


def encoded(fit):
    """A function for frames, from one for arrays."""

    def of_frames(X, y, seed, **options):
        encode = one_hot(X)
        predict = fit(encode(X), y, seed, **options)
        return lambda X: predict(encode(X))

    return of_frames


linear_regression, linear_classification = map(encoded, (linear_regression, linear_classification))
forest_regression, forest_classification = map(encoded, (forest_regression, forest_classification))


# Boosting


def points_and_held_out(model, X, y, prepare):
    """A normal around the predictions of a fitted model, whose sd is the RMSE on rows held out."""
    sigma = rmse(model.predict(X), y)
    return lambda X: NormalMixture(model.predict(prepare(X)), max(sigma, MIN_SD))


def xgboost_regression(X, y, seed, **options):
    from xgboost import XGBRegressor

    prepare = Columns(X).categories
    X, y, X_few, y_few = held_out_tenth(prepare(X), y, seed, False)
    model = XGBRegressor(random_state=seed, n_jobs=1, enable_categorical=True, **options)
    model.fit(X, y, eval_set=[(X_few, y_few)], verbose=False)
    return points_and_held_out(model, X_few, y_few, prepare)


def xgboost_classification(X, y, seed, **options):
    from xgboost import XGBClassifier

    prepare = Columns(X).categories
    X, y, X_few, y_few = held_out_tenth(prepare(X), y, seed, True)
    model = XGBClassifier(random_state=seed, n_jobs=1, enable_categorical=True, **options)
    model.fit(X, y, eval_set=[(X_few, y_few)], verbose=False)
    return lambda X: bounded(model.predict_proba(prepare(X)))


def lightgbm_regression(X, y, seed, rounds, **options):
    from lightgbm import LGBMRegressor, early_stopping

    prepare = Columns(X).categories
    X, y, X_few, y_few = held_out_tenth(prepare(X), y, seed, False)
    model = LGBMRegressor(random_state=seed, n_jobs=1, verbose=-1, **options)
    model.fit(X, y, eval_set=[(X_few, y_few)], callbacks=[early_stopping(rounds, verbose=False)])
    return points_and_held_out(model, X_few, y_few, prepare)


def lightgbm_classification(X, y, seed, rounds, **options):
    from lightgbm import LGBMClassifier, early_stopping

    prepare = Columns(X).categories
    X, y, X_few, y_few = held_out_tenth(prepare(X), y, seed, True)
    model = LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1, **options)
    model.fit(X, y, eval_set=[(X_few, y_few)], callbacks=[early_stopping(rounds, verbose=False)])
    return lambda X: bounded(model.predict_proba(prepare(X)))


def catboost_regression(X, y, seed, loss_function="RMSEWithUncertainty", **options):
    """With RMSEWithUncertainty, ten virtual ensembles give the variance; else it is constant."""
    from catboost import CatBoostRegressor

    columns = Columns(X)
    X, y, X_few, y_few = held_out_tenth(columns.texts(X), y, seed, False)
    model = CatBoostRegressor(
        random_seed=seed, loss_function=loss_function, cat_features=list(columns.levels),
        **CATBOOST, **options,
    ).fit(X, y, eval_set=(X_few, y_few))  # fmt: skip
    if loss_function == "RMSE":
        return points_and_held_out(model, X_few, y_few, columns.texts)

    def predict(X):
        found = model.virtual_ensembles_predict(
            columns.texts(X), prediction_type="TotalUncertainty", virtual_ensembles_count=10,
            thread_count=1,
        )  # fmt: skip
        return NormalMixture(found[:, 0], np.sqrt(np.maximum(found[:, 1] + found[:, 2], 1e-6)))

    return predict


def catboost_classification(X, y, seed, **options):
    from catboost import CatBoostClassifier

    columns = Columns(X)
    X, y, X_few, y_few = held_out_tenth(columns.texts(X), y, seed, True)
    model = CatBoostClassifier(
        random_seed=seed, cat_features=list(columns.levels), **CATBOOST, **options
    ).fit(X, y, eval_set=(X_few, y_few))
    return lambda X: bounded(model.predict_proba(columns.texts(X)))


# pytabkit: RealMLP, TabM, xRFM


def tabkit_fit(kind, X, y, seed, classes, **options):
    """A fitted estimator of pytabkit, what prepares its rows, and the tenth that stopped it."""
    import logging

    import pytabkit

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    columns, medians = Columns(X), gaps(X)
    X, y, X_few, y_few = held_out_tenth(columns.without_gaps(X, medians), y, seed, classes)
    model = getattr(pytabkit, kind)(device="cpu", random_state=seed, n_threads=1, **options)
    model.fit(X, y, X_val=X_few, y_val=y_few)
    return model, lambda X: columns.without_gaps(X, medians), X_few, y_few


def tabkit_regression(X, y, seed, kind, **options):
    model, prepare, X_few, y_few = tabkit_fit(f"{kind}_Regressor", X, y, seed, False, **options)
    return points_and_held_out(model, X_few, y_few, prepare)


def tabkit_classification(X, y, seed, kind, **options):
    model, prepare, _, _ = tabkit_fit(f"{kind}_Classifier", X, y, seed, True, **options)
    return lambda X: bounded(model.predict_proba(prepare(X)))
