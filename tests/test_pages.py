"""The code of the site's pages runs from top to bottom, and its links have ends.

Blocks of a page run in one session, in which a warning of the package is an error. A block that
cannot run here has the reason on the line above it, ``<!-- not run: ... -->``; without one,
a block in another language than Python must be one of ``SHELLS``.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
import warnings
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from _cases import cases
from _links import SECTIONS
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayes_sgmcmc
from skbayes_sgmcmc._exceptions import LATER_CALL, NOT_ALLOWED

ROOT = Path(skbayes_sgmcmc.__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "skbayes_sgmcmc"

#: an optional reason, the language, the code
BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]*) -->\n+)?^```(\w*)\n(.*?)^```$", re.M | re.S)
#: commands for a shell: the README's two are run by .ci/run, which also runs its other blocks in
#: the environment of the first; the others are installations
SHELLS = {"bash", "console"}
#: pages with fits of default length, 3 min of one core together: the site's build runs them, too
LONG = {
    "README.md", "docs/conformal.md", "docs/glm.md", "docs/guide.md", "docs/ica.md",
    "docs/modules.md", "docs/networks.md", "docs/reliability.md", "docs/scale.md",
    "docs/sparse.md", "docs/survival.md", "docs/topics.md", "docs/zeros.md",
}  # fmt: skip
#: packages of extras, and others that examples could need
EXTRAS = {
    "fast": {"numba"},
    "plot": set(),  # matplotlib, which these tests need
    "arviz": {"arviz"},
    "parquet": {"pyarrow"},
    "onnx": {"onnx", "onnxscript"},
    "progress": {"rich"},
    "secure": {"skops"},
    "distributed": {"dask", "distributed"},
}
OPTIONAL = {"pandas", "polars", "h5py", "crepes", "mapie"}.union(*EXTRAS.values())
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*DOCS.glob("*.md"), *DOCS.glob("project/*.md"), *ROOT.glob("*.md")]
    if any(language == "python" for _, language, _ in BLOCK.findall(path.read_text()))
)


@pytest.fixture
def only_installed(monkeypatch, replaced):
    """Packages that the README's first command does not install can't be imported.

    Not by us, scikit-learn and the page: others have asked before whether a package is there.
    """
    readme = (ROOT / "README.md").read_text()
    extras, others = re.search(r'pip install .* "\.\[(.*?)\]"(.*?) &&', readme).groups()
    missing = OPTIONAL.difference(others.split(), *(EXTRAS[each] for each in extras.split(",")))
    import_ = builtins.__import__

    def limited(name, names=None, *others, **named):
        importer = str((names or {}).get("__name__")).partition(".")[0]
        ours = importer in ("a_page", "sklearn", "skbayes_sgmcmc")
        if ours and name.partition(".")[0] in missing:
            raise ImportError(name)
        return import_(name, names, *others, **named)

    monkeypatch.setattr(builtins, "__import__", limited)
    replaced("find_spec", lambda name: None if name in missing else importlib.util.find_spec(name))


def test_the_first_example_needs_what_the_first_command_installs(only_installed):
    """The other examples are run without optional packages, too, by the slow test of pages."""
    _, _, code = next(
        block for block in BLOCK.findall((ROOT / "README.md").read_text()) if block[1] == "python"
    )
    exec(code, {"__name__": "a_page"})


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in LONG else []) for page in PAGES]
)
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, request):
    """In one session, without a warning of ours."""
    monkeypatch.chdir(tmp_path)
    if page == "README.md":
        request.getfixturevalue("only_installed")
    names: dict[str, object] = {"__name__": "a_page"}
    text = (ROOT / page).read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error", skbayes_sgmcmc.SamplingWarning)
        for match in BLOCK.finditer(text):
            reason, language, code = match.groups()
            if language == "python" and not reason:
                line = text.count("\n", 0, match.start(3))
                exec(compile("\n" * line + code, ROOT / page, "exec"), names)
                plt.close("all")


@cases("path", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
def test_code_of_a_page_says_what_it_is(path):
    """No language that nothing runs, without a reason."""
    text = path.read_text()
    for reason, language, _ in BLOCK.findall(text):
        assert language in {"python", *SHELLS} or reason


@cases("path", [ROOT / "README.md", *DOCS.glob("*.md")])
def test_code_of_a_page_fits_its_column(path):
    """76 characters are what the site's column holds; longer lines would need scrolling."""
    blocks = [code for _, language, code in BLOCK.findall(path.read_text()) if language == "python"]
    assert [line for code in blocks for line in code.splitlines() if len(line) > 76] == []


def broken_rows(text):
    """Numbers of the lines that a table loses: rows without a header, or with other cells."""
    text = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.M | re.S)
    lines, lost = ["", *text.split("\n"), ""], []
    starts = [i for i, line in enumerate(lines) if line[:1] == "|" != lines[i - 1][:1]]
    for start in starts:
        end = next(i for i in range(start, len(lines)) if lines[i][:1] != "|")
        if not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+\s*", lines[start + 1]):
            lost += range(start, end)
            continue
        bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines[start:end]]
        lost += [start + i for i, count in enumerate(bars) if count != bars[1]]
    return lost


@cases("path", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
def test_tables_are_whole(path):
    """Every block of rows has a header and a line of dashes, and as many cells in each row."""
    assert broken_rows(path.read_text()) == []


#: the pages that users read from top to bottom: warnings.md is looked up, and the others are for
#: developers
FOR_USERS = [
    path
    for path in [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("versus/*.md")]
    if path.stem not in {"api", "design", "warnings"}
]


def test_a_page_for_users_answers_one_question():
    """In at most 2,000 words, code included: the history of defaults has pages of its own."""
    lengths = {path.name: len(path.read_text().split()) for path in FOR_USERS}
    assert {name: n for name, n in lengths.items() if n > 2000} == {}


#: a module in backticks, and "`name` in `module`, `module`"
MODULE = r"`([\w/]+\.py)`"
PLACED = re.compile(rf"`(\w+)` in ((?:{MODULE}(?:, )?)+)")


@cache
def modules_of(path):
    """The files of the project that a page means by this path, which may lack its first folders."""
    name = path.rpartition("/")[2]
    files = [each for folder in (PACKAGE, DOCS, ROOT / "tests") for each in folder.rglob(name)]
    return [file for file in files if file.as_posix().endswith(f"/{path}")]


def misplaced(text):
    """Modules of a page that do not exist, and names that are not defined where it says."""
    wrong = [path for path in re.findall(MODULE, text) if not modules_of(path)]
    for name, places, _ in PLACED.findall(text):
        for path in re.findall(MODULE, places):
            defined = rf"^\s*(?:def|class) {name}\b|^\s*{name}\b[^\n=(]*="
            if not any(re.search(defined, each.read_text(), re.M) for each in modules_of(path)):
                wrong.append(f"{name} in {path}")
    return wrong


@cases("path", [DOCS / "design.md", DOCS / "project/parts.md", ROOT / "CONTRIBUTING.md"])
def test_modules_and_names_are_where_a_page_says(path):
    assert misplaced(path.read_text()) == []


@pytest.mark.slow
def test_accuracies_that_the_readme_states():
    """With the protocol that it states, to one row in 178."""
    X, y = load_wine(return_X_y=True)
    clf = skbayes_sgmcmc.BayesianLogisticRegression(random_state=0)
    found = [cross_val_score(kind, X, y, cv=5).mean() for kind in
             (clf, make_pipeline(StandardScaler(), clf))]  # fmt: skip
    text = " ".join((ROOT / "README.md").read_text().split())
    stated = re.search(r"unscaled wine is (\.\d+), compared with (\.\d+) behind", text)
    np.testing.assert_allclose(found, [float(each) for each in stated.groups()], atol=1 / 178)


#: errors of sampling, whose text names its section of docs/warnings.md
OF_SAMPLING = {"SamplingError", "CheckpointError", "MemoryError"}
#: built-in errors that are raised without a section: Python asks for them, or they are caught
UNEXPLAINED = {
    (".", "AttributeError"),
    ("_engine/accelerators", "RuntimeError"),
    ("_engine", "ValueError"),
    ("_engine", "KeyboardInterrupt"),
    ("models", "np.linalg.LinAlgError"),
    ("samplers", "NotImplementedError"),
}


@cache
def calls_of(path):
    """(name, node) of the calls of functions in a file, by their plain names."""
    calls = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)]
    return [(getattr(node.func, "id", "") or ast.unparse(node.func), node) for node in calls]


def test_every_warning_and_error_of_sampling_names_its_section():
    """None is issued but by ``warn``, which adds a section, and errors call ``more``."""
    for path in PACKAGE.rglob("*.py"):
        for name, node in calls_of(path):
            assert name != "warnings.warn" or path.name == "_exceptions.py", path
            if name in OF_SAMPLING:
                assert any(getattr(each.func, "id", "") == "more"
                           for each in ast.walk(node)
                           if isinstance(each, ast.Call)), f"{path}:{node.lineno}"  # fmt: skip


def test_every_other_error_has_a_note_of_its_section():
    """None of the built-in ones is raised or made but by ``not_allowed`` or in ``explained``."""
    bare, n_explained = set(), 0
    for path in PACKAGE.rglob("*.py"):
        inside = {id(node.args[0]) for name, node in calls_of(path) if name == "explained"}
        n_explained += sum(name in ("explained", "not_allowed") for name, _ in calls_of(path))
        for name, node in calls_of(path):
            built_in = getattr(builtins, name, None)
            error = isinstance(built_in, type) and issubclass(built_in, BaseException)
            error |= name.endswith("Error") and "." in name  # NumPy's
            if error and id(node) not in inside and path.name != "_exceptions.py":
                bare.add((path.relative_to(PACKAGE).parent.as_posix(), name))
    assert bare == UNEXPLAINED
    assert n_explained >= 250  # this test's own eyes


#: place of the section among the arguments of what names one
SECTION_AT = {"warn": 1, "more": 0, "not_allowed": 1, "explained": 1, "explained_errors": 0}


def test_messages_name_sections_that_exist():
    """Every warning and error; each section is named by some message."""
    named = []
    for path in PACKAGE.rglob("*.py"):
        for name, node in calls_of(path):
            sections = node.args[SECTION_AT[name] :][:1] if name in SECTION_AT else []
            named += [each.value for each in sections if isinstance(each, ast.Constant)]
    assert len(named) >= 70
    general = {"warnings-and-errors", NOT_ALLOWED, LATER_CALL}  # the title; names of sections
    assert set(named) | general == SECTIONS
