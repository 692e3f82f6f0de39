"""Random streams: independent, resumable, and the numbers of own generators are normal."""

import math
import os
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from _cases import cases
from _process import output_of
from scipy import stats

from skbayes_sgmcmc._data import chain_random as streams
from skbayes_sgmcmc._data import counters, philox_words
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._draws.storage import dtype_name

N = 2**20


def chain_random(n_chains=1, seed=0, **kwargs):
    return ChainRandom(np.random.SeedSequence(seed).spawn(n_chains), **kwargs)


@pytest.fixture(params=["torch", "philox", "counters"])
def kind(request, monkeypatch):
    """The generators; counters are those of GPUs, computed by torch on the CPU."""
    if request.param == "philox":
        pytest.importorskip("numba")
    if request.param == "counters":
        monkeypatch.setattr(streams, "counts", lambda device: True)
    return {"philox": request.param == "philox"}


@pytest.fixture(scope="module", params=["philox", "counters"])
def normals(request):
    """Ten million normals of one Philox stream, or four million of one of counters."""
    if request.param == "counters":
        return counted(7).normal(1, 4 * 10**6)[0, 0].numpy()
    pytest.importorskip("numba")
    return chain_random(philox=True).normal(10**7, dtype=torch.float32)[0].numpy()


def counted(*keys):
    return counters.Counted(keys, "cpu")


@pytest.mark.parametrize(
    ("rounds", "words"),
    [(10, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"), (7, "5f6fb709 0d893f64 4f121f81 4f730a48")],
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


# numbers as functions of a counter ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_counters_give_the_published_words(counter, key, expected):
    """The known answers of Philox4x32-10 for zeros, ones and the digits of pi."""
    found = philox_words.philox(*(list(map(torch.tensor, part)) for part in (counter, key)))
    assert " ".join(f"{int(word):08x}" for word in found) == expected


def test_a_counter_of_more_than_32_bits_goes_on():
    """Its upper half is a word of its own, so that long runs do not repeat their numbers."""
    stream = counted(1)
    state = stream.get_state()
    state[0, 1 + counters.NORMAL] = 2**32 - 1
    stream.set_state(state)
    across = stream.normal(1, 12)[0, 0]
    assert stream.get_state()[0, 1 + counters.NORMAL] == 2**32 + 2
    assert not torch.equal(across[4:8], counted(1).normal(1, 4)[0, 0])


def test_steps_have_the_same_numbers_in_blocks_of_any_length():
    """And whatever numbers of other kinds a run takes in between."""
    for n in (3, 4, 5):
        whole, parts = counted(1, 2), counted(1, 2)
        expected = whole.normal(6, n), whole.uniform(6, n, torch.float64)
        found = [parts.normal(2, n), parts.normal(1, n)]
        uniforms = [parts.uniform(5, n, torch.float64), parts.uniform(1, n, torch.float64)]
        found.append(parts.normal(3, n))
        assert torch.equal(torch.cat(found, 1), expected[0])
        assert torch.equal(torch.cat(uniforms, 1), expected[1])


def test_chains_that_take_different_numbers_go_on_by_themselves():
    """As many uniforms for a chain as it has words; the others' lengths change nothing."""
    both = counted(1, 2)
    first, second = (both.ragged_uniform(sizes, torch.float32) for sizes in ([3, 1], [2, 2]))
    for place, key in enumerate((1, 2)):
        alone = counted(key)
        sizes = [sizes[place] for sizes in ([3, 1], [2, 2])]
        own = [alone.ragged_uniform([size], torch.float32) for size in sizes]
        assert torch.equal(own[0], first.split([3, 1])[place])
        assert torch.equal(own[1], second.split([2, 2])[place])


def test_normals_follow_from_the_words():
    """Against Box and Muller's formulas in float64: 24 bits of u near 1 leave 2e-5."""
    w = philox_words.words(counted(3).keys, torch.arange(10**5)[None], 0)
    u, turn = (w[..., ::2].double() + 0.5) * 2.0**-32, w[..., 1::2]
    angle = (turn - ((turn >> 31) << 32)).double() * math.pi / 2**32
    radius = (-2.0 * u.log()).sqrt() * torch.where((turn & 1) == 1, 1.0, -1.0)
    expected = torch.stack([radius * angle.sin(), radius * angle.cos()], -1).flatten(-2)
    torch.testing.assert_close(philox_words.box_muller(w).double(), expected, rtol=0.0, atol=3e-5)


@pytest.mark.statistical
def test_words_have_equally_likely_bytes():
    """Chi-squared for each of the 16 bytes: p > 1e-5 in the worst fails once in 6,000 seeds."""
    w = philox_words.words(counted(11).keys, torch.arange(2**17)[None], 0)[0]
    for shift in (0, 8, 16, 24):
        for word in (((w >> shift) & 255).T).numpy():
            assert stats.chisquare(np.bincount(word, minlength=256)).pvalue > 1e-5


@pytest.mark.statistical
@pytest.mark.parametrize("axis", ["chains", "steps", "slots"])
def test_numbers_of_chains_steps_and_slots_are_not_correlated(axis):
    """All pairs of 64 series of 16,384 numbers: n r^2 is chi-squared, 2,016 pairs of them.

    Their sum is within 5 sds of its mean, and the largest below 30, which is passed once in 10^4.
    """
    x = counted(*range(64)).normal(64, 256).double()
    order = {"chains": (0, 1, 2), "steps": (1, 0, 2), "slots": (2, 0, 1)}[axis]
    series = x.permute(order).reshape(x.shape[order[0]], -1)[:64, :16_384].numpy()
    n = series.shape[1]
    squares = n * np.corrcoef(series)[np.triu_indices(64, 1)] ** 2
    assert abs(squares.sum() - len(squares)) < 5.0 * math.sqrt(2.0 * len(squares))
    assert squares.max() < 30.0


@pytest.mark.statistical
def test_signs_change_as_often_as_those_of_chance():
    """Runs of Wald and Wolfowitz: the number of changes is binomial, within 5 sds."""
    positive = counted(5).normal(1, 2**20)[0, 0].numpy() > 0.0
    changes, n = int((positive[1:] != positive[:-1]).sum()), len(positive) - 1
    assert abs(changes - n / 2) < 5.0 * math.sqrt(n / 4)


@pytest.mark.statistical
def test_no_frequency_stands_out():
    """Ordinates of the periodogram are exponential; the largest of m passes log(m) + 10 rarely."""
    x = counted(6).normal(1, 2**18)[0, 0].double().numpy()
    power = np.abs(np.fft.rfft(x)[1:-1]) ** 2 / len(x)
    assert power.max() < math.log(len(power)) + 10.0
    assert stats.kstest(power, stats.expon.cdf).pvalue > 1e-4


@pytest.mark.statistical
@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 3.7, 200.0])
def test_gamma_variates(shape):
    """Kolmogorov and Smirnov at 10^5 draws, of the logarithm, which shows the smallest ones."""
    found = counted(8, 9).gamma(torch.full((2, 50_000), shape, dtype=torch.float64)).reshape(-1)
    assert (found >= 0.0).all()
    assert stats.kstest(found.numpy(), stats.gamma(shape).cdf).pvalue > 1e-4


def test_gamma_variates_of_a_chain_are_its_own():
    """Whatever chains are beside it, whatever else it draws in between, and after a resumption."""
    shapes = torch.linspace(0.1, 9.0, 8, dtype=torch.float64).view(2, 4)
    both, alone, later = counted(1, 2), counted(2), counted(3)
    first, second = both.gamma(shapes), both.gamma(shapes)
    assert torch.equal(alone.gamma(shapes[1:])[0], first[1])
    alone.normal(3, 5)
    later.set_state(alone.get_state())
    assert torch.equal(later.gamma(shapes[1:])[0], second[1])
    assert not torch.equal(first, second)


@pytest.mark.statistical
@cases("n, size", [(12, 1), (9, 2), (17, 3), (5, 4), (4, 4)])
def test_row_numbers_of_counters_are_exactly_uniform(n, size):
    """Every ordered choice is equally likely: chi-squared, p > 1e-4."""
    drawn = counted(12).distinct(n, 60_000, size)[0].numpy()
    found = np.unique(drawn @ n ** np.arange(size), return_counts=True)[1]
    assert len(found) == math.perm(n, size)
    assert stats.chisquare(found).pvalue > 1e-4


@cases("size", [1, 7, 200, 249, 251, 1000])
def test_row_numbers_of_counters_do_not_repeat(size):
    """By both ways; those of a step do not depend on other chains and on blocks of steps."""
    drawn = counted(1, 2).distinct(1000, 30, size)
    assert drawn.shape == (2, 30, size) and drawn.min() >= 0 and drawn.max() < 1000
    assert all(len(row.unique()) == size for row in drawn.reshape(-1, size))
    alone = counted(2)
    parts = [alone.distinct(1000, n_steps, size) for n_steps in (10, 20)]
    assert torch.equal(torch.cat(parts, 1)[0], drawn[1])


def test_the_kernel_gives_the_same_bits():
    """Triton's interpreter, which computes as the kernel does on a GPU.

    The same check decides on a GPU whether the kernel is used. Triton reads the variable when it is
    imported, which another test may have done: a process of its own.
    """
    if find_spec("triton") is None:
        pytest.skip("needs Triton")
    program = """
import torch
from skbayes_sgmcmc._data import _kernels_triton, counters
assert counters.are_right(_kernels_triton, torch.device("cpu"))
"""
    output_of("-c", program, env=os.environ | {"TRITON_INTERPRET": "1"})


@cases("part", ["normals", "words"])
def test_a_kernel_with_other_bits_is_noticed(part):
    """One that rounds otherwise, as fused products and sums would, or has one word wrong."""

    class Other:
        @staticmethod
        def fill_normal(out, keys, begin):
            w = philox_words.words(keys, begin[:, None] + torch.arange(3 * 256), counters.NORMAL)
            numbers = philox_words.box_muller(w).view(2, 3, -1)[..., :1022]
            out.copy_(numbers)
            if part == "normals":
                out[1, 2, 7] = torch.nextafter(numbers[1, 2, 7], torch.tensor(9.0))

        @staticmethod
        def fill_words(out, keys, begin, kind):
            out.copy_(philox_words.words(keys, begin[:, None] + torch.arange(out.shape[1]), kind))
            if part == "words":
                out[1, 299, 3] ^= 1

    assert not counters.are_right(Other, torch.device("cpu"))
