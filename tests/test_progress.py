"""What is seen of a fit: lines while it runs, and the HTML of a fitted estimator."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
from joblib import parallel_backend
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    SamplingWarning,
    SparseBayesianClassifier,
)
from skbayes_sgmcmc._callbacks import ProgressLine, is_screen
from skbayes_sgmcmc._engine.progress import Board, Report
from skbayes_sgmcmc.estimators._html import posterior_html

X, y = make_classification(60, 4, n_redundant=0, random_state=0)
STEPS = {"n_draws": 40, "burn_in": 600, "thinning": 60, "n_chains": 2, "random_state": 0}
LINE = re.compile(
    r"\[(\w+)\] (?:\|#*\.*\| )? *(\d+)%, step (\d+) of (\d+)(?:, (\d+:\d\d) left)?"
    r"(?:, NLL of a row (\S+))?(?:, R-hat (\S+))?"
)
NETWORK = BayesianMLPClassifier(hidden_layer_sizes=(4,), sampler="psgld", compiled=False)
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def lines_of(text):
    """(name, percent, step, steps, left, NLL, R-hat) of each line."""
    return [LINE.fullmatch(line.rstrip()).groups() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    "estimator",
    [BayesianLogisticRegression(), BayesianGLMRegressor(sampler="sgld"), BayesianICA(), NETWORK],
    ids=lambda estimator: type(estimator).__name__,
)
def test_lines_say_the_step_the_loss_and_how_chains_agree(estimator, capsys):
    """R-hat only where chains that agree have equal parameters, and draws exist."""
    estimator = clone(estimator).set_params(**STEPS, verbose=1, compiled=False).fit(X, y)
    kind = type(estimator)
    lines = lines_of(capsys.readouterr().out)
    assert 3 < len(lines) <= 20
    assert {line[0] for line in lines} == {kind.__name__}
    assert {int(line[3]) for line in lines} == {estimator.n_steps_}
    steps = [int(line[2]) for line in lines]
    assert steps == sorted(set(steps)) and steps[-1] == estimator.n_steps_
    assert [int(line[1]) for line in lines] == [100 * step // steps[-1] for step in steps]
    assert all(line[4] for line in lines[1:-1]) and not lines[-1][4]
    assert all(np.isfinite(float(line[5])) for line in lines)
    draws = [int(line[2]) >= 600 + 4 * 60 for line in lines]
    with_r_hat = [False] * len(lines) if kind is BayesianMLPClassifier else draws
    assert [line[6] is not None for line in lines] == with_r_hat


def test_the_time_left_of_a_repeated_run_is_that_of_its_own_steps(capsys, monkeypatch):
    """It was that of the first run's steps, too, and much too long."""
    times = iter([0.0, 40.0, 100.0, 110.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    line = ProgressLine("fit")
    for step in (10, 50, 10, 20):
        line.show(step, 100)
    found = [line[4] for line in lines_of(capsys.readouterr().out)]
    assert found == [None, "0:50", None, "1:20"]  # 50 steps in 1 s each; 80 steps in 1 s each


def test_the_loss_is_that_of_the_chains_positions(capsys):
    """Of the last draws, which are the last positions; a row's mean, not their sum."""
    clf = BayesianLogisticRegression(**STEPS, verbose=1, compiled=False).fit(X, y)
    *_, nll, r_hat = lines_of(capsys.readouterr().out)[-1]
    last = clf.posterior_["coef"][:, -1, 0] @ X.T + clf.posterior_["intercept"][:, -1]
    expected = np.logaddexp(0.0, np.where(y == 1, -last, last)).mean()
    assert float(nll) == pytest.approx(expected, rel=0.005)  # three digits
    assert float(r_hat) == pytest.approx(max(clf.summary()["r_hat"]), rel=0.005)


@pytest.mark.parametrize(
    "estimator",
    [
        LatentDirichletAllocation(),
        DeepPoissonFactorAnalysis((3, 2), doc_sweeps=2),
        SparseBayesianClassifier(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_models_with_many_modes_have_a_loss_and_no_r_hat(estimator, capsys):
    short = {**STEPS, "n_draws": 4, "burn_in": 60, "thinning": 5, "verbose": 1}
    clone(estimator).set_params(**short).fit(np.round(np.abs(3 * X[:15])), y[:15])
    lines = lines_of(capsys.readouterr().out)
    assert lines[-1][1] == "100" and all(line[6] is None for line in lines)
    assert all(np.isfinite(float(line[5])) for line in lines)


def test_the_loss_of_documents_is_that_of_their_words_under_the_last_topics(capsys):
    """One chain, one draw: its predictions are those of its last position."""
    counts = np.round(np.abs(3 * X[:15])) + 1.0
    one = {**STEPS, "n_chains": 1, "n_draws": 1, "burn_in": 59, "thinning": 1}
    lda = LatentDirichletAllocation(3, **one, verbose=1).fit(counts)
    shown = float(lines_of(capsys.readouterr().out)[-1][5])
    words = lda.transform(counts) @ lda.components_
    assert shown == pytest.approx(-(counts * np.log(words)).sum(1).mean(), rel=0.005)  # 3 digits


def test_sweeps_of_gibbs_sampling_are_steps(capsys):
    """Of each chain, though chains take turns."""
    chains = {"n_chains": 2, "n_draws": 10, "burn_in": 20, "thinning": 2, "random_state": 0}
    lda = LatentDirichletAllocation(3, algorithm="gibbs", **chains, verbose=1)
    lda.fit(np.round(np.abs(3 * X[:15])))
    lines = lines_of(capsys.readouterr().out)
    steps = [int(line[2]) for line in lines]
    assert steps == sorted(set(steps)) and steps[-1] == lda.n_steps_ == 40
    assert 3 < len(lines) <= 20 and {int(line[3]) for line in lines} == {40}


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_chains_in_workers_are_seen(backend, capfd, limits):
    """The slowest worker's step, R-hat of all chains; the draws are those of a silent fit."""
    limits(look_seconds=0.01)
    settings = {**STEPS, "compiled": False, "n_jobs": 2}
    with parallel_backend(backend):
        clf = BayesianLogisticRegression(**settings, verbose=1).fit(X, y)
        lines = lines_of(capfd.readouterr().out)
        silent = BayesianLogisticRegression(**settings).fit(X, y)
    assert capfd.readouterr().out == ""
    assert len(lines) > 1 and lines[-1][1] == "100"
    assert all(np.isfinite(float(line[5])) for line in lines)
    assert float(lines[-1][6]) == pytest.approx(max(clf.summary()["r_hat"]), rel=0.005)
    np.testing.assert_array_equal(clf.coef_, silent.coef_)


def test_draws_that_are_too_many_stay_in_their_workers(capfd, limits):
    """The line then has no R-hat; and a worker on another machine has no folder to write to."""
    limits(shared_bytes=100)
    with parallel_backend("threading"):
        BayesianLogisticRegression(**STEPS, compiled=False, n_jobs=2, verbose=1).fit(X, y)
    lines = lines_of(capfd.readouterr().out)
    assert lines[-1][1] == "100" and all(line[6] is None for line in lines)


def test_a_worker_whose_reports_cannot_be_kept_goes_on(tmp_path, monkeypatch):
    """Without the folder, or without room in it; nothing is reported before all have written."""
    report = Report(
        step=5,
        n_steps=10,
        nll=lambda: 0.5,
        draws=lambda: (np.zeros((1, 4, 2)), None),
        one_mode=True,
    )
    Board(tmp_path / "elsewhere", 2).write(0, report)
    board = Board(tmp_path, 2)
    assert board.read(10) is None
    board.write(0, report)
    assert board.read(10) is None

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        board.write(1, report)
    assert board.read(10) is None
    board = Board(tmp_path, 2)
    board.write(1, report)
    read = board.read(10)
    assert (read.step, read.nll(), read.one_mode) == (5, 0.5, True)
    assert read.draws()[0].shape == (2, 4, 2)


def test_progress_changes_no_draws():
    settings = {**STEPS, "burn_in": 100, "n_draws": 20, "batch_size": 10}
    loud, silent = (clone(NETWORK).set_params(**settings, verbose=v).fit(X, y) for v in (1, 0))
    np.testing.assert_array_equal(loud.predict_proba(X), silent.predict_proba(X))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_one_line(monkeypatch):
    """Each text begins at the left, covers the one before it, and has a bar."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    BayesianLogisticRegression(**STEPS, verbose=1, compiled=False).fit(X, y)
    text = sys.stdout.getvalue()
    assert text.startswith("\r") and text.count("\n") == 1 and text.endswith("\n")
    shown = text.strip("\n").split("\r")[1:]
    assert all(len(old.rstrip()) <= len(new) for old, new in pairwise(shown))
    assert lines_of("\n".join(shown))[-1][1] == "100"
    bars = [re.search(r"\|(#*\.*)\|", each)[1] for each in shown]
    parts = [20 * int(step) // int(steps) for _, _, step, steps, *_ in lines_of("\n".join(shown))]
    assert bars == ["#" * part + "." * (20 - part) for part in parts]


@pytest.mark.parametrize("columns", [100, 80, 30])
def test_a_line_fits_into_a_narrow_terminal(columns, monkeypatch):
    """A longer one would begin a new line each time; the number of steps is left out first."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(Terminal, "fileno", lambda self: 1, raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda file: os.terminal_size((columns, 24)))
    BayesianLogisticRegression(**STEPS, verbose=1, compiled=False).fit(X, y)
    shown = sys.stdout.getvalue().strip("\n").split("\r")[1:]
    assert max(map(len, shown)) < columns
    assert all(len(old.rstrip()) <= len(new) for old, new in pairwise(shown))
    ends = [text for text in shown if "100%" in text]
    assert ends and all("step" not in text for text in ends)
    assert all(("R-hat" in text) == (columns >= 80) for text in ends)


def test_notebooks_and_terminals_are_screens():
    notebook = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    assert is_screen(notebook()) and is_screen(Terminal())
    assert not is_screen(io.StringIO()) and not is_screen(object())


# HTML ---------------------------------------------------------------------------------------------


def test_html_shows_the_posterior():
    clf = BayesianLogisticRegression(n_draws=250, random_state=0).fit(X, y)
    summary, shown = clf.summary(), clf._repr_html_()
    assert "4 chains × 250 draws" in shown and f"{clf.n_steps_:,} of each chain" in shown
    assert f"{max(summary['r_hat']):.3f} (" in shown
    worst = summary["name"][int(np.argmin(summary["ess"]))]
    assert f"{min(summary['ess']):,.0f} ({worst})" in shown
    assert ">none<" in shown


def test_diagrams_of_pipelines_and_searches_show_the_posterior():
    """In short, below the name of the estimator."""
    quick = BayesianLogisticRegression(n_draws=250, n_chains=2, random_state=0)
    pipe = make_pipeline(StandardScaler(), quick).fit(X, y)
    search = GridSearchCV(pipe, {"bayesianlogisticregression__prior_scale": [1.0]}, cv=2)
    for outer, last in ((pipe, pipe[-1]), (search.fit(X, y), search.best_estimator_[-1])):
        table = last.summary()
        assert (
            f"2 chains × 250 draws, R-hat {max(table['r_hat']):.2f}, ESS {min(table['ess']):,.0f}, "
            "no warnings"
        ) in outer._repr_html_()
    assert "no warnings" not in clone(pipe)._repr_html_()
    pipe[-1]._fit_warnings = ["one"]
    assert "1 warning<" in pipe._repr_html_()


def test_html_of_an_estimator_that_is_not_fitted_is_that_of_scikit_learn():
    assert "Warnings" not in BayesianLogisticRegression()._repr_html_()


def test_html_lists_the_warnings_of_the_latest_fit():
    """Escaped, because names of features may contain anything; a better fit has none."""
    clf = BayesianLogisticRegression(step_size=1e-5, n_draws=50, random_state=0)
    with pytest.warns(SamplingWarning, match="have not mixed") as caught:
        clf.fit(X, y)
    shown = clf._repr_html_()
    for warning in caught:
        assert str(warning.message)[:30] in shown
    assert f">{len(caught)}<" in shown and "<li>" in shown
    clf._fit_warnings = ["<script>"]
    assert "<script>" not in posterior_html(clf)
    assert ">none<" in clf.set_params(step_size="auto", n_draws=250).fit(X, y)._repr_html_()
