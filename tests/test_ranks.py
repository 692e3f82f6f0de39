"""Minibatches that are spread over the ranks of torch.distributed: two processes on this machine.

What the ranks do is in _ranks.py. They run once, and each test looks at what they have left.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from _cases import cases
from _inside import streams
from _process import output_of
from _ranks import (
    CHUNK,
    FITS,
    N_RANKS,
    PATIENCE,
    REFUSED_CHAINS,
    Steps,
    X,
    Y,
    asked_for,
    fitted,
    fitted_in_chunks,
    refused,
)

from skbayes_sgmcmc import BayesianLogisticRegression, data_parallel
from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc._data.ranks import Ranks
from skbayes_sgmcmc._data.rows import StoredRows
from skbayes_sgmcmc._data.stored_inputs import ScaledRows
from skbayes_sgmcmc._engine import data_parallel as engine

pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.skipif(
        not (dist.is_available() and dist.is_gloo_available()), reason="torch has no gloo"
    ),
]

HERE = Path(__file__).parent
#: the ranks talk over loopback, whatever names and addresses this machine has
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}
#: seconds after which ranks that take a tenth of this are taken to hang
TIMEOUT = 300


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """(what each rank has found, the folder, how the processes have ended)."""
    folder = tmp_path_factory.mktemp("ranks")
    started = [
        subprocess.Popen(
            [sys.executable, "_ranks.py", str(folder), str(rank)], cwd=HERE, env=ENVIRONMENT
        )
        for rank in range(N_RANKS)
    ]
    try:
        codes = [process.wait(TIMEOUT) for process in started]
    finally:
        for process in started:
            process.kill()
    files = [folder / f"{rank}.pickle" for rank in range(N_RANKS)]
    return [pickle.loads(path.read_bytes()) for path in files], folder, codes


@cases("name", FITS)
def test_draws_of_two_ranks_are_those_of_one_process(ranks, name):
    """To 1e-5, which is far below any posterior sd here; networks are in single precision.

    Among the fits are a run of 500 steps, minibatches of odd size, weights, control variates,
    energies, preconditioners that need the gradient of the rows alone, and latent variables.
    """
    found, _, _ = ranks
    alone = fitted(name).posterior_
    for each in found:
        assert each["draws"][name].keys() == alone.draws.keys()
        for block, draws in alone.draws.items():
            np.testing.assert_allclose(each["draws"][name][block], draws, rtol=0, atol=1e-5)


def test_ranks_that_divide_the_chains_have_the_draws_of_all(ranks):
    """To 1e-10: each takes the steps of one chain, whose products round otherwise than two's."""
    alone = fitted("logistic").posterior_
    for each in ranks[0]:
        for block, draws in alone.draws.items():
            np.testing.assert_allclose(each["by chain"][block], draws, rtol=0, atol=1e-10)


def test_ranks_have_the_same_draws_to_the_bit(ranks):
    """All take the same step from the same sum, and every chunk begins at rank 0's state."""
    first, second = (each["draws"] for each in ranks[0])
    for name, blocks in first.items():
        for block, draws in blocks.items():
            np.testing.assert_array_equal(second[name][block], draws)


def test_ranks_do_not_use_steps_that_take_all_rows(ranks):
    """One process would: ``linear_sgld`` takes chunks of steps with the rows that it has."""
    assert [each["compiled"] for each in ranks[0]] == [(), ()]


def test_ranks_whose_processors_round_otherwise_stay_together(ranks):
    """A shift of rank 1 by 0.001 at the end of a chunk is gone when the next one begins."""
    found = [each["drifted"] for each in ranks[0]]
    alone, ends = fitted_in_chunks(None), slice(CHUNK - 1, None, CHUNK)
    np.testing.assert_allclose(found[1][:, ends] - alone[:, ends], 0.001, atol=1e-10)
    for draws in found:
        others = np.delete(draws - alone, ends, axis=1)
        np.testing.assert_allclose(others, 0.0, atol=1e-10)


def test_descents_of_ranks_stay_together(ranks):
    """They start the chains at the same place, and stop after the same number of steps."""
    first, second = (each["descended"] for each in ranks[0])
    np.testing.assert_array_equal(first, second)
    alone = fitted("mlp, mclmc").posterior_["weight_1"]
    np.testing.assert_allclose(first, alone, rtol=0, atol=1e-5)


def test_exchanged_tensors_need_not_be_in_one_piece(ranks):
    """Their sum, and the values of rank 0, also arrive in a view of other strides."""
    columns = np.arange(6.0).reshape(2, 3).T
    for each in ranks[0]:
        np.testing.assert_array_equal(each["columns"], [2 * columns + 10.0, columns])


def test_only_rank_0_prints(ranks):
    """Of ranks that share the rows, and of those that share the chains."""
    (first, second) = (each["printed"] for each in ranks[0])
    assert all("step 60 of 60" in text for text in first)
    assert second == ["", ""]


def test_a_file_that_rank_0_can_not_read_is_refused_by_all(ranks):
    errors = [each["damaged"] for each in ranks[0]]
    assert errors[0] == errors[1]
    assert re.match(r"CheckpointError: .*can't be read", errors[0])


def test_fits_leave_the_environment_alone(ranks):
    """The first fit imports scikit-learn, threadpoolctl and joblib, and these do set variables.

    This package sets none, neither when it is imported nor in a fit.
    """
    assert [each["environment"] for each in ranks[0]] == [[], []]


def test_the_end_of_the_context_is_the_end_of_sharing(ranks):
    """Fits of other seeds are then fits of other processes."""
    assert [each["outside"] for each in ranks[0]] == ["none", "none"]


def test_a_process_outside_the_group_is_refused(ranks):
    inside, outside = (each["not a rank"] for each in ranks[0])
    assert inside == "none"
    assert re.match(r"RuntimeError: group=.* this process is none of its ranks", outside)


def test_a_rank_reads_its_rows_only(ranks):
    """20 more steps of 2 chains with 21 rows: 10 rows a step on rank 0, and 11 on rank 1."""
    alone = [asked_for(burn_in) for burn_in in (10, 30)]
    assert np.diff(alone) == 20 * 2 * 21
    assert [np.diff(each["asked"])[0] for each in ranks[0]] == [20 * 2 * 10, 20 * 2 * 11]


@cases(
    "name, message",
    {
        "rows": r"differ in the shape of x: \(203, 6\) on rank 0, \(202, 6\) on rank 1",
        "columns": r"differ in the shape of x: \(203, 6\) on rank 0, \(203, 5\) on rank 1",
        "other rows": "rank 1 computes other gradients than rank 0 for the same row numbers",
        "weights": "differ in the sum of the weights: 265.* on rank 0, 530.* on rank 1",
        "step_size": "differ in the parameter step_size: 0.1 on rank 0, 0.2 on rank 1",
        "seed": "differ in the parameter random_state: 0 on rank 0, 1 on rank 1",
        "prior": "differ in the model's parameters",
        "version": "differ in the version of skbayes_sgmcmc: .* on rank 0, 0.0.0 on rank 1",
        "no seed": "random_state=None, because every rank must draw the same noise",
        "n_jobs": "n_jobs=2: give n_jobs=None",
        "few rows": "batch_size=1 is not allowed in data_parallel with 2 ranks",
        "mala": "sampler=MALA, which needs all rows in every process",
        "augment": "augment, because its random numbers would be others on each rank",
        "no data": "a log density that has no rows to share",
        "topics": "LDAModel: its gradient draws random numbers",
        "few chains": "n_chains=1 and 2 ranks in chain_group",
        "file": "chain_group and a checkpoint",
    }.items(),
)
def test_what_ranks_cannot_share_is_refused_by_all(ranks, name, message):
    """With the same message, by every rank; a rank that went on would wait for the others."""
    errors = [each["errors"][name] for each in ranks[0]]
    assert errors[0] == errors[1]
    assert errors[0].startswith("ValueError: ")
    with pytest.raises(ValueError, match=message):
        raise ValueError(errors[0])
    assert set(ranks[0][0]["errors"]) == {*refused(0), *REFUSED_CHAINS}


def test_a_rank_waits_for_others_as_long_as_the_group_says(ranks):
    message, seconds = ranks[0][0]["alone"]
    assert message.startswith(
        "RankError: rank 0 of 2 lost the other ranks: one has stopped, or did"
    )
    assert 'explain("a-rank-has-stopped")' in message and "[" not in message
    assert seconds > 0.9 * PATIENCE  # the processes' own timeout, which is longer, ends the test


def test_a_rank_that_dies_stops_the_others_and_leaves_the_file(ranks):
    """The file goes on in one process, to the same draws."""
    _, folder, codes = ranks
    assert codes == [0, -signal.SIGKILL]
    message = (folder / "died.0.txt").read_text()
    # rank 0 has finished the second chunk; it finds out in the third
    assert f"at step {2 * CHUNK} of {3 * CHUNK}; call fit again" in message
    whole = fitted_in_chunks(None)
    resumed = fitted_in_chunks(folder / "fit.npz")
    assert CHUNK <= Steps.taken <= CHUNK + 2  # the last chunk
    np.testing.assert_allclose(resumed, whole, rtol=0, atol=1e-10)


def test_only_rank_0_has_the_file_from_which_all_go_on(ranks):
    """As on two machines that share no disk."""
    (first, files), (second, none) = (each["resumed"] for each in ranks[0])
    assert (files, none) == (["fit.npz"], [])
    np.testing.assert_array_equal(first, second)
    whole = fitted_in_chunks(None)
    np.testing.assert_allclose(first, whole, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_torchrun_runs_the_example():
    """As docs/scale.md has it: `torchrun` is this module's name on the path."""
    command = ["torch.distributed.run", "--nproc-per-node", "2", "examples/fit_on_ranks.py"]
    printed = output_of("-m", *command, cwd=HERE.parent, env=ENVIRONMENT, timeout=TIMEOUT)
    found = re.fullmatch(r"2 ranks, \d+ rows a step: accuracy ([01]\.\d\d)\n", printed)
    assert float(found[1]) > 0.8  # chance is a half
    assert printed.count("accuracy") == 1


# without other processes --------------------------------------------------------------------------


class Part(Ranks):
    """One of several ranks, which exchanges nothing."""

    def __init__(self, rank, size):
        super().__init__()
        self.rank, self.size = rank, size


class Other(Ranks):
    """Two ranks, the second of which differs in one fact, or in what its functions return."""

    def __init__(self, fact):
        super().__init__()
        self.size, self.fact = 2, fact

    def gathered(self, value):
        theirs = dict(value)
        if self.fact == "gradient" and "gradient" in value:
            theirs = {name: values + 1.0 for name, values in value.items()}
        elif self.fact in value:
            theirs[self.fact] = "another"
        return [value, theirs]


COMPARED = {
    "the model": r"\w+Model",
    "the version of torch": re.escape(torch.__version__),
    "the parameter random_state": "0",
    "the number of steps": "60",
    "the burn-in": "30",
    "the rows of a minibatch": "21",
    "the rows that are read at once": "0",
    "compiled": r"\(\)",
}


@cases("side", ["rows", "chains"])
@cases("fact", [*COMPARED, "gradient"])
def test_ranks_agree_on_all_that_decides_their_steps(side, fact):
    """Ranks of the same rows do, and ranks of the same chains, before any of them moves."""
    Steps.taken = Steps.last = 0
    message = f"the ranks differ in {fact}: {COMPARED.get(fact)} on rank 0, another on rank 1"
    if fact == "gradient":
        message = "rank 1 computes other gradients than rank 0"
    token = engine._grid.set(engine.Grid(**{side: Other(fact)}))
    try:
        with pytest.raises(ValueError, match=message):
            fitted("logistic", sampler=Steps())
        assert Steps.taken == 0
    finally:
        engine._grid.reset(token)


@pytest.mark.parametrize("n", [3, 7, 100])
def test_shares_are_a_partition(n):
    parts = [np.arange(n)[Part(rank, 3).share(n)] for rank in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(n))
    assert np.ptp([len(part) for part in parts]) <= 1


class Slices:
    """A table of which only slices can be read."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __getitem__(self, rows):
        return self.values[rows]


@cases("size", [10, 61])
@cases("kind", [np.asarray, Slices])
def test_the_ranks_have_each_row_of_a_minibatch_once(kind, size):
    """With its target and its weight: of an array, of a file that is read in runs, of all rows."""
    numbers = np.arange(61.0)
    inputs = ScaledRows(StoredRows(kind(numbers[:, None])), np.zeros(1), np.ones(1), (1,))
    fields = {"x": inputs.as_field(torch.float64, "cpu"), "y": torch.arange(61)}
    whole = Minibatches(Data(fields, 61, torch.from_numpy(numbers)), size)

    def batches(minibatches):
        rng = streams(2)
        return minibatches.chunk(minibatches.indices(4, rng), 4, rng)

    spread = [batches(whole.over(Part(rank, 3))) for rank in range(3)]
    for step, parts in zip(batches(whole), zip(*spread, strict=True), strict=True):
        assert sum(part.size for part in parts) == step.size == size
        for part in parts:
            torch.testing.assert_close(part.fields["x"][..., 0], part.fields["y"].double())
            torch.testing.assert_close(part.weight, part.fields["y"].double())
        together = torch.cat([part.fields["y"] for part in parts], -1)
        torch.testing.assert_close(together, step.fields["y"])


def test_without_ranks_the_context_is_refused():
    assert not dist.is_initialized()
    with pytest.raises(RuntimeError, match=r"init_process_group\('gloo'\)"), data_parallel():
        BayesianLogisticRegression().fit(X, Y)
