"""Times of steps and of small fits in turns with those of another version of the package.

    SKBAYES_DATA=folder OMP_NUM_THREADS=1 python examples/benchmarks/_pairs.py OTHER

``OTHER`` is a folder with the other version, such as one that ``git worktree add`` has made. Each
version runs in a process of its own, and the two take turns, so that a busy machine slows both.
Printed are the smallest times of both, and the median of the pairs' ratios, this version to the
other. Steps are torch's operations, on all 1,202 rows of airfoil or on 64 of them.
"""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[2]
SAMPLERS = ("sgld", "psgld", "sghmc", "sgnht", "msgnht", "mclmc")
SIZES = (1202, 64)
FITS = {"logistic regression, breast_cancer": 15, "perceptron, diabetes": 5}
PAIRS, STEPS = 25, 40


def answers(root):
    """Print the seconds of what lines of the standard input ask for."""
    folders = [root, root + "/examples/benchmarks"]
    sys.path[:] = folders + [path for path in sys.path if Path(path) != Path(__file__).parent]
    warnings.simplefilter("ignore")
    from _chains import KeptChains
    from _tabular_data import load_split
    from sklearn.datasets import load_breast_cancer, load_diabetes

    from skbayes_sgmcmc import BayesianLogisticRegression, BayesianMLPRegressor

    X, y, _, _ = load_split("airfoil", 0)
    chains = None
    for line in sys.stdin:
        task, *words = line.strip().split(":")
        start = time.process_time()
        if task == "run":
            sampler, size = words
            chains = KeptChains(
                BayesianMLPRegressor(
                    sampler=sampler, n_chains=4, n_draws=4, thinning=5, burn_in=20,
                    batch_size=int(size), init="random", random_state=0, compiled=False,
                ), X, y,
            )  # fmt: skip
            chains.take(STEPS)
        elif task == "steps":
            chains.take(STEPS)
        elif words[0].startswith("logistic"):
            BayesianLogisticRegression(random_state=0).fit(*load_breast_cancer(return_X_y=True))
        else:
            rows, target = load_diabetes(return_X_y=True)
            target = (target - target.mean()) / target.std()
            BayesianMLPRegressor(random_state=0).fit(rows, target)
        print(f"@{time.process_time() - start}", flush=True)


def started(root):
    return subprocess.Popen(
        [sys.executable, __file__, "answer", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )


def asked(process, line):
    """Seconds of what a process was asked for."""
    process.stdin.write(line + "\n")
    process.stdin.flush()
    for answer in process.stdout:
        if answer.startswith("@"):
            return float(answer[1:])
    raise SystemExit(f"A process has ended at {line!r}.")


def compare(processes, line, n_pairs, first, scale, digits):
    """Print the smallest times of both, in turns, and the median ratio."""
    for process in processes:
        asked(process, first)
    pairs = [[asked(process, line) * scale for process in processes] for _ in range(n_pairs)]
    smallest = " ".join(f"{min(times):.{digits}f}" for times in zip(*pairs, strict=True))
    print(f"{first}: {smallest}, median ratio {median(new / old for old, new in pairs):.2f}")


def main():
    processes = [started(root) for root in (Path(sys.argv[1]).resolve(), HERE)]
    for fit, n_pairs in FITS.items():
        compare(processes, f"fit:{fit}", n_pairs, f"fit:{fit}", 1.0, 2)
    for sampler in SAMPLERS:
        for size in SIZES:
            compare(processes, "steps", PAIRS, f"run:{sampler}:{size}", 1e3 / STEPS, 2)


if __name__ == "__main__":
    if sys.argv[1] == "answer":
        answers(sys.argv[2])
    else:
        main()
