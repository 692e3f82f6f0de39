"""Estimators whose priors learn their scales: draws, relevance, files, bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from _cases import cases
from _inside import streams
from _posteriors import assert_same_draws
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    BayesianModuleClassifier,
    SamplingWarning,
    SparseBayesianRegressor,
    SpikeSlab,
    to_arviz,
)
from skbayes_sgmcmc.inspection import RelevanceDisplay
from skbayes_sgmcmc.models.likelihoods.base import Categorical
from skbayes_sgmcmc.models.networks.learned_scales import LearnedScalesModel
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.priors import Laplace, LearnedScale, Normal
from skbayes_sgmcmc.samplers import PSGLD, Step
from skbayes_sgmcmc.schedules import Exponential

#: budgets too small to mix, on purpose, where draws are only compared with other draws
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 100, "thinning": 5, "random_state": 0}


def tiny(kind=BayesianMLPRegressor, **parameters):
    plain = {"prior_scale": "learned", "hidden_layer_sizes": 6, "sampler": "psgld"}
    if kind is BayesianMLPRegressor:
        plain |= {"noise": "infer"}
    return kind(**(TINY | {"dtype": "float64"} | plain | parameters))


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def fitted(diabetes):
    return tiny().fit(*diabetes)


# what is learned ----------------------------------------------------------------------------------


def test_every_block_has_its_scale(fitted):
    shapes = fitted.posterior_.shapes
    found = {name: shape for name, shape in shapes.items() if name.startswith("scale")}
    assert found == {"scale_weight_1": (10,), "scale_bias_1": (), "scale_weight_2": (),
                     "scale_bias_2": (), "scale_inputs": ()}  # fmt: skip
    for name in found:
        draws = fitted.posterior_[name]
        assert (draws > 0.0).all() and len(np.unique(draws[:, :, ...])) > 2


def test_images_and_modules_have_one_scale_for_each_block():
    X, y = load_digits(return_X_y=True)
    cnn = BayesianCNNClassifier(
        image_shape=(1, 8, 8), conv_channels=(2,), hidden_layer_sizes=(5,), prior_scale="learned",
        **TINY,
    ).fit(X[:100], y[:100])  # fmt: skip
    blocks = [name for name in cnn.posterior_.draws if not name.startswith("scale")]
    assert [name for name in cnn.posterior_.draws if name.startswith("scale")] == [
        f"scale_{name}" for name in blocks
    ]
    assert not hasattr(cnn, "relevance_")

    def build(n_features, n_outputs):
        return torch.nn.Sequential(torch.nn.Linear(n_features, 3), torch.nn.Linear(3, n_outputs))

    module = BayesianModuleClassifier(module=build, prior_scale=LearnedScale(scale=0.5), **TINY)
    posterior = module.fit(X[:100], y[:100]).posterior_
    assert posterior["scale_0.weight"].shape == posterior["scale_1.bias"].shape == (2, 20)


@pytest.mark.statistical
def test_learned_scales_follow_the_data():
    """Targets of one input out of four: its scale is more than twice each of the others'."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    y = np.sin(2.0 * X[:, 2]) + 0.3 * rng.standard_normal(200)
    reg = BayesianMLPRegressor(
        hidden_layer_sizes=8, noise=0.3, prior_scale="learned", random_state=0
    ).fit(X, y)
    assert reg.relevance_[2] > 2.0 * reg.relevance_[[0, 1, 3]].max()


@pytest.mark.parametrize("sampler", ["mclmc", "psgld", "sgld", "sghmc", "sgnht", "msgnht"])
def test_every_sampler_learns_scales(diabetes, sampler):
    X, y = diabetes
    reg = tiny(sampler=sampler).fit(X, y)
    assert np.isfinite(reg.predict(X)).all()
    assert reg.posterior_["scale_weight_2"].std() > 0.0


# relevance and labels -----------------------------------------------------------------------------


def test_relevance_is_the_mean_share_of_the_scales(fitted):
    scales = fitted.posterior_.pooled("scale_weight_1")
    expected = (scales / scales.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(fitted.relevance_, expected, rtol=1e-12)
    assert fitted.relevance_.sum() == pytest.approx(1.0)


def test_relevance_needs_scales_of_inputs(diabetes):
    X, y = diabetes
    reg = tiny().fit(X, y)
    for parameters in ({"prior_scale": LearnedScale(inputs=False)}, {"prior_scale": "fan_in"}):
        reg.set_params(**parameters).fit(X, y)
        assert not hasattr(reg, "relevance_")
        assert "scale_inputs" not in reg.posterior_.draws


def test_summary_and_arviz_name_the_features(fitted, diabetes):
    names = list(diabetes[0].columns)
    assert [f"scale_weight_1[{name}]" for name in names] == [
        name for name in fitted.summary()["name"] if name.startswith("scale_weight_1")
    ]
    posterior = to_arviz(fitted).posterior
    assert posterior["scale_weight_1"].coords["feature"].values.tolist() == names


@pytest.mark.usefixtures("figures")
def test_display(fitted, diabetes):
    """Bars in the order of relevance, with the quantiles of the draws, also in a pipeline."""
    display = RelevanceDisplay.from_estimator(fitted, n_features=3, coverage=0.5, color="C3")
    order = np.argsort(-fitted.relevance_)[:3]
    assert display.names.tolist() == diabetes[0].columns[order].tolist()
    np.testing.assert_array_equal(display.mean, fitted.relevance_[order])
    scales = fitted.posterior_.pooled("scale_weight_1")
    share = (scales / scales.sum(axis=1, keepdims=True))[:, order]
    np.testing.assert_allclose(display.lower, np.quantile(share, 0.25, axis=0))
    np.testing.assert_allclose(display.upper, np.quantile(share, 0.75, axis=0))
    assert [bar.get_width() for bar in display.ax_.patches] == display.mean.tolist()
    pipeline = make_pipeline(MinMaxScaler(), tiny()).fit(*diabetes)
    shown = RelevanceDisplay.from_estimator(pipeline, feature_names=list("abcdefghij"))
    assert sorted(shown.names) == list("abcdefghij")
    for change, message in (
        ({"n_features": 11}, "n_features=11"),
        ({"feature_names": ["a"]}, "feature_names of shape"),
        ({"coverage": 1.0}, "coverage=1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            RelevanceDisplay.from_estimator(fitted, **change)
    with pytest.raises(ValueError, match="prior_scale='learned'"):
        other = BayesianLogisticRegression(n_draws=10, random_state=0)
        RelevanceDisplay.from_estimator(other.fit(*load_iris(return_X_y=True)))


# chains, files, streams ---------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["psgld", "sghmc"])
def test_an_interrupted_fit_resumes_with_the_same_bits(
    diabetes, tmp_path, limits, interrupt_after, sampler
):
    """Between two draws of the scales: chunks are of 64 steps, and draws every 50."""
    limits(chunk_steps=64)
    path, options = tmp_path / "file.npz", {"burn_in": 400, "n_draws": 60, "sampler": sampler}
    whole, stopped = tiny(**options).fit(*diabetes), tiny(checkpoint=path, **options)
    assert "step 320 of" in interrupt_after(320 / whole.n_steps_ - 0.05, stopped, *diabetes)
    assert_same_draws(whole, stopped.fit(*diabetes))


def test_warm_starts_keep_the_scales(diabetes):
    reg = tiny(warm_start=True).fit(*diabetes)
    kept = reg._chain_state.model
    np.testing.assert_array_equal(kept["scales"][:, :10], reg.posterior_["scale_weight_1"][:, -1])


def test_the_prior_may_be_named(fitted, diabetes):
    given = tiny(prior_scale=LearnedScale())
    assert_same_draws(given.fit(*diabetes), fitted)
    assert given.get_params()["prior_scale__shape"] == "auto"


def test_streams_learn_scales():
    X, y = load_iris(return_X_y=True)
    clf = tiny(BayesianMLPClassifier, batch_size=10)
    for part in range(3):
        clf.partial_fit(X[part::3], y[part::3], classes=[0, 1, 2])
    assert len(np.unique(clf.posterior_["scale_weight_1"][0, :, 0])) >= 1
    assert clf.relevance_.shape == (4,)


# bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "sampler"), [(0.0, "psgld"), (3.0, "sghmc")])
def test_inputs_that_are_constant_or_zero(value, sampler):
    """Nothing informs their weights, so scales wander as their prior has it; the rest does not.

    Predictions are finite and as good as without these columns: the R2 of both fits is above 0.9,
    and they differ by less than 0.05. Standardised, a constant column is one of zeros.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(150)
    more = np.column_stack([X, np.full((150, 2), value)])
    length = {"burn_in": 1000, "n_draws": 50, "thinning": 10, "sampler": sampler}
    plain, other = (tiny(**length).fit(rows, y) for rows in (X, more))
    assert np.isfinite(other.posterior_["scale_weight_1"]).all()
    scores = plain.score(X, y), other.score(more, y)
    assert min(scores) > 0.9 and abs(scores[0] - scores[1]) < 0.05


def test_only_inputs_of_zeros():
    X, y = np.zeros((40, 3)), np.random.default_rng(0).standard_normal(40)
    reg = tiny(burn_in=2000).fit(X, y)
    assert np.isfinite(reg.predict(X)).all()
    np.testing.assert_allclose(reg.predict(X), y.mean(), atol=0.5)


@cases("kind, parameters, message", [
        (BayesianMLPRegressor, {"prior": "laplace"}, "prior_scale='learned'.*prior='laplace'"),
        (BayesianMLPClassifier, {"prior": Laplace()}, r"prior_scale='learned'.*Laplace\(\)"),
        (BayesianMLPRegressor, {"prior_scale": "learnt"}, "give 'auto', 'fan_in', 'learned', a"),
        (BayesianMLPRegressor, {"prior_scale": LearnedScale(shape=0.0)}, "prior_scale.shape=0.0"),
        (BayesianMLPRegressor, {"prior_scale": LearnedScale(scale=-1)}, "prior_scale.scale=-1"),
        (BayesianMLPRegressor, {"prior_scale": LearnedScale(scale="x")}, "prior_scale.scale='x'"),
        (BayesianMLPRegressor, {"prior_scale": LearnedScale(inputs=2)}, "prior_scale.inputs=2"),
        (SparseBayesianRegressor, {}, "prior_scale='learned'.*prior='spike_slab'"),
        (SparseBayesianRegressor, {"prior": SpikeSlab()}, "prior_scale='learned'.*SpikeSlab"),
        (BayesianMLPRegressor, {"sampler": "mala", "step_size": 0.1}, "LearnedScalesModel"),
    ])  # fmt: skip
def test_what_is_not_allowed(kind, parameters, message, diabetes):
    with pytest.raises(ValueError, match=message):
        tiny(kind, **parameters).fit(*diabetes)


def test_pruning_is_not_allowed():
    clf = BayesianModuleClassifier(module=torch.nn.Linear, prior_scale="learned", prune=0.5)
    with pytest.raises(ValueError, match=r"prior_scale='learned'.*prune=0.5"):
        clf.fit(*load_iris(return_X_y=True))


def test_normal_prior_objects_are_normal(diabetes, fitted):
    assert_same_draws(tiny(prior=Normal()).fit(*diabetes), fitted)


# pSGLD's bound ------------------------------------------------------------------------------------


def test_psgld_is_stable_at_the_present_scales():
    """Where no row informs a weight, eta G / (N s^2) <= 1/2 at every scale s, for each weight.

    With the bound of fixed scales, eta G / (N s^2) would be above 2 for the smallest scales here,
    and such weights would grow from step to step.
    """
    model = LearnedScalesModel(MLP((2, 3, 2), "relu"), Categorical(), Normal(), LearnedScale())
    theta = torch.full((1, model.n_parameters), 0.1, dtype=torch.float64)
    state = model.init_state(theta)
    state["prior_rate"].copy_(torch.logspace(-2, 4, model.n_parameters)[None])
    step = Step(
        n=100.0,
        gradient=lambda at: state["prior_rate"] * at / 100.0,
        likelihood=lambda: torch.zeros_like(theta),
        potential=None,
        eta=0.01,
        prior_curvature=model.prior_curvature() / 100.0,
        prior_rates=model.prior_rates(state),
        xi=torch.zeros_like(theta),
    )
    sampler, moved = PSGLD(regularization=1e-12), theta.clone()
    sampler.euler(moved, {"V": torch.zeros_like(theta)}, step)
    torch.testing.assert_close(moved, 0.5 * theta, rtol=1e-9, atol=0.0)
    unbounded = 0.5 / model.prior_curvature() * float(state["prior_rate"].max())
    assert unbounded > 2.0


def test_chains_have_their_own_numbers_for_scales():
    rng = streams(2)
    model = LearnedScalesModel(MLP((2, 3, 2), "relu"), Categorical(), Normal(), LearnedScale())
    theta = torch.ones(2, model.n_parameters, dtype=torch.float64)
    state = model.init_state(theta)
    model.after_step(theta, state, {}, 0, rng, 1.0)
    assert (state["scales"][0] != state["scales"][1]).all()


def test_features_of_a_data_frame_without_names_of_strings():
    X, y = load_diabetes(return_X_y=True)
    reg = tiny().fit(pd.DataFrame(X), y)
    assert reg.summary()["name"][-14:-4] == [f"scale_weight_1[x{j}]" for j in range(10)]


# temperatures below 1 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("temperature", "learns"),
    [(1.0, True), (2.0, True), (0.0, True), (0.5, False), (Exponential(2.0, rate=0.999), False)],
    ids=str,
)
def test_auto_learns_no_scales_at_temperatures_between_zero_and_one(temperature, learns, diabetes):
    """There the most probable scales are those at which all weights vanish."""
    model = tiny(prior_scale="auto", temperature=temperature, n_draws=2, burn_in=5, thinning=1)
    model.fit(*diabetes)
    assert any(name.startswith("scale") for name in model.posterior_.draws) is learns


def test_learned_scales_at_low_temperatures_warn(diabetes):
    model = tiny(temperature=0.5, n_draws=2, burn_in=5, thinning=1)
    with pytest.warns(SamplingWarning, match="temperature=0.5: .*weights vanish.*'fan_in'"):
        model.fit(*diabetes)


@pytest.mark.statistical
@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_cold_posteriors_predict(temperature):
    """On iris nearly as well as at temperature 1; learned scales have a log loss of .8 and 1.1."""
    X, y = load_iris(return_X_y=True)
    train, test = np.arange(150) % 3 > 0, np.arange(150) % 3 == 0
    clf = BayesianMLPClassifier(temperature=temperature, max_steps=1500, random_state=0)
    assert log_loss(y[test], clf.fit(X[train], y[train]).predict_proba(X[test])) < 0.2
