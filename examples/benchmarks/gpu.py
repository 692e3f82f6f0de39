"""What a GPU buys: tests, steps, alternatives, predictions and the papers' experiments on one.

    SKBAYES_DATA=folder python examples/benchmarks/gpu.py --budget 500 --out results

Runs from a checkout, without an installation, with torch, numpy, scikit-learn and arviz-stats,
whose downloaded wheel may be on PYTHONPATH as it is; jax is timed if it is there. The parts
("cells") of a stage are stored one by one in ``runs/gpu.jsonl`` of ``--out`` and are not run again,
so the next call goes on where the budget ended. A cell that fails is reported in
``gpu-failures.txt`` there and does not stop the others. ``--cpu-rehearsal`` takes every stage in
small on a CPU, and ``--quick`` does so with stand-in data.
"""

import os
import re
import subprocess
import sys
import time
import traceback
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
from _common import REPOSITORY, load_mnist, markdown_table, parse_args, write_results


@dataclass
class Cell:
    """A part of a stage, stored as one record.

    ``needs`` are the seconds that must be left of the budget: about what it takes on an H200.
    """

    name: str
    run: Callable[[], dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    needs: float = 10.0


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
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=420,
        check=False,
    )  # fmt: skip
    (args.out / "gpu-tests.txt").write_text(done.stdout[-200_000:] + done.stderr[-20_000:])
    lines = done.stdout.splitlines()
    found = dict.fromkeys(("passed", "failed", "skipped", "error"), 0)
    found |= {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|skipped|error)",
                                                     lines[-1] if lines else "")}  # fmt: skip
    if not found["passed"]:
        raise RuntimeError(f"no test has passed: {(done.stdout + done.stderr)[-2000:]}")
    return found | {"failures": [line for line in lines if line.startswith("FAILED")][:50]}


def card(args):
    from _gpu_steps import card as measure

    yield Cell("card", partial(measure, args.device, args.small), needs=20.0)


BARE = ("eager", "graph", "compile")


def steps(args):
    """Ours next to bare torch, by workload and number of chains."""
    import _gpu_steps

    for workload in _gpu_steps.workloads(args.small).values():
        data = workload.data(args.small)
        samplers, counts, bare = workload.samplers, workload.chains, BARE
        if args.small:  # every path once
            samplers, counts = samplers[:1], counts[-1:]
            bare = BARE[: 2 if args.short else 3] if workload.name == "mlp" else BARE[:1]
        for chains in counts:
            n = steps_of(args, chains)
            same = (workload, *data, chains, args.device, n)
            base = {"workload": workload.name, "chains": chains, "steps": n}
            for sampler in samplers:
                for compiled in (False, True) if args.device == "cuda" else (False,):
                    if compiled and workload.name == "logistic":
                        continue  # no graph of its design
                    way = f"ours, {sampler}" + (", gradient graph" if compiled else "")
                    run = partial(_gpu_steps.ours_numbers, *same, sampler=sampler,
                                  compiled=compiled)  # fmt: skip
                    yield cell_of("steps", base | {"way": way}, run)
            for way in bare:
                run = partial(_gpu_steps.bare_numbers, *same, way)
                needs = 60.0 if way == "compile" else 10.0
                yield cell_of("steps", base | {"way": f"bare, {way}"}, run, needs)


def steps_of(args, chains):
    return 4 if args.small else max(60, 600 // chains)


def cell_of(stage, settings, run, needs=10.0):
    name = "-".join([stage, *(str(value).replace(", ", "-").replace(" ", "-")
                              for key, value in settings.items() if key != "steps")])  # fmt: skip
    return Cell(name, run, settings, needs)


def alternatives(args):
    import _gpu_alternatives
    import _gpu_steps

    found = _gpu_steps.workloads(args.small)
    plans = [("mlp", 1, "sgld"), ("mlp", 32, "sgld"), ("mlp", 1, "psgld"), ("cnn", 1, "psgld"),
             ("cnn", 4, "sgld"), ("module", 4, "sgld"), ("resnet20", 1, "sghmc")]  # fmt: skip
    if args.small:
        plans = [("mlp", 2, "psgld")]
    for name, chains, sampler in plans:
        workload, n = found[name], steps_of(args, chains)
        data = workload.data(args.small)
        for way in _gpu_alternatives.WAYS:
            run = partial(_gpu_alternatives.numbers, way, workload, *data, chains, args.device, n,
                          sampler)  # fmt: skip
            settings = {"workload": name, "chains": chains, "sampler": sampler, "way": way}
            yield cell_of("alternatives", settings | {"steps": n}, run, 15.0)


def in_jax(args):
    import _gpu_steps

    try:
        import _gpu_jax
        import jax  # noqa: F401
    except ImportError as error:
        print("left out:", error, flush=True)
        return
    found = _gpu_steps.workloads(args.small)
    for name in ("mlp", "cnn", "logistic"):
        workload = found[name]
        data = workload.data(args.small)
        for chains in workload.chains[: 1 if args.small else None]:
            n = steps_of(args, chains)
            run = partial(_gpu_jax.numbers, workload, *data, chains, n)
            settings = {"workload": name, "chains": chains, "steps": n}
            yield cell_of("jax", settings, run, 40.0)


def devices(args):
    """The same small models on the CPU and on the GPU: from which size on a GPU is faster."""
    import _gpu_steps

    models = _gpu_steps.workloads(args.small)
    widths = (4,) if args.small else (16, 50, 100, 200)
    data = models["mlp"].data(args.small)
    for width in widths:
        sizes = (784, width, 10)
        workload = _gpu_steps.Workload(
            f"mlp-{width}", models["mlp"].load, partial(_gpu_steps.mlp_module, sizes),
            partial(_gpu_steps.BayesianMLPClassifier, hidden_layer_sizes=width), 100, (1, 4),
            (784,), sizes,
        )  # fmt: skip
        for chains in workload.chains:
            yield from on_both(args, workload, data, chains)
    if not args.small:
        data = models["logistic"].data(False)
        for chains in models["logistic"].chains:
            yield from on_both(args, models["logistic"], data, chains)


def on_both(args, workload, data, chains):
    import _gpu_steps

    n = 4 if args.small else 100
    for device in dict.fromkeys(("cpu", args.device)):
        run = partial(_gpu_steps.ours_numbers, workload, *data, chains, device, n, compiled="auto")
        settings = {"workload": workload.name, "chains": chains, "on": device, "steps": n}
        yield cell_of("devices", settings, run, 20.0)


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
    """P5, P4, P7, P6, D4, topics, ResNet-20, D5 and D7, the quick ones first."""
    import _gpu_experiments as found

    seeds = 1 if args.small else 3

    def images(name, size, method, needs):
        run = partial(found.images, name, size, method, seeds, args)
        settings = {"experiment": name, "size": found.label(size), "method": method}
        return cell_of("experiments", settings | {"seeds": seeds}, run, needs)

    plans = [("p5", (200, 200), "psgld", 60.0), ("p5", (200, 200), "psgld_2", 60.0),
             ("p4", (400, 400), "psgld", 60.0), ("p4", (1200, 1200), "psgld", 90.0),
             ("p7", (200,), "psgld", 60.0), ("p7", (200,), "sgld", 60.0),
             ("p4", (400, 400), "sgld", 60.0), ("p4", (400, 400), "rmsprop", 60.0),
             ("p6", (500,), "psgld", 150.0), ("p6", (500,), "sgld", 150.0)]  # fmt: skip
    for plan in plans[:1] if args.small else plans:
        yield images(*plan)

    def cell(run, needs, **settings):
        return cell_of("experiments", settings, run, needs)

    parts = [("MNIST", 60.0), ("FMNIST", 60.0), ("DA-MNIST", 90.0), ("DA-FMNIST", 400.0)]
    for part, needs in parts[2:3] if args.small else parts:
        for method in ("sghmc_sa",) if args.small else ("sghmc_sa", "sghmc"):
            run = partial(found.sparse_images, part, method, args)
            yield cell(run, needs, experiment="d4", part=part, method=method)
    for method in ("LDA, SGRLD", "DPFA, SGRLD"):
        run = partial(found.topics, method, "20news", args)
        yield cell(run, 60.0, experiment="topics", method=method)
    for kind in ("cyclical", "microcanonical"):
        yield cell(partial(found.resnet, kind, args), 120.0, experiment="resnet20", kind=kind)
    start = partial(found.d7_start, args, seeds)
    yield cell(start, 400.0, experiment="d7", share="start", seeds=seeds)
    for share in ("90",) if args.small else ("90", "30"):
        for method in ("SGHMC-SA",) if args.small else ("A-SGHMC-SA", "SGHMC-SA", "A-SGHMC"):
            run = partial(found.d7, share, method, 20, args, seeds)
            yield cell(run, 150.0, experiment="d7", share=share, method=method, seeds=seeds)


STAGES = {
    "tests": tests,
    "card": card,
    "steps": steps,
    "alternatives": alternatives,
    "jax": in_jax,
    "predictions": predictions,
    "devices": devices,
    "experiments": experiments,
}


# one run ------------------------------------------------------------------------------------------


def go(args):
    """Run what is not stored until the budget ends; what is stored, by stage."""
    began, results = time.perf_counter(), {}
    for stage in args.stages:
        try:
            cells = list(STAGES[stage](args))
        except (Exception, SystemExit):  # of what a stage prepares, such as missing data
            failed(args, stage)
            continue
        for cell in cells:
            found = take(args, cell, args.budget - (time.perf_counter() - began))
            if found is not None:
                results.setdefault(stage, []).append((cell, found))
    return results


def take(args, cell, left):
    """The numbers of a cell: stored, or new if there is time; None if there are none."""
    settings = cell.settings | {"stage": cell.name.split("-")[0], "small": args.small}
    found = args.records.stored(cell.name, settings)
    if found is not None or args.no_new:
        return found
    if left < min(cell.needs, args.budget):
        print(f"{cell.name}: no time, {left:.0f} s are left and it needs {cell.needs:.0f}",
              flush=True)  # fmt: skip
        return None
    start = time.perf_counter()

    def run():
        numbers = cell.run()
        return numbers | {"seconds": round(time.perf_counter() - start, 3)}

    try:
        return args.records.finished(cell.name, run, settings)
    except (Exception, SystemExit):
        failed(args, cell.name)
        return None


def failed(args, name):
    """Report a failure; after one that broke CUDA for this process, start the process anew."""
    text = traceback.format_exc()
    print(f"{name} FAILED: {text[-600:]}", flush=True)
    args.failures.append(name)
    with (args.out / "gpu-failures.txt").open("a") as file:
        file.write(f"{name}\n{text}\n\n")
    if args.device != "cuda":
        return
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.ones(2, device="cuda").sum().item()
    except Exception:
        raise SystemExit(f"{name} broke CUDA for this process: call the command again.") from None


# the page -----------------------------------------------------------------------------------------

BODY = """
Every time is the smallest of three repeats after a warm-up, on the clock, with the GPU waited for.
"Launches" are calls of the CUDA runtime in a step. TFLOP/s are those that torch counts for bare
SGD, and GB/s what the least traffic of a step (each number of a chain eight times) amounts to; the
card's own are in the first table.

{tables}
"""


def row_of(cell, found):
    settings = {key: value for key, value in cell.settings.items() if key != "steps"}
    numbers = {}
    for key, value in found.items():
        if isinstance(value, float):
            numbers[key] = f"{value:.3g}"
        elif isinstance(value, int):
            numbers[key] = value
        elif key == "launches":
            numbers[key] = f"{sum(value.values()):.0f}"
        elif key in ("scores", "averaged", "error"):
            kinds = value.items() if isinstance(value, dict) else [(key, value)]
            numbers |= {kind: str(scores) for kind, scores in kinds}
    return settings | numbers


def tables(results):
    parts = []
    for stage, cells in results.items():
        rows = [row_of(cell, found) for cell, found in cells]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        body = [[row.get(column, "") for column in columns] for row in rows]
        parts += [f"## {stage.capitalize()}", markdown_table(columns, body)]
    return "\n\n".join(parts)


def parse():
    where = "cuda" if torch.cuda.is_available() else "cpu"

    def more(parser):
        parser.add_argument("--budget", type=float, default=500.0, help="seconds (default 500)")
        parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
        parser.add_argument("--cpu-rehearsal", action="store_true", help="all in small, on a CPU")
        parser.add_argument("--device", default=where, choices=("cuda", "cpu"))

    args = parse_args(__doc__, seeds=1, quick_seeds=1, runs="gpu", more=more)
    args.small = args.quick or args.cpu_rehearsal
    args.quick, args.failures = args.small, []
    if args.cpu_rehearsal and args.device != "cpu":
        raise SystemExit("--cpu-rehearsal needs --device cpu; on a GPU give --quick.")
    if args.device == "cpu" and not args.small and not args.no_new:
        raise SystemExit("There is no GPU here: give --cpu-rehearsal or --quick.")
    return args


def main():
    args = parse()
    if args.device == "cuda":
        print(torch.cuda.get_device_name(), torch.version.cuda, flush=True)
    results = go(args)
    write_results(args, "gpu", "On a GPU", BODY.format(tables=tables(results)), spread="Seed 0.")
    if args.failures:
        raise SystemExit(f"{len(args.failures)} cells failed: {', '.join(args.failures)}")


if __name__ == "__main__":
    main()
