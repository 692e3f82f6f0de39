"""What a step launches, reads and writes on a GPU, counted on a stand-in for one.

Where there is no GPU, these counts say what a step would take there. A step is recorded as on a
GPU, by a stand-in for CUDA's recorder, and every operation on the tests' stand-in for a device is
counted as one kernel. Numbers of a tensor are counted once for each operation that reads or writes
them. "Host" is the time of the loop around replays that do nothing.
"""

import contextlib
import math
import statistics
import sys
import time
import warnings
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from _gpu_steps import EULER, WAYS, Ours
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from skbayes_sgmcmc._data import counters
from skbayes_sgmcmc._engine.accelerators import cuda_graphs

TESTS = Path(__file__).resolve().parents[2] / "tests"
aten = torch.ops.aten
#: operations that make tensors without numbers, or look at those of another
EMPTY = {
    aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided,
    aten._unsafe_view,
}  # fmt: skip
#: operations that write a tensor without reading it
WRITES = {aten.copy_, aten.fill_, aten.zero_}
COPIES = {aten.copy_, aten._to_copy}
#: operations that read as many numbers of their first argument as they return
GATHERS = {aten.index, aten.index_select, aten.gather, aten.embedding}
HOST_STEPS = 200
N_CLASSES = {"mlp": 10, "cnn": 10, "resnet20": 10, "logistic": 2}
#: workload, chains, sampler and way of the steps that have a target
COUNTED = [
    ("mlp", 1, "sgld", "recorded"), ("mlp", 32, "sgld", "recorded"),
    ("mlp", 256, "sgld", "recorded"), ("cnn", 1, "sgld", "recorded"),
    ("logistic", 1, "sgld", "recorded"), ("logistic", 32, "sgld", "recorded"),
    ("logistic", 1024, "sgld", "recorded"), ("mlp", 1, "psgld", "recorded"),
    ("mlp", 1, "psgld", "recorded, learned scales"), ("mlp", 1, "mclmc", "recorded"),
    ("mlp", 1, "mclmc", "recorded, learned scales"), ("resnet20", 1, "sghmc", "recorded"),
]  # fmt: skip


class Counts:
    """Kernels, bytes and multiplications of the operations of a device.

    ``copies`` are those from and to the CPU, and ``copied`` their bytes. ``most`` are the most
    bytes that tensors of the device held at once, also while nothing else is counted.
    """

    def __init__(self, call):
        self._call, self.on = call, False
        self.kernels = self.bytes = self.flops = self.copies = self.copied = 0
        self._held, self._users, self.most = 0, Counter(), 0

    def __call__(self, function, args, kwargs):
        result = self._call(function, args, kwargs)
        there = [leaf for leaf in tree_leaves((args, kwargs)) if hasattr(leaf, "here")]
        made = [leaf for leaf in tree_leaves(result) if hasattr(leaf, "here")]
        for tensor in made:
            self._hold(tensor)
        name = function.overloadpacket
        if not self.on or not (there or made) or _moves_nothing(function):
            return result
        # what goes between the devices
        if name in COPIES and len({hasattr(each, "here") for each in (args[:2][-1], result)}) == 2:
            self.copies += 1
            self.copied += sum(map(_size, there or made))
            return result
        self._add(name, there, made)
        self._multiply(name, *tree_map(_plain, (args, kwargs, result)))
        return result

    def _hold(self, tensor):
        """Count the memory behind a tensor while it, or another one of the same, is there."""
        memory = tensor.here.untyped_storage()
        place, size = memory.data_ptr(), memory.nbytes()
        if self._users[place] == 0:
            self._held += size
            self.most = max(self.most, self._held)
        self._users[place] += 1
        weakref.finalize(tensor, self._let_go, place, size)

    def _let_go(self, place, size):
        self._users[place] -= 1
        if self._users[place] == 0:
            self._held -= size

    def _add(self, name, there, made):
        self.kernels += 1
        written = sum(map(_size, made))
        if name in GATHERS:
            there = [*there[1:], *made]
        elif name in WRITES:
            there = there[1:]
        self.bytes += written + sum(map(_size, there))

    def _multiply(self, name, args, kwargs, result):
        if name in flop_registry:
            self.flops += flop_registry[name](*args, **kwargs, out_val=result)


def _plain(leaf):
    return getattr(leaf, "here", leaf)


def _moves_nothing(function):
    """Whether an operation only looks at numbers in another way, or makes none."""
    views = [r.alias_info is not None and not r.alias_info.is_write
             for r in function._schema.returns]  # fmt: skip
    return any(views) or function.overloadpacket in EMPTY


def _size(tensor):
    """Bytes of the different numbers of a tensor."""
    here = tensor.here
    sides = [n for n, stride in zip(here.shape, here.stride(), strict=True) if stride or n == 0]
    return here.element_size() * torch.Size(sides).numel()


class OneLaunch:
    """Stands in for Triton's kernels: one launch makes all numbers, here zeros."""

    @staticmethod
    def fill_normal(out, keys, begin):
        out.zero_()

    @staticmethod
    def fill_words(out, keys, begin, kind):
        out.zero_()


@contextlib.contextmanager
def counted():
    """A stand-in for a GPU that records; gives its name and its :class:`Counts`."""
    import pytest

    sys.path.insert(0, str(TESTS))
    import _stand_in_device as device

    def record(compute):
        compute()
        results = compute()

        def replay():
            for result, again in zip(results, compute(), strict=True):
                if again is not result:
                    result.copy_(again)

        return results, replay

    def places(tensors):
        return [(_plain(tensor).data_ptr(), tensor.shape) for tensor in tensors]

    with pytest.MonkeyPatch.context() as patch, device.stand_in(patch):
        counts = Counts(device.call)
        patch.setattr(device, "call", counts)
        patch.setattr(cuda_graphs, "DEVICES", (device.NAME,))
        patch.setattr(cuda_graphs, "record", record)
        patch.setattr(cuda_graphs, "places", places)
        patch.setattr(counters, "_kernels", lambda _: OneLaunch)
        yield device.NAME, counts


def loop(chains, n):
    """Seconds of each of n steps of the loop of a fit, all of which are replays."""
    eta, first, found = chains.cursor.last_eta, chains.plan.n_steps, []
    for i in range(n):
        start = time.perf_counter()
        chains._set_scale(eta, 1.0)
        chains._set_progress(first + i)
        chains._recorder()
        chains._finish(first + i, False)
        found.append(time.perf_counter() - start)
    return found


def rows_like(workload, n_rows=1000):
    """Rows and labels of the workload's shapes: counts do not depend on the numbers."""
    x = np.random.default_rng(0).random((n_rows, math.prod(workload.input_shape)), np.float32)
    return x.reshape(n_rows, *workload.input_shape), np.arange(n_rows) % N_CLASSES[workload.name]


def numbers(workload, chains, way, sampler):
    """Kernels, bytes and operations of a recorded step, and microseconds of the host around it."""
    settings, context = WAYS[way]
    own = {"integrator": "euler"} if sampler in EULER else {}
    X, y = rows_like(workload)
    with counted() as (device, counts), context():
        given = {"sampler": sampler, "compiled": True} | own | settings
        run = Ours(workload, X, y, chains, device, **given)
        run(4)
        recorder = run.chains._recorder
        assert recorder._replay is not None
        model = run.chains.target.model
        # latent variables that are drawn in some of the steps only
        n = 1 if model.after_step is None else model.after_every
        counts.on = True
        loop(run.chains, n)
        counts.on = False
        recorder._replay = lambda: None
        host = statistics.median(loop(run.chains, HOST_STEPS))
    return {
        "kernels": counts.kernels / n,
        "megabytes": 1e-6 * counts.bytes / n,
        "gflop": 1e-9 * counts.flops / n,
        "host_us": 1e6 * host,
        "gib": counts.most / 2**30,
        "n_parameters": run.n_parameters,
    }


def predictions(workload, n_rows, n_draws):
    """The same of ``predict_proba``, and its copies between the devices."""
    X, y = rows_like(workload, max(n_rows, 1000))
    with counted() as (device, counts), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # chains of a few steps
        model = workload.estimator(
            standardize=False, prior_scale=1.0, sampler="sgld", step_size=1e-4, n_chains=1,
            n_draws=n_draws, burn_in=0, thinning=1, dtype="float32", device=device,
            init="random", random_state=0, compiled=False,
        ).fit(X[:1000], y[:1000])  # fmt: skip
        counts.on = True
        model.predict_proba(X[-n_rows:])
    return {
        "kernels": counts.kernels,
        "megabytes": 1e-6 * counts.bytes,
        "gflop": 1e-9 * counts.flops,
        "copies": counts.copies,
        "copied_megabytes": 1e-6 * counts.copied,
    }
