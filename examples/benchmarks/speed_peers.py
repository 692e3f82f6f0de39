"""Chain-steps per second of plain SGLD, next to other libraries.

    pip install -r examples/benchmarks/requirements-peers.txt
    SKBAYES_DATA=folder python examples/benchmarks/speed_peers.py

Logistic regression on a9a (``a9a.npz`` in the folder: 32,561 rows, 123 binary features, a tenth
of them ones) and on Australian credit (``australian.npz``: 690 rows, 14 features), with an
intercept and a N(0, 10) prior, float32, batches of 50 and 10 random rows, 1 and 8 chains. All take
the same step, theta + h grad log p + sqrt(2 h) xi; a chain-step is one such step of one chain, with
the drawing of its rows and noise. Each library in the fastest way found with its public names:

* posteriors: one (chains, parameters) tensor; eagerly, and ten steps to a ``torch.compile``;
* blackjax: ``lax.scan`` over ``blackjax.sgld``, ``vmap`` over chains; row numbers drawn inside
  the scan, or before it (and timed), for each chain, or (shared) once for all of them;
* SGMCMCJax: ``lax.scan`` over its SGLD kernel, ``vmap`` over chains;
* skbayes_sgmcmc with ``compiled=True`` (dense, and as CSR rows) and ``compiled=False``.

No draws are kept, except ten a chain by skbayes_sgmcmc. A peer's figure is the best of three
repeats of at least a second, after warm-up. Ours is the median of three, each from two fits that
differ only in length, so that the set-up drops out. Each repeat has its own process, and the
libraries take turns. jax takes the size of its thread pool from ``NPROC``; the ``XLA_FLAGS``
often quoted for one thread leave it as it is, and on a busy machine that can halve the speed.

A library that cannot be imported is skipped with a line. ``--quick`` takes a fraction of the time
and stand-ins for data that are not there. One measurement alone:

    python examples/benchmarks/speed_peers.py --only blackjax --batch 50 --chains 1 --json
"""

import argparse
import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import types
from importlib.metadata import distributions
from pathlib import Path

import _stand_in
import numpy as np
from _common import open_npz

STEP_SIZE = 1e-3  # multiplies the gradient of the mean potential: h = STEP_SIZE / N
PRIOR_VARIANCE = 10.0
#: of one measurement; shorter if quick
MIN_SECONDS = 1.0
SETTINGS = [
    (data, batch, chains)
    for data in ("a9a", "australian")
    for chains in (1, 8)
    for batch in (50, 10)
]
XLA_FLAGS = {1: "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", 2: ""}
THREAD_NUMBERS = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC"]
QUICK_SETTINGS, QUICK_SECONDS = [("australian", 10, 8)], 0.02
REPORT = """# Speed of SGLD next to other libraries

`SKBAYES_DATA=folder python examples/benchmarks/speed_peers.py{options}`

{heading}

Chain-steps per second, logistic regression on a9a (32,561 rows, 123 binary features) and Australian
credit (690 rows, 14 dense features), float32, by rows in a minibatch, chains, and threads. Peers:
best of the repeats; skbayes_sgmcmc: median. "shared": one minibatch for all chains, which are then
not independent. "Per core-second": over the processor time used, which other work on the machine
changes less.

{table}
"""


def load(name, intercept=True):
    """The rows as dense float32, and the labels as 0 and 1."""
    with open_npz(name) as data:
        if data is None:
            raise SystemExit("Set SKBAYES_DATA to the folder of a9a.npz and australian.npz.")
        if name == "australian":
            X, y = data["X"], data["y"]
            X = (X - X.mean(0)) / X.std(0)
        else:
            y = data["y_train"]
            X = np.zeros((len(y), int(data["n_features"])))
            rows = np.repeat(np.arange(len(y)), np.diff(data["indptr_train"].astype(np.int64)))
            X[rows, data["indices_train"].astype(np.int64)] = 1.0
    X = np.hstack([X, np.ones((len(X), int(intercept)))])
    return X.astype(np.float32), (y > 0).astype(np.float32)


def measure(run, theta, n_steps, repeats, X, y):
    """Time ``theta = run(theta, seed)``, which moves every chain (row of theta) by n_steps."""
    theta = run(run(theta, 0), 1)  # compiles and warms up
    rates, cores = [], []
    for _ in range(repeats):
        calls, cpu, start = 0, time.process_time(), time.perf_counter()
        while (elapsed := time.perf_counter() - start) < MIN_SECONDS:
            calls += 1
            theta = run(theta, 1 + calls)
        rates.append(calls * n_steps * len(theta) / elapsed)
        cores.append((time.process_time() - cpu) / elapsed)
    # All chains began at zero, where the log loss is log 2 = 0.69: they must have moved, apart.
    z = X @ np.asarray(theta).T
    loss = np.mean(np.logaddexp(0.0, z) - y[:, None] * z, axis=0)
    if not np.all(loss < 0.67) or len(np.unique(loss)) < len(loss):
        raise RuntimeError(f"the chains do not sample the posterior: log losses {loss}")
    return {"rates": rates, "cores": cores}


# The libraries. Each function returns {variant: {"rates": [...], "cores": [...]}}.
def posteriors(data, batch, chains, repeats):
    import posteriors
    import torch

    X_np, y_np = load(data)
    X, y, n_rows, n_steps = torch.from_numpy(X_np), torch.from_numpy(y_np), len(X_np), 500

    def log_posterior(theta, rows):  # summed over the chains, whose gradients do not mix
        z = (rows[0] @ theta.unsqueeze(-1)).squeeze(-1)
        log_lik = n_rows / batch * (rows[1] * z - torch.nn.functional.softplus(z)).sum()
        return log_lik - theta.square().sum() / (2 * PRIOR_VARIANCE), torch.empty(0)

    # `inplace=True` would gain a few per cent, but then all states share one step counter.
    sgld = posteriors.sgmcmc.sgld.build(log_posterior, lr=STEP_SIZE / n_rows)

    def take_steps(state, indices):
        for idx in indices:
            state, _ = sgld.update(state, (X[idx], y[idx]))
        return state

    def result(advance, n_together):
        def run(theta, seed):
            torch.manual_seed(seed)
            state = sgld.init(theta)
            shape = (n_steps // n_together, n_together, chains, batch)
            for indices in torch.randint(n_rows, shape):
                state = advance(state, indices)
            return state.params

        return measure(run, torch.zeros(chains, X.shape[1]), n_steps, repeats, X_np, y_np)

    return {
        "posteriors, eager": result(take_steps, 1),
        "posteriors, torch.compile of ten steps": result(torch.compile(take_steps), 10),
    }


def log_prior(theta):
    return -(theta @ theta) / (2 * PRIOR_VARIANCE)


def log_lik(theta, x, label):
    import jax

    z = x @ theta
    return label * z - jax.nn.softplus(z)


def waiting(scan, *variant):  # jax returns before the result is there
    return lambda theta, seed: scan(theta, seed, *variant).block_until_ready()


def blackjax(data, batch, chains, repeats):
    import blackjax
    import jax
    import jax.numpy as jnp

    X_np, y_np = load(data)
    X, y, n_rows, n_steps = jnp.asarray(X_np), jnp.asarray(y_np), len(X_np), 20_000 // chains
    build = blackjax.sgmcmc.gradients.grad_estimator
    sgld = blackjax.sgld(build(log_prior, lambda theta, row: log_lik(theta, *row), n_rows))

    def one_chain(key, theta, idx):
        return sgld.step(key, theta, (X[idx], y[idx]), STEP_SIZE / n_rows)

    def draw(key, shape):
        return jax.random.randint(key, shape, 0, n_rows)

    @functools.partial(jax.jit, static_argnums=(2, 3))
    def scan(theta, seed, inside, shared):
        shape = (batch,) if shared else (chains, batch)

        def body(theta, step):
            idx = draw(step[1], shape) if inside else step[1]
            return jax.vmap(one_chain, (0, 0, None if shared else 0))(step[0], theta, idx), None

        noise_key, index_key = jax.random.split(jax.random.key(seed))
        noise_keys = jax.random.split(noise_key, (n_steps, chains))
        index_keys = jax.random.split(index_key, n_steps)
        indices = index_keys if inside else draw(index_key, (n_steps, *shape))
        return jax.lax.scan(body, theta, (noise_keys, indices))[0]

    results, theta = {}, jnp.zeros((chains, X.shape[1]))
    for shared in [False, True][: min(chains, 2)]:
        for inside, where in {True: "inside", False: "before"}.items():
            name = f"{'shared: ' * shared}blackjax, rows drawn {where}"
            run = waiting(scan, inside, shared)
            results[name] = measure(run, theta, n_steps, repeats, X_np, y_np)
    return results


def sgmcmcjax(data, batch, chains, repeats):
    import jax
    import jax.experimental
    import jax.numpy as jnp

    # SGMCMCJax imports this module, gone from jax, for its progress bar, which is not used here.
    if not hasattr(jax.experimental, "host_callback"):
        jax.experimental.host_callback = types.ModuleType("host_callback")
    from sgmcmcjax.kernels import build_sgld_kernel

    X, y = load(data)
    h, n_steps = STEP_SIZE / len(X), 20_000 // chains
    init, kernel, get_params = build_sgld_kernel(h, log_lik, log_prior, (X, y), batch)

    def one_chain(key, theta):
        def body(state, step):
            return kernel(*step, state), None

        init_key, key = jax.random.split(key)
        steps = jnp.arange(n_steps), jax.random.split(key, n_steps)
        return get_params(jax.lax.scan(body, init(init_key, theta), steps)[0])

    @jax.jit
    def scan(theta, seed):
        return jax.vmap(one_chain)(jax.random.split(jax.random.key(seed), chains), theta)

    theta = jnp.zeros((chains, X.shape[1]))
    return {"SGMCMCJax": measure(waiting(scan), theta, n_steps, repeats, X, y)}


# ---------------------------------------- OURS ----------------------------------------
def ours(data, batch, chains, repeats, fast, sparse=False):
    """The rate of skbayes_sgmcmc, from the times of fits of n_steps and of 3 * n_steps."""
    from scipy.sparse import csr_matrix

    from skbayes_sgmcmc import BayesianLogisticRegression

    X, y = load(data, intercept=False)  # the estimator has its own
    X = csr_matrix(X) if sparse else X
    fixed = {"sampler": "sgld", "preconditioner": None, "gradient": "minibatch", "init": "random"}
    fixed |= {"step_size": STEP_SIZE, "prior_scale": PRIOR_VARIANCE**0.5, "batch_size": batch}
    fixed |= {"n_chains": chains, "n_draws": 10, "burn_in": 0, "random_state": 0}
    fixed |= {"dtype": "float32", "device": "cpu", "compiled": fast}

    def fit_time(n_steps):
        model = BayesianLogisticRegression(thinning=n_steps // 10, **fixed)
        cpu, start = time.process_time(), time.perf_counter()
        model.fit(X, y)
        return np.array([time.perf_counter() - start, time.process_time() - cpu])

    def difference(n_steps):
        short = fit_time(n_steps)
        return np.maximum(fit_time(3 * n_steps) - short, 1e-3)

    fit_time(100)  # compiles and warms up
    n_steps = 1_000
    while (seconds := difference(n_steps)[0]) < MIN_SECONDS:
        n_steps = 10 * int(n_steps / 10 * np.clip(1.3 * MIN_SECONDS / seconds, 1.5, 16))
    wall, cpu = np.array([difference(n_steps) for _ in range(repeats)]).T
    result = {"rates": list(2 * n_steps * chains / wall), "cores": list(cpu / wall)}
    return {f"skbayes_sgmcmc, compiled={fast}{', CSR rows' * sparse}": result}


LIBRARIES = {  # the function, and the packages whose versions are reported
    "posteriors": (posteriors, ["posteriors", "torch"]),
    "blackjax": (blackjax, ["blackjax", "jax"]),
    "sgmcmcjax": (sgmcmcjax, ["sgmcmcjax", "jax"]),
    "ours": (functools.partial(ours, fast=True), ["skbayes_sgmcmc", "torch", "numba"]),
    "ours-sparse": (
        functools.partial(ours, fast=True, sparse=True),
        ["skbayes_sgmcmc", "torch", "numba"],
    ),
    "ours-eager": (functools.partial(ours, fast=False), ["skbayes_sgmcmc", "torch"]),
}


def run_here(library, data, batch, chains, repeats):
    function, packages = LIBRARIES[library]
    try:
        results = function(data, batch, chains, repeats)
    except ImportError as error:
        return {"skipped": f"{library} skipped: {error}"}
    installed = {d.name.lower().replace("-", "_"): d.version for d in distributions()}
    versions = [f"{name} {installed[name]}" for name in packages if name in installed]
    return {"results": results, "versions": versions}


def run_apart(library, data, batch, chains, threads, python, quick):
    command = [python, Path(__file__).resolve(), "--only", library, "--json", "--repeats", "1"]
    command += ["--data", data, "--batch", str(batch), "--chains", str(chains)]
    command += ["--quick"] * quick
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "XLA_FLAGS": XLA_FLAGS[threads]}
    environment |= dict.fromkeys(THREAD_NUMBERS, str(threads))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"skipped": f"{library} failed: {' '.join(done.stderr.splitlines()[-1:])}"}
    return json.loads(done.stdout.splitlines()[-1])


def run_all(repeats, ours_python, all_threads, quick):
    """{(data, batch, chains, threads): {variant: [(rate, cores), ...]}} and versions."""
    columns, versions, libraries = {}, {}, list(LIBRARIES)
    settings = QUICK_SETTINGS if quick else SETTINGS
    for column in [(*setting, threads) for setting in settings for threads in all_threads]:
        columns[column] = {}
        for library in libraries * repeats:
            python = ours_python if library.startswith("ours") else sys.executable
            answer = run_apart(library, *column, python, quick) if library in libraries else {}
            if "skipped" in answer:
                print(answer["skipped"], flush=True)
                libraries = [other for other in libraries if other != library]
            versions |= dict.fromkeys(answer.get("versions", []))
            for name, result in answer.get("results", {}).items():
                columns[column].setdefault(name, []).extend(zip(*result.values(), strict=True))
        print(column, {n: round(figure(n, v)) for n, v in columns[column].items()}, flush=True)
    return columns, versions


def figure(name, results, per_core=False):
    rates = [rate / (cores if per_core else 1) for rate, cores in results]
    return np.median(rates) if name.startswith("skbayes") else max(rates)


def ratio(column, left_out, per_core):
    rates = {name: figure(name, results, per_core) for name, results in column.items()}
    ours = [rate for name, rate in rates.items() if name.startswith("skbayes")]
    peers = [rate for name, rate in rates.items() if not name.startswith(("skbayes", left_out))]
    return f"{max(ours) / max(peers):.2f}" if ours and peers else "-"


def markdown(columns, versions, options):
    heads = [f"{d}, {batch} rows, {c} ch., {t} thr." for d, batch, c, t in columns]
    table = [["", *heads], ["---"] + ["---:"] * len(heads)]
    for name in sorted({name for column in columns.values() for name in column}):
        cells = [column.get(name) for column in columns.values()]
        table.append([name, *(f"{figure(name, r):,.0f}" if r else "-" for r in cells)])
    for label, *how in [
        ("fastest peer", "shared", False),
        ("fastest peer, shared ones too", "none", False),
        ("fastest peer, per core-second", "shared", True),
    ]:
        cells = [ratio(column, *how) for column in columns.values()]
        table.append([f"**ours / {label}**", *cells])
    machine = f"{os.cpu_count()}-core {platform.machine().replace('_', '-')} CPU"
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    heading = f"{time.strftime('%Y-%m-%d')}, {machine}. Versions: {', '.join(sorted(versions))}."
    return REPORT.format(options=options, heading=heading, table=table)


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=LIBRARIES, help="one measurement, in this process")
    parser.add_argument("--data", choices=("a9a", "australian"), default="a9a", help="with --only")
    parser.add_argument("--batch", type=int, default=50, help="with --only")
    parser.add_argument("--chains", type=int, default=1, help="with --only")
    parser.add_argument("--json", action="store_true", help="with --only: all on one line")
    parser.add_argument("--quick", action="store_true", help="under a minute: does it run?")
    parser.add_argument("--repeats", type=int, help="default 3; quick: 1")
    parser.add_argument("--without", nargs="+", default=[], choices=LIBRARIES)
    parser.add_argument(
        "--threads", type=int, nargs="+", choices=XLA_FLAGS, help="default 1 2; quick: 1"
    )
    parser.add_argument("--ours-python", default=sys.executable, help="has skbayes_sgmcmc")
    parser.add_argument("--out", type=Path, help="folder of the page speed.md")
    args = parser.parse_args()
    args.repeats = args.repeats or (1 if args.quick else 3)
    args.threads = args.threads or ([1] if args.quick else [1, 2])
    quick_folder = Path(tempfile.gettempdir()) / "skbayes-quick-results"
    args.out = args.out or (quick_folder if args.quick else root / "docs" / "results")
    _stand_in.wanted = args.quick
    if args.quick:
        global MIN_SECONDS
        MIN_SECONDS = QUICK_SECONDS
    if args.only:
        answer = run_here(args.only, args.data, args.batch, args.chains, args.repeats)
        print(json.dumps(answer, indent=None if args.json else 2))
        return
    for name in dict.fromkeys(name for name, *_ in (QUICK_SETTINGS if args.quick else SETTINGS)):
        load(name)  # fails early, with a message
    options = f" --repeats {args.repeats} --threads {' '.join(map(str, args.threads))}"
    options += f" --without {' '.join(args.without)}" * bool(args.without)
    for library in args.without:
        del LIBRARIES[library]
    options += " --quick" * args.quick
    found = run_all(args.repeats, args.ours_python, args.threads, args.quick)
    report = markdown(*found, options)
    if args.quick:
        report += "\n**Quick run: too short for conclusions.**\n"
    if _stand_in.used:
        report += f"\n**Stand-in data** for {', '.join(_stand_in.used)}.\n"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "speed.md").write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
