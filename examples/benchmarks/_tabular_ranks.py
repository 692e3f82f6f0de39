"""Ranks of methods over sets, and tests of them, from results {(method, set): {seed: numbers}}."""

import math

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range, wilcoxon


def error_of(numbers):
    """The RMSE or the error."""
    return numbers["rmse" if "rmse" in numbers else "error"]


def shared_means(results, methods, name, score):
    """Means of a score over the seeds that all methods have finished on a set.

    The score None is the RMSE or the error. Without a seed in common, those of all seeds.
    """
    seeds = set.intersection(*(set(results[key, name]) for key in methods))
    return np.array([
        np.mean([error_of(run) if score is None else run[score]
                 for seed, run in results[key, name].items() if seed in seeds or not seeds])
        for key in methods
    ])  # fmt: skip


def relative_excess(ours, others):
    """How far our errors of some seeds are above others', as a share of theirs, and its se."""
    if not len(ours) or not others.any():
        return (np.nan if not len(ours) else 0.0 if not ours.any() else np.inf), np.nan
    shares = (ours - others) / others.mean()
    se = shares.std(ddof=1) / math.sqrt(len(shares)) if len(shares) > 1 else np.nan
    return float(shares.mean()), float(se)


def excess(results, methods, name):
    """The same for the first of two methods, on the seeds that both have finished on a set."""
    runs = [results.get((key, name), {}) for key in methods]
    seeds = sorted(runs[0].keys() & runs[1].keys())
    return relative_excess(*(np.array([error_of(run[seed]) for seed in seeds]) for run in runs))


def in_percent(share, se):
    """An excess in words."""
    return f"{100 * share:+.1f}" + ("" if math.isnan(se) else f" ± {100 * se:.1f}")


def set_ranks(results, methods, sets, score):
    """Ranks (sets, methods). Methods whose predictions are not numbers on a set are last there."""
    means = (shared_means(results, methods, name, score) for name in sets)
    return np.array([rankdata(np.nan_to_num(row, nan=np.inf, posinf=np.inf)) for row in means])


def mean_ranks(results, methods, sets, score):
    """Ranks (methods,), averaged over sets; the score None is the RMSE or the error."""
    return set_ranks(results, methods, sets, score).mean(axis=0)


def critical_difference(ranks):
    """Nemenyi's critical difference at the 5% level, and the p-value of Friedman's test."""
    n, k = ranks.shape
    quantile = studentized_range.ppf(0.95, k, np.inf) / math.sqrt(2.0)
    return quantile * math.sqrt(k * (k + 1) / (6.0 * n)), friedmanchisquare(*ranks.T).pvalue


def wilcoxon_p(results, first, others, sets, score):
    """p-values of Wilcoxon's test of ``first`` against each of the others, over sets.

    Differences are those of the logarithm for errors, whose units differ between sets.
    """
    p = []
    for key in others:
        pairs = np.array([shared_means(results, (first, key), name, score) for name in sets])
        values = np.log(np.maximum(pairs, 1e-6)) if score is None else pairs
        differ = np.ptp(pairs, axis=1).any()
        p.append(wilcoxon(values[:, 0], values[:, 1]).pvalue if differ else 1.0)
    return np.array(p)


def holm(p):
    """p-values corrected for their number by Holm's method."""
    order = np.argsort(p)
    steps = np.asarray(p)[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def draw_ranks(ax, labels, ranks, distance, words):
    """Names beside their mean ranks, and a bar over each group within the critical difference."""
    order = np.argsort(ranks)
    sorted_ranks = ranks[order]
    places = np.arange(len(labels))
    ax.plot(sorted_ranks, places, "o", color="C0")
    for place, (rank, which) in enumerate(zip(sorted_ranks, order, strict=True)):
        ax.annotate(labels[which], (rank, place), (8, 0), textcoords="offset points", va="center",
                    fontsize=9)  # fmt: skip
    last = -1
    for first, rank in enumerate(sorted_ranks):
        end = int(np.flatnonzero(sorted_ranks <= rank + distance)[-1])
        if end > max(last, first):  # no part of an earlier bar
            ax.plot([rank - 0.25] * 2, [first, end], color="0.6", linewidth=3)
            last = end
    limits = {"xlim": (0.5, len(labels) + 2.5), "ylim": (len(labels) - 0.4, -0.6)}
    ax.set(xlabel=words, yticks=[], **limits)
    ax.spines["left"].set_visible(False)
