"""The package's imports go one way, and importing it loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import skbayes_sgmcmc

ROOT = Path(skbayes_sgmcmc.__file__).parent

#: modules and folders from the ground up: each may import from lower lines only (and a folder's
#: files from each other, without cycles). A new module needs a place here
LAYERS = [
    {"_imports"},
    {"_arrays", "_modes", "_numba", "_sklearn"},
    {"_polynomials"},
    {"_kernels", "_exceptions", "_limits"},
    {"_table_columns", "_explain", "_searches"},
    {"_conversion"},
    {"_validation", "_callbacks", "_metric"},
    {"_pipelines", "_labels"},
    {"_export"},
    {"_draws", "_data", "schedules"},
    {"priors", "augmentation"},
    {"models", "samplers"},
    {"diagnostics"},
    {"_engine"},
    {"estimators", "inspection"},
    {"__init__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

#: lower layers that a unit still has no business with
STRANGERS = {
    "samplers": {"_draws", "_data", "schedules", "priors"},
    "models": {"_export"},
    "diagnostics": {"samplers", "schedules"},
    "estimators": {"samplers"},
}

#: what others may import of the engine, besides the settings, and where
ENTRANCES = {
    "_engine.problem": {"estimators._base"},
    "_engine.run": {"estimators._base"},
    "_engine.streams": {"estimators._base"},
    "_engine.log_joint": {"estimators._methods"},
    # predictions, and the features of last layers, choose their device as runs do
    "_engine.devices": {
        "estimators._base",
        "estimators._last_layer",
        "estimators._network",
        "estimators.distilled",
    },
    # collapsed Gibbs sampling, which has no chains of positions
    "_engine.lengths": {"estimators.lda"},
    "_engine.accelerators.__init__": {"estimators.lda"},
}


def unit(module):
    """A file's place in LAYERS: its folder, or itself at the top."""
    return module.split(".")[0]


def imports_of(path):
    """(imported module, whether at import time) of one file; type checking's are left out."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    found = []

    def visit(node, at_import):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.ImportFrom) and child.level:
                base = package[: len(package) + 1 - child.level]
                base += child.module.split(".") if child.module else []
                found.extend((m, at_import) for m in targets(base, child.names))
            elif isinstance(child, ast.Import | ast.ImportFrom):
                names = [a.name for a in child.names] if isinstance(child, ast.Import) else []
                names += [child.module] if isinstance(child, ast.ImportFrom) else []
                own = [n for n in names if n.split(".")[0] == "skbayes_sgmcmc"]
                assert not own, f"{path.name}: import {own} relatively, so that this test sees it"
            visit(child, at_import and not inside)

    visit(ast.parse(path.read_text()), True)
    return found


def targets(base, names):
    """Modules that ``from base import names`` loads."""
    for alias in names:
        at = ROOT.joinpath(*base, alias.name)
        if at.with_suffix(".py").exists() or at.is_dir():
            yield ".".join([*base, alias.name])
        elif not base:
            # the package's own name: only its version, which needs nothing
            assert alias.name == "__version__", f"import {alias.name} from its module"
        elif ROOT.joinpath(*base).is_dir():
            yield ".".join([*base, "__init__"])
        else:
            yield ".".join(base)


def modules():
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(ROOT.rglob("*.py"))
    }


@cache
def edges():
    return [
        (module, target, at_import)
        for module, path in modules().items()
        for target, at_import in imports_of(path)
    ]


def test_every_module_has_a_layer():
    units = {unit(module) for module in modules()}
    assert units <= set(RANK), f"say in LAYERS where {units - set(RANK)} belong"
    assert set(RANK) <= units, f"{set(RANK) - units} are gone"


def test_no_module_imports_a_layer_above_its_own():
    wrong = []
    for module, target, _ in edges():
        here, there = unit(module), unit(target)
        if here != there and (RANK[there] >= RANK[here] or there in STRANGERS.get(here, ())):
            wrong.append(f"{module} imports {target}")
    assert not wrong, wrong


def test_the_engine_has_few_entrances():
    """What is behind them can change without a look at estimators, figures and exports."""
    found = {}
    for module, target, _ in edges():
        if unit(target) == "_engine" != unit(module) and target != "_engine.settings":
            found.setdefault(target, set()).add(module)
    assert found == ENTRANCES


def test_no_cycles():
    """Also not between the files of a folder, nor by imports inside functions."""
    graph: dict[str, set[str]] = {}
    for module, target, _ in edges():
        graph.setdefault(module, set()).add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("name", ["BayesianLogisticRegression", "BayesianMLPRegressor"])
def test_the_way_from_fit_to_the_first_step_goes_down(name, monkeypatch):
    """No layer calls one above it, and no more functions hand the fit on than one can read."""
    from skbayes_sgmcmc._engine.chains import Chains

    class Arrived(Exception):
        pass

    def arrive(*_):
        raise Arrived

    monkeypatch.setattr(Chains, "_loop", arrive)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    with pytest.raises(Arrived) as found:
        getattr(skbayes_sgmcmc, name)(random_state=0).fit(X, y)
    files = [Path(entry.path) for entry in found.traceback]
    way = [path.relative_to(ROOT) for path in files if path.is_relative_to(ROOT)]
    ranks = [RANK[path.parts[0].removesuffix(".py")] for path in way]
    assert ranks == sorted(ranks, reverse=True), way
    assert len(way) <= 20 and len(set(way)) <= 8, way


HEAVY = ("torch", "matplotlib", "numba", "arviz", "arviz_stats", "scipy.stats", "xarray", "skops")

#: what is imported first, because scikit-learn's own imports do not count, and what is done then
SCRIPTS = [
    ("", "import skbayes_sgmcmc; dir(skbayes_sgmcmc); skbayes_sgmcmc.__version__"),
    (
        "import sklearn.base",
        "from skbayes_sgmcmc.schedules import Polynomial; Polynomial(first=0.1, last=0.01)",
    ),
    (
        "import sklearn.utils.validation, sklearn.utils.multiclass; from sklearn.base import clone",
        """
from skbayes_sgmcmc import BayesianLogisticRegression
estimator = clone(BayesianLogisticRegression(sampler="sghmc", prior="laplace"))
estimator.set_params(step_size=0.1).get_params()
repr(estimator), estimator._repr_html_(), estimator.__sklearn_tags__()
""",
    ),
    (
        "import sklearn.metrics",
        """
from skbayes_sgmcmc import inspection
inspection.expected_calibration_error([0, 1], [0.2, 0.9])
""",
    ),
]


def test_nothing_heavy_is_imported():
    """In a fresh interpreter: by the package, schedules, an unfitted estimator, figures."""
    code = "import sys\n"
    for first, script in SCRIPTS:
        code += f"{first}\nbefore = set(sys.modules)\nassert 'torch' not in before\n{script}\n"
        code += f"loaded = [m for m in {HEAVY!r} if m in sys.modules and m not in before]\n"
        code += f"assert not loaded, (loaded, {script!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent
    )
    assert done.returncode == 0, done.stderr


def test_public_names():
    """All names of __all__ exist, are listed by dir(), and unknown ones raise as usual."""
    for name in skbayes_sgmcmc.__all__:
        assert getattr(skbayes_sgmcmc, name) is not None
    assert set(skbayes_sgmcmc.__all__) <= set(dir(skbayes_sgmcmc))
    with pytest.raises(AttributeError, match="no attribute 'BayesianLogistics'"):
        skbayes_sgmcmc.BayesianLogistics  # noqa: B018
