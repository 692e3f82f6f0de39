"""Deep Poisson factor analysis: its documents' variables, gradients and posteriors against truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.special import digamma, gammaln

from skbayes_sgmcmc.models.belief import BeliefNetwork
from skbayes_sgmcmc.models.documents import Tokens
from skbayes_sgmcmc.models.dpfa import DPFAModel, proportions
from skbayes_sgmcmc.models.topics import ExpandedMean, ExpandedNatural, GammaTopics
from skbayes_sgmcmc.streams import ChainRandom

#: standard errors that a mean of many may be away by
SIGMAS = 4.5
SIZES = (2, 2, 1)
#: words of the documents that are enumerated; one has none
DOCUMENTS = [(0, 0, 3), (), (1, 3)]
#: copies of each, which are sampled independently
COPIES = 3000


def streams(n_chains, seed=0):
    return ChainRandom(np.random.SeedSequence(seed).spawn(n_chains))


def make_model(sizes=SIZES, success=0.5, compiled=False, doc_sweeps=60, kind=ExpandedNatural):
    network = BeliefNetwork(sizes, 1.5, compiled=compiled) if len(sizes) > 1 else None
    topics = kind(sizes[0], 4, GammaTopics(0.7))
    return DPFAModel(
        topics, np.ones(4), doc_sweeps, network, success, 0.8, (1.3, 0.6), compiled=compiled
    )


def position(model, seed=3):
    """A position (1, parameters) at which no unit is nearly certain."""
    theta = np.random.default_rng(seed).standard_normal((1, model.n_parameters))
    if model.metric is not None:
        theta[:, model.places()["theta"]] = np.abs(theta[:, model.places()["theta"]]) + 0.2
    return torch.from_numpy(theta)


def data_of(model, documents, dtype=torch.float64):
    X = np.zeros((len(documents), 4))
    for row, words in zip(X, documents, strict=True):
        np.add.at(row, list(words), 1.0)
    return model.make_data(X, None, None, dtype, "cpu").all_rows()


# enumeration of everything that a document may have -------------------------------------------------


def bernoulli(h, log_odds):
    h = torch.tensor(h, dtype=log_odds.dtype)
    return (h * log_odds - torch.nn.functional.softplus(log_odds)).sum()


def states(model, theta, words):
    """Log joint probability of each state of a document, with (n, layers) of it.

    theta_kj and p_j are integrated out: of topic k's words that leaves
    Gamma(n_k + r_k h_k) / Gamma(r_k h_k), and of p_j its own integral.
    """
    at = model._blocks(theta)
    phi = torch.softmax(model.parametrization.view(at["theta"])[0], 0)
    r, n_topics = at["log_r"][0].exp(), model.parametrization.n_topics
    sizes = [] if model.network is None else model.network.sizes
    binary = [list(itertools.product((0, 1), repeat=size)) for size in sizes]
    for layers in itertools.product(*binary):
        network = torch.zeros((), dtype=theta.dtype)
        for i, h in enumerate(layers):
            log_odds = at[f"biases_{i + 1}"][0]
            if i + 1 < len(layers):
                above = torch.tensor(layers[i + 1], dtype=theta.dtype)
                log_odds = log_odds + at[f"weights_{i + 1}"][0] @ above
            network = network + bernoulli(h, log_odds)
        on = torch.tensor(layers[0] if layers else [1] * n_topics, dtype=theta.dtype)
        rate = (r * on).sum()
        if model.success is None:
            log_p = torch.lgamma(1 + rate) - torch.lgamma(2.0 + rate + len(words))
        else:
            log_p = rate * np.log1p(-model.success)
        for z in itertools.product(range(n_topics), repeat=len(words)):
            n = np.bincount(z, minlength=n_topics)
            if (n[on.numpy() == 0] > 0).any():
                continue
            log_n = sum(torch.lgamma(n[k] + r[k]) - torch.lgamma(r[k]) for k in range(n_topics))
            log_words = sum(phi[w, k].log() for w, k in zip(words, z, strict=True))
            yield network + log_p + log_n + log_words, np.concatenate([n, *layers])


def exact(model, theta, documents):
    """Expected (n, layers) of each document, and the gradient of -log p of all of them."""
    at = theta.clone().requires_grad_(True)
    moments, total = [], 0.0
    for words in documents:
        logs, values = zip(*states(model, at, words), strict=True)
        log_sum = torch.logsumexp(torch.stack(logs), 0)
        weight = torch.exp(torch.stack(logs) - log_sum).detach().numpy()
        moments.append(weight @ np.stack(values))
        total = total + log_sum
    (gradient,) = torch.autograd.grad(total, at)
    return np.stack(moments), -gradient[0].numpy()


CASES = [(SIZES, 0.4), (SIZES, None), ((2, 2), 0.5), ((2,), 0.5), ((2,), None)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("sizes", "success"), CASES)
def test_documents_against_enumeration(sizes, success, compiled):
    """Means of topic counts and of all units: the exact ones within their standard errors.

    3,000 independent copies of three documents (one empty), 60 sweeps from a mean field.
    """
    model = make_model(sizes, success, compiled)
    theta = position(model)
    wanted, _ = exact(model, theta, DOCUMENTS)
    batch = data_of(model, DOCUMENTS * COPIES)
    at, rng = model._blocks(theta), streams(1)
    topics = model.parametrization.topics(at["theta"])
    r = at["log_r"].exp()[:, None]
    tokens = Tokens.of(batch.fields["counts"], 1)
    found = model.sample_locals(topics, tokens, r, at, rng)
    values = torch.cat([found.n, *found.layers], 2)[0].view(COPIES, len(DOCUMENTS), -1).numpy()
    error = values.std(axis=0, ddof=1) / np.sqrt(COPIES)
    assert (np.abs(values.mean(axis=0) - wanted) <= SIGMAS * error + 1e-9).all()
    # conditional probabilities have the same means as what is drawn from them
    for layer, probability in zip(found.layers, found.probabilities, strict=True):
        away = (layer - probability)[0]
        assert (away.mean(0).abs() <= SIGMAS * away.std(0) / len(away) ** 0.5 + 1e-9).all()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("sizes", "success"), CASES)
def test_gradients_of_all_globals(sizes, success, compiled):
    """Mean over blocks of copies of the documents: the exact gradient within its standard error."""
    model = make_model(sizes, success, compiled)
    theta = position(model)
    _, wanted = exact(model, theta, DOCUMENTS)
    blocks, copies, rng, found = 40, COPIES // 40, streams(1), []
    batch = data_of(model, DOCUMENTS * copies)
    for _ in range(blocks):
        out = torch.zeros_like(theta)
        model.likelihood_gradient(theta, batch, {}, rng, out=out, scale=1.0 / copies)
        found.append(out[0].numpy())
    error = np.std(found, axis=0, ddof=1) / np.sqrt(blocks)
    assert (error < 0.05).all()  # so that the test can fail: gradients are up to about 1
    assert (np.abs(np.mean(found, axis=0) - wanted) <= SIGMAS * error + 1e-9).all()


def test_chains_have_gradients_of_their_own():
    """Two chains at different positions, documents shared: each the exact gradient of its own."""
    for compiled in (False, True):
        model = make_model(compiled=compiled)
        theta = torch.cat([position(model, 3), position(model, 4)])
        wanted = [exact(model, row[None], DOCUMENTS)[1] for row in theta]
        batch, rng, found = data_of(model, DOCUMENTS * 100), streams(2), []
        for _ in range(30):
            out = torch.zeros_like(theta)
            model.likelihood_gradient(theta, batch, {}, rng, out=out, scale=0.01)
            found.append(out.numpy())
        error = np.std(found, axis=0, ddof=1) / np.sqrt(30)
        assert (np.abs(np.mean(found, axis=0) - wanted) <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("kind", [ExpandedNatural, ExpandedMean])
def test_prior_gradient(kind):
    """Against autograd of the log density in the coordinates theta, W, c, log r, log gamma_0."""
    model = make_model(kind=kind)
    theta = position(model).requires_grad_(True)
    at = model._blocks(theta)
    beta, topics = 0.7, at["theta"]
    total = (beta * topics - topics.exp()).sum()
    if kind is ExpandedMean:
        total = ((beta - 1.0) * topics.log() - topics).sum()
    for name in model.network.shapes:
        total = total - 0.5 * (at[name] / 1.5).square().sum()
    r, gamma = at["log_r"].exp(), at["log_gamma"].exp()
    # Gamma(gamma, rate 0.8) of r and Gamma(1.3, rate 0.6) of gamma, times r and gamma
    log_r = gamma * np.log(0.8) - torch.lgamma(gamma) + gamma * at["log_r"] - 0.8 * r
    total = total + log_r.sum() + (1.3 * at["log_gamma"] - 0.6 * gamma).sum()
    (wanted,) = torch.autograd.grad(-total, theta)
    out = torch.empty_like(wanted)
    model.prior_gradient(theta.detach(), {}, out, 2.0)
    torch.testing.assert_close(out, 2.0 * wanted)


def test_without_network_and_with_r_fixed_the_documents_are_lda():
    """Poisson factor analysis with r = alpha has LDA's gradient of topics: both are exact ones."""
    from skbayes_sgmcmc.models.documents import topic_gradient

    model = make_model((2,), 0.5, compiled=True)
    theta = position(model)
    theta[:, model.places()["log_r"]] = np.log(0.3)
    batch = data_of(model, DOCUMENTS * 500)
    out = torch.zeros_like(theta)
    model.likelihood_gradient(theta, batch, {}, streams(1), out=out, scale=1e-3)
    at, to = model._blocks(theta), torch.zeros_like(theta)
    topics, tokens = model.parametrization.topics(at["theta"]), Tokens.of(batch.fields["counts"], 1)
    of_lda = topic_gradient(topics, tokens, 0.3, 25, streams(1, 1), compiled=True)
    place = model.places()["theta"]
    model.parametrization.pull_back(at["theta"], topics, of_lda, to[:, place], -1e-3)
    # sums over 1,500 documents, whose own gradients differ by about 0.3
    assert (out - to)[:, place].abs().max() < SIGMAS * 0.3 * np.sqrt(2 * 1500) * 1e-3
    assert out[:, place].abs().max() > 0.1


# predictions --------------------------------------------------------------------------------------


def draw_of(model, theta):
    return {name: values[0] for name, values in model.unpack(theta.numpy()[None]).items()} | {}


@pytest.mark.parametrize("success", [0.5, None])
def test_proportions_are_near_the_exact_ones(success):
    """The mean field's proportions of a document beside exact E[(n_k + r_k h_k) / sum of these].

    0.12 is what a mean field may be wrong by on documents this short, at proportions of about 0.5.
    """
    model = make_model(success=success)
    theta = position(model)
    draw = {name: values[0] for name, values in model.unpack(theta.numpy()).items()}
    r, documents = draw["r"], [(0, 0, 3), (1, 3), (2, 2, 2, 1)]
    wanted = []
    for words in documents:
        logs, values = zip(*states(model, theta, words), strict=True)
        weight = torch.softmax(torch.stack(logs), 0).numpy()
        n, on = np.stack(values)[:, :2], np.stack(values)[:, 2:4]
        share = n + r * on
        wanted.append(weight @ (share / share.sum(axis=1, keepdims=True)))
    import scipy.sparse as sp

    X = sp.csr_matrix(np.stack([np.bincount(words, minlength=4) for words in documents]) * 1.0)
    found = proportions(draw, X, success, 30)
    np.testing.assert_allclose(found, wanted, atol=0.12)


# posteriors ---------------------------------------------------------------------------------------


def reference_draws():
    """PLACEHOLDER."""
    return digamma, gammaln
