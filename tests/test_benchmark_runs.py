"""The benchmark that runs on a GPU: its cells, and processes that break."""

import sys
import types
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "examples" / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    """The module gpu, with its cells for a GPU but without its data."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    import gpu

    return gpu


def test_every_cell_of_an_order_exists(gpu, tmp_path):
    """An order that names a cell which no stage has would leave it out in silence."""
    args = types.SimpleNamespace(small=False, short=False, device="cuda", no_new=True, out=tmp_path)
    known = {cell.name for stage in gpu.STAGES.values() for cell in stage(args)}
    for order in gpu.ORDERS.values():
        assert len(set(order)) == len(order)
        assert set(order) <= known
    from d4_mnist_fashion import PARTS
    from p6_mnist_cnn500 import EXPERIMENT as P6

    (_, methods, _), second = P6.plan[0], gpu.ORDERS["second"]
    assert {f"experiments-p6-500-{method}-3" for method in methods} <= set(second)
    assert {f"experiments-d4-{part}-sghmc_sa" for part in PARTS} <= set(second)


@pytest.mark.parametrize("fault", ["break", "hang"])
def test_a_cell_that_breaks_its_process_is_given_up(monkeypatch, tmp_path, fault):
    """The next process takes the other cells; a later call does not try the broken one again."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _gpu_run

    script = tmp_path / "worker.py"
    script.write_text(f"""
import json, os, time, pathlib
out = pathlib.Path({str(tmp_path)!r})
broken = out / "gpu-broken.txt"
if not broken.exists():
    now = {{"name": "bad", "until": time.time() + 0.5}}
    (out / "gpu-now.json").write_text(json.dumps(now))
    time.sleep(30) if {fault!r} == "hang" else os._exit(134)
(out / "done").write_text("")
""")
    monkeypatch.setattr(_gpu_run, "SCRIPT", str(script))
    args = types.SimpleNamespace(budget=20.0, out=tmp_path, runs=tmp_path / "runs.jsonl")
    _gpu_run.supervise(args)
    assert (tmp_path / "gpu-broken.txt").read_text() == "bad\n"
    assert "bad" in (tmp_path / "gpu-failures.txt").read_text()
    assert (tmp_path / "done").exists()


def test_what_a_gpu_would_launch_and_move_is_counted(monkeypatch):
    """Each operation is a kernel, and each number that it reads or writes counts; views do not."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _gpu_counts

    with _gpu_counts.counted() as (device, counts):
        x = torch.ones(8, 4, device=device)
        counts.on = True
        x.add_(1.0)  # 32 numbers are read, and as many written
        x.t()[:2].view(2, 8)
        torch.mm(x, x[:4])  # 32 and 16 are read, and 32 written
        x.index_select(0, torch.tensor([1]).to(device))  # 4 are read and written, and an index
        assert (counts.kernels, counts.flops) == (3, 2 * 8 * 4 * 4)
        assert counts.bytes == 4 * (64 + 80 + 8) + 8
        assert (counts.copies, counts.copied) == (1, 8)  # of the index
        x.expand(3, 8, 4).sum()
        assert counts.bytes == 4 * (64 + 80 + 8) + 8 + 4 * (32 + 1)
        # at once: x and the product, which ends before the next ones begin
        assert 4 * (32 + 32) <= counts.most < 4 * (32 + 32 + 8)
        view, most = torch.ones(10, 10, device=device)[0], counts.most
        torch.ones(100, device=device)
        assert counts.most == most + 4 * 100 and len(view) == 10  # it keeps all hundred


@pytest.mark.parametrize("chains", [1, 3])
def test_the_counts_of_a_recorded_step(monkeypatch, chains):
    """A step of logistic regression has as many kernels whatever the number of its chains."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _gpu_counts
    import _gpu_steps

    workload = _gpu_steps.workloads(True)["logistic"]
    found = _gpu_counts.numbers(workload, chains, "recorded", "sgld")
    # the numbers of rows, the rows, two products, noise, a prior and two terms of an update
    assert 8 <= found["kernels"] <= 12
    assert found["n_parameters"] == 124 and found["host_us"] > 0.0
    # the least: the products read a minibatch twice
    assert found["megabytes"] > 1e-6 * 4 * 2 * chains * 300 * 123
