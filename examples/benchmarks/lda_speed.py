"""Topics of 20 Newsgroups: documents a second and held-out perplexity, beside other packages.

SKBAYES_DATA=folder python examples/benchmarks/lda_speed.py

The others are in requirements-peers.txt; those that are not installed are left out.
"""

import time
from functools import partial
from importlib.util import find_spec
from itertools import cycle

import numpy as np
from _common import finished, load_documents, markdown_table, mean_sd, parse_args, write_results
from sklearn.decomposition import LatentDirichletAllocation as OnlineVB
from sklearn.utils import gen_batches

from skbayes_sgmcmc import LatentDirichletAllocation, document_completion_perplexity

K, ALPHA, BETA, BATCH = 128, 0.1, 0.05, 100
TEST_DOCUMENTS = 1000
BODY = """
20 Newsgroups (11,314 documents, 2,000 words), {n_topics} topics, alpha = {alpha} and beta = {beta}
for all; all were measured with one thread in one run. One pass: batches of {batch} documents
(gensim: chunks of {batch}; tomotopy: a sweep of collapsed Gibbs sampling). Perplexity is computed
by one function for all packages, document completion with alpha = {alpha} on {test} test documents.
Of ours and our Gibbs sampling up to 20 draws of the last half of the {seconds} s are averaged,
which the others do not offer. "Last topics" are single ones for all.

{table}

"x scikit-learn" compares documents a second in one pass.
"""


def perplexity(topics, test):
    return document_completion_perplexity(topics, test, doc_topic_prior=ALPHA, random_state=0)


class Ours:
    """Batches of a warm fit, each of ``STEPS`` steps."""

    steps = 20

    def __init__(self, train, seed, **parameters):
        self.train = train
        self.lda = LatentDirichletAllocation(
            K, doc_topic_prior=ALPHA, topic_word_prior=BETA, batch_size=BATCH, warm_start=True,
            n_draws=1, burn_in=0, thinning=self.steps, compiled=True, random_state=seed,
            **parameters,
        )  # fmt: skip

    def work(self):
        self.lda.fit(self.train)
        return self.steps * BATCH

    def topics(self):
        return self.lda.posterior_["components"][0, 0]


class Stream(Ours):
    """Ours by ``partial_fit``, a thousand documents at a time."""

    def __init__(self, train, seed, **parameters):
        super().__init__(train, seed, **parameters)
        self.lda.set_params(total_samples=train.shape[0])
        self.parts = cycle(gen_batches(train.shape[0], 1000))

    def work(self):
        rows = self.train[next(self.parts)]
        self.lda.partial_fit(rows)
        return rows.shape[0]


class Gibbs:
    def __init__(self, train, seed):
        from skbayes_sgmcmc.models.topics.gibbs import GibbsChain

        self.n = train.shape[0]
        self.chain = GibbsChain(train, K, ALPHA, BETA, np.random.SeedSequence(seed), compiled=True)

    def work(self):
        self.chain.run(1)
        return self.n

    def topics(self):
        return self.chain.topics()


class ScikitLearn:
    def __init__(self, train, seed):
        self.train, self.parts = train, cycle(gen_batches(train.shape[0], BATCH))
        self.vb = OnlineVB(
            K, doc_topic_prior=ALPHA, topic_word_prior=BETA, random_state=seed,
            total_samples=train.shape[0],
        )  # fmt: skip

    def work(self):
        rows = self.train[next(self.parts)]
        self.vb.partial_fit(rows)
        return rows.shape[0]

    def topics(self):
        return self.vb.components_


class Gensim:
    def __init__(self, train, seed):
        from gensim.models import LdaModel

        self.corpus = [list(zip(row.indices.tolist(), row.data.astype(int).tolist(), strict=True))
                       for row in train]  # fmt: skip
        self.parts = cycle(gen_batches(train.shape[0], BATCH))
        names = {w: str(w) for w in range(train.shape[1])}
        self.lda = LdaModel(
            id2word=names, num_topics=K, alpha=[ALPHA] * K, eta=BETA, chunksize=BATCH,
            eval_every=None, random_state=seed,
        )  # fmt: skip

    def work(self):
        part = self.corpus[next(self.parts)]
        self.lda.update(part)
        return len(part)

    def topics(self):
        return self.lda.get_topics()


class Tomotopy:
    def __init__(self, train, seed):
        import tomotopy

        self.n_words, self.n = train.shape[1], train.shape[0]
        self.lda = tomotopy.LDAModel(k=K, alpha=ALPHA, eta=BETA, seed=seed)
        self.lda.optim_interval = 0
        for row in train:
            if row.nnz:
                words = np.repeat(row.indices, row.data.astype(int))
                self.lda.add_doc([str(w) for w in words])

    def work(self):
        self.lda.train(1, workers=1)
        return self.n

    def topics(self):
        out = np.full((K, self.n_words), 1e-12)
        columns = [int(word) for word in self.lda.used_vocabs]
        for k in range(K):
            out[k, columns] = self.lda.get_topic_word_dist(k)
        return out


PACKAGES = {
    "ours, expanded mean": (lambda X, s: Ours(X, s, parametrization="expanded_mean"), None),
    "ours, expanded natural": (lambda X, s: Ours(X, s, parametrization="expanded_natural"), None),
    "ours, a stream": (lambda X, s: Stream(X, s, parametrization="expanded_mean"), None),
    "ours, Gibbs": (Gibbs, None),
    "scikit-learn, online VB": (ScikitLearn, None),
    "gensim, online VB": (Gensim, "gensim"),
    "tomotopy, Gibbs": (Tomotopy, "tomotopy"),
}


def measure(make, train, test, seconds, seed):
    """Speed and perplexity after one pass, and perplexity after so many seconds of work."""
    make(train[:300], seed).work()  # what is compiled or loaded at first use
    model, spent, done, numbers, kept = make(train, seed), 0.0, 0, {}, []
    while spent < seconds or done < train.shape[0]:
        start = time.perf_counter()
        done += model.work()
        spent += time.perf_counter() - start
        if done >= train.shape[0] and not numbers:
            numbers = {"speed": done / spent, "one pass": perplexity(model.topics(), test)}
        if spent >= seconds * (0.5 + 0.025 * len(kept)):
            kept.append(model.topics().copy())
    single = perplexity(model.topics(), test)
    averages = isinstance(model, Ours | Gibbs)
    numbers["last"] = perplexity(np.stack(kept[-20:]), test) if averages else single
    return numbers | {"single": single, "passes": done / train.shape[0]}


def main():
    args = parse_args(
        __doc__, seeds=1, quick_seeds=1, numbers={"wall-seconds": (60, 3)}, runs="lda_speed",
        parts=[name.replace(" ", "_") for name in PACKAGES],
        constants={"n_topics": K, "alpha": ALPHA, "beta": BETA, "batch": BATCH,
                   "test_documents": TEST_DOCUMENTS},
    )  # fmt: skip
    train, test, _ = load_documents("20news")
    test, rows, base = test[:TEST_DOCUMENTS], [], None
    found = {}
    for name, (make, module) in PACKAGES.items():
        runs_here = module is None or find_spec(module) or args.no_new
        if name.replace(" ", "_") in args.parts and runs_here:
            found[name] = [
                finished(
                    args,
                    f"{name.replace(', ', '-').replace(' ', '-')}-{seed}-{args.wall_seconds}s",
                    partial(measure, make, train, test, args.wall_seconds, seed),
                    method=name,
                    seed=seed,
                    wall_seconds=args.wall_seconds,
                )
                for seed in args.seeds
            ]
            if None in found[name]:
                del found[name]
    base = np.mean([run["speed"] for run in found.get("scikit-learn, online VB", [{"speed": 0}])])
    for name, runs in found.items():
        speed = np.mean([run["speed"] for run in runs])
        rows.append([
            name, f"{speed:,.0f}", f"{speed / base:.1f}" if base else "",
            *(mean_sd([run[which] for run in runs], 1) for which in ("one pass", "last", "single")),
            f"{np.mean([run['passes'] for run in runs]):.0f}",
        ])  # fmt: skip
    after = f"{args.wall_seconds} s"
    header = ["", "documents/s", "x scikit-learn", "perplexity, one pass", after,
              f"{after}, last topics", "passes"]  # fmt: skip
    body = BODY.format(
        n_topics=K, alpha=ALPHA, beta=BETA, batch=BATCH, test=TEST_DOCUMENTS,
        seconds=args.wall_seconds, table=markdown_table(header, rows),
    )  # fmt: skip
    write_results(args, "lda_speed", "Speed of topic models on 20 Newsgroups", body)


if __name__ == "__main__":
    main()
