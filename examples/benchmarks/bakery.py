"""The README's first example beside CatBoost: intervals, and the cost of a decision.

    python examples/benchmarks/bakery.py

Ten bakeries are simulated; the first is the README's. Without catboost, its rows are left out.
"""

import warnings
from functools import partial
from importlib.util import find_spec

import numpy as np
import pandas as pd
import torch
from _common import finished, markdown_table, mean_sd, parse_args, write_results
from scipy.stats import nbinom, norm, poisson
from sklearn.model_selection import train_test_split

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianMLPRegressor, SamplingWarning

N_PAST, N_FUTURE = 500, 120
#: of the interval, and of the decision if a missing loaf costs 3 and a loaf left over 1
LOW, DECISION, HIGH = LEVELS = (0.05, 0.75, 0.95)
CATEGORIES = ["weekday", "weather"]
#: numbers of loaves, with all of their probability
LOAVES = np.arange(600)
NAMES = {
    "truth": "the true distribution",
    "glm": "ours: `BayesianGLMRegressor`, negative binomial",
    "network": "ours: `BayesianMLPRegressor`",
    "quantile": "CatBoost, `MultiQuantile`",
    "quantile_stopped": "CatBoost, `MultiQuantile`, stopped early",
    "normal": "CatBoost, `RMSEWithUncertainty`",
    "poisson": "CatBoost, `Poisson`",
}
BODY = """The README's bakery: 500 days to learn from and 120 new ones, with a column of weekdays,
one of the weather with gaps, and a temperature that does not matter. Sales have a negative binomial
distribution around a mean that depends on the weekday and on rain.

The simulation knows the distribution of each new day's sales, so coverage, interval score and cost
are exact expectations. **Coverage** is that of the 90% interval, and **width** its mean width in
loaves. The **interval score** is the width plus 20 times the distance of targets outside: smaller
is better. **Cost** is that of a day if a missing loaf costs 3 and a loaf left over 1, and the
rounded 0.75 quantile is baked. **Seconds** are processor time of a fit
and its predictions, in the median. Other numbers are means over {n} bakeries, with other seeds of
table and fit; "lowest" is the coverage of the worst of them.

{table}

**Rows.** Nothing is tuned. The negative binomial model is the README's call. It is told the family
that the sales have here; where the family is wrong, so are the intervals. `BayesianMLPRegressor`
has its defaults and treats the sales as real numbers. CatBoost (1.2.10) takes the categories as
they are, with gaps as a category of their own, and has its defaults, 1,000 trees. "stopped early":
a fifth of the past days says when to stop, after 50 trees without progress. `RMSEWithUncertainty`
learns the sd of a normal distribution, and `Poisson` has the quantiles of a Poisson distribution
around the prediction.

{verdict}
"""


def bakery(rng):
    """Days, their sales, and the mean of each day's sales."""
    n_days = N_PAST + N_FUTURE
    table = pd.DataFrame(
        {
            "weekday": np.resize(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat"], n_days),
            "weather": rng.choice(["sun", "rain", "fog", None], n_days, p=[0.45, 0.35, 0.1, 0.1]),
            "degrees": rng.normal(12.0, 7.0, n_days),
        }
    )
    mean = np.exp(3.2 + 0.35 * (table["weekday"] == "Sat") - 0.25 * (table["weather"] == "rain"))
    sold = rng.poisson(mean * rng.gamma(10.0, 0.1, n_days))
    return table, sold, mean.to_numpy()


def true_distribution(mean):
    """That of the sales: a Poisson distribution with a mean that is Gamma(10, 0.1) times this."""
    return nbinom(10.0, 10.0 / (10.0 + mean))


# Predicted quantiles (rows, LEVELS) of new days, from past days and their sales


def ours(model, past, sold, future, seed):
    model = model(random_state=seed).fit(past, sold)
    return model.predict_quantiles(future, LEVELS)


def catboost(loss, quantiles, stopped, past, sold, future, seed):
    from catboost import CatBoostRegressor

    past, future = (rows.fillna({"weather": "none"}) for rows in (past, future))
    model = CatBoostRegressor(
        loss_function=loss, cat_features=CATEGORIES, random_seed=seed, thread_count=1,
        verbose=False, allow_writing_files=False,
    )  # fmt: skip
    if stopped:
        past, held_out, sold, y = train_test_split(past, sold, test_size=0.2, random_state=seed)
        model.fit(past, sold, eval_set=(held_out, y), early_stopping_rounds=50)
    else:
        model.fit(past, sold)
    return quantiles(model.predict(future))


def of_normal(found):
    mean, variance = found.T
    return mean[:, None] + np.sqrt(variance)[:, None] * norm.ppf(LEVELS)


def of_poisson(mean):
    return poisson.ppf(LEVELS, mean[:, None])


def methods(short):
    """Functions of past days, sales, new days and a seed, by the keys of ``NAMES``."""
    options = {"max_steps": 200} if short else {}
    glm = partial(BayesianGLMRegressor, likelihood="negative_binomial", **options)
    network = partial(BayesianMLPRegressor, **options)
    quantile = f"MultiQuantile:alpha={','.join(map(str, LEVELS))}", np.asarray
    return {
        "glm": partial(ours, glm),
        "network": partial(ours, network),
        "quantile": partial(catboost, *quantile, False),
        "quantile_stopped": partial(catboost, *quantile, True),
        "normal": partial(catboost, "RMSEWithUncertainty", of_normal, False),
        "poisson": partial(catboost, "Poisson", of_poisson, False),
    }


# Scores


def scores(quantiles, mean):
    """Expectations over the true distribution of each day's sales."""
    p = true_distribution(mean[:, None]).pmf(LOAVES)
    low, decision, high = quantiles.T[..., None]
    inside = (low <= LOAVES) & (high >= LOAVES)
    outside = np.maximum(low - LOAVES, 0.0) + np.maximum(LOAVES - high, 0.0)
    missing = LOAVES - np.round(decision)
    return {
        "coverage": float((p * inside).sum(1).mean()),
        "width": float((high - low).mean()),
        "interval": float((high - low).mean() + 20.0 * (p * outside).sum(1).mean()),
        "cost": float((p * np.where(missing > 0, 3.0 * missing, -missing)).sum(1).mean()),
    }


def measure(method, seed, short):
    table, sold, mean = bakery(np.random.default_rng(seed))
    new = mean[N_PAST:]
    if method == "truth":
        return scores(true_distribution(new[:, None]).ppf(LEVELS), new)
    past, future = table[:N_PAST], table[N_PAST:]
    quantiles = methods(short)[method](past, sold[:N_PAST], future, seed)
    return scores(quantiles, new)


def verdict(found):
    """In how many bakeries the README's call is ahead of each of CatBoost's."""
    words = []
    for method in [each for each in found if each not in ("truth", "glm", "network")]:
        pairs = list(zip(found["glm"], found[method], strict=True))
        better = [sum(a[key] < b[key] for a, b in pairs) for key in ("interval", "cost")]
        words.append(f"{NAMES[method]}: {better[0]} and {better[1]} of {len(pairs)}")
    if not words:
        return ""
    return ("Bakeries where the README's call has the lower interval score, and the lower cost, "
            "compared with " + "; ".join(words) + ".")  # fmt: skip


def main():
    torch.set_num_threads(1)
    args = parse_args(__doc__, 10, 1, runs="bakery", constants={"n_past": N_PAST})
    warnings.simplefilter("ignore" if args.short else "error", SamplingWarning)
    names = [*NAMES] if args.no_new or find_spec("catboost") else ["truth", "glm", "network"]
    found, lines = {}, []
    for method in names:
        runs = [
            finished(args, f"{method}-{seed}", partial(measure, method, seed, args.short),
                     method=method, seed=seed)
            for seed in args.seeds
        ]  # fmt: skip
        found[method] = runs = [each for each in runs if each is not None]
        if not runs:
            continue
        cells = [mean_sd([each[key] for each in runs], digits)
                 for key, digits in (("interval", 1), ("cost", 2))]  # fmt: skip
        coverage, width, seconds = (np.array([each[key] for each in runs])
                                    for key in ("coverage", "width", "seconds"))  # fmt: skip
        lines.append([
            NAMES[method], f"{coverage.mean():.1%}", f"{coverage.min():.1%}", f"{width.mean():.1f}",
            *cells, "" if method == "truth" else f"{np.median(seconds):.1f}",
        ])  # fmt: skip
    header = ["quantiles of", "coverage", "lowest", "width", "interval score", "cost", "seconds"]
    body = BODY.format(
        table=markdown_table(header, lines), n=len(args.seeds), verdict=verdict(found)
    )
    write_results(args, "bakery", "The README's first example beside CatBoost", body)


if __name__ == "__main__":
    main()
