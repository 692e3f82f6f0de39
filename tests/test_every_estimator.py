"""What every estimator promises, whatever it samples: seeds, chains, weights, files, going on.

Fits of a few steps, in double precision. Where two fits must be equal to the bit, they are; where
sums may be taken in another order, rounding of 1e-16 has few steps to grow, and ROUNDING bounds it.
"""

from __future__ import annotations

import io
import pickle
from contextlib import redirect_stdout
from functools import cache, partial
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from _cases import cases
from _files import by_joblib, by_pickle, by_skops
from _inside import having
from _posteriors import assert_same_draws
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.samplers import PSGLD

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

ROUNDING = 1e-7
COMPILED = find_spec("numba") is not None
#: max_steps bounds the descents to the starts, too
TINY = {"n_chains": 2, "n_draws": 6, "burn_in": 12, "thinning": 1, "max_steps": 30,
        "dtype": "float64", "random_state": 0}  # fmt: skip
HIDDEN = TINY | {"hidden_layer_sizes": 4}

RNG = np.random.default_rng(0)
N = 60
X = RNG.standard_normal((N, 4)) @ (np.eye(4) + 0.3)
REAL = X[:, 0] - X[:, 1] + 0.3 * RNG.standard_normal(N)
THREE = np.digitize(REAL, [-0.7, 0.7])
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0] + 0.5))
GROUPED = np.c_[X, np.arange(N) % 5]
IMAGES = RNG.random((N, 1, 4, 4))
WORDS = RNG.poisson(RNG.gamma(0.3, 1.0, (N, 8)) + 0.05)
FEW = TINY | {"n_components": 2, "doc_sweeps": 2}

#: name: an estimator, rows and targets
FITS = {
    "two classes": (sk.BayesianLogisticRegression(**TINY), X, REAL > 0.0),
    "three classes": (sk.BayesianLogisticRegression(**TINY), X, THREE),
    "minibatches": (
        sk.BayesianLogisticRegression(step_size=0.1, batch_size=20, **TINY), X, REAL > 0.0,
    ),
    "normal": (sk.BayesianGLMRegressor(**TINY), X, REAL),
    "counts in groups": (
        sk.BayesianGLMRegressor(likelihood="negative_binomial", groups=4, **TINY), GROUPED, COUNTS,
    ),
    "ordinal": (sk.BayesianOrdinalClassifier(**TINY), X, THREE),
    "perceptron": (sk.BayesianMLPClassifier(**HIDDEN), X, THREE),
    "adapting": (
        sk.BayesianMLPClassifier(sampler=PSGLD(), prior_scale="fan_in", batch_size=20, **HIDDEN),
        X, THREE,
    ),
    "compiled": (
        sk.BayesianMLPClassifier(sampler=PSGLD(), compiled=COMPILED, **HIDDEN),
        X, THREE,
    ),
    "several labels": (
        sk.BayesianMLPClassifier(sampler="sghmc", **HIDDEN), X, np.c_[REAL, X[:, 2]] > 0.0,
    ),
    "own noise": (sk.BayesianMLPRegressor(noise="heteroscedastic", **HIDDEN), X, REAL),
    "two targets": (sk.BayesianMLPRegressor(noise="infer", **HIDDEN), X, np.c_[REAL, 9.0 * REAL]),
    "heavy tails": (sk.BayesianMLPRegressor(likelihood="student_t", **HIDDEN), X, REAL),
    "network of counts": (sk.BayesianMLPRegressor(likelihood="poisson", **HIDDEN), X, COUNTS),
    "convolutional": (sk.BayesianCNNClassifier(conv_channels=2, **HIDDEN), IMAGES, THREE),
    "module": (sk.BayesianModuleClassifier(partial(nn.Linear, 4, 3), **TINY), X, THREE),
    "last layer": (
        sk.BayesianModuleRegressor(nn.Linear(4, 1), sample_parameters="last_layer", **TINY),
        X, REAL,
    ),
    "spike and slab": (sk.SparseBayesianClassifier(**TINY), X, THREE),
    "spikes in a network": (sk.SparseBayesianRegressor(**HIDDEN), X, REAL),
    "components": (sk.BayesianICA(**TINY), X, None),
    "topics": (sk.LatentDirichletAllocation(**FEW), WORDS, None),
    "deep topics": (sk.DeepPoissonFactorAnalysis(**FEW | {"n_components": (3, 2)}), WORDS, None),
}  # fmt: skip
TOPICS = ("topics", "deep topics")
WEIGHTED = [name for name, (each, *_) in FITS.items() if has_fit_parameter(each, "sample_weight")]
#: skops has no code of modules, which have the features that they have; the last two of those that
#: are fitted to dense rows here have units of their own in sparse ones (test_spike_slab.py)
MODULES = ("module", "last layer")
DENSE = ("counts in groups", "convolutional", "last layer", "module", "components",
         "spike and slab", "spikes in a network")  # fmt: skip
TABLES = [name for name in FITS if name not in ("convolutional", *MODULES)]


def fit(name, rows=None, targets=None, weight=None, **parameters):
    """A new fit of the table, with other rows or parameters if they are given."""
    given, X, y = FITS[name]
    rows, targets = (X, y) if rows is None else (rows, targets)
    some = {} if weight is None else {"sample_weight": weight}
    return clone(given).set_params(**parameters).fit(rows, targets, **some)


@cache
def fitted(name):
    """The fit of the table; not to be fitted again."""
    return fit(name)


def predictions(estimator, rows):
    """All that an estimator says of rows, as arrays."""
    found = {}
    for method, options in (
        ("predict_proba", {}), ("predict_uncertainty", {}), ("predict_proba_interval", {}),
        ("predict_quantiles", {}), ("transform", {}), ("predict", {}),
    ):  # fmt: skip
        if hasattr(estimator, method):
            value = getattr(estimator, method)(rows, **options)
            parts = value.items() if hasattr(value, "items") else [("", value)]
            found |= {method + part: np.asarray(each) for part, each in parts}
    return found


def assert_same_predictions(a, b, rows, rtol=0.0, atol=0.0):
    expected, found = predictions(a, rows), predictions(b, rows)
    assert expected.keys() == found.keys()
    for method, values in expected.items():
        np.testing.assert_allclose(found[method], values, rtol, atol, err_msg=method)


# chains -------------------------------------------------------------------------------------------


@cases("name", FITS)
def test_the_seed_decides(name):
    one, again, other = fitted(name), fit(name), fit(name, random_state=1)
    assert_same_draws(one, again)
    first = next(iter(one.posterior_.draws))
    assert (one.posterior_[first] != other.posterior_[first]).any()
    assert (one.posterior_[first][0] != one.posterior_[first][1]).any()  # and chains differ


@cases("name", FITS)
def test_jobs_have_the_draws_of_one_batch(name, monkeypatch):
    """Jobs are pickled and back, as joblib sends them; to start processes would take seconds."""

    def in_other_processes(n_jobs):
        return lambda jobs: [pickle.loads(pickle.dumps(job))(*args) for job, args, _ in jobs]

    for module in having("Parallel"):
        monkeypatch.setattr(module, "Parallel", in_other_processes)
    assert_same_draws(fitted(name), fit(name, n_jobs=2), atol=ROUNDING)


@cases("name", [name for name in FITS if name not in ("components", *TOPICS)])
def test_a_chain_does_not_depend_on_the_others(name):
    """Components and topics are put in the order of all chains' draws."""
    for block, values in fit(name, n_chains=1).posterior_.draws.items():
        beside = fitted(name).posterior_[block]
        np.testing.assert_allclose(beside[:1], values, 0, ROUNDING, err_msg=block)


# rows ---------------------------------------------------------------------------------------------


@cases("name", WEIGHTED)
def test_rows_of_weight_zero_are_no_rows(name):
    """Whatever they hold: neither the likelihood nor any unit or count knows of them."""
    _, X, y = FITS[name]
    keep = np.arange(N) % 3 > 0
    spoilt = X.copy()
    spoilt[~keep] = np.where(np.arange(X[0].size).reshape(X[0].shape) < 4, 1e6, X[~keep])
    assert_same_draws(
        fit(name, spoilt, y, keep.astype(float)), fit(name, X[keep], y[keep]), atol=1e-9
    )


@cases("name", [name for name in WEIGHTED if name not in ("minibatches", "adapting", "compiled")])
def test_weights_are_repetitions(name):
    """In the units of rows and targets, the posterior and N: from all rows, the same draws.

    Descents to starts hold out some of the rows, and so do not take one with a weight for several.
    """
    _, X, y = FITS[name]
    times, given = 1 + np.arange(N) % 3, {"batch_size": 1000}
    if hasattr(FITS[name][0], "validation_fraction"):
        given |= {"init": "random", "sampler": "sghmc", "step_size": 1e-3}
    weighted = fit(name, X, y, times, **given)
    repeated = fit(name, np.repeat(X, times, 0), np.repeat(y, times, 0), **given)
    assert_same_draws(weighted, repeated, atol=ROUNDING)
    assert_same_predictions(weighted, repeated, X, rtol=1e-5, atol=1e-6)
    block, values = next(iter(fit(name, **given).posterior_.draws.items()))
    assert (values != weighted.posterior_[block]).any()


@cases("name", [name for name in FITS if name not in DENSE])
def test_sparse_rows_are_those_of_the_dense_table(name):
    """Rounding alone: sums over a row's numbers are taken in another order.

    Fits of sparse rows are not calibrated, which would read them again.
    """
    given, X, y = FITS[name]
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    plain = {"calibrate": False} if hasattr(given, "calibrate") else {}
    dense, sparse = (fit(name, rows, y, **plain) for rows in (X, sp.csr_matrix(X)))
    assert_same_draws(dense, sparse, atol=ROUNDING)
    for kind in (sp.csr_array, sp.coo_matrix):
        expected, found = predictions(dense, X), predictions(sparse, kind(X))
        for method, values in expected.items():
            np.testing.assert_allclose(found[method], values, 1e-6, ROUNDING, err_msg=method)


@cases("name", TABLES)
def test_columns_of_tables_have_names(name):
    """The draws are those of the array, and rows of predictions are read by these names."""
    _, X, y = FITS[name]
    table = pd.DataFrame(X, columns=list("abcdefgh")[: X.shape[1]])
    given = {"groups": "e"} if name == "counts in groups" else {}
    named = fit(name, table, y, **given)
    assert list(named.feature_names_in_) == list(table)
    of_both = (each.posterior_.draws.values() for each in (named, fitted(name)))
    for ours, plain in zip(*of_both, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=0, atol=ROUNDING)
    turned = table[list(table)[::-1]]
    if hasattr(named, "predict"):
        np.testing.assert_allclose(named.predict(turned), named.predict(table), rtol=1e-9)
    else:
        with pytest.raises(ValueError, match="(?s)feature names .* same order"):
            named.transform(turned)
    with pytest.raises(ValueError, match="feature names"):
        predictions(named, table.rename(columns={"a": "z"}))


@cases("name", FITS)
def test_blocks_of_rows_and_draws_do_not_matter(name, limits):
    _, X, _ = FITS[name]
    whole = predictions(fitted(name), X)
    limits(block_numbers=10, block_rows=7)
    for method, values in predictions(fitted(name), X).items():
        np.testing.assert_allclose(values, whole[method], 1e-9, 1e-12, err_msg=method)


# going on -----------------------------------------------------------------------------------------


@cases("name", FITS)
def test_files_are_the_estimator(name):
    """Predictions to the bit; warm starts and streams go on as if it had not been away."""
    _, X, y = FITS[name]
    warm = fit(name, warm_start=True)
    skops = () if name in MODULES else (by_skops,)
    for through in (by_pickle, by_joblib, *skops):
        assert_same_predictions(warm, through(warm), X)
    stream = clone(FITS[name][0]).partial_fit(X, y)
    loaded = [(way(warm), way(stream)) for way in (by_pickle, *skops)]
    warm.fit(X, y)
    stream.partial_fit(X, y)
    for again, streamed in loaded:
        assert_same_draws(again.fit(X, y), warm)
        assert_same_draws(streamed.partial_fit(X, y), stream)


@cases("name", [name for name in TABLES if name != "counts in groups"])
def test_warm_starts_with_other_features_start_anew(name):
    """Earlier chains can't go on, nor do the units that they had."""
    given, X, y = FITS[name]
    warm = clone(given).set_params(warm_start=True)
    warm.fit((1 if name in TOPICS else 1e3) * X[:, :4], y)
    assert_same_draws(warm.fit(X[:, 1:], y), fit(name, X[:, 1:], y))


@cases("name", FITS)
def test_an_interrupted_fit_goes_on_to_the_same_bits(name, tmp_path, limits, interrupt_after):
    """From its file, in the burn-in and after it. A finished fit returns it without a step."""
    _, X, y = FITS[name]
    limits(chunk_steps=4)
    file = {"checkpoint": tmp_path / "fit.npz", "burn_in": 24, "max_steps": 60}
    whole, resumed = fit(name, **file | {"checkpoint": None}), clone(FITS[name][0])
    resumed.set_params(**file)
    for share in (0.3, 0.9):
        assert "call fit again" in interrupt_after(share, resumed, X, y)
    assert set(vars(resumed)) == set(resumed.get_params(deep=False))
    assert_same_draws(whole, resumed.fit(X, y))
    with redirect_stdout(io.StringIO()) as steps:
        assert_same_draws(whole, fit(name, **file, verbose=1))
    assert "step" not in steps.getvalue()
