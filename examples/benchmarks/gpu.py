"""What a GPU buys: tests, steps, predictions and the papers' experiments on one.

    SKBAYES_DATA=folder python examples/benchmarks/gpu.py --order first --out results

Runs from a checkout, without an installation, with torch, numpy, scikit-learn and arviz-stats,
whose downloaded wheel may be on PYTHONPATH as it is; jax is timed if it is there. The parts
("cells") of a stage are stored one by one in ``runs/gpu.jsonl`` of ``--out`` and are not run again,
so the next call goes on where the budget ended. ``--order`` takes the cells in order of worth:
"first" are speed, tests and ordinary fits, "second" the papers' experiments. A cell that fails is
reported in ``gpu-failures.txt`` there and does not stop the others; one that breaks its process, or
hangs, is listed in ``gpu-broken.txt`` and not tried again. ``--cpu-rehearsal`` takes every stage in
small on a CPU, and ``--quick`` does so with stand-in data. ``--stages counts`` counts on a CPU what
steps launch, read and write on a GPU.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
# jax shares the GPU with torch, instead of taking most of its memory at its first use
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import torch
from _common import REPOSITORY, load_mnist, parse_args, write_results
from _gpu_fits import FITS
from _gpu_fits import numbers as numbers_of_fit
from _gpu_page import body
from _gpu_run import go, supervise


@dataclass
class Cell:
    """A part of a stage, stored as one record.

    ``needs`` are the seconds that must be left of the budget, about what it takes on an H100;
    ``limit`` are those after which its process is stopped.
    """

    name: str
    run: Callable[[], dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    needs: float = 10.0

    @property
    def limit(self):
        return 60.0 + 3.0 * self.needs


# the stages, in order of worth --------------------------------------------------------------------


def tests(args):
    yield Cell("tests", partial(run_tests, args), needs=120.0)


def run_tests(args):
    """The tests with the mark ``gpu``, in a process of their own: an error there is not ours."""
    chosen = ["-m", "gpu"]
    if args.small:  # two tests on the stand-in, which show that the command is right
        chosen = ["-m", "not gpu", "-k", "noticed or bfloat16"]
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", *chosen,
        str(REPOSITORY / "tests" / "test_gpu.py"), str(REPOSITORY / "tests" / "test_gpu_only.py"),
    ]  # fmt: skip
    if not args.small and importlib.util.find_spec("xdist"):
        command += ["-n", "8"]
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    path = args.out / "gpu-tests.txt"  # which has what was seen if the tests take too long
    with path.open("w") as file:
        subprocess.run(
            command, env=environment, cwd=REPOSITORY, stdout=file, stderr=subprocess.STDOUT,
            timeout=240, check=False,
        )  # fmt: skip
    lines = path.read_text().splitlines()
    found = dict.fromkeys(("passed", "failed", "skipped", "error"), 0)
    found |= {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|skipped|error)",
                                                     lines[-1] if lines else "")}  # fmt: skip
    if not found["passed"]:
        raise RuntimeError("no test has passed: " + "\n".join(lines)[-2000:])
    return found | {"failures": [line for line in lines if line.startswith("FAILED")][:50]}


def card(args):
    from _gpu_steps import card as measure

    yield Cell("card", partial(measure, args.device, args.small), needs=20.0)


P6_METHODS = "psgld", "sgld", "rmsprop", "sgd", "psgld_t1"
BARE = ("eager", "graph", "compile")
RECORDED = ("eager", "recorded")
#: workload -> sampler -> ways of :mod:`_gpu_steps` to take its steps
WAYS = {
    "mlp": {
        "sgld": (*RECORDED, "recorded, TF32", "recorded, bfloat16", "recorded, fused"),
        "psgld": ("recorded", "recorded, fused", "recorded, learned scales"),
        "mclmc": ("recorded", "recorded, fused", "recorded, learned scales"),
        "sghmc": ("recorded",),
    },
    "cnn": {
        "sgld": (*RECORDED, "recorded, TF32", "recorded, fixed convolutions"),
        "psgld": ("recorded",),
    },
    "resnet20": {"sghmc": (*RECORDED, "recorded, TF32")},
    "module": {"sgld": RECORDED},
    "logistic": {"sgld": RECORDED},
}


def steps(args):
    """Ours next to bare torch, by workload and number of chains."""
    import _gpu_steps

    for workload in _gpu_steps.workloads(args.small).values():
        counts, bare = workload.chains, BARE
        if args.small:  # every path once
            counts = counts[-1:]
            bare = BARE[: 2 if args.short else 3] if workload.name == "mlp" else BARE[:1]
        for chains in counts:
            n = steps_of(args, chains)
            same = (workload, args.small, chains, args.device, n)
            base = {"workload": workload.name, "chains": chains, "steps": n}
            for sampler, ways in WAYS[workload.name].items():
                for way in ways[:1] if args.small and workload.name != "mlp" else ways:
                    run = partial(_gpu_steps.way_numbers, *same, way, sampler)
                    yield cell_of("steps", base | {"way": f"{sampler}, {way}"}, run)
            for way in bare:
                run = partial(_gpu_steps.bare_numbers, *same, way)
                needs = 60.0 if way == "compile" else 10.0
                yield cell_of("steps", base | {"way": f"bare, {way}"}, run, needs)


def steps_of(args, chains):
    return 4 if args.small else max(60, 600 // chains)


#: settings that are not in the name of a cell
UNNAMED = "steps", "compiled"


def cell_of(stage, settings, run, needs=10.0):
    parts = [str(value) for key, value in settings.items() if key not in UNNAMED]
    name = "-".join([stage, *parts]).replace(", ", "-").replace(" ", "-")
    return Cell(name, run, settings, needs)


def in_jax(args):
    import _gpu_steps

    if importlib.util.find_spec("jax") is None and not args.no_new:
        print("jax is not here: left out", flush=True)
        return
    import _gpu_jax

    found = _gpu_steps.workloads(args.small)
    for name in ("mlp", "cnn", "logistic"):
        workload = found[name]
        for chains in workload.chains[: 1 if args.small else None]:
            n = steps_of(args, chains)
            run = partial(_gpu_jax.numbers, workload, args.small, chains, n)
            settings = {"workload": name, "chains": chains, "steps": n}
            yield cell_of("jax", settings, run, 40.0)


def devices(args):
    """The same small models on the CPU and on the GPU: from which size on a GPU is faster."""
    import _gpu_steps

    models = _gpu_steps.workloads(args.small)
    widths = (4,) if args.small else (16, 50, 100, 200)
    for width in widths:
        sizes = (784, width, 10)
        workload = _gpu_steps.Workload(
            f"mlp-{width}", models["mlp"].load, partial(_gpu_steps.mlp_module, sizes),
            partial(_gpu_steps.BayesianMLPClassifier, hidden_layer_sizes=width), 100, (1, 4),
            (784,), sizes,
        )  # fmt: skip
        for chains in workload.chains:
            yield from on_both(args, workload, chains)
    if not args.small:
        for chains in models["logistic"].chains:
            yield from on_both(args, models["logistic"], chains)


def on_both(args, workload, chains):
    import _gpu_steps

    n = 4 if args.small else 100
    for device in dict.fromkeys(("cpu", args.device)):
        run = partial(_gpu_steps.ours_numbers, workload, args.small, chains, device, n,
                      compiled="auto")  # fmt: skip
        settings = {"workload": workload.name, "chains": chains, "on": device, "steps": n}
        yield cell_of("devices", settings, run, 20.0)


def fits(args):
    """Ordinary fits of default estimators on both devices, each in a process of its own."""
    for label in list(FITS)[:1] if args.small else FITS:
        for device in dict.fromkeys((args.device, "cpu")):
            run = partial(numbers_of_fit, label, device, args.small)
            yield cell_of("fits", {"fit": label, "on": device}, run, 25.0)


def predictions(args):
    """100 draws x 10,000 rows, on the CPU and on the GPU."""
    for device in dict.fromkeys((args.device, "cpu")):
        run = partial(predict, args, device)
        yield cell_of("predictions", {"on": device}, run, 60.0)


def predict(args, device):
    import _gpu_steps

    workload = _gpu_steps.workloads(args.small)["mlp"]
    X, y = workload.data(True)
    _, _, X_test, _ = load_mnist()
    X_test = X_test[: 100 if args.small else 10_000]
    clf = workload.estimator(
        standardize=False, prior_scale=1.0, sampler="sgld", step_size=1e-4, n_chains=1,
        n_draws=4 if args.small else 100, burn_in=0, thinning=1, dtype="float32", device=device,
        init="random", random_state=0,
    ).fit(X, y)  # fmt: skip
    clf.predict_proba(X_test[:100])
    found = []
    for _ in range(1 if args.small else 3):
        start = time.perf_counter()
        p = clf.predict_proba(X_test)
        found.append(time.perf_counter() - start)
    assert np.isfinite(p).all()
    return {"wall": min(found), "rows": len(X_test), "draws": clf.n_draws_}


def experiments(args):
    """P4 to P7, D4, D5, topics, ResNet-20 and D7."""
    import _gpu_experiments as found

    seeds = 1 if args.small else 3

    def images(name, size, method, needs):
        run = partial(found.images, name, size, method, seeds, args)
        settings = {"experiment": name, "size": found.label(size), "method": method}
        settings |= {"seeds": seeds, "compiled": not args.small}
        return cell_of("experiments", settings, run, needs)

    plans = [("p5", (200, 200), "psgld_t1", 40.0), ("p5", (200, 200), "psgld_2_t1", 40.0),
             ("p4", (1200, 1200), "psgld100", 110.0), ("p4", (400, 400), "psgld100", 40.0),
             ("p5", (200, 200), "psgld", 30.0), ("p5", (200, 200), "psgld_2", 30.0),
             ("p4", (400, 400), "psgld", 40.0), ("p4", (1200, 1200), "psgld", 110.0),
             ("p7", (200,), "psgld", 40.0), ("p7", (200,), "sgld", 40.0),
             ("p4", (400, 400), "sgld", 40.0), ("p4", (400, 400), "rmsprop", 40.0),
             *(("p6", (500,), method, 120.0) for method in P6_METHODS)]  # fmt: skip
    for plan in plans[:1] if args.small else plans:
        yield images(*plan)

    def cell(run, needs, **settings):
        return cell_of("experiments", settings | {"compiled": not args.small}, run, needs)

    parts = [("MNIST", 50.0), ("FMNIST", 50.0), ("DA-MNIST", 60.0), ("DA-FMNIST", 300.0)]
    for part, needs in parts[2:3] if args.small else parts:
        for method in ("sghmc_sa",) if args.small else ("sghmc_sa", "sghmc"):
            run = partial(found.sparse_images, part, method, args)
            yield cell(run, needs, experiment="d4", part=part, method=method)
    for method in ("LDA, SGRLD", "DPFA, SGRLD"):
        run = partial(found.topics, method, "20news", args)
        yield cell(run, 60.0, experiment="topics", method=method)
    for kind in ("cyclical", "microcanonical"):
        yield cell(partial(found.resnet, kind, args), 80.0, experiment="resnet20", kind=kind)
    start = partial(found.d7_start, args)
    yield cell(start, 40.0, experiment="d7", share="start", seeds=1)
    for share in ("90",) if args.small else ("90", "30"):
        for method in ("SGHMC-SA",) if args.small else ("A-SGHMC-SA", "SGHMC-SA", "A-SGHMC"):
            run = partial(found.d7, share, method, args)
            yield cell(run, 50.0, experiment="d7", share=share, method=method, seeds=1)


def counts(args):
    """What steps launch and move, counted on a stand-in for a GPU: this needs none."""
    import _gpu_counts
    import _gpu_steps

    found = _gpu_steps.workloads(args.small)
    for name, chains, sampler, way in _gpu_counts.COUNTED[: 2 if args.small else None]:
        workload = found[name]
        chains = workload.chains[-1] if args.small else chains
        run = partial(_gpu_counts.numbers, workload, chains, way, sampler)
        settings = {"workload": name, "chains": chains, "way": f"{sampler}, {way}"}
        yield cell_of("counts", settings, run, 120.0)
    shape = (100, 4) if args.small else (10_000, 100)
    run = partial(_gpu_counts.predictions, found["mlp"], *shape)
    settings = {"workload": "predictions", "rows": shape[0], "draws": shape[1]}
    yield cell_of("counts", settings, run, 60.0)


STAGES = {
    "tests": tests,
    "card": card,
    "steps": steps,
    "jax": in_jax,
    "fits": fits,
    "predictions": predictions,
    "devices": devices,
    "experiments": experiments,
    "counts": counts,
}


# what a short loan of a GPU is for ---------------------------------------------------------------


def _orders():
    """Names of cells in order of worth, for a bare machine with one H100 and six minutes."""

    def names(stage, workload, chains, *ways):
        return [f"{stage}-{workload}-{chains}-{way}" for way in ways]

    recorded = "sgld-recorded"
    first = ["card"]
    for workload, chains in (("mlp", 1), ("mlp", 32), ("cnn", 1)):
        first += [*names("steps", workload, chains, recorded), f"jax-{workload}-{chains}"]
    for chains in (32, 1, 1024):
        first += [f"steps-logistic-{chains}-{recorded}", f"jax-logistic-{chains}"]
    first += names("steps", "mlp", 256, recorded)
    first += names("steps", "mlp", 32, "sgld-eager", "psgld-recorded", "sgld-recorded-TF32")
    learned = "recorded", "recorded-learned-scales"
    first += [f"steps-mlp-1-{each}-{way}" for each in ("psgld", "mclmc") for way in learned]
    first += names("steps", "mlp", 1, "sgld-eager", "sgld-recorded-TF32", "sgld-recorded-bfloat16")
    first += names("steps", "cnn", 1, "sgld-eager", "sgld-recorded-fixed-convolutions")
    first += names("steps", "module", 4, "sgld-eager", recorded)
    first += names("steps", "resnet20", 1, "sghmc-recorded", "sghmc-eager")
    first += ["steps-logistic-1-sgld-eager", "steps-logistic-32-sgld-eager"]
    for width in (16, 50, 100, 200):
        first += [f"devices-mlp-{width}-{n}-{on}" for n in (1, 4) for on in ("cuda", "cpu")]
    first += [f"devices-logistic-{n}-{on}" for n in (1, 32, 1024) for on in ("cuda", "cpu")]
    first += ["tests"]
    fused = "sgld-recorded-fused", "psgld-recorded-fused", "mclmc-recorded-fused"
    first += [f"predictions-{on}" for on in ("cuda", "cpu")]
    first += names("steps", "mlp", 32, *fused) + names("steps", "mlp", 1, fused[2])
    first += [f"fits-{fit.replace(' ', '-')}-{on}" for fit in FITS for on in ("cuda", "cpu")]
    second = [
        "p5-200-200-psgld_t1-3", "p5-200-200-psgld_2_t1-3", "p4-1200-1200-psgld100-3",
        "d4-MNIST-sghmc_sa", "resnet20-microcanonical", "d7-start-1", "d7-90-A-SGHMC-SA-1",
        "d7-90-SGHMC-SA-1", "d7-90-A-SGHMC-1", "resnet20-cyclical", "d4-MNIST-sghmc",
        "d4-DA-MNIST-sghmc_sa", "p6-500-psgld-3", "d4-DA-MNIST-sghmc", "p4-400-400-psgld100-3",
        "p6-500-sgld-3", "p5-200-200-psgld-3", "p5-200-200-psgld_2-3", "p4-400-400-psgld-3",
        "p4-1200-1200-psgld-3", *(f"p6-500-{method}-3" for method in P6_METHODS[2:]),
        *(f"d4-{part}-{method}" for part in ("FMNIST", "DA-FMNIST")
          for method in ("sghmc_sa", "sghmc")),
    ]  # fmt: skip
    return {"first": first, "second": [f"experiments-{name}" for name in second]}


ORDERS = _orders()


def parse():
    where = "cuda" if torch.cuda.is_available() else "cpu"

    def more(parser):
        parser.add_argument("--budget", type=float, help="seconds (default 350; rehearsal 800)")
        parser.add_argument("--order", choices=ORDERS, help="cells in order of worth")
        parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
        parser.add_argument("--cpu-rehearsal", action="store_true", help="all in small, on a CPU")
        parser.add_argument("--device", default=where, choices=("cuda", "cpu"))
        parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)

    args = parse_args(__doc__, seeds=1, quick_seeds=1, runs="gpu", more=more)
    if args.no_new:  # the cells of a GPU, wherever their page is written
        args.device = "cpu" if args.quick else "cuda"
    args.small = args.quick or args.cpu_rehearsal
    args.quick = args.small
    args.budget = args.budget or (800.0 if args.small else 350.0)
    args.order_of = None if args.order is None else ORDERS[args.order]
    if args.order_of is not None:
        stages = {name.partition("-")[0] for name in args.order_of}
        args.stages = [stage for stage in args.stages if stage in stages]
        if args.small:  # the names of a rehearsal are others
            args.order_of = None
    if args.cpu_rehearsal and args.device != "cpu":
        raise SystemExit("--cpu-rehearsal needs --device cpu; on a GPU give --quick.")
    needs_gpu = not args.small and not args.no_new and args.stages != ["counts"]
    if args.device == "cpu" and needs_gpu:
        raise SystemExit("There is no GPU here: give --cpu-rehearsal, --quick or --stages counts.")
    return args


def main():
    args = parse()
    if args.worker:
        go(args, STAGES)
        return
    failures = args.out / "gpu-failures.txt"
    before = failures.read_text() if failures.exists() else ""
    if not args.no_new:
        supervise(args)
    args.no_new, args.order_of, args.stages = True, None, list(STAGES)
    args.records.no_new = True
    results = go(args, STAGES)
    write_results(args, "gpu", "On a GPU", body(results, args.records), spread="Seed 0.")
    if failures.exists() and failures.read_text() != before:
        raise SystemExit(f"Some cells failed: see {failures}.")


if __name__ == "__main__":
    main()
