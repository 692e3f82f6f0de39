"""Topics by default: time and held-out perplexity beside scikit-learn's variational inference.

    SKBAYES_DATA=folder python examples/benchmarks/lda_defaults.py

All estimators have their defaults but for the number of topics and the seed: priors of 1 / topics,
ten passes of scikit-learn's. ``longer`` is ours with four times the steps, which says what the
default leaves undone.
"""

import time

import numpy as np
import torch
from _common import finished, load_documents, markdown_table, mean_sd, parse_args, write_results
from sklearn.decomposition import LatentDirichletAllocation as VariationalBayes

from skbayes_sgmcmc import (
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    document_completion_perplexity,
)

CORPORA = {"20news": "20 Newsgroups", "nips": "NIPS", "reuters": "Reuters"}
TOPICS = 10, 50
TEST_DOCUMENTS = 1000
METHODS = {
    "batch": "scikit-learn, batch",
    "online": "scikit-learn, online",
    "ours": "ours",
    "longer": "ours, four times the steps",
    "gibbs": 'ours, `algorithm="gibbs"`',
    "dpfa": "deep Poisson factor analysis",
}
BODY = """
Corpora of {sizes}. Perplexity is that of document completion on held-out documents, by one
function for all ({test} documents at most), with the method's own priors; lower is better. Topics
of scikit-learn are its estimate, of ours 20 draws, averaged. Seconds are processor time of one
thread, compilation included; "ratio" is that to scikit-learn's batch method.

{tables}
"""


def estimator(args, method, n_topics, seed, n_steps):
    """The estimator of a row; ``n_steps`` are the steps of ours by default."""
    budget = {"max_steps": 50 if args.short else None, "random_state": seed}
    if method in ("batch", "online"):
        return VariationalBayes(n_topics, learning_method=method, random_state=seed)
    if method == "dpfa":
        return DeepPoissonFactorAnalysis(n_topics, **budget)
    if method == "gibbs":
        return LatentDirichletAllocation(n_topics, algorithm="gibbs", **budget)
    if method == "longer" and not args.short:
        budget |= {"burn_in": 2 * n_steps, "n_draws": 100, "thinning": n_steps // 50}
    return LatentDirichletAllocation(n_topics, **budget)


def one(args, corpus, n_topics, method, seed, n_steps):
    train, test, _ = load_documents(corpus)
    if args.short:
        train = train[:200]
    test = test[:TEST_DOCUMENTS]
    model = estimator(args, method, n_topics, seed, n_steps)
    start = time.process_time()
    model.fit(train)
    seconds = time.process_time() - start
    if method in ("batch", "online"):
        topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
        prior = 1.0 / n_topics
        perplexity = document_completion_perplexity(
            topics, test, doc_topic_prior=prior, random_state=0
        )
        return {"fit_s": seconds, "perplexity": float(perplexity)}
    return {
        "fit_s": seconds,
        "perplexity": model.perplexity(test, random_state=0),
        "n_steps": model.n_steps_,
        "batch_size": getattr(model, "batch_size_", train.shape[0]),
    }


def table(args, corpus, n_topics):
    """One row a method: seconds, their ratio, perplexity, steps and documents of a step."""
    found = {method: [] for method in METHODS}
    for seed in args.seeds:
        n_steps = 0
        for method in METHODS:
            numbers = finished(
                args, f"{corpus}-{n_topics}-{method}-{seed}",
                lambda method=method, seed=seed, n_steps=n_steps:
                    one(args, corpus, n_topics, method, seed, n_steps),
                corpus=corpus, topics=n_topics, method=method, seed=seed,
            )  # fmt: skip
            if numbers is not None:
                found[method].append(numbers)
                n_steps = numbers["n_steps"] if method == "ours" else n_steps
    base = np.mean([run["fit_s"] for run in found["batch"]])
    rows = []
    for method, runs in found.items():
        if not runs:
            continue
        seconds = [run["fit_s"] for run in runs]
        steps = (
            f"{runs[0]['n_steps']:,} of {runs[0]['batch_size']:,}" if "n_steps" in runs[0] else ""
        )
        rows.append([METHODS[method], mean_sd(seconds, 1), f"{np.mean(seconds) / base:.1f}",
                     mean_sd([run["perplexity"] for run in runs], 1), steps])  # fmt: skip
    header = ["", "s", "ratio", "perplexity", "steps, of documents"]
    return f"**{CORPORA[corpus]}**, {n_topics} topics:\n\n" + markdown_table(header, rows)


def main():
    torch.set_num_threads(1)
    args = parse_args(__doc__, 2, 1, runs="lda_defaults", constants={"test": TEST_DOCUMENTS})
    corpora = ["reuters"] if args.quick else list(CORPORA)
    tables = [table(args, corpus, n_topics) for corpus in corpora for n_topics in TOPICS]
    sizes = []
    for corpus in corpora:
        train = load_documents(corpus)[0]
        sizes.append(f"{train.shape[0]:,} documents, {train.shape[1]:,} words and "
                     f"{int(train.sum()):,} occurrences ({CORPORA[corpus]})")  # fmt: skip
    body = BODY.format(
        sizes="; ".join(sizes), test=f"{TEST_DOCUMENTS:,}", tables="\n\n".join(tables)
    )
    write_results(args, "lda_defaults", "Topics by default", body)


if __name__ == "__main__":
    main()
