"""Interrupts, kill -9, resumption and damaged files.

A resumed fit must be the uninterrupted one bit for bit: its draws, and where it would go on from.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
from functools import partial
from pathlib import Path

import _seeds
import joblib
import numpy as np
import pytest
from _checkpoint import CHUNK, FITS, QUICK, assert_same, data, make, steps_told
from _inside import Interrupt
from _inside import limits as set_limits
from _process import output_of
from _topics import SHORT, corpus
from torch import nn
from torch.distributions import Normal

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.samplers import SGLD

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: other processes find the package where this one did
HERE = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

# kill -9 ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def short_chunks(limits):
    limits(chunk_steps=CHUNK)


def stream_and_save(path, stop):
    """Feed batches, saving the estimator after each; kill -9 in the midst of one."""
    file = Path(path)
    lda = (
        joblib.load(file)
        if file.exists()
        else sk.LatentDirichletAllocation(3, **SHORT | {"random_state": 3, "n_draws": 3})
    )
    done = getattr(lda, "batches_done", 0)
    for call in range(done, 6):
        if call == stop:
            lda.set_callbacks(Interrupt(0.0, signal.SIGKILL))
        lda.partial_fit(corpus(seed=call))
        lda.batches_done = call + 1
        joblib.dump(lda, file.with_suffix(".partial"))
        file.with_suffix(".partial").replace(file)
    return lda


def targets(outputs, scale):
    return Normal(outputs[:, 0], scale)


def doubled(outputs):
    return targets(outputs, 2.0)


def build(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 3), nn.Tanh(), nn.Linear(3, n_outputs))


def predictions_of_functions(folder):
    """Of fits to which functions belong, each with a file."""
    X, found = np.linspace(-1.0, 1.0, 20).reshape(10, 2), {}
    some = {"n_draws": 4, "burn_in": 4, "thinning": 1, "step_size": 1e-3, "random_state": 0}
    for name, how in {"function": doubled, "partial": partial(targets, scale=2.0)}.items():
        likelihood = sk.TorchLikelihood(how, n_outputs=1)
        reg = sk.BayesianMLPRegressor(
            hidden_layer_sizes=3, likelihood=likelihood, checkpoint=f"{folder}/{name}.npz", **some
        )
        found[name] = reg.fit(X, X[:, 0]).predict(X).tolist()
    clf = sk.BayesianModuleClassifier(
        build, sample_parameters="last_layer", checkpoint=f"{folder}/frozen.npz", **some
    )
    found["frozen"] = clf.fit(X, np.arange(10) % 2).predict_proba(X).tolist()
    return found


def fit_and_be_killed(folder, names):
    """Run each of these fits in a child that kills itself once its file has been written.

    So does a stream; and fits to which functions belong leave their files and predictions.
    """
    folder = Path(folder)
    for name in (*names, "stream"):
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            continue
        if name == "stream":
            stream_and_save(folder / "stream.joblib", stop=3)
        clf = make(name, str(folder / f"{name}.npz"))
        clf.set_callbacks(Interrupt(FITS[name][1], signal.SIGKILL))
        # each chunk is written
        with set_limits(chunk_steps=CHUNK, write_seconds=0.0, write_share=1e9):
            clf.fit(*data())
    (folder / "functions.txt").write_text(repr(predictions_of_functions(folder)))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """``killed(name)`` is the file of a killed fit; the quick ones die together, and the others."""
    files = {}

    def file_of(name):
        if name not in files:
            folder = tmp_path_factory.mktemp("killed")
            names = [other for other in FITS if (other in QUICK) == (name in QUICK)]
            code = f"import _seeds; _seeds.shift({_seeds.SHIFT}); import test_checkpoint as t; "
            code += f"t.fit_and_be_killed({str(folder)!r}, {names!r})"
            output_of("-c", code, env=HERE, cwd=Path(__file__).parent)
            files.update({each: folder / f"{each}.npz" for each in names})
        return files[name]

    return file_of


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FITS]
)
def test_resumes_bit_for_bit_after_kill(killed, name):
    pytest.importorskip("sklearn.callback")
    path, share = str(killed(name)), FITS[name][1]
    with np.load(path) as file:
        assert (int(file["kept"]) == 0) == (share < 0.2)  # in burn-in, and after it
    whole, resumed = make(name), make(name, path)
    steps, left = steps_told(whole, *data()), steps_told(resumed, *data())
    assert 0 < len(left) < len(steps) and left == steps[-len(left) :]  # it did not start anew
    assert_same(resumed, whole)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_killed_in_mid_stream(killed, tmp_path):
    """Going on from what was saved ends bit for bit where the stream without a kill does."""
    pytest.importorskip("sklearn.callback")
    path = killed(QUICK[0]).parent / "stream.joblib"
    assert joblib.load(path).batches_done == 3
    resumed = stream_and_save(path, stop=None)
    whole = stream_and_save(tmp_path / "whole.joblib", stop=None)
    np.testing.assert_array_equal(resumed.posterior_["components"], whole.posterior_["components"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_files_of_functions_are_resumed_in_another_process(killed):
    """They were refused: the text of a function holds its address.

    Files of frozen layers that a callable builds were, too: their weights did not follow
    random_state, nor did predictions.
    """
    folder = killed(QUICK[0]).parent
    there = ast.literal_eval((folder / "functions.txt").read_text())
    assert predictions_of_functions(folder) == there


def test_a_finished_file_is_returned_at_once(tmp_path):
    """A process that is killed between the fit's end and its use of the result loses nothing."""
    first, again = (make("default", tmp_path / "file.npz") for _ in range(2))
    assert steps_told(first, *data()) and not steps_told(again, *data())
    assert_same(first, again)
    (tmp_path / "file.npz").rename(tmp_path / "moved.npz")
    assert_same(first, make("default", tmp_path / "moved.npz").fit(*data()))


class Watched(SGLD):
    """Counts the steps of all groups of chains, and presses Ctrl-C in the midst of one."""

    steps, last = 0, None

    def euler(self, theta, state, step):
        Watched.steps += 1
        if Watched.steps == Watched.last:
            signal.raise_signal(signal.SIGINT)
        super().euler(theta, state, step)


def watched(path=None, **parameters):
    """A fit; besides its own steps, a few are taken that tell one sampler from another."""
    given = {"sampler": Watched(), "step_size": 0.1, "checkpoint": path}
    return make("default").set_params(**given | parameters)


def test_each_group_of_chains_has_a_file(tmp_path):
    """Of three chains in two groups; the group whose file is gone is drawn anew, the other is not.

    So a chain goes on from its file when joblib gives it to another worker.
    """

    def fit(path):
        before = Watched.steps
        with joblib.parallel_config("threading"):
            clf = watched(path, n_chains=3, n_jobs=2).fit(*data())
        return clf, Watched.steps - before

    (whole, of_both), path = fit(None), tmp_path / "file.npz"
    for new in (of_both, 0, of_both // 2, 0):
        found, steps = fit(path)
        assert_same(found, whole)
        assert new <= steps < new + 20
        assert {file.name for file in tmp_path.iterdir()} == {"file.0-1.npz", "file.2-2.npz"}
        if new == 0:
            (tmp_path / "file.2-2.npz").unlink()


# Ctrl-C -------------------------------------------------------------------------------------------


def stopped(chunks, fit, *given):
    """What a fit says that is interrupted half a chunk after so many."""
    # a shell's background jobs ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Watched.last = Watched.steps + int((chunks + 0.5) * CHUNK)
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(*given)
    return str(caught.value)


@pytest.mark.parametrize("step_size", [0.1, FITS["schedule"][0]["step_size"]], ids=str)
def test_ctrl_c_leaves_a_file_to_go_on_from(tmp_path, step_size):
    path = tmp_path / "file.npz"
    clf = watched(path, step_size=step_size)
    text = stopped(1, clf.fit, *data())
    assert f"interrupted at step {CHUNK} of" in text
    assert "call fit again with the same data and parameters" in text and str(path) in text
    assert set(vars(clf)) == set(clf.get_params(deep=False))
    whole = watched(step_size=step_size)
    assert steps_told(clf, *data()) == steps_told(whole, *data())[1:]
    assert_same(clf, whole)


def test_ctrl_c_without_a_file_says_what_to_do(tmp_path):
    text = stopped(0, watched().fit, *data())
    assert "nothing was kept. Set checkpoint='file.npz'" in text
    text = stopped(0, watched(tmp_path / "file.npz").fit, *data())
    assert "before the first checkpoint; nothing was kept" in text
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_a_fitted_estimator_as_it_was():
    clf = watched().fit(*data())
    before = clf.posterior_
    stopped(1, clf.fit, data()[0][:, :3], data()[1])
    assert clf.posterior_ is before and clf.n_features_in_ == 5


def test_resumes_after_a_chain_has_diverged(tmp_path):
    """By the end of the first chunk chain 1 is gone; the file knows which chains are left.

    It knows when the other one went, too, and the warning says so as in a run without a break.
    """

    def run(path):
        return sk.sample(
            lambda theta: -0.25 * (theta**4).sum(1),
            2,
            init=np.array([[0.0, 0.0], [1e3, 0.0], [0.0, 0.0]]),
            n_chains=3,
            n_draws=3 * CHUNK,
            burn_in=0,
            sampler=Watched(),
            step_size=0.01,
            random_state=0,
            checkpoint=path,
        )

    stopped(2, run, tmp_path / "file.npz")
    reported = r"1 of 3 chains diverged \(chain 1 by step 64 of.* may be biased"
    with pytest.warns(sk.SamplingWarning, match=reported):
        resumed = run(tmp_path / "file.npz")
    with pytest.warns(sk.SamplingWarning, match=reported):
        whole = run(None)
    assert resumed.n_chains == 2
    np.testing.assert_array_equal(resumed["theta"], whole["theta"])
