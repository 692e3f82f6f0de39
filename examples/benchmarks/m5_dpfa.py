"""Experiment M5: deep Poisson factor analysis, splitting against Euler (Li et al. 2016b).

SKBAYES_DATA=folder python examples/benchmarks/m5_dpfa.py
"""

import math
import resource
import time
from functools import partial

import numpy as np
from _common import (
    check_best_steps,
    finished,
    load_documents,
    markdown_table,
    mean_sd,
    parse_args,
    write_results,
)

from skbayes_sgmcmc import (
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    PosteriorSamples,
    SamplingError,
)
from skbayes_sgmcmc.samplers import MSGNHT

SIZES, ALPHA, BETA, D = (128, 64, 32), 0.1, 0.05, 40.0
CORPORA = ("20news", "nips")
TEST_DOCUMENTS, BATCH, BLOCKS = 500, 100, 12
STREAM_PARTS = 20
STEPS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
DEEP = {"n_components": SIZES}
LDA = {"n_components": SIZES[0], "doc_topic_prior": ALPHA}
MEAN, NATURAL = ({"parametrization": f"expanded_{kind}"} for kind in ("mean", "natural"))
METHODS = {
    "DPFA, SGRLD": DEEP | MEAN,
    "DPFA, mSGNHT-S": DEEP | NATURAL,
    "DPFA, mSGNHT-E": DEEP | NATURAL | {"integrator": "euler"},
    "DPFA, SGRLD, p = 0.5": DEEP | MEAN | {"success_probability": 0.5},
    "PFA, SGRLD": {"n_components": SIZES[:1]} | MEAN,
    "LDA, SGRLD": LDA | MEAN,
    "LDA, mSGNHT-S": LDA | NATURAL,
}
#: names of finished runs have none of these
NO_SPACE = str.maketrans({",": "-", " ": None, "=": None})
INTEGRATORS = {"mSGNHT-S": "splitting", "mSGNHT-E": "euler"}
BODY = """
Networks {sizes}, LDA and PFA with {K} topics; beta = {beta}, alpha = {alpha} of LDA; batches of
{batch}. Held-out perplexity is computed by document completion, by one function for all methods, on
{test} test documents. The prior of each document's p_j is uniform on (0, 1), except in the row p =
0.5, which is the published setting. All runs use one thread.

## Against LDA

Steps are automatic. Every run has {seconds} s of processor time (scoring is not counted) and starts
at random. "One pass" is the last draw after a pass over the documents, "equal time" the average
over the draws of the last half, one in each of {half} blocks, and "last draw" the last of these.

{against}

## Splitting against Euler

DPFA in natural parameters with the prior N(0.1, 1) and D = {d}, without a preconditioner, as
published; {short} s each, else as above. `step_size` is eta = N h^2, the same few for all.

{integrators}

{edges}

Empty cells have not been run. "diverged": no finite chain was left. Published (Wikipedia, 10
million documents, vocabulary 7,702, one pass; only as a figure): mSGNHT-S converges faster than
mSGNHT-E at both step sizes, 1e-4 and 1e-5, and DPFA is below LDA, the shallow baseline.

## A stream

20 Newsgroups in calls of {call} documents, twice over, by `partial_fit` (DPFA, SGRLD), nothing kept
of them: peak memory of the process after each quarter, {memory} MiB; {rate} documents a second;
perplexity {stream} at the end.

{remark}
"""
REMARK = """
On 20 Newsgroups DPFA has a lower perplexity than LDA in the same parametrisation after one pass. At
equal time it is 4% lower with SGRLD and level with mSGNHT-S. On NIPS it is lower after one pass.
At equal time, in which LDA sees two to three times as many documents, it is 1% above LDA with SGRLD
and 11% above with mSGNHT-S. The improvement is due to r and p_j: without the network (PFA)
perplexity is the same to 1%, and with p = 0.5, as published, long documents are fitted badly.
Settings that were tried earlier, with 64 topics and 8 passes: five Gibbs sweeps from the network's
prior (perplexity 797), fifteen (767), and fifteen from a mean field, the present setting (733).

With the published settings splitting is below Euler's scheme because it stays stable at steps at
which Euler's scheme diverges: at 30 on 20 Newsgroups, a thousand times the largest stable step of
Euler's scheme among these, and at 10 on NIPS, three hundred times or more. At steps that both
tolerate they are equal. The best steps at equal time are inside the grid: beyond them, splitting
gets worse (100 on 20 Newsgroups) or diverges (30 on NIPS). Plain steps learn slowly: a minute of
automatic steps, in the coordinates of the preconditioner, gets further. Euler's scheme diverges
with automatic steps, too (and so it does for LDA in natural parameters). It is stable for frictions
below 2 per step. With splitting, after 300 steps on 20 Newsgroups, a thousandth of the topics'
parameters have a friction above 1.7, caused by the noise of words that come in bursts, and all of
the network's parameters have less than 0.5.
"""


class Clock:
    """Processor time, less what was spent on scoring."""

    def __init__(self):
        self.start = time.process_time()

    def spent(self):
        return time.process_time() - self.start

    def pause(self, work):
        before = time.process_time()
        result = work()
        self.start += time.process_time() - before
        return result


def estimator(parameters, seed):
    parameters = {"batch_size": BATCH, "compiled": True, "topic_word_prior": BETA} | parameters
    is_lda = "doc_topic_prior" in parameters
    kind = LatentDirichletAllocation if is_lda else DeepPoissonFactorAnalysis
    return kind(warm_start=True, n_draws=1, burn_in=0, thinning=1, random_state=seed, **parameters)


def run(parameters, train, test, seconds, seed):
    """Perplexity after a pass, of the last draw, and of the draws of the last half averaged."""
    estimator(parameters | {"step_size": "auto"}, seed).fit(train[:200])  # compiles
    model, kept = estimator(parameters, seed), []
    pass_steps = math.ceil(train.shape[0] / BATCH)
    clock = Clock()
    try:
        model.set_params(thinning=pass_steps).fit(train)
        first = clock.spent()
        numbers = {"rate": train.shape[0] / first}
        numbers["one pass"] = clock.pause(lambda: model.perplexity(test, random_state=0))
        model.set_params(thinning=max(1, pass_steps // 10))
        for block in range(1, BLOCKS + 1):
            while clock.spent() < seconds * block / BLOCKS:
                model.fit(train)
            kept.append(model.posterior_.draws)
    except SamplingError:
        return {"one pass": np.nan, "last draw": np.nan, "perplexity": np.nan, "rate": np.nan}
    numbers["last draw"] = model.perplexity(test, random_state=0)
    kept = kept[BLOCKS // 2 :]
    draws = {name: np.concatenate([one[name] for one in kept], 1) for name in kept[0]}
    model.posterior_, model.n_draws_ = PosteriorSamples(draws), len(kept)
    return numbers | {"perplexity": model.perplexity(test, random_state=0)}


def stream(train, test, seed):
    """Peak memory after each quarter of a stream, and documents a second."""
    model = estimator(METHODS["DPFA, SGRLD"], seed)
    model.set_params(n_draws=5, total_samples=2 * train.shape[0])
    n, memory, spent = train.shape[0] // STREAM_PARTS, [], 0.0
    for call in range(2 * STREAM_PARTS):
        start = time.process_time()
        at = call % STREAM_PARTS * n
        model.partial_fit(train[at : at + n])
        spent += time.process_time() - start
        if (call + 1) % (STREAM_PARTS // 2) == 0:
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
    rate = 2 * STREAM_PARTS * n / spent
    return {"memory": memory, "rate": rate, "perplexity": model.perplexity(test, random_state=0)}


def against(args, corpus, documents):
    rows = []
    for name, parameters in METHODS.items():
        found = [
            finished(args, f"{corpus}-{name}-{s}-{args.cpu_seconds}s".translate(NO_SPACE),
                     partial(run, parameters, *documents, args.cpu_seconds, s),
                     corpus=corpus, method=name, seed=s, cpu_seconds=args.cpu_seconds)
            for s in args.seeds
        ]  # fmt: skip
        if None in found:
            continue
        columns = [("one pass", 1), ("perplexity", 1), ("last draw", 1), ("rate", 0)]
        rows.append([name, *(mean_sd([one[c] for one in found], n) for c, n in columns)])
    header = [corpus, "one pass", "equal time", "last draw", "documents/s"]
    return markdown_table(header, rows)


def integrators(args, corpus, documents):
    """Markdown of one corpus, and the perplexities by step."""
    rows, searches, seconds = [], {}, args.short_seconds
    published = DEEP | NATURAL | {"prior": "normal", "sampler": MSGNHT(diffusion=D)}
    for name, integrator in INTEGRATORS.items():
        for measure in ("one pass", "perplexity"):
            row = [f"{name}, {'equal time' if measure == 'perplexity' else measure}"]
            for step in args.steps:
                parameters = published | {"integrator": integrator, "step_size": step}
                found = [
                    finished(args, f"{corpus}-{name}-{step}-{s}-{seconds}s",
                             partial(run, parameters, *documents, seconds, s),
                             corpus=corpus, method=name, step=step, seed=s, cpu_seconds=seconds)
                    for s in args.seeds
                ]  # fmt: skip
                scores = [] if None in found else [one[measure] for one in found]
                row.append(mean_sd(scores, 1) if scores else "")
                if scores:
                    searches.setdefault(f"{corpus}, {name}, {measure}", {})[step] = scores
            rows.append(row)
    header = [corpus, *(f"eta = {step:g}" for step in args.steps)]
    return markdown_table(header, rows), searches


def main():
    args = parse_args(
        __doc__, seeds=3, quick_seeds=1, parts=CORPORA, runs="m5_dpfa",
        numbers={"cpu-seconds": (60, 1), "short-seconds": (20, 1)},
        constants={"sizes": SIZES, "alpha": ALPHA, "beta": BETA, "diffusion": D, "batch": BATCH,
                   "blocks": BLOCKS, "test_documents": TEST_DOCUMENTS},
    )  # fmt: skip
    args.steps = STEPS
    if args.short:
        args.parts, args.steps = args.parts[:1], STEPS[:1]
    tables, searches = {"against": [], "integrators": []}, {}
    streamed = None
    for corpus in args.parts:
        train, test, _ = load_documents(corpus)
        documents = train, test[:TEST_DOCUMENTS]
        if corpus == "20news":
            streamed = finished(args, "stream", partial(stream, *documents, 0), corpus=corpus,
                                seed=0, calls=2 * STREAM_PARTS)  # fmt: skip
        tables["against"].append(against(args, corpus, documents))
        table, found = integrators(args, corpus, documents)
        tables["integrators"].append(table)
        searches |= found
    streamed = streamed or {"memory": [], "rate": np.nan, "perplexity": np.nan}
    body = BODY.format(
        sizes="-".join(map(str, SIZES)), K=SIZES[0], beta=BETA, alpha=ALPHA, batch=BATCH, d=D,
        test=f"at most {TEST_DOCUMENTS}", seconds=args.cpu_seconds, short=args.short_seconds,
        half=BLOCKS // 2, call=565, memory=", ".join(f"{m:.0f}" for m in streamed["memory"]),
        rate=f"{streamed['rate']:,.0f}", stream=f"{streamed['perplexity']:.1f}",
        edges="" if args.quick else check_best_steps("m5_dpfa", searches),
        remark=REMARK.strip(), **{name: "\n\n".join(parts) for name, parts in tables.items()},
    )  # fmt: skip
    write_results(args, "m5_dpfa", "M5: deep Poisson factor analysis", body)


if __name__ == "__main__":
    main()
