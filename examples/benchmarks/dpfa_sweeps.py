"""How many Gibbs sweeps DPFA's minibatches need, and how good its predictions' mean field is.

SKBAYES_DATA=folder python examples/benchmarks/dpfa_sweeps.py
"""

import time

import numpy as np
import torch
from _common import load_documents, markdown_table, parse_args, write_results

from skbayes_sgmcmc import DeepPoissonFactorAnalysis
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc.models.topics.belief import BeliefNetwork
from skbayes_sgmcmc.models.topics.completion import mean_log_probability, split_documents
from skbayes_sgmcmc.models.topics.documents import Tokens
from skbayes_sgmcmc.models.topics.dpfa import DPFAModel, proportions
from skbayes_sgmcmc.models.topics.parametrizations import ExpandedNatural, GammaTopics

SIZES, BETA, BATCH, N_BATCHES = (128, 64, 32), 0.05, 100, 8
SWEEPS, MANY = (1, 5, 10, 15, 25, 40), 150
BLOCKS = ("theta", "log_r", "weights_1", "biases_1", "weights_2")
TEST_DOCUMENTS, STEPS, GIBBS = 200, (5, 20, 100), (15, 60, 200)
BODY = """
20 Newsgroups, network {sizes} after {passes} passes of SGRLD (a p_j for each document). {n_batches}
minibatches of {batch} documents, gradients in natural parameters and the coordinates of
`step_size="auto"`. Squared bias against {many} sweeps over the variance of the gradient between
minibatches (both summed over the parameters of a block): of one minibatch / of the mean over
minibatches, which is the part that does not average out. Products of two independent estimates,
{repeats} repetitions each, so that their noise cancels. "ms" is the time of a gradient.

{table}

## Predictions

The same draw, {test} test documents, perplexity by document completion with proportions from the
mean field of `transform` (steps of its fixed point), and with proportions averaged over 40
independent Gibbs runs with the given number of sweeps.

{predictions}
"""


def network():
    return BeliefNetwork(SIZES, 1.0, compiled=True)


def gibbs_proportions(model, parameters, topics, X, n_sweeps):
    """Proportions averaged over 40 samples of the documents' variables."""
    batch = model.make_data(X, None, None, torch.float32, "cpu").all_rows()
    tokens, rng = Tokens.of(batch.fields["counts"], 1), ChainRandom([np.random.SeedSequence(7)])
    r, total = parameters["log_r"].exp()[:, None], 0.0
    model.doc_sweeps = n_sweeps
    for _ in range(40):
        found = model.sample_locals(topics, tokens, r, parameters, rng)
        theta = (found.n + r * found.layers[0])[0] + 1e-9
        total = total + theta / theta.sum(1, keepdim=True)
    return (total / 40).numpy()


def main():
    args = parse_args(
        __doc__, seeds=1, quick_seeds=1, numbers={"repeats": (6, 1), "passes": (10, 1)}
    )
    train, test, _ = load_documents("20news")
    dpfa = DeepPoissonFactorAnalysis(
        SIZES, topic_word_prior=BETA, parametrization="expanded_mean", n_draws=1,
        burn_in=args.passes * (train.shape[0] // BATCH), thinning=1, compiled=True, random_state=0,
    ).fit(train)  # fmt: skip
    draw = {name: values[0, 0] for name, values in dpfa.posterior_.draws.items()}
    frequency = (np.asarray(train.sum(axis=0)).ravel() + 1.0) / train.shape[0]
    parametrization = ExpandedNatural(SIZES[0], train.shape[1], GammaTopics(BETA))
    model = DPFAModel(parametrization, frequency, MANY, network(), None, compiled=True)
    named = draw | {
        "theta": np.log(draw["components"].T),
        "log_r": np.log(draw["r"]),
        "log_gamma": np.log(draw["gamma"]),
    }
    theta = np.concatenate([np.ravel(named[name]) for name in model.shapes])
    theta = torch.from_numpy(theta).float()[None]
    root = torch.from_numpy(model.scales()).float()
    data = model.make_data(train, None, None, torch.float32, "cpu")
    rng = ChainRandom([np.random.SeedSequence(1)])
    minibatches = Minibatches(data, BATCH)
    batches = list(minibatches.chunk(minibatches.indices(N_BATCHES, rng), N_BATCHES, rng))

    def means(n_sweeps):
        """Mean gradient of every minibatch over the repetitions, twice."""
        model.doc_sweeps, found = n_sweeps, []
        for _ in range(2):
            out = torch.zeros(N_BATCHES, theta.shape[1])
            for batch, row in zip(batches, out.split(1), strict=True):
                for _ in range(args.repeats):
                    scale = 1.0 / (args.repeats * BATCH)
                    model.likelihood_gradient(theta, batch, {}, rng, out=row, scale=scale)
            found.append(out * root)
        return found

    many, rows, places = means(MANY), [], model.places()
    for n_sweeps in SWEEPS:
        start = time.process_time()
        away = [x - y for x, y in zip(means(n_sweeps), many, strict=True)]
        spent = (time.process_time() - start) / (2 * N_BATCHES * args.repeats)
        row = [n_sweeps, f"{1e3 * spent:.0f}"]
        for name in BLOCKS:
            noise = float(many[0][:, places[name]].var(0).sum())
            a, b = (x[:, places[name]] for x in away)
            one = float((a * b).sum()) / N_BATCHES / noise
            row.append(f"{one:.3f} / {float((a.mean(0) * b.mean(0)).sum()) / noise:.4f}")
        rows.append(row)
        print(*row, flush=True)
    n_test = 20 if args.quick else TEST_DOCUMENTS
    observed, held_out = split_documents(test[:n_test], 0)

    def score(theta):
        return f"{np.exp(-mean_log_probability([(draw['components'], theta)], held_out)):.1f}"

    parameters = model._blocks(theta)
    topics = parametrization.topics(parameters["theta"])
    field = [score(proportions(draw, observed, None, n_steps)) for n_steps in STEPS]
    gibbs = [score(gibbs_proportions(model, parameters, topics, observed, n)) for n in GIBBS]
    header = [f"mean field, {n}" for n in STEPS] + [f"Gibbs, {n}" for n in GIBBS]
    body = BODY.format(
        sizes="-".join(map(str, SIZES)), passes=args.passes, n_batches=N_BATCHES, batch=BATCH,
        many=MANY, repeats=args.repeats, test=n_test,
        table=markdown_table(["sweeps", "ms", *BLOCKS], rows),
        predictions=markdown_table(header, [field + gibbs]),
    )  # fmt: skip
    write_results(args, "dpfa_sweeps", "Gibbs sweeps of DPFA's minibatches", body, spread="Seed 0.")


if __name__ == "__main__":
    main()
