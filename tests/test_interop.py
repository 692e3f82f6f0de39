"""Exchange with other packages: arviz, pickle and its kin, skops, scikit-learn's callbacks."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _files import by_joblib, by_pickle, by_skops
from _process import output_of
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.priors.factorised import PRIORS
from skbayes_sgmcmc.samplers import MSGNHT, PSGLD, SGHMC, TABLE
from skbayes_sgmcmc.schedules import Constant, Polynomial, Schedule

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

SMALL = {"n_draws": 60, "n_chains": 2, "random_state": 0}
SHORT = {"burn_in": 100, "thinning": 2}


@pytest.fixture(scope="module")
def data():
    return make_classification(200, 5, random_state=0)


@pytest.fixture(scope="module")
def iris():
    """Fitted on named features, with its data."""
    pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True, as_frame=True)
    clf = sk.BayesianLogisticRegression(n_chains=2, n_draws=500, random_state=0)
    return clf.fit(X, y), X, y


# torch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sk.BayesianGLMRegressor, sk.BayesianCNNClassifier])
def test_outputs_of_networks_are_data(kind):
    """In half precision, which NumPy may not have, and with a gradient."""
    X = torch.randn((40, 4, 4), generator=torch.manual_seed(0)).bfloat16().requires_grad_()
    X = X[:, 0] if kind is sk.BayesianGLMRegressor else X
    y = X.reshape(40, -1)[:, 0].round()
    rows, targets = X.detach().float().numpy(), y.detach().float().numpy()
    estimator = kind(**SMALL, **SHORT).fit(rows, targets)
    expected = estimator.predict(rows), estimator.score(rows, targets)
    estimator.fit(X, y, sample_weight=torch.ones(40))
    np.testing.assert_array_equal(estimator.predict(X), expected[0])
    assert estimator.score(X, y) == expected[1]


# arviz --------------------------------------------------------------------------------------------


def test_arviz_has_the_draws_by_name(iris):
    pytest.importorskip("arviz")
    clf, X, _ = iris
    posterior = clf.to_arviz()["posterior"]
    coef = posterior["coef"]
    assert coef.dims == ("chain", "draw", "class_label", "feature")
    assert list(coef["feature"].values) == list(X.columns)
    np.testing.assert_array_equal(coef.values, clf.posterior_["coef"])
    one = posterior["intercept"].sel(class_label=2)
    np.testing.assert_array_equal(one.values, clf.posterior_["intercept"][:, :, 2])
    assert posterior.attrs["inference_library"] == "skbayes_sgmcmc"


def test_arviz_of_two_classes_has_the_positive_one(data):
    pytest.importorskip("arviz")
    X, y = data
    clf = sk.BayesianLogisticRegression(sampler="mala", **SMALL).fit(X, np.where(y, "ill", "well"))
    posterior = sk.to_arviz(clf)["posterior"]
    assert list(posterior["class_label"].values) == ["well"]
    assert posterior["coef"].shape == (2, 60, 1, 5)
    rates = clf.posterior_.statistics["acceptance_rate"]
    np.testing.assert_allclose(posterior.attrs["acceptance_rate"], rates)


@pytest.mark.slow
def test_log_likelihood_and_loo(iris):
    """elpd_loo by PSIS against refits without each tenth row: what LOO stands for.

    Their difference for a row is PSIS's and MCMC's error, a few hundredths; the bound of 0.1 is far
    below the rows' own log probabilities (down to -2).
    """
    arviz = pytest.importorskip("arviz")
    clf, X, y = iris
    converted = sk.to_arviz(clf, X, y)
    log_lik = converted["log_likelihood"]["y"]
    assert log_lik.dims == ("chain", "draw", "row")
    expected = np.log(clf.predict_proba_samples(X)[:, np.arange(150), y])
    np.testing.assert_allclose(log_lik.values.reshape(1000, 150), expected, rtol=1e-9)
    loo = arviz.loo(converted, pointwise=True)
    pointwise = np.asarray(loo.loo_i if hasattr(loo, "loo_i") else loo.elpd_i)
    hard = np.argsort(pointwise)[:6]
    for row in hard:
        others = np.arange(150) != row
        refit = sk.BayesianLogisticRegression(random_state=1).fit(X[others], y[others])
        left_out = refit.predict_log_proba(X.iloc[[row]])[0, y[row]]
        assert pointwise[row] == pytest.approx(left_out, abs=0.1)


def test_log_likelihood_in_blocks(data, limits):
    pytest.importorskip("arviz")
    X, y = data
    clf = sk.BayesianLogisticRegression(**SMALL).fit(X, y)
    whole = sk.to_arviz(clf, X, y)["log_likelihood"]["y"].values
    limits(block_numbers=120 * 2 * 30)
    blocks = [block.shape for block in clf._log_lik_blocks(X, y)]
    assert blocks == [(120, 30)] * 6 + [(120, 20)]
    sparse = sk.to_arviz(clf, sp.csr_matrix(X), y)["log_likelihood"]["y"].values
    np.testing.assert_allclose(sparse, whole, rtol=1e-10)


def test_sample_weight_multiplies_log_likelihood(data):
    pytest.importorskip("arviz")
    X, y = data
    clf = sk.BayesianLogisticRegression(**SMALL).fit(X, y)
    weight = np.arange(200) % 3 / 2.0
    plain = sk.to_arviz(clf, X, y)["log_likelihood"]["y"]
    weighted = clf.to_arviz(X, y, sample_weight=weight)["log_likelihood"]["y"]
    rows = np.flatnonzero(weight)
    np.testing.assert_array_equal(weighted["row"].values, rows)
    np.testing.assert_allclose(weighted.values, plain.values[:, :, rows] * weight[rows])


def test_log_likelihood_is_finite_for_rows_far_off():
    pytest.importorskip("arviz")
    X, y = np.array([[-1.0], [1.0]] * 20), np.array([0, 1] * 20)
    clf = sk.BayesianLogisticRegression(prior_scale=10.0, **SMALL).fit(X, y)
    far = sk.to_arviz(clf, [[-1e4], [1e4]], [1, 0])["log_likelihood"]["y"]
    assert np.isfinite(far.values).all() and far.values.max() < -100.0


def test_new_targets_are_those_of_the_draws(iris):
    """Frequencies of the labels of 20,000 draws against their probabilities: bound 5 of their sds.

    Of each draw there is one label of each row, so that the sds are those of independent draws.
    """
    pytest.importorskip("arviz")
    clf, X, y = iris
    few = sk.to_arviz(clf, X, y)["posterior_predictive"]["y"]
    assert few.dims == ("chain", "draw", "row") and few.shape == (2, 25, 150)
    again = (sk.to_arviz(clf, X, y, n_predictive=3, random_state=0) for _ in range(2))
    np.testing.assert_array_equal(*(one["posterior_predictive"]["y"] for one in again))
    assert not hasattr(sk.to_arviz(clf, X, y, n_predictive=0), "posterior_predictive")
    rows = np.array([70, 83, 120, 133])  # of which it is not sure
    labels = np.concatenate(
        [
            clf.to_arviz(X.iloc[rows], y.iloc[rows], n_predictive=9999, random_state=seed)[
                "posterior_predictive"
            ]["y"].values.reshape(1000, 4)
            for seed in range(20)
        ]
    )
    p = clf.predict_proba(X.iloc[rows])
    found = (labels[:, :, None] == clf.classes_).mean(axis=0)
    assert (np.abs(found - p) < 5.0 * np.sqrt(p * (1.0 - p) / 20_000) + 1e-12).all()
    assert p.min(axis=1).max() < 0.5 and p.max(axis=1).min() < 0.95


@pytest.mark.parametrize("shape", [(60,), (60, 2)])
def test_new_targets_of_a_regressor_for_plot_ppc(shape):
    """In the units of y; 50 draws of 60 rows: their mean within 5 standard errors."""
    arviz = pytest.importorskip("arviz")
    pytest.importorskip("matplotlib").use("Agg")
    X = np.linspace(-1.0, 1.0, 60)[:, None]
    y = np.resize(100.0 + np.random.default_rng(0).standard_normal(120), shape)
    run = {"n_chains": 2, "n_draws": 25, "burn_in": 300, "thinning": 2, "random_state": 0}
    reg = sk.BayesianMLPRegressor(hidden_layer_sizes=5, sampler="psgld", **run).fit(X, y)
    weight = np.arange(60) % 2
    converted = sk.to_arviz(reg, X, y, sample_weight=weight, random_state=0)
    new, observed = converted["posterior_predictive"]["y"], converted["observed_data"]["y"]
    assert new.shape == (2, 25, 30, *shape[1:]) and observed.shape == new.shape[2:]
    np.testing.assert_array_equal(new["row"], np.flatnonzero(weight))
    mean, sd = reg.predict(X[weight > 0], return_std=True)
    error = (new.values.mean(axis=(0, 1)) - mean) / (sd / np.sqrt(50))
    assert np.abs(error).max() < 5.0 and new.values.std() > 0.5
    plot = arviz.plot_ppc if hasattr(arviz, "plot_ppc") else arviz.plot_ppc_dist
    assert plot(converted) is not None


def test_weighted_draws_are_resampled(data):
    """Plain averages of what arviz gets are the weighted ones.

    A systematic resample misses a weighted mean by at most the draws' range over n_draws.
    """
    pytest.importorskip("arviz")
    X, y = data
    step_size = Polynomial(first=1.0, last=0.01)
    clf = sk.BayesianLogisticRegression(step_size=step_size, **(SMALL | {"n_draws": 500})).fit(X, y)
    posterior, converted = clf.posterior_, clf.to_arviz(X, y)
    coef = converted["posterior"]["coef"].values
    allowed = 2.0 * np.ptp(posterior["coef"], axis=(0, 1)) / 500
    assert (np.abs(coef.mean((0, 1)) - clf.coef_) < allowed).all()
    plain = posterior["coef"].mean((0, 1))
    assert (np.abs(plain - clf.coef_) > allowed).any()  # else the line above says nothing
    # the log likelihood is that of the same draws
    resampled = coef[1, 7] @ X[3] + converted["posterior"]["intercept"].values[1, 7]
    sign = 1.0 if y[3] else -1.0
    expected = -np.log1p(np.exp(-sign * resampled))
    np.testing.assert_allclose(converted["log_likelihood"]["y"].values[1, 7, 3], expected)


def test_arviz_has_targets_of_one_shape():
    """Those of a table with one column were a column, unlike the new ones beside them."""
    pytest.importorskip("arviz")
    pd = pytest.importorskip("pandas")
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10) % 2
    for kind, shape in (
        (sk.BayesianLogisticRegression, (10,)),
        (sk.BayesianGLMRegressor, (10,)),
        (sk.BayesianMLPRegressor, (10, 1)),  # of several targets, here one
    ):
        fitted = kind(n_chains=2, n_draws=5, burn_in=5, thinning=1, random_state=0)
        table = pd.DataFrame({"y": y})
        found = fitted.fit(X, table if len(shape) == 2 else y).to_arviz(X, table)
        assert found["observed_data"]["y"].shape == shape
        assert found["posterior_predictive"]["y"].shape == (2, 5, *shape)
        np.testing.assert_array_equal(np.ravel(found["observed_data"]["y"]), y)


def test_arviz_of_plain_samples():
    pytest.importorskip("arviz")
    draws = np.random.default_rng(0).standard_normal((2, 10, 3))
    converted = sk.PosteriorSamples({"theta": draws}).to_arviz()
    np.testing.assert_array_equal(converted["posterior"]["theta"].values, draws)
    with pytest.raises(ValueError, match="needs a fitted estimator and both X and y"):
        sk.to_arviz(sk.PosteriorSamples({"theta": draws}), np.zeros((2, 3)), [0, 1])


def test_arviz_looks_into_pipelines_and_searches(data):
    """The draws, and the log likelihood of the rows that the last step gets."""
    pytest.importorskip("arviz")
    X, y = data
    pipe = make_pipeline(StandardScaler(), sk.BayesianLogisticRegression(**SMALL))
    with pytest.raises(NotFittedError):
        sk.to_arviz(pipe)
    grid = {"bayesianlogisticregression__prior_scale": [1.0]}
    search = GridSearchCV(pipe, grid, cv=2).fit(X, y)
    pipe = search.best_estimator_
    expected = sk.to_arviz(pipe[-1], pipe[:-1].transform(X), y)
    for estimator in (pipe, search):
        converted = sk.to_arviz(estimator, X, y)
        for group, name in (("posterior", "coef"), ("log_likelihood", "y"), ("observed_data", "y")):
            np.testing.assert_array_equal(converted[group][name], expected[group][name])
        assert sk.to_arviz(estimator)["posterior"].sizes["draw"] == 60


def test_arviz_refuses(data, monkeypatch):
    pytest.importorskip("arviz")
    X, y = data
    clf = sk.BayesianLogisticRegression(**SMALL).fit(X, y)
    with pytest.raises(ValueError, match="both X and y"):
        sk.to_arviz(clf, X)
    with pytest.raises(ValueError, match=r"labels \[2\] that are not in classes_=\[0, 1\]"):
        sk.to_arviz(clf, X, y + 1)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        sk.to_arviz(clf, X, y[:-1])
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"install the extra 'skbayes-sgmcmc\[arviz\]'"):
        sk.to_arviz(clf)


# files --------------------------------------------------------------------------------------------


def by_cloudpickle(clf):
    cloudpickle = pytest.importorskip("cloudpickle")
    return cloudpickle.loads(cloudpickle.dumps(clf))


@pytest.mark.parametrize("through", [by_pickle, by_joblib, by_cloudpickle, by_skops])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"sampler": SGHMC(friction=0.2), "integrator": "splitting", "dtype": "float32"},
        {"step_size": Polynomial(first=0.1, last=0.01), "prior": "laplace"},
        {"step_size": 0.1, "thinning": sk.MixingDistance(n_steps=300, distance=0.3)},
        {"warm_start": True, "sampler": MSGNHT()},
        {"warm_start": True, "sampler": PSGLD(), "prior": PRIORS["laplace"](), **SHORT},
    ],
    ids=lambda parameters: "-".join(parameters) or "default",
)
def test_round_trip(data, through, parameters):
    X, y = data
    clf = sk.BayesianLogisticRegression(**(SMALL | parameters)).fit(X, y)
    back = through(clf)
    np.testing.assert_array_equal(back.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(back.summary()["r_hat"], clf.summary()["r_hat"])
    assert back.posterior_["coef"].dtype == clf.posterior_["coef"].dtype
    # it goes on as if it had not been away
    np.testing.assert_array_equal(back.fit(X, y).coef_, clf.fit(X, y).coef_)


@pytest.mark.slow
def test_a_pipeline_in_another_process(data, tmp_path):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), sk.BayesianLogisticRegression(**SMALL)).fit(X, y)
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    np.save(tmp_path / "x.npy", X)
    code = (
        "import joblib, numpy as np\n"
        f"p = joblib.load({str(tmp_path / 'pipeline.joblib')!r})\n"
        f"x = np.load({str(tmp_path / 'x.npy')!r})\n"
        f"np.save({str(tmp_path / 'p.npy')!r}, p.predict_proba(x))\n"
    )
    output_of("-c", code)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), pipeline.predict_proba(X))


def test_a_file_is_its_draws_and_a_few_kilobytes():
    """Neither the rows (1.6 MB) nor the preconditioner (0.3 MB) nor caches are in it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 200))
    clf = sk.BayesianLogisticRegression(prior_scale=1.0, **SMALL).fit(X, rng.integers(0, 2, 1000))
    draws = sum(values.nbytes for values in clf.posterior_.draws.values())
    averages = clf.coef_.nbytes
    assert draws == 2 * 60 * 201 * 8
    for parameters in ({}, {"warm_start": True}):
        clf.set_params(**parameters).fit(X, rng.integers(0, 2, 1000))
        # the step's trace has 2 kB, what each accelerator said and the warnings 1 kB;
        # a warm start also has alpha_t, and the states of generators, 5 kB a chain
        assert len(pickle.dumps(clf)) < draws + averages + (26e3 if parameters else 5e3)


def test_half_precision_and_fewer_draws_make_files_small():
    """As README has it: bfloat16 is half of float32, and a quarter of the draws one of that.

    10 kB is room for all that is not draws (they are 1 MB in float32).
    """
    X, y = load_digits(return_X_y=True)
    settings = {"hidden_layer_sizes": 30, "burn_in": 10, "thinning": 1, "random_state": 0}
    settings |= {"prior_scale": "fan_in", "sampler": "psgld", "init": "random"}
    sizes = []
    for others in (
        {},
        {"storage": sk.Storage("bfloat16")},
        {"storage": sk.Storage("bfloat16"), "n_draws": 7},
    ):
        clf = sk.BayesianMLPClassifier(**(settings | {"n_draws": 28} | others)).fit(X, y)
        sizes.append(len(pickle.dumps(clf)))
    draws = 4 * 28 * (64 * 30 + 30 + 300 + 10) * 4
    for size, expected in zip(sizes, (draws, draws / 2, draws / 8), strict=True):
        assert expected < size < expected + 10_000


def test_skops_refuses_what_it_was_not_told_of(data):
    skops = pytest.importorskip("skops.io")
    from skops.io.exceptions import UntrustedTypesFoundException

    blob = skops.dumps(sk.BayesianLogisticRegression(**SMALL).fit(*data))
    with pytest.raises(UntrustedTypesFoundException, match="PosteriorSamples"):
        skops.loads(blob, trusted=[])
    odd = sk.BayesianLogisticRegression(**SMALL).fit(*data)
    odd.extra_ = subprocess.Popen
    with pytest.raises(UntrustedTypesFoundException, match="Popen"):
        skops.load(io.BytesIO(skops.dumps(odd)), trusted=sk.skops_trusted_types())


@pytest.mark.parametrize("through", ["estimator", "instance", "student"])
def test_skops_says_that_modules_need_pickle(data, through):
    """A skops file has no code; what pickle writes is not changed by saying so."""
    skops, torch = pytest.importorskip("skops.io"), pytest.importorskip("torch")
    X, y = data
    module = torch.nn.Linear(X.shape[1], len(np.unique(y)))
    clf = sk.BayesianModuleClassifier(module, **SMALL, **SHORT)
    if through != "instance":
        clf.fit(X, y)
    found = clf.distill(X, n_epochs=1) if through == "student" else clf
    with pytest.raises(ValueError, match="skops is not allowed .*: use pickle or joblib"):
        skops.dumps(found)
    again = by_pickle(found)
    if through != "instance":
        np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))


def test_trusted_types_are_this_packages_and_complete():
    """Every sampler, schedule and prior is in the list, and every name in it exists."""
    from pkgutil import resolve_name

    names = sk.skops_trusted_types()
    for name in names:
        assert name.startswith("skbayes_sgmcmc.")
        found = resolve_name(name)
        assert f"{found.__module__}.{found.__qualname__}" == name
    schedules = [
        kind for kind in Schedule.__subclasses__() if kind.__module__ == Constant.__module__
    ]
    samplers = [kind for kind, _ in TABLE.values()]
    for kind in [*schedules, *samplers, *PRIORS.values()]:
        assert f"{kind.__module__}.{kind.__qualname__}" in names


# callbacks ----------------------------------------------------------------------------------------


class Recorder:
    """Follows scikit-learn's protocol of fit callbacks."""

    def __init__(self):
        self.events = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.events.append(("end", context.task_name))


def recorded(**parameters):
    pytest.importorskip("sklearn.callback")
    recorder = Recorder()
    clf = sk.BayesianLogisticRegression(**(SMALL | parameters)).set_callbacks(recorder)
    return clf, recorder


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_callbacks_see_blocks_of_steps(data, method):
    """One event a block, not one a step."""
    clf, recorder = recorded()
    getattr(clf, method)(*data)
    events = recorder.events
    assert events[:2] == ["setup", ("begin", "fit")]
    assert events[-2:] == [("end", "fit"), "teardown"]
    blocks = events[2:-2]
    assert len(blocks) == 40
    assert blocks == [("begin", "block of steps"), ("end", "block of steps")] * 20
    leftover = {"_callback_fit_ctx", "_skl_callbacks_to_teardown"}
    assert not leftover & set(vars(clf))


def test_callbacks_are_torn_down_after_an_error(data):
    clf, recorder = recorded(step_size=1e17)
    with pytest.raises(sk.SamplingError):
        clf.fit(data[0] * 1e140, data[1])
    assert recorder.events[-1] == "teardown"
    assert "_callback_fit_ctx" not in vars(clf)


@pytest.mark.slow
def test_without_callbacks_in_scikit_learn(data):
    """As before 1.9: the same fit, by a package that finds no sklearn.callback."""
    code = (
        "import sys\n"
        "import sklearn.pipeline, sklearn.utils.estimator_checks\n"  # scikit-learn's own uses
        "from sklearn.datasets import make_classification\n"
        "sys.modules['sklearn.callback'] = None\n"
        "from skbayes_sgmcmc import BayesianLogisticRegression\n"
        "import skbayes_sgmcmc._callbacks as c\n"
        "assert not c.HAS_CALLBACKS\n"
        "X, y = make_classification(200, 5, random_state=0)\n"
        "clf = BayesianLogisticRegression(n_draws=60, n_chains=2, random_state=0).fit(X, y)\n"
        "print(repr(clf.coef_.tolist()))\n"
    )
    found = eval(output_of("-c", code))
    assert found == sk.BayesianLogisticRegression(**SMALL).fit(*data).coef_.tolist()
