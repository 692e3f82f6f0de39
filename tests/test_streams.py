"""Random streams: independent, resumable, and the compiled generator's numbers are normal."""

import math

import numpy as np
import pytest
import torch
from _cases import cases
from scipy import stats

from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._draws.storage import dtype_name

N = 2**20


def chain_random(n_chains=1, seed=0, **kwargs):
    return ChainRandom(np.random.SeedSequence(seed).spawn(n_chains), **kwargs)


@pytest.fixture(params=["torch", "philox"])
def kind(request):
    if request.param == "philox":
        pytest.importorskip("numba")
    return {"philox": request.param == "philox"}


@pytest.fixture(scope="module")
def normals():
    """Ten million normals of one Philox stream."""
    pytest.importorskip("numba")
    return chain_random(philox=True).normal(10**7, dtype=torch.float32)[0].numpy()


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        (10, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (7, "5f6fb709 0d893f64 4f121f81 4f730a48"),
    ],
)
def test_philox_gives_the_published_words(rounds, words):
    """The generator's known answers for a key and a counter of zeros (Salmon et al. 2011)."""
    pytest.importorskip("numba")
    from skbayes_sgmcmc._kernels.philox import words as philox_words

    out = np.empty(4, np.uint32)
    philox_words(out, np.uint64(0), np.uint64(0), rounds)
    assert " ".join(f"{word:08x}" for word in out) == words


@pytest.mark.statistical
def test_normals_have_normal_moments(normals):
    """Standardised by their standard errors under normality; 5 is passed once in a million runs."""
    n, x = len(normals), normals.astype(np.float64)
    z = [
        x.mean() * np.sqrt(n),
        (x.var() - 1.0) * np.sqrt(n / 2),
        stats.skew(x) * np.sqrt(n / 6),
        stats.kurtosis(x) * np.sqrt(n / 24),
    ]
    assert np.abs(z).max() < 5.0


@pytest.mark.statistical
@pytest.mark.slow
def test_normals_have_a_normal_distribution(normals):
    """Kolmogorov and Smirnov at 10^7 draws: deviations of 6e-4 of a probability are seen."""
    assert stats.kstest(normals.astype(np.float64), stats.norm.cdf).pvalue > 1e-4


@pytest.mark.statistical
@pytest.mark.parametrize("bound", [3.0, 4.0, 4.8])
def test_normals_have_normal_tails(normals, bound):
    """Counts beyond a bound on either side are Poisson: within 5 of their standard deviations."""
    expected = len(normals) * stats.norm.sf(bound)
    counts = np.array([(normals > bound).sum(), (normals < -bound).sum()])
    assert (np.abs(counts - expected) < 5.0 * np.sqrt(expected)).all()


@pytest.mark.statistical
@pytest.mark.parametrize("power", [1, 2])
def test_normals_are_not_correlated_along_a_stream(normals, power):
    """Lags of neighbours, of the words of a counter value, and of blocks; values and squares."""
    x = normals[: 2**22].astype(np.float64) ** power
    x = (x - x.mean()) / x.std()
    for lag in (1, 2, 3, 4, 7, 8, 512, 1024, 1536, 2048, 4096):
        assert abs(np.mean(x[lag:] * x[:-lag])) * np.sqrt(len(x)) < 5.0, lag


@pytest.mark.statistical
@cases("power", [1, 2])
def test_streams_are_not_correlated_with_each_other(kind, power):
    """Neighbouring chains' streams, at the same place and shifted by a block."""
    a, b = chain_random(2, **kind).normal(N).numpy() ** power
    a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    for lag in (0, 1, 512, 2048):
        assert abs(np.mean(a[lag:] * b[: N - lag])) * np.sqrt(N) < 5.0


@pytest.mark.statistical
@cases("dtype", [torch.float32, torch.float64])
def test_uniforms_are_uniform(kind, dtype):
    u = chain_random(**kind).uniform(N, dtype=dtype)[0].numpy()
    assert u.dtype == np.dtype(dtype_name(dtype))
    assert u.min() >= 0.0 and u.max() < 1.0
    assert stats.kstest(u.astype(np.float64), stats.uniform.cdf).pvalue > 1e-4


@pytest.mark.statistical
@cases("n, size", [(12, 1), (9, 3), (5, 4), (4, 4)])
def test_distinct_numbers_are_exactly_uniform(kind, n, size):
    """Every ordered choice is equally likely where numbers come in order (Philox), every subset
    elsewhere: chi-squared, p > 1e-4 fails for one seed in 10,000, and the seed is fixed.
    """
    drawn = chain_random(**kind).distinct(n, 60_000, size)[0]
    if not kind["philox"]:
        drawn = np.sort(drawn, axis=1)
    counts = np.unique(drawn @ n ** np.arange(size), return_counts=True)[1]
    assert len(counts) == (math.perm if kind["philox"] else math.comb)(n, size)
    assert len(counts) == 1 or stats.chisquare(counts).pvalue > 1e-4


@cases("size", [1, 7, 200, 999])
def test_distinct_numbers_do_not_repeat(kind, size):
    drawn = chain_random(2, **kind).distinct(1000, 30, size)
    assert drawn.shape == (2, 30, size) and drawn.dtype == np.int64
    assert drawn.min() >= 0 and drawn.max() < 1000
    assert all(len(np.unique(row)) == size for row in drawn.reshape(-1, size))


def test_a_chain_has_its_own_stream_whatever_runs_beside_it(kind):
    alone = chain_random(3, **kind).select([1]).normal(10, 4)
    together = chain_random(5, **kind).normal(10, 4)
    assert torch.equal(alone[0], together[1])
    assert not torch.equal(together[0], together[1])


def test_a_stored_state_goes_on_with_the_same_numbers(kind):
    """Also in a ChainRandom that was made for the other generator."""
    rng = chain_random(2, **kind)
    rng.normal(100)
    state = rng.get_state()
    expected = rng.normal(50), rng.uniform(7), [rows.integers(10**9) for rows in rng.rows]
    for philox in (True, False):
        other = chain_random(2, seed=1, philox=philox)
        other.set_state(state)
        assert torch.equal(other.normal(50), expected[0])
        assert torch.equal(other.uniform(7), expected[1])
        assert [rows.integers(10**9) for rows in other.rows] == expected[2]


def test_a_stream_never_gives_a_number_twice():
    """Portions of any length use up whole blocks of the one long stream, each once.

    So a portion begins where the block after the last one's end does: bit for bit, since equal
    float32 normals may be a coincidence. Normals, uniforms and row numbers share the counter.
    """
    pytest.importorskip("numba")
    from skbayes_sgmcmc._kernels.philox import BLOCK

    rng, block, at = chain_random(philox=True), 4 * BLOCK, 0
    lengths = (1, 5, block, block + 1, 3, 10_000)
    whole = chain_random(philox=True).normal(40 * block)[0]
    uniforms = chain_random(philox=True).uniform(40 * block)[0]
    for n in lengths * 2:
        kind, long = (rng.normal, whole) if n % 2 else (rng.uniform, uniforms)
        assert torch.equal(kind(n)[0], long[at : at + n])
        at += -(-n // block) * block
        # two permutations of 100 numbers begin one more block: they take 1,040 words of 2,048, sd
        # 180, as 100 coupons that are collected twice do
        rng.distinct(100, 2, 100)
        at += block
    assert at <= 40 * block
