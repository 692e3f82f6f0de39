"""What a release consists of agrees with itself: versions, the conda recipe, types for users."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import skbayes_sgmcmc

ROOT = Path(skbayes_sgmcmc.__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

#: names that conda-forge has for packages of PyPI
CONDA = {"torch": "pytorch"}


@pytest.fixture(scope="module")
def recipe():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / "conda-recipe" / "recipe.yaml").read_text())


def test_versions_agree(recipe):
    """The package's, the citation's and the recipe's; and that of a tag, where one is built."""
    version = skbayes_sgmcmc.__version__
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert recipe["context"]["version"] == version
    heading = "## [Unreleased]" if "dev" in version else f"## [{version}]"
    assert heading in (ROOT / "CHANGELOG.md").read_text()
    command = ["git", "-C", str(ROOT), "tag", "--points-at", "HEAD"]
    tags = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    assert {tag for tag in tags if re.match(r"v\d", tag)} <= {f"v{version}"}


def test_the_recipe_has_the_requirements_of_pyproject(recipe):
    project = PROJECT["project"]
    wanted = {f"python {project['requires-python']}"}
    for requirement in project["dependencies"]:
        name, bound = re.fullmatch(r"([\w-]+)(>=[\d.]+)", requirement).groups()
        wanted.add(f"{CONDA.get(name, name)} {bound}")
    assert set(recipe["requirements"]["run"]) == wanted
    (backend,) = PROJECT["build-system"]["requires"]
    assert backend.replace(">", " >") in recipe["requirements"]["host"]
    assert recipe["package"]["name"] == project["name"]
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["summary"] == project["description"]


PROGRAM = """
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, SamplingWarning, sample
from skbayes_sgmcmc.samplers import SGHMC
from skbayes_sgmcmc.schedules import Polynomial


def fit(X: NDArray[np.float64], y: NDArray[np.int64], path: Path) -> NDArray[np.float64]:
    clf = BayesianLogisticRegression(sampler=SGHMC(), step_size=Polynomial(1.0, 0.1)).fit(X, y)
    proba: NDArray[np.float64] = clf.predict_proba(X)
    reg = BayesianGLMRegressor(likelihood="poisson", checkpoint=path).fit(X, y)
    mean, sd = reg.predict(X, return_std=True)
    ratio: NDArray[np.float64] = mean[:, None] / sd[:, None]
    return proba + ratio


posterior = sample(lambda theta: -(theta**2).sum(1), 2, step_size=0.1)
number: float = float(posterior.mean("theta")[0])
"""


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory):
    """What the first run finds out about torch and others serves the next ones."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("", None),
        ("fit(1)", "Missing positional arguments"),
        ("BayesianGLMRegressor(likelihod='poisson')", "Unexpected keyword argument"),
        ("sample()", "Missing positional argument"),
        ("BayesianLogisticRegression(n_draws='many')", '"n_draws" to "BayesianLogisticRegression"'),
        ("SGHMC(gradient_variance=None)\nBayesianGLMRegressor(step_size=[0.1])", '"step_size" to'),
        ("a, b = BayesianGLMRegressor().predict([[1.0]], return_std=1.0)", "No overload variant"),
    ],
)
def test_types_of_a_small_program(wrong, error, tmp_path, mypy_cache):
    """``mypy --strict`` finds nothing in the program, and finds what is wrong in wrong ones."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM + wrong + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={mypy_cache}", "program.py"]
    environment = {"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode in (0, 1), run.stderr
    own = [line for line in run.stdout.splitlines() if line.startswith("program.py")]
    assert not own if error is None else any(error in line for line in own)
