"""Untuned predictions with uncertainty on small tables: our perceptrons next to what else there is.

    SKBAYES_DATA=folder python examples/benchmarks/tabular.py --bde-python bde-env/bin/python

Each fit runs in a process of its own with one thread, which also measures its processor time and
its peak memory. The numbers of finished runs are stored in the file ``--runs`` and are not computed
again, so that ``--methods``, ``--sets`` and ``--seeds`` fill the table piece by piece. ``--forget``
removes stored runs of methods, whose settings have changed, for instance. A run of seed 0 for all
methods and sets comes before those of seed 1. ``--no-new`` makes the page of the stored runs.

The libraries of the peers are in requirements-peers.txt. A method whose library is not installed
is left out. bde is best in an environment of its own, whose interpreter is ``--bde-python``.
"""

import json
from pathlib import Path

import torch
from _common import SHORT_CHAINS, parse_args, write_results
from _records import read_records
from _tabular_data import (
    A9A_ROWS,
    CLASSIFICATION,
    FRIEDMAN_ROWS,
    MANY_SETS,
    PUBLISHED_SPLITS,
    SETS,
    UNSEEN,
    load_split,
    task_of,
)
from _tabular_page import compose
from _tabular_run import Benchmark, Method, fill

#: arguments of our estimators in the row "larger budget"
LARGER = {
    "regression": {"n_chains": 8, "burn_in": 8000, "n_draws": 100, "thinning": 40},
    "classification": {"n_chains": 8, "burn_in": 10_000, "n_draws": 200, "thinning": 50},
}  # fmt: skip
#: chains and steps of bde's published runs
AS_PUBLISHED = {"n_chains": 10, "burn_in": 50_000, "n_draws": 100, "thinning": 100}
#: what docs/networks.md recommends for tables of many rows
MANY_ROWS = {"hidden_layer_sizes": (32, 32, 32), "sampler": "mclmc", "batch_size": 250,
             "burn_in": 7000, "n_draws": 100, "thinning": 70}  # fmt: skip
#: the steps of a default fit that does not end early
FULL = {"burn_in": 3000, "n_draws": 100, "thinning": 30}
#: steps of fits of the defaults on ``SHORTENED``, which take the first number without a bound
BUDGETS = 6000, 3000, 1500, 750
SHORTENED = "airfoil", "wine", "digits", "made5"
NETWORK = {"hidden": (64, 64), "max_epochs": 1000}
NETWORK_SHORT = {"max_epochs": 3}
#: of the published experiments, but 4 of 10 members and 10,000 of 50,000 steps of warm-up
BDE_LARGER = {"n_members": 4, "hidden_layers": [16, 16, 16, 16], "epochs": 1200, "patience": 20,
              "warmup_steps": 10_000, "n_samples": 1000, "n_thinning": 10}  # fmt: skip
BDE_SHORT = {"warmup_steps": 50, "n_samples": 10, "epochs": 5}
#: regression as in bde's benchmark; classification stops early
XGBOOST = {"n_estimators": 2000, "learning_rate": 0.05, "max_depth": 6, "subsample": 0.8,
           "tree_method": "hist"}  # fmt: skip
CATBOOST = {"iterations": 1000, "learning_rate": 0.05, "depth": 6}
EARLY = {"early_stopping_rounds": 50}
NGBOOST = {"n_estimators": 1000, "learning_rate": 0.03, **EARLY}


OWN = "skbayes_sgmcmc", ("skbayes-sgmcmc", "torch")
BDE = "bde", ("sklearn-contrib-bde", "jax", "blackjax"), "bde_python"
PEERS, NETWORKS = "_tabular_peers", "_tabular_networks"
TORCH = "torch", ("torch",)
METHODS = {
    "ours": Method("ours, no arguments", PEERS, "ours", {}, SHORT_CHAINS, *OWN),
    "ours_larger": Method("ours, larger budget", PEERS, "ours", LARGER, SHORT_CHAINS, *OWN),
    "ours_published": Method("ours, budget as published", PEERS, "ours", AS_PUBLISHED,
                             SHORT_CHAINS, *OWN),
    "ours_tanh": Method("ours, budget as published, tanh", PEERS, "ours",
                        AS_PUBLISHED | {"activation": "tanh"}, SHORT_CHAINS, *OWN),
    "ours_many_rows": Method("ours, minibatches", PEERS, "ours", MANY_ROWS, SHORT_CHAINS, *OWN),
    "ours_full": Method("ours, 6,000 steps", PEERS, "ours", FULL, SHORT_CHAINS, *OWN),
    "ours_psgld": Method("ours, pSGLD", PEERS, "ours", {"sampler": "psgld", "batch_size": 100},
                         SHORT_CHAINS, *OWN),
    "bde": Method("bde, no arguments", PEERS, "bde", {}, BDE_SHORT, *BDE),
    "bde_larger": Method("bde, larger budget", PEERS, "bde", BDE_LARGER, BDE_SHORT, *BDE),
    "ensemble5": Method("deep ensemble (5)", NETWORKS, "ensemble", NETWORK | {"n_members": 5},
                        NETWORK_SHORT, *TORCH),
    "ensemble10": Method("deep ensemble (10)", NETWORKS, "ensemble", NETWORK | {"n_members": 10},
                         NETWORK_SHORT, *TORCH),
    "dropout": Method("MC dropout", NETWORKS, "ensemble",
                      NETWORK | {"dropout": 0.1, "n_random": 100}, NETWORK_SHORT, *TORCH),
    "laplace": Method("last-layer Laplace", NETWORKS, "laplace", NETWORK, NETWORK_SHORT, "laplace",
                      ("laplace-torch", "torch")),
    "gp": Method("Gaussian process", PEERS, "gp",
                 {"regression": {"n_fit": 1000, "n_rows": 3000},
                  "classification": {"n_fit": 500, "n_rows": 1000}}, {"n_fit": 50, "n_rows": 100},
                 "sklearn.gaussian_process"),
    "forest": Method("random forest", PEERS, "forest", {"n_trees": 500}, {"n_trees": 20},
                     "sklearn.ensemble"),
    "xgboost": Method("XGBoost", PEERS, "xgboost",
                      {"regression": XGBOOST, "classification": XGBOOST | EARLY},
                      {"n_estimators": 20}, "xgboost", ("xgboost-cpu", "xgboost")),
    "catboost": Method("CatBoost", PEERS, "catboost",
                       {"regression": CATBOOST, "classification": CATBOOST | EARLY},
                       {"iterations": 20}, "catboost", ("catboost",)),
    "ngboost": Method("NGBoost", PEERS, "ngboost", NGBOOST, {"n_estimators": 20}, "ngboost",
                      ("ngboost",)),
    "mlp": Method("one MLP of scikit-learn", PEERS, "mlp", {}, {"max_iter": 20},
                  "sklearn.neural_network"),
}  # fmt: skip
SHORTER = {f"ours_{n}": Method(f"ours, max_steps={n}", PEERS, "ours", {"max_steps": n},
                               SHORT_CHAINS, *OWN) for n in BUDGETS}  # fmt: skip
METHODS |= SHORTER
#: methods that take too long for all sets, or say nothing on others
ONLY = {
    "ours_published": tuple(PUBLISHED_SPLITS),
    "ours_tanh": ("airfoil_42",),
    "ours_many_rows": ("bikesharing", "bikesharing_42"),
    "ours_psgld": MANY_SETS,
    "ours_full": (*CLASSIFICATION, *UNSEEN),
} | dict.fromkeys(SHORTER, SHORTENED)
#: sets on which ours and one MLP are so close that more seeds decide
MANY_SEEDS, CLOSE = 20, ("digits",)
QUICK_SETS = ("airfoil", "yacht", "iris")
BENCHMARK = Benchmark(METHODS, ONLY, load_split, task_of)


def forget(path, methods):
    """Remove the stored runs of methods from the file."""
    kept = [record for record in read_records(path) if record["settings"]["method"] not in methods]
    path.write_text("".join(json.dumps(record) + "\n" for record in kept))


def more(parser):
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=[key for key in METHODS if key != "ours_full"],
    )
    parser.add_argument("--sets", nargs="+", choices=(*SETS, *PUBLISHED_SPLITS),
                        help="default all; if quick, three")  # fmt: skip
    parser.add_argument("--bde-python", type=Path, help="interpreter of an environment with bde")
    parser.add_argument("--forget", nargs="+", choices=METHODS, default=[], metavar="METHOD",
                        help="first remove the stored runs of these methods")  # fmt: skip


def main():
    torch.set_num_threads(1)  # as in the processes of the fits, for the records
    constants = {"a9a_rows": A9A_ROWS, "friedman_rows": FRIEDMAN_ROWS}
    args = parse_args(__doc__, 5, 1, runs="tabular", constants=constants, more=more)
    args.sets = args.sets or (QUICK_SETS if args.quick else (*SETS, *PUBLISHED_SPLITS))
    if args.forget and args.runs.exists():
        forget(args.runs, args.forget)
    results, missing, failed = fill(args, BENCHMARK, args.methods, args.sets, args.seeds)
    close = {}
    if {"ours", "mlp"} <= set(args.methods) and not args.short:
        names = [name for name in CLOSE if name in args.sets]
        close, _, _ = fill(args, BENCHMARK, ("ours", "mlp"), names, range(MANY_SEEDS))
    title = "Small tables: untuned networks and their peers"
    body, figures = compose(args, results, missing, failed, METHODS, ONLY, close)
    write_results(args, "tabular", title, body, figures)


if __name__ == "__main__":
    main()
