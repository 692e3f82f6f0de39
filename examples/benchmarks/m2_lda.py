"""Experiment M2: topics of text by thermostats, SGHMC, SGRLD and Gibbs (Li et al. 2016b, table 1).

SKBAYES_DATA=folder python examples/benchmarks/m2_lda.py
"""

import time
import warnings
from functools import partial

import numpy as np
from _common import (
    best_step,
    check_best_steps,
    finished,
    load_documents,
    markdown_table,
    mean_sd,
    new_figure,
    parse_args,
    save_figure,
    search_steps,
    write_results,
)
from sklearn.decomposition import LatentDirichletAllocation as OnlineVB

from skbayes_sgmcmc import (
    LatentDirichletAllocation,
    SamplingError,
    SamplingWarning,
    document_completion_perplexity,
)
from skbayes_sgmcmc.samplers import MSGNHT, SGHMC

REMARK = """
SGRLD, which is last in the paper, is the first of these stochastic methods on all corpora, with
both sizes of batches. Gibbs sampling is ahead of all, as published.

With batches of 5, as published, thermostats are ahead of SGHMC by 5% on Reuters and by 8% on NIPS
and 20 Newsgroups, or by at least three standard deviations. The best steps of SGHMC are at least
ten times smaller than theirs: larger ones sample at a wrong temperature, because the gradient noise
is far above what D = 0.75 dissipates, and the ratios at larger steps, such as 1.4 at 0.03 on NIPS,
say no more than that. With batches of 100 thermostats are ahead of SGHMC by 5% on NIPS and 20
Newsgroups, and level with it on Reuters.

The two integrators, each at its best step, differ by no more than two standard deviations.
Splitting makes thermostats robust. Where the gradient noise needs a large friction Euler's scheme
diverges, with batches of 5 at 8 of the 12 steps from 0.03 to 1, and on NIPS at 0.03 with one of
three seeds; splitting diverges at none. mSGNHT with splitting and batches of 100 is ahead of online
VB at equal time on all three corpora, but on NIPS by no more than a standard deviation.

On Reuters the seeds 1 and 2 with batches of 5, and the steps 3, 0.01 and below, were run on a busy
machine, which takes fewer steps in the same processor time: 2,100 to 3,600, where the others took
3,400 to 4,300.
"""
K, ALPHA, BETA, D = 30, 0.1, 0.1, 0.75
CORPORA = ("reuters", "nips", "20news")
BATCHES = (100, 5)
TEST_DOCUMENTS = 500
#: eta of the natural parameters; of the expanded mean in units of beta V, a topic's sum
STEPS = (1.0, 0.3, 0.1, 0.03)
#: how far the search may go; the published h of 5e-4 is eta = N h^2 = 1.9e-4 on 765 documents
LIMITS = (1e-4, 10.0)
BLOCKS = 12
#: perplexity above which nothing is drawn or told apart: about the number of words
WORST = 5000.0
NATURAL = {"parametrization": "expanded_natural", "prior": "normal"}
METHODS = {
    "mSGNHT-S": NATURAL | {"sampler": MSGNHT(diffusion=D), "integrator": "splitting"},
    "mSGNHT-E": NATURAL | {"sampler": MSGNHT(diffusion=D), "integrator": "euler"},
    "SGHMC-S": NATURAL | {"sampler": SGHMC(diffusion=D), "integrator": "splitting"},
    "SGHMC-E": NATURAL | {"sampler": SGHMC(diffusion=D), "integrator": "euler"},
    "SGRLD": {"parametrization": "expanded_mean"},
}
DEFAULTS = {
    "natural, auto": {"parametrization": "expanded_natural"},
    "SGRLD, auto": {"parametrization": "expanded_mean"},
}
PUBLISHED = {"mSGNHT-S": 939.67, "mSGNHT-E": 960.56, "SGHMC-S": 1004.73, "SGHMC-E": 1017.51,
             "SGRLD": 1154.68, "Gibbs": 907.84}  # fmt: skip
BODY = """
{n_topics} topics, alpha = {alpha}; natural parameters N(0.1, 1) and D = {d} as published, and beta
= {beta} elsewhere. Every run has {seconds} s of processor time on one thread (scoring is not
counted); the draws of its last half, one in each of {half} blocks, are averaged. Held-out
perplexity by document completion (`document_completion_perplexity`, alpha = {alpha}) on at most
{test} test documents. `step_size` is eta = N h^2 (SGRLD: eta / (beta V)), with the same values for
all methods. "auto" uses the estimator's automatic steps and preconditioner with beta = {beta}.
Online VB is scikit-learn's, batches of 100, passes until the time is up; Gibbs is
`algorithm="gibbs"`. The published corpus (ICML abstracts) is not available, so only the order of
its figures can be compared.

{tables}

The steps of a method go on until the best one lies inside them: the next smaller and the next
larger step are worse, or diverge. All steps have seed 0; the best and its two neighbours have all
seeds, or as many as the number in brackets says. Empty cells have not been run. "diverged": no
finite chain was left.

Mean perplexities at the best steps, in their order (published: {published}):

{order}

{remark}
"""


def perplexity(topics, test):
    return document_completion_perplexity(topics, test, doc_topic_prior=ALPHA, random_state=0)


class Clock:
    """Processor time, less what was spent on scoring."""

    def __init__(self, seconds):
        self.end, self.start = seconds, time.process_time()

    def spent(self):
        return time.process_time() - self.start

    def pause(self, work):
        before = time.process_time()
        work()
        self.start += time.process_time() - before


def warm_up_compiler(train):
    few = LatentDirichletAllocation(2, n_draws=1, burn_in=1, thinning=1, compiled=True)
    few.fit(train[:50])
    few.set_params(algorithm="gibbs").fit(train[:50])


def run_blocks(fit_block, test, seconds):
    """Blocks of equal time; ``fit_block(share)`` goes on for a share of a block's time.

    Returns the perplexity of each block's last topics, and of the draws of the last half averaged.
    """
    clock, topics, curve = Clock(seconds), [], []
    for block in range(1, BLOCKS + 1):
        while clock.spent() < seconds * block / BLOCKS:
            last = fit_block()
        topics.append(last)
        clock.pause(lambda: curve.append(perplexity(topics[-1], test)))
    averaged = perplexity(np.stack(topics[BLOCKS // 2 :]), test)
    return {"curve": curve, "perplexity": averaged}


def run_sgmcmc(parameters, train, test, seconds, seed):
    lda = LatentDirichletAllocation(
        K, doc_topic_prior=ALPHA, topic_word_prior=BETA, warm_start=True, compiled=True,
        n_draws=1, burn_in=0, thinning=10, random_state=seed, **parameters,
    )  # fmt: skip
    steps = 0

    def fit_block():
        nonlocal steps
        steps += lda.fit(train).n_steps_
        return lda.posterior_["components"][0, 0]

    try:
        return run_blocks(fit_block, test, seconds) | {"steps": steps}
    except SamplingError:
        return {"curve": [np.nan] * BLOCKS, "perplexity": np.nan}


def run_gibbs(train, test, seconds, seed):
    from skbayes_sgmcmc.models.topics.gibbs import GibbsChain

    chain = GibbsChain(train, K, ALPHA, BETA, np.random.SeedSequence(seed), compiled=True)

    def fit_block():
        chain.run(1)
        return chain.topics()

    return run_blocks(fit_block, test, seconds)


def run_vb(train, test, seconds, seed):
    vb = OnlineVB(
        K, doc_topic_prior=ALPHA, topic_word_prior=BETA, random_state=seed, batch_size=100,
        total_samples=train.shape[0],
    )  # fmt: skip
    at = 0

    def fit_block():
        nonlocal at
        vb.partial_fit(train[at : at + 100])
        at = at + 100 if at + 100 < train.shape[0] else 0
        return vb.components_

    return run_blocks(fit_block, test, seconds)


def cell(args, corpus, documents, name, seed, batch=None, step=None):
    """The numbers of one run, done now or before."""
    train, test = documents
    seconds = args.cpu_seconds
    where = f"{corpus}-{name}-{batch}-{step}-{seed}-{seconds}s".replace(", ", "-")

    def run():
        if name == "Gibbs":
            return run_gibbs(train, test, seconds, seed)
        if name == "online VB":
            return run_vb(train, test, seconds, seed)
        parameters = METHODS.get(name) or DEFAULTS[name]
        eta = "auto" if step is None else step
        if name == "SGRLD":
            eta = step * BETA * train.shape[1]
        return run_sgmcmc(
            parameters | {"step_size": eta, "batch_size": batch}, train, test, seconds, seed
        )

    return finished(args, where, run, corpus=corpus, method=name, batch=batch, step=step, seed=seed,
                    cpu_seconds=seconds)  # fmt: skip


def score(scores, seeds):
    """A table's cell, with the number of runs if some are missing."""
    if not scores:
        return ""
    text = f"> {WORST:.0f}" if np.mean(scores) > WORST else mean_sd(scores, 1)
    return text if len(scores) == seeds else f"{text} ({len(scores)})"


def fixed(args, run, name, *batch):
    """A row without steps."""
    found = [run(name, seed, *batch) for seed in args.seeds]
    scores = [one["perplexity"] for one in found if one is not None]
    return [name, *(batch or [""]), score(scores, len(args.seeds)), ""]


def one_corpus(args, corpus, documents):
    """Markdown of one corpus, the searches for steps, and the curves of the best steps."""
    searches, curves, others = {}, {}, []
    run = partial(cell, args, corpus, documents)
    for batch in args.batches:
        for name in METHODS:

            def measure(step, seed, name=name, batch=batch):
                found = run(name, seed, batch, step)
                return None if found is None else found["perplexity"]

            scores = search_steps(measure, args.steps, LIMITS, args.seeds, grow=not args.quick)
            if scores:
                searches[batch, name] = scores
                best = run(name, args.seeds[0], batch, best_step(scores))
                curves[batch, name] = best["curve"]
        others += [fixed(args, run, name, batch) for name in DEFAULTS]
    others += [fixed(args, run, name) for name in ("Gibbs", "online VB")]
    steps = sorted({step for scores in searches.values() for step in scores}, reverse=True)
    rows = [
        [name, batch, score(scores[best_step(scores)], len(args.seeds)), f"{best_step(scores):g}",
         *(score(scores.get(step), len(args.seeds)) for step in steps)]
        for (batch, name), scores in searches.items()
    ]  # fmt: skip
    rows += [row + [""] * len(steps) for row in others]
    header = [corpus, "batch", "best", "at eta", *(f"{step:g}" for step in steps)]
    return markdown_table(header, rows), searches, curves


def order(searches):
    """For each corpus and size of batches, the methods from the best to the worst."""
    found = {}
    for (corpus, batch, name), scores in searches.items():
        mean = np.nan_to_num(np.mean(scores[best_step(scores)]), nan=np.inf)
        found.setdefault(f"{corpus}, batches of {batch}", []).append((mean, name))
    return "\n".join(
        f"* {where}: {', '.join(f'{name} {mean:.0f}' for mean, name in sorted(methods))}."
        for where, methods in found.items()
    )


def draw_figure(args, corpus, curves):
    figure, axes = new_figure(len(args.batches))
    seconds = np.arange(1, BLOCKS + 1) * args.cpu_seconds / BLOCKS
    for ax, batch in zip(axes, args.batches, strict=True):
        for name in METHODS:
            if (batch, name) in curves:
                curve = np.asarray(curves[batch, name], dtype=float)
                ax.plot(seconds, np.where(curve < WORST, curve, np.nan), label=name)
        ax.set(xlabel="seconds", title=f"batches of {batch}", yscale="log")
    axes[0].set_ylabel("perplexity of one draw")
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside right", fontsize="small")
    caption = f"Perplexity of the latest draw on {corpus}, each method at its best step, seed 0."
    return save_figure(args, figure, f"m2_lda_{corpus}", caption)


def add_options(parser):
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))


def main():
    args = parse_args(
        __doc__, seeds=3, quick_seeds=1, numbers={"cpu-seconds": (10, 1)}, parts=CORPORA,
        runs="m2_lda", more=add_options,
        constants={"n_topics": K, "alpha": ALPHA, "beta": BETA, "diffusion": D,
                   "test_documents": TEST_DOCUMENTS, "blocks": BLOCKS},
    )  # fmt: skip
    warnings.simplefilter("ignore", SamplingWarning)  # of ten steps at a time
    tables, figures, searches, args.steps = [], [], {}, STEPS
    if args.short:
        args.parts, args.batches, args.steps = args.parts[:1], args.batches[:1], STEPS[1:2]
    for corpus in args.parts:
        train, test, _ = load_documents(corpus)
        warm_up_compiler(train)
        documents = train, test[:TEST_DOCUMENTS]
        text, found, curves = one_corpus(args, corpus, documents)
        tables.append(text)
        searches |= {(corpus, *which): scores for which, scores in found.items()}
        figures.append(draw_figure(args, corpus, curves))
    if not args.quick:
        check_best_steps("m2_lda", searches)
    body = BODY.format(
        n_topics=K, alpha=ALPHA, beta=BETA, d=D, seconds=args.cpu_seconds, half=BLOCKS // 2,
        test=TEST_DOCUMENTS, tables="\n\n".join(tables), order=order(searches),
        remark="" if args.quick else REMARK.strip(),
        published=", ".join(f"{name} {value}" for name, value in PUBLISHED.items()),
    )  # fmt: skip
    write_results(args, "m2_lda", "M2: topics of text", body, figures)


if __name__ == "__main__":
    main()
