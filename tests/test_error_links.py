"""Errors that users meet end in a link to the section of docs/warnings.md that explains them."""

from __future__ import annotations

import pickle
import re
import sys
import traceback
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from _cases import cases
from _links import PAGE, SECTIONS, anchors, section_of
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from torch import nn
from torch.utils.data import Dataset

import skbayes_sgmcmc as sk
from skbayes_sgmcmc import inspection, samplers, schedules
from skbayes_sgmcmc._exceptions import NOT_ALLOWED, explained, not_allowed

X, y = make_classification(60, 4, random_state=0)
GAPS = np.where(X[7, 2] == X, np.nan, X)
#: a run that takes no time, for errors of what comes after fit
RUN = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1, "step_size": 1e-3}
#: what constructors need, where they need something
REQUIRED = {
    "BayesianModuleClassifier": {"module": partial(nn.Linear, 4, 2)},
    "BayesianModuleRegressor": {"module": partial(nn.Linear, 4, 1)},
    "BayesianCNNClassifier": {"image_shape": (1, 2, 2), "kernel_size": 1},
    "DistilledClassifier": {"estimator": sk.BayesianLogisticRegression(**RUN)},
}
ESTIMATORS = [n for n in sk.__all__ if hasattr(getattr(sk, n), "fit")]


def made(name):
    return getattr(sk, name)(**REQUIRED.get(name, {}))


def section_raised(call, *args, kind=ValueError, match=None, **options):
    """The section that the error of a call names, in the last line of its traceback."""
    with pytest.raises(kind, match=match) as caught:
        call(*args, **options)
    section, error = section_of(caught.value), caught.value
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    assert lines[-1] == f'More: skbayes_sgmcmc.explain("{section}")', repr(error)
    assert "More" not in str(error)
    return section


# estimators ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy's, of infinities of both signs
@cases("name", ESTIMATORS)
def test_fit_of_every_estimator(name):
    """Parameters, and what scikit-learn refuses: gaps, text, rows of several lengths.

    The message names the row and the column, and says what to do.
    """
    estimator = made(name)
    assert (
        section_raised(estimator.fit, GAPS, y, match="row 7 in column 2 is missing") == NOT_ALLOWED
    )
    infinite = np.where(np.arange(60)[:, None] == 3, np.inf, np.where(X[5, 1] == X, -np.inf, X))
    assert section_raised(estimator.fit, infinite, y, match="contains infinity") == NOT_ALLOWED
    ragged = [row[: 3 + (i > 0)] for i, row in enumerate(X.tolist())]
    message = (
        r"rows have different shapes, \(3,\) of row 0 and \(4,\) of row 1\. (Give rows of one|Pad)"
    )
    section = section_raised(estimator.fit, ragged, y, match=message)
    assert section == "rows-have-different-shapes"
    remedy = "Encode what is no number"
    if hasattr(estimator, "categorical_features"):
        estimator.set_params(categorical_features=None)
        remedy = "Name what holds categories in categorical_features"
    table = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1], "city": "Oslo", "pet": "cat"})
    message = r"columns 'city', 'pet' are not numeric \(in column 'city', row 0 has 'Oslo'\)\. "
    section = section_raised(estimator.fit, table, y, match=message + remedy)
    assert section == "a-column-is-not-numeric"
    counter = "n_epochs" if name == "DistilledClassifier" else "n_draws"
    estimator.set_params(**{counter: -1})
    assert section_raised(estimator.fit, X, y, match=f"{counter}=-1") == NOT_ALLOWED


@cases("name", ESTIMATORS)
def test_methods_of_every_estimator_that_is_not_fitted(name):
    estimator = made(name)
    methods = [each for each in ("predict", "predict_proba", "transform", "sample_y", "summary")
               if hasattr(estimator, each)]  # fmt: skip
    assert methods
    for method in methods:
        rows = () if method == "summary" else (X,)
        section = section_raised(getattr(estimator, method), *rows, kind=NotFittedError)
        assert section == "an-estimator-is-not-fitted"


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@cases("name", [n for n in ESTIMATORS if n != "DistilledClassifier"])
def test_predictions_of_every_estimator(name):
    estimator = made(name).set_params(**RUN)
    rows = np.random.default_rng(0).poisson(2.0, X.shape).astype(float)  # topics need counts
    estimator.fit(rows, y)
    method = estimator.predict if hasattr(estimator, "predict") else estimator.transform
    assert section_raised(method, rows[:, :3]) == NOT_ALLOWED
    assert section_raised(method, np.where(rows == rows.max(), np.inf, rows)) == NOT_ALLOWED


@cases(
    "estimator, targets",
    [
        (sk.BayesianLogisticRegression(), y + 0.5 * X[:, 0]),  # scikit-learn's: continuous
        (sk.BayesianLogisticRegression(), np.zeros(60)),
        (sk.BayesianLogisticRegression(class_weight="even"), y),
        (sk.BayesianLogisticRegression(), y[:5]),
        (sk.BayesianOrdinalClassifier(), y + 0.5 * X[:, 0]),
        (sk.BayesianGLMRegressor(likelihood="poisson"), y - 0.5),
        (sk.BayesianGLMRegressor(), np.full(60, np.nan)),
    ],
)
def test_targets(estimator, targets):
    assert section_raised(estimator.fit, X, targets) == NOT_ALLOWED


@cases(
    "call, section",
    [
        (lambda: sk.BayesianLogisticRegression().fit(1e200 * X, y), "numbers-are-too-large"),
        (lambda: sk.BayesianModuleClassifier(nn.Linear(3, 2)).fit(X, y), "a-module-is-not-allowed"),
        (lambda: sk.low_rank_adapters(nn.Linear), "a-module-is-not-allowed"),
        (lambda: sk.sample(lambda theta: theta.sum(), 2), "a-density-of-your-own-is-not-allowed"),
        (
            lambda: sk.BayesianMLPRegressor(likelihood=sk.TorchLikelihood(abs)).fit(X, y),
            "a-density-of-your-own-is-not-allowed",
        ),
        (
            lambda: sk.BayesianLogisticRegression(**RUN).partial_fit(X, y).partial_fit(X, y + 1),
            "a-later-call-of-partial_fit-differs",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_errors_with_a_section_of_their_own(call, section):
    assert section_raised(call).startswith(section)


# functions, groups of parameters, figures ---------------------------------------------------------


class Deaf:
    """An estimator of nobody."""


@cases(
    "call",
    [
        lambda: sk.sample(3),
        lambda: sk.sample(lambda theta: theta, 2, n_draws=0),
        lambda: sk.to_onnx(Deaf(), "model.onnx"),
        lambda: sk.to_torch(Deaf()),
        lambda: sk.low_rank_adapters(nn.Linear(2, 2), rank=0),
        lambda: sk.ParquetRows(3),
        lambda: sk.document_completion_perplexity(np.ones((1, 2)), [[1]]),
        lambda: inspection.expected_calibration_error([0, 1], [[0.1, 0.2], [0.3, 0.4]]),
        lambda: inspection.expected_calibration_error([0, 1], [0.1]),  # scikit-learn's
        lambda: inspection.NoisePhaseDisplay.from_covariance(
            np.eye(2), step_size=1.0, n_steps=0, n=10, batch_size=1
        ),
        lambda: sk.SpikeSlab(gain=2.0).check("prior"),
        lambda: sk.DistilledClassifier(Deaf()).fit(X, y),
    ],
)
def test_functions_and_groups(call):
    assert section_raised(call) == NOT_ALLOWED


def test_errors_of_other_classes():
    """Each keeps its class; those of a missing process group are RuntimeErrors."""
    found = section_raised(sk.data_parallel().__enter__, kind=RuntimeError)
    assert found == "ranks-are-missing-or-differ"
    posterior = sk.sample(lambda theta: -theta.square().sum(1), 2, n_draws=4, burn_in=2, thinning=1,
                       step_size=0.1)  # fmt: skip
    assert isinstance(posterior, sk.PosteriorSamples)
    for call in (lambda: posterior["beta"], lambda: posterior.mean("beta")):
        assert section_raised(call, kind=KeyError) == NOT_ALLOWED
    assert section_raised(posterior.quantile, "theta", 2.0) == NOT_ALLOWED
    with pytest.raises(FileNotFoundError) as caught:
        sk.ParquetRows("no such file")
    assert section_of(caught.value) == "the-rows-cannot-be-read"


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("name", ["BayesianICA", "LatentDirichletAllocation"])
def test_exports_of_what_has_no_predictions(name):
    """They were errors without a word."""
    counts = np.random.default_rng(0).poisson(2.0, X.shape)
    fitted = made(name).set_params(**RUN).fit(counts)
    for call in (
        sk.to_torch,
        partial(sk.to_onnx, path="model.onnx"),
        partial(sk.to_arviz, X=counts, y=y),
    ):
        assert section_raised(call, fitted) == NOT_ALLOWED


@cases("name", ["arviz", "matplotlib", "onnx", "pyarrow"])
def test_missing_extras(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    for part in ("matplotlib.pyplot", "pyarrow.dataset"):
        monkeypatch.setitem(sys.modules, part, None)
    fitted = sk.sample(lambda theta: -theta.square().sum(1), 2, n_draws=4, burn_in=2, thinning=1,
                    step_size=0.1)  # fmt: skip
    calls = {
        "arviz": lambda: sk.to_arviz(fitted),
        "matplotlib": lambda: inspection.ReliabilityDisplay.from_predictions(
            y, np.full(60, 0.5)
        ).plot(),
        "onnx": lambda: sk.to_onnx(sk.BayesianLogisticRegression(), tmp_path / "model.onnx"),
        "pyarrow": lambda: sk.ParquetRows(tmp_path / "rows.parquet"),
    }
    assert section_raised(calls[name], kind=ImportError) == "an-extra-is-missing"


def wrong_samplers():
    """Every sampler with a value that one of its parameters may not have, if it has any."""
    for name in samplers.__all__:
        kind = getattr(samplers, name)
        if issubclass(kind, samplers.Sampler) and kind is not samplers.Sampler:
            for parameter in kind().get_params():
                yield kind(**{parameter: "none such"})


@cases("sampler", list(wrong_samplers()))
def test_samplers(sampler):
    clf = sk.BayesianLogisticRegression(sampler=sampler, **RUN)
    assert section_raised(clf.fit, X, y) == NOT_ALLOWED


@cases(
    "schedule",
    [
        schedules.BlockDecay(-1.0),
        schedules.Constant(-1.0),
        schedules.Cyclical(-1.0),
        schedules.Exponential(1.0),
        schedules.MultiStep(1.0, milestones=(3, 1)),
        schedules.Polynomial(first=1.0),
        schedules.Polynomial(1.0, 1.0),
        "fast",
    ],
)
def test_schedules(schedule):
    clf = sk.BayesianLogisticRegression(**RUN | {"step_size": schedule})
    assert section_raised(clf.fit, X, y) == NOT_ALLOWED


# what a note calls --------------------------------------------------------------------------------


def test_explain_prints_the_section_that_a_message_names(capsys):
    """Whole, with its code, and no other section; references of the site are plain names."""
    page = re.sub(r"\{\w+\}`~(?:\w+\.)*(\w+)`", r"\1", PAGE.read_text())
    for section in SECTIONS:
        sk.explain(section)
        title, text = capsys.readouterr().out.split("\n", 1)
        assert anchors(f"# {title}") == {section} and not anchors(text)
        assert not re.search(r"\{\w+\}`", text)
        after = page.partition(f"{title}\n{text.rstrip()}")[2].lstrip()
        assert after == "" or after.startswith("#")


def test_a_section_that_does_not_exist_names_near_ones():
    with pytest.raises(ValueError, match="section='the-memory' is not allowed.*the-memory-is-full"):
        sk.explain("the-memory")
    with pytest.raises(ValueError, match="section=None is not allowed: give 'warnings-and-errors'"):
        sk.explain(None)


# one note, everywhere -----------------------------------------------------------------------------


def test_an_error_gets_one_note():
    """The one of the place that knows most, which is the first."""
    error = explained(not_allowed("X is too large.", "the-memory-is-full"))
    assert error.__notes__ == ['More: skbayes_sgmcmc.explain("the-memory-is-full")']
    assert section_of(pickle.loads(pickle.dumps(error))) == "the-memory-is-full"


class Broken(Dataset):
    """Rows of which one can't be read once chains run."""

    def __len__(self):
        return 60

    def __getitem__(self, index):
        row = torch.as_tensor(X[index], dtype=torch.float32)
        return row if index != 59 else row * torch.nan, y[index]


@pytest.mark.slow  # test_an_error_gets_one_note looks at what processes send
def test_workers_keep_it():
    """Through joblib's processes: those of a search, and those of the chains of a fit.

    One item of a dataset, of 60 in minibatches, is seen by the processes of the chains alone.
    """
    scores = partial(cross_val_score, error_score="raise", n_jobs=2)
    assert section_raised(scores, sk.BayesianLogisticRegression(n_draws=-1), X, y) == NOT_ALLOWED
    clf = sk.BayesianModuleClassifier(partial(nn.Linear, 4, 2), **RUN, n_jobs=2, batch_size=60)
    assert section_raised(clf.fit, Broken(), None) == "the-rows-cannot-be-read"
