"""The property: finite and consistent predictions, or an error that names what is wrong.

A case may end in two ways. Either ``fit`` and all that can be asked of a fitted estimator succeed,
and the answers agree with each other. Or ``fit`` raises one of the documented errors, and its
message names the data, or a parameter that was given and is not one of the short lengths; its note
names a section of docs/warnings.md. If a single parameter is unusual and the data are not, a
failure of the sampling is no exception: its message names what was given, too. No warning but ours
and scikit-learn's own reaches the user, nothing global changes, data stay as they are, and all of
it ends in time.
"""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import tempfile
import warnings
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from _links import section_of
from fuzz_data import Rows, Targets, are_ordinary, made_rows, made_targets, made_weights
from fuzz_values import given
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning

import skbayes_sgmcmc
from skbayes_sgmcmc import CheckpointError, SamplingError, SamplingWarning

#: seconds of processor time for one case, compiling included, and of any time
LIMIT, WAIT = 60, 900
#: warnings of scikit-learn, of which users can do something about the data
ALLOWED = (SamplingWarning, DataConversionWarning)
ALLOWED_TEXT = re.compile(
    "unique classes is greater than 50%|No features were selected|Only one sample available"
)
#: what errors may name beside parameters: the data, in scikit-learn's words too
DATA = (
    "X", "y", "sample_weight", "array", "input variables", "dtype", "label type", "data",
    "classes", "string to float", "sparse container", "samples", "feature",
)  # fmt: skip


#: how far from the rows of the fit predictions are asked for
FAR = (1e30, 1e155, 1e300, -1e39)


@dataclass
class Case:
    """One fit: an estimator by its name, its parameters and data, and what is done next."""

    name: str
    parameters: dict[str, Any]
    rows: Rows
    targets: Targets
    weights: str = "none"
    then: str = "nothing"
    extra: dict[str, Any] = field(default_factory=dict)


class Broken(Exception):
    """The property does not hold."""


class TooSlow(BaseException):
    """The time is up; no ``except Exception`` on the way takes it for an error."""


def is_classifier(name):
    return "Classifier" in name or "Logistic" in name


def is_topics(name):
    return name in ("LatentDirichletAllocation", "DeepPoissonFactorAnalysis")


def needs_y(name):
    return is_classifier(name) or "Regressor" in name


# what holds for every case ------------------------------------------------------------------------


@contextmanager
def guarded(parameters):
    """Nothing global changes, no warning escapes, and there is an end.

    With ``random_state=None``, seeds come from numpy's global state, as in scikit-learn.
    """

    def stop(number, frame):
        raise TooSlow

    before = _globals()
    timers = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}
    kept = {number: signal.signal(number, stop) for number in timers.values()}
    for timer, seconds in zip(timers, (LIMIT, WAIT), strict=True):
        signal.setitimer(timer, seconds)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            chdir(folder),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            yield
    except TooSlow:
        raise Broken(f"no end after {LIMIT} s of processor time, or {WAIT} s") from None
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in kept.items():
            signal.signal(number, handler)
    for one in caught:
        known = issubclass(one.category, ALLOWED) or ALLOWED_TEXT.search(str(one.message))
        _require(known, f"{one.category.__name__} at {_short(one.filename)}: {one.message}")
    first = 1 if parameters.get("random_state", 0) is None else 0
    unchanged = before[first:] == _globals()[first:]
    _require(unchanged, "a global random state, or the environment, changed")


def _globals():
    numpy_state = np.random.mtrand._rand.get_state()  # of the functions in np.random
    # torch sets these itself, when it imports its optimisers
    names = [name for name in os.environ if not name.startswith("TORCHINDUCTOR")]
    return pickle.dumps(numpy_state), torch.get_rng_state().tolist(), names


def _short(path):
    return "/".join(path.split("/")[-3:])


def _require(holds, message):
    if not holds:
        raise Broken(message)


def explained(error, parameters, more=(), ordinary_data=False):
    """Whether an error is one of ours, or scikit-learn's about data, that names the culprit."""
    names, unusual = given(parameters)
    for name in unusual:  # parts of a sampler or a prior, such as the friction
        names |= set(getattr(parameters[name], "__dict__", ()))
    if isinstance(error, SamplingError):
        return not (ordinary_data and len(unusual) == 1) or _names(error, [*names, *more])
    if isinstance(error, CheckpointError | MemoryError | FloatingPointError):
        return True  # the last one of a student's training
    if not isinstance(error, ValueError | TypeError) or section_of(error) is None:
        return False
    return _names(error, [*names, *more, *DATA])


def _names(error, names):
    """As whole words: "you" is not y."""
    words = "|".join(re.escape(name) for name in names)
    return re.search(rf"(?<!\w)({words})s?(?!\w)", str(error)) is not None


def same(a, b):
    """Whether two data are equal, entry by entry."""
    if sp.issparse(a):
        a, b = a.tocoo(), b.tocoo()
        return all(same(getattr(a, part), getattr(b, part)) for part in ("row", "col", "data"))
    if isinstance(a, pd.DataFrame | pd.Series):
        return a.equals(b)
    if isinstance(a, list):  # rows of different lengths are no array
        return repr(a) == repr(b)
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "O":  # NaN among objects is not equal to itself
        return repr(a.tolist()) == repr(b.tolist())
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


# one case of an estimator -------------------------------------------------------------------------


def check(case):
    """Raise :class:`Broken` unless the property holds; return "fitted" or the error's name."""
    kind = getattr(skbayes_sgmcmc, case.name)
    X = made_rows(case.rows)
    y = made_targets(
        case.targets, case.rows.n, case.rows.seed, classes=is_classifier(case.name)
    ) if needs_y(case.name) else None  # fmt: skip
    fit = {}
    if case.weights != "none" and "sample_weight" in signature(kind.fit).parameters:
        fit["sample_weight"] = made_weights(case.weights, case.rows.n, case.rows.seed)
    before = copy.deepcopy((X, y))
    with guarded(case.parameters):
        estimator = kind(**case.parameters)
        try:
            estimator.fit(X, y, **fit)
        except Exception as error:
            plain = are_ordinary(case.rows, case.targets, case.weights)
            told = explained(error, case.parameters, ordinary_data=plain)
            _require(told, f"{type(error).__name__}: {error}")
            _require(not hasattr(estimator, "posterior_"), f"half fitted after {error}")
            ended = type(error).__name__
        else:
            ended = "fitted"
            answers = ask(estimator, case, X, y)
            again = pickle.loads(pickle.dumps(estimator))
            for word, value in ask(again, case, X, y).items():
                _require(same(value, answers[word]), f"{word} differs after pickle")
            other_rows(estimator, case)
            _then(case, estimator, X, y, fit)
    _require(same(before[0], X) and (y is None or same(before[1], y)), "fit changed its data")
    return ended


def _then(case, estimator, X, y, fit):
    """What may follow a fit: the same again, a stream, a warm start."""
    if case.then == "again":
        found = clone(estimator).fit(X, y, **fit)
        if "checkpoint" not in case.parameters:
            _same_draws(found, estimator)
    if case.then == "stream" and hasattr(estimator, "partial_fit"):
        stream = clone(estimator)
        try:
            for _ in range(2):
                stream.partial_fit(X, y, **fit)
        except Exception as error:
            _require(explained(error, case.parameters), f"{type(error).__name__}: {error}")
        else:
            ask(stream, case, X, y)
    if case.then == "warm start" and "warm_start" in case.parameters:
        estimator.set_params(warm_start=True)
        try:
            estimator.fit(X, y, **fit)
        except Exception as error:
            _require(explained(error, case.parameters), f"{type(error).__name__}: {error}")
        ask(estimator, case, X, y)


def _same_draws(one, other):
    if not hasattr(one, "posterior_"):
        return
    for name, values in one.posterior_.draws.items():
        _require(same(np.asarray(values), np.asarray(other.posterior_.draws[name])),
                 f"draws of {name} differ with the same seed")  # fmt: skip


def other_rows(estimator, case):
    """Rows of another seed, and far from those of the fit: answers, or an error about X."""
    seed = case.rows.seed + 1
    X = made_rows(case.rows, seed)
    y = made_targets(case.targets, case.rows.n, seed, classes=is_classifier(case.name)) if (
        needs_y(case.name)
    ) else None  # fmt: skip
    far = FAR[case.rows.seed % len(FAR)]
    for rows, y_rows in ((X, y), (_times(X, far), y), (X, _times(y, far))):
        try:
            ask(estimator, case, rows, y_rows)
        except (ValueError, TypeError) as error:
            _require(explained(error, {}), f"{type(error).__name__}: {error}")


def _times(values, factor):
    with np.errstate(all="ignore"):
        numbers = isinstance(values, np.ndarray) and values.dtype.kind == "f"
        return values * factor if numbers else values


# what a fitted estimator answers ------------------------------------------------------------------


def ask(estimator, case, X, y):
    """Its answers by name, after checking that they agree with each other."""
    if is_classifier(case.name):
        found = _ask_classifier(estimator, X)
    elif needs_y(case.name):
        found = _ask_regressor(estimator, X, y)
    else:
        found = _ask_transformer(estimator, case, X)
    if hasattr(estimator, "posterior_"):
        estimator.summary()
        draws = estimator.sample_posterior(2, random_state=0)
        for name, values in draws.items():
            _finite(values, f"draws of {name}")
    return found


def _finite(values, name):
    _require(np.isfinite(values).all(), f"{name} is not finite")


def _ask_of_several(estimator, X):
    """Of several targets: labels of 0 and 1, or a list with the classes of each."""
    found, labels = estimator.predict_proba(X), estimator.predict(X)
    if isinstance(found, np.ndarray):
        parts, classes = (
            [np.stack([1 - p, p], axis=1) for p in found.T],
            [np.arange(2)] * len(found.T),
        )
    else:
        parts, classes = found, estimator.classes_
    for j, (proba, known) in enumerate(zip(parts, classes, strict=True)):
        _finite(proba, "predict_proba")
        _require((proba >= 0).all(), "predict_proba is negative")
        _require(np.abs(proba.sum(1) - 1).max() < 1e-5, "predict_proba does not sum to one")
        chosen = proba[np.arange(len(proba)), np.searchsorted(known, labels[:, j])]
        _require((chosen >= proba.max(1) - 1e-6).all(), "predict is not the likeliest")
    return {"predict_proba": np.hstack(parts), "predict": labels}


def _ask_classifier(estimator, X):
    labels = estimator.predict(X)
    if labels.ndim == 2:
        return _ask_of_several(estimator, X)
    proba = estimator.predict_proba(X)
    _finite(proba, "predict_proba")
    _require((proba >= 0).all(), "predict_proba is negative")
    _require(np.abs(proba.sum(1) - 1).max() < 1e-5, "predict_proba does not sum to one")
    _require(same(labels, estimator.classes_[proba.argmax(1)]), "predict is not the likeliest")
    logs = estimator.predict_log_proba(X)
    _require(np.abs(np.exp(logs) - proba).max() < 1e-6, "predict_log_proba differs")
    _require(not np.isnan(estimator.decision_function(X)).any(), "decision_function is nan")
    found = {"predict_proba": proba, "predict": labels}
    if hasattr(estimator, "predict_uncertainty"):
        parts = estimator.predict_uncertainty(X)
        for name in ("total", "aleatoric", "epistemic"):
            _finite(parts[name], name)
        _require((parts.total <= np.log(proba.shape[1]) + 1e-5).all(), "entropy above its maximum")
        _require((parts.aleatoric >= -1e-6).all(), "a negative entropy")
        _require((parts.epistemic >= -1e-5).all(), "a negative mutual information")
        single = estimator.predict_proba_samples(X, 2, random_state=0)
        _require(np.abs(single.sum(2) - 1).max() < 1e-5, "predict_proba_samples do not sum to one")
        found["total"] = parts.total
    return found


def _ask_regressor(estimator, X, y):
    mean, sd = estimator.predict(X, return_std=True)
    _finite(mean, "predict")
    _finite(sd, "the sd of predictions")
    _require((sd >= 0).all(), "a negative sd")
    _require(same(mean, estimator.predict(X)), "predict differs with return_std")
    q = estimator.predict_quantiles(X, [0.05, 0.5, 0.95])
    _finite(q, "predict_quantiles")
    _require((np.diff(q, axis=1) >= 0).all(), "quantiles out of order")
    interval = estimator.predict_interval(X)
    _finite(interval, "predict_interval")
    _require((interval[:, 0] <= interval[:, 1]).all(), "an interval out of order")
    draws = estimator.sample_y(X, 2, random_state=0)
    _finite(draws, "sample_y")
    found = {"mean": mean, "sd": sd, "quantiles": q, "interval": interval, "sample_y": draws}
    if np.shape(y) == mean.shape:
        density = estimator.predict_log_density(X, y)
        _require(not np.isnan(density).any() and (density < np.inf).all(), "log density")
        found["density"] = density
    return found


def _ask_transformer(estimator, case, X):
    found = estimator.transform(X)
    found = found.toarray() if sp.issparse(found) else np.asarray(found)
    _finite(found, "transform")
    answers = {"transform": found}
    if is_topics(case.name):
        _require((found >= 0).all(), "negative proportions")
        _require(np.abs(found.sum(1) - 1).max() < 1e-5, "proportions do not sum to one")
        components = estimator.components_
        _require(np.abs(components.sum(1) - 1).max() < 1e-5, "topics do not sum to one")
        estimator.top_words(2)
        try:
            perplexity = estimator.perplexity(X, random_state=0)
        except ValueError as error:
            _require("no document of two words" in str(error), str(error))
        else:
            _require(perplexity >= 1 - 1e-9 and np.isfinite(perplexity), "perplexity")
            answers["perplexity"] = perplexity
    else:
        _finite(estimator.inverse_transform(found), "inverse_transform")
    return answers


# one case of sample -------------------------------------------------------------------------------

LOG_DENSITIES = {
    "normal": lambda t: -0.5 * (t**2).sum(1),
    "narrow": lambda t: -0.5e8 * (t**2).sum(1),
    "wide": lambda t: -0.5e-8 * (t**2).sum(1),
    "cauchy": lambda t: -torch.log1p(t**2).sum(1),
    "flat": lambda t: 0.0 * t.sum(1),
    "growing": lambda t: (t**4).sum(1),
    "half": lambda t: torch.log(t).sum(1) - t.sum(1),
    "not a number": lambda t: torch.sqrt(-1.0 - t**2).sum(1),
    "one number": lambda t: -0.5 * (t**2).sum(),
    "numpy": lambda t: -0.5 * (t.detach().numpy() ** 2).sum(1),
    "no gradient": lambda t: -0.5 * (t.detach() ** 2).sum(1),
    "nothing": lambda t: None,
    "an error": lambda t: t.no_such_attribute,
}
#: errors of the densities themselves
OWN = {"an error": "no_such_attribute", "numpy": "numpy()"}


def check_sample(density, parameters):
    """The same for :func:`skbayes_sgmcmc.sample`."""
    words = ["log density", "log_density", "log_prob"]
    with guarded(parameters):
        try:
            posterior = skbayes_sgmcmc.sample(LOG_DENSITIES[density], **parameters)
        except Exception as error:
            if OWN.get(density, "\n") in str(error):
                return "an error of the density"
            told = explained(error, parameters, words, ordinary_data=density == "normal")
            _require(told, f"{type(error).__name__}: {error}")
            return type(error).__name__
        for name, values in posterior.draws.items():
            _finite(values, f"draws of {name}")
            _finite(posterior.mean(name), "mean")
            _require((posterior.std(name) >= 0).all(), "a negative sd")
    return "sampled"
