"""How cells of gpu.py are run: within a budget, resumable, in processes that may break.

The command starts a worker, a process that takes cell after cell. An error of CUDA breaks every
later call in its process, and a cell may hang: the worker is then replaced, and the cell is not
tried again.
"""

import json
import subprocess
import sys
import time
import traceback
from pathlib import Path

import torch

SCRIPT = str(Path(__file__).with_name("gpu.py"))
#: exit status of a worker that CUDA has broken
BROKEN = 7
#: seconds that are kept of the budget, for the page
RESERVE = 5.0


def supervise(args):
    """Run workers until one ends well or the budget has ended."""
    end = time.monotonic() + args.budget - RESERVE
    now = args.out / "gpu-now.json"
    while (left := end - time.monotonic()) > RESERVE:
        now.unlink(missing_ok=True)
        options = ["--worker", "--budget", f"{left:.0f}", "--out", str(args.out)]
        options += ["--runs", str(args.runs)]
        worker = subprocess.Popen([sys.executable, SCRIPT, *sys.argv[1:], *options])
        status = _watched(worker, now, end)
        if status == 0 or time.monotonic() > end:
            return
        if now.exists():
            why = "it took too long" if status is None else f"its process ended with {status}"
            _give_up(args, json.loads(now.read_text())["name"], why)
        elif status != BROKEN:
            raise SystemExit(status)  # it has not come to its first cell


def _watched(worker, now, end):
    """The worker's exit status; None if it was stopped because it took too long."""
    while worker.poll() is None:
        time.sleep(0.2)
        at = time.time()
        try:
            late = now.exists() and at > json.loads(now.read_text())["until"]
        except ValueError:  # it is being written
            late = False
        if late or time.monotonic() > end:
            worker.kill()
            worker.wait()
            return None
    return worker.returncode


def _broken(args):
    return args.out / "gpu-broken.txt"


def _give_up(args, name, why):
    """Report a cell that is not to be tried again."""
    report(args, name, why)
    with _broken(args).open("a") as file:
        file.write(name + "\n")


def report(args, name, why):
    print(f"{name} FAILED: {why[-600:]}", flush=True)
    with (args.out / "gpu-failures.txt").open("a") as file:
        file.write(f"{name}\n{why}\n\n")


def go(args, stages):
    """Run what is not stored until the budget ends; what is stored, by stage."""
    began, results = time.monotonic(), {}
    path = _broken(args)
    broken = set(path.read_text().split("\n")) if path.exists() else set()
    for cell in cells_of(args, stages):
        left = args.budget - (time.monotonic() - began)
        if (found := take(args, cell, left, skip=cell.name in broken)) is not None:
            results.setdefault(cell.name.split("-")[0], []).append((cell, found))
    return results


def cells_of(args, stages):
    """The cells of the stages, or those of an order; a stage that can't be prepared is reported."""
    known, wanted = {}, args.order_of
    for stage in args.stages:
        try:
            known |= {cell.name: cell for cell in stages[stage](args)}
        except (Exception, SystemExit):
            report(args, stage, traceback.format_exc())
    return [known[name] for name in wanted if name in known] if wanted else list(known.values())


def take(args, cell, left, *, skip=False):
    """The numbers of a cell: stored, or new if there is time; None if there are none."""
    settings = cell.settings | {"stage": cell.name.split("-")[0], "small": args.small}
    found = args.records.stored(cell.name, settings)
    if found is not None or args.no_new or skip:
        return found
    if left < min(cell.needs, args.budget):
        print(f"{cell.name}: no time, {left:.0f} s are left and it needs {cell.needs:.0f}",
              flush=True)  # fmt: skip
        return None
    start, now = time.perf_counter(), args.out / "gpu-now.json"
    now.write_text(json.dumps({"name": cell.name, "until": time.time() + cell.limit}))

    def run():
        numbers = cell.run()
        return numbers | {"seconds": round(time.perf_counter() - start, 3)}

    try:
        return args.records.finished(cell.name, run, settings)
    except (Exception, SystemExit):
        report(args, cell.name, traceback.format_exc())
        _check_cuda(args, cell.name)
        return None
    finally:
        now.unlink(missing_ok=True)


def _check_cuda(args, name):
    """End a worker that CUDA has broken; the command starts another."""
    if args.device != "cuda":
        return
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.ones(2, device="cuda").sum().item()
    except Exception:
        _give_up(args, name, "it broke CUDA for its process")
        raise SystemExit(BROKEN) from None
