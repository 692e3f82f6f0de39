"""The benchmark that runs on a GPU: its cells, and processes that break."""

import sys
import types
from pathlib import Path

import pytest

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
