"""Steps of networks and of logistic regression on a GPU: bare torch, ours, and jax.

A :class:`Workload` is a model with its data; ``bare`` and ``ours`` return a function that takes n
steps. Rehearsals on a CPU take the same ways, with a stand-in for what only CUDA has.
"""

import contextlib
import functools
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _chains import KeptChains
from _common import load_a9a, load_cifar10, load_mnist
from _images import cnn_module
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils.flop_counter import FlopCounterMode

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianModuleClassifier,
)
from skbayes_sgmcmc._engine.accelerators import cuda_graphs
from skbayes_sgmcmc._limits import LIMITS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resnet import ResNet20

RATE = 1e-4
REPEATS = 3


@functools.cache
def loaded(load):
    """The data of ``load()``, which several workloads share."""
    return load()


@dataclass
class Workload:
    """A model, its data, and how many chains of it are timed.

    ``module()`` makes the network for torch's own loop; ``estimator(**settings)`` is ours.
    """

    name: str
    load: Callable[[], Any]
    module: Callable[[], nn.Module]
    estimator: Callable[..., Any]
    batch: int
    chains: tuple[int, ...]
    input_shape: tuple[int, ...]
    sizes: tuple[int, ...] | None = None  # of a perceptron, for jax
    options: dict[str, Any] = field(default_factory=dict)

    def data(self, small):
        """Rows (n, *input_shape) in float32, and labels; few of them in a rehearsal."""
        X, y = loaded(self.load)
        few = slice(1000 if small else 50_000)
        return X[few].astype(np.float32).reshape(-1, *self.input_shape), y[few]


def mlp_module(sizes):
    layers = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def mnist():
    return load_mnist()[:2]


def cifar10():
    return load_cifar10()[:2]


def dense_a9a():
    X, y, _, _ = load_a9a()
    return X.toarray(), y


def workloads(small):
    """All workloads by name; a rehearsal's networks are narrow."""
    hidden = (20, 20) if small else (400, 400)
    conv, top, width = ((2, 4), (10, 10), 4) if small else ((32, 64), (200, 200), 16)
    sizes = (784, *hidden, 10)
    many = (1, 2) if small else (1, 4, 32, 256)
    found = [
        Workload("mlp", mnist, lambda: mlp_module(sizes),
                 lambda **s: BayesianMLPClassifier(hidden_layer_sizes=hidden, **s), 100, many,
                 (784,), sizes),
        Workload("cnn", mnist, lambda: cnn_module((1, 28, 28), conv)(top, 0.0),
                 lambda **s: BayesianCNNClassifier(conv_channels=conv, kernel_size=5,
                     image_shape=(1, 28, 28), hidden_layer_sizes=top, **s), 100, many[:3],
                 (784,), options={"step_size": 1e-3, "temperature": 1.0 / 50_000}),  # of P5
        Workload("resnet20", cifar10, lambda: ResNet20(10, width=width),
                 lambda **s: BayesianModuleClassifier(partial(ResNet20, width=width),
                     input_shape=(3, 32, 32), **s), 20 if small else 128, (1, 2) if small else
                 (1, 4), (3, 32, 32)),
        Workload("module", mnist, lambda: mlp_module(sizes),
                 lambda **s: BayesianModuleClassifier(lambda n_outputs: mlp_module(sizes), **s),
                 100, many[:3], (784,)),
        Workload("logistic", dense_a9a, lambda: nn.Linear(123, 1),
                 lambda **s: BayesianLogisticRegression(
                     prior_scale=1.0, preconditioner=None, **s),
                 300, (1, 2) if small else (1, 32, 1024), (123,), (123, 2)),
    ]  # fmt: skip
    return {workload.name: workload for workload in found}


# time ---------------------------------------------------------------------------------------------


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def step_time(run, n, device, repeats=REPEATS):
    """Seconds of a step: the smallest of the repeats, after a warm-up of a tenth."""
    run(max(2, n // 10))
    found = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        run(n)
        wait(device)
        found.append((time.perf_counter() - start) / n)
    return min(found)


def launches(run, n, device):
    """What is launched in a step: calls of the CUDA runtime, or of torch's operations on a CPU."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    run(2)
    wait(device)
    with profile(activities=activities) as seen:
        run(n)
        wait(device)
    counts = {event.key: event.count / n for event in seen.key_averages()}
    if device == "cuda":
        return {name: count for name, count in counts.items() if name.startswith("cuda")}
    return {"operations": sum(v for name, v in counts.items() if name.startswith("aten::"))}


# bare torch ---------------------------------------------------------------------------------------


def loss_of(f, y):
    if f.shape[-1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(f[..., 0], y.to(f))
    return nn.functional.cross_entropy(f, y)


class Bare:
    """Torch's own SGD of one network, or of several together by vmap, on rows of the device.

    ``way`` is "eager", "graph" (the step as a CUDA graph) or "compile" (torch.compile).
    """

    def __init__(self, workload, X, y, chains, device, way="eager"):
        torch.manual_seed(0)
        self.n, self.device, self.batch = len(X), device, workload.batch
        self.x, self.y = torch.from_numpy(X).to(device), torch.from_numpy(y).to(device)
        nets = [workload.module().to(device) for _ in range(chains)]
        shape = (workload.batch,) if chains == 1 else (chains, workload.batch)
        # the rows of a step, gathered before it, so that a graph has no indices
        first = torch.zeros(shape, dtype=torch.int64, device=device)
        self.rows, self.labels = self.x[first], self.y[first]
        self.step = self._one(nets[0]) if chains == 1 else self._several(nets)
        if way == "compile":
            options = {"mode": "reduce-overhead"} if device == "cuda" else {"backend": "eager"}
            self.step = torch.compile(self.step, **options)
        elif way == "graph":
            self.step = recorded(self.step, device)

    def _one(self, net):
        parameters = list(net.parameters())

        def step():
            loss = loss_of(net(self.rows), self.labels)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-RATE)

        return step

    def _several(self, nets):
        parameters, buffers = stack_module_state(nets)
        parameters = {name: values.detach() for name, values in parameters.items()}
        net = nets[0]

        def loss(parameters, buffers, x, y):
            return loss_of(functional_call(net, (parameters, buffers), (x,)), y)

        gradient = vmap(grad(loss))

        def step():
            found = gradient(parameters, buffers, self.rows, self.labels)
            with torch.no_grad():
                torch._foreach_add_(list(parameters.values()), list(found.values()), alpha=-RATE)

        return step

    def __call__(self, n):
        for chosen in torch.randint(self.n, (n, *self.labels.shape), device=self.device):
            self.rows.copy_(self.x[chosen])
            self.labels.copy_(self.y[chosen])
            self.step()


def recorded(compute, device):
    """A function that computes again what was recorded as a CUDA graph; on a CPU, itself."""
    if device != "cuda":
        return compute
    return cuda_graphs.record(compute)[1]


def flops(workload, X, y, device):
    """Floating-point operations of a step of one chain, as torch counts those of bare SGD."""
    bare = Bare(workload, X, y, 1, device)
    with FlopCounterMode(display=False) as counter:
        bare(1)
    return counter.get_total_flops()


# ours ---------------------------------------------------------------------------------------------


class Ours(KeptChains):
    """The loop of a fit, kept after a few steps to go on from there."""

    def __init__(self, workload, X, y, chains, device, sampler="sgld", **settings):
        settings = {
            "sampler": sampler, "step_size": RATE, "batch_size": workload.batch,
            "n_chains": chains, "n_draws": 1, "burn_in": 2, "thinning": 2, "init": "random",
            "prior_scale": 1.0, "dtype": "float32", "device": device, "compiled": False,
            "random_state": 0, "standardize": False, **workload.options, **settings,
        }  # fmt: skip
        estimator = workload.estimator()
        settings = {k: v for k, v in settings.items() if k in estimator.get_params(deep=False)}
        super().__init__(estimator.set_params(**settings), X.reshape(len(X), -1), y)

    def __call__(self, n):
        length = self.chains._chunk_length()
        for start in range(0, n, length):
            self.take(min(length, n - start))

    def check(self):
        """Refuse times of chains that have diverged."""
        if not bool(torch.isfinite(self.chains.phi).all()):
            raise ValueError("the chains have diverged")


#: how often a step of SGLD touches each number at the least: weights are read forward and backward,
#: the gradient, the noise and the position are written and read
TOUCHES = 8


def ours_numbers(workload, small, chains, device, steps, **settings):
    """Time of a step, what it launches, and what of the card it uses."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    X, y = workload.data(small)
    run = Ours(workload, X, y, chains, device, **settings)
    seconds = step_time(run, steps, device)
    run.check()
    work = flops(workload, X, y, device) * chains
    traffic = 4 * TOUCHES * run.n_parameters * chains
    return {
        "ms": 1e3 * seconds,
        # a chunk, whose first step is not recorded
        "launches": launches(
            run, min(steps, LIMITS.device_steps if settings["compiled"] else 20), device
        ),
        "tflops": 1e-12 * work / seconds,
        "least_gb_per_s": 1e-9 * traffic / seconds,
        "n_parameters": run.n_parameters,
        "gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0,
    }


@contextlib.contextmanager
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def fused():
    """Updates that torch compiles, however short a run is."""
    before, LIMITS.worth_fusing = LIMITS.worth_fusing, 0
    try:
        yield
    finally:
        LIMITS.worth_fusing = before


def fixed_convolutions():
    """Convolutions whose sums do not depend on the order of arrival of threads."""
    return torch.backends.cudnn.flags(enabled=True, deterministic=True)


#: what a way of steps needs beside ``compiled=True``: settings, and a context
WAYS = {
    "eager": ({"compiled": False}, contextlib.nullcontext),
    "recorded": ({}, contextlib.nullcontext),
    "recorded, TF32": ({}, tf32),
    "recorded, bfloat16": ({"precision": "bfloat16"}, contextlib.nullcontext),
    "recorded, fused": ({}, fused),
    "recorded, learned scales": ({"prior_scale": "learned"}, contextlib.nullcontext),
    "recorded, fixed convolutions": ({}, fixed_convolutions),
}
#: of P4 and P5 in every sampler's table
EULER = ("sgld", "psgld", "sghmc")


def way_numbers(workload, small, chains, device, steps, way, sampler):
    """The same for a way of :data:`WAYS`; a CPU records nothing."""
    settings, context = WAYS[way]
    compiled = {"compiled": device == "cuda"}
    if sampler in EULER:
        compiled["integrator"] = "euler"
    with context():
        return ours_numbers(
            workload, small, chains, device, steps, sampler=sampler, **compiled | settings
        )


def bare_numbers(workload, small, chains, device, steps, way):
    X, y = workload.data(small)
    run = Bare(workload, X, y, chains, device, way)
    seconds = step_time(run, steps, device)
    found = {"ms": 1e3 * seconds}
    if way == "eager":
        found["launches"] = launches(run, min(steps, 20), device)
    return found


# the card -----------------------------------------------------------------------------------------


def card(device, small):
    """Copies in GB/s, read and written, and products in TFLOP/s: what steps are compared with."""
    n, side, count = (2**20, 128, 3) if small else (2**29, 8192, 10)
    source = torch.randn(n, device=device)
    target = torch.empty_like(source)
    copy = step_time(lambda k: [target.copy_(source) for _ in range(k)], count, device)
    found = {"copy_gb_per_s": 8e-9 * n / copy}
    for name, dtype, precision in (
        ("float32", torch.float32, "highest"),
        ("tf32", torch.float32, "high"),
        ("bfloat16", torch.bfloat16, "highest"),
    ):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        a = torch.randn(side, side, device=device, dtype=dtype)
        seconds = step_time(lambda k, a=a: [a @ a for _ in range(k)], count, device)
        torch.set_float32_matmul_precision(before)
        found[f"{name}_tflops"] = 2e-12 * side**3 / seconds
    return found
