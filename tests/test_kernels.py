"""Every compiled kernel does what plain code does, on shapes and numbers at the edges.

Shapes are one, odd, empty, and longer than the blocks that kernels work in. ``NUMBA_BOUNDSCHECK=1``
makes an index outside an array an error (see CONTRIBUTING.md).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from _inside import streams
from scipy.special import expit

from skbayes_sgmcmc import SpikeSlab
from skbayes_sgmcmc._data.philox import Philox
from skbayes_sgmcmc._engine.accelerators import fused_steps, linear_sgld
from skbayes_sgmcmc.models.designs.design import DenseDesign, SparseDesign
from skbayes_sgmcmc.models.likelihoods.base import LatentGaussian
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.spike_slab_model import SparseNetworkModel
from skbayes_sgmcmc.models.topics.belief import BeliefNetwork
from skbayes_sgmcmc.models.topics.documents import Assignments, Tokens
from skbayes_sgmcmc.priors.factorised import Normal
from skbayes_sgmcmc.samplers import PSGLD, SGLD, Step
from skbayes_sgmcmc.samplers.integrators import euler

pytest.importorskip("numba")
from skbayes_sgmcmc._kernels import documents
from skbayes_sgmcmc._kernels.latents import PART
from skbayes_sgmcmc._kernels.linear import LAPLACE, LEARNED, NORMAL, STEPS
from skbayes_sgmcmc._kernels.philox import BLOCK
from skbayes_sgmcmc._kernels.rows import gradient as rows_gradient

#: sums of at most some thousand numbers of order one, in another order
ROUNDING = {"rtol": 1e-10, "atol": 1e-11}


# linear models ------------------------------------------------------------------------------------


def laid_out(X, layout, limits):
    """The kernel's arrays for rows of this layout, and the rows as the kernel reads them."""
    if layout == "dense":
        design = DenseDesign(torch.from_numpy(X))
    else:
        limits(padding=1e9 if layout == "padded" else -1)
        design = SparseDesign(sp.csr_matrix(X), torch.float64, "cpu")
    name, *arrays = linear_sgld._rows(design, np.dtype(float))
    assert name == layout
    return design.x, arrays


@cases("layout", list(STEPS))
@cases("n_rows, width, batch", [(1, 1, 1), (2, 3, 2), (9, 1, 3), (33, 17, 5), (40, 130, 33)])
@cases("what", ["numbers", "empty rows", "nothing", "nan"])
def test_steps_of_linear_models(layout, n_rows, width, batch, what, limits):
    """Five steps of SGLD, with weights, a Laplace or a normal prior, in each layout of the rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, width)) * (rng.random((n_rows, width)) < 0.6)
    if what == "empty rows":
        X[::2] = 0.0
    if what == "nothing":
        X[:] = 0.0
    x, arrays = laid_out(X, layout, limits)
    weights, rates = rng.uniform(0.5, 2.0, n_rows), rng.uniform(0.1, 1.0, width)
    eta, sd, xi = (
        rng.uniform(0.01, 0.1, 5),
        rng.uniform(0.0, 0.1, 5),
        rng.standard_normal((5, width)),
    )
    indices = rng.integers(0, n_rows, (5, batch))
    keep = np.array([True, False, False, True, True])
    # two groups, of which one has a scale that is learned
    of, precision = np.arange(width) % 2, np.array([[1.0, 1.0, 0.0], [2.5, 0.7, 1.0]])
    prior = rates, of, precision
    for kind in (LAPLACE, NORMAL, LEARNED):
        theta, kept = rng.standard_normal(width), np.empty((3, width))
        if what == "nan":
            theta[-1] = np.nan
        at, draws = theta.copy(), []
        for k in range(5):
            chosen = x[indices[k]]
            chosen = chosen.numpy() if layout == "dense" else chosen
            slope = chosen.T @ (0.3 * weights[indices[k]] * expit(chosen @ at))
            k_g, b, s = precision[of].T
            squares = np.array([(rates * at**2)[of == g].sum() for g in (0, 1)])[of]
            learned = at * k_g / (b + 0.5 * s * squares)
            of_prior = {LAPLACE: np.sign(at), NORMAL: at, LEARNED: learned}[kind] * rates
            at += sd[k] * xi[k] - eta[k] * (slope + of_prior)
            draws.append(at.copy())
        STEPS[layout](
            theta, eta, sd, indices.astype(np.uint64), xi, keep, kept, *arrays,
            weights, prior, kind, 0.3,
        )  # fmt: skip
        np.testing.assert_allclose(kept, np.array(draws)[keep], **ROUNDING)
        np.testing.assert_array_equal(theta, kept[-1])


@cases("classes", [False, True])
@cases("n_rows", [0, 1, 5, 33])
@cases("n_features", [1, 7, 513])
@cases("shared", [False, True])
def test_gradient_of_the_rows_of_a_linear_model(classes, n_rows, n_features, shared):
    """Against autograd, with weights and without; a chain that is NaN leaves the others alone."""
    rng = np.random.default_rng(0)
    many = 1 if shared else 3
    theta = rng.standard_normal((3, n_features + 1)) / np.sqrt(n_features)
    x, sigma = rng.standard_normal((many, n_rows, n_features)), rng.uniform(0.5, 2.0, (3, 1))
    y = rng.standard_normal((many, n_rows))
    y = (y > 0).astype(float) if classes else y
    for weight in (np.empty((0, 0)), rng.uniform(0.5, 2.0, (many, n_rows))):
        factor = 1.0 if not weight.size else torch.from_numpy(weight)
        at = torch.tensor(theta, requires_grad=True)
        f = (torch.from_numpy(x) * at[:, None, :-1]).sum(2) + at[:, -1:]
        targets, sd = torch.from_numpy(y), torch.from_numpy(sigma)
        loss = 0.5 * ((f - targets) / sd) ** 2
        if classes:
            loss = torch.nn.functional.softplus(f) - targets * f
        (0.3 * factor * loss).sum().backward()
        slope = (torch.sigmoid(f) - targets if classes else (f - targets) / sd**2).detach()
        out = np.ones_like(theta)
        squares = rows_gradient(theta, x, y, weight, sigma, classes, 0.3, out)
        np.testing.assert_allclose(out, 1.0 + at.grad.numpy(), **ROUNDING)
        expected = (0.3 * factor * slope**2).sum(1, keepdim=True)
        np.testing.assert_allclose(squares, expected.numpy(), **ROUNDING)
        bad, spoilt = theta.copy(), np.ones_like(theta)
        bad[1] = np.nan
        rows_gradient(bad, x, y, weight, sigma, classes, 0.3, spoilt)
        np.testing.assert_array_equal(spoilt[[0, 2]], out[[0, 2]])
        assert np.isnan(spoilt[1]).all() or not n_rows


# the spike-and-slab prior -------------------------------------------------------------------------


def followed(sizes, theta, compiled, adaptation):
    """State and the prior's gradient after three updates at ``theta``."""
    names = tuple(f"weight_{k}" for k in range(1, len(sizes)))
    model = SparseNetworkModel(
        MLP(sizes, "tanh"), LatentGaussian(sizes[-1]), Normal(), 1.0,
        spike_slab=SpikeSlab(adaptation=adaptation), sparse_blocks=names,
    )  # fmt: skip
    model = model.with_kernel("spike_slab") if compiled else model
    x = np.random.default_rng(0).standard_normal((10, sizes[0]))
    y = np.zeros((10, sizes[-1]))
    model = model.bound(model.make_data(x, y, None, torch.float64, "cpu"))
    state = model.init_state(theta)
    for k in range(3):
        aux = {"mean_square_slope": state["sigma"] ** -4}
        model.after_step(theta, state, aux, k, streams(len(theta)), 1.0)
    out = torch.empty_like(theta)
    model.prior_gradient(theta, state, out, 0.5)
    return state | {"gradient": out}


@cases("sizes", [(1, 1), (1, 1, 1), (3, 5, 1), (PART, 1), (PART + 1, 1), (7, 149, 3)])
@cases("n_chains", [1, 3])
@cases("adaptation", ["sa", "gibbs"])
def test_latents_of_blocks_of_any_size(adaptation, sizes, n_chains):
    """Also of several blocks, one of them larger than a part; NaN stays in its chain.

    A draw of sigma that has no number is not accepted.
    """
    n = sum((a + 1) * b for a, b in pairwise(sizes))
    theta = torch.from_numpy(np.random.default_rng(0).standard_normal((n_chains, n)))
    expected, found = (followed(sizes, theta, c, adaptation) for c in (False, True))
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-11, atol=1e-11)
    theta[-1, 0] = torch.nan
    spoilt = [followed(sizes, theta, compiled, adaptation) for compiled in (False, True)]
    for name, values in found.items():
        assert torch.equal(spoilt[1][name][:-1], values[:-1])
    for state in spoilt:
        assert state["gradient"][-1].isnan().any()
        assert state["sigma"][-1].isnan().all() or adaptation == "gibbs"


# steps with their noise ---------------------------------------------------------------------------


@cases("sampler", [SGLD(), PSGLD(), PSGLD(lag=False, cap=2.0)])
@cases("n", [1, 7, 4 * BLOCK - 1, 4 * BLOCK, 4 * BLOCK + 1, 5001])
@cases("dtype", [torch.float32, torch.float64])
def test_steps_of_any_length(sampler, n, dtype):
    """On the normals of the same streams; a gradient that is NaN spoils its own parameter only."""
    curvature = torch.linspace(0.1, 2.0, n, dtype=dtype)
    curvature[n // 2] = torch.nan if n > 1 else 1.0
    ends = []
    for compiled in (True, False):
        theta, streams = torch.ones(2, n, dtype=dtype), [Philox(3), Philox(4)]
        step = Step(
            n=10.0, gradient=lambda theta: theta * curvature,
            likelihood=lambda: curvature.expand(2, -1).contiguous(),
            potential=None, eta=0.01, noise=0.001, streams=streams,
        )  # fmt: skip
        state = sampler.init_state(theta, step) if isinstance(sampler, PSGLD) else {}
        for _ in range(3):
            if compiled:
                fused_steps.FusedEuler()(sampler, theta, state, step)
                continue
            normals = torch.empty(2, n, dtype=torch.float32)
            for row, stream in zip(normals, streams, strict=True):
                stream.normal(row)
            step.xi = normals.to(dtype)
            euler(sampler, theta, state, step)
        ends.append(theta)
    bound = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(*ends, rtol=bound, atol=bound, equal_nan=True)
    assert ends[0].isnan().sum() == (2 if n > 1 else 0)


def test_random_numbers_of_any_count():
    """None at all, and as many integers as there are."""
    stream = Philox(5)
    stream.normal(torch.empty(0, dtype=torch.float32))
    stream.uniform(torch.empty(0, dtype=torch.float64))
    assert stream.counter == 0
    for n, size in ((1, 1), (2, 1), (7, 7), (4 * BLOCK + 1, 4 * BLOCK + 1), (10**9, 3)):
        rows = stream.distinct(n, 3, size)
        assert rows.min() >= 0 and rows.max() < n
        assert all(len(set(row)) == size for row in rows.tolist())
    assert stream.distinct(5, 0, 3).shape == (0, 3)


# units of a belief network ------------------------------------------------------------------------


@cases("n_documents", [0, 1, 17])
@cases("width, n_units", [(1, 1), (3, 7), (32, 1), (65, 2)])
def test_units_of_layers_of_any_size(n_documents, width, n_units):
    """The same uniforms give the same units. Weights that are NaN leave the other chain alone."""
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.standard_normal((2, width, n_units)))
    below = torch.from_numpy((rng.random((2, n_documents, width)) < 0.5).astype(float))

    def sampled(weights, compiled):
        parameters = {
            "weights_1": weights,
            "biases_1": torch.zeros(2, width, dtype=torch.float64),
            "biases_2": torch.zeros(2, n_units, dtype=torch.float64),
        }
        units = torch.zeros(2, n_documents, n_units, dtype=torch.float64)
        network, random = BeliefNetwork((width, n_units), 1.0, compiled=compiled), streams(2)
        probability = [
            network.sample_layer(parameters, 1, [below, units], random) for _ in range(3)
        ]
        return units, torch.stack(probability)

    (expected, p), (units, q) = (sampled(weights, compiled) for compiled in (False, True))
    assert torch.equal(units, expected)
    torch.testing.assert_close(q, p, rtol=1e-10, atol=1e-12)
    weights[1] = torch.nan
    spoilt, r = sampled(weights, True)
    assert torch.equal(spoilt[0], units[0]) and torch.equal(r[:, 0], q[:, 0])
    assert r[:, 1].isnan().all()


# topics of words ----------------------------------------------------------------------------------

#: words of each document: empty ones at both ends and in the middle, one word, one word many times
CORPORA = {
    "mixed": [[], [3], [0, 0, 0, 0], [1, 2], [], [0, 1, 1, 2, 3, 3, 3], []],
    "one": [[2]],
    "empty": [[], []],
}


def tokens_of(corpus):
    word = torch.tensor([w for words in corpus for w in words], dtype=torch.int64)
    row = torch.repeat_interleave(
        torch.arange(len(corpus)), torch.tensor([len(words) for words in corpus])
    )
    return Tokens(row, word, torch.ones(len(word), dtype=torch.float64), [len(word)], len(corpus))


def assigned(corpus, n_topics, nan=False):
    """Assignments after two sweeps, and the parameters without and with a topic's other tokens."""
    rng = np.random.default_rng(0)
    topics = torch.from_numpy(rng.gamma(1.0, size=(1, 4, n_topics)))
    if nan:
        topics[0, 2] = torch.nan
    full = torch.from_numpy(rng.uniform(0.1, 1.0, (len(corpus), n_topics)))
    assignments = Assignments(topics, tokens_of(corpus), compiled=True)
    rng = streams()
    assignments.begin(0.5 * full, rng)
    assignments.sweep(0.5 * full, full, rng, 2)
    return assignments, 0.5 * full, full


@cases("corpus", CORPORA.values())
@cases("n_topics", [1, 2, 9])
def test_expectations_of_documents(corpus, n_topics):
    """Expected counts, and the gradient given all topics, as torch has them."""
    compiled, empty, full = assigned(corpus, n_topics)
    by_torch = Assignments(compiled.topics[None], compiled.tokens, compiled=False)
    by_torch._z, by_torch.n = compiled._z, compiled.n
    found, expected = (one.gradient(empty, full) for one in (compiled, by_torch))
    torch.testing.assert_close(found, expected, **ROUNDING)
    found, expected = (one.expected_counts(full) for one in (compiled, by_torch))
    torch.testing.assert_close(found, expected, **ROUNDING)


@cases("few", [False, True])
@cases("fresh", [False, True])
@cases("nan", [False, True])
@cases("corpus", CORPORA.values())
@cases("n_topics", [1, 2, 9])
def test_sweeps_over_documents(corpus, n_topics, nan, fresh, few):
    """As the same loops without compilation; each token has one topic, whatever topics are.

    So it is if no token has a topic before.
    """
    compiled, empty, full = assigned(corpus, n_topics, nan)
    for one in (compiled._z, compiled.n):
        assert not one.isnan().any()
    lengths = [len(words) for words in corpus]
    np.testing.assert_allclose(compiled.n.sum(1), lengths)
    assert len(compiled._z) == 0 or 0 <= compiled._z.min() <= compiled._z.max() < n_topics
    plain = assigned(corpus, n_topics, nan)[0]
    uniforms = np.random.default_rng(1).random((sum(lengths), 3))
    for run, one in ((documents.sweep, compiled), (documents.sweep.py_func, plain)):
        if fresh:
            one.n.zero_()
        run(*one._arrays(empty, full), one._base.numpy(), uniforms, fresh, few)
        np.testing.assert_allclose(one.n.sum(1), lengths)
    assert torch.equal(compiled._z, plain._z) and torch.equal(compiled.n, plain.n)


@cases("corpus", CORPORA.values())
@cases("n_topics", [1, 2, 9])
def test_collapsed_sweeps_over_a_corpus(corpus, n_topics):
    """As the same loops without compilation; no count is lost."""
    tokens, rng = tokens_of(corpus), np.random.default_rng(0)
    rows, words, weights = (part.numpy() for part in (tokens.row, tokens.word, tokens.weight))
    start, uniforms = rng.integers(0, n_topics, len(words)), rng.random((4, len(words)))
    ends = []
    for run in (documents.collapsed_sweeps, documents.collapsed_sweeps.py_func):
        z, n_dk, n_wk = start.copy(), np.zeros((len(corpus), n_topics)), np.zeros((4, n_topics))
        np.add.at(n_dk, (rows, z), weights)
        np.add.at(n_wk, (words, z), weights)
        n_k = n_wk.sum(0)
        run(rows, words, weights, z, n_dk, n_wk, n_k, 0.1, 0.2, uniforms)
        np.testing.assert_allclose(n_dk.sum(1), [len(words) for words in corpus])
        ends.append((z, n_dk, n_wk, n_k))
    for ours, theirs in zip(*ends, strict=True):
        np.testing.assert_array_equal(ours, theirs)
