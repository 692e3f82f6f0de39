"""The page of ``tabular.py``: tables by score, ranks and the critical-difference figure."""

import math

import numpy as np
from _common import markdown_table, mean_sd, new_figure, save_figure
from _records import release_of
from _tabular_data import (
    A9A_ROWS,
    CLASSIFICATION,
    FRIEDMAN_ROWS,
    MADE,
    PUBLISHED_SPLITS,
    REGRESSION,
    SETS,
)
from _tabular_ranks import (
    critical_difference,
    draw_ranks,
    excess,
    in_percent,
    mean_ranks,
    set_ranks,
)

#: score: its heading, factor, digits, and whether the lowest is the best
SCORES = {
    "regression": {
        "rmse": ("RMSE", 1.0, 3, True),
        "nll": ("NLL", 1.0, 3, True),
        "crps": ("CRPS", 1.0, 3, True),
        "coverage": ("Coverage of 90% intervals, %", 100.0, 1, False),
    },
    "classification": {
        "error": ("Error, %", 100.0, 2, True),
        "nll": ("NLL", 1.0, 3, True),
        "brier": ("Brier score", 1.0, 3, True),
        "ece": ("ECE", 1.0, 3, True),
    },
}
COSTS = {
    "seconds": ("Core-seconds, fit and prediction", 1.0, 1, False),
    "memory_mb": ("Peak memory, MB", 1.0, 0, False),
}
#: published by bde: mean and sd of RMSE, NLL of N(mean, sd), and NLL with the test RMSE as sd
PUBLISHED = {
    "airfoil": {
        "linear regression": (".660", "", "1.003"),
        "random forest (1,000)": (".256", "", ".057"),
        "XGBoost (2,000)": (".203", "", "−.178"),
        "CatBoost with uncertainty": (".239", ".148", "−.011"),
        "deep ensemble (10)": (".365", ".176", ".410"),
        "TabPFN v2": (".136 ± .003", "−.934 ± .020", "−.577"),
        "bde, 10 members, 50,000 steps": (".1215 ± .0042", "−.913 ± .013", "−.689"),
    },
    "bikesharing": {
        "linear regression": (".780", "", "1.170"),
        "random forest (1,000)": (".244", "", ".009"),
        "XGBoost (2,000)": (".214", "", "−.122"),
        "CatBoost with uncertainty": (".265", "−.374", ".092"),
        "deep ensemble (10)": (".288", "−.455", ".174"),
        "TabPFN v2": (".210 ± .001", "−.686 ± .006", "−.140"),
        "bde, 10 members, 50,000 steps": (".226 ± .002", "−.732 ± .010", "−.068"),
    },
}
#: seeds of a method on a set whose mean is compared with that of more seeds
LEAST_SEEDS = 2
TREES = "catboost", "xgboost"
BODY = """
Each method runs with one setting on all sets. Those of the other methods were chosen beforehand.
Our defaults for regression were chosen by the test scores of splits of six of these sets (airfoil,
boston, concrete, energy, winered and yacht;
[how](../project/network_defaults.md#how-the-defaults-of-regression-were-chosen)),
and the rule by which classifiers end early by those of the eight sets with classes
([how](early_ends.md)), so their scores on these sets are optimistic to that extent. Nothing was
chosen on the tables for reporting of [mixed_tables](mixed_tables.md).
Each fit runs in a process of its own with one thread. Core-seconds are
user and system time of the fit and of the prediction of the test rows, compilation included and
imports excluded. Memory is the process's largest resident set, libraries and data included.
**Bold**: the best mean of a column, among methods that have run with at least {least} seeds on that
set.

**Data.** `airfoil` and `bikesharing`: `train_test_split(test_size=0.2, random_state=seed)`, as in
bde's benchmark. `boston`, `concrete`, `energy`, `winered` and `yacht`: the UCI sets with their
stored splits (10% for testing). `diabetes`, `friedman1` ({friedman_rows} rows, new ones for each
seed) and the classification sets: a fifth for testing, stratified by class. `a9a`: {a9a_rows}
training rows, chosen by the seed, and all 16,281 test rows, binary features not scaled. `made2` and
`made5`: `make_classification` with {made}, new ones for each seed. All other inputs, and the
targets of regression, are standardised by the training part; RMSE, NLL and CRPS of regression are
in these units.

**Scores.** NLL: minus the mean log predictive density or probability. In regression that is the
density of the mixture over draws (ours, bde), members (ensembles) or random passes (dropout), and
of one normal otherwise. CRPS: from 1,000 draws of that distribution. Coverage: the fraction of
targets inside central 90% intervals. Brier score: the sum of squares over the classes. ECE: 15 bins
of equal width. Probabilities are at least 1e-6, except ours.

**Ranks.** {ranks}

{summary}

**Published figures**, for comparison with the NLL of N(mean, sd) that our runs also give. They are
of bde's single split, `train_test_split(test_size=0.2, random_state=42)`, which our runs in these
two tables share; the seeds are those of the methods. bde's own fits used 10 cores, 240 s for
airfoil and 2,600 s for bike sharing.

{published}
{paired}{shorter}{close}
{tables}

**Methods.**

{methods}

{gaps}
"""
DENSITIES = {
    "ours": "the estimators' defaults; only the seed is set.",
    "ours_larger": "`{options}`.",
    "ours_published": "`{options}`; bde's published runs had 10 members, 50,000 steps of warm-up "
    "and 10,000 for the draws.",
    "ours_tanh": "`{options}`.",
    "ours_many_rows": "`{options}`: what docs/networks.md recommends for tables of many rows.",
    "bde": "the defaults of sklearn-contrib-bde (two members of 4-4 units, 50 steps of warm-up).",
    "bde_larger": "{options}. The members, 4 of 10, and the warm-up, 10,000 of 50,000 steps, are "
    "smaller than published. Its noise has no other bound than 1e-6, hence its NLL where targets "
    "are whole numbers (winered).",
    "ensemble5": "perceptrons of 64-64 ReLU units, Adam with learning rate 0.002, minibatches of "
    "32 to 256 rows (a fiftieth of all), at most 1,000 epochs. Training stops after 30 epochs "
    "without a lower loss on 15% held-out rows, other ones for each member. Outputs are mean and "
    "sd of a normal, by the NLL.",
    "ensemble10": "the same with ten members.",
    "dropout": "one such network with dropout of 0.1; 100 random passes.",
    "laplace": "one such network with squared loss in regression, and laplace-torch's full "
    "covariance of the last layer. Regression: prior precision and noise maximise the marginal "
    "likelihood, and the density is one normal. Classification: the prior precision is the best "
    "of a grid on the held-out rows; probit approximation.",
    "gp": "squared exponential kernel, one length scale for each feature, and noise, fitted to at "
    "most 1,000 rows; predictions condition on at most 3,000. Classification: one length scale "
    "and Laplace's approximation, on at most 500 rows, with two classes at most 1,000.",
    "forest": "500 trees. Regression: a normal with variance a + b v, where v is the variance of "
    "the trees' predictions; a and b maximise the out-of-bag likelihood. Classification: the "
    "mean of the trees, and of the uniform distribution with the weight of one tree.",
    "xgboost": "2,000 trees of depth 6, learning rate 0.05, subsample 0.8. Regression, as "
    "published by bde: no early stopping; the sd of the normal is the RMSE on a held-out tenth of "
    "a fit to the others. Classification: stops after 50 rounds without a lower loss on a held-out "
    "tenth.",
    "catboost": "1,000 trees of depth 6, learning rate 0.05. Regression, as published by bde: "
    "RMSEWithUncertainty, no early stopping; the total uncertainty of ten virtual ensembles is the "
    "variance of a normal. Classification: stopped in the same way as XGBoost.",
    "ngboost": "1,000 rounds at most, learning rate 0.03, stopped by a held-out tenth in the same "
    "way; a normal.",
    "mlp": "MLPRegressor() and MLPClassifier() by default. Regression: the sd of the normal is the "
    "RMSE on a held-out tenth of a fit to the others; the mean is that of a fit to all rows. "
    "Both fits count.",
}


def compose(args, results, missing, failed, methods, only, close):
    """Body and figures; ``results`` are {(method, set): {seed: numbers}}.

    ``only`` has the sets of the methods that run on some sets alone, and ``close`` the results of
    more seeds for :func:`more_seeds`.
    """
    asked = [name for name in args.sets if name in SETS]
    budgets = [key for key in args.methods if "max_steps" in methods[key].options]
    chosen = [key for key in args.methods if key not in budgets]
    rows = [key for key in chosen if any((key, name) in results for name in asked)]
    sets = [name for name in asked if any((key, name) in results for key in rows)]
    complete = [key for key in rows if all(enough(results, rows, key, name) for name in sets)]
    figures, words, ranks = [], "Too few methods or sets for ranks.", {}
    if len(complete) > 2 and len(sets) > 1:
        ranks = {score: mean_ranks(results, complete, sets, score) for score in ("nll", None)}
        distance, p = critical_difference(set_ranks(results, complete, sets, "nll"))
        labels = [methods[key].label for key in complete]
        figure, (ax,) = new_figure(1, width=7.0, height=0.6 + 0.24 * len(labels))
        draw_ranks(ax, labels, ranks["nll"], distance, "mean rank by NLL")
        caption = (
            f"Mean ranks by NLL over {len(sets)} sets (1 is best). Methods joined by a bar do "
            f"not differ at the 5% level by Nemenyi's test (critical difference {distance:.2f}; "
            f"Friedman's test: p = {p:.1g})."
        )
        figures = [save_figure(args, figure, "tabular_ranks", caption)]
        words = (
            "Each set's methods are ranked by their means over the seeds that all of them have "
            f"finished. Only methods with at least {LEAST_SEEDS} seeds on all sets take part."
        )
    body = BODY.format(
        friedman_rows=f"{FRIEDMAN_ROWS:,}",
        a9a_rows=f"{A9A_ROWS:,}",
        made=" and ".join(f"`{in_words(options)}`" for options in MADE.values()),
        ranks=words,
        summary=summary(results, rows, complete, ranks, sets, methods),
        published=published(results, args, methods),
        shorter=shorter(results, budgets, asked, methods),
        paired=paired(results, rows, sets, methods) + behind(results, sets, methods),
        close=more_seeds(close),
        least=LEAST_SEEDS,
        tables="\n\n".join(tables(results, rows, sets, methods)),
        methods="\n".join(
            description(key, methods)
            for key in chosen
            if any((key, name) in results for name in args.sets)
        ),
        gaps=gaps(results, rows, asked, missing, failed, methods, only, chosen),
    )
    return body, figures


def enough(results, rows, key, name):
    """Whether a method's mean on a set is compared with those of others."""
    counts = {other: len(results.get((other, name), {})) for other in rows}
    return counts[key] >= max(1, min(LEAST_SEEDS, max(counts.values())))


def in_words(options):
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def description(key, methods):
    options = methods[key].options
    if "regression" in options:
        words = "; ".join(f"{task}: {in_words(given)}" for task, given in options.items())
    else:
        words = in_words(options)
    return f"* {methods[key].label}: {DENSITIES[key].format(options=words)}"


def values_of(results, key, name, score):
    return [numbers[score] for numbers in results.get((key, name), {}).values()]


def summary(results, rows, complete, ranks, sets, methods):
    """One row a method: mean ranks, and medians of the costs over the sets."""
    table = []
    for key in rows:
        row = [methods[key].label]
        for score in ("nll", None):
            known = key in complete and bool(ranks)
            row.append(f"{ranks[score][complete.index(key)]:.1f}" if known else "")
        done = [name for name in sets if (key, name) in results]
        for cost, digits in (("seconds", 1), ("memory_mb", 0)):
            means = [np.mean(values_of(results, key, name, cost)) for name in done]
            row.append(f"{np.median(means):.{digits}f}")
        n_seeds = [len(results[key, name]) for name in done]
        seeds = f"{min(n_seeds)}" if min(n_seeds) == max(n_seeds) else (
            f"{min(n_seeds)} to {max(n_seeds)}")  # fmt: skip
        table.append([*row, f"{len(done)}", seeds])
    header = ["method", "mean rank, NLL", "mean rank, RMSE or error", "core-seconds, median set",
              "memory, MB", "sets", "seeds"]  # fmt: skip
    return markdown_table(header, table)


def published(results, args, methods):
    """For bde's two sets and its split: its published figures, and ours in the same units."""
    parts = []
    for name, known in PUBLISHED_SPLITS.items():
        rows = [key for key in args.methods if (key, name) in results and name in args.sets]
        if not rows:
            continue
        figures = PUBLISHED[known].items()
        table = [[f"{label} (published)", *cells, "", ""] for label, cells in figures]
        for key in rows:
            errors = np.array(values_of(results, key, name, "rmse"))
            one_sd = np.log(errors) + 0.5 * math.log(2.0 * math.pi) + 0.5
            table.append([
                methods[key].label, mean_sd(errors),
                mean_sd(values_of(results, key, name, "nll_normal")), mean_sd(one_sd),
                mean_sd(values_of(results, key, name, "seconds"), 1), len(errors),
            ])  # fmt: skip
        header = [known, "RMSE", "NLL of N(mean, sd)", "NLL, test RMSE as sd", "core-seconds",
                  "seeds"]  # fmt: skip
        parts.append(markdown_table(header, table))
    return "\n\n".join(parts) or "None of the chosen sets is in them."


def paired(results, rows, sets, methods):
    """Ours and each method with fewer seeds on each of its sets, on the seeds of both.

    A score of predictions that are not numbers is the higher one.
    """
    parts = []
    for key in rows:
        both = {name: sorted(set(results.get(("ours", name), {})) & set(results[key, name]))
                for name in sets if (key, name) in results}  # fmt: skip
        few = all(len(results[key, name]) < len(results.get(("ours", name), {})) for name in both)
        if not few or len(both) < 2:
            continue
        table, wins = [], np.zeros(2, dtype=int)
        for name, seeds in both.items():
            error = "rmse" if name in REGRESSION else "error"
            mean = {
                (method, score): np.mean([results[method, name][seed][score] for seed in seeds])
                for method in ("ours", key)
                for score in (error, "nll", "seconds")
            }
            wins += [not mean[key, score] <= mean["ours", score] for score in (error, "nll")]
            table.append([name, *(f"{mean[method, score]:.{digits}f}"
                                  for score, digits in ((error, 3), ("nll", 3), ("seconds", 1))
                                  for method in ("ours", key))])  # fmt: skip
        label = methods[key].label
        names = methods["ours"].label.split(", "), label.split(", ")
        pair = [name[-1 if names[0][0] == names[1][0] else 0] for name in names]
        header = ["set", *(f"{words}, {of}" for words in ("RMSE or error", "NLL", "core-seconds")
                           for of in pair)]  # fmt: skip
        parts.append(
            f"**{methods['ours'].label}, and {label}**, on the seeds of both: with "
            f'"{pair[0]}" the RMSE or error is lower on {wins[0]} of {len(both)} sets, and the NLL '
            f"on {wins[1]}.\n\n" + markdown_table(header, table)
        )
    return "\n" + "\n\n".join(parts) + "\n" if parts else ""


def behind(results, sets, methods):
    """Our error beside those of the best peers of trees."""
    peers = [key for key in TREES if any((key, name) in results for name in sets)]
    lines = [
        [name, *(in_percent(*excess(results, ("ours", key), name)) for key in peers)]
        for name in sets
        if any(("ours", name) in results and (key, name) in results for key in peers)
    ]
    if not lines:
        return ""
    labels = [methods[key].label for key in peers]
    missed = [
        f"{name} ({label} {in_percent(*away)})"
        for name in sets
        for key, label in zip(peers, labels, strict=True)
        if (away := excess(results, ("ours", key), name))[0] > 0.05
    ]
    return (
        "\n**Ours by RMSE or error** above that of boosted trees, in % of theirs, ± its standard "
        "error over the seeds of both; negative where ours is lower. The target, at most 5, is "
        f"missed on: {', '.join(missed) or 'none'}.\n\n"
        + markdown_table(["set", *labels], lines)
        + "\n"
    )


def shorter(results, budgets, sets, methods):
    """The defaults with each ``max_steps``, on the seeds of all of them."""
    table, n_seeds = [], []
    for name in sets:
        done = [key for key in budgets if (key, name) in results]
        seeds = set.intersection(*(set(results[key, name]) for key in done)) if done else set()
        if not seeds:
            continue
        n_seeds.append(len(seeds))
        error, last = ("rmse", "coverage") if name in REGRESSION else ("error", "ece")
        for key in done:
            mean = {
                score: np.mean([results[key, name][seed][score] for seed in seeds])
                for score in ("seconds", error, "nll", last)
            }
            cells = [f"{mean['seconds']:.1f}", *(f"{mean[s]:.3f}" for s in (error, "nll", last))]
            table.append([name, f"{methods[key].options['max_steps']:,}", *cells])
    if not table:
        return ""
    header = ["set", "`max_steps`", "core-seconds", "RMSE or error", "NLL", "coverage or ECE"]
    words = (
        "**Shorter fits.** The defaults with `max_steps`. Without it, fits take up to 6,000 steps "
        "on these sets, and have the draws of the first row, except on airfoil, where they "
        "[go on](early_ends.md#runs-that-go-on). "
        f"Means over {max(n_seeds)} seeds."
    )
    return f"\n{words}\n\n{markdown_table(header, table)}\n"


def more_seeds(close):
    """Errors of ours and of one MLP on the same splits, and the error of their difference."""
    lines = []
    for name in dict.fromkeys(name for _, name in close):
        ours, mlp = (close.get((key, name), {}) for key in ("ours", "mlp"))
        seeds = sorted(set(ours) & set(mlp))
        if len(seeds) < 2:
            continue
        a, b = (np.array([100 * runs[seed]["error"] for seed in seeds]) for runs in (ours, mlp))
        mean, error = (a - b).mean(), (a - b).std(ddof=1) / math.sqrt(len(seeds))
        nlls = [np.mean([runs[seed]["nll"] for seed in seeds]) for runs in (ours, mlp)]
        lines.append(
            f"**More seeds**: on {name}, with {len(seeds)} splits, ours have an error of "
            f"{a.mean():.2f}% and one MLP of scikit-learn of {b.mean():.2f}% (difference "
            f"{mean:+.2f}, standard error {error:.2f}), and an NLL of {nlls[0]:.3f} and "
            f"{nlls[1]:.3f}."
        )
    return "\n" + "\n\n".join(lines) + "\n" if lines else ""


def tables(results, rows, sets, methods):
    """One table for each task and score."""
    parts = []
    for task, names in (("regression", REGRESSION), ("classification", CLASSIFICATION)):
        names = [name for name in names if name in sets]
        for score, (words, factor, digits, best) in (SCORES[task] | COSTS).items():
            table = score_table(results, rows, names, methods, score, factor, digits, best)
            if names and table:
                parts.append(markdown_table([f"{words} ({task})", *names], table))
    return parts


def score_table(results, rows, names, methods, score, factor, digits, best):
    means = np.full((len(rows), len(names)), np.nan)
    cells = [[""] * len(names) for _ in rows]
    for i, key in enumerate(rows):
        for j, name in enumerate(names):
            values = factor * np.array(values_of(results, key, name, score))
            if len(values):
                means[i, j] = values.mean()
                cells[i][j] = mean_sd(values, digits)
    if best:
        for j in range(len(names)):
            compares = [enough(results, rows, key, names[j]) for key in rows]
            compared = np.where(compares, means[:, j], np.nan)
            if np.isfinite(compared).any():
                for i in np.flatnonzero(compared == np.nanmin(compared)):
                    cells[i][j] = f"**{cells[i][j]}**"
    return [[methods[key].label, *row] for key, row in zip(rows, cells, strict=True) if any(row)]


def gaps(results, rows, sets, missing, failed, methods, only, chosen):
    """What is not in the tables, and the versions of what is."""
    words = [versions_of(results)]
    if missing:
        words.append(f"Not installed: {', '.join(methods[key].label for key in missing)}.")
    absent = []
    for key in chosen:
        lacking = [name for name in sets
                   if (key, name) not in results and name in only.get(key, sets)]  # fmt: skip
        elsewhere = len(lacking) == len(sets) and any(key == known for known, _ in results)
        if lacking and key not in missing and not elsewhere:
            which = ", ".join(lacking) if key in rows else "all sets"
            absent.append(f"{methods[key].label} ({which})")
    if absent:
        words.append(f"Not run: {'; '.join(absent)}.")
    if failed:
        words.append(f"Failed: {'; '.join(failed)}.")
    return " ".join(words)


def versions_of(results):
    """A sentence on the libraries of all runs."""
    versions = {}
    for runs in results.values():
        for numbers in runs.values():
            for package, found in numbers["versions"].items():
                versions.setdefault(package, set()).add(release_of(found))
    known = (f"{name} {', '.join(sorted(found))}" for name, found in sorted(versions.items()))
    return f"Versions: {'; '.join(known)}."
