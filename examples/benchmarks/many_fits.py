"""Many fits, and fits on a busy machine: what they cost beyond one fit that is alone.

    python examples/benchmarks/many_fits.py

Leave the number of threads as torch and the BLAS have it (no ``OMP_NUM_THREADS``), and nothing else
running: the first table compares an idle machine with one whose processors are all taken.
"""

import json
import os
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
from _common import markdown_table, parse_args, write_results
from joblib.externals.loky import get_reusable_executor
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
)

SPIN = "while True:\n    pass"
N_FITS = 5
BODY = """**A busy machine.** Seconds by the clock of one fit, in a process that has fitted once:
alone, and beside {n_busy} processes that compute all the time. Medians of {n_fits}
fits; threads as the packages set them. One thread that shares {n_cores} processors evenly takes
{even:.1f} times as long; the target is at most twice as long.

{busy}

**A search.** `GridSearchCV` over four step sizes and four folds, {n_search} fits of
`BayesianMLPClassifier` on breast_cancer, by `n_jobs`. Processor time is that of all processes,
those of the workers' imports among them. "Next search": in workers that have had one, since joblib
keeps them; it is the time of two searches less that of one. The target with two jobs is 1.1 times
the processor time of one job. A worker that starts imports scikit-learn and torch, about a second
each, then this package and the compiled code.

{search}

**A frame.** Processor time of fits to a frame with 20 columns of numbers, 10 of categories and
1,000 rows, and of fits to the array that `OneHotEncoder` makes of it, which has {n_encoded}
columns. Medians of 3 fits in turns. Both get the same sampler. Each column of categories of a frame
has a learned scale; in linear models, those of an array share one with all other columns. The
target is at most 1.15 times.

{frames}

**Small fits.** {n_small:,} fits of `BayesianLogisticRegression` with its defaults to 200 rows of 5
columns take {small:.0f} s of processor time. The target for 1,000 fits is 60 s.
"""


def counts():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 10))
    return X, rng.poisson(np.exp(0.3 * X[:, 0] + 0.5))


TASKS = {
    "logistic regression, breast_cancer": (BayesianLogisticRegression, load_breast_cancer),
    "Poisson regression, 2,000 x 10": (lambda: BayesianGLMRegressor(likelihood="poisson"), counts),
    "network, diabetes": (BayesianMLPRegressor, load_diabetes),
    "`LogisticRegression`, breast_cancer": (
        lambda: LogisticRegression(max_iter=5000), load_breast_cancer
    ),
    "`MLPRegressor`, diabetes": (
        lambda: MLPRegressor(hidden_layer_sizes=(100, 100), max_iter=500, random_state=0),
        load_diabetes,
    ),
}  # fmt: skip


def seconds_of_fits(name, n_fits):
    """Seconds by the clock of each fit of a task, after one that is not counted."""
    make, load = TASKS[name]
    X, y = load() if load is counts else load(return_X_y=True)
    model = make_pipeline(StandardScaler(), make())
    found = []
    for _ in range(1 + n_fits):
        start = time.perf_counter()
        model.fit(X, y)
        found.append(time.perf_counter() - start)
    return found[1:]


def in_own_process(name, n_fits):
    """The median of :func:`seconds_of_fits`, in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, str(n_fits)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(np.median(json.loads(done.stdout.splitlines()[-1])))


def busy_table(n_busy, n_fits, names):
    lines = []
    for name in names:
        alone = in_own_process(name, n_fits)
        others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(n_busy)]
        try:
            beside = in_own_process(name, n_fits)
        finally:
            for other in others:
                other.kill()
                other.wait()
        lines.append([name, f"{alone:.3g} s", f"{beside:.3g} s", f"{beside / alone:.2f}"])
    return markdown_table(["fit", "alone", "busy", "ratio"], lines)


def processor_seconds():
    """Those of this process and of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, kinds))


def searches(n_jobs, n_searches, settings):
    """Seconds by the clock and of processors of some searches, in workers that start with them."""
    X, y = load_breast_cancer(return_X_y=True)
    grid = {"bayesianmlpclassifier__step_size": [0.02, 0.05, 0.1, 0.2]}
    model = BayesianMLPClassifier(sampler="sghmc", random_state=0, **settings)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model), grid, cv=4, refit=False,
        scoring="neg_log_loss", n_jobs=n_jobs,
    )  # fmt: skip
    clock, used = time.perf_counter(), processor_seconds()
    for _ in range(n_searches):
        search.fit(X, y)
    clock = time.perf_counter() - clock
    get_reusable_executor().shutdown(wait=True)  # ended workers are counted
    return np.array([clock, processor_seconds() - used])


def search_table(settings):
    searches(1, 1, settings)  # not counted: code is loaded, or compiled
    found = {"1": searches(1, 1, settings), "2": searches(2, 1, settings)}
    found["2, next search"] = searches(2, 2, settings) - found["2"]
    lines = [
        [name, f"{clock:.1f} s", f"{used:.1f} s", f"{used / found['1'][1]:.2f}"]
        for name, (clock, used) in found.items()
    ]
    return markdown_table(["`n_jobs`", "by the clock", "processor time", "ratio"], lines)


def frame_and_array(n_rows):
    """A frame, the array that encoders make of it, labels and targets."""
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.standard_normal((n_rows, 20))).add_prefix("x")
    levels = [[f"level {k}" for k in range(3 + j)] for j in range(10)]
    words = {f"c{j}": pd.Categorical(rng.choice(names, n_rows)) for j, names in enumerate(levels)}
    words = pd.DataFrame(words)
    f = numbers.x0 - numbers.x1 + 0.3 * words.c3.cat.codes - 0.1 * words.c7.cat.codes
    array = np.hstack([numbers, OneHotEncoder(sparse_output=False).fit_transform(words)])
    frame = pd.concat([numbers, words], axis=1)
    return frame, array, f + rng.logistic(size=n_rows) > 0.0, f + rng.standard_normal(n_rows)


FRAMES = {
    "logistic regression": BayesianLogisticRegression(random_state=0),
    "network, two classes": BayesianMLPClassifier(sampler="mclmc", random_state=0),
    "network, regression": BayesianMLPRegressor(sampler="mclmc", random_state=0),
}


def frame_table(n_fits, n_rows):
    frame, array, labels, targets = frame_and_array(n_rows)
    lines = []
    for name, model in FRAMES.items():
        y, used = labels if is_classifier(model) else targets, np.empty((1 + n_fits, 2))
        for row in used:
            for k, X in enumerate((frame, array)):
                start = time.process_time()
                clone(model).fit(X, y)
                row[k] = time.process_time() - start
        one, other = np.median(used[1:], axis=0)
        lines.append([name, f"{one:.2f} s", f"{other:.2f} s", f"{one / other:.2f}"])
    return markdown_table(["fit", "frame", "array", "ratio"], lines), array.shape[1]


def small_fits(n_fits):
    """Processor seconds of small fits, each of other rows."""
    rng = np.random.default_rng(0)
    start = time.process_time()
    for seed in range(n_fits):
        X = rng.standard_normal((200, 5))
        y = (X[:, 0] + rng.standard_normal(200) > 0.0).astype(int)
        BayesianLogisticRegression(random_state=seed).fit(X, y)
    return time.process_time() - start


def main():
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(seconds_of_fits(sys.argv[2], int(sys.argv[3]))))
        return
    args = parse_args(__doc__, seeds=1, quick_seeds=1)
    warnings.simplefilter("ignore")
    os.environ["PYTHONWARNINGS"] = "ignore"  # of workers, too: most step sizes are too small
    n_cores, n_busy = os.cpu_count() or 1, max(2, os.cpu_count() or 1)
    n_fits, n_small = (1, 5) if args.short else (N_FITS, 1000)
    names = list(TASKS)[: 1 if args.short else None]
    frames, n_encoded = frame_table(*((1, 200) if args.short else (3, 1000)))
    body = BODY.format(
        busy=busy_table(n_busy, n_fits, names),
        search=search_table({"max_steps": 50, "n_draws": 4} if args.short else {}),
        small=small_fits(n_small), n_small=n_small, n_busy=n_busy, n_fits=n_fits, n_cores=n_cores,
        frames=frames, n_encoded=n_encoded, n_search=16, even=(n_busy + 1) / n_cores,
    )  # fmt: skip
    write_results(args, "many_fits", "Many fits, and a busy machine", body)


if __name__ == "__main__":
    main()
