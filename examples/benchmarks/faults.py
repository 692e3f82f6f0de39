"""What fits survive: kill -9, damaged checkpoints, hundreds of fits in a process, threads.

    python examples/benchmarks/faults.py

Kills and fits in child processes need a system with fork, and memory is read from /proc (Linux).
"""

import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import joblib
import numpy as np
import torch
from _common import markdown_table, parse_args, write_results
from _records import commit

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    CheckpointError,
    LatentDirichletAllocation,
    SparseBayesianRegressor,
)
from skbayes_sgmcmc._limits import LIMITS

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 16))
Y = (X[:, 0] - X[:, 1] + 0.3 * RNG.standard_normal(120) > 0).astype(int)
COUNTS = RNG.poisson(1.0, (40, 16))

#: name -> a fit of a second or so, in tens of chunks
FITS = {
    "logistic": lambda **more: BayesianLogisticRegression(
        sampler="sghmc", integrator="baoab", step_size=0.1, batch_size=20, burn_in=15_000,
        n_draws=3000, thinning=5, n_chains=2, random_state=0, **more
    ).fit(X, Y),
    "perceptron": lambda **more: BayesianMLPClassifier(
        hidden_layer_sizes=8, step_size=0.01, batch_size=20, burn_in=2000, n_draws=100,
        thinning=20, n_chains=2, random_state=0, **more
    ).fit(X, Y),
    "sparse": lambda **more: SparseBayesianRegressor(
        step_size=0.001, burn_in=2000, n_draws=100, thinning=20, n_chains=2, random_state=0, **more
    ).fit(X, X[:, 0]),
    "sources": lambda **more: BayesianICA(
        burn_in=2000, n_draws=100, thinning=20, n_chains=2, random_state=0, **more
    ).fit(X[:, :4]),
    "topics": lambda **more: LatentDirichletAllocation(
        n_components=3, burn_in=400, n_draws=50, thinning=5, n_chains=2, random_state=0, **more
    ).fit(COUNTS),
}  # fmt: skip
#: keyword arguments of short fits, for many of them
SHORT = {"burn_in": 20, "n_draws": 10, "thinning": 1, "n_chains": 2}


def drawn(estimator):
    """Copies of all draws."""
    return {name: np.array(values) for name, values in estimator.posterior_.draws.items()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# kill -9 ------------------------------------------------------------------------------------------


def child_of(fit, path):
    """The number of a process that makes this fit, and ends."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        fit(checkpoint=path)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def killed(fit, path, delay):
    """Whether a child was still at work on this fit after ``delay`` seconds, and was killed."""
    child = child_of(fit, path)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"A fit of {path} failed, status {status}.")
    return status != 0


def kill_fits(n_kills, folder):
    """Kill each fit at random moments, several times, and let it end; a table of what came."""
    rng, rows = np.random.default_rng(0), []
    for name, fit in FITS.items():
        began = time.perf_counter()
        expected = drawn(fit(checkpoint=str(folder / f"{name}-whole.npz")))
        seconds = time.perf_counter() - began
        kills = resumed = runs = equal = 0
        while kills < n_kills:
            path = folder / f"{name}-{runs}.npz"
            for _ in range(rng.integers(1, 4)):
                if kills == n_kills or not killed(fit, str(path), rng.uniform(0.0, seconds)):
                    break
                kills, resumed = kills + 1, resumed + path.exists()
            runs += 1
            equal += same(drawn(fit(checkpoint=str(path))), expected)
        rows.append([name, f"{seconds:.1f}", kills, resumed, f"{equal} of {runs}"])
    header = ["fit", "seconds", "kills", "with a checkpoint", "fits that ended with the same bits"]
    return rows, markdown_table(header, rows)


# damaged files ------------------------------------------------------------------------------------


def flip(data, rng):
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)


def overwrite(data, rng):
    start, length = rng.integers(len(data)), rng.integers(1, 200)
    data[start : start + length] = rng.bytes(len(data[start : start + length]))


def zeros(data, rng):
    start = rng.integers(len(data))
    data[start : start + 512] = bytes(len(data[start : start + 512]))


def truncate(data, rng):
    del data[rng.integers(len(data)) :]


def lose(data, rng):
    start = rng.integers(len(data))
    del data[start : start + rng.integers(1, 100)]


def insert(data, rng):
    at = rng.integers(len(data))
    data[at:at] = rng.bytes(rng.integers(1, 100))


def records(data, rng):
    """A bit of the archive's own records, which have no checksums."""
    starts = [data.find(mark) for mark in (b"PK\x01\x02", b"PK\x05\x06", b"PK\x03\x04")]
    data[min(starts[rng.integers(3)] + rng.integers(46), len(data) - 1)] ^= 1 << rng.integers(8)


def rewritten(data, change):
    """Write the archive anew, valid, with its arrays changed."""
    with np.load(io.BytesIO(bytes(data))) as file:
        arrays = dict(file)
    change(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    data[:] = buffer.getvalue()


def number(data, rng):
    """One number of one array is another, in an archive that is valid."""

    def change(arrays):
        names = [name for name, values in arrays.items() if values.dtype.kind in "fiub"]
        name = names[rng.integers(len(names))]
        values = arrays[name].copy()
        if values.size:
            values.flat[rng.integers(values.size)] += 1
        else:
            values = np.ones(1)
        arrays[name] = values

    rewritten(data, change)


def shape(data, rng):
    def change(arrays):
        name = list(arrays)[rng.integers(len(arrays))]
        values = arrays[name]
        choices = [values[None], values.ravel()[:-1], values.astype("U9"), np.array("?")]
        arrays[name] = choices[rng.integers(4)]

    rewritten(data, change)


def missing(data, rng):
    rewritten(data, lambda arrays: arrays.pop(list(arrays)[rng.integers(len(arrays))]))


def members(data, rng):
    """The archive without compression, its files in another order: nothing that matters."""
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as file:
        parts = [(name, file.read(name)) for name in file.namelist()]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for k in rng.permutation(len(parts)):
            file.writestr(*parts[k])
    data[:] = buffer.getvalue()


WAYS = [flip, overwrite, zeros, truncate, lose, insert, records, number, shape, missing, members]


def outcome(fit, path, data, expected):
    """What came of a fit with a file of these bytes."""
    path.write_bytes(data)
    try:
        found = drawn(fit(checkpoint=str(path)))
    except CheckpointError:
        return "refused" if path.read_bytes() == data else "changed"
    except Exception as error:
        print(f"{path.name}: {error!r}", file=sys.stderr)
        return "escaped"
    return "harmless" if same(found, expected) else "wrong"


def damage_files(n_files, folder):
    """Damage files of fits that were killed; a table of the outcomes by the way of damage."""
    rng, counts = np.random.default_rng(0), {way.__name__: Counter() for way in WAYS}
    originals = []
    for name in ("logistic", "perceptron", "topics"):
        path = folder / f"{name}-original.npz"
        expected = drawn(FITS[name]())
        child = child_of(FITS[name], str(path))
        while not path.exists() and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        originals.append((FITS[name], path.read_bytes(), expected))
    for k in range(n_files):
        (fit, original, expected), way = originals[k % 3], WAYS[k % len(WAYS)]
        data = bytearray(original)
        while data == original:
            way(data, rng)
        counts[way.__name__][outcome(fit, folder / f"damaged-{k}.npz", bytes(data), expected)] += 1
    header = ["damage", "refused", "harmless", "changed", "escaped", "wrong"]
    rows = [[name, *(count[word] for word in header[1:])] for name, count in counts.items()]
    rows.append(["all", *(sum(row[k] for row in rows) for k in range(1, len(header)))])
    return dict(zip(header, rows[-1], strict=True)), markdown_table(header, rows)


# many fits in one process -------------------------------------------------------------------------


def resident():
    """Resident memory, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def many_fits(n_fits, folder):
    """Growth of memory and of open files from the first quarter of the fits to their end."""
    kinds = [
        lambda seed: BayesianLogisticRegression(random_state=seed, **SHORT).fit(X, Y).predict(X),
        lambda seed: BayesianLogisticRegression(
            random_state=seed, checkpoint=str(folder / f"fit-{seed % 5}-{seed}.npz"), **SHORT
        ).fit(X, Y),
        lambda seed: BayesianMLPClassifier(random_state=seed, **SHORT).fit(X, Y).predict(X),
        lambda seed: BayesianCNNClassifier(
            image_shape=(1, 4, 4),
            conv_channels=4,
            hidden_layer_sizes=(),
            random_state=seed,
            **SHORT,
        ).fit(X, Y),
        lambda seed: SparseBayesianRegressor(random_state=seed, **SHORT).fit(X, X[:, 0]),
        lambda seed: BayesianICA(random_state=seed, **SHORT).fit(X[:, :4]).transform(X[:, :4]),
        lambda seed: LatentDirichletAllocation(n_components=3, random_state=seed, **SHORT).fit(
            COUNTS
        ),
        lambda seed: BayesianMLPClassifier(random_state=seed, n_jobs=2, **SHORT).fit(X, Y),
    ]
    seen = []
    with joblib.parallel_config("threading"):
        for seed in range(n_fits):
            kinds[seed % len(kinds)](seed)
            seen.append((resident(), descriptors()))
    (memory, files), quarter = np.array(seen).T, n_fits // 4
    half = len(memory) // 2
    rows = [
        ["resident memory, MB", *(f"{memory[k]:.1f}" for k in (0, quarter, half, -1))],
        ["open files", *(int(files[k]) for k in (0, quarter, half, -1))],
    ]
    header = ["after", "1 fit", f"{quarter + 1}", f"{half + 1}", f"{n_fits} fits"]
    numbers = {"memory": memory[-1] - memory[quarter], "files": int(files[-1] - files[quarter])}
    return numbers, markdown_table(header, rows)


# threads ------------------------------------------------------------------------------------------


def fits_in_threads(n_fits):
    """Fits of a CNN with a chain in each of four threads, of which so many differ from processes'.

    Threads change places every microsecond.
    """
    model = BayesianCNNClassifier(
        conv_channels=(3, 4), hidden_layer_sizes=5, step_size=1e-3, image_shape=(1, 4, 4),
        burn_in=60, n_draws=60, thinning=1, n_chains=4, n_jobs=4, random_state=0,
    )  # fmt: skip
    expected = drawn(model.fit(X, Y))
    interval, differ = sys.getswitchinterval(), 0
    sys.setswitchinterval(1e-6)
    try:
        with joblib.parallel_config("threading"):
            for _ in range(n_fits):
                differ += not same(drawn(model.fit(X, Y)), expected)
    finally:
        sys.setswitchinterval(interval)
    return differ


def main():
    numbers = {"kills": (10, 1), "files": (550, 22), "fits": (400, 16), "repeats": (80, 2)}
    args = parse_args(__doc__, 1, 1, numbers=numbers)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a process that is forked after torch used more of them hangs
    LIMITS.write_seconds, LIMITS.write_share = 0.0, 1e9  # write after every chunk
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        growth, table_of_fits = many_fits(args.fits, folder)
        rows, table_of_kills = kill_fits(args.kills, folder)
        files, table_of_files = damage_files(args.files, folder)
    differ = fits_in_threads(args.repeats)
    n_kills = sum(row[2] for row in rows)
    body = f"""
Commit {commit()}.

## Kill -9

{n_kills} kills of child processes at random moments of a checkpointed fit, up to three for each
fit, which then continues from its file to its end. Files are written after every chunk of steps, so
that many kills come while a file is being written. "With a checkpoint": there was a file to go on
from.

{table_of_kills}

## Damaged checkpoints

{args.files} files of three fits that were killed, each damaged in one way. The last four are valid
archives: with another number in an array, an array of another shape or type, an array missing, and
the same contents in another order.

- refused: a CheckpointError, and the file is left as it was;
- harmless: the fit ends with the right bits, because the damage concerns nothing that is read, such
  as the dates in an archive;
- changed: refused, but the file is not as it was;
- escaped: another error;
- wrong: other draws.

{table_of_files}

## Many fits in one process

{args.fits} short fits of eight kinds in turn, some with checkpoints, some with chains in threads.
From the first quarter on memory grew by {growth["memory"]:.1f} MB, and open files by
{growth["files"]}.

{table_of_fits}

## Chains in threads

{args.repeats} fits of a convolutional network, its four chains in four threads that change places
every microsecond: {differ} differ from the fit with a process for each chain.
"""
    write_results(args, "faults", "Faults", body, spread="Seed 0.")
    if files["changed"] or files["escaped"] or files["wrong"] or differ:
        raise SystemExit("A promise was broken: see the tables.")
    if any(row[-1].split()[0] != row[-1].split()[-1] for row in rows):
        raise SystemExit("A fit did not end with the same bits: see the table.")


if __name__ == "__main__":
    main()
