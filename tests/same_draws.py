"""Whether the code draws, predicts and says the same as at another revision, to the bit.

    python tests/same_draws.py compare REVISION  # with the package of that revision
    python tests/same_draws.py compare           # with the stored table, on its machine
    python tests/same_draws.py write             # store the table anew

A change of the inside leaves every line equal. A change that is meant to alter some of them names
them in its commit, and stores the table anew. Bits depend on the processor and on the versions of
torch and numpy, so the table says which ones it is of, and is compared on no other.

Each case is a fit with a small budget. Of each, hashes are taken of the draws and their statistics,
of predictions, of draws after a warm start or another call of ``partial_fit`` (which depend on all
that a sampler remembers), and of the texts of warnings and errors.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
import torch
from sklearn.datasets import load_digits, load_iris, make_classification
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc import samplers, schedules
from skbayes_sgmcmc.priors import LearnedScale, SpikeSlab

TABLE = Path(__file__).parent / "data" / "same_draws.json"
SHORT = {"n_chains": 2, "n_draws": 20, "burn_in": 60, "thinning": 2, "random_state": 0}

# data ---------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, Y = make_classification(240, 6, n_informative=4, random_state=0)
THREE = np.digitize(X[:, 0] + 0.5 * RNG.standard_normal(240), [-1.0, 1.0])
REAL = X @ [1.0, -1.0, 0.5, 0.0, 0.0, 0.2] + RNG.standard_normal(240)
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0] + 0.5))
WEIGHT = RNG.uniform(0.5, 2.0, 240)
GROUPED = np.c_[X, np.arange(240) % 7]
SPARSE = sp.random(300, 40, 0.1, format="csr", random_state=0)
SPARSE_Y = (SPARSE @ RNG.standard_normal(40) > 0.0).astype(int)
WORDS = RNG.poisson(RNG.gamma(0.3, 1.0, (60, 25)) + 0.05)
SIGNALS = RNG.laplace(size=(400, 3)) @ RNG.standard_normal((3, 3))
IMAGES = load_digits().images[:120] / 16.0
DIGITS = load_digits().target[:120] % 3


def net() -> nn.Module:
    """A module whose start is the same at every call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


# cases --------------------------------------------------------------------------------------------

#: name -> a function that returns what is hashed
CASES: dict[str, Callable[[], Any]] = {}


def case(name: str, estimator: Any, rows: Any, target: Any, **fit: Any) -> None:
    """A fit, then one call more that goes on from it."""

    def run() -> Any:
        estimator.fit(rows, *([] if target is None else [target]), **fit)
        first = seen(estimator, rows)
        estimator.set_params(warm_start=True)
        estimator.fit(rows, *([] if target is None else [target]), **fit)
        return [first, seen(estimator, rows)]

    CASES[name] = run


def stream(name: str, estimator: Any, rows: Any, target: Any, **first: Any) -> None:
    """Three calls of ``partial_fit``."""

    def run() -> Any:
        for k, part in enumerate(np.array_split(np.arange(rows.shape[0]), 3)):
            given = [] if target is None else [target[part]]
            estimator.partial_fit(rows[part], *given, **(first if k == 0 else {}))
        return seen(estimator, rows)

    CASES[name] = run


def refused(name: str, call: Callable[[], Any]) -> None:
    """A call whose error is looked at."""

    def run() -> str:
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error} {getattr(error, '__notes__', [])}"
        return "no error"

    CASES[f"error: {name}"] = run


def seen(estimator: Any, rows: Any) -> Any:
    """All that a user can see of a fit: draws, statistics, predictions, summary."""
    posterior = estimator.posterior_
    found: list[Any] = [sorted(posterior.draws.items()), posterior.weights]
    found += [sorted(posterior.statistics.items()), estimator.n_steps_]
    found.append(getattr(estimator, "step_size_", None))
    few = rows[:20]
    for name in ("predict", "predict_proba", "transform"):
        if hasattr(estimator, name):
            found.append(getattr(estimator, name)(few))
    if hasattr(estimator, "predict_interval"):
        found += [estimator.predict(few, return_std=True), estimator.predict_interval(few)]
    if hasattr(estimator, "predict_uncertainty"):
        found.append(sorted(estimator.predict_uncertainty(few).items()))
    return found


LR, GLM, MLP = sk.BayesianLogisticRegression, sk.BayesianGLMRegressor, sk.BayesianMLPClassifier
REG, MODULE = sk.BayesianMLPRegressor, sk.BayesianModuleClassifier
SMALL = SHORT | {"hidden_layer_sizes": (5, 4)}
FALLING = schedules.Polynomial(first=0.1, last=0.01)
PLAIN = SHORT | {"step_size": 0.01, "batch_size": 50}

case("logistic", LR(random_state=0), X, Y)
case("logistic, three classes", LR(random_state=0), *load_iris(return_X_y=True))
case("logistic, Laplace", LR(prior="laplace", **SHORT), X, Y)
case("logistic, learned scale", LR(prior_scale="learned", **SHORT), X, Y)
case("logistic, weights", LR(class_weight="balanced", **SHORT), X, Y, sample_weight=WEIGHT)
case("logistic, sparse rows", LR(**SHORT), SPARSE, SPARSE_Y)
case("logistic, importance minibatches", LR(batch_size=60, **SHORT), X, Y)
case("logistic, control variates", LR(gradient="control_variates", **PLAIN), X, Y)
case("logistic, diagonal", LR(preconditioner="diagonal", **SHORT), X, Y)
case("logistic, float32", LR(dtype="float32", **SHORT), X, Y)
case("logistic, not compiled", LR(compiled=False, **PLAIN), X, Y)
case("logistic, n_jobs", LR(n_jobs=2, **SHORT), X, Y)
case("logistic, temperature", LR(temperature=0.5, **SHORT), X, Y)
case("logistic, schedule", LR(**PLAIN | {"step_size": FALLING}), X, Y)
for sampler, row in samplers.TABLE.items():
    for integrator in row[1]:
        if sampler not in ("gibbs", "rsgld"):
            one = LR(sampler=sampler, integrator=integrator, **SHORT)
            case(f"logistic, {sampler} {integrator}", one, X, Y)
            few = SHORT | {"batch_size": "auto", "hidden_layer_sizes": (5, 4)}
            if sampler != "mala":
                one = REG(sampler=sampler, integrator=integrator, **few)
                case(f"network, {sampler} {integrator}", one, X, REAL)
case("pSGLD with its correction", LR(sampler=samplers.PSGLD(divergence=True), **PLAIN), X, Y)
case("normal regression", GLM(random_state=0), X, REAL)
case("Student-t regression", GLM(likelihood="student_t", **SHORT), X, REAL)
case("Poisson regression", GLM(likelihood="poisson", **SHORT), X, COUNTS)
case("exposure", GLM(likelihood="poisson", exposure=0, **SHORT), np.c_[WEIGHT, X], COUNTS)
case("negative binomial", GLM(likelihood="negative_binomial", **SHORT), X, COUNTS)
case("gamma regression", GLM(likelihood="gamma", **SHORT), X, np.exp(0.3 * REAL))
case("groups", GLM(groups=6, **SHORT), GROUPED, REAL)
case("groups of counts", GLM(likelihood="poisson", groups=6, **SHORT), GROUPED, COUNTS)
case("ordinal", sk.BayesianOrdinalClassifier(**SHORT), X, THREE)
case("perceptron, defaults", MLP(hidden_layer_sizes=4, max_steps=400, random_state=0), X, Y)
case("perceptron, three classes", MLP(calibrate=True, **SMALL), X, THREE)
case("perceptron, minibatches", MLP(sampler="sghmc", batch_size=40, **SMALL), X, Y)
case("perceptron, sparse rows", MLP(**SMALL), SPARSE, SPARSE_Y)
case("perceptron, weights", MLP(**SMALL), X, Y, sample_weight=WEIGHT)
case("perceptron, given scale", MLP(prior_scale=1.0, **SMALL), X, Y)
case("perceptron, Laplace", MLP(prior="laplace", prior_scale=1.0, **SMALL), X, Y)
case("perceptron, float64", REG(dtype="float64", **SMALL), X, REAL)
case("perceptron, own noise", REG(noise="heteroscedastic", **SMALL), X, REAL)
case("perceptron, one noise", REG(noise="infer", **SMALL), X, REAL)
case("perceptron, Student-t", REG(likelihood="student_t", **SMALL), X, REAL)
case("perceptron, counts", REG(likelihood="poisson", **SMALL), X, COUNTS)
case("perceptron, two targets", REG(**SMALL), X, np.c_[REAL, X[:, 0]])
case("perceptron, n_jobs", MLP(n_jobs=2, **SMALL), X, Y)
hyperprior = LearnedScale(shape=2.0)
case("perceptron, hyperprior", MLP(prior_scale=hyperprior, **SMALL), X, Y)
case("convolutional", sk.BayesianCNNClassifier(conv_channels=3, **SMALL), IMAGES, DIGITS)
case("module", MODULE(net, **SHORT), X, THREE)
case("module, SGLD", MODULE(net, sampler="sgld", step_size=0.01, **SHORT), X, THREE)
case("last layer", MODULE(net, sample_parameters="last_layer", **SHORT), X, THREE)
case("module, one layer", MODULE(net, sample_parameters=["0.*"], **SHORT), X, THREE)
case("module, regression", sk.BayesianModuleRegressor(nn.Linear(6, 1), **SHORT), X, REAL)
for adaptation in ("sa", "gibbs"):
    prior = SpikeSlab(adaptation=adaptation)
    case(f"sparse, {adaptation}", sk.SparseBayesianClassifier(prior=prior, **SHORT), X, Y)
    hidden = sk.SparseBayesianRegressor(hidden_layer_sizes=4, prior=prior, **SHORT)
    case(f"sparse network, {adaptation}", hidden, X, REAL)
case("pruning", sk.SparseBayesianRegressor(prune=0.5, **SHORT), X, REAL)
case("components", sk.BayesianICA(**SHORT), SIGNALS, None)
LDA, DPFA = sk.LatentDirichletAllocation, sk.DeepPoissonFactorAnalysis
TOPICS = SHORT | {"n_components": 3}
case("topics", LDA(**TOPICS), WORDS, None)
case("topics, not compiled", LDA(compiled=False, **TOPICS), WORDS, None)
case("topics, Gibbs", LDA(algorithm="gibbs", **TOPICS), WORDS, None)
case("topics, natural", LDA(parametrization="expanded_natural", **TOPICS), WORDS, None)
case("deep topics", DPFA(**SHORT | {"n_components": (3, 2)}), WORDS, None)

stream("stream, logistic", LR(**SHORT), X, Y, classes=[0, 1])
stream("stream, sorted", LR(**SHORT), X[np.argsort(Y)], np.sort(Y), classes=[0, 1])
stream("stream, regression", GLM(**SHORT), X, REAL)
stream("stream, counts", GLM(likelihood="poisson", **SHORT), X, COUNTS)
stream("stream, ordinal", sk.BayesianOrdinalClassifier(**SHORT), X, THREE, classes=[0, 1, 2])
stream("stream, perceptron", MLP(**SMALL), X, Y, classes=[0, 1])
stream("stream, module", MODULE(net, **SHORT), X, THREE, classes=[0, 1, 2])
stream("stream, sparse", sk.SparseBayesianRegressor(**SHORT), X, REAL)
stream("stream, components", sk.BayesianICA(**SHORT), SIGNALS, None)
stream("stream, topics", LDA(**TOPICS), WORDS, None)

refused("step size", lambda: LR(step_size=-1.0).fit(X, Y))
refused("sampler", lambda: LR(sampler="hmc").fit(X, Y))
refused("one class", lambda: LR().fit(X, np.ones(240)))
refused("likelihood", lambda: GLM(likelihood="poisson").fit(X, REAL))
refused("noise", lambda: REG(noise="large").fit(X, REAL))
refused("missing value", lambda: LR().fit(np.where(X > 2.0, np.nan, X), Y))
refused("diverges", lambda: REG(sampler="sgld", step_size=1e6, **SMALL).fit(X, REAL))
refused("sparse rows", lambda: MODULE(nn.Linear(5, 2)).fit(SPARSE, SPARSE_Y))
refused("columns", lambda: LR(**SHORT).fit(X, Y).predict(X[:, 1:]))
refused("targets of a module", lambda: MODULE(nn.Linear(5, 2)).fit(X, Y))


def density() -> Any:
    """A density of the user's own."""
    posterior = sk.sample(lambda theta: -0.5 * (theta**2).sum(1), 3, step_size=0.1, **SHORT)
    return sorted(posterior.draws.items())


def stored() -> Any:
    """Rows in a memory map."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/X.npy", X)
        rows = np.load(f"{folder}/X.npy", mmap_mode="r")
        return [seen(e.fit(rows, Y), X) for e in (LR(**SHORT), MLP(**SMALL))]


class Interrupts:
    """A callback that ends a fit, as Ctrl-C does, at its tenth report."""

    reports = 0

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    teardown = on_fit_task_begin = setup

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Count the reports."""
        self.reports += 1
        if self.reports == 10:
            raise KeyboardInterrupt


def resumed(estimator: Any, target: Any) -> Callable[[], Any]:
    """A fit that is interrupted and called again."""

    def run() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            long = {"checkpoint": f"{folder}/fit.npz", "burn_in": 2000, "n_draws": 100}
            estimator.set_params(**long).set_callbacks(Interrupts())
            with suppress(KeyboardInterrupt):
                estimator.fit(X, target)
            assert os.path.exists(f"{folder}/fit.npz")
            return seen(estimator.set_callbacks().fit(X, target), X)

    return run


CASES["density"] = density
CASES["memory map"] = stored
CASES["resumed, logistic"] = resumed(LR(**SHORT), Y)
CASES["resumed, network"] = resumed(REG(**SHORT | {"hidden_layer_sizes": 4}), REAL)


def ranks() -> Any:
    """Two processes that share minibatches."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "rank", folder]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
        both = [subprocess.Popen([*command, str(rank)], env=environment) for rank in (0, 1)]
        assert [one.wait() for one in both] == [0, 0]
        return [Path(folder, f"{rank}.txt").read_text() for rank in (0, 1)]


def rank(folder: str, number: str) -> None:
    """One of the processes of ``ranks``."""
    import torch.distributed as dist

    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=int(number), world_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sk.data_parallel():
            found = [seen(e.fit(X, Y), X) for e in (LR(**PLAIN), MLP(batch_size=40, **SMALL))]
    Path(folder, f"{number}.txt").write_text(digest(found))
    dist.destroy_process_group()


CASES["two ranks"] = ranks

# hashes -------------------------------------------------------------------------------------------


def digest(value: Any) -> str:
    """The hash of arrays, numbers and texts, however they are nested."""
    found = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, (list, tuple)):
            found.update(f"{len(part)}[".encode())
            for each in part:
                add(each)
        elif isinstance(part, np.ndarray) and part.dtype != object:
            found.update(
                f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes()
            )
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()[:16]


def line_of(run: Callable[[], Any]) -> str:
    """Hashes of what a case returns, and of what it says."""
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        try:
            result = run()
        except (TypeError, ValueError) as error:  # an earlier revision may refuse it
            result = str(error)
    texts = {str(one.message) for one in got if "skbayes" in type(one.message).__module__}
    # addresses of functions and temporary folders differ between runs
    texts = sorted(re.sub(r"0x[0-9a-f]+|/tmp/\w+", "", text) for text in texts)
    return f"{digest(result)} {digest(texts)}"


def machine() -> dict[str, str]:
    """What bits depend on beside the code."""
    processor = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((x.split(": ")[1] for x in lines if x.startswith("model name")), processor)
    kinds = {"torch": torch.__version__, "numpy": np.__version__, "sklearn": sklearn.__version__}
    return kinds | {"processor": processor, "python": platform.python_version()}


def table() -> dict[str, Any]:
    """Hashes of all cases."""
    torch.set_num_threads(1)
    found, began = {}, time.perf_counter()
    for name, run in CASES.items():
        found[name] = line_of(run)
        print(f"{time.perf_counter() - began:6.1f} s  {name}", file=sys.stderr, flush=True)
    return {"machine": machine(), "cases": found}


def table_at(revision: str) -> dict[str, Any]:
    """Hashes of all cases by the package of another revision."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "worktree", "add", "-q", "--detach", folder, revision], check=True)
        try:
            environment = os.environ | {"PYTHONPATH": folder, "PYTHONSAFEPATH": "1"}
            command = [sys.executable, __file__, "print"]
            out = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
            return json.loads(out.stdout)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], check=True)


def compare(other: dict[str, Any]) -> int:
    """Print the cases that differ, and return how many do."""
    ours = table()
    if ours["machine"] != other["machine"]:
        sys.exit(f"the table is of another machine: {other['machine']}; give a revision.")
    names = sorted(ours["cases"].keys() | other["cases"].keys())
    differ = [n for n in names if ours["cases"].get(n) != other["cases"].get(n)]
    for name in differ:
        print(f"{name}: {other['cases'].get(name)} -> {ours['cases'].get(name)}")
    print(f"{len(names) - len(differ)} of {len(names)} cases are the same")
    return len(differ)


def main(action: str, *others: str) -> int:
    """What the command line asks for."""
    if action == "rank":
        rank(*others)
    elif action == "print":
        print(json.dumps(table()))
    elif action == "write":
        TABLE.write_text(json.dumps(table(), indent=1) + "\n")
    elif action == "compare":
        return int(compare(table_at(*others) if others else json.loads(TABLE.read_text())) > 0)
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["help"])))
