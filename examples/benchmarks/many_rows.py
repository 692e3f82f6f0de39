"""Tables of 30,000 rows: untuned perceptrons next to other networks and to trees.

    python examples/benchmarks/many_rows.py

Fits, scores and stored runs are those of ``tabular.py``; see there.
"""

import numpy as np
import torch
from _common import markdown_table, parse_args, write_results
from _tabular_data import A9A_ROWS, FRIEDMAN_ROWS, MANY_SETS, task_of
from _tabular_run import fill
from tabular import BENCHMARK, METHODS

KEYS = ("ours", "ours_psgld", "ensemble5", "mlp", "xgboost")
BODY = """{tables}

Means over the seeds; each fit has one thread, and core-seconds are those of the fit and of the
prediction of the 7,500 test rows. Every seed has other rows: `friedman1_many`,
`make_friedman1(noise=1.0)` with 30,000 rows for training, in units of the targets' standard
deviation, where the noise has an RMSE of about 0.201 and an NLL of about -0.187; `prices_many`,
prices of stones by weight, sides and grades; their noise, with six degrees of freedom, is a tenth
of the price (RMSE about 0.140, NLL about -1.82); `made5_many`, `make_classification` with 5
classes, 20 features of which 10 are informative, and 2% of random labels; `wide5_many`, the same
with 60 features of which 20 are informative. Methods are described in [tabular.md](tabular.md).

"ours, no arguments" is MCLMC with minibatches of 500. "ours, pSGLD" was the default for as many
rows once, with minibatches of 100 and the same networks: its 6,000 steps end far from what the rows
say. {missing}

Rows of "ours, no arguments" are of a machine about half as fast as that of the others. Before steps
with minibatches were compiled, friedman1_many took 63 core-seconds on it, in turns with 19.5 after
that (14,000 steps of 250 rows), and made5_many 48 (NLL .225), wide5_many 60 (.190). Before runs
could end early (2026-11-25, the faster machine), they took 69, 88 (.228) and 66 (.187).
"""


def more(parser):
    parser.add_argument("--methods", nargs="+", choices=KEYS, default=list(KEYS))


def table_of(results, name, keys):
    """One line for each method that has finished runs of a set."""
    regression = task_of(name) == "regression"
    scores = ("rmse", "nll", "coverage") if regression else ("error", "nll", "ece")
    words = ("RMSE", "NLL", "coverage of 90%") if regression else ("error", "NLL", "ECE")
    lines = []
    for key in keys:
        found = results.get((key, name), {})
        if found:
            means = [np.mean([one[score] for one in found.values()]) for score in scores]
            seconds = np.mean([one["seconds"] for one in found.values()])
            lines.append([METHODS[key].label, *(f"{m:.3f}" for m in means), f"{seconds:.0f}"])
    return markdown_table([name, *words, "core-seconds"], lines)


def main():
    torch.set_num_threads(1)  # as in the processes of the fits, for the records
    constants = {"a9a_rows": A9A_ROWS, "friedman_rows": FRIEDMAN_ROWS}
    args = parse_args(__doc__, 2, 1, runs="many_rows", constants=constants, more=more)
    args.sets, args.bde_python = MANY_SETS, None
    results, missing, failed = fill(args, BENCHMARK, args.methods, args.sets, args.seeds)
    left_out = [METHODS[key].label for key in missing] + failed
    words = f"Left out: {', '.join(left_out)}." if left_out else ""
    tables = "\n\n".join(table_of(results, name, args.methods) for name in MANY_SETS)
    body = BODY.format(tables=tables, missing=words).rstrip()
    write_results(args, "many_rows", "Tables of many rows: untuned networks and trees", body)


if __name__ == "__main__":
    main()
