"""What the benchmarks share: options, data, scores, results tables and figures.

A benchmark begins with ``args = parse_args(__doc__)``, runs once for every seed in ``args.seeds``
(fewer and shorter with ``args.quick``), and ends with ``write_results``. A long one keeps the
numbers of each run (``finished``), so that it goes on where it was interrupted.

Data are files in the folder ``SKBAYES_DATA``, or come from OpenML. ``--quick`` needs neither: it
takes small stand-ins (``_stand_in.py``) for the files that are not there.
"""

import argparse
import contextlib
import copy
import datetime
import io
import itertools
import os
import platform
import re
import sys
import tempfile
import textwrap
import time
from importlib.metadata import version
from pathlib import Path

import _stand_in
import numpy as np
from _on_the_edge import ON_THE_EDGE
from _records import PACKAGES, Records, machine
from scipy.sparse import csr_matrix
from sklearn.datasets import fetch_openml

import skbayes_sgmcmc
from skbayes_sgmcmc import inspection

PARTS = ("train", "test")
REPOSITORY = Path(__file__).resolve().parents[2]
#: lengths of an estimator that is otherwise as it comes, where ``args.short``
SHORT_CHAINS = {"n_chains": 2, "burn_in": 50, "n_draws": 20, "thinning": 1}


# Options


def parse_args(
    description,
    seeds=10,
    quick_seeds=2,
    *,
    numbers=None,
    parts=None,
    runs=None,
    constants=None,
    more=None,
):
    """Options ``quick`` (bool), ``seeds`` (a list 0, 1, ...) and ``out`` (a folder, made here).

    ``quick`` may come from a number below its default, ``short`` from ``--quick`` alone.

    ``numbers`` are more options, by name: their defaults, in full and if quick. With less than the
    full one, the results are called quick too. ``parts`` are names of which ``--parts`` asks for
    some. ``runs`` is the name of the file of finished runs, and ``constants`` are the settings that
    all of them share. ``more(parser)`` adds options.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="seconds to minutes: does it run?")
    parser.add_argument("--seeds", type=int, help=f"number of seeds (default {seeds})")
    parser.add_argument(
        "--out", type=Path, help="folder of the results (default docs/results; quick: a temporary)"
    )
    for name, (default, _) in (numbers or {}).items():
        words = "all" if default is None else default
        parser.add_argument(f"--{name}", type=int, help=f"a number (default {words})")
    if parts is not None:
        parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    if runs is not None:
        words = "file of finished runs (default: in the folder runs, beside the results)"
        parser.add_argument("--runs", type=Path, help=words)
        words = "run nothing: write what has been run"
        parser.add_argument("--no-new", action="store_true", help=words)
        words = "use stored runs of other settings, versions or machines, too; the page says so"
        parser.add_argument("--mix-runs", action="store_true", help=words)
    if more is not None:
        more(parser)
    args = parser.parse_args()
    args.short = _stand_in.wanted = args.quick
    args.temporary = args.quick and args.out is None
    n_seeds = args.seeds or (quick_seeds if args.quick else seeds)
    args.seeds = list(range(n_seeds))
    defaults = {name.replace("-", "_"): pair for name, pair in (numbers or {}).items()}
    given = {name: value for name in defaults if (value := getattr(args, name)) is not None}
    vars(args).update({name: pair[args.quick] for name, pair in defaults.items()} | given)
    less = (defaults[name][0] is None or value < defaults[name][0] for name, value in given.items())
    args.quick |= any(less)
    if args.out is None:
        quick_folder = Path(tempfile.gettempdir()) / "skbayes-quick-results"
        args.out = quick_folder if args.quick else REPOSITORY / "docs" / "results"
    (args.out / "figures").mkdir(parents=True, exist_ok=True)
    args.records = None if runs is None else _open_records(args, runs, constants)
    return args


def _open_records(args, name, constants):
    if args.runs is None:
        args.runs = args.out / "runs" / f"{name}.jsonl"
        if args.temporary:  # of an earlier quick run, perhaps of another version
            args.runs.unlink(missing_ok=True)
    if args.no_new and not args.runs.exists():
        raise SystemExit(f"--no-new needs stored runs, and there is no {args.runs}.")
    device = getattr(args, "device", "cpu")
    constants = (constants or {}) | ({"short": True} if args.short else {})
    return Records(args.runs, constants, args.no_new, args.mix_runs, device)


def finished(args, name, run, **settings):
    """The numbers (a dict) of the run ``name``: those that are stored, else those of ``run()``.

    ``settings`` are what the numbers depend on besides the constants of ``parse_args``; a stored
    run with others is refused. "seconds" of processor time are added. None with ``--no-new`` if
    the run is not stored.
    """
    return args.records.finished(name, run, settings)


# Searches for the best step size


def best_step(scores):
    """The step with the lowest mean score; ``scores`` holds those of the seeds (NaN: diverged)."""
    return min(scores, key=lambda step: np.nan_to_num(np.mean(scores[step]), nan=np.inf))


def search_steps(measure, steps, limits, seeds, grow=True):
    """Scores of the seeds by step, in a grid that grows until its best step lies inside.

    ``measure(step, seed)`` is a score of which less is better (NaN: diverged), or None if it has
    not been run. All steps have the first seed; the best and its two neighbours have all of
    ``seeds``. The grid goes on by its own ratio from ``steps`` to ``limits`` on both sides.
    """
    scores, tried = {}, set()

    def take(step, some):
        for seed in some:
            if (step, seed) not in tried:
                tried.add((step, seed))
                score = measure(step, seed)
                if score is not None:
                    scores.setdefault(step, []).append(score)

    def neighbours(step):
        grid = sorted({step for step, _ in tried})
        # two steps at once, because grids like 1, 0.3, 0.1 have two ratios
        below, above = grid[1] * grid[0] / grid[2], grid[-2] * grid[-1] / grid[-3]
        grid = [float(f"{below:.3g}"), *grid, float(f"{above:.3g}")]
        at = grid.index(step)
        return [one for one in grid[at - 1 : at + 2] if limits[0] <= one <= limits[1]]

    for step in steps:
        take(step, seeds if not grow else seeds[:1])
    done = 0 if grow else len(tried)
    while scores and done != len(tried):
        done, best = len(tried), best_step(scores)
        for some in (seeds[:1], seeds):
            for step in neighbours(best):
                take(step, some)
            if best_step(scores) != best:
                break
    return dict(sorted(scores.items(), reverse=True))


def check_best_steps(page, searches):
    """Stop if a best step is on the edge of its grid and not in ``ON_THE_EDGE``.

    ``searches`` are scores by step, by name. Returns the reasons of those that are listed, for the
    page.
    """
    listed = {name: reason for (there, name), reason in ON_THE_EDGE.items() if there == page}
    on_edge = {name for name, scores in searches.items()
               if best_step(scores) in (min(scores), max(scores))}  # fmt: skip
    if on_edge != listed.keys():
        raise SystemExit(
            f"The best steps of {sorted(on_edge)} in {page} are the smallest or largest that were "
            f"tried, and ON_THE_EDGE lists {sorted(listed)}. Try more steps, or say why not there."
        )
    return " ".join(dict.fromkeys(listed[name] for name in searches if name in listed))


# Data: from the folder in SKBAYES_DATA, else from OpenML


def load_australian():
    """Australian credit approval: X (690, 14), not scaled, and y of 0 and 1."""
    with open_npz("australian") as data:
        if data is not None:
            return data["X"], data["y"].astype(int)
    table = _openml("australian", data_id=40981, as_frame=True)
    return table.data.astype(float).to_numpy(), table.target.astype(float).to_numpy(dtype=int)


def load_a9a():
    """Adult income: CSR matrices of 123 binary features and labels of 0 and 1.

    Returns X_train (32,561 rows), y_train, X_test (16,281 rows), y_test.
    """
    with open_npz("a9a") as data:
        if data is not None:
            return (*_a9a_part(data, "train"), *_a9a_part(data, "test"))
    table = _openml("a9a", data_id=1430, as_frame=False)
    X, y, n_train = csr_matrix(table.data), (table.target.astype(float) > 0).astype(int), 32561
    if X.shape != (48842, 123) or y[:n_train].sum() != 7841:
        raise SystemExit("OpenML's a9a is not the training rows and then the test rows of LIBSVM.")
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def load_mnist(name="mnist"):
    """MNIST: float32 X in [0, 1] of shape (60000, 784), y_train, X_test (10000, 784), y_test.

    ``name`` may be "fashion_mnist", for another set of this kind.
    """
    with open_npz(name) as data:
        if data is not None:
            X = [data[f"X_{part}"].reshape(-1, 784) / np.float32(255.0) for part in PARTS]
            y = [data[f"y_{part}"].astype(np.int64) for part in PARTS]
            return X[0], y[0], X[1], y[1]
    names = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST"}
    table = _openml(names[name], version=1, as_frame=False)
    X, y = (table.data / 255.0).astype(np.float32), table.target.astype(np.int64)
    return X[:60_000], y[:60_000], X[60_000:], y[60_000:]


def load_cifar10():
    """CIFAR-10: float32 X (50000, 3072) less the mean of its channels, y_train, X_test, y_test.

    Rows are images (3, 32, 32) in [0, 1] before that; those of both parts are shuffled.
    """
    with open_npz("cifar10_jpeg") as data:
        if data is not None:
            parts = [(_decoded(data, part), data[f"y_{part}"].astype(np.int64)) for part in PARTS]
        else:
            table = _openml("CIFAR_10", version=1, as_frame=False)
            X, y = table.data.astype(np.uint8), table.target.astype(np.int64)
            parts = [(X[:50_000], y[:50_000]), (X[50_000:], y[50_000:])]
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(y)) for _, y in parts]  # files may be sorted by class
    X = [rows.reshape(-1, 3, 1024) / np.float32(255.0) for rows, _ in parts]
    # in float32 the sums of so many numbers stop at 2^24
    center = X[0].mean(axis=(0, 2), keepdims=True, dtype=np.float64).astype(np.float32)
    X = [(rows - center).reshape(-1, 3072)[order] for rows, order in zip(X, orders, strict=True)]
    y = [labels[order] for (_, labels), order in zip(parts, orders, strict=True)]
    return X[0], y[0], X[1], y[1]


def load_documents(name):
    """Word counts of a corpus: CSR matrices of training and test documents, and the vocabulary.

    ``name`` is "20news", "nips" or "reuters", whose every tenth document is for the test. Rows are
    shuffled.
    """
    with open_npz(f"{name}_bow") as data:
        if data is None:
            raise SystemExit(f"Set SKBAYES_DATA to a folder that holds {name}_bow.npz.")
        vocabulary = data["vocab"]
        ends = ("_train", "_test") if "indptr_train" in data else ("",)
        parts = [_counts(data, end, len(vocabulary)) for end in ends]
    rng = np.random.default_rng(0)
    parts = [part[rng.permutation(part.shape[0])] for part in parts]
    if len(parts) == 1:
        test = np.arange(parts[0].shape[0]) % 10 == 0
        parts = [parts[0][~test], parts[0][test]]
    return parts[0], parts[1], vocabulary


def load_newsgroups():
    """20 Newsgroups: word counts and group of training and of test documents, and groups' names."""
    with open_npz("20news_bow") as data:
        if data is None:
            raise SystemExit("Set SKBAYES_DATA to a folder that holds 20news_bow.npz.")
        ends, n_words = ("_train", "_test"), len(data["vocab"])
        parts = [(_counts(data, end, n_words), data[f"y{end}"].astype(int)) for end in ends]
        return *parts, [str(name) for name in data["groups"]]


def _counts(data, end, n_words):
    counts, indices, indptr = (data[f"{field}{end}"] for field in ("counts", "indices", "indptr"))
    arrays = (counts.astype(float), indices.astype(np.int32), indptr.astype(np.int32))
    return csr_matrix(arrays, shape=(len(indptr) - 1, n_words))


def load_uci(name):
    """A UCI regression set: X, y, and rows of 20 splits, train (20, n) and test (20, m).

    The splits are those of Hernandez-Lobato & Adams (2015), which OpenML does not have.
    """
    with open_npz("uci_regression") as data:
        if data is None:
            raise SystemExit("Set SKBAYES_DATA to a folder that holds uci_regression.npz.")
        return tuple(data[f"{name}/{part}"] for part in ("X", "y", *PARTS))


def _decoded(data, part):
    """Images (n, 3, 32, 32) of the JPEG files of a part."""
    from PIL import Image

    files, offsets = data[f"bytes_{part}"], data[f"offsets_{part}"].astype(int)
    images = [np.asarray(Image.open(io.BytesIO(files[start:stop].tobytes())))
              for start, stop in itertools.pairwise(offsets)]  # fmt: skip
    return np.stack(images).transpose(0, 3, 1, 2)


def _a9a_part(data, part):
    indices, indptr = data[f"indices_{part}"], data[f"indptr_{part}"]
    shape = (len(indptr) - 1, int(data["n_features"]))
    ones = np.ones(len(indices))
    X = csr_matrix((ones, indices.astype(np.int32), indptr.astype(np.int32)), shape=shape)
    return X, (data[f"y_{part}"] > 0).astype(int)


@contextlib.contextmanager
def open_npz(name):
    """The open file of a data set in the folder SKBAYES_DATA; None without that variable.

    A quick run gets a stand-in where the file, or the variable, is missing.
    """
    folder = os.environ.get("SKBAYES_DATA")
    path = None if folder is None else Path(folder) / f"{name}.npz"
    if path is not None and path.exists():
        with np.load(path) as data:
            yield data
    elif _stand_in.wanted:
        yield _stand_in.arrays(name)
    elif path is not None:
        raise SystemExit(f"SKBAYES_DATA is set, but there is no {path}.")
    else:
        yield None


def _openml(name, **which):
    try:
        return fetch_openml(parser="auto", **which)
    except Exception as error:
        raise SystemExit(
            f"The data set {name} could not be fetched from OpenML ({error}). Where there is no "
            f"network, set SKBAYES_DATA to a folder that holds {name}.npz."
        ) from None


# Scores of probabilities (rows, classes) for labels 0, 1, ...


def error_rate(y, proba):
    return float(np.mean(proba.argmax(axis=1) != y))


def nll(y, proba):
    """Mean negative log-likelihood, in nats a row."""
    return float(-np.mean(np.log(np.maximum(proba[np.arange(len(y)), y], 1e-300))))


def expected_calibration_error(y, proba):
    """The package's, over 15 bins, for labels of which some may not occur in y."""
    return inspection.expected_calibration_error(y, proba, classes=np.arange(proba.shape[1]))


def some_draws(model, draws, chains=slice(None)):
    """A copy of a fitted estimator that predicts by some draws of some chains alone."""
    chosen, posterior = copy.copy(model), model.posterior_
    parts = {name: values[chains, draws] for name, values in posterior.draws.items()}
    weights = None if posterior.weights is None else posterior.weights[draws]
    chosen.posterior_ = skbayes_sgmcmc.PosteriorSamples(parts, weights)
    return chosen


# Results


def mean_sd(values, digits=3):
    """``mean ± sd`` over the seeds, for a table; a diverged seed (NaN) makes it say so."""
    values = np.asarray(values, dtype=float)
    good = values[np.isfinite(values)]
    if len(good) == 0:
        return "diverged"
    text = f"{good.mean():.{digits}f}"
    if len(good) > 1:
        text += f" ± {good.std(ddof=1):.{digits}f}"
    return text if len(good) == len(values) else f"{text} ({len(values) - len(good)} diverged)"


def markdown_table(header, rows):
    """A Markdown table; the first column is aligned to the left, the others to the right."""
    rule = [":--"] + ["--:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [header, rule, *rows])


def write_results(args, name, title, body, figures=(), spread=None):
    """Write ``args.out/name.md`` and print it.

    ``body`` is Markdown: what was done, the tables (``markdown_table``) with ours beside the
    published figures, what it shows. ``figures`` are (file, caption) pairs from ``save_figure``.
    ``spread`` says what ± is, if not the standard deviation over ``args.seeds``.
    """
    command = " ".join(["python", f"examples/benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    seeds = f"Seeds 0 to {args.seeds[-1]}" if len(args.seeds) > 1 else "Seed 0"
    spread = spread or f"{seeds}; ± is the standard deviation over them."
    records = args.records
    parts = [
        f"# {title}",
        f"`{command}`",
        f"{datetime.date.today()}, {_environment(args)} {spread}",
        "" if records is None else records.describe_differences(),
        "**Quick run: too short for conclusions.**" if args.quick else "",
        f"**Stand-in data** for {', '.join(_stand_in.used)}." if _stand_in.used else "",
        body.strip(),
        *(f"![{_alternative(caption)}](figures/{file})\n\n{caption}" for file, caption in figures),
    ]
    text = wrap_markdown("\n\n".join(part for part in parts if part)) + "\n"
    path = args.out / f"{name}.md"
    path.write_text(text, encoding="utf-8")
    print(text)
    print(f"Written to {path}")


def _alternative(caption):
    """A figure's alternative text: the beginning of its caption."""
    return textwrap.shorten(re.split(r"[.:;(]", caption)[0], 55, placeholder="...")


def wrap_markdown(text, width=100):
    """The text with paragraphs and list items filled to ``width``; tables and figures stay."""
    return "\n\n".join(_wrap_block(block, width) for block in re.split(r"\n{2,}", text))


def _unbroken(match):
    return match[0].replace(" ", "\N{NO-BREAK SPACE}")


def _wrap_block(block, width):
    if block.startswith(("|", "#", "![", "```")):
        return block
    items = re.split(r"\n(?=[*-] )", block)
    filled = []
    for item in items:
        indent = "  " if item.startswith(("* ", "- ")) else ""
        # what looks like the beginning of a list item does not begin a line
        words = re.sub(r"`[^`]{1,60}`", _unbroken, " ".join(item.split()))
        words = re.sub(r"(?<=\S) (?=(?:[-+*#]|\d+[.)]) )", "\N{NO-BREAK SPACE}", words)
        text = textwrap.fill(words, width, subsequent_indent=indent, break_long_words=False,
                             break_on_hyphens=False)  # fmt: skip
        filled.append(text.replace("\N{NO-BREAK SPACE}", " "))
    return "\n".join(filled)


def _environment(args):
    """Where the numbers are from: the stored runs, or else this process."""
    if args.records is not None and args.records.used:
        return args.records.describe()
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return (
        f"{machine()}, {time.process_time():.0f} s of processor time. "
        f"Python {platform.python_version()}, {versions}, "
        f"skbayes_sgmcmc {skbayes_sgmcmc.__version__}."
    )


def new_figure(n_panels, width=4.2, height=3.4, in_a_row=None):
    """A matplotlib figure with ``n_panels`` axes, all or ``in_a_row`` of them beside each other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    beside = in_a_row or n_panels
    rows = -(-n_panels // beside)
    size = (width * beside, height * rows)
    figure, axes = plt.subplots(rows, beside, figsize=size, layout="constrained", squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat[n_panels:]:
        ax.remove()
    return figure, axes.flat[:n_panels]


def save_figure(args, figure, name, caption):
    """Save ``args.out/figures/name.png``, small; returns (file, caption) for ``write_results``."""
    file = f"{name}.png"
    figure.savefig(
        args.out / "figures" / file,
        dpi=90,
        metadata={"Software": None},
        pil_kwargs={"optimize": True},
    )
    return file, caption
