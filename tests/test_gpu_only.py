"""What only a GPU shows: recorded graphs, a full memory, the same numbers twice, no memory kept."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from _posteriors import assert_same_draws
from test_gpu import CASES, X, fitted, results, y

from skbayes_sgmcmc import BayesianMLPClassifier

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

#: steps that can be recorded: dense rows, most of them with latent variables
RECORDED = [
    "mlp", "mlp, learned", "mlp regressor", "cnn", "module", "module regressor", "sparse",
    "sparse regressor", "logistic, learned",
]  # fmt: skip
RECORDED_CELLS = [
    (name, sampler)
    for name in RECORDED
    for sampler in ("sgld", "psgld", "sghmc", "msgnht", "mclmc")
    if not (sampler == "mclmc" and name.startswith("sparse"))  # which have no potential
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, sampler", RECORDED_CELLS)
def test_graphs_do_not_change_a_bit(name, sampler, dtype):
    """A replay launches the same kernels on the same numbers."""
    choice = {"sampler": sampler, "dtype": dtype}
    # others add up the rows of a kernel's gradient in the order in which threads arrive
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):
        plain = fitted(name, "cuda", compiled=False, **choice)
        graphed = fitted(name, "cuda", compiled=True, **choice)
    assert graphed.compiled_ == ("cuda_steps",)
    assert_same_draws(plain, graphed)


@pytest.mark.parametrize("name", CASES)
def test_the_same_seed_gives_the_same_draws(name):
    one, two = fitted(name, "cuda"), fitted(name, "cuda")
    assert_same_draws(one, two)


def test_chains_do_not_depend_on_their_group():
    """As on the CPU: the first of three chains is the first of two, to rounding of the products."""
    two, three = fitted("mlp", "cuda"), fitted("mlp", "cuda", n_chains=3)
    np.testing.assert_allclose(
        three.posterior_["weight_1"][:2], two.posterior_["weight_1"], rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda", "cpu")])
def test_chains_go_on_with_the_other_generator(devices):
    """Its state is a seed for the other device's; test_gpu.py looks at the rest."""
    clf = fitted("mlp", devices[0], warm_start=True).set_params(device=devices[1]).fit(X, y)
    assert np.isfinite(clf.posterior_["weight_1"]).all()


def test_modules_in_bfloat16():
    clf = fitted("module", "cuda", dtype="float32", precision="bfloat16")
    assert np.isfinite(clf.predict_proba(X)).all()


def test_a_full_gpu_is_said():
    """With a thousandth of the GPU's memory to use; the message names the remedy."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.001)
    wide = BayesianMLPClassifier(
        hidden_layer_sizes=2000, n_chains=64, n_draws=1, burn_in=0, thinning=1, step_size=1e-4,
        init="random", device="cuda", random_state=0,
    )  # fmt: skip
    try:
        with pytest.raises(MemoryError, match="smaller batch_size, fewer n_chains"):
            wide.fit(X, y)
        assert not hasattr(wide, "posterior_")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    fitted("mlp", "cuda")  # and the next fit runs


@pytest.mark.parametrize("name", CASES)
def test_a_fit_keeps_no_memory_of_the_gpu(name):
    """Draws are on the CPU; up to 1 MB of constants may stay. Libraries take theirs in a first."""
    results(fitted(name, "cuda"), CASES[name][1])
    gc.collect()
    before = torch.cuda.memory_allocated()
    estimator = fitted(name, "cuda")
    results(estimator, CASES[name][1])
    gc.collect()
    assert torch.cuda.memory_allocated() - before < 1e6
