"""The figures of the pages "Compared with": one for each kind of alternative, from stored runs.

python examples/benchmarks/_versus.py
"""

from collections import defaultdict

import numpy as np
from _common import new_figure, parse_args, save_figure
from _records import read_records
from _tabular_page import PUBLISHED

#: the methods of the small tables that come without weights of others
BOOSTING = {"xgboost": "XGBoost", "catboost": "CatBoost"}


def main():
    """Draw all figures."""
    args = parse_args(__doc__, seeds=1)
    runs = args.out / "runs"
    tables = means(read_records(runs / "tabular.jsonl"), "set", "method")
    tables = {key: scores for key, scores in tables.items() if not key[0].endswith("_42")}
    boosting(args, tables)
    bde(args, tables)
    foundation(args, read_records(runs / "tabular.jsonl"))
    laplace(args, read_records(runs / "finetuning.jsonl"))
    nuts(args, read_records(runs / "glm.jsonl"))
    conformal(args, read_records(runs / "conformal.jsonl"))


def means(records, *keys):
    """Mean numbers of the runs that agree in these settings, without those that diverged."""
    found = defaultdict(list)
    for record in records:
        found[tuple(record["settings"][key] for key in keys)].append(record["numbers"])
    return {
        key: {
            name: np.nanmean([each[name] for each in runs])
            for name in runs[0]
            if name != "versions"
        }
        for key, runs in found.items()
    }


def boosting(args, tables):
    """How much larger the scores of boosting are, table by table."""
    sets = sorted({name for name, method in tables if (name, "catboost") in tables})
    sets.sort(key=lambda name: tables[name, "catboost"]["nll"] - tables[name, "ours"]["nll"])
    figure, (left, right) = new_figure(2, height=4.2)
    at = np.arange(len(sets))
    for shift, (method, label) in zip((-0.15, 0.15), BOOSTING.items(), strict=True):
        nll = [tables[name, method]["nll"] - tables[name, "ours"]["nll"] for name in sets]
        left.scatter(np.clip(nll, -1.5, 1.5), at + shift, label=label, s=18)
        ratio = [error(tables[name, method]) / error(tables[name, "ours"]) for name in sets]
        right.scatter(np.clip(ratio, 0.5, 3.0), at + shift, label=label, s=18)
    for ax, zero, title in (
        (left, 0.0, "NLL minus ours (cut at 1.5)"),
        (right, 1.0, "RMSE or error / ours (cut at 3)"),
    ):
        ax.axvline(zero, color="grey", lw=1, ls=":")
        ax.set_xlabel(title)
    left.set_yticks(at, sets, fontsize=8)
    right.set_yticks([])
    right.legend(frameon=False, loc="lower right")
    save_figure(args, figure, "versus_boosting", "")


def error(scores):
    """RMSE of a regression, error of a classification; none is zero in a ratio."""
    return max(scores.get("rmse", scores.get("error")), 1e-3)


def bde(args, tables):
    """Likelihood and cost of bde, table by table."""
    sets = sorted(name for name, method in tables if method == "bde_larger")
    figure, (left, right) = new_figure(2, height=4.2)
    gap = {name: tables[name, "bde_larger"]["nll"] - tables[name, "ours"]["nll"] for name in sets}
    sets.sort(key=gap.get)
    left.barh(sets, np.clip([gap[name] for name in sets], -0.5, 0.5), color="C0")
    left.axvline(0.0, color="grey", lw=1)
    left.tick_params(axis="y", labelsize=8)
    left.set_xlabel("NLL of bde minus ours (cut at 0.5)")
    for method, label, mark in (("ours", "ours", "o"), ("bde_larger", "bde", "s")):
        seconds = [tables[name, method]["fit_s"] for name in sets]
        right.scatter(seconds, sets, label=label, marker=mark, s=18)
    right.set(xscale="log", xlabel="core-seconds of a fit", yticks=[])
    right.legend(frameon=False)
    save_figure(args, figure, "versus_bde", "")


def foundation(args, records):
    """Published scores of TabPFN on two tables, and ours on the same split."""
    ours = means(records, "set", "method")
    figure, axes = new_figure(2, height=2.8)
    rows = ("CatBoost with uncertainty", "TabPFN v2", "bde, 10 members, 50,000 steps")
    for ax, (name, published) in zip(axes, PUBLISHED.items(), strict=True):
        values = {row: float(published[row][1].split(" ±")[0].replace("−", "-")) for row in rows}
        values["ours, no arguments"] = ours[f"{name}_42", "ours"]["nll_normal"]
        ax.barh(list(values), list(values.values()), color=["0.7", "0.7", "0.7", "C0"])
        ax.axvline(0.0, color="grey", lw=1)
        ax.set_xlabel(f"{name}: NLL of N(mean, sd)")
    axes[1].set_yticks([])
    save_figure(args, figure, "versus_foundation", "")


def laplace(args, records):
    """Scores of last layers, Laplace approximations and ensembles after fine-tuning."""
    labels = {
        "MAP": "one network",
        "ensemble of five": "five networks",
        "laplace-torch, last layer, full": "laplace-torch, full",
        "laplace-torch, last layer, Kronecker": "laplace-torch, Kronecker",
        "ours, last layer of MAP": "ours, last layer",
    }
    found = defaultdict(list)
    for record in records:
        found[record["name"].rpartition("-")[0]].append(record["numbers"])
    figure, axes = new_figure(2, height=2.6)
    for ax, score in zip(axes, ("NLL", "ECE"), strict=True):
        values = np.array([[run[score] for run in found[name]] for name in labels])
        colors = ["C0" if label.startswith("ours") else "0.7" for label in labels.values()]
        ax.barh(list(labels.values()), values.mean(1), xerr=values.std(1, ddof=1), color=colors)
        ax.invert_yaxis()
        ax.set_xlabel(f"{score} of 2,000 test images")
    axes[1].set_yticks([])
    save_figure(args, figure, "versus_laplace", "")


def nuts(args, records):
    """Default linear models compared with long NUTS runs, and the time of bambi's fits."""
    figure, (left, right) = new_figure(2, height=3.4)
    found, seconds = defaultdict(list), defaultdict(list)
    for record in records:
        kind, _, name = record["name"].rpartition("/")[0].partition("/")
        if kind == "nuts":
            found[name].append(record["numbers"])
        elif name.startswith(("bambi", "BayesianGLM")):
            model, _, likelihood = name.partition(", ")
            seconds[kind, likelihood or "normal", model].append(record["seconds"])
    for low, high, name in ((min(e["low"] for e in runs), max(e["high"] for e in runs), name)
                            for name, runs in found.items()):  # fmt: skip
        left.plot([low, high], [name, name], lw=3, color="C0")
    left.axvline(1.0, color="grey", lw=1, ls=":")
    left.set_xlabel("posterior sds / those of NUTS")
    rows = sorted({key[:2] for key in seconds if key[2] == "bambi"})
    for model, label, mark in (("BayesianGLMRegressor", "ours", "o"), ("bambi", "bambi", "s")):
        values = [np.mean(seconds[(*row, model)]) for row in rows]
        right.scatter(values, [", ".join(row) for row in rows], label=label, marker=mark)
    right.set(xscale="log", xlabel="core-seconds")
    right.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    save_figure(args, figure, "versus_nuts", "")


def conformal(args, records):
    """Coverage before and after conformal calibration, in the certain and the uncertain half."""
    figure, axes = new_figure(2, height=3.6)
    sets = sorted({record["settings"]["set"] for record in records})
    names = {"ours, as they are": "o", "ours, conformal": "s", "CatBoost, conformal": "^"}
    for ax, place, title in ((axes[0], 0, "all rows"), (axes[1], 3, "the uncertain half")):
        for name, mark in names.items():
            values = [
                np.mean(
                    [r["numbers"][name][place] for r in records if r["settings"]["set"] == each]
                )
                for each in sets
            ]
            ax.scatter(values, sets, label=name, marker=mark, s=18)
        ax.axvline(0.9, color="grey", lw=1, ls=":")
        ax.set_xlabel(f"coverage of {title}")
    axes[1].set_yticks([])
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False
    )
    save_figure(args, figure, "versus_conformal", "")


if __name__ == "__main__":
    main()
