"""The compiled kernel draws what the torch path draws, number by number."""

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases
from _inside import inside

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc.schedules import Cyclical, Polynomial

pytest.importorskip("numba")
from skbayes_sgmcmc._kernels.linear import STEPS

Chains = inside("Chains")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    # values of any size and sign, with many zeros: the kernel is not for binary features only
    X = rng.standard_normal((300, 8)) * (rng.random((300, 8)) < 0.4)
    y = (X @ rng.standard_normal(8) + rng.logistic(size=300) > 0).astype(int)
    return X, y


def arranged(X, layout):
    """Rows that are laid out so: "padded" are sparse ones of nearly equal lengths."""
    if layout == "padded":  # four entries, or three in every ninth row
        row, column = np.arange(len(X))[:, None], np.arange(8)
        filled = (column % 2 == row % 2) & ((row % 9 > 0) | (column > 1))
        X = np.where(filled, X + np.where(column < 4, 1.0, -1.0), 0.0)
    return X if layout == "dense" else sp.csr_matrix(X)


@pytest.fixture
def torch_path(monkeypatch):
    """A run (of ``draws``, or another) with the kernel's random numbers and torch's loop."""

    def run(*args, of=None, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(
                Chains,
                "kernel",
                property(lambda self: None, lambda self, kernel: None),
                raising=False,
            )
            return (of or draws)(*args, **kwargs)

    return run


def draws(data, *, compiled=True, layout="dense", sample_weight=None, **params):
    X, y = data
    defaults = {
        "sampler": "sgld", "step_size": 0.05, "batch_size": 20, "n_chains": 3, "n_draws": 25,
        "burn_in": 30, "thinning": 13, "random_state": 0,
    }  # fmt: skip
    clf = BayesianLogisticRegression(compiled=compiled, **(defaults | params))
    clf.fit(arranged(X, layout), y, sample_weight=sample_weight)
    return clf.posterior_["coef"], clf.posterior_["intercept"]


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("layout", ["dense", "padded", "ragged"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n_chains": 1},
        {"batch_size": 1000},
        {"batch_size": 17},
        {"prior": "laplace", "prior_scale": 0.5},
        {"fit_intercept": False},
        {"temperature": 0.0},
        {"step_size": Polynomial(first=0.1, last=0.001)},
        {"step_size": Cyclical(0.1, n_cycles=3)},
        {"prior_scale": np.linspace(0.1, 2.0, 8)},
        {"prior_scale": 1.0},
    ],
    ids=lambda params: ",".join(params) or "plain",
)
def test_kernel_equals_torch_draw_by_draw(data, torch_path, monkeypatch, layout, params):
    """Same random numbers, same arithmetic up to its order: 355 steps agree to 1e-9 in float64.

    Minibatches have even and odd numbers of rows, which the kernels take in pairs.
    Rounding differs by 1e-16 a step and SGLD on a log-concave target contracts, so differences
    stay far below the bound; another random number or a wrong scale would show as 1e-2.
    """
    with monkeypatch.context() as patch:
        for other in set(STEPS) - {layout}:  # a run that took another kernel would fail
            patch.delitem(STEPS, other)
        compiled = draws(data, layout=layout, **params)
    plain = torch_path(data, layout=layout, **params)
    for ours, theirs in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_kernel_uses_sample_weights(data, torch_path):
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(data[1]))
    compiled = draws(data, sample_weight=weight)
    plain = torch_path(data, sample_weight=weight)
    unweighted = draws(data)
    np.testing.assert_allclose(compiled[0], plain[0], rtol=0, atol=1e-9)
    assert np.abs(compiled[0] - unweighted[0]).max() > 1e-3


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_the_weight_of_a_single_row_counts(torch_path):
    """In a stream of single rows; the kernel once took one weight for none."""

    def stream():
        clf = BayesianLogisticRegression(
            sampler="sgld", step_size=0.1, n_draws=20, total_samples=100, random_state=0,
            compiled=True,
        )  # fmt: skip
        clf.partial_fit([[2.0]], [1], classes=[0, 1], sample_weight=[30.0])
        return clf.posterior_["coef"]

    np.testing.assert_allclose(stream(), torch_path(of=stream), rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_kernel_in_single_precision(data, torch_path):
    """In float32 the two paths differ by rounding alone: 1e-7 a step, contracting, so 1e-4."""
    compiled = draws(data, dtype="float32")
    plain = torch_path(data, dtype="float32")
    assert compiled[0].dtype == np.float32
    np.testing.assert_allclose(compiled[0], plain[0], rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_threads_and_layouts_do_not_change_the_draws(data):
    """Chains are independent of each other: the same bits by one thread and by three.

    Layouts differ in the order of the sums only.
    """
    import torch

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = draws(data, layout="ragged")
        torch.set_num_threads(3)
        together = draws(data, layout="ragged")
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(alone[0], together[0])
    np.testing.assert_allclose(alone[0], draws(data)[0], rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_warm_start_goes_on_with_the_generator_it_began_with(data):
    """A later fit without the kernel has the same numbers as one with it."""
    settings = {"step_size": 0.05, "batch_size": 20, "n_chains": 2, "n_draws": 25, "burn_in": 0}
    coefs = []
    for later in (True, False):
        clf = BayesianLogisticRegression(**settings, random_state=0, compiled=True, warm_start=True)
        clf.fit(*data)
        clf.set_params(compiled=later).fit(*data)
        coefs.append(clf.posterior_["coef"])
    np.testing.assert_allclose(*coefs, rtol=0, atol=1e-9)


@cases(
    "params", [{"sampler": "sghmc"}, {"integrator": "leimkuhler_matthews"}, {"step_size": "auto"}]
)
def test_compiled_is_refused_where_it_does_not_apply(data, params):
    with pytest.raises(ValueError, match="compiled=True is not allowed here"):
        draws(data, compiled=True, **params)
