"""Benchmarks that run on a GPU, and what is recorded of steps."""

import sys
import types
from functools import partial
from pathlib import Path

import numpy as np
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


# steps that are recorded whole (gpu.py)


@pytest.fixture
def recorded_steps(monkeypatch):
    """A function that makes recorded steps of a small perceptron, given a sampler."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _gpu_alternatives
    import _gpu_steps

    sizes = (6, 3, 2)
    workload = _gpu_steps.Workload(
        "mlp", None, None,
        partial(_gpu_steps.BayesianMLPClassifier, hidden_layer_sizes=3), 10, (2,), (6,), sizes,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 6)).astype(np.float32), rng.integers(0, 2, 50)

    def make(sampler, integrator):
        ours = _gpu_steps.Ours(workload, X, y, 2, "cpu", sampler, integrator=integrator)
        return _gpu_alternatives.RecordedSteps(ours, "cpu", 1)

    return make


def test_a_recorded_step_is_a_step(recorded_steps):
    """Each takes new rows and new noise, and moves the chains as SGLD's equation says."""
    steps = recorded_steps("sgld", "euler")
    chains, step, seen = steps.chains, steps.chains.last_step, []
    for _ in range(2):
        before = chains.phi.clone()
        steps(1)
        batch, xi = chains.evaluator.batch, steps.xi.clone()
        moved = chains.phi.clone()
        with torch.no_grad():
            g = chains.evaluator.gradient(before)
        expected = before - step.eta * g + np.sqrt(2.0 * step.noise) * xi
        np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-7)
        seen.append((batch.fields["x"], xi))
    assert not torch.equal(seen[0][0], seen[1][0])
    assert not torch.equal(seen[0][1], seen[1][1])


def test_steps_of_default_networks_are_recorded(recorded_steps):
    """MCLMC's, too, whose state stays where it was recorded."""
    steps = recorded_steps("mclmc", "leapfrog")
    held = {name: tensor.data_ptr() for name, tensor in steps.chains.state.items()}
    before = steps.chains.phi.clone()
    steps(3)
    assert held == {name: tensor.data_ptr() for name, tensor in steps.chains.state.items()}
    assert (steps.chains.phi != before).all()
