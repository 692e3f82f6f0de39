"""LDA on bad and odd input, streams, checkpoints."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases
from _topics import SHORT, corpus

from skbayes_sgmcmc import LatentDirichletAllocation, MixingDistance, SamplingWarning
from skbayes_sgmcmc.samplers import PSGLD

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore:the chains have not mixed")

ALGORITHMS = [{}, {"parametrization": "expanded_natural"}, {"algorithm": "gibbs"}]


def short(n_components=3, **parameters):
    return LatentDirichletAllocation(n_components, **(SHORT | parameters))


def test_a_gibbs_fit_keeps_nothing_of_an_earlier_one():
    """Warnings spoke of the rows of an earlier stream, and its step size stayed."""
    X = corpus()
    lda = short().partial_fit(X).set_params(algorithm="gibbs").fit(X)
    fresh = short(algorithm="gibbs").fit(X)
    shown = [{name for name in vars(each) if name.endswith("_")} for each in (lda, fresh)]
    assert shown[0] == shown[1]
    assert lda._stream_rows is None


# parameters ---------------------------------------------------------------------------------------


@cases(
    "parameters, message",
    [
        ({"prior": "laplace"}, "prior='laplace' is not allowed"),
        ({"prior": "normal", "algorithm": "gibbs"}, "prior='normal' is not allowed"),
        ({"thinning": MixingDistance()}, "thinning=MixingDistance"),
        ({"init": "gaussian"}, "init='gaussian' is not allowed"),
        ({"init": "map"}, "init='map' is not allowed with parametrization='expanded_mean'"),
        ({"sampler": "mala"}, "sampler=MALA is not allowed"),
        ({"sampler": "rsgld", "parametrization": "expanded_natural"}, "has no metric"),
        ({"sampler": "sgld"}, "give sampler='rsgld'"),
        (
            {"parametrization": "expanded_natural", "sampler": PSGLD(divergence=True)},
            r"compares two gradients of the same rows.*give sampler=PSGLD\(\)",
        ),
        ({"temperature": 0.5}, "temperature=0.5 is not allowed"),
        ({"algorithm": "gibbs", "checkpoint": "x.npz"}, "checkpoint='x.npz' is not allowed"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        short(**parameters).fit(corpus())


def test_natural_parameters_start_at_a_mode_unless_init_says_otherwise():
    natural = {"parametrization": "expanded_natural"}
    draws = {
        init: short(init=init, **natural).fit(corpus()).posterior_["components"]
        for init in ("auto", "map", "random")
    }
    np.testing.assert_array_equal(draws["auto"], draws["map"])
    # half of the burn-in then has noise that it did not have
    assert np.abs(draws["random"] - draws["auto"]).max() > 0.01


# data ---------------------------------------------------------------------------------------------


@cases("algorithm", ALGORITHMS)
@cases("compiled", [True, False])
def test_empty_documents(algorithm, compiled):
    """They have equal proportions, and the others those that they have without them.

    Minibatches of one document are sometimes empty as a whole.
    """
    X = corpus()
    X[[0, 7, -1]] = 0
    X[20:] = 0
    lda = short(compiled=compiled, batch_size=1, **algorithm).fit(X)
    assert np.isfinite(lda.components_).all()
    theta = lda.transform(X)
    np.testing.assert_allclose(theta[[0, 7, -1]], 1 / 3, rtol=1e-6)
    np.testing.assert_array_equal(lda.transform(X[1:7]), theta[1:7])


def test_a_vocabulary_of_one_word_is_not_warned_of():
    """Its probability is 1 in every draw, which was taken for chains that do not move."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SamplingWarning)
        LatentDirichletAllocation(2, max_steps=60, random_state=0).fit(np.full((9, 1), 3))


def test_documents_of_one_word_cannot_be_completed():
    lda = short().fit(corpus())
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
    lda = short().fit(dense)
    np.testing.assert_array_equal(lda.transform(X), lda.transform(X.toarray()))
    short().fit(X)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, part), getattr(before, part))


# streams ------------------------------------------------------------------------------------------


def test_chains_of_another_parametrization_do_not_go_on():
    """Natural parameters are no expanded means: a warm fit starts anew, a stream refuses."""
    X = corpus()
    lda = short(parametrization="expanded_natural", warm_start=True).fit(X)
    lda.set_params(parametrization="expanded_mean").fit(X)
    np.testing.assert_array_equal(lda.components_, short().fit(X).components_)
    stream = short().partial_fit(X).set_params(parametrization="expanded_natural")
    with pytest.raises(ValueError, match="earlier calls had 'expanded_mean'"):
        stream.partial_fit(X)


def test_gibbs_takes_no_streams():
    assert not hasattr(short(algorithm="gibbs"), "partial_fit")


def test_steps_of_a_stream_fall_slowly():
    """As (documents seen)^-0.6 once that is below the step of a fit, with a floor where N is given.

    Of 100 equal batches, the 50th and the 100th.
    """
    lda, X, steps = short(), corpus(), {}
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


# chains -------------------------------------------------------------------------------------------


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
