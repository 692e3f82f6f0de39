"""How many Gibbs sweeps a minibatch of documents needs: bias of the gradient of topics.

SKBAYES_DATA=folder python examples/benchmarks/lda_sweeps.py
"""

import numpy as np
import torch
from _common import load_documents, markdown_table, parse_args, write_results

from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc.models.topics.documents import Tokens, topic_gradient
from skbayes_sgmcmc.models.topics.gibbs import GibbsChain
from skbayes_sgmcmc.models.topics.lda import LDAModel
from skbayes_sgmcmc.models.topics.parametrizations import ExpandedNatural, GammaTopics

BETA, BATCH, N_BATCHES = 0.05, 100, 12
SWEEPS, MANY = (0, 1, 2, 3, 5, 8, 12, 20), 60
#: corpus, its name in the page, topics, alpha, and sweeps of a long run: small alphas mix slowly
CASES = (
    ("20news", "20 Newsgroups", 128, 0.1, 60),
    ("reuters", "Reuters", 50, 0.02, 200),
)  # fmt: skip
BODY = """
Topics after {corpus_sweeps} sweeps of collapsed Gibbs sampling of the corpus, {n_batches}
minibatches of {batch} documents. Gradients of natural parameters in the coordinates of
`step_size="auto"`. Squared bias against many sweeps, over the variance of the gradient between
minibatches (both summed over parameters): of one minibatch, and of the mean over minibatches, which
is the part that does not average out. Products of two independent estimates, {repeats} repetitions
each, so that their noise cancels. "Compiled" samples one word after another. "At once" alternates
between all words and the proportions. Both start at the fixed point.

{tables}
"""


class Case:
    """Topics of a corpus, and minibatches of it."""

    def __init__(self, corpus, n_topics, alpha, many, corpus_sweeps, repeats):
        train, _, _ = load_documents(corpus)
        chain = GibbsChain(train, n_topics, alpha, BETA, np.random.SeedSequence(0), compiled=True)
        chain.run(corpus_sweeps)
        topics = torch.from_numpy(chain.n_wk + BETA).float()
        self.topics = topics / topics.sum(0)
        frequency = (np.asarray(train.sum(axis=0)).ravel() + 1.0) / train.shape[0]
        self.scale = torch.from_numpy(1.0 / np.sqrt(frequency)).float()[:, None]
        prior = GammaTopics(BETA)
        model = LDAModel(
            ExpandedNatural(n_topics, train.shape[1], prior), frequency, alpha, doc_sweeps=0
        )
        data = model.make_data(train, None, None, torch.float32, "cpu")
        self.rng = ChainRandom([np.random.SeedSequence(1)])
        minibatches = Minibatches(data, BATCH)
        rows = minibatches.indices(N_BATCHES, self.rng)
        self.batches = list(minibatches.chunk(rows, N_BATCHES, self.rng))
        self.alpha, self.many, self.repeats = alpha, many, repeats

    def gradient(self, batch, n_sweeps, compiled):
        """One estimate (words, topics), in the preconditioner's coordinates."""
        topics, tokens = self.topics, Tokens.of(batch.fields["counts"], 1)
        given = tokens, self.alpha, n_sweeps, self.rng
        counts = topic_gradient(topics[None], *given, compiled=compiled)[0] * topics
        return (counts - topics * counts.sum(0)) * self.scale

    def means(self, n_sweeps, compiled):
        """Mean gradient of every minibatch over the repetitions, twice."""
        return [
            torch.stack([
                sum(self.gradient(batch, n_sweeps, compiled) for _ in range(self.repeats))
                / self.repeats
                for batch in self.batches
            ])
            for _ in range(2)
        ]  # fmt: skip

    def table(self):
        many = self.means(self.many, True)
        noise = float(many[0].var(0).sum())
        rows = []
        for n_sweeps in SWEEPS:
            row = [n_sweeps]
            for compiled in (True, False):
                found = self.means(n_sweeps, compiled)
                a, b = (x - y for x, y in zip(found, many, strict=True))
                one = float((a * b).sum()) / len(self.batches) / noise
                common = float((a.mean(0) * b.mean(0)).sum()) / noise
                row += [f"{one:.4f}", f"{common:.5f}"]
            rows.append(row)
        header = ["sweeps", "compiled, one", "compiled, mean", "at once, one", "at once, mean"]
        return markdown_table(header, rows)


def main():
    args = parse_args(
        __doc__, seeds=1, quick_seeds=1, numbers={"repeats": (12, 2), "corpus-sweeps": (60, 2)}
    )
    tables = []
    for corpus, name, n_topics, alpha, many in CASES:
        case = Case(corpus, n_topics, alpha, many, args.corpus_sweeps, args.repeats)
        tables.append(
            f"**{name}**, {n_topics} topics, alpha = {alpha}, against {many} sweeps:\n\n"
            + case.table()
        )
    body = BODY.format(
        corpus_sweeps=args.corpus_sweeps, n_batches=N_BATCHES, batch=BATCH, repeats=args.repeats,
        tables="\n\n".join(tables),
    )  # fmt: skip
    spread = "Seed 0."
    write_results(args, "lda_sweeps", "Gibbs sweeps over a minibatch", body, spread=spread)


if __name__ == "__main__":
    main()
