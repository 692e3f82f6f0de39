"""Deep Poisson factor analysis on bad and odd input, streams, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from _cases import cases
from _topics import SHORT, corpus

from skbayes_sgmcmc import DeepPoissonFactorAnalysis, MixingDistance

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore:the chains have not mixed")

NATURAL = {"parametrization": "expanded_natural"}
KINDS = [{}, NATURAL, {"n_components": 3, "success_probability": 0.5}]


def short(n_components=(3, 2), **parameters):
    return DeepPoissonFactorAnalysis(
        **({"n_components": n_components, "doc_sweeps": 3} | SHORT | parameters)
    )


# parameters ---------------------------------------------------------------------------------------


@cases(
    "parameters, message",
    [
        ({"n_components": (3, 0)}, "n_components=0 is not allowed"),
        ({"n_components": ()}, r"n_components=\(\) is not allowed"),
        ({"success_probability": 1.0}, "success_probability=1.0 is not allowed"),
        ({"gamma_prior": 1.0}, "gamma_prior=1.0 is not allowed: give a pair"),
        ({"gamma_prior": (1.0, 0.0)}, r"gamma_prior\[1\]=0.0 is not allowed"),
        ({"prior": "laplace"}, "prior='laplace' is not allowed"),
        ({"doc_sweeps": 0}, "doc_sweeps=0 is not allowed"),
        ({"thinning": MixingDistance()}, "thinning=MixingDistance"),
        ({"sampler": "mala"}, "sampler=MALA is not allowed"),
        ({"sampler": "rsgld", "parametrization": "expanded_natural"}, "has no metric"),
        ({"sampler": "sgld"}, "give sampler='rsgld'"),
        ({"temperature": 0.5}, "temperature=0.5 is not"),
        ({"prior": "normal"}, "prior='normal' is not"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        short(**parameters).fit(corpus())


@cases(
    "parameters",
    [
        NATURAL | {"sampler": "sghmc", "integrator": "euler"},
        NATURAL | {"sampler": "sgld"},
        NATURAL | {"sampler": "psgld"},
        NATURAL | {"prior": "normal"},
        {"step_size": 0.01},
        NATURAL | {"n_components": (4, 3, 2), "temperature": 0.0},
        {"dtype": "float64", "batch_size": 7, "compiled": True},
    ],
)
def test_parameters_that_are_allowed(parameters):
    dpfa = short(**parameters).fit(corpus())
    np.testing.assert_allclose(dpfa.transform(corpus()).sum(axis=1), 1.0, rtol=1e-5)


# data ---------------------------------------------------------------------------------------------


@cases("kind", KINDS)
@cases("compiled", [True, False])
def test_empty_documents(kind, compiled):
    """They have the prior's proportions, all the same, and others those they have without them.

    The same up to rounding: sums over draws may be taken in another order at the array's end.
    Minibatches of one document are sometimes empty as a whole.
    """
    X = corpus()
    X[[0, 7, -1]] = 0
    X[20:] = 0
    dpfa = short(compiled=compiled, batch_size=1, **kind).fit(X)
    assert np.isfinite(dpfa.components_).all()
    theta = dpfa.transform(X)
    np.testing.assert_allclose(theta[[7, -1]], theta[[0, 0]], rtol=1e-14)
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(dpfa.transform(X[1:7]), theta[1:7], rtol=1e-5)


# draws --------------------------------------------------------------------------------------------


def test_draws_have_names_and_one_order_of_topics():
    """Aligning moves r, the biases and the rows of the first weights with their topics.

    So sums over topics of products of any two blocks do not depend on it.
    """
    dpfa = short((4, 3, 2), n_chains=2)
    dpfa.fit(corpus())
    shapes = {"components": (4, 8), "r": (4,), "gamma": (), "weights_1": (4, 3), "biases_1": (4,)}
    shapes |= {"weights_2": (3, 2), "biases_2": (3,), "biases_3": (2,)}
    assert dpfa.posterior_.shapes == shapes
    np.testing.assert_allclose(dpfa.r_, dpfa.posterior_.mean("r"))
    rng, draws = np.random.default_rng(0), dict(dpfa.posterior_.draws)
    order = np.stack([[rng.permutation(4) for _ in range(5)] for _ in range(2)])
    shuffled = dict(draws)
    for name in ("components", "r", "weights_1", "biases_1"):
        place = order.reshape(order.shape + (1,) * (draws[name].ndim - 3))
        shuffled[name] = np.take_along_axis(draws[name], place, axis=2)
    again = dpfa._in_order(shuffled, previous=dpfa._chain_state)
    for name in ("r", "biases_1", "weights_1"):
        for moments in (draws, again):
            topics = moments["components"].astype(np.float64)  # sums that cancel are exact enough
            both = topics.swapaxes(2, 3) @ moments[name].reshape(2, 5, 4, -1)
            moments["product"] = both
        np.testing.assert_allclose(again["product"], draws["product"], rtol=1e-5)
    assert any((shuffled[name] != again[name]).any() for name in ("r", "biases_1"))


def test_transform_does_not_depend_on_order_or_company():
    dpfa, X = short().fit(corpus()), corpus(seed=5)
    theta = dpfa.transform(X)
    np.testing.assert_allclose(dpfa.transform(X[::-1])[::-1], theta, rtol=1e-5)
    np.testing.assert_allclose(dpfa.transform(X[3:4]), theta[3:4], rtol=1e-5)
    assert dpfa.score(X) == pytest.approx(-np.log(dpfa.perplexity(X, random_state=0)))
    assert dpfa.get_feature_names_out()[1] == "deeppoissonfactoranalysis1"
    assert dpfa.top_words(2).shape == (3, 2)


# streams, interrupts ------------------------------------------------------------------------------


def test_chains_of_another_kind_do_not_go_on():
    """A warm fit with other parameters starts anew; a stream refuses."""
    X = corpus()
    dpfa = short(warm_start=True).fit(X).set_params(**NATURAL).fit(X)
    other = short(**NATURAL).fit(X)
    np.testing.assert_array_equal(dpfa.components_, other.components_)
    stream = short().partial_fit(X).set_params(n_components=(3, 4))
    with pytest.raises(ValueError, match="earlier calls had 1 chains of"):
        stream.partial_fit(X)
