"""Fits of tables, each in another process with one thread: ``tabular.py``, ``mixed_tables.py``.

A benchmark is its methods by key, the sets on which a method runs alone, and two functions of the
name of a set. ``fill`` gives the numbers of all fits that are stored or can be run.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _common import error_rate, expected_calibration_error, finished, nll
from _tabular_worker import LEVEL, MISSING

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC",
     "PJRT_NPROC"), "1",
) | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}  # fmt: skip


class Method(NamedTuple):
    """A row: its name, the module of its functions and their prefix, options and libraries."""

    label: str
    module: str
    function: str
    options: dict
    short: dict
    library: str | None  # what is imported before the time is taken
    packages: tuple = ("scikit-learn",)
    environment: str | None = None  # the option with the interpreter that has the library


class Benchmark(NamedTuple):
    """What is run: the methods by key, the sets of those that do not run on all, and the data."""

    methods: dict[str, Method]
    only: dict[str, tuple]
    load_split: Callable
    task_of: Callable

    def settings_of(self, key, name, seed, short):
        """What the numbers of a fit depend on; of our estimators all parameters, defaults too."""
        task = self.task_of(name)
        options = options_of(self.methods[key], task, short)
        if self.methods[key].function == "ours":
            kind = BayesianMLPRegressor if task == "regression" else BayesianMLPClassifier
            options = kind(**options).get_params()
        return {"set": name, "method": key, "seed": seed, "options": options}


def options_of(method, task, short):
    options = method.options.get(task, method.options)
    return options | (method.short if short else {})


class MissingLibraryError(Exception):
    """A method cannot run here."""


class Worker:
    """A process that has imported a library and runs each fit in a copy of itself."""

    def __init__(self, python):
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  - lives as long as the process
        self.process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("_tabular_worker.py"))],
            env=os.environ | ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def run(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "0":
            missing = not answer and self.close() == MISSING
            self.log.seek(0)
            raise (MissingLibraryError if missing else RuntimeError)(
                self.log.read()[-2000:].strip()
            )

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


@functools.cache
def shared_worker(python, _library):
    return Worker(python)


def run(args, benchmark, key, name, seed):
    """The scores and costs of one fit, in another process."""
    method, task = benchmark.methods[key], benchmark.task_of(name)
    X, y, X_test, y_test = benchmark.load_split(name, seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = {"data": f"{folder}/data.npz", "out": f"{folder}/out.npz",
                 "costs": f"{folder}/costs.json"}  # fmt: skip
        store(paths["data"], X=X, y=y, X_test=X_test, y_test=y_test)
        request = paths | {
            "task": task,
            "module": method.module,
            "function": f"{method.function}_{task}",
            "library": method.library,
            "packages": method.packages,
            "options": options_of(method, task, args.short),
            "seed": seed,
        }
        python = (method.environment and getattr(args, method.environment)) or sys.executable
        if method.library == "bde":  # JAX has threads, which do not survive a fork
            worker = Worker(python)
            worker.run(request)
            worker.close()
        else:
            shared_worker(python, method.library).run(request)
        costs = json.loads(Path(paths["costs"]).read_text())
        with np.load(paths["out"]) as data:
            found = dict(data)
    scores = regression_scores if task == "regression" else class_scores
    seconds = costs["fit_s"] + costs["predict_s"]
    return scores(found, y_test) | costs | {"seconds": seconds}


def store(path, **parts):
    """Arrays in one file; frames, with their types, in files beside it."""
    frames = {name: part for name, part in parts.items() if hasattr(part, "to_feather")}
    np.savez(path, **{name: part for name, part in parts.items() if name not in frames})
    for name, frame in frames.items():
        frame.reset_index(drop=True).to_feather(f"{path}.{name}")


def regression_scores(found, y):
    """``nll`` is that of the predictive density, ``nll_normal`` that of N(mean, sd).

    ``interval`` is the interval score of central 90% intervals (Gneiting and Raftery, 2007).
    """
    error = y - found["mean"]
    sd, (low, high) = found["sd"], found["interval"]
    normal = 0.5 * (error / sd) ** 2 + np.log(sd) + 0.5 * np.log(2.0 * np.pi)
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "nll": float(-found["log_density"].mean()),
        "nll_normal": float(normal.mean()),
        "crps": float(found["crps"].mean()),
        "coverage": float(np.mean(outside == 0.0)),
        "interval": float(np.mean(high - low + 2.0 / (1.0 - LEVEL) * outside)),
    }


def class_scores(found, y):
    """``brier`` is the sum of squares over the classes, from 0 to 2."""
    proba = found["proba"]
    hit = np.eye(proba.shape[1])[y]
    return {
        "error": error_rate(y, proba),
        "nll": nll(y, proba),
        "brier": float(((proba - hit) ** 2).sum(axis=1).mean()),
        "ece": expected_calibration_error(y, proba),
    }


def fill(args, benchmark, methods, sets, seeds):
    """The numbers of all fits that are stored or can be run: {(method, set): {seed: numbers}}.

    Returns them, the methods whose library is missing, and the fits that failed.
    """
    results, missing, failed = {}, {}, []
    for seed in seeds:
        for name in sets:
            for key in methods:
                if key in missing or name not in benchmark.only.get(key, (name,)):
                    continue
                settings = benchmark.settings_of(key, name, seed, args.short)
                one = partial(run, args, benchmark, key, name, seed)
                try:
                    found = finished(args, f"{name}-{key}-{seed}", one, **settings)
                except MissingLibraryError as error:
                    shared_worker.cache_clear()  # that process has ended
                    missing[key] = str(error)
                    print(f"{benchmark.methods[key].label} is left out: {error}", flush=True)
                    continue
                except RuntimeError as error:  # the others may be well
                    shared_worker.cache_clear()
                    failed.append(f"{key} on {name}, seed {seed}")
                    print(f"{failed[-1]}: {error}", flush=True)
                    continue
                if found is not None:
                    results.setdefault((key, name), {})[seed] = found
    return results, missing, failed
