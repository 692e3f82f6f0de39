"""What ``compiled`` means: which accelerators a run uses, in which order, and why not others."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from _cases import cases
from joblib import parallel_config
from sklearn.datasets import load_iris

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._engine.accelerators import ACCELERATORS, Offer, choose

pytest.importorskip("numba")

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_iris(return_X_y=True)
COUNTS = np.random.default_rng(0).poisson(0.5, size=(30, 20))
SETTINGS = {"n_chains": 2, "n_draws": 4, "burn_in": 4, "thinning": 1, "random_state": 0}
EULER = {"sampler": "sgld", "integrator": "euler", "step_size": 0.01}

MOMENTUM = {"sampler": "sghmc", "integrator": "auto", "step_size": "auto", "batch_size": 100}

LOGISTIC = (sk.BayesianLogisticRegression, EULER | {"batch_size": 20})
MLP = (sk.BayesianMLPClassifier, EULER | {"hidden_layer_sizes": 3})
SPARSE = (sk.SparseBayesianRegressor, {"step_size": 0.01})
LDA = (sk.LatentDirichletAllocation, {"n_components": 3})
DPFA = (sk.DeepPoissonFactorAnalysis, {"n_components": (4, 3)})


def fitted(kind, **parameters):
    cls, own = kind
    model = cls(**(SETTINGS | own | parameters))
    if kind[0] is sk.BayesianLogisticRegression:
        return model.fit(X[:100], y[:100])
    return model.fit(COUNTS) if kind in (LDA, DPFA) else model.fit(X, y)


# which are used -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, parameters, names",
    [
        (LOGISTIC, {}, ("linear_sgld",)),
        (LOGISTIC, MOMENTUM, ("linear_momentum",)),
        (MLP, {}, ("fused_steps", "perceptron")),
        (MLP, {"sampler": "psgld"}, ("fused_steps", "perceptron")),
        (MLP, {"sampler": "mclmc", "integrator": "auto"}, ("perceptron",)),
        (MLP, {"dtype": "float64"}, ("fused_steps",)),
        (MLP, {"chain_method": "sequential"}, ("fused_steps",)),
        (SPARSE, {"sampler": "psgld"}, ("fused_steps", "spike_slab")),
        (SPARSE, {"sampler": "sghmc"}, ("spike_slab",)),
        (LDA, {}, ("documents",)),
        (LDA, {"algorithm": "gibbs"}, ("documents",)),
        # topic models need gamma numbers, so that their steps are left to torch
        (LDA, EULER | {"parametrization": "expanded_natural"}, ("documents",)),
        (DPFA, {}, ("documents", "belief_network")),
        (DPFA, {"n_components": (4,)}, ("documents",)),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else None,
)
def test_true_names_what_it_found(kind, parameters, names):
    model = fitted(kind, compiled=True, **parameters)
    assert model.compiled_ == names
    assert fitted(kind, compiled=False, **parameters).compiled_ == ()


def test_what_is_compiled_does_not_decide_how_a_linear_model_is_sampled():
    """The draws of the default sampler differ by rounding alone."""
    draws = []
    for compiled in ("auto", True, False):
        model = sk.BayesianLogisticRegression(**SETTINGS, compiled=compiled).fit(X[:100], y[:100])
        draws.append(model.posterior_["coef"])
    np.testing.assert_allclose(draws[1:], [draws[0]] * 2, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", [LDA, DPFA])
def test_auto_leaves_few_words_to_torch(kind):
    """300 words are less than the 5,000 that pay; 17 times as many are more."""
    assert COUNTS.sum() < 5000 < 17 * COUNTS.sum()
    assert fitted(kind).compiled_ == ()
    cls, own = kind
    many = cls(**(SETTINGS | own)).fit(np.tile(COUNTS, (17, 1)))
    assert many.compiled_ == fitted(kind, compiled=True).compiled_


def test_auto_takes_the_linear_kernel_and_no_other_in_short_runs():
    assert fitted(LOGISTIC).compiled_ == ("linear_sgld",)
    assert fitted(MLP).compiled_ == ()
    assert fitted(SPARSE, sampler="psgld").compiled_ == ()


def test_jobs_do_not_change_what_is_used(limits):
    """The numbers of all chains count, in however many groups they run."""

    n_parameters = 4 * 3 + 3 + 3 * 3 + 3
    limits(worth_steps=n_parameters * 8 * 2)
    with parallel_config("threading"):
        assert fitted(MLP).compiled_ == fitted(MLP, n_jobs=2).compiled_ == ("fused_steps",)


# the order ----------------------------------------------------------------------------------------


def offers(*rows):
    return [Offer(name, part, why_not, pays) for name, part, why_not, pays in rows]


def test_the_first_of_a_part_is_chosen():
    offered = offers(
        ("a", "steps", "it does not apply.", True),
        ("b", "steps", None, False),
        ("c", "steps", None, True),
        ("d", "model", None, True),
        ("e", "model", None, True),
    )
    assert choose(True, offered).used == ("b", "d")
    assert choose(False, offered) == ((), {})
    used, why_not = choose("auto", offered)
    assert used == ("c", "d")
    assert why_not == {
        "a": "it does not apply.",
        "b": "it would not make the run faster.",
        "e": "d is used in its place.",
    }


def test_auto_never_raises():
    nothing = offers(("a", "steps", "it does not apply.", False))
    assert choose("auto", nothing).used == choose("auto", []).used == ()


# why not ------------------------------------------------------------------------------------------


def test_true_lists_every_reason_where_none_applies():
    with pytest.raises(ValueError, match="no accelerator applies") as raised:
        fitted(MLP, sampler="sghmc", integrator="baoab", dtype="float64", compiled=True)
    message = str(raised.value)
    assert [line.split(":")[0].strip() for line in message.splitlines()[1:]] == [
        accelerator.name for accelerator in ACCELERATORS
    ]
    for reason in (
        "cuda_graph: it needs a GPU, and the device is 'cpu'.",
        "fused_steps: it is for sampler='sgld' or 'psgld'",
        "perceptron: it computes in single precision; give dtype='float32'.",
        "spike_slab: the model has no spike-and-slab prior.",
    ):
        assert reason in message


def test_a_fit_says_why_it_does_not_use_an_accelerator():
    clf = fitted(MLP, compiled="auto")
    assert {*clf.compiled_, *clf.not_compiled_} == {each.name for each in ACCELERATORS}
    assert clf.not_compiled_["cuda_steps"] == "it needs a GPU, and the device is 'cpu'."
    assert fitted(MLP, compiled=False).not_compiled_ == {}


@cases("kind, parameters", [(LOGISTIC, {}), (MLP, {}), (LDA, {}), (LDA, {"algorithm": "gibbs"})])
def test_missing_numba_is_a_reason(monkeypatch, kind, parameters):
    for name in [name for name in sys.modules if "._kernels" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ValueError, match="numba is not installed; install the extra"):
        fitted(kind, compiled=True, **parameters)
    assert fitted(kind, compiled="auto", **parameters).compiled_ == ()


@cases(
    "error",
    [
        "OSError('Could not find/load libllvmlite.so')",
        "ImportError('Numba needs NumPy 2.3 or less')",
    ],
)
@cases("parameters", [{}, {"algorithm": "gibbs"}])
def test_a_numba_that_can_not_be_imported_is_a_reason(
    tmp_path, limits, monkeypatch, error, parameters
):
    """Its library is not found if the memory of the process is limited, for instance.

    "auto" takes torch, also where compiled code would pay, and imports numba only there.
    """
    (tmp_path / "numba.py").write_text(f"raise {error}")
    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.syspath_prepend(tmp_path)
    limits(worth_words=0)
    with pytest.raises(ValueError, match=r"numba can't be imported \(\w+: (Could|Numba)"):
        fitted(LDA, compiled=True, **parameters)
    assert fitted(LDA, compiled="auto", **parameters).compiled_ == ()


def test_numba_is_not_imported_where_it_does_not_pay(monkeypatch):
    def forbidden():
        raise AssertionError

    monkeypatch.setattr("skbayes_sgmcmc._engine.accelerators.why_no_numba", forbidden)
    assert fitted(MLP, compiled="auto").compiled_ == ()


def test_a_refused_fit_leaves_the_estimator_unfitted():
    clf = sk.BayesianMLPClassifier(sampler="sghmc", dtype="float64", compiled=True)
    with pytest.raises(ValueError, match="compiled=True"):
        clf.fit(X, y)
    assert not [name for name in vars(clf) if name.endswith("_")]


def test_chains_of_torchs_numbers_go_on_with_them(limits):
    """The compiled steps have a generator of their own, which can't take over another's state."""

    limits(worth_steps=0)
    mlp = (sk.BayesianMLPClassifier, MLP[1] | {"dtype": "float64"})
    clf = fitted(mlp, warm_start=True, compiled=False)
    with pytest.raises(ValueError, match="fused_steps: the earlier chains .* torch's random"):
        clf.set_params(compiled=True).fit(X, y)
    again = clf.set_params(compiled="auto").fit(X, y)
    assert again.compiled_ == ()
    # as one run of torch's: without a burn-in between them, draws go on where they were
    whole = fitted(mlp, warm_start=True, compiled=False).set_params(compiled=False).fit(X, y)
    np.testing.assert_array_equal(again.posterior_["weight_1"], whole.posterior_["weight_1"])


# what is handed over stays as it is ---------------------------------------------------------------


def test_the_users_model_and_data_are_not_changed():
    """Control variates add fields to the rows, and kernels are switched on in a copy."""
    from skbayes_sgmcmc._engine.accelerators import equip
    from skbayes_sgmcmc._engine.recipe import Recipe
    from skbayes_sgmcmc._engine.target import Target
    from skbayes_sgmcmc.models.linear.logistic import LogisticModel
    from skbayes_sgmcmc.models.topics.lda import LDAModel
    from skbayes_sgmcmc.models.topics.parametrizations import ExpandedNatural, GammaTopics
    from skbayes_sgmcmc.priors import Normal

    logistic = LogisticModel(4, 2, Normal(), 1.0, True)
    data = logistic.make_data(X[:100], y[:100], None, torch.float64, "cpu")
    before = dict(data.fields)
    target = Target(logistic, data, gradient="control_variates", center=np.zeros(5))
    assert data.fields.keys() == before.keys() < target.data.fields.keys()

    topics = ExpandedNatural(3, 20, GammaTopics(0.1))
    lda = LDAModel(topics, COUNTS.mean(0), 0.1, 2)
    recipe = Recipe(
        target=Target(lda, lda.make_data(COUNTS, None, None, torch.float32, "cpu")),
        sampler=None,
        cell=type("Cell", (), {"integrator": None}),
        minibatches=None,
        values=None,
        step_size=0.1,
        n_steps=1,
        n_chains=1,
    )
    engine = equip(["documents"], recipe)
    assert engine.target.model.compiled and not lda.compiled
    assert recipe.target.model is lda
