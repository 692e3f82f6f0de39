"""Examples and benchmarks: each of them runs, and records of different runs are not mixed.

The runs take minutes and have the mark ``benchmarks``.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from _cases import cases
from _process import output_of
from numpy.testing import assert_allclose
from scipy import stats

import skbayes_sgmcmc

FOLDER = Path(__file__).parents[1] / "examples" / "benchmarks"
RESULTS = FOLDER.parents[1] / "docs" / "results"
PAGES = sorted(path for path in RESULTS.glob("*.md") if path.name != "README.md")
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))
EXAMPLES = sorted(FOLDER.parent.glob("*.py"))
#: dependencies of the package, or of its extras, that no machine needs to have for gpu.py
MISSING_ON_GPUS = (
    "arviz", "arviz_base", "dask", "distributed", "onnx", "onnxscript", "pandas", "rich", "skops",
    "xarray",
)  # fmt: skip
#: seconds after which a quick run hangs; on a busy machine some take 300 and more
LIMIT = 900


@pytest.mark.benchmarks
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_quick_run_writes_its_page(script, tmp_path):
    """``--quick`` ends well and writes a page that says that it is quick, and its figures.

    ``SKBAYES_DATA`` is not used: the data are stand-ins, so that this is the same everywhere.
    """
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(FOLDER.parents[1])}
    environment.pop("SKBAYES_DATA", None)
    output_of(str(script), "--quick", "--out", str(tmp_path), env=environment, timeout=LIMIT)
    (page,) = tmp_path.glob("*.md")
    text = page.read_text()
    assert "**Quick run" in text
    assert "{" not in text.replace("{1, 2}", ""), "a placeholder is left"
    # every figure that the page shows is there
    for figure in (part.split(")")[0] for part in text.split("](figures/")[1:]):
        assert (tmp_path / "figures" / figure).stat().st_size > 0


@pytest.mark.benchmarks
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_ends_well(script, tmp_path):
    """Each in a folder of its own, without warnings of ours: it shows how things are meant."""
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(FOLDER.parents[1])}
    environment.pop("SKBAYES_DATA", None)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout
    assert "SamplingWarning" not in done.stderr


@pytest.mark.benchmarks
def test_the_gpu_benchmark_needs_no_more_than_it_says(tmp_path):
    """It runs from the checkout where the dependencies of the package's extras are missing.

    Machines with a GPU that is lent often have no network, and so only what is installed there.
    """
    program = f"""
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MISSING_ON_GPUS!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.path[:0] = [{str(FOLDER)!r}, {str(FOLDER.parents[1])!r}]
import _gpu_experiments
sys.argv = ["gpu.py", "--quick", "--stages", "card", "predictions", "--out", {str(tmp_path)!r},
            "--worker"]
runpy.run_path({str(FOLDER / "gpu.py")!r}, run_name="__main__")
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    output_of("-c", program, env=environment, cwd=tmp_path, timeout=LIMIT)
    assert not (tmp_path / "gpu-failures.txt").exists()
    stored = (tmp_path / "runs" / "gpu.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in stored] == ["card", "predictions-cpu"]


# searches for steps


@pytest.fixture
def common(monkeypatch):
    """The module _common of the benchmarks."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _common

    return _common


@pytest.mark.parametrize(("best", "tried"), [(0.1, 4), (0.004, 7), (3.0, 6)])
def test_a_search_goes_on_until_the_best_step_lies_inside(common, best, tried):
    """The grid grows by its own ratio; only the best step and its neighbours have all seeds."""
    made = []

    def measure(step, seed):
        made.append((step, seed))
        return np.nan if step > 5.0 else np.log(step / best) ** 2 + 0.01 * seed

    scores = common.search_steps(measure, (1.0, 0.3, 0.1, 0.03), (1e-4, 10.0), range(3))
    grid = sorted(scores)
    at = grid.index(common.best_step(scores))
    assert abs(np.log(grid[at] / best)) < 0.6
    assert len(made) == len(set(made)) == tried + 6 == len(grid) + 6
    assert [len(scores[step]) for step in grid[at - 1 : at + 2]] == [3, 3, 3]
    assert set(grid) <= {10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001}
    assert common.check_best_steps("a page", {"a method": scores}) == ""


def test_a_search_ends_at_its_limits_and_runs_nothing_with_no_new(common):
    grid, limits = (1.0, 0.3, 0.1), (0.02, 1.0)
    scores = common.search_steps(lambda step, seed: step, grid, limits, range(2))
    assert list(scores) == [1.0, 0.3, 0.1, 0.03]
    assert common.search_steps(lambda step, seed: None, grid, limits, range(2)) == {}
    quick = common.search_steps(lambda step, seed: step, (1.0,), limits, range(2), grow=False)
    assert quick == {1.0: [1.0, 1.0]}


def test_a_best_step_on_the_edge_is_refused_unless_it_is_listed(common, monkeypatch):
    """And what is listed has to be on the edge, so that the list does not outlive its reasons."""
    edge, inside = {0.1: [1.0], 0.3: [2.0], 1.0: [3.0]}, {0.1: [2.0], 0.3: [1.0], 1.0: [np.nan]}
    with pytest.raises(SystemExit, match=r"best steps of \['a'\] in page"):
        common.check_best_steps("page", {"a": edge, "b": inside})
    monkeypatch.setitem(common.ON_THE_EDGE, ("page", "a"), "Because.")
    assert common.check_best_steps("page", {"a": edge, "b": inside}) == "Because."
    with pytest.raises(SystemExit, match=r"lists \['a'\]"):
        common.check_best_steps("page", {"a": inside, "b": inside})


@cases("script", SCRIPTS)
def test_a_page_that_speaks_of_best_steps_has_searched_for_them(script):
    text = script.read_text()
    assert ("best step" not in text) or ("check_best_steps(" in text), script.name


def test_pages_say_why_a_best_step_is_on_the_edge(common):
    for (page, _), reason in common.ON_THE_EDGE.items():
        words = (RESULTS / f"{page}.md").read_text().split()
        assert " ".join(reason.split()) in " ".join(words)


# records of finished runs


@pytest.fixture
def records(monkeypatch):
    """The module _records of the benchmarks."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _records

    return _records


def refuse():
    raise AssertionError("a stored run was run again")


def test_a_stored_run_is_not_run_again(records, tmp_path):
    path = tmp_path / "runs" / "some.jsonl"
    first = records.Records(path, {"batch": 10})
    numbers = first.finished("a-0", lambda: {"score": 1.5}, {"method": "a", "seed": 0})
    assert numbers["score"] == 1.5
    assert numbers["seconds"] >= 0.0
    again = records.Records(path, {"batch": 10})
    assert again.finished("a-0", refuse, {"method": "a", "seed": 0}) == numbers
    assert again.stored("a-1", {"method": "a", "seed": 1}) is None
    assert not again.differences


def test_a_record_says_where_it_is_from(records, tmp_path):
    path = tmp_path / "some.jsonl"
    found = records.Records(path, {"sizes": (3, 2)})
    found.finished("a-0", lambda: {"score": 1.5}, {"seed": 0})
    (record,) = map(json.loads, path.read_text().splitlines())
    assert record["settings"] == {"sizes": [3, 2], "seed": 0}
    assert record["numbers"] == {"score": 1.5}
    for field in ("version", "machine", "date", "python", "torch", "numpy"):
        assert record[field], field
    assert "commit" in record
    assert f"version: {record['version']}" in found.describe()
    assert not found.describe_differences()


def test_commits_before_a_release_are_one_version(records, tmp_path, monkeypatch):
    """A commit takes the runs of another before the same release; the release does not."""
    path = tmp_path / "some.jsonl"
    for version in ("0.1.0.dev809+g48e3b292f", "0.1.0.dev810+gf5795de1b.d20261125"):
        monkeypatch.setitem(vars(skbayes_sgmcmc), "__version__", version)
        found = records.Records(path)
        found.finished("a-0", lambda: {"score": 1.5}, {"seed": 0})
        assert "version: 0.1.0.dev0" in found.describe()
    assert len(path.read_text().splitlines()) == 1
    monkeypatch.setitem(vars(skbayes_sgmcmc), "__version__", "0.1.0")
    with pytest.raises(SystemExit, match=r"version '0\.1\.0\.dev0' instead of '0\.1\.0'"):
        records.Records(path).stored("a-0", {"seed": 0})


@cases(
    "changed, words",
    [
        ({"settings": {"batch": 20, "seed": 0}}, "batch 20 instead of 10"),
        ({"settings": {"seed": 0}}, "batch not recorded"),
        ({"settings": {"batch": 10, "seed": 0, "old": 1}}, "old 1 instead of 'not recorded'"),
        ({"version": "0.0.1"}, "version '0.0.1' instead of"),
        ({"version": None, "machine": None}, "version, machine not recorded"),
        ({"machine": "an abacus"}, "machine 'an abacus' instead of"),
    ],
)
def test_a_record_that_differs_is_refused(records, tmp_path, changed, words):
    """The error says how it differs and what helps; ``mix`` takes it, and the page says so."""
    path = tmp_path / "some.jsonl"
    records.Records(path, {"batch": 10}).finished("a-0", lambda: {"score": 1.5}, {"seed": 0})
    record = json.loads(path.read_text()) | changed
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(SystemExit, match=words) as error:
        records.Records(path, {"batch": 10}).finished("a-0", refuse, {"seed": 0})
    assert "--runs" in str(error.value)
    assert "--mix-runs" in str(error.value)
    mixed = records.Records(path, {"batch": 10}, mix=True)
    assert mixed.finished("a-0", refuse, {"seed": 0})["score"] == 1.5
    assert "**Mixed runs**" in mixed.describe_differences()
    assert words in mixed.describe_differences()


def test_stored_runs_alone_are_compared_with_each_other(records, tmp_path):
    """With ``no_new`` they may be of another version or machine, but all of the same."""
    path = tmp_path / "some.jsonl"
    for seed in (0, 1):
        records.Records(path).finished(f"a-{seed}", lambda: {"score": 1.5}, {"seed": seed})
    lines = [json.loads(line) | {"version": "0.0.1"} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    old = records.Records(path, no_new=True)
    for seed in (0, 1):
        assert old.finished(f"a-{seed}", refuse, {"seed": seed})["score"] == 1.5
    assert old.finished("a-2", refuse, {"seed": 2}) is None
    lines[1]["version"] = "0.0.2"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    old = records.Records(path, no_new=True)
    old.finished("a-0", refuse, {"seed": 0})
    with pytest.raises(SystemExit, match=r"version '0\.0\.2' instead of '0\.0\.1'"):
        old.finished("a-1", refuse, {"seed": 1})


def test_a_killed_run_leaves_a_readable_file(records, tmp_path, capsys):
    """A last line that was cut short is left out and said; what is added later stands by itself."""
    path = tmp_path / "some.jsonl"
    for seed in (0, 1):
        records.Records(path).finished(f"a-{seed}", lambda: {"score": 1.5}, {"seed": seed})
    path.write_bytes(path.read_bytes()[:-20])
    found = records.Records(path)
    assert found.finished("a-0", refuse, {"seed": 0})["score"] == 1.5
    assert found.finished("a-1", lambda: {"score": 2.5}, {"seed": 1})["score"] == 2.5
    assert "line 2: not a whole record" in capsys.readouterr().out
    assert [record["name"] for record in records.read_records(path)] == ["a-0", "a-1"]


def test_runs_of_another_process_are_seen(records, tmp_path):
    path = tmp_path / "some.jsonl"
    one, other = records.Records(path), records.Records(path)
    assert one.stored("a-0", {"seed": 0}) is None
    other.finished("a-0", lambda: {"score": 1.5}, {"seed": 0})
    assert one.finished("a-0", refuse, {"seed": 0})["score"] == 1.5


@cases("path", sorted(RESULTS.glob("runs/*.jsonl")))
def test_stored_records_are_whole(path):
    """Every line has all fields, and no run is stored twice: a page would show one of the two."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    names = [record["name"] for record in records]
    assert len(set(names)) == len(names)
    for record in records:
        assert {"settings", "numbers", "seconds", "version", "commit", "machine", "date"} <= set(
            record
        )
        assert record["settings"]


# scores of tables


@pytest.fixture
def worker(monkeypatch):
    """The module that runs one fit of tabular.py."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _tabular_worker

    return _tabular_worker


def test_methods_with_one_seed_are_not_ranked_with_those_of_more(monkeypatch):
    """Else the means of all methods would be those of the one seed that they share."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from _tabular_page import enough

    rows = ["ours", "bde"]
    both = {("ours", "wine"): {0: {}, 1: {}}, ("bde", "wine"): {0: {}}}
    assert [enough(both, rows, key, "wine") for key in rows] == [True, False]
    one = {("ours", "wine"): {0: {}}, ("bde", "wine"): {0: {}}}
    assert [enough(one, rows, key, "wine") for key in rows] == [True, True]
    assert not enough(one, rows, "ours", "a9a")


def test_predictions_that_are_no_numbers_have_the_last_rank(monkeypatch):
    """Else the set would have no ranks at all, and the mean ranks would be those of no method."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from _tabular_page import mean_ranks

    nll = {"ours": (0.1, 0.2), "bde": (0.0, float("nan")), "mlp": (0.3, 0.3)}
    results = {(key, "wine"): {s: {"nll": v} for s, v in enumerate(pair)}
               for key, pair in nll.items()}  # fmt: skip
    assert mean_ranks(results, list(nll), ["wine"], "nll").tolist() == [1.0, 3.0, 2.0]


def test_scores_of_one_normal(worker):
    """Against the closed forms of N(m, s).

    The CRPS of 1,000 draws has a standard error of about 0.03 s a row and so of 0.0007 in the mean
    of 2,000 rows; the bound is four of them.
    """
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=2000), 0.5 + rng.random(2000)
    y = mean + sd * rng.normal(size=2000)
    found, z = worker.NormalMixture(mean, sd), (y - mean) / sd
    assert_allclose(found.log_density(y), stats.norm.logpdf(y, mean, sd))
    low, high = found.interval(0.9)
    assert_allclose(high, found.mean + stats.norm.ppf(0.95) * found.sd)
    assert_allclose(low, found.mean - stats.norm.ppf(0.95) * found.sd)
    exact = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert abs((worker.crps(found.draws(1000, rng), y) - exact).mean()) < 0.003


def test_scores_of_a_mixture(worker):
    """Two normals far apart: the density between them, and draws from each of them alike.

    The interval holds the middle, where the cdf is 1/2, and ends within the outer tails.
    """
    found = worker.NormalMixture([[-5.0], [5.0]], [[1.0], [1.0]])
    assert_allclose(found.log_density(np.array([5.0])), np.log(0.5 * stats.norm.pdf(0.0)))
    assert_allclose(found.mean, 0.0)
    assert_allclose(found.sd, np.sqrt(26.0))
    end = 5.0 + stats.norm.ppf(0.9)  # a twentieth of the mass is beyond it
    assert_allclose(found.interval(0.9), [[-end], [end]])
    for n in (1000, 2):
        assert (found.draws(n, np.random.default_rng(0)) > 0.0).mean() == 0.5


def test_frames_reach_another_process_as_they_are(monkeypatch, worker, tmp_path):
    """Categories, texts, booleans and gaps; the peers would see other tables else."""
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(FOLDER))
    import _mixed_data
    import _tabular_run

    X, y, _ = _mixed_data.load("made_regression")
    path = str(tmp_path / "data.npz")
    _tabular_run.store(path, X=X, y=y)
    pd.testing.assert_frame_equal(worker.part_of(path, "X"), X)
    assert (worker.part_of(path, "y") == y).all()


def test_levels_that_the_training_rows_lack_are_missing_for_peers(monkeypatch):
    pd = pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(FOLDER))
    import _mixed_peers

    train = pd.DataFrame({"a": ["x", "y", None], "b": [1.0, np.nan, 3.0], "c": [True, False, True]})
    columns = _mixed_peers.Columns(train)
    test = pd.DataFrame({"a": ["y", "z"], "b": [np.nan, 2.0], "c": [True, True]})
    assert columns.categories(test)["a"].tolist()[0] == "y"
    assert columns.categories(test)["a"].isna().tolist() == [False, True]
    assert columns.texts(test)["a"].tolist() == ["y", _mixed_peers.MISSING]
    filled = columns.without_gaps(test, _mixed_peers.gaps(train))
    assert filled["b"].tolist() == [2.0, 2.0]
    assert filled["b is missing"].tolist() == [1.0, 0.0]


# pages


@cases("page", PAGES)
def test_a_page_is_linked_and_its_figures_exist(page):
    """The index links every page, and lines of text have at most 100 characters."""
    assert f"({page.name})" in (RESULTS / "README.md").read_text()
    text = page.read_text()
    for figure in re.findall(r"\]\((figures/[^)]*)\)", text):
        assert (RESULTS / figure).exists(), figure
    long = [line for line in text.splitlines() if len(line) > 100 and not line.startswith("|")]
    assert not long


def coverage():
    """The rows of the page of coverage: what, state, where, remark."""
    lines = (RESULTS / "coverage.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [row for row in rows if row[1] not in ("state", ":--")]


def test_the_page_of_coverage_names_what_there_is():
    """Files, tests and pages exist; what is done is shown by a test or a page."""
    tests, package = Path(__file__).parent, Path(skbayes_sgmcmc.__file__).parent
    for name, state, where, remark in coverage():
        assert state in ("done", "differs", "missing"), name
        ends = re.findall(r"\]\(([\w.]+)\)", where)
        named = re.findall(r"`(test_\w+\.py)::(\w+)`", where)
        files = re.findall(r"`([\w/]+\.py)`", where)
        assert ends or named or state == "missing", name
        assert remark or state != "differs", name
        assert all((RESULTS / end).exists() for end in ends), name
        assert all((package / file).exists() for file in files), name
        for file, test in named:
            assert f"def {test}(" in (tests / file).read_text(), test


#: of each paper's authors, how many tables and figures it has
NUMBERED = {
    "Welling & Teh": {"fig": 6},
    "Li, Chen, Carlson & Carin": {"table": 4, "fig": 9},
    "Li, Chen, Fan & Carin": {"table": 2, "fig": 5},
    "Deng, Zhang, Liang & Lin": {"table": 5, "fig": 3},
}


def test_every_table_and_figure_of_the_papers_is_on_the_page_of_coverage():
    """By its number, as in "table 2 and fig. 4a" or "fig. 4 and 5"."""
    _, *parts = (RESULTS / "coverage.md").read_text().split("\n## ")
    for authors, counts in NUMBERED.items():
        (part,) = [part for part in parts if part.startswith(authors)]
        rows = " ".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| "))
        for kind, count in counts.items():
            found = re.findall(rf"{kind}\.? (\d+)\w?(?: and (\d+))?", rows)
            assert {int(n) for pair in found for n in pair if n} == set(range(1, count + 1)), (
                authors
            )


def test_every_experiment_is_on_the_page_of_coverage():
    linked = {end for row in coverage() for end in re.findall(r"\]\(([\w.]+)\)", row[2])}
    papers = {page.name for page in PAGES if re.match(r"[wpmd]\d_", page.name)}
    assert papers <= linked


def test_every_figure_is_on_a_page():
    pages = [*PAGES, *RESULTS.parent.glob("versus/*.md")]
    text = "".join(page.read_text() for page in pages)
    unused = [
        path.name for path in RESULTS.glob("figures/*") if f"figures/{path.name})" not in text
    ]
    assert not unused


def test_wrapped_text_keeps_its_words_and_blocks(monkeypatch):
    """Paragraphs and items are filled; a line does not begin with what would make it an item."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from _common import wrap_markdown

    words = "S - E is the mean of - 2. and * or `code with spaces` "
    text = f"# {words * 5}\n\n{words * 9}\n\n| {words * 5} |\n\n* {words * 3}\n* {words * 3}"
    blocks, wrapped = text.split("\n\n"), wrap_markdown(text, 40).split("\n\n")
    assert wrapped[0] == blocks[0]
    assert wrapped[2] == blocks[2]
    assert [block.split() for block in wrapped] == [block.split() for block in blocks]
    assert all(len(line) <= 40 for block in (wrapped[1], wrapped[3]) for line in block.split("\n"))
    assert not re.search(r"^([-*+#]|\d+[.)]) ", wrapped[1], re.MULTILINE)
    assert len(re.findall(r"^\* ", wrapped[3], re.MULTILINE)) == 2
    assert wrapped[1].count("`code with spaces`") == 9
