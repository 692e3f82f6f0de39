"""The page of gpu.py: tables of its records, beside jax and beside the CPU."""

from _common import markdown_table
from _images import Experiment
from _records import UNKNOWN

#: what no record says
NOTES = (
    "The fits of default estimators, predictions and experiments are the first runs, on an H100 "
    "at commit cdc53d827673, which recorded gradients alone, with a generator for each chain, and "
    "nothing of networks with learned scales: steps took 2.2 to 17 times as long as jax's, and 26 "
    "of 124 tests failed. The fits include the first use of CUDA in a process; "
    '`device="auto"` took the GPU for all of them then, and takes it for LDA alone now.',
    "The tests with the mark `gpu` ran at commit 452b5480, on an H200: 171 passed, 13 failed. Five "
    "were convolutions in float32, whose last digits differ between recorded and other steps, "
    "because cuDNN adds up in the order in which threads arrive; with "
    "`torch.backends.cudnn.deterministic = True`, which tests set now, a step takes 1.9 times as "
    "long, and draws repeat. Eight were sparse regressors, for which a recording left the sums of "
    "an earlier step; of 33 tests that ran after the mend, 32 passed. The other one failed because "
    "an earlier recording was collected while one was made: mended, and not run again on a GPU.",
    "Missed: what is above its target in the first table (predictions, 2.1 times as fast as on 16 "
    "cores, target 20, also copied 1.4 GB between devices), and the memory of 256 chains (7.4 GiB, "
    "target 4). With TF32, which jax uses by itself, the perceptron takes 1.6 times jax's time "
    "with one chain and 1.4 with 32. Of 0.64 ms of kernels of 32 chains at commit 452b5480, "
    "products took 0.33, two passes of the update 0.09, noise 0.05 (0.02 since it is written in "
    "order), the prior 0.05, sums of slopes 0.02. Chains of 478,410 weights begin at odd places of "
    "16 bytes, so that products use kernels for unaligned matrices.",
    "Not measured on a GPU yet: recordings are now compared with their steps some chains at a "
    "time. By the counts below, 256 chains then hold at most 3.5 GiB at once, recording included. "
    "Blocks of rows of one prediction share the draws on the device, so that 0.29 GB are copied.",
)

COUNTED = """Counted without a GPU (`--stages counts`): the operations of a recorded step on the
tests' stand-in for a device, each one kernel, and the numbers that they read and write. "Host" is
the loop around a replay, and "GiB" what all tensors hold at most. "Least" is 2 µs a kernel, and
bytes and operations at the rates of the card below. Measured times also contain what no count
shows: kernels far from these rates and, with learned scales, the CPU's draws. Targets are multiples
of jax's time or of that with fixed scales; for ResNet-20, it is torch's compiled step.

"""
#: of steps, in units of the time of another one, or in ms
TARGETS = {
    ("mlp", 1, "sgld, recorded"): (1.1, "jax"), ("mlp", 32, "sgld, recorded"): (1.0, "jax"),
    ("mlp", 256, "sgld, recorded"): (8.0, ("mlp", 32, "sgld, recorded")),
    ("cnn", 1, "sgld, recorded"): (1.1, "jax"), ("logistic", 1, "sgld, recorded"): (1.2, "jax"),
    ("logistic", 32, "sgld, recorded"): (1.2, "jax"),
    ("logistic", 1024, "sgld, recorded"): (0.3, None),
    ("mlp", 1, "psgld, recorded, learned scales"): (1.3, ("mlp", 1, "psgld, recorded")),
    ("mlp", 1, "mclmc, recorded, learned scales"): (1.3, ("mlp", 1, "mclmc, recorded")),
    ("resnet20", 1, "sghmc, recorded"): (4.06, None),
}  # fmt: skip
KERNEL_MS = 2e-3

BODY = """
{findings}

{tables}

Every time of a step is the smallest of three repeats after a warm-up, on the clock, with the GPU
waited for. "Launches" are calls of the CUDA runtime in a step. "Recorded"
are whole steps as a CUDA graph, "eager" is `compiled=False`; "fused" has updates that
`torch.compile` has made, which long runs have. TF32 is torch's own switch,
`torch.set_float32_matmul_precision("high")`, and bfloat16 is `precision="bfloat16"`. "GiB" is
the most memory that a fit and its steps took.

The benchmark needs a checkout, torch with CUDA, numpy, scikit-learn, pytest and Pillow, and 62 MB
of data in `SKBAYES_DATA`: `mnist.npz`, `fashion_mnist.npz`, `cifar10_jpeg.npz`, `a9a.npz` and
`20news_bow.npz`; jax if it is there; arviz-stats or its downloaded wheel. Nothing is installed and
no network is used:

```bash
PYTHONPATH=$(echo wheels/*.whl) SKBAYES_DATA=folder \\
    python examples/benchmarks/gpu.py --order first --out results
```

`--order second` runs the experiments of the papers. Each order ends within six minutes. Finished
cells are stored, so the same command goes on from there; a process that CUDA has broken is
replaced.
"""

#: numbers of steps that are not shown
LEFT_OUT = "tflops", "least_gb_per_s", "n_parameters"
HEADINGS = {
    "copy_gb_per_s": "copies, GB/s",
    "float32_tflops": "float32, TFLOP/s",
    "tf32_tflops": "TF32, TFLOP/s",
    "bfloat16_tflops": "bfloat16, TFLOP/s",
    "tflops": "TFLOP/s",
    "least_gb_per_s": "GB/s",
    "n_parameters": "parameters",
    "wall": "seconds",
    "cuda": "CUDA",
    "gib": "GiB",
}


def body(results, records):
    """Markdown of all stages: what they show, then a table each."""
    made = {
        "Beside jax, and what is counted": table_of_counts(results),
        "Default estimators on both devices": table_of_fits(results.get("fits", ())),
        "Experiments of the papers": table_of_experiments(results.get("experiments", ())),
        "The card": table(results.get("card", ())),
        "Steps": table(results.get("steps", ()), LEFT_OUT),
        "Small models on both devices": table(results.get("devices", ()), LEFT_OUT),
        "Other experiments": table(others(results.get("experiments", ()))),
    }
    parts = [f"## {title}\n\n{text}" for title, text in made.items() if text]
    found = "\n".join(f"* {line}" for line in findings(results, records))
    return BODY.format(findings=found, tables="\n\n".join(parts))


# what they show -----------------------------------------------------------------------------------


def findings(results, records):
    yield from _of_jax(results)
    yield from _of_fits(results)
    for _, found in results.get("tests", ()):
        n = found["passed"] + found["failed"]
        causes = "".join(f" {line.rstrip('.')}." for line in found["failures"][:5])
        yield f"{found['failed']} of {n} tests with the mark `gpu` failed.{causes}"
    commits = {record["commit"] for record in records.used.values()} - {None}
    if commits:
        yield f"Commits: {', '.join(sorted(commits))}."
    yield from NOTES


def _of_jax(results):
    ratios = [
        f"{name} ({_chains(chains)}) {ours / theirs:.1f}"
        for (name, chains), (ours, theirs) in _pairs(results).items()
    ]
    if ratios:
        yield (
            "A step of SGLD takes this many times as long as one that is written by hand in jax "
            f"and compiled over all steps: {', '.join(ratios)}."
        )


def _of_fits(results):
    slower = faster = n = 0
    for gpu, cpu in _fits(results.get("fits", ())).values():
        if _seconds(gpu)[0] is None and _seconds(cpu)[0] is None:
            continue  # both took longer than the limit
        n += 1
        slower += _seconds(gpu)[1] > 1.1 * _seconds(cpu)[1]
        faster += 1.1 * _seconds(gpu)[1] < _seconds(cpu)[1]
    if n:
        yield (
            f"Of {n} fits of default estimators that ended on a device, the GPU made {slower} "
            f"slower by more than a tenth and {faster} faster."
        )


# tables -------------------------------------------------------------------------------------------


def row_of(cell, found):
    settings = {key: value for key, value in cell.settings.items() if key != "steps"}
    numbers = {}
    for key, value in found.items():
        if isinstance(value, float):
            numbers[key] = f"{value:.3g}"
        elif isinstance(value, int | str):
            numbers[key] = value
        elif key == "launches":
            numbers[key] = f"{sum(value.values()):.0f}"
        elif key in ("scores", "averaged", "last", "error"):
            kinds = value.items() if isinstance(value, dict) else [(key, value)]
            numbers |= {kind: str(scores) for kind, scores in kinds}
    numbers.pop("seconds", None)
    return settings | numbers


def table(cells, left_out=()):
    """All settings and numbers of some cells but those; empty if there are none."""
    rows = [row_of(cell, found) for cell, found in cells]
    columns = [key for key in dict.fromkeys(key for row in rows for key in row)
               if key not in left_out]  # fmt: skip
    body = [[row.get(column, "") for column in columns] for row in rows]
    header = [HEADINGS.get(column, column.replace("_", " ")) for column in columns]
    return markdown_table(header, body) if rows else ""


def _chains(n):
    return f"{n:,} chain" + "s" * (n > 1)


def _step_times(results, way="sgld, recorded"):
    """Milliseconds of a step, by workload and number of chains."""
    return {
        (cell.settings["workload"], cell.settings["chains"]): numbers["ms"]
        for cell, numbers in results.get("steps", ())
        if cell.settings["way"] == way
    }


def _pairs(results):
    """By workload and chains: the package's time and jax's."""
    times, found = _step_times(results), {}
    for cell, numbers in results.get("jax", ()):
        place = cell.settings["workload"], cell.settings["chains"]
        if place in times:
            found[place] = times[place], numbers["ms"]
    return found


def table_of_counts(results):
    """Counts of a step, the least time by them, and measured times, jax's and the targets."""
    rates = dict(pair for _, found in results.get("card", ()) for pair in found.items())
    times = {_place(cell): numbers["ms"] for cell, numbers in results.get("steps", ())}
    jax = {(*place, "sgld, recorded"): ms for place, (_, ms) in _pairs(results).items()}
    walls = {c.settings["on"]: 1e3 * n["wall"] for c, n in results.get("predictions", ())}
    rows = []
    for cell, found in results.get("counts", ()):
        place, target = _place(cell), None
        if place in TARGETS:
            factor, of = TARGETS[place]
            unit = 1.0 if of is None else jax.get(place) if of == "jax" else times.get(of)
            target = unit and factor * unit
        shown = rates and _least(found, rates), times.get(place), jax.get(place), target
        if place[0] == "predictions":
            shown = shown[0], walls.get("cuda"), None, walls.get("cpu", 0.0) / 20.0
        rows.append([
            *place[:2], place[2].replace(", recorded", ""), f"{found['kernels']:.0f}",
            f"{found['megabytes']:.3g}", f"{found['gflop']:.3g}",
            f"{found['host_us']:.0f}" if "host_us" in found else "",
            f"{found['gib']:.2g}" if "gib" in found else "",
            *(f"{ms:.3g}" if ms else "" for ms in shown),
        ])  # fmt: skip
    header = ["", "chains", "way", "kernels", "MB", "GFLOP", "host, µs", "GiB", "least, ms",
              "measured, ms", "jax, ms", "target, ms"]  # fmt: skip
    return COUNTED + markdown_table(header, rows) if rows else ""


def _place(cell):
    """Workload, number of chains and way of the cells of steps; some have not all of them."""
    return tuple(cell.settings.get(key, "") for key in ("workload", "chains", "way"))


def _least(found, rates):
    """Milliseconds by launches, bytes and operations; a GPU hides none of one behind another."""
    copying = found["megabytes"] / rates["copy_gb_per_s"]
    return KERNEL_MS * found["kernels"] + copying + found["gflop"] / rates["float32_tflops"]


def _fits(cells):
    """Numbers of each fit on the GPU and on the CPU."""
    found = {}
    for cell, numbers in cells:
        found.setdefault(cell.settings["fit"], {})[cell.settings["on"]] = numbers
    return {name: (by["cuda"], by["cpu"]) for name, by in found.items() if len(by) == 2}


def _seconds(numbers):
    """Seconds of a fit, None beyond the limit, and what they are at least."""
    return numbers["wall"], numbers["wall"] or numbers["more_than"]


def table_of_fits(cells):
    def text(numbers):
        exact, least = _seconds(numbers)
        return f"> {least:g}" if exact is None else f"{exact:.1f}"

    rows = []
    for name, (gpu, cpu) in _fits(cells).items():
        known = _seconds(gpu)[0] is not None and _seconds(cpu)[0] is not None
        ratio = f"{gpu['wall'] / cpu['wall']:.2f}" if known else ""
        rows.append([name, text(gpu), text(cpu), ratio])
    return markdown_table(["seconds of a fit", "GPU", "CPU", "GPU / CPU"], rows) if rows else ""


def others(cells):
    return [(cell, found) for cell, found in cells if "size" not in cell.settings]


def table_of_experiments(cells):
    """P4 to P7: errors of every chain, beside the published one."""
    from _gpu_experiments import EXPERIMENTS

    header = ["", "units", "method", "error of the average, %", "NLL", "published, %", "s"]
    rows = []
    for cell, found in cells:
        if "size" not in cell.settings:
            continue
        experiment: Experiment = EXPERIMENTS[cell.settings["experiment"]]
        method, size = cell.settings["method"], cell.settings["size"]
        place = method, tuple(map(int, size.split("-")))
        errors, nll, _ = zip(*found["scores"]["averaged"], strict=True)
        published = experiment.published.get(place, UNKNOWN)
        rows.append([
            experiment.name.partition("_")[0].upper(), size, experiment.methods[method].title,
            " ".join(f"{e:.2f}" for e in errors), " ".join(f"{v:.4f}" for v in nll),
            "not given" if published is UNKNOWN else published, f"{found['wall']:.0f}",
        ])  # fmt: skip
    return markdown_table(header, rows) if rows else ""
