"""The constructors of all estimators: one order, one wording and one default of what they share."""

from __future__ import annotations

import inspect
import pickle
import re
from functools import partial

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.datasets import load_iris

import skbayes_sgmcmc as sk
from skbayes_sgmcmc import inspection
from skbayes_sgmcmc.samplers import TABLE

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: what a model is made of, which each estimator has for itself; then what they share, in its order
MODEL = [
    "module", "image_shape", "input_shape", "sample_parameters", "conv_channels", "kernel_size",
    "pool_size", "hidden_layer_sizes", "activation", "n_components", "whiten", "density",
    "exposure", "offset", "n_trials", "groups", "group_slopes", "group_scale", "fit_intercept",
    "doc_topic_prior", "success_probability", "topic_word_prior", "r_rate", "gamma_prior",
    "network_scale", "parametrization",
]  # fmt: skip
PRIOR = [
    "prior", "prior_scale", "prior_center", "prior_mean", "likelihood", "noise", "prune",
    "threshold", "class_weight",
]  # fmt: skip
DATA = ["categorical_features", "standardize", "augment", "n_workers"]
SAMPLING = [
    "algorithm", "doc_sweeps", "sampler", "integrator", "step_size", "preconditioner", "gradient",
    "batch_size",
]  # fmt: skip
RUN = [
    "n_chains", "chain_method", "n_draws", "burn_in", "thinning", "max_steps", "temperature",
    "init", "validation_fraction", "calibrate", "total_samples", "warm_start",
]  # fmt: skip
COMPUTING = [
    "compiled", "device", "dtype", "precision", "storage", "checkpoint", "n_jobs", "random_state",
    "verbose",
]  # fmt: skip
ORDER = MODEL + PRIOR + DATA + SAMPLING + RUN + COMPUTING

#: in every estimator that samples
EVERYWHERE = {
    "prior", "prior_scale", "sampler", "integrator", "step_size", "batch_size",
    "n_chains", "n_draws", "burn_in", "thinning", "max_steps", "temperature", "init",
    "total_samples", "warm_start", "compiled", "device", "dtype", "checkpoint", "n_jobs",
    "random_state", "verbose",
}  # fmt: skip
#: shared ones whose default depends on the kind of model
OWN_DEFAULT = {"prior", "prior_scale", "noise", "standardize", "sampler", "n_chains", "doc_sweeps"}
#: whose whole description is the same wherever they are
SAME_TEXT = {
    "categorical_features", "prune", "threshold", "class_weight", "augment", "integrator",
    "validation_fraction", "total_samples", "precision", "storage", "checkpoint", "n_jobs",
    "random_state",
}  # fmt: skip
#: whose description begins with the same sentence and goes on with what is its own
SAME_START = {
    "step_size", "gradient", "batch_size", "n_chains", "chain_method", "n_draws", "burn_in",
    "thinning", "max_steps", "temperature", "init", "device", "dtype", "verbose",
}  # fmt: skip

PUBLIC = {name: getattr(sk, name) for name in sk.__all__}
ESTIMATORS = {
    name: found
    for name, found in PUBLIC.items()
    if inspect.isclass(found) and hasattr(found, "fit") and found is not sk.DistilledClassifier
}


def parameters(kind):
    return inspect.signature(kind).parameters


def descriptions(kind):
    """Names with their descriptions in one line each, in the order of the docstring."""
    doc = inspect.cleandoc(kind.__doc__)
    section = doc.split("\nParameters\n----------\n")[1].split("\n\n")[0]
    found, name = {}, ""
    for line in section.splitlines():
        if line.startswith(" "):
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = line.split(" : ")[0]
            found[name] = ""
    return found


def first_sentence(text):
    return text.split(". ")[0].rstrip(".")


def test_the_first_parameter_is_positional_where_it_is_in_scikit_learn():
    """``MLPClassifier((32, 32))``, ``FastICA(3)`` and ``LatentDirichletAllocation(3)``."""
    for cls in (sk.BayesianMLPClassifier, sk.BayesianMLPRegressor):
        assert cls((32, 32)).hidden_layer_sizes == (32, 32)
    for cls in (sk.BayesianICA, sk.LatentDirichletAllocation):
        assert cls(3).n_components == 3


@cases("name", sorted(ESTIMATORS))
def test_parameters_have_the_shared_order_in_signature_and_docstring(name):
    found = list(parameters(ESTIMATORS[name]))
    assert found == [each for each in ORDER if each in found]
    assert list(descriptions(ESTIMATORS[name])) == found
    assert set(found) >= EVERYWHERE


@cases("parameter", PRIOR + DATA + SAMPLING + RUN + COMPUTING)
def test_shared_parameters_have_one_default(parameter):
    defaults = {
        repr(parameters(kind)[parameter].default)
        for kind in ESTIMATORS.values()
        if parameter in parameters(kind)
    }
    assert len(defaults) == 1 or parameter in OWN_DEFAULT, defaults


@cases("parameter", sorted(SAME_TEXT | SAME_START))
def test_shared_parameters_have_one_wording(parameter):
    texts = {
        name: descriptions(kind)[parameter]
        for name, kind in ESTIMATORS.items()
        if parameter in parameters(kind)
    }
    if parameter in SAME_START:
        texts = {name: first_sentence(text) for name, text in texts.items()}
    assert len(set(texts.values())) == 1, texts
    assert all(texts.values())


@cases("name", sorted(ESTIMATORS))
def test_docstrings_say_which_lengths_a_stream_ignores(name):
    """Only max_steps was said to be ignored."""
    found = descriptions(ESTIMATORS[name])
    assert "ignores ``burn_in``, ``thinning`` and ``max_steps``" in found["max_steps"]
    assert all("in ``fit``" in first_sentence(found[each]) for each in ("burn_in", "thinning"))


# objects that group parameters --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "group", "change"),
    [
        ("storage", sk.Storage(), {"dtype": "bfloat16"}),
        ("prior", sk.SpikeSlab(), {"adaptation": "gibbs", "gain": 0.5, "layers": ["weight_1"]}),
        ("prune", sk.Pruning(), {"layers": ["weight_1"]}),
    ],
    ids=["storage", "prior", "prune"],
)
def test_grouped_parameters_can_be_searched_cloned_and_pickled(name, group, change):
    clf = clone(sk.SparseBayesianClassifier(**{name: group}))
    clf.set_params(**{f"{name}__{part}": value for part, value in change.items()})
    again = getattr(pickle.loads(pickle.dumps(clf)), name)
    assert isinstance(again, BaseEstimator) and again is not group
    for part, value in change.items():
        assert again.get_params()[part] == value == clf.get_params()[f"{name}__{part}"]
    getattr(clf, name).check(name)


@cases(
    "group",
    [sk.Storage("int8"), sk.SpikeSlab(gain=2.0), sk.Pruning(layers=[]), sk.StudentT(df=1.0)],
)
def test_groups_name_the_path_of_what_is_wrong(group):
    with pytest.raises(ValueError, match=r"^here\.(dtype|gain|layers|df)=.* is not allowed: "):
        group.check("here")


# random_state -------------------------------------------------------------------------------------

X, y = load_iris(return_X_y=True)
SHORT = {"n_chains": 2, "n_draws": 8, "burn_in": 10, "thinning": 1}
counts = np.random.default_rng(0).poisson(1.0, (20, 6))


def unfitted():
    """Every estimator, and topic models in both kinds of parametrization, with data to fit."""
    for kind in ESTIMATORS.values():
        outputs = 1 if issubclass(kind, RegressorMixin) else 3
        first = {"module": partial(torch.nn.Linear, 4, outputs)}
        given = {name: value for name, value in first.items() if name in parameters(kind)}
        if "parametrization" not in parameters(kind):
            yield kind(**given, **SHORT, random_state=0), X
            continue
        for kind_of_topics in ("expanded_mean", "expanded_natural"):
            yield kind(2, parametrization=kind_of_topics, **SHORT, random_state=0), counts


@cases("estimator, rows", list(unfitted()))
def test_an_unknown_sampler_lists_those_that_the_estimator_accepts(estimator, rows):
    """Each of those that are listed samples, and each of the others is refused."""
    with pytest.raises(ValueError, match="sampler='hmc' is not allowed: give one of") as error:
        clone(estimator).set_params(sampler="hmc").fit(rows, y[: len(rows)])
    listed = re.findall(r"'(\w+)'", str(error.value).partition("give one of")[2])
    for name in {*TABLE, *listed}:
        # so small that no chain diverges; max_steps bounds the descents to the starts, too
        step_size = 1e-7 if name in listed and name not in ("auto", "gibbs") else "auto"
        changed = clone(estimator).set_params(
            sampler=name, step_size=step_size, n_draws=2, burn_in=4, max_steps=6
        )
        if name in listed:
            assert changed.fit(rows, y[: len(rows)]).n_draws_ == 2
        else:
            with pytest.raises(ValueError, match="is not allowed"):
                changed.fit(rows, y[: len(rows)])


def public_callables():
    """What users call: classes and functions, and the classes' methods, by name."""
    modules = (sk, inspection)
    for module in modules:
        for name in module.__all__:
            found = getattr(module, name)
            if not callable(found):
                continue
            yield name, found
            if inspect.isclass(found):
                for part, method in inspect.getmembers(found, callable):
                    if not part.startswith("_"):
                        yield f"{name}.{part}", method


def test_every_random_state_is_none_by_default():
    found = {}
    for name, each in public_callables():
        try:
            accepted = inspect.signature(each).parameters
        except ValueError:  # of builtins
            continue
        if "random_state" in accepted:
            found[name] = accepted["random_state"].default
    assert len(found) > 20 and set(found.values()) == {None}, found


@pytest.fixture(scope="module")
def fitted():
    seeded = SHORT | {"random_state": 0}
    return {
        "classifier": sk.BayesianLogisticRegression(**seeded).fit(X, y),
        "network": sk.BayesianMLPClassifier(hidden_layer_sizes=3, **seeded).fit(X, y),
        "regressor": sk.BayesianMLPRegressor(hidden_layer_sizes=3, **seeded).fit(X, y),
        "topics": sk.LatentDirichletAllocation(2, **seeded).fit(counts),
    }


#: everything that takes a random_state, on fitted estimators
SEEDED = {
    "constructor": lambda fitted, seed: sk.BayesianICA(random_state=seed, **SHORT).fit(X),
    "gibbs": lambda fitted, seed: sk.LatentDirichletAllocation(
        2, algorithm="gibbs", random_state=seed, **SHORT
    ).fit(counts),
    "sample": lambda fitted, seed: sk.sample(
        lambda theta: -0.5 * (theta**2).sum(1), 2, n_draws=5, burn_in=5, random_state=seed
    ),
    "sample_posterior": lambda fitted, seed: fitted["classifier"].sample_posterior(3, seed),
    "posterior": lambda fitted, seed: sk.PosteriorSamples({"a": np.zeros((2, 3, 1))}).sample(
        2, seed
    ),
    "proba": lambda fitted, seed: fitted["classifier"].predict_proba_samples(X, 3, seed),
    "sample_y": lambda fitted, seed: fitted["regressor"].sample_y(X, 3, seed),
    "distill": lambda fitted, seed: fitted["network"].distill(X, n_epochs=1, random_state=seed),
    "perplexity": lambda fitted, seed: fitted["topics"].perplexity(counts, random_state=seed),
    "completion": lambda fitted, seed: sk.document_completion_perplexity(
        np.ones((1, 6)), counts, random_state=seed
    ),
    "arviz": lambda fitted, seed: sk.to_arviz(fitted["classifier"], X, y, random_state=seed),
    "display": lambda fitted, seed: inspection.WeightHistogramDisplay.from_estimator(
        fitted["classifier"], random_state=seed
    ),
}


@cases("name", SEEDED)
def test_random_states_are_of_the_same_types_everywhere(name, fitted):
    if name in ("display", "arviz"):
        pytest.importorskip("arviz" if name == "arviz" else "matplotlib")
    for seed in (0, np.int64(3), np.random.RandomState(0), None):
        assert SEEDED[name](fitted, seed) is not None
    for seed in (np.random.default_rng(0), -1, 0.5, "seed", True):
        with pytest.raises(ValueError, match=r"^random_state=.* is not allowed: give a whole"):
            SEEDED[name](fitted, seed)
