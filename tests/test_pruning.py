"""Magnitude pruning inside sampling, and compressed estimators.

A schedule is deterministic: the number of zeros of every kept draw is known, so shares are compared
exactly.
"""

from __future__ import annotations

import io
import pickle

import joblib
import numpy as np
import pytest
import torch
from _cases import cases
from _files import by_skops

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._draws.compression import CompressedSamples, Kept
from skbayes_sgmcmc._draws.storage import ENCODED, encode

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

SHORT = {"n_chains": 2, "n_draws": 10, "burn_in": 100, "thinning": 10, "random_state": 0}
N_STEPS = 200


def data(n=120, p=10, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, 2.0 * X[:, 0] - X[:, 3] + 0.3 * rng.standard_normal(n)


class Small(torch.nn.Sequential):
    """With batch norm, whose statistics are kept beside the draws."""

    def __init__(self, n_features, n_outputs):
        super().__init__(
            torch.nn.Linear(n_features, 40), torch.nn.BatchNorm1d(40), torch.nn.Tanh(),
            torch.nn.Linear(40, n_outputs),
        )  # fmt: skip


class RhoNamed(torch.nn.Module):
    """A parameter whose name begins as the latent variables' names do."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.rho_ = torch.nn.Linear(n_features, n_outputs)

    def forward(self, x):
        return self.rho_(x)


def module_classifier(**parameters):
    X, y = data()
    settings = SHORT | {"dtype": "float32", "prune": sk.Pruning(0.9, interval=10)} | parameters
    return sk.BayesianModuleClassifier(Small, **settings).fit(X, y > 0.0), X


# the schedule -------------------------------------------------------------------------------------


def test_the_rate_is_the_formula():
    pruning = sk.Pruning(sparsity=0.8, decay=0.9, period=20, start=100)
    for k in (0, 100, 101, 150, 1000):
        expected = 0.8 * (1.0 - 0.9 ** (max(k - 100, 0) / 20.0))
        assert pruning.rate(k) == pytest.approx(expected, abs=1e-15)
    assert pruning.rate(10**9) == 0.8


def test_the_automatic_schedule_trains_first_and_settles_at_half_of_the_run():
    pruning = sk.Pruning(sparsity=0.9).for_run(12_000)
    assert pruning.rate(3000) == 0.0 < pruning.rate(3001)
    assert pruning.rate(6000) == pytest.approx(0.99 * 0.9, rel=1e-12)
    later = sk.Pruning(sparsity=0.9, start=9000).for_run(12_000)
    assert later.rate(10_000) == pytest.approx(0.99 * 0.9, rel=1e-12)


def test_the_smallest_coefficients_of_every_chain_are_zero():
    beta = torch.tensor([[4.0, -1.0, 2.0, -3.0], [0.1, 0.2, -0.4, 0.3]])
    pruning = sk.Pruning(0.5, 0.5, period=1, start=0)
    zeros = pruning.zeros(beta, 100)
    assert zeros.tolist() == [[False, True, True, False], [True, True, False, False]]
    assert not pruning.zeros(beta, 0).any()


def test_a_share_that_was_reached_is_held_up_to_the_schedules_own():
    beta = torch.arange(1.0, 11.0)[None]
    pruning = sk.Pruning(0.5, period=50, start=0)
    assert [int(pruning.zeros(beta, 0, before).sum()) for before in (0, 3, 5, 9)] == [0, 3, 5, 5]


def test_one_coefficient_is_kept():
    assert (
        int(sk.Pruning(0.99, period=1, start=0).zeros(torch.ones(1, 10).cumsum(1), 10**6).sum())
        == 9
    )


@cases("interval, prior", [(1, "spike_slab"), (7, "normal")])
def test_every_kept_draw_has_exactly_the_share_of_its_step(prior, interval):
    X, y = data()
    pruning = sk.Pruning(0.8, decay=0.5, period=20, start=40, interval=interval)
    settings = SHORT | {"burn_in": 0, "n_draws": N_STEPS, "thinning": 1, "sampler": "sghmc"}
    reg = sk.BayesianModuleRegressor(Small, prior=prior, prune=pruning, **settings).fit(X, y)
    zeros = sum((reg.posterior_[name] == 0.0).sum(axis=(2, 3)) for name in WEIGHTS)
    size = sum(reg.posterior_[name][0, 0].size for name in WEIGHTS)
    steps = np.arange(N_STEPS)
    chosen = 40 + np.maximum(steps - 40, 0) // interval * interval
    expected = [round(pruning.rate(k) * size) for k in chosen]
    np.testing.assert_array_equal(zeros, [expected, expected])
    assert np.all(reg.posterior_["3.bias"] != 0.0)
    mean_zeros = np.mean(expected)
    assert reg.sparsity_ == pytest.approx(mean_zeros / size, rel=1e-12)
    # weights, biases, and the batch norm's scales and shifts; the noise is no parameter of the net
    n_parameters = 10 * 40 + 40 + 2 * 40 + 40 + 1
    assert reg.n_effective_parameters_ == pytest.approx(n_parameters - mean_zeros, rel=1e-12)


WEIGHTS = ("0.weight", "3.weight")


def test_only_sparse_layers_are_pruned():
    clf, _ = module_classifier(prune=sk.Pruning(0.9, interval=10, layers=["0"]))
    assert np.all(clf.posterior_["3.weight"] != 0.0)
    size = 400
    share = round(sk.Pruning(0.9, interval=10).for_run(N_STEPS).rate(190) * size) / size
    assert np.mean(clf.posterior_["0.weight"][:, -1] == 0.0) == share
    n_parameters = 10 * 40 + 40 + 2 * 40 + 40 * 2 + 2
    assert clf.n_effective_parameters_ == pytest.approx(n_parameters - size * clf.sparsity_)


def test_pruned_layers_may_be_others_than_those_of_the_prior():
    prior = sk.SpikeSlab(layers=["3"])
    theirs, _ = module_classifier(prior=prior)  # "auto": the prior's
    assert np.all(theirs.posterior_["0.weight"] != 0.0)
    assert np.any(theirs.posterior_["3.weight"] == 0.0)
    other, _ = module_classifier(prior=prior, prune=sk.Pruning(0.9, interval=10, layers=["0"]))
    assert np.all(other.posterior_["3.weight"] != 0.0)
    zeros = np.sum(other.posterior_["0.weight"] == 0.0) / other.posterior_["0.weight"].shape[0]
    # a share of the layers of both, and of the draws
    assert other.sparsity_ == pytest.approx(zeros / SHORT["n_draws"] / (400 + 80), rel=1e-12)
    assert "rho_3.weight" in other.posterior_.draws and "rho_0.weight" not in other.posterior_.draws
    every, _ = module_classifier(prior=prior, prune=sk.Pruning(0.9, interval=10, layers="all"))
    assert all(np.any(every.posterior_[name] == 0.0) for name in WEIGHTS)


def test_zeros_are_never_negative_zeros():
    # in half precision they would not be the number 0, whose bits are all zero
    clf, _ = module_classifier()
    assert not np.signbit(clf.posterior_["0.weight"][clf.posterior_["0.weight"] == 0.0]).any()


def test_the_zeros_are_the_weights_that_do_not_matter():
    # with 2 of 10 coefficients kept they are the two of the truth: they are learned before the
    # first zeros, else weights that start near zero would stay there
    X, y = data()
    settings = SHORT | {"burn_in": 1500, "n_chains": 4, "sampler": "sghmc"}
    reg = sk.SparseBayesianRegressor(prune=0.8, **settings).fit(X, y)
    kept = (reg.posterior_["weight_1"][:, -1, :, 0] != 0.0).mean(axis=0)
    np.testing.assert_array_equal(np.flatnonzero(kept), [0, 3])
    assert reg.score(X, y) > 0.9


def test_pruned_chains_stay_pruned_in_a_warm_start_and_dense_ones_may_be_pruned():
    X, y = data()
    dense = sk.SparseBayesianRegressor(warm_start=True, **SHORT).fit(X, y)
    rho = dense._chain_state.model["rho"]
    dense.set_params(prune=sk.Pruning(0.5, interval=1)).fit(X, y)
    assert dense.sparsity_ > 0.3 and not np.array_equal(dense._chain_state.model["rho"], rho)
    dense.set_params(burn_in=0).fit(X, y)
    np.testing.assert_array_equal((dense.posterior_["weight_1"] == 0.0).sum(axis=(2, 3)), 5)


def test_pre_training_without_the_prior_goes_on_with_it():
    X, y = data()
    clf = sk.BayesianModuleClassifier(Small, warm_start=True, **SHORT).fit(X, y > 0.0)
    before = clf._chain_state.theta
    clf.set_params(prior=sk.SpikeSlab(layers=["0"]), step_size=1e-9, sampler="sgld",
                   temperature=0.0, burn_in=0, n_draws=1, thinning=1).fit(X, y > 0.0)  # fmt: skip
    # one step of 1e-9 moves by less than 1e-6: the chains are where they were
    np.testing.assert_allclose(clf._chain_state.theta, before, atol=1e-6)
    assert clf.posterior_["rho_0.weight"].shape == (2, 1, 40, 10)


# what is refused ----------------------------------------------------------------------------------


@cases(
    "prune, words",
    [
        (1.0, r"prune=1\.0 is not allowed: give a number in \[0, 1\)"),
        (-0.1, r"prune=-0\.1"),
        ("much", "prune='much'"),
        (sk.Pruning(sparsity=1.0), r"prune\.sparsity=1\.0"),
        (sk.Pruning(decay=1.0), r"prune\.decay=1\.0"),
        (sk.Pruning(decay=0.0), r"prune\.decay=0\.0"),
        (sk.Pruning(period=0), r"prune\.period=0"),
        (sk.Pruning(period="long"), r"prune\.period='long'"),
        (sk.Pruning(start=-1), r"prune\.start=-1"),
        (sk.Pruning(start="late"), r"prune\.start='late'"),
        (sk.Pruning(interval=0), r"prune\.interval=0"),
        (sk.Pruning(layers="first"), r"prune\.layers='first'"),
        (
            sk.Pruning(layers=["weight_9"]),
            r"prune\.layers=\['weight_9'\] .*'weight_9' is given twice, or",
        ),
        # of 200 steps: too slow, too late, and never chosen again after the first time
        (sk.Pruning(0.9, period=50), r"run of 200 steps, .* only reaches 0\.0\d+: give more steps"),
        (sk.Pruning(0.9, start=200), "run of 200 steps, .*smaller start"),
        (sk.Pruning(0.9, interval=500), "run of 200 steps, .* only reaches 0: .*interval"),
    ],
)
def test_bad_pruning_is_named_with_a_remedy(prune, words):
    X, y = data()
    reg = sk.SparseBayesianRegressor(prune=prune, **SHORT)
    with pytest.raises(ValueError, match=words):
        reg.fit(X, y)
    assert not hasattr(reg, "posterior_")


def test_no_pruning_in_a_stream():
    X, y = data()
    with pytest.raises(ValueError, match=r"prune=0\.5 is not allowed in partial_fit.*prune=None"):
        sk.SparseBayesianRegressor(prune=0.5, **SHORT).partial_fit(X, y)


def test_a_share_of_zero_prunes_nothing():
    X, y = data()
    none = sk.SparseBayesianRegressor(**SHORT).fit(X, y)
    zero = sk.SparseBayesianRegressor(prune=0.0, **SHORT).fit(X, y)
    np.testing.assert_array_equal(zero.posterior_["weight_1"], none.posterior_["weight_1"])
    assert zero.sparsity_ == 0.0 and zero.n_effective_parameters_ == 11


# compressed draws ---------------------------------------------------------------------------------


def test_kept_numbers_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((6, 19)) * (rng.random((6, 19)) < 0.3)
    rows[2] = 0.0
    kept = Kept(rows)
    np.testing.assert_array_equal(kept[np.array([5, 0, 2, 2])], rows[[5, 0, 2, 2]])
    assert kept.values.size == np.count_nonzero(rows)


@pytest.mark.parametrize("bits", [False, True], ids=["float64", "bfloat16"])
def test_compressed_samples_read_as_the_whole_ones(bits):
    rng = np.random.default_rng(0)
    sparse = rng.standard_normal((2, 5, 4, 8)) * (rng.random((2, 5, 4, 8)) < 0.2)
    dense = rng.standard_normal((2, 5, 3))
    blocks = {"sparse": sparse, "dense": dense}
    if bits:
        blocks = {name: encode(values, ENCODED) for name, values in blocks.items()}
    whole = sk.PosteriorSamples(blocks, np.arange(1.0, 6.0), {"acceptance_rate": np.ones(2)})
    small = CompressedSamples(whole, ("sparse", "dense"))
    assert isinstance(small.blocks["sparse"], Kept) and isinstance(
        small.blocks["dense"], np.ndarray
    )
    assert repr(small) == repr(whole).replace("PosteriorSamples", "CompressedSamples")
    assert (small.n_chains, small.n_draws, list(small.draws)) == (2, 5, ["sparse", "dense"])
    for name in blocks:
        np.testing.assert_array_equal(small[name], whole[name])
        np.testing.assert_array_equal(small.mean(name), whole.mean(name))
        for draws in (slice(None), slice(2, 7), [3, 3, 0], np.arange(10) > 4):
            np.testing.assert_array_equal(small.select(name, draws), whole.select(name, draws))
        np.testing.assert_array_equal(
            small.sample(4, random_state=0)[name], whole.sample(4, random_state=0)[name]
        )


def same_predictions(small, whole, X):
    np.testing.assert_array_equal(small.predict_proba(X), whole.predict_proba(X))
    uncertain = small.predict_uncertainty(X), whole.predict_uncertainty(X)
    np.testing.assert_array_equal(uncertain[0].epistemic, uncertain[1].epistemic)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("prior", ["normal", "spike_slab"])
def test_compressed_estimators_predict_identically_also_after_pickling(
    dtype, on_disk, prior, tmp_path
):
    whole, X = module_classifier(
        prior=prior, storage=sk.Storage(dtype, dir=tmp_path if on_disk else None)
    )
    small = whole.compress()
    same_predictions(small, whole, X)
    same_predictions(pickle.loads(pickle.dumps(small)), whole, X)
    assert isinstance(small.posterior_, CompressedSamples)
    assert not isinstance(whole.posterior_, CompressedSamples)
    assert (small.sparsity_, small.n_effective_parameters_) == (
        whole.sparsity_, whole.n_effective_parameters_)  # fmt: skip
    for block in small.posterior_.blocks.values():
        assert not isinstance(getattr(block, "base", None), np.memmap)


def test_compressed_regressors_keep_their_noise():
    X, y = data()
    whole = sk.SparseBayesianRegressor(hidden_layer_sizes=30, prune=0.8, **SHORT).fit(X, y)
    small = whole.compress()
    for found, expected in zip(
        small.predict(X, return_std=True), whole.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(small.predict_interval(X), whole.predict_interval(X))
    assert list(small.posterior_.draws) == ["weight_1", "bias_1", "weight_2", "bias_2", "sigma"]
    np.testing.assert_array_equal(small.get_support(), whole.get_support())


@pytest.mark.parametrize("sparsity", [0.5, 0.9])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_file_shows_the_sparsity(sparsity, dtype):
    # the draws' bytes times the share that is kept, a bit for every weight, 32 bytes a draw for
    # what else there is of it; and for the rest of the file, which is without draws, 20 kB
    X, y = data(p=200)
    clf = sk.SparseBayesianClassifier(
        hidden_layer_sizes=50, prune=sk.Pruning(sparsity, interval=10), dtype="float32",
        storage=sk.Storage(dtype), **SHORT,
    ).fit(X, y > 0.0)  # fmt: skip
    file = io.BytesIO()
    joblib.dump(clf.compress(), file)
    item = 2 if dtype == "bfloat16" else 4
    n_draws, n_weights, n_others = 20, 200 * 50 + 50, 50 + 1
    weights = (item * (1.0 - clf.sparsity_) + 1.0 / 8.0) * n_weights
    assert len(file.getbuffer()) < n_draws * (weights + item * n_others + 32) + 20_000
    # and the draws' share is at least that at half of the run, 99% of the last one
    assert 0.98 * sparsity < clf.sparsity_ <= sparsity


def test_skops_reads_compressed_estimators():
    X, y = data()
    whole = sk.SparseBayesianClassifier(hidden_layer_sizes=20, prune=0.8, **SHORT).fit(X, y > 0.0)
    for fitted in (whole, whole.compress()):
        loaded = by_skops(fitted)
        same_predictions(loaded, whole, X)


def test_compressed_estimators_export_and_give_draws():
    whole, X = module_classifier()
    small = whole.compress()
    rows = torch.tensor(X[:7], dtype=torch.float32)
    torch.testing.assert_close(
        sk.to_torch(small)(rows), sk.to_torch(whole)(rows), rtol=0.0, atol=0.0
    )
    found, expected = small.sample_posterior(5, 0), whole.sample_posterior(5, 0)
    assert set(found) == set(expected)
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name])
    assert str(small.summary()) == str(whole.summary())


def test_parameters_named_like_latents_are_kept():
    X, y = data()
    clf = sk.BayesianModuleClassifier(RhoNamed, prune=0.8, **SHORT).fit(X, y > 0.0)
    same_predictions(clf.compress(), clf, X)


def test_compressing_twice_changes_nothing():
    whole, X = module_classifier(storage=sk.Storage("bfloat16"))
    small = whole.compress()
    assert len(pickle.dumps(small.compress())) == len(pickle.dumps(small))
    same_predictions(small.compress(), whole, X)


def test_a_compressed_estimator_can_be_fitted_again_and_begins_anew():
    X, y = data()
    small = sk.SparseBayesianRegressor(warm_start=True, **SHORT).fit(X, y).compress()
    fresh = sk.SparseBayesianRegressor(**SHORT).fit(X, y)
    np.testing.assert_array_equal(small.fit(X, y).predict(X), fresh.predict(X))
    stream = sk.SparseBayesianRegressor(**SHORT).partial_fit(X, y).compress()
    assert np.isfinite(stream.partial_fit(X, y).predict(X)).all()


def test_nothing_is_compressed_before_the_fit():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        sk.SparseBayesianRegressor().compress()
