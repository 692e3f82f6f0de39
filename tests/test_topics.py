"""What topic models share: alignment of draws, document completion, words and their figure."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases
from sklearn.decomposition import LatentDirichletAllocation as VariationalLDA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skbayes_sgmcmc import LatentDirichletAllocation, document_completion_perplexity
from skbayes_sgmcmc._draws.alignment import best_order, matched
from skbayes_sgmcmc.inspection import TopicDisplay
from skbayes_sgmcmc.models.topics.completion import proportions, split_documents

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def topics(n_topics=4, n_words=30, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(n_words, 0.1), size=n_topics)


def documents(phi, n_documents=200, n_words=40, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.full(len(phi), 0.2), size=n_documents)
    return np.stack([rng.multinomial(n_words, p @ phi) for p in theta]).astype(float)


# alignment ----------------------------------------------------------------------------------------


def test_alignment_undoes_any_order():
    """Noisy copies of well separated topics, shuffled: each comes back to its place."""
    rng, phi = np.random.default_rng(0), topics()
    draws = np.stack(
        [[rng.dirichlet(200 * row + 0.01) for row in phi[rng.permutation(4)]] for _ in range(20)]
    ).reshape(2, 10, 4, 30)
    before = draws.copy()
    aligned = matched(draws)[0]
    np.testing.assert_array_equal(draws, before)
    mean = aligned.mean(axis=(0, 1))
    assert aligned.std(axis=(0, 1)).max() < 0.1 < draws.std(axis=(0, 1)).max()
    np.testing.assert_allclose(mean[best_order(mean, phi)], phi, atol=0.05)
    np.testing.assert_allclose(matched(draws, phi)[0].mean(axis=(0, 1)), phi, atol=0.05)


def test_orders_are_those_of_the_aligned_draws():
    """With them other blocks of a draw go along with its topics."""
    rng, phi = np.random.default_rng(0), topics()
    draws = np.stack([[phi[rng.permutation(4)] for _ in range(5)] for _ in range(2)])
    for reference in (None, phi):
        aligned, orders = matched(draws, reference)
        np.testing.assert_array_equal(np.take_along_axis(draws, orders[..., None], axis=2), aligned)


def test_components_of_several_chains_are_aligned():
    """Four chains of collapsed Gibbs that find the same topics: their average is those topics."""
    phi = topics()
    lda = LatentDirichletAllocation(
        4, algorithm="gibbs", n_chains=4, n_draws=20, burn_in=60, thinning=1, random_state=0
    ).fit(documents(phi))
    order = best_order(lda.components_, phi)
    assert np.abs(lda.components_[order] - phi).max() < 0.08


# document completion ------------------------------------------------------------------------------


def test_halves():
    """They add up to the document, each word of its own, and depend on the seed alone."""
    X = sp.csr_matrix(documents(topics()))
    X.data[:3] *= 0.5
    first, second = split_documents(X, 0)
    np.testing.assert_allclose((first + second).toarray(), X.toarray())
    words = np.ceil(X.toarray()).sum(axis=1)
    whole = np.ceil(second.toarray()[3:]).sum(axis=1)
    np.testing.assert_array_equal(whole, words[3:] // 2)
    assert first.min() >= 0 and second.min() >= 0
    again = split_documents(X, 0)[1]
    np.testing.assert_array_equal(again.toarray(), second.toarray())
    assert (split_documents(X, 1)[1] != second).nnz > 0


def test_perplexity_by_hand():
    """Two words, two draws: probabilities are averaged before the logarithm."""
    draws = np.array([[[0.9, 0.1]], [[0.3, 0.7]]])
    X = np.array([[2.0, 0.0]])  # one word in each half
    assert document_completion_perplexity(draws, X) == pytest.approx(1 / 0.6)


def test_the_words_to_score_are_not_conditioned_on():
    """Two topics of one word each, and documents of both words: what is held out comes as news.

    Given the other word, its topic has the share alpha / (1 + 2 alpha) of the document. With both
    words, or with the one to score, it would have 1/2 or nearly 1.
    """
    X, alpha = np.ones((5, 2)), 0.1
    expected = (1.0 + 2.0 * alpha) / alpha
    found = document_completion_perplexity(np.eye(2), X, doc_topic_prior=alpha)
    assert found == pytest.approx(expected, rel=1e-9)
    # of three equal words two are known and one is scored
    thrice = document_completion_perplexity(np.eye(2), 3.0 * np.eye(2), doc_topic_prior=alpha)
    assert thrice == pytest.approx((2.0 + 2.0 * alpha) / (2.0 + alpha), rel=1e-9)


def test_true_topics_score_best():
    phi = topics()
    X = documents(phi, seed=1)
    true = document_completion_perplexity(phi, X, doc_topic_prior=0.2, random_state=0)
    other = document_completion_perplexity(topics(seed=5), X, doc_topic_prior=0.2, random_state=0)
    uniform = document_completion_perplexity(np.ones((1, 30)), X, random_state=0)
    assert uniform == pytest.approx(30.0)
    assert true < 0.7 * uniform
    assert true < other


def test_proportions_solve_their_equation():
    phi, X = topics(), sp.csr_matrix(documents(topics())[:20])
    theta = proportions(phi, X, 0.3, n_steps=400)
    n = theta * (np.asarray(X.sum(axis=1)) + 4 * 0.3) - 0.3
    r = theta[:, None, :] * phi.T[None]
    r /= r.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(n, np.einsum("dw,dwk->dk", X.toarray(), r), atol=1e-3)


@pytest.mark.slow
def test_topics_of_scikit_learn_are_scored():
    """Their rows do not sum to one; ours find as good topics on the same documents."""
    phi = topics()
    X, X_test = documents(phi), documents(phi, seed=1)
    theirs = VariationalLDA(4, random_state=0).fit(X)
    ours = LatentDirichletAllocation(
        4, n_draws=20, burn_in=500, thinning=10, compiled=True, random_state=0
    ).fit(X)
    score = document_completion_perplexity(
        theirs.components_, X_test, doc_topic_prior=0.25, random_state=0
    )
    assert ours.perplexity(X_test, random_state=0) < 1.05 * score
    assert ours.score(X_test) == pytest.approx(-np.log(ours.perplexity(X_test, random_state=0)))


@cases(
    "topics, X, alpha, message",
    [
        (np.ones(3), np.ones((2, 3)), 0.1, r"topics of shape \(3,\) is not allowed"),
        (np.zeros((2, 3)), np.ones((2, 3)), 0.1, "topics of shape .* is not allowed"),
        (-np.ones((2, 3)), np.ones((2, 3)), 0.1, "topics of shape .* is not allowed"),
        # fewer words than the topics have were scored as if they were the first ones
        (np.ones((2, 3)), np.ones((2, 2)), 0.1, r"X of shape \(2, 2\) .* topics of 3 words"),
        (np.ones((2, 3)), -np.ones((2, 3)), 0.1, "Negative values in data passed to X"),
        (np.ones((2, 3)), [[1.0, np.nan, 2.0]], 0.1, "Input X contains NaN"),
        (np.ones((2, 3)), np.full((1, 3), 1e9), 0.1, "document 0 has 3e.09 words"),
        (np.ones((2, 3)), [["a", "b", "c"]], 0.1, "not numeric"),
        # the perplexity was nan
        *((np.ones((2, 3)), np.ones((2, 3)), alpha, "doc_topic_prior=.* is not allowed")
          for alpha in (0.0, -1.0, np.nan, "0.1")),
    ],
)  # fmt: skip
def test_what_can_not_be_scored(topics, X, alpha, message):
    with pytest.raises(ValueError, match=message):
        document_completion_perplexity(topics, X, doc_topic_prior=alpha)


@pytest.mark.filterwarnings("error")
def test_rounded_counts_and_words_that_no_topic_has():
    phi, X = topics(), documents(topics())[:20]
    rounded = 0.1 * (10.0 * X) * (1.0 + 1e-15)  # 0.1 * 30 is not 3
    found = [document_completion_perplexity(phi, each, random_state=0) for each in (X, rounded)]
    assert found[1] == pytest.approx(found[0], rel=1e-9)
    assert document_completion_perplexity([[1.0, 1.0, 0.0]], np.full((2, 3), 4)) == np.inf


# words --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    import pandas as pd

    phi = topics(n_words=6)
    X = pd.DataFrame(documents(phi), columns=list("abcdef"))
    lda = LatentDirichletAllocation(4, algorithm="gibbs", n_draws=20, burn_in=20, random_state=0)
    return lda.fit(X), X


def test_top_words(fitted):
    lda, _ = fitted
    words = lda.top_words(2)
    assert words.shape == (4, 2)
    for k, (first, second) in enumerate(words):
        order = np.argsort(-lda.components_[k])
        assert [first, second] == ["abcdef"[order[0]], "abcdef"[order[1]]]
    assert set(lda.top_words(1, range(6)).ravel()) <= set(range(6))
    with pytest.raises(ValueError, match=r"feature_names of shape \(3,\) is not allowed: give 6"):
        lda.top_words(1, ["a", "b", "c"])


def test_names_out_and_set_output(fitted):
    lda, X = fitted
    assert lda.get_feature_names_out()[0] == "latentdirichletallocation0"
    frame = lda.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == list(lda.get_feature_names_out())
    np.testing.assert_allclose(frame.sum(axis=1), 1.0)
    lda.set_output(transform="default")


def test_summary_names_words(fitted):
    lda, _ = fitted
    assert lda.summary()["name"][:2] == ["0: a", "0: b"]


def test_topic_display(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    lda, _ = fitted
    display = TopicDisplay.from_estimator(lda, [2, 0], n_words=3)
    np.testing.assert_array_equal(display.words, lda.top_words(3)[[2, 0]])
    assert (display.lower <= display.mean + 1e-12).all() and (display.mean <= display.upper).all()
    assert [ax.get_title() for ax in display.axes_] == ["topic 2", "topic 0"]
    assert [bar.get_width() for bar in display.ax_.patches] == display.mean[0].tolist()
    in_pipeline = make_pipeline(FunctionTransformer(), lda)
    assert len(TopicDisplay.from_estimator(in_pipeline).axes_) == 4
    with pytest.raises(ValueError, match="topics=4 is not allowed"):
        TopicDisplay.from_estimator(lda, [4])


def test_intervals_of_topics_weigh_the_draws(fitted):
    """Of draws with all weight on one, every interval is that one, as the mean is."""
    pytest.importorskip("matplotlib").use("Agg")
    lda = copy.deepcopy(fitted[0])
    weights = np.full(lda.posterior_.n_draws, 1e-12)
    weights[-1] = 1.0
    lda.posterior_.weights = weights
    display = TopicDisplay.from_estimator(lda, [2])
    np.testing.assert_array_equal(display.lower, display.upper)


def test_perplexity_weighs_the_draws(fitted):
    """Of draws with all weight on one, it is that of this draw, as the proportions are."""
    lda, X = copy.deepcopy(fitted[0]), fitted[1]
    weights = np.full(lda.posterior_.n_draws, 1e-12)
    weights[-1] = 1.0
    lda.posterior_.weights = weights
    last = document_completion_perplexity(
        lda.posterior_["components"][0, -1], X, doc_topic_prior=lda.doc_topic_prior_, random_state=0
    )
    assert lda.perplexity(X, random_state=0) == pytest.approx(last, rel=1e-9)
