"""Topic models on bad and odd input, streams, checkpoints: what holds for shallow and deep ones."""

from __future__ import annotations

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from _cases import cases
from _topics import SHORT, corpus

from skbayes_sgmcmc import DeepPoissonFactorAnalysis, LatentDirichletAllocation, SamplingWarning

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore:the chains have not mixed")


def lda(**parameters):
    return LatentDirichletAllocation(**({"n_components": 3} | SHORT | parameters))


def dpfa(**parameters):
    return DeepPoissonFactorAnalysis(
        **({"n_components": (3, 2), "doc_sweeps": 3} | SHORT | parameters)
    )


NATURAL = {"parametrization": "expanded_natural"}
#: in the parametrization of the default
MODELS = [lda, dpfa]
KINDS = [
    lda,
    partial(lda, **NATURAL),
    partial(lda, algorithm="gibbs"),
    dpfa,
    partial(dpfa, **NATURAL),
    partial(dpfa, n_components=3, success_probability=0.5),
]


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


@cases("make, n_components", [*((make, 12) for make in KINDS), (dpfa, (12, 5))])
def test_more_topics_than_words(make, n_components):
    model = make(n_components=n_components).fit(corpus(n_words=4))
    assert model.components_.shape == (12, 4)
    np.testing.assert_allclose(model.components_.sum(axis=1), 1.0, rtol=1e-5)


@cases("make", KINDS)
def test_one_document(make):
    model = make().fit(corpus()[:1])
    np.testing.assert_allclose(model.transform(corpus()[:1]).sum(), 1.0, rtol=1e-6)


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
