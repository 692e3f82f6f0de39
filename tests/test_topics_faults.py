"""Shallow and deep topic models on bad and odd input, and in streams."""

from __future__ import annotations

import pickle
import runpy
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases
from _topics import SHORT, corpus

from skbayes_sgmcmc import (
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    MixingDistance,
    SamplingWarning,
)
from skbayes_sgmcmc.samplers import PSGLD

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore:the chains have not mixed")


def shallow(**parameters):
    return LatentDirichletAllocation(**({"n_components": 3} | SHORT | parameters))


def deep(**parameters):
    return DeepPoissonFactorAnalysis(
        **({"n_components": (3, 2), "doc_sweeps": 3} | SHORT | parameters)
    )


NATURAL = {"parametrization": "expanded_natural"}
#: in the parametrization of the default
MODELS = [shallow, deep]
KINDS = [
    shallow,
    partial(shallow, **NATURAL),
    partial(shallow, algorithm="gibbs"),
    deep,
    partial(deep, **NATURAL),
    partial(deep, n_components=3, success_probability=0.5),
]


# parameters ---------------------------------------------------------------------------------------

#: for shallow and deep ones
REFUSED = [
    ({"prior": "laplace"}, "prior='laplace' is not allowed"),
    ({"thinning": MixingDistance()}, "thinning=MixingDistance"),
    ({"sampler": "mala"}, "sampler=MALA is not allowed"),
    ({"sampler": "rsgld", "parametrization": "expanded_natural"}, "has no metric"),
    ({"sampler": "sgld"}, "give sampler='rsgld'"),
    ({"temperature": 0.5}, "temperature=0.5 is not allowed"),
]


@cases(
    "make, parameters, message",
    [
        *((make, *refused) for make in MODELS for refused in REFUSED),
        (shallow, {"prior": "normal", "algorithm": "gibbs"}, "prior='normal' is not allowed"),
        (shallow, {"init": "gaussian"}, "init='gaussian' is not allowed"),
        (
            shallow,
            {"init": "map"},
            "init='map' is not allowed with parametrization='expanded_mean'",
        ),
        (
            shallow,
            {"parametrization": "expanded_natural", "sampler": PSGLD(divergence=True)},
            r"compares two gradients of the same rows.*give sampler=PSGLD\(\)",
        ),
        (
            shallow,
            {"algorithm": "gibbs", "checkpoint": "x.npz"},
            "checkpoint='x.npz' is not allowed",
        ),
        (deep, {"n_components": (3, 0)}, "n_components=0 is not allowed"),
        (deep, {"n_components": ()}, r"n_components=\(\) is not allowed"),
        (deep, {"success_probability": 1.0}, "success_probability=1.0 is not allowed"),
        (deep, {"gamma_prior": 1.0}, "gamma_prior=1.0 is not allowed: give a pair"),
        (deep, {"gamma_prior": (1.0, 0.0)}, r"gamma_prior\[1\]=0.0 is not allowed"),
        (deep, {"doc_sweeps": 0}, "doc_sweeps=0 is not allowed"),
        (deep, {"prior": "normal"}, "prior='normal' is not allowed"),
    ],
)
def test_bad_parameters(make, parameters, message):
    with pytest.raises(ValueError, match=message):
        make(**parameters).fit(corpus())


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
    dpfa = deep(**parameters).fit(corpus())
    np.testing.assert_allclose(dpfa.transform(corpus()).sum(axis=1), 1.0, rtol=1e-5)


def test_natural_parameters_start_at_a_mode_unless_init_says_otherwise():
    natural = {"parametrization": "expanded_natural"}
    draws = {
        init: shallow(init=init, **natural).fit(corpus()).posterior_["components"]
        for init in ("auto", "map", "random")
    }
    np.testing.assert_array_equal(draws["auto"], draws["map"])
    # half of the burn-in then has noise that it did not have
    assert np.abs(draws["random"] - draws["auto"]).max() > 0.01


# data ---------------------------------------------------------------------------------------------


@cases("make", KINDS)
def test_negative_counts(make):
    X = corpus()
    X[3, 2] = -1
    name = type(make()).__name__
    with pytest.raises(ValueError, match=f"Negative values in data passed to X in {name}"):
        make().fit(X)
    model = make().fit(np.abs(X))
    with pytest.raises(ValueError, match="Negative values in data"):
        model.transform(X)


@cases("make", KINDS)
@cases("compiled", [True, False])
def test_fractional_counts_warn_once(make, compiled):
    with pytest.warns(SamplingWarning, match="counts that are not whole") as caught:
        model = make(compiled=compiled).fit(corpus() * 0.7)
    assert len([w for w in caught if "not whole" in str(w.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.transform(corpus() * 0.7)).all()
        model.perplexity(corpus() * 0.7)


@cases("make", KINDS)
def test_no_words_at_all(make):
    with pytest.raises(ValueError, match="X has no words: every count is zero"):
        make().fit(np.zeros((4, 3)))


@cases("make", KINDS)
def test_words_never_seen(make):
    """They keep a probability, so that documents that have them can be scored."""
    X = corpus()
    X[:, 5] = 0
    model = make(topic_word_prior=0.5).fit(X)
    assert (model.components_[:, 5] > 0).all()
    X[:, 5] = 2
    assert np.isfinite(model.perplexity(X))


@cases("make, n_components", [*((make, 12) for make in KINDS), (deep, (12, 5))])
def test_more_topics_than_words(make, n_components):
    model = make(n_components=n_components).fit(corpus(n_words=4))
    assert model.components_.shape == (12, 4)
    np.testing.assert_allclose(model.components_.sum(axis=1), 1.0, rtol=1e-5)


@cases("make", KINDS)
def test_one_document(make):
    model = make().fit(corpus()[:1])
    np.testing.assert_allclose(model.transform(corpus()[:1]).sum(), 1.0, rtol=1e-6)


@cases("make", KINDS)
@cases("compiled", [True, False])
def test_empty_documents(make, compiled):
    """They have the prior's proportions, all the same, and others those they have without them.

    The same up to rounding: sums over draws may be taken in another order at the array's end.
    Minibatches of one document are sometimes empty as a whole.
    """
    X = corpus()
    X[[0, 7, -1]] = 0
    X[20:] = 0
    model = make(compiled=compiled, batch_size=1).fit(X)
    assert np.isfinite(model.components_).all()
    theta = model.transform(X)
    np.testing.assert_allclose(theta[[7, -1]], theta[[0, 0]], rtol=1e-14)
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-6)
    exact = isinstance(model, LatentDirichletAllocation)
    if exact:
        np.testing.assert_allclose(theta[0], 1 / 3, rtol=1e-6)
    found = model.transform(X[1:7])
    np.testing.assert_allclose(found, theta[1:7], rtol=0.0 if exact else 1e-5)


def test_a_vocabulary_of_one_word_is_not_warned_of():
    """Its probability is 1 in every draw, which was taken for chains that do not move."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SamplingWarning)
        LatentDirichletAllocation(2, max_steps=60, random_state=0).fit(np.full((9, 1), 3))


def test_documents_of_one_word_cannot_be_completed():
    lda = shallow().fit(corpus())
    with pytest.raises(ValueError, match="no document of two words"):
        lda.perplexity(np.eye(8)[:3])


def test_X_is_left_alone():
    """Unsorted CSR with repeated entries and explicit zeros is the matrix it stands for."""
    dense = corpus()
    X = sp.csr_matrix(
        (
            np.r_[dense[0], dense[0] * 0, [2.0]],
            np.r_[np.arange(8)[::-1], np.arange(8), [3]],
            [0, 17],
        )
    )
    before = X.copy()
    lda = shallow().fit(dense)
    np.testing.assert_array_equal(lda.transform(X), lda.transform(X.toarray()))
    shallow().fit(X)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, part), getattr(before, part))


def test_a_gibbs_fit_keeps_nothing_of_an_earlier_one():
    """Warnings spoke of the rows of an earlier stream, and its step size stayed."""
    X = corpus()
    lda = shallow().partial_fit(X).set_params(algorithm="gibbs").fit(X)
    fresh = shallow(algorithm="gibbs").fit(X)
    shown = [{name for name in vars(each) if name.endswith("_")} for each in (lda, fresh)]
    assert shown[0] == shown[1]
    assert lda._stream_rows is None


# draws --------------------------------------------------------------------------------------------


def test_draws_have_names_and_one_order_of_topics():
    """Aligning moves r, the biases and the rows of the first weights with their topics.

    So sums over topics of products of any two blocks do not depend on it.
    """
    dpfa = deep(n_components=(4, 3, 2), n_chains=2)
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
    dpfa, X = deep().fit(corpus()), corpus(seed=5)
    theta = dpfa.transform(X)
    np.testing.assert_allclose(dpfa.transform(X[::-1])[::-1], theta, rtol=1e-5)
    np.testing.assert_allclose(dpfa.transform(X[3:4]), theta[3:4], rtol=1e-5)
    assert dpfa.score(X) == pytest.approx(-np.log(dpfa.perplexity(X, random_state=0)))
    assert dpfa.get_feature_names_out()[1] == "deeppoissonfactoranalysis1"
    assert dpfa.top_words(2).shape == (3, 2)


def test_prior_alone_is_sampled_where_data_say_nothing():
    """One document of one word, four topics: the mean of phi over topics is known.

    The topic that has the word is Dirichlet(3, 2, 2), the others Dirichlet(2, 2, 2).
    """
    X = np.array([[1.0, 0.0, 0.0]])
    lda = LatentDirichletAllocation(
        4, parametrization="expanded_natural", doc_topic_prior=1.0, topic_word_prior=2.0,
        n_chains=8, step_size=0.05, burn_in=200,
        n_draws=100, thinning=4, random_state=0, integrator="splitting", dtype="float64",
    ).fit(X)  # fmt: skip
    exact = (3 / 7 + 3 * 1 / 3) / 4
    mean = lda.posterior_["components"].mean(axis=(1, 2))[:, 0]
    assert abs(mean.mean() - exact) < 4.5 * mean.std(ddof=1) / np.sqrt(8) + 0.005


# streams, interrupts ------------------------------------------------------------------------------


@cases("make", MODELS)
def test_batch_of_another_vocabulary(make):
    model = make().partial_fit(corpus())
    before = model.components_.copy()
    with pytest.raises(ValueError, match=f"X has 9 features, but {type(model).__name__} is"):
        model.partial_fit(corpus(n_words=9))
    np.testing.assert_array_equal(model.components_, before)


@cases("make", MODELS)
def test_total_samples_smaller_than_the_stream(make):
    """N stays what was said, as where documents come again: the target is theirs at that weight."""
    model = make(total_samples=50)
    for seed in range(4):
        model.partial_fit(corpus(seed=seed))
    assert model._chain_state.memory.rows_seen == 160
    assert np.isfinite(model.components_).all()


@cases("make", MODELS)
def test_nothing_is_kept_of_the_documents(make):
    """The saved estimator has the same size after ten times as many documents."""
    model, sizes = make(n_draws=2, doc_sweeps=1), []
    for call in range(20):
        model.partial_fit(corpus(200, seed=call))
        if call in (1, 19):
            sizes.append(len(pickle.dumps(model)))
    assert sizes[1] <= 1.05 * sizes[0]


def test_chains_of_another_parametrization_do_not_go_on():
    """Natural parameters are no expanded means: a warm fit starts anew, a stream refuses."""
    X = corpus()
    lda = shallow(parametrization="expanded_natural", warm_start=True).fit(X)
    lda.set_params(parametrization="expanded_mean").fit(X)
    np.testing.assert_array_equal(lda.components_, shallow().fit(X).components_)
    stream = shallow().partial_fit(X).set_params(parametrization="expanded_natural")
    with pytest.raises(ValueError, match="earlier calls had 'expanded_mean'"):
        stream.partial_fit(X)


def test_gibbs_takes_no_streams():
    assert not hasattr(shallow(algorithm="gibbs"), "partial_fit")


def test_steps_of_a_stream_fall_slowly():
    """As (documents seen)^-0.6 once that is below the step of a fit, with a floor where N is given.

    Of 100 equal batches, the 50th and the 100th.
    """
    lda, X, steps = shallow(), corpus(), {}
    for call in range(1, 101):
        lda.partial_fit(X)
        steps[call] = lda.step_size_
    assert steps[2] == steps[10]
    assert steps[100] / steps[50] == pytest.approx(2.0**-0.6)


@pytest.mark.parametrize("deep", [[], pytest.param(["--deep"], marks=pytest.mark.slow)])
def test_example_of_a_stream(deep, monkeypatch, capsys):
    """It finds most of four topics in 4,000 documents; unlike topics share a third."""
    script = Path(__file__).parents[1] / "examples" / "stream_topics.py"
    small = "--documents 4000 --batch 500 --topics 4 --words 100 --length 20"
    monkeypatch.setattr(sys, "argv", [str(script), *small.split(), *deep])
    runpy.run_path(script, run_name="__main__")
    *table, last = capsys.readouterr().out.splitlines()
    assert table[-1].split()[0] == "4000"
    assert int(last.split()[2].rstrip("%")) >= 80


def test_chains_of_another_kind_do_not_go_on():
    """A warm fit with other parameters starts anew; a stream refuses."""
    X = corpus()
    dpfa = deep(warm_start=True).fit(X).set_params(**NATURAL).fit(X)
    other = deep(**NATURAL).fit(X)
    np.testing.assert_array_equal(dpfa.components_, other.components_)
    stream = deep().partial_fit(X).set_params(n_components=(3, 4))
    with pytest.raises(ValueError, match="earlier calls had 1 chains of"):
        stream.partial_fit(X)
