"""R-hat and effective sizes of many coordinates at once, against arviz-stats one by one."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from _cases import cases
from _links import messages
from arviz_stats.base import array_stats

from skbayes_sgmcmc import BayesianLogisticRegression, PosteriorSamples, SamplingWarning
from skbayes_sgmcmc._draws.mixing import bulk_ess, mean_error, rank_r_hat
from skbayes_sgmcmc.diagnostics import summary
from skbayes_sgmcmc.estimators._mixing import SCALE_REMEDY, MustMix, check_mixing

CHAINS = {
    "noise": lambda x: x,
    "walks": lambda x: x.cumsum(2),
    "ties": np.round,
    "turning back": lambda x: x - 0.9 * np.roll(x, 1, axis=2),
    "apart": lambda x: x + 10.0 * np.arange(x.shape[1])[:, None],
    "standing still": lambda x: 0.0 * x + np.arange(x.shape[1])[:, None],
    "one NaN": lambda x: np.where(np.arange(x.shape[2]) == 1, np.nan, x),
}


@pytest.mark.filterwarnings("ignore")
@cases("kind", CHAINS)
@cases("n_chains", [1, 2, 4])
@cases("n_draws", [4, 5, 6, 7, 8, 9, 10, 11, 50, 101])
def test_they_are_those_of_arviz(kind, n_chains, n_draws, limits):
    """The last loop of arviz ends at the third draw from the end, which short chains see."""
    x = CHAINS[kind](np.random.default_rng(0).standard_normal((3, n_chains, n_draws)))
    limits(block_numbers=2 * n_chains * n_draws)
    places = {"chain_axis": 0, "draw_axis": 1}
    for found, expected in (
        (rank_r_hat(x), [array_stats.rhat(each, **places) for each in x]),
        (bulk_ess(x), [array_stats.ess(each, method="bulk", **places) for each in x]),
        (mean_error(x), [array_stats.mcse(each, method="mean", **places) for each in x]),
    ):
        if kind == "standing still" and n_chains == 1:  # constant: arviz has sizes for these
            expected = np.nan
        np.testing.assert_allclose(found, np.broadcast_to(expected, 3), rtol=1e-7)


@pytest.mark.filterwarnings("ignore")
@cases("kind", CHAINS)
@cases("shape", [(2, 4), (3, 5), (2, 8), (4, 101)])
def test_a_summary_from_one_sort_is_that_of_every_figure(kind, shape, limits):
    """Quantiles, sizes, R-hat and errors of compiled code, to rounding; also of equal values."""
    x = CHAINS[kind](np.random.default_rng(0).standard_normal((*shape, 5)).transpose(2, 0, 1))
    posterior = PosteriorSamples({"x": x.transpose(1, 2, 0)})
    tables = []
    for worth in (1, 10**9):
        limits(worth_sorting=worth)
        tables.append(summary(posterior))
    for column in set(tables[0]) - {"name"}:
        found, expected = (np.minimum(table[column], 1e15) for table in tables)  # or infinite
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=column)


def test_a_summary_of_many_coordinates_needs_no_numba(limits, monkeypatch):
    """numba is an extra: a fit without it had no summary."""
    limits(worth_sorting=1)
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in [name for name in sys.modules if name.startswith("skbayes_sgmcmc._kernels")]:
        monkeypatch.delitem(sys.modules, name)
    x = np.random.default_rng(0).standard_normal((2, 50, 3))
    assert np.isfinite(summary(PosteriorSamples({"x": x}))["r_hat"]).all()


@cases("block", ["coef", "scale"])
def test_the_remedy_is_that_of_the_block_that_has_not_mixed(block):
    """Only learned scales have that of scales, whatever the columns of X are called."""
    rng = np.random.default_rng(0)
    draws = {name: rng.standard_normal((4, 100, 1)) for name in ("coef", "scale")}
    draws[block] += np.arange(4.0)[:, None, None]  # chains a sd apart: R-hat is near 1.6
    estimator = BayesianLogisticRegression()
    estimator.n_chains_, estimator.n_draws_ = 4, 100
    what = MustMix(draws, {"coef": ["scale of the map"]}, remedies=SCALE_REMEDY)
    remedy = "a number for prior_scale" if block == "scale" else "or another sampler"
    with pytest.warns(SamplingWarning, match=remedy):
        check_mixing(estimator, what)


@pytest.mark.parametrize(("apart", "warned"), [(4, False), (6, True)])
def test_of_a_share_of_the_coordinates_the_others_may_disagree(apart, warned):
    """With a share of 0.5, the sixth largest of ten R-hats counts, and is named as the median."""
    draws = np.random.default_rng(0).standard_normal((4, 100, 10))
    draws[..., :apart] += np.arange(4.0)[:, None, None]
    estimator = BayesianLogisticRegression()
    estimator.n_chains_, estimator.n_draws_ = 4, 100
    said = messages(lambda: check_mixing(estimator, MustMix({"f": draws}, {}, share=0.5)))
    assert all("median R-hat" in text for text in said)
    assert bool(said) == warned
