"""Other ways to take the same steps on a GPU, to see which one is to become the package's own.

Each way is a switch of :data:`WAYS`; all of them are timed on the same chains in one call. "steps"
and "chunk" record whole steps as a CUDA graph: the rows that are gathered, the noise, which comes
from one generator of torch that graphs know (its numbers go on from replay to replay), and the
sampler's update.
"""

import contextlib

import torch
from _gpu_steps import Ours, launches, recorded, step_time

from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc._engine.accelerators import cuda_graphs
from skbayes_sgmcmc._limits import LIMITS

#: steps of one graph in the way "chunk"
CHUNK = 20


class RecordedSteps:
    """Whole steps of :class:`Ours` as a graph of ``per_graph`` steps.

    The step size and the temperature are constants of the recording, and so are the addresses of
    the sampler's state, which no step replaces.
    """

    def __init__(self, ours, device, per_graph):
        self.chains, self.device, self.per_graph = ours.chains, device, per_graph
        chains = self.chains
        self.n_rows, self.size = chains.minibatches.data.n_rows, chains.minibatches.size
        self.xi = torch.empty_like(chains.phi)
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(0)
        self.replay = self._record()

    @torch.no_grad()
    def compute(self):
        """Take the steps of one graph."""
        chains = self.chains
        step, data = chains.last_step, chains.minibatches.data
        shape = (self.per_graph, len(chains.phi), self.size)
        index = torch.randint(self.n_rows, shape, device=self.device, generator=self.generator)
        step.xi = self.xi
        for chosen in index:
            fields = {name: values[chosen] for name, values in data.fields.items()}
            chains.evaluator.batch = Batch(fields, 1.0, False, self.size)
            self.xi.normal_(generator=self.generator)
            chains.engine.integrator(chains.sampler, chains.phi, chains.state, step)
        return chains.phi

    def _record(self):
        if self.device == "cuda":
            return self._capture()
        replay = recorded(self.compute, self.device)
        replay()
        return replay

    def _capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(cuda_graphs.WARM_UP):
                self.compute()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph):
            self.compute()
        return graph.replay

    @torch.no_grad()
    def __call__(self, n):
        for _ in range(-(-n // self.per_graph)):
            self.replay()


class OneGenerator:
    """The numbers of all chains from one generator of torch, in one launch."""

    def __init__(self, ours, device):
        self.ours, generator = ours, torch.Generator(device=device)

        def normal(*shape, dtype=torch.float64):
            xi = torch.empty(len(ours.chains.phi), *shape, dtype=torch.float32, device=device)
            return xi.normal_(generator=generator).to(dtype)

        ours.chains.rng.normal = normal

    def __call__(self, n):
        self.ours(n)


@contextlib.contextmanager
def changed(**limits):
    before = {name: getattr(LIMITS, name) for name in limits}
    try:
        for name, value in limits.items():
            setattr(LIMITS, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(LIMITS, name, value)


@contextlib.contextmanager
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def plain(make, device):
    return make(), contextlib.nullcontext()


def gradient_graph(make, device):
    """What ``compiled=True`` is today; a CPU has no graphs and no other way that it means."""
    return make(compiled=device == "cuda"), contextlib.nullcontext()


def step_graph(make, device):
    return RecordedSteps(make(), device, 1), contextlib.nullcontext()


def chunk_graph(make, device):
    return RecordedSteps(make(), device, CHUNK), contextlib.nullcontext()


def chunk_graph_bfloat16(make, device):
    ours = make(precision="bfloat16")
    return RecordedSteps(ours, device, CHUNK), contextlib.nullcontext()


def chunk_graph_tf32(make, device):
    with tf32():
        return RecordedSteps(make(), device, CHUNK), tf32()


def one_generator(make, device):
    return OneGenerator(make(), device), contextlib.nullcontext()


def long_noise(make, device):
    """Noise for sixteen times as many steps at once."""
    return make(), changed(cache_numbers=16 * LIMITS.cache_numbers)


def small_gathers(make, device):
    """Rows gathered for as few steps as on a CPU."""
    return make(), changed(pool_numbers=LIMITS.cache_numbers)


def bfloat16(make, device):
    return make(precision="bfloat16"), contextlib.nullcontext()


def with_tf32(make, device):
    return make(), tf32()


def fixed_convolutions(make, device):
    """Convolutions whose sums do not depend on the order of arrival of threads."""
    return make(), torch.backends.cudnn.flags(enabled=True, deterministic=True)


def sequential(make, device):
    return make(chain_method="sequential"), contextlib.nullcontext()


#: name -> ``way(make, device)``, which returns ``run(n)`` and a context in which it is timed;
#: ``make(**settings)`` gives the chains of a fit
WAYS = {
    "plain": plain,
    "gradient graph": gradient_graph,
    "step graph": step_graph,
    "chunk graph": chunk_graph,
    "chunk graph, bfloat16": chunk_graph_bfloat16,
    "chunk graph, TF32": chunk_graph_tf32,
    "one generator": one_generator,
    "long noise": long_noise,
    "small gathers": small_gathers,
    "bfloat16": bfloat16,
    "TF32": with_tf32,
    "sequential chains": sequential,
    "fixed convolutions": fixed_convolutions,
}


def numbers(name, workload, small, chains, device, steps, sampler):
    """Time of a step in one way, and what it launches."""
    X, y = workload.data(small)

    def make(**settings):
        return Ours(workload, X, y, chains, device, sampler, **settings)

    run, context = WAYS[name](make, device)
    with context:
        seconds = step_time(run, steps, device)
        found = {"ms": 1e3 * seconds, "launches": launches(run, CHUNK, device)}
    phi = (run if isinstance(run, RecordedSteps | Ours) else run.ours).chains.phi
    if not bool(torch.isfinite(phi).all()):
        raise ValueError("the chains have diverged")
    return found
