"""Loading opens the file that it is given, and touches nothing else."""

from __future__ import annotations

import json
import pickle
import sys
import warnings

import joblib
import numpy as np
import pytest
import skops.io
import torch
from _process import output_of
from sklearn.base import clone

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._draws.storage import PROBE
from skbayes_sgmcmc.inspection import fgsm

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: max_steps bounds the descents to the starts, too
RUN = {"n_draws": 4, "burn_in": 2, "thinning": 1, "n_chains": 2, "max_steps": 6,
       "random_state": 0}  # fmt: skip
RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 4))
LABELS = np.arange(20) % 2

MODELS = {
    "logistic": (sk.BayesianLogisticRegression(**RUN), X, LABELS),
    "regressor": (sk.BayesianMLPRegressor(hidden_layer_sizes=3, **RUN), X, X[:, 0]),
    "sparse": (sk.SparseBayesianClassifier(**RUN), X, LABELS),
    "topics": (sk.DeepPoissonFactorAnalysis((2, 2), **RUN), RNG.poisson(2.0, (20, 4)), None),
    "on_disk": (sk.BayesianMLPRegressor(hidden_layer_sizes=3, **RUN), X, X[:, 0]),
}

#: prints what each code after it does to the file system, the network and processes; what imports
#: do is left out
WATCH = """
import json, os, sys

seen = []

def watch(event, arguments):
    if event.split(".")[0] not in ("open", "os", "shutil", "tempfile", "socket", "subprocess"):
        return
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return
        frame = frame.f_back
    if event in ("os.listdir", "os.scandir") or not isinstance(arguments[0], (str, bytes)):
        return  # names only; files that are open already
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    seen.append(["write" if writes else event, os.fsdecode(arguments[0])])

sys.addaudithook(watch)
found = []
for code in sys.argv[1:]:
    exec(code)
    found.append(seen)
    seen = []
print(json.dumps(found))
"""


#: what the first threadpoolctl does, by ctypes
FINDING_LIBRARIES = "/dev/null", "/sbin/ldconfig"


def touched(folder, *codes):
    """Events (kind, path) of each code, in one process of their own, without those of imports."""
    found = json.loads(output_of("-c", WATCH, *codes, cwd=folder).splitlines()[-1])
    return [[tuple(event) for event in events] for events in found]


def pickled(model, path):
    path.write_bytes(pickle.dumps(model))


LOADERS = {
    "joblib": "import joblib; load = joblib.load",
    "pickle": "import pickle; load = lambda name: pickle.load(open(name, 'rb'))",
    "skops": "import skops.io; from skbayes_sgmcmc import skops_trusted_types as types; "
    "load = lambda name: skops.io.load(name, trusted=types())",
}
DUMP = {"joblib": joblib.dump, "skops": skops.io.dump, "pickle": pickled}


FIT = """
import warnings
import numpy as np
from skbayes_sgmcmc import BayesianLogisticRegression
warnings.simplefilter("ignore")
X = np.arange(40.0).reshape(20, 2) % 7
fit = BayesianLogisticRegression(
    n_draws=4, burn_in=2, thinning=1, n_chains=2, random_state=0, checkpoint="fit.npz",
    compiled=False,  # compiled code is kept in files, too
).fit
fit(X, np.arange(20) % 2)
"""


#: a file that is written, read and removed
TOUCH = "open('a', 'w').close(); open('a').close(); os.remove('a')"


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A folder, and what one process did there: loads of each kind, ``TOUCH``, and two fits."""
    folder = tmp_path_factory.mktemp("watched").resolve()
    draws = folder / "draws"
    draws.mkdir()
    for name, (model, rows, targets) in MODELS.items():
        if name == "on_disk":
            model.set_params(storage=sk.Storage(dir=str(draws)))
        model.fit(rows, targets)
        for how, dump in DUMP.items():
            dump(model, folder / f"{name}.{how}")
    draws.rmdir()  # it is empty
    codes = [
        f"{load}; kept_{how} = [load(name + '.{how}') for name in {list(MODELS)}]"
        for how, load in LOADERS.items()
    ]
    *loads, touch, first, second = touched(folder, *codes, TOUCH, FIT, FIT)
    return folder, loads, touch, (first, second)


def test_loading_an_estimator_opens_its_file_only(watched):
    """Also if its draws were on disk: they are in the file, and their folder may be gone."""
    folder, loads, *_ = watched
    opened = [[("open", f"{name}.{how}") for name in MODELS] for how in LOADERS]
    assert loads == opened
    names = {name for events in opened for _, name in events}
    assert {path.name for path in folder.iterdir()} == names | {"fit.npz"}


def test_the_watch_sees_files_that_are_opened_written_and_removed(watched):
    """Otherwise the other tests could not fail."""
    assert watched[2] == [("write", "a"), ("open", "a"), ("os.remove", "a")]


def test_a_checkpoint_is_the_only_file_of_a_fit(watched):
    """A fit that finds its finished file reads it and writes it again, through one beside it.

    Before, an empty file shows that the folder takes files; on most systems it has no name.
    """
    folder, *_, fits = watched
    ours = (f"{folder}/fit.npz", f"{folder}/{PROBE}")
    system = (sys.prefix, sys.base_prefix, "/proc", "/sys")  # versions of packages, free memory
    for existed, events in zip((False, True), fits, strict=True):
        events = [(kind, str(folder / path)) for kind, path in events]
        events = [event for event in events if event[1] not in FINDING_LIBRARIES]
        own = [(kind, path) for kind, path in events if not path.startswith(system)]
        assert all(path == str(folder) or path.startswith(ours) for _, path in own), own
        assert not [path for kind, path in events if kind == "write" and (kind, path) not in own]
        assert (("open", f"{folder}/fit.npz") in own) == existed


@pytest.fixture
def torch_warns_always():
    torch.set_warn_always(True)  # not only once in a process
    yield
    torch.set_warn_always(False)


@pytest.mark.parametrize("kind", ["ordinal", "logistic", "student", "regressor"])
def test_draws_in_a_memory_map_predict_without_a_warning(tmp_path, torch_warns_always, kind):
    """They are read-only, of which torch would warn where it takes them for tensors."""
    linear = sk.BayesianLogisticRegression(**RUN)
    ordinal = sk.BayesianOrdinalClassifier(**RUN)
    fitted = {
        "ordinal": lambda: ordinal.fit(X, LABELS),
        "logistic": lambda: linear.fit(X, LABELS),
        "student": lambda: sk.DistilledClassifier(linear, n_epochs=1).fit(X, LABELS),
        "regressor": lambda: clone(MODELS["regressor"][0]).fit(X, X[:, 0]),
    }[kind]()
    joblib.dump(fitted, tmp_path / "file")
    loaded = joblib.load(tmp_path / "file", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
        sk.to_torch(loaded)
        if kind in ("ordinal", "logistic"):
            fgsm(loaded, X, LABELS, eps=0.1, clip=None)  # along gradients of all draws
