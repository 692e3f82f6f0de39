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

K, ALPHA, BETA, BATCH = 128, 0.1, 0.05, 100
SWEEPS, MANY = (0, 1, 2, 3, 5, 8, 12, 20), 60
BODY = """
20 Newsgroups, {n_topics} topics after {corpus_sweeps} sweeps of collapsed Gibbs sampling, alpha =
{alpha}, {n_batches} minibatches of {batch} documents. Gradients of natural parameters in the
coordinates of `step_size="auto"`. Squared bias against {many} sweeps, over the variance of the
gradient between minibatches (both summed over parameters): of one minibatch, and of the mean over
minibatches, which is the part that does not average out. Products of two independent estimates,
{repeats} repetitions each, so that their noise cancels. "Compiled" samples one word after another.
"At once" alternates between all words and the proportions and starts at the fixed point.

{table}
"""


def gradient(topics, batch, scale, n_sweeps, rng, compiled):
    """One estimate (words, topics), in the preconditioner's coordinates."""
    tokens = Tokens.of(batch.fields["counts"], 1)
    found = topic_gradient(topics[None], tokens, ALPHA, n_sweeps, rng, compiled=compiled)[0]
    counts = found * topics
    return (counts - topics * counts.sum(0)) * scale


def main():
    args = parse_args(
        __doc__, seeds=1, quick_seeds=1, numbers={"repeats": (12, 2), "corpus-sweeps": (60, 2)}
    )
    train, _, _ = load_documents("20news")
    chain = GibbsChain(train, K, ALPHA, BETA, np.random.SeedSequence(0), compiled=True)
    chain.run(args.corpus_sweeps)
    topics = torch.from_numpy(chain.n_wk + BETA).float()
    topics /= topics.sum(0)
    frequency = (np.asarray(train.sum(axis=0)).ravel() + 1.0) / train.shape[0]
    scale = torch.from_numpy(1.0 / np.sqrt(frequency)).float()[:, None]
    model = LDAModel(ExpandedNatural(K, train.shape[1], GammaTopics(BETA)), frequency, ALPHA, 0)
    data = model.make_data(train, None, None, torch.float32, "cpu")
    rng = ChainRandom([np.random.SeedSequence(1)])
    minibatches = Minibatches(data, BATCH)
    batches = list(minibatches.chunk(minibatches.indices(12, rng), 12, rng))

    def means(n_sweeps, compiled):
        """Mean gradient of every minibatch over the repetitions, twice."""
        return [
            torch.stack([
                sum(gradient(topics, batch, scale, n_sweeps, rng, compiled)
                    for _ in range(args.repeats)) / args.repeats
                for batch in batches
            ])
            for _ in range(2)
        ]  # fmt: skip

    many = means(MANY, True)
    noise = float(many[0].var(0).sum())
    rows = []
    for n_sweeps in SWEEPS:
        row = [n_sweeps]
        for compiled in (True, False):
            a, b = (x - y for x, y in zip(means(n_sweeps, compiled), many, strict=True))
            one = float((a * b).sum()) / len(batches) / noise
            common = float((a.mean(0) * b.mean(0)).sum()) / noise
            row += [f"{one:.4f}", f"{common:.5f}"]
        rows.append(row)
    header = ["sweeps", "compiled, one", "compiled, mean", "at once, one", "at once, mean"]
    body = BODY.format(
        n_topics=K, corpus_sweeps=args.corpus_sweeps, alpha=ALPHA, n_batches=len(batches),
        batch=BATCH, many=MANY, repeats=args.repeats, table=markdown_table(header, rows),
    )  # fmt: skip
    spread = "Seed 0."
    write_results(args, "lda_sweeps", "Gibbs sweeps over a minibatch", body, spread=spread)


if __name__ == "__main__":
    main()
