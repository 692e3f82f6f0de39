"""Which files are resumed, which are refused untouched, and how they are written."""

from __future__ import annotations

import math
import os
import signal
import sys

import numpy as np
import pytest
import torch
from _cases import cases
from _checkpoint import assert_same, data, make
from _inside import inside
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._engine.checkpoint import write_atomically
from skbayes_sgmcmc.augmentation import RandomCrop, RandomFlip
from skbayes_sgmcmc.models import Data, Model
from skbayes_sgmcmc.samplers import SGHMC, Sampler
from skbayes_sgmcmc.schedules import Schedule

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

# files that are refused ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "file.npz"
    make("default", path).fit(*data())
    return path.read_bytes()


def foreign(path):
    np.savez(path, theta=np.zeros(3))


def pickled(path):
    np.savez(path, format=np.array([{"a": object}], dtype=object))


@cases(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: path.write_bytes(path.read_bytes()[:40]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("not a checkpoint"),
        lambda path: flip(path, 0.5),
        lambda path: flip(path, 0.05),
        foreign,
        pickled,
    ],
)
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, finished, damage):
    path = tmp_path / "file.npz"
    path.write_bytes(finished)
    damage(path)
    before = path.read_bytes()
    clf = make("default", path)
    with pytest.raises(sk.CheckpointError, match="can't be read and was left untouched") as caught:
        clf.fit(*data())
    assert str(path) in str(caught.value) and "delete it" in str(caught.value)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]
    assert not hasattr(clf, "posterior_")


def flip(path, where):
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 0xFF
    path.write_bytes(bytes(content))


@cases(
    "change",
    [
        {"prior_scale": 2.0},
        {"prior": "laplace"},
        {"step_size": 0.1},
        {"n_draws": 700},
        {"random_state": 1},
        {"n_chains": 3},
        {"sampler": SGHMC()},
        {"temperature": 0.5},
        {"fit_intercept": False},
        {"class_weight": "balanced"},
    ],
)
def test_a_file_of_other_parameters_is_refused(tmp_path, finished, change):
    path = tmp_path / "file.npz"
    path.write_bytes(finished)
    with pytest.raises(sk.CheckpointError, match="other data or parameters"):
        make("default", path).set_params(**change).fit(*data())
    assert path.read_bytes() == finished


@pytest.mark.parametrize("explicit", [{}, {"step_size": 0.1, "gradient": "minibatch"}])
def test_a_file_of_other_data_or_prior_is_refused(tmp_path, explicit):
    """With explicit step sizes nothing but the fingerprint of the model tells priors apart."""
    path = tmp_path / "file.npz"
    X, y = data()
    clf = make("default", path).set_params(n_draws=20, burn_in=0, **explicit)
    clf.fit(X, y)
    before = path.read_bytes()
    others = {
        "one value": (np.where(np.arange(X.size).reshape(X.shape) == 7, 0.0, X), y, None),
        "one label": (X, np.where(np.arange(len(y)) == 7, 1 - y, y), None),
        "weights": (X, y, np.full(len(y), 2.0)),
        "rows": (X[:-1], y[:-1], None),
    }
    for rows, labels, weight in others.values():
        with pytest.raises(sk.CheckpointError):
            clf.fit(rows, labels, sample_weight=weight)
    for change in ({"prior_scale": 0.1}, {"prior": "laplace"}):
        with pytest.raises(sk.CheckpointError):
            make("default", path).set_params(n_draws=20, burn_in=0, **explicit, **change).fit(X, y)
    assert path.read_bytes() == before


# functions ----------------------------------------------------------------------------------------


def normal_at(center):
    return lambda theta: -0.5 * ((theta - center) ** 2).sum(1)


class Shifted(Model):
    """Rows of numbers around theta, or around something else."""

    def __init__(self, shift):
        self.shapes = {"theta": (1,)}
        self.by = (lambda theta: theta + 1.0) if shift else (lambda theta: theta)

    def init(self, rng):
        return rng.standard_normal(1)

    def log_prior(self, theta):
        return -0.5 * theta.square().sum(1)

    def log_lik(self, theta, batch):
        return -0.5 * (batch.fields["x"] - self.by(theta)) ** 2


def draws_of(target, path, **more):
    """Draws of a target, all of whose parameters are the same."""
    some = {"n_draws": 20, "burn_in": 5, "step_size": 0.5, "random_state": 0, "n_parameters": 2}
    return sk.sample(target, checkpoint=path, **(some | more))


def test_a_file_of_another_log_density_is_refused(tmp_path):
    """Parameters are equal, and functions have no digest: what they return tells them apart."""
    path = tmp_path / "file.npz"
    draws_of(normal_at(0.0), path)
    draws_of(normal_at(0.0), path)  # another function object that does the same
    with pytest.raises(sk.CheckpointError, match="other functions"):
        draws_of(normal_at(100.0), path)
    with pytest.raises(sk.CheckpointError, match="other functions"):
        draws_of(normal_at(1e-3), path)
    with pytest.raises(sk.CheckpointError, match="belongs to a fit with other"):
        draws_of(normal_at(0.0), path, gradient_of_potential=lambda theta, rng: theta)


def test_a_file_of_another_model_of_the_same_class_is_refused(tmp_path):
    path = tmp_path / "file.npz"
    rows = Data({"x": torch.linspace(-1.0, 1.0, 7, dtype=torch.float64)}, 7)
    some = {"data": rows, "n_parameters": None}
    draws_of(Shifted(False), path, **some)
    draws_of(Shifted(False), path, **some)
    with pytest.raises(sk.CheckpointError, match="other functions"):
        draws_of(Shifted(True), path, **some)


def shifted_sampler(shift):
    class Shifted(Sampler):
        def euler(self, theta, state, step):
            g = step.gradient(theta) + shift
            theta.sub_(step.eta * g).add_(math.sqrt(2.0 * step.noise) * step.xi)

    return Shifted()


def closed_schedule(value):
    class Closed(Schedule):
        def values(self, steps, n_steps):
            return np.where(steps < n_steps // 2, 0.5, value)

        def check(self, name):
            pass

    return Closed()


@cases(
    "parameter, make_one, one, other",
    [
        ("sampler", shifted_sampler, 0.0, 100.0),
        ("sampler", shifted_sampler, 0.0, 1e-3),
        ("step_size", closed_schedule, 0.5, 1e-3),
        ("temperature", closed_schedule, 0.5, 0.4),
    ],
)
def test_a_file_of_another_sampler_or_schedule_of_the_same_class_is_refused(
    tmp_path, parameter, make_one, one, other
):
    """The draws of the first were returned for the second: the numbers are in their closures."""
    path = tmp_path / "file.npz"
    first = draws_of(normal_at(0.0), path, **{parameter: make_one(one)})
    again = draws_of(normal_at(0.0), path, **{parameter: make_one(one)})
    np.testing.assert_array_equal(first["theta"], again["theta"])
    with pytest.raises(sk.CheckpointError, match="other functions.*sampler, schedule"):
        draws_of(normal_at(0.0), path, **{parameter: make_one(other)})


def network(activation, width=3):
    return lambda n_features, n_outputs: nn.Sequential(
        nn.Linear(n_features, width), activation, nn.Linear(width, n_outputs)
    )


@cases(
    "one, other",
    [
        (network(nn.Tanh()), network(nn.ReLU())),
        (network(nn.Hardtanh(-1.0, 1.0)), network(nn.Hardtanh(-1.0, 0.9))),
    ],
)
def test_a_file_of_another_module_is_refused(tmp_path, one, other):
    path = tmp_path / "file.npz"
    some = {"n_draws": 4, "burn_in": 4, "thinning": 1, "step_size": 1e-3, "random_state": 0}
    clf = sk.BayesianModuleClassifier(one, checkpoint=path, **some).fit(*data())
    clf.fit(*data())
    with pytest.raises(sk.CheckpointError, match="other functions"):
        sk.BayesianModuleClassifier(other, checkpoint=path, **some).fit(*data())


@cases(
    "one, other",
    [
        (RandomFlip(), RandomCrop(1)),
        (lambda x, rng: x + 1.0, lambda x, rng: x + 2.0),
        (RandomCrop(1), RandomCrop(2)),
    ],
)
def test_a_file_of_another_augmentation_is_refused(tmp_path, one, other):
    path = tmp_path / "file.npz"
    X, y = np.random.default_rng(0).random((20, 1, 6, 6)), np.arange(20) % 2
    some = {"n_draws": 4, "burn_in": 4, "thinning": 1, "step_size": 1e-3, "random_state": 0}

    def fit(augment):
        sk.BayesianCNNClassifier(
            conv_channels=(2,), hidden_layer_sizes=(3,), augment=augment, checkpoint=path, **some
        ).fit(X, y)

    fit(one)
    fit(one)
    with pytest.raises(sk.CheckpointError, match="belongs to a fit with other"):
        fit(other)


def test_a_file_of_another_generator_is_refused(tmp_path):
    """Its state counts: a seed, and whether the generator has been used. With None any run goes."""
    path, X = tmp_path / "file.npz", data()

    def fit(seed):
        return make("default", path).set_params(random_state=seed, n_draws=20).fit(*X)

    fit(np.random.RandomState(0))
    fit(np.random.RandomState(0))
    used = np.random.RandomState(0)
    used.random_sample()
    for other in (np.random.RandomState(1), used, 0):
        with pytest.raises(sk.CheckpointError, match="other data or parameters"):
            fit(other)
    path.unlink()
    assert_same(fit(None), fit(None))


@cases("name", ["draws", "meta", "kept", "fingerprint"])
@cases("change", ["number", "shape", "type"])
def test_arrays_edited_in_a_valid_file_are_refused(tmp_path, finished, name, change):
    """Its checksums are right: the digest of the whole contents is not, shapes () included."""
    path = tmp_path / "file.npz"
    path.write_bytes(finished)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    values = arrays[name]
    if change == "number":
        values = values + 1.0 if values.dtype.kind in "fi" else np.array(str(values)[:-1])
    arrays[name] = {"number": values, "shape": values[None], "type": values.astype("U600")}[change]
    np.savez(path, **arrays)
    with pytest.raises(sk.CheckpointError, match="not those that were written"):
        make("default", path).fit(*data())


def test_no_flipped_bit_escapes(tmp_path, finished):
    """Compression and encryption bits, headers, names: each is a CheckpointError, or harmless."""
    path, rng = tmp_path / "file.npz", np.random.default_rng(0)
    whole = make("default").fit(*data())
    directory = finished.rindex(b"PK\x01\x02") - 2000
    for _ in range(100):
        content = bytearray(finished)
        # the archive's own records are where flips are not caught by checksums
        content[rng.integers(directory, len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        try:
            assert_same(make("default", path).fit(*data()), whole)
        except sk.CheckpointError as error:
            assert "can't be read and was left untouched" in str(error)
            assert path.read_bytes() == bytes(content)


@cases(
    "contents", [{"format": np.array([2, 2])}, {"format": np.array(2)}, {"format": np.array("two")}]
)
def test_archives_of_wrong_contents_are_refused(tmp_path, contents):
    path = tmp_path / "file.npz"
    np.savez(path, **contents)
    with pytest.raises(sk.CheckpointError, match="can't be read"):
        make("default", path).fit(*data())
    np.save(tmp_path / "file.npy", np.zeros(3))
    (tmp_path / "file.npy").replace(path)
    with pytest.raises(sk.CheckpointError, match="can't be read"):
        make("default", path).fit(*data())


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    path, real = tmp_path / "link.npz", tmp_path / "disk" / "real.npz"
    path.symlink_to(real)
    make("default", path).set_params(n_draws=20).fit(*data())
    assert path.is_symlink() and real.exists()
    assert [entry.name for entry in (tmp_path / "disk").iterdir()] == ["real.npz"]


def test_a_full_disk_does_not_end_a_fit(tmp_path, monkeypatch):
    """What is in memory is worth more than the file; the warning says what failed."""
    path = tmp_path / "file.npz"

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("numpy.savez", full)
        with pytest.warns(sk.SamplingWarning, match=r"could not be written .*No space left"):
            clf = make("default", path).fit(*data())
    assert_same(clf, make("default").fit(*data()))
    assert not list(tmp_path.iterdir())


@cases("name", ["", "x" * 300 + ".npz", "a\0b"])
def test_names_that_no_file_can_have_are_refused_before_the_fit(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint='.*' is not allowed"):
        make("default", name).fit(*data())
    assert not list(tmp_path.iterdir())


def test_a_warm_start_needs_its_own_file(tmp_path):
    """It has another start: the first fit's file must not pass for the second's."""
    path = tmp_path / "file.npz"
    clf = make("default", path).set_params(warm_start=True, burn_in=0).fit(*data())
    with pytest.raises(sk.CheckpointError):
        clf.fit(*data())
    clf.set_params(checkpoint=tmp_path / "second.npz").fit(*data())


def test_partial_fit_has_no_checkpoints(tmp_path):
    with pytest.raises(ValueError, match="checkpoint=.* not allowed in partial_fit"):
        make("default", tmp_path / "file.npz").partial_fit(*data())


def test_a_folder_that_does_not_exist_is_named_before_the_fit(tmp_path):
    with pytest.raises(ValueError, match="its folder does not exist"):
        make("default", tmp_path / "nowhere" / "file.npz").fit(*data())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@cases("name", ["/proc/file.npz", "/sys/file.npz"])
def test_folders_that_take_no_files_are_refused_before_the_fit(name):
    """They were reported after the whole fit."""
    with pytest.raises(ValueError, match=r"checkpoint='/.*' is not allowed: no file can be made"):
        make("default", name).fit(*data())


def test_links_into_folders_that_do_not_exist_are_refused_before_the_fit(tmp_path):
    path, ring = tmp_path / "link.npz", tmp_path / "ring.npz"
    path.symlink_to(tmp_path / "nowhere" / "file.npz")
    with pytest.raises(ValueError, match=r"checkpoint=.* its folder does not exist"):
        make("default", path).fit(*data())
    ring.symlink_to(ring)
    with pytest.raises(ValueError, match=r"checkpoint=.*ring.npz' is not allowed \("):
        make("default", ring).fit(*data())


@pytest.mark.parametrize(
    ("package", "its_names"),
    [
        ("skbayes_sgmcmc", inside("versions").__globals__),
        ("torch", vars(torch)),
        ("numpy", vars(np)),
    ],
)
def test_a_file_of_other_versions_says_which_it_needs(
    tmp_path, monkeypatch, replaced, finished, package, its_names
):
    """Its draws might go on as others, also where a release has changed the format or the digest.

    It is whole, so that nothing is said of damage.
    """
    path = tmp_path / "file.npz"
    path.write_bytes(finished)
    monkeypatch.setitem(its_names, "__version__", "0.0.1")
    replaced("FORMAT", 99)
    replaced("checkpoint.fingerprint", lambda arrays: "another")
    with pytest.raises(
        sk.CheckpointError, match=rf"versions \({package} .*, now 0\.0\.1\)"
    ) as caught:
        make("default", path).fit(*data())
    assert "finish it with the versions of the file, or delete it" in str(caught.value)
    assert "read" not in str(caught.value)
    assert path.read_bytes() == finished


# writing ------------------------------------------------------------------------------------------


def test_writes_are_atomic(tmp_path, monkeypatch):
    """A failure at any moment of a write leaves the old file, and no other."""
    path = tmp_path / "file.npz"
    write_atomically(path, {"a": np.arange(3)})
    before = path.read_bytes()
    for where in ("numpy.savez", "os.fsync", "os.replace"):
        with monkeypatch.context() as patch:

            def fail(*args, **kwargs):
                raise OSError("disk full")

            patch.setattr(where, fail)
            with pytest.raises(OSError, match="disk full"):
                write_atomically(path, {"a": np.arange(4)})
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


def test_where_files_have_no_locks_a_file_is_closed_before_it_moves(tmp_path, monkeypatch):
    """Windows moves no file that is open."""
    opened, moves = [], []
    open_, replace = os.fdopen, os.replace

    def fdopen(*args):
        opened.append(open_(*args))
        return opened[-1]

    def move(*paths):
        moves.append(opened[-1].closed)
        replace(*paths)

    monkeypatch.setattr(os, "fdopen", fdopen)
    monkeypatch.setattr(os, "replace", move)
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    write_atomically(tmp_path / "file.npz", {"a": np.arange(3)})
    assert moves == [True]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


def test_a_fit_leaves_no_temporary_files(tmp_path):
    make("default", tmp_path / "file.npz").fit(*data())
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


def writer(path, when):
    """A child that is killed in the midst of a write, or that writes until ``end`` is closed.

    Returns its number, a pipe that says that it writes, and ``end``, which a test that fails closes
    with its process.
    """
    (told, tell), (wait, end), child = os.pipe(), os.pipe(), os.fork()
    if child:
        os.close(tell)
        return child, told, end
    os.close(end)
    np.savez = {
        "now": lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL),
        "later": lambda *args, **kwargs: (os.write(tell, b"writes"), os.read(wait, 1)),
    }[when]
    try:
        write_atomically(path, {})
    finally:
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_the_next_write_removes_what_killed_processes_left(tmp_path):
    """And no other file: not one that a process still writes, nor one that looks similar."""
    path, other = tmp_path / "file[1].npz", tmp_path / "file[1].npz.mine.tmp"
    other.write_text("the user's")
    killed, *_ = writer(path, "now")
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == -signal.SIGKILL
    assert len(left := set(tmp_path.iterdir()) - {other}) == 1
    alive, told, end = writer(path, "later")
    assert os.read(told, 6) == b"writes"
    write_atomically(path, {"a": np.arange(3)})
    found = set(tmp_path.iterdir())
    assert left.isdisjoint(found) and found > {path, other} and len(found) == 3
    os.close(end)
    assert os.waitstatus_to_exitcode(os.waitpid(alive, 0)[1]) == 0
    assert set(tmp_path.iterdir()) == {path, other}


def test_divergence_does_not_overwrite_a_file(tmp_path):
    X, y = data()
    path = tmp_path / "file.npz"
    clf = make("default", path).set_params(step_size=1e17, prior_scale=1.0)
    with pytest.raises(sk.SamplingError):
        clf.fit(X * 1e140, y)
    assert not path.exists()
