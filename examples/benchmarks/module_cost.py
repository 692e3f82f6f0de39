"""What modules cost: a step of a part, memory of a frozen network, rows that stay on disk.

python examples/benchmarks/module_cost.py

Each time is compared with that of a loop in plain torch in the same process, in turns. Memory is
the resident memory of the process.
"""

import copy
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from _common import markdown_table, parse_args, write_results
from torch import nn
from torch.utils.data import DataLoader, Dataset

from skbayes_sgmcmc import BayesianModuleClassifier
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.models.likelihoods.base import Categorical
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.models.networks.module import ModuleNetwork
from skbayes_sgmcmc.priors import Normal

WIDTH, BATCH, RUN = 32, 100, {"n_chains": 1, "n_draws": 2, "thinning": 1, "random_state": 0}
BODY = """{table}

Step of a part: gradient of the last two layers of a convolutional network (16 and 32 channels, 64
hidden units, {batch} images of 28 x 28), relative to torch's own gradient of the same part, in
{turns} turns of one gradient each, whose order alternates. Memory: what `fit` adds at most to the
resident memory of a process with a network of {frozen:,} frozen parameters and a head of {head:,},
of {n_images:,} rows. Rows on disk: steps of pSGLD on a perceptron ({width} inputs, 64 hidden
units) with minibatches of {batch} of {n_rows:,} rows in a file, which a Dataset reads one by one,
relative to a loop of torch's SGD over a DataLoader of the same rows, in {fits} turns; and what
resident memory grows in a fit of {steps:,} steps. Ratios are those of processor time within a turn:
the median of the turns, and in brackets their quartiles, which show what other work on the machine
does to them.
"""


class FileRows(Dataset):
    """Rows of a file, read when they are asked for."""

    def __init__(self, path, n_rows):
        self.file, self.n_rows = os.open(path, os.O_RDONLY), n_rows

    def __len__(self):
        return self.n_rows

    def __getitem__(self, index):
        size = 4 * (WIDTH + 1)
        row = np.frombuffer(os.pread(self.file, size, index * size), np.float32)
        return row[:WIDTH].copy(), int(row[WIDTH])


def resident():
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def in_turns(functions, turns):
    """Ratios of the times of two functions, one for each turn; their order alternates."""
    seconds = np.empty((turns, 2))
    for turn in range(turns):
        for which in (0, 1) if turn % 2 else (1, 0):
            started = time.process_time()
            functions[which]()
            seconds[turn, which] = time.process_time() - started
    return seconds[:, 0] / seconds[:, 1]


def shown(ratios):
    """The median, and the quartiles."""
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def step_ratios(turns):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10),
    ).eval()  # fmt: skip
    names = [f"{layer}.{kind}" for layer in (5, 7) for kind in ("weight", "bias")]
    network = ModuleNetwork(net, sampled=names, start="module")
    model = NetworkModel(network, Categorical(), Normal(), 1.0)
    theta = torch.from_numpy(model.init(np.random.default_rng(0))).float()[None]
    out, x = torch.zeros_like(theta), torch.randn(BATCH, 1, 28, 28)
    y = torch.randint(0, 10, (BATCH,))
    batch = Batch({"x": x, "y": y}, 1.0, True, BATCH)
    bare = copy.deepcopy(net).requires_grad_(False)
    part = [bare.get_parameter(name).requires_grad_() for name in names]

    def ours():
        model.likelihood_gradient(theta, batch, {}, None, out=out, scale=1.0)

    def plain():
        loss = nn.functional.cross_entropy(bare(x), y, reduction="sum")
        torch.autograd.grad(loss, part)

    for _ in range(5):
        ours(), plain()
    return in_turns((ours, plain), turns)


def frozen_memory(width, n_rows):
    """MB that a fit of the last layer adds at most, and the numbers of parameters."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 1000)).astype(np.float32)
    y = np.arange(n_rows) % 10
    small = nn.Sequential(nn.Linear(1000, 8), nn.Linear(8, 10))
    last = {"sample_parameters": "last_layer", "random_state": 0, "n_draws": 50}
    BayesianModuleClassifier(small, **last).fit(X[:200], y[:200])  # whatever is imported or cached
    net = nn.Sequential(
        nn.Linear(1000, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip
    before, seen = resident(), []
    done = threading.Event()

    def watch():
        while not done.wait(0.02):
            seen.append(resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        BayesianModuleClassifier(net, **last).fit(X, y)
    finally:
        done.set()
        watcher.join()
    head = sum(p.numel() for p in net[-1].parameters())
    return max(seen) - before, sum(p.numel() for p in net.parameters()) - head, head


def rows_on_disk(n_rows, steps, turns):
    """Throughputs relative to a loop in torch, and MB that memory grows during the steps."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.bin"
        y = rng.integers(0, 2, n_rows)
        with path.open("wb") as file:
            for part in np.array_split(y, max(1, n_rows // 10_000)):
                rows = rng.standard_normal((len(part), WIDTH)) + part[:, None]
                file.write(np.hstack([rows, part[:, None]]).astype(np.float32).tobytes())
        dataset = FileRows(path, n_rows)
        net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 2))

        def ours(burn_in):
            clf = BayesianModuleClassifier(
                net, batch_size=BATCH, step_size=1e-3, burn_in=burn_in, dtype="float32", **RUN
            )
            started = time.process_time()
            clf.fit(dataset, y)
            return time.process_time() - started

        def plain():
            loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
            module = copy.deepcopy(net)
            sgd = torch.optim.SGD(module.parameters(), lr=1e-3)
            started = time.process_time()
            for _, (x, codes) in zip(range(steps), loader, strict=False):
                sgd.zero_grad()
                nn.functional.cross_entropy(module(x), codes).backward()
                sgd.step()
            return time.process_time() - started

        ours(10), plain()
        ratios = []
        for _ in range(turns):
            short, long = ours(10), ours(10 + steps)  # less what every fit begins with
            ratios.append(plain() / (long - short))
        before = resident()
        ours(10 + 2 * steps)
        return ratios, resident() - before


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1)
    turns, width, n_images = (4, 100, 200) if args.short else (400, 4_200, 2_000)
    n_rows, steps, fits = (2_000, 20, 2) if args.short else (1_000_000, 1_000, 9)
    ratios = step_ratios(turns)
    added, frozen, head = frozen_memory(width, n_images)
    throughputs, growth = rows_on_disk(n_rows, steps, fits)
    table = markdown_table(
        ["what", "measured", "target"],
        [
            ["step of a part, over torch's gradient", shown(ratios), "1.10"],
            ["memory beyond a frozen network, MB", f"{added:.0f}", "400"],
            ["throughput of rows on disk, over a DataLoader loop", shown(throughputs), "0.80"],
            ["growth of memory with the steps, MB", f"{growth:.1f}", "flat"],
        ],
    )
    body = BODY.format(
        table=table, batch=BATCH, turns=turns, frozen=frozen, head=head, n_images=n_images,
        width=WIDTH, n_rows=n_rows, steps=2 * steps, fits=fits,
    )  # fmt: skip
    write_results(args, "module_cost", "What modules cost", body)


if __name__ == "__main__":
    main()
