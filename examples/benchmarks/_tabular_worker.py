"""Runs the fits of ``_tabular_run.py``, each in a process of its own.

Each line of the input is a JSON object: the file of the data, the module and function that fits,
its options, the seed, and the files for predictions and costs. The libraries are imported, and a
forked process fits, predicts, measures and ends. The answer is its exit status. This file needs
only numpy, scipy and scikit-learn, and pandas for frames, so that it runs in environments that have
a peer but not this package.

A function ``fit(X, y, seed, **options)`` returns ``predict(X)``. In classification that gives
probabilities (rows, classes), in regression an object with the methods of ``NormalMixture``.
"""

import importlib
import json
import os
import resource
import sys
import traceback
import warnings
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from scipy.special import logsumexp, ndtr

#: number of draws of each row's predictive distribution that its CRPS is computed from
N_DRAWS = 1000
LEVEL = 0.9
MISSING = 3  # exit status: the library is not installed


class NormalMixture:
    """Equally weighted normals for each row: ``means`` and ``sds`` of shape (normals, rows)."""

    def __init__(self, means, sds):
        means = np.atleast_2d(np.asarray(means, dtype=np.float64))
        sds = np.atleast_2d(np.asarray(sds, dtype=np.float64))
        self.means, self.sds = np.broadcast_arrays(means, sds)
        self.mean = self.means.mean(axis=0)
        self.sd = np.sqrt((self.sds**2).mean(axis=0) + self.means.var(axis=0))

    def log_density(self, y):
        z = (y - self.means) / self.sds
        each = -0.5 * z**2 - np.log(self.sds) - 0.5 * np.log(2.0 * np.pi)
        return logsumexp(each, axis=0) - np.log(len(each))

    def interval(self, level):
        """Ends of the central interval of each row, shape (2, rows), by bisection."""
        p = np.array([[0.5 - level / 2.0], [0.5 + level / 2.0]])
        low = np.broadcast_to((self.means - 8.0 * self.sds).min(axis=0), (2, self.mean.size))
        high = np.broadcast_to((self.means + 8.0 * self.sds).max(axis=0), (2, self.mean.size))
        for _ in range(50):
            middle = 0.5 * (low + high)
            below = ndtr((middle[:, None] - self.means) / self.sds).mean(axis=1) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    def draws(self, n, rng):
        """Draws of shape (n, rows), as many of each normal as of the others, or one more."""
        which = np.arange(n) * len(self.means) // n  # spread over them, if they are more than n
        noise = rng.standard_normal((n, self.means.shape[1]))
        return self.means[which] + self.sds[which] * noise


def crps(draws, y):
    """CRPS of each row by draws (n, rows): E|Z - y| - E|Z - Z'| / 2, both without bias."""
    draws = np.sort(draws, axis=0)
    n = len(draws)
    weights = (2.0 * np.arange(n) - n + 1.0) / (n * (n - 1.0))
    return np.abs(draws - y).mean(axis=0) - weights @ draws


def processor_seconds():
    """User and system time of this process, its threads, and children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def peak_megabytes():
    """Largest resident set of this program; ``ru_maxrss`` may be that of the process before it."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            (line,) = (line for line in file if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024.0
    except OSError:  # not on Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def part_of(path, name):
    """An array of the file, or a frame that is stored beside it."""
    beside = f"{path}.{name}"
    if os.path.exists(beside):
        import pandas as pd

        return pd.read_feather(beside)
    with np.load(path) as data:
        return data[name]


def fit_one(request):
    """Fit and predict; writes what is needed for the scores, and the costs."""
    fit = getattr(importlib.import_module(request["module"]), request["function"])
    X, y, X_test, y_test = (part_of(request["data"], key) for key in ("X", "y", "X_test", "y_test"))
    start = processor_seconds()
    predict = fit(X, y, request["seed"], **request["options"])
    fitted = processor_seconds()
    found = predict(X_test)
    done = processor_seconds()
    megabytes = peak_megabytes()
    if request["task"] == "regression":
        draws = found.draws(N_DRAWS, np.random.default_rng(request["seed"]))
        found = {"mean": found.mean, "sd": found.sd, "log_density": found.log_density(y_test),
                 "interval": found.interval(LEVEL), "crps": crps(draws, y_test)}  # fmt: skip
    else:
        found = {"proba": found}
    np.savez(request["out"], **found)
    costs = {"fit_s": fitted - start, "predict_s": done - fitted, "memory_mb": megabytes,
             "versions": versions(request["packages"])}  # fmt: skip
    with open(request["costs"], "w", encoding="utf-8") as file:
        json.dump(costs, file)


def forked(request):
    """Exit status of a process that is a copy of this one and runs ``fit_one``."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fit_one(request)
            status = 0
        except BaseException:  # the caller reads it in the log
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    warnings.simplefilter("ignore")  # of optimisers that have not converged, among others
    for line in sys.stdin:
        request = json.loads(line)
        try:
            for module in (request["library"], request["module"]):
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            print(error, file=sys.stderr)
            sys.exit(MISSING)
        print(forked(request), file=answers, flush=True)


def versions(packages):
    """Those that are installed: {package: version}."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
