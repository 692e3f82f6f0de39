"""Deep Poisson factor analysis: documents' variables, gradients and posteriors against truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from _inside import streams
from scipy.special import gammaln

from skbayes_sgmcmc import DeepPoissonFactorAnalysis, PosteriorSamples
from skbayes_sgmcmc.diagnostics import mcse
from skbayes_sgmcmc.models.topics.belief import BeliefNetwork
from skbayes_sgmcmc.models.topics.documents import Tokens
from skbayes_sgmcmc.models.topics.dpfa import DPFAModel, proportions
from skbayes_sgmcmc.models.topics.parametrizations import ExpandedMean, ExpandedNatural, GammaTopics

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: standard errors that a mean of many may be away by
SIGMAS = 4.5
SIZES = (2, 2, 1)
#: words of the documents that are enumerated; one has none
DOCUMENTS = [(0, 0, 3), (), (1, 3)]
#: copies of each, which are sampled independently
COPIES = 1500
#: c_0 of the tiny corpus
RATE = 4.0


def make_model(sizes=SIZES, success=0.5, compiled=False, doc_sweeps=200, kind=ExpandedNatural):
    network = BeliefNetwork(sizes, 1.5, compiled=compiled) if len(sizes) > 1 else None
    topics = kind(sizes[0], 4, GammaTopics(0.7))
    return DPFAModel(
        topics, np.ones(4), doc_sweeps, network, success, 0.8, (1.3, 0.6), compiled=compiled
    )


def position(model, seed=3):
    """A position (1, parameters) at which no unit is nearly certain.

    Normals of sd 1 had an r of .1 now and then, with which all words of a document stay in the
    topic where one of them is, for more sweeps than are looked at.
    """
    theta = 0.5 * np.random.default_rng(seed).standard_normal((1, model.n_parameters))
    if model.metric is not None:
        theta[:, model.places()["theta"]] = np.abs(theta[:, model.places()["theta"]]) + 0.2
    return torch.from_numpy(theta)


def data_of(model, documents, dtype=torch.float64):
    X = np.zeros((len(documents), 4))
    for row, words in zip(X, documents, strict=True):
        np.add.at(row, list(words), 1.0)
    return model.make_data(X, None, None, dtype, "cpu").all_rows()


# enumeration of everything that a document may have -----------------------------------------------


def states(model, theta, words):
    """Log joint probability (states,) of all states of a document, and (n, layers) of each.

    theta_kj and p_j are integrated out: of topic k's words that leaves
    Gamma(n_k + r_k h_k) / Gamma(r_k h_k), and of p_j its own integral.
    """
    at, words = model._blocks(theta), list(words)
    phi = torch.softmax(model.parametrization.view(at["theta"])[0], 0)
    r, n_topics = at["log_r"][0].exp(), model.parametrization.n_topics
    sizes = [] if model.network is None else list(model.network.sizes)
    units = torch.tensor([*itertools.product((0.0, 1.0), repeat=sum(sizes))]).to(theta)
    layers = units.split(sizes, 1) if sizes else ()
    network = torch.zeros(len(units)).to(theta)
    for i, h in enumerate(layers):
        log_odds = at[f"biases_{i + 1}"][0].expand_as(h)
        if i + 1 < len(layers):
            log_odds = log_odds + layers[i + 1] @ at[f"weights_{i + 1}"][0].mT
        network = network + (h * log_odds - torch.nn.functional.softplus(log_odds)).sum(1)
    on = layers[0] if layers else torch.ones(1, n_topics).to(theta)
    rate = on @ r
    if model.success is None:
        log_p = torch.lgamma(1 + rate) - torch.lgamma(2.0 + rate + len(words))
    else:
        log_p = rate * np.log1p(-model.success)
    z = np.array([*itertools.product(range(n_topics), repeat=len(words))], int)
    n = torch.from_numpy((z[:, :, None] == np.arange(n_topics)).sum(1)).to(theta)
    log_n = (torch.lgamma(n + r) - torch.lgamma(r)).sum(1)
    log_words = phi.log()[words, z].sum(1)
    logs = (network + log_p)[:, None] + log_n + log_words
    possible = ((n == 0) | (on[:, None] > 0)).all(2)
    values = torch.cat([n.expand(len(units), -1, -1), units[:, None].expand(-1, len(n), -1)], 2)
    return logs[possible], values[possible].numpy()


def exact(model, theta, documents):
    """Expected (n, layers) of each document, and the gradient of -log p of all of them."""
    at = theta.clone().requires_grad_(True)
    moments, total = [], 0.0
    for words in documents:
        logs, values = states(model, at, words)
        moments.append(torch.softmax(logs, 0).detach().numpy() @ values)
        total = total + torch.logsumexp(logs, 0)
    (gradient,) = torch.autograd.grad(total, at)
    return np.stack(moments), -gradient[0].numpy()


@pytest.mark.statistical
@cases(
    "sizes, success, most_tokens, compiled, few_topics",
    [
        (SIZES, 0.4, 200, False, 64),
        (SIZES, None, 1, False, 64),
        ((2,), None, 200, False, 64),
        ((2, 2), 0.5, 200, True, 0),
        (SIZES, None, 1, True, 0),
        ((2,), 0.5, 200, True, 64),
        (SIZES, None, 1, True, 64),
    ],
)
def test_documents_against_enumeration(sizes, success, compiled, few_topics, most_tokens, limits):
    """Means of topic counts and of all units: the exact ones within their standard errors.

    1,500 independent copies of three documents (one empty), 200 sweeps from a mean field: after 60,
    at one position of forty, counts were away by five standard errors. Words that occur more than
    ``most_tokens`` times in a document are sampled at once. The standard error of what has a
    probability of 1 / 1,500, and may be seen in no copy, is 1 / 1,500.
    """
    limits(few_topics=few_topics, tokens=most_tokens)
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
    error = np.hypot(values.std(axis=0, ddof=1) / np.sqrt(COPIES), 1.0 / COPIES)
    assert (np.abs(values.mean(axis=0) - wanted) <= SIGMAS * error).all()
    # conditional probabilities have the same means as what is drawn from them
    for layer, probability in zip(found.layers, found.probabilities, strict=True):
        away = (layer - probability)[0]
        assert (away.mean(0).abs() <= SIGMAS * away.std(0) / len(away) ** 0.5 + 1e-9).all()


@pytest.mark.parametrize("width", [31, 32, 33, 70])
def test_compiled_units_are_those_of_torch_whatever_is_below_them(width):
    """The kernel multiplies 32 factors before it takes a logarithm: fewer, as many, and more.

    The same uniforms give the same units, and probabilities equal to rounding.
    """
    pytest.importorskip("numba")
    rng, found = np.random.default_rng(0), []
    weights, biases = 2.0 * rng.standard_normal((width, 5)), rng.standard_normal(width)
    parameters = {
        "weights_1": torch.from_numpy(weights)[None],
        "biases_1": torch.from_numpy(biases)[None],
        "biases_2": torch.zeros(1, 5, dtype=torch.float64),
    }
    log_odds = (rng.random((1, 40, 5)) < 0.5) @ weights.T + biases  # from units that are on or off
    below = torch.from_numpy((rng.logistic(size=(1, 40, width)) < log_odds).astype(float))
    for compiled in (False, True):
        network = BeliefNetwork((width, 5), 1.0, compiled=compiled)
        units, random = torch.zeros(1, 40, 5, dtype=torch.float64), streams(1)
        probability = [
            network.sample_layer(parameters, 1, [below, units], random) for _ in range(3)
        ]
        found.append((units, torch.stack(probability)))
    (expected, p), (units, q) = found
    assert torch.equal(units, expected)
    torch.testing.assert_close(q, p, rtol=1e-10, atol=1e-12)
    assert 0.1 < units.mean() < 0.9


def gradients(model, theta, blocks, copies):
    """Estimated gradients (positions, blocks, parameters), each of so many copies of DOCUMENTS.

    Blocks are chains at the same position, all at once.
    """
    at, out = theta.repeat_interleave(blocks, 0), torch.zeros(len(theta) * blocks, theta.shape[1])
    out, batch = out.to(theta), data_of(model, DOCUMENTS * copies)
    model.likelihood_gradient(at, batch, {}, streams(len(at)), out=out, scale=1.0 / copies)
    return out.view(len(theta), blocks, -1).numpy()


@pytest.mark.statistical
@cases(
    "sizes, success, compiled",
    [(SIZES, 0.4, False), ((2,), None, False), (SIZES, None, True), ((2,), 0.5, True)],
)
def test_gradients_of_all_globals(sizes, success, compiled):
    """Mean over blocks of copies of the documents: the exact gradient within its standard error."""
    model = make_model(sizes, success, compiled)
    theta = position(model)
    _, wanted = exact(model, theta, DOCUMENTS)
    found = gradients(model, theta, blocks=40, copies=COPIES // 40)[0]
    error = np.std(found, axis=0, ddof=1) / np.sqrt(40)
    assert (error < 0.1).all()  # so that the test can fail: gradients are up to 1 and more
    assert (np.abs(np.mean(found, axis=0) - wanted) <= SIGMAS * error + 1e-9).all()


def test_chains_have_gradients_of_their_own():
    """Two chains at different positions, documents shared: each the exact gradient of its own."""
    for compiled in (False, True):
        model = make_model(compiled=compiled)
        theta = torch.cat([position(model, 3), position(model, 4)])
        wanted = [exact(model, row[None], DOCUMENTS)[1] for row in theta]
        found = gradients(model, theta, blocks=30, copies=50)
        error = found.std(axis=1, ddof=1) / np.sqrt(30)
        assert (error < 0.2).all()  # so that the test can fail
        assert (np.abs(found.mean(axis=1) - wanted) <= 5 * error + 1e-9).all()


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
    from skbayes_sgmcmc.models.topics.documents import topic_gradient

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


@pytest.mark.statistical
@pytest.mark.parametrize("success", [0.5, None])
def test_proportions_are_near_the_exact_ones(success):
    """The mean field's proportions of documents beside exact E[(n_k + r_k h_k) / sum of these].

    At single positions a mean field may be far off on documents this short. Over 160 positions
    its mean error is 0.10 to 0.13, with a standard error of 0.01, where 1/2 for all is off by 0.28;
    the bound, 0.166, is four standard errors above.
    """
    model = make_model(success=success)
    documents = [(0, 0, 3), (1, 3), (2, 2, 2, 1)]
    X = sp.csr_matrix(np.stack([np.bincount(words, minlength=4) for words in documents]) * 1.0)
    wanted, found = [], []
    for seed in range(160):
        theta = position(model, seed)
        draw = {name: values[0] for name, values in model.unpack(theta.numpy()).items()}
        for words in documents:
            logs, values = states(model, theta, words)
            weight = torch.softmax(logs, 0).numpy()
            n, on = values[:, :2], values[:, 2:4]
            share = n + draw["r"] * on
            wanted.append(weight @ (share / share.sum(axis=1, keepdims=True)))
        found.extend(proportions(draw, X, success, 30))
    wanted = np.array(wanted)
    assert np.abs(np.array(found) - wanted).mean() < 0.6 * np.abs(wanted - 0.5).mean()


# posteriors ---------------------------------------------------------------------------------------


class Reference:
    """Gibbs sampling of everything, with Metropolis steps for r, gamma_0 and the network.

    Independent of the package, all its chains at once: sizes (2, 1), p_j uniform on (0, 1).
    """

    def __init__(self, X, beta, n_chains, seed):
        self.X, self.beta, self.rng = X, beta, np.random.default_rng(seed)
        C, D = n_chains, len(X)
        self.phi = self.rng.dirichlet(np.ones(X.shape[1]), (C, 2))
        self.u, self.g = np.zeros((C, 2)), np.zeros(C)
        self.net = np.zeros((C, 5))  # two weights, two biases, the top's bias
        self.h1, self.h2, self.p = np.ones((C, D, 2)), np.zeros((C, D)), np.full((C, D), 0.5)
        self.n = np.zeros((C, D, 2))

    def sweep(self):
        rng = self.rng
        r = np.exp(self.u)[:, None]
        shape = np.where(self.h1 > 0, self.n + r, 1.0)
        theta = rng.gamma(shape) * self.h1
        weight = theta[..., None] * self.phi[:, None]  # (chains, documents, 2, words)
        first = rng.binomial(self.X.astype(int), weight[:, :, 0] / weight.sum(axis=2))
        counts = np.stack([first, self.X - first], axis=2)
        self.n = counts.sum(axis=3)
        gamma = rng.gamma(self.beta + counts.sum(axis=1))
        self.phi = gamma / gamma.sum(axis=2, keepdims=True)
        # units: theta integrated out
        log_odds = self.log_odds(self.net) + r * np.log1p(-self.p)[..., None]
        self.h1 = np.where(self.n > 0, 1.0, rng.random(self.n.shape) < 1 / (1 + np.exp(-log_odds)))
        ends = [self.bernoulli(self.net, np.full_like(self.h2, on)) for on in (0.0, 1.0)]
        self.h2 = (rng.random(self.h2.shape) < 1 / (1 + np.exp(ends[0] - ends[1]))).astype(float)
        self.p = rng.beta(1 + self.X.sum(axis=1), 1 + (r * self.h1).sum(axis=2))
        for _ in range(3):
            self.metropolis("net", self.log_net, 1.0)
            self.metropolis("u", self.log_r, 0.5)
            self.metropolis("g", self.log_gamma, 1.0)

    def metropolis(self, name, log_density, scale):
        at = getattr(self, name)
        to = at + scale * self.rng.standard_normal(at.shape)
        accept = np.log(self.rng.random(len(at))) < log_density(to) - log_density(at)
        setattr(self, name, np.where(accept.reshape(-1, *[1] * (at.ndim - 1)), to, at))

    def log_odds(self, net):
        return net[:, None, :2] * self.h2[..., None] + net[:, None, 2:4]

    def bernoulli(self, net, h2):
        """log p(h1, h2) of each document."""
        a = net[:, None, :2] * h2[..., None] + net[:, None, 2:4]
        top = net[:, 4, None]
        return (self.h1 * a - np.logaddexp(0, a)).sum(2) + h2 * top - np.logaddexp(0, top)

    def log_net(self, net):
        return self.bernoulli(net, self.h2).sum(1) - 0.5 * (net**2).sum(1)

    def log_r(self, u):
        r, on = np.exp(u)[:, None], self.h1 > 0
        data = np.where(on, gammaln(self.n + r) - gammaln(r) + r * np.log1p(-self.p)[..., None], 0)
        return data.sum(axis=(1, 2)) + (np.exp(self.g)[:, None] * u - RATE * np.exp(u)).sum(1)

    def log_gamma(self, g):
        gamma = np.exp(g)
        return gamma * (self.u + np.log(RATE)).sum(1) - 2 * gammaln(gamma) + g - gamma

    def draw(self):
        return {
            "components": self.phi, "r": np.exp(self.u), "gamma": np.exp(self.g),
            "weights_1": self.net[:, :2, None], "biases_1": self.net[:, 2:4],
            "biases_2": self.net[:, 4:],
        }  # fmt: skip


def statistics(draws):
    """Functions of draws (chains, draws, ...) by name, with the topic of the first word first."""
    first = draws["components"][..., 0].argmax(axis=-1)
    order = np.stack([first, 1 - first], -1)
    found = {"log gamma": np.log(draws["gamma"])[..., None], "top": draws["biases_2"]}
    for name in ("components", "r", "weights_1", "biases_1"):
        values = draws[name]
        place = order.reshape(order.shape + (1,) * (values.ndim - 3))
        found[name] = np.take_along_axis(values, place, axis=2)
    found["r"] = np.log(found["r"])
    found |= {f"{name}^2": values**2 for name, values in found.items()}
    return PosteriorSamples(found)


@pytest.mark.statistical
@pytest.mark.slow
def test_posterior_agrees_with_gibbs():
    """Means and second moments of all parameters on a tiny corpus: within MCSE of the reference.

    Six words, two topics that share two of them, twelve documents. 0.006 (topics) and 0.06 (of sds
    of about 1) is room for the bias of a finite step and of 12 sweeps.
    """
    from test_lda import tiny_corpus

    X = tiny_corpus()
    gibbs = Reference(X, 1.5, n_chains=60, seed=1)
    kept = []
    for k in range(600):
        gibbs.sweep()
        if k >= 100 and k % 4 == 0:
            kept.append(gibbs.draw())
    reference = statistics({name: np.stack([d[name] for d in kept], 1) for name in kept[0]})
    dpfa = DeepPoissonFactorAnalysis(
        (2, 1), parametrization="expanded_natural", topic_word_prior=1.5, r_rate=RATE,
        n_chains=16, n_draws=40, burn_in=200, thinning=2, doc_sweeps=12, compiled=True,
        dtype="float64", random_state=0,
    ).fit(X)  # fmt: skip
    ours = statistics(dpfa.posterior_.draws)
    for name in reference.draws:
        room = 0.006 if name.startswith("components") else 0.06
        error = np.hypot(mcse(ours, name), mcse(reference, name))
        assert (error < (0.01 if room == 0.006 else 0.3)).all(), name  # so that the test can fail
        away = np.abs(ours.mean(name) - reference.mean(name))
        assert (away < SIGMAS * error + room).all(), name
