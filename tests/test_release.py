"""What a release consists of agrees with itself: version, the conda recipe, types for users."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from _process import output_of
from packaging.version import Version

import skbayes_sgmcmc

ROOT = Path(skbayes_sgmcmc.__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

#: names that conda-forge has for packages of PyPI
CONDA = {"torch": "pytorch"}


@pytest.fixture(scope="module")
def recipe():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / "conda-recipe" / "recipe.yaml").read_text())


def git(folder, *arguments):
    """What git prints in a folder; "" if it fails."""
    command = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.org", *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def test_the_changelog_has_a_heading_for_this_commit():
    """That of its tag, where one is built; else what comes next."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    found = [tag for tag in git(ROOT, "tag", "--points-at", "HEAD").split() if tag.startswith("v")]
    headings = re.findall(r"^## \[(.*)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == (found[0][1:] if found else "Unreleased")


def test_no_other_file_names_the_version(recipe):
    """The citation has none, and the recipe is told."""
    assert "version" not in re.findall(r"^([\w-]+):", (ROOT / "CITATION.cff").read_text(), re.M)
    assert 'env.get("SKBAYES_VERSION"' in recipe["context"]["version"]
    told = recipe["build"]["script"]["env"]["SETUPTOOLS_SCM_PRETEND_VERSION"]
    assert told == recipe["package"]["version"] == "${{ version }}"
    assert "version" in PROJECT["project"]["dynamic"]


def test_the_package_has_the_version_that_was_installed(monkeypatch):
    """And a source tree that is not installed says so."""
    monkeypatch.setattr(metadata, "version", {"skbayes-sgmcmc": "0.7.1"}.__getitem__)
    assert skbayes_sgmcmc.__version__ == "0.7.1"

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert skbayes_sgmcmc.__version__ == "0+unknown"


def version_of(folder, **environment):
    """The version that a build of a folder would have."""
    pytest.importorskip("hatch_vcs")
    own = {name: value for name, value in os.environ.items() if "PRETEND_VERSION" not in name}
    return Version(
        output_of("-m", "hatchling", "version", cwd=folder, env=own | environment).strip()
    )


@pytest.fixture
def clone(tmp_path):
    """A repository of two commits with this project's way to its version."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "clone"
    folder.mkdir()
    shutil.copy(ROOT / "pyproject.toml", folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    for message in ("first", "second"):
        git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return folder


def test_versions_of_clones(clone, tmp_path):
    """Before a tag, those of a release to come; at a tag, its own; after it, those of the next."""

    def check(folder, expected, **environment):
        found = version_of(folder, **environment)
        assert Version(found.public) == Version(expected)
        assert git(clone, "rev-parse", "HEAD").startswith(found.local.removeprefix("g"))

    check(clone, "0.1.0.dev2")
    check(clone, "0.1.0.dev2", GIT_TEST_ASSUME_DIFFERENT_OWNER="1")  # as in containers
    git(clone, "tag", "v0.1.0")
    assert str(version_of(clone)) == "0.1.0"
    git(clone, "commit", "-q", "--allow-empty", "-m", "third")
    check(clone, "0.1.1.dev1")
    git(tmp_path, "clone", "-q", "--depth", "1", clone.as_uri(), "shallow")
    check(tmp_path / "shallow", "0.1.0.dev1")


def test_versions_without_git(clone):
    """Older than every release, unless the sdist or whoever builds it says more."""
    git(clone, "tag", "v0.1.0")
    oldest = Version("0.1.0.dev0")
    assert version_of(clone, PATH="/nowhere") == oldest
    shutil.rmtree(clone / ".git")
    assert version_of(clone) == oldest
    assert version_of(clone, SETUPTOOLS_SCM_PRETEND_VERSION="0.2.0") == Version("0.2.0")
    (clone / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: skbayes-sgmcmc\nVersion: 0.1.0\n")
    assert version_of(clone) == Version("0.1.0")


def test_the_recipe_has_the_requirements_of_pyproject(recipe):
    project = PROJECT["project"]
    wanted = {f"python {project['requires-python']}"}
    for requirement in project["dependencies"]:
        name, bound = re.fullmatch(r"([\w-]+)(>=[\d.]+)", requirement).groups()
        wanted.add(f"{CONDA.get(name, name)} {bound}")
    assert set(recipe["requirements"]["run"]) == wanted
    host = {each.replace(">", " >") for each in PROJECT["build-system"]["requires"]}
    assert host <= set(recipe["requirements"]["host"])
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
        ("BayesianGLMRegressor().fit([[1.0]], [1.0]).predct([[1.0]])", 'no attribute "predct"'),
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
