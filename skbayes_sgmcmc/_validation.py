"""Checks of parameters. Every error names the parameter, its value and the allowed values."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import utils
from sklearn.utils import multiclass, validation

from ._arrays import Array
from ._conversion import GIVE_NUMBERS, NAME_CATEGORIES, explained_conversion
from ._exceptions import explained_errors, not_allowed, size_not_allowed
from ._limits import LIMITS
from ._table_columns import as_table, of_tensor

# other checks of scikit-learn's; their errors get the note of where they are explained, too
check_is_fitted = explained_errors("an-estimator-is-not-fitted")(validation.check_is_fitted)
check_X_y = explained_errors()(utils.check_X_y)
check_classification_targets = explained_errors()(multiclass.check_classification_targets)
check_consistent_length = explained_errors()(utils.check_consistent_length)
check_feature_names_in = explained_errors()(validation._check_feature_names_in)
column_or_1d = explained_errors()(utils.column_or_1d)
compute_class_weight = explained_errors()(utils.compute_class_weight)

#: types that Python or numpy count as numbers, and that no parameter takes for one
NO_NUMBERS = bool, np.bool_, np.timedelta64


@dataclass(frozen=True, slots=True)
class Bounds:
    """What numbers may be: beyond, floating-point numbers or machines do not reach."""

    #: scales and rates of priors: their squares are numbers in float32, and differ from zero
    smallest_scale: float = 1e-15
    largest_scale: float = 1e15
    #: sums of larger weights lose whole rows to rounding; below the other limit all of the data
    #: counts for nothing beside the prior, and sums of weights in float32 may be zero
    smallest_weight: float = 1e-15
    largest_weight: float = 1e15
    #: magnitudes of data beyond these limits have squares that overflow, or are zero
    smallest_data: float = 1e-150
    largest_data: float = 1e150
    #: step sizes and temperatures: their products and quotients are still numbers in float32
    smallest_step: float = 1e-30
    largest_step: float = 1e18
    #: steps that no run ends with; their numbers must stay int64
    steps: int = 10**12
    #: chains, units, topics, sweeps and passes that no fit ends with
    count: int = 10**6
    #: the numbers of jobs must stay int32
    jobs: int = 2**31 - 1
    #: whole numbers up to this one are exact in float32: codes, ids, sums of counts
    whole: int = 2**24


BOUNDS = Bounds()


def is_real(value: Any) -> bool:
    """Whether a value is a real number, which booleans and durations are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, NO_NUMBERS)


def brief(value: Any) -> str:
    """A value as messages show it, on one line: that of a large network has hundreds of lines."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def check_real(
    name: str,
    value: Any,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    closed: str = "neither",
) -> float:
    """Return ``value`` as a float, after checking that it lies between ``low`` and ``high``.

    ``closed`` says which ends of the interval are allowed: "neither", "left", "right" or "both".
    """
    allowed = f"a number in {_interval(low, high, closed)}"
    if not is_real(value):
        raise not_allowed(f"{name}={value!r} is not allowed: give {allowed}.")
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = np.inf if value > 0 else -np.inf
    above = number >= low if closed in ("left", "both") else number > low
    below = number <= high if closed in ("right", "both") else number < high
    if not (above and below):
        raise not_allowed(f"{name}={value!r} is not allowed: give {allowed}.")
    return number


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, which booleans are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, NO_NUMBERS)


def check_int(name: str, value: Any, *, low: int = 1, high: float = np.inf) -> int:
    """Return ``value`` as an int, after checking that it lies in [low, high]."""
    if not is_whole(value) or not low <= value <= high:
        limit = f"at least {low}" + (f" and at most {high}" if np.isfinite(high) else "")
        raise not_allowed(f"{name}={value!r} is not allowed: give a whole number, {limit}.")
    return int(value)


def check_numbers(name: str, values: Any, allowed: str) -> None:
    """Refuse what is not an array of finite numbers; ``allowed`` says what else may be given."""
    found = _floats(values)
    if found is None or not np.isfinite(found).all():
        raise not_allowed(f"{name}={values!r} is not allowed: give {allowed} of finite numbers.")


def _floats(values: Any) -> Array | None:
    """An array of floats, or None if some values are no real numbers."""
    try:
        given = np.asarray(values)
        # dates, Decimal, text and booleans become floats, too, but are no numbers
        real = given.dtype.kind in "fiu" or all(map(is_real, given.flat))
        return np.asarray(given, dtype=float) if real else None
    except (TypeError, ValueError, OverflowError):
        return None


def check_positions(name: str, values: Any) -> None:
    """Refuse numbers that no chain comes back from."""
    largest = float(np.abs(np.asarray(values, dtype=float)).max(initial=0.0))
    if largest > BOUNDS.largest_scale:
        raise not_allowed(
            f"{name}={values!r} is not allowed: give positions between "
            f"{-BOUNDS.largest_scale:g} and {BOUNDS.largest_scale:g}; the largest "
            f"magnitude is {largest:.3g}."
        )


def is_auto(value: Any) -> bool:
    """Whether a parameter is the string "auto"."""
    return isinstance(value, str) and value == "auto"


def check_unless(
    word: str | None, check: Callable[..., Any], name: str, value: Any, **options: Any
) -> None:
    """Check a value unless it is this word or None, which errors then name, too."""
    if value is word or (isinstance(value, str) and value == word):
        return
    try:
        check(name, value, **options)
    except ValueError as error:
        if str(error).startswith(f"{name}="):  # and not about a part of the value
            error.args = (str(error).replace(": give ", f": give {word!r} or ", 1),)
        raise


def central(coverage: Any) -> tuple[float, float]:
    """Probabilities below the ends of a central interval, after checking its own."""
    check_real("coverage", coverage, low=0.0, high=1.0)
    return 0.5 - coverage / 2.0, 0.5 + coverage / 2.0


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return ``value``, after checking that it is one of ``choices``."""
    options = list(choices)
    if isinstance(value, np.generic):  # np.str_ and np.bool_, as grids made of arrays have them
        value = value.item()
    # types are compared first: numpy arrays and estimators must not be compared element by element
    if not any(type(value) is type(option) and value == option for option in options):
        listed = ", ".join(repr(option) for option in options)
        raise not_allowed(f"{name}={value!r} is not allowed: give one of {listed}.")
    return value


def check_array(values: Any, **options: Any) -> Any:
    """scikit-learn's function, with errors that name what can't be converted to numbers.

    It warns of infinities of both signs before it refuses them; this does not.
    """
    name = options.get("input_name") or "X"
    with np.errstate(invalid="ignore"), explained_conversion(name, values):
        return utils.check_array(of_tensor(values), **options)


def validate_data(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """The same for scikit-learn's function of this name."""
    X = as_table(X)
    if options.get("skip_check_array"):  # which looks at the columns' names and number
        with explained_errors():
            return validation.validate_data(estimator, X, *y, **options)
    of_text = NAME_CATEGORIES if hasattr(estimator, "categorical_features") else None
    if not options.get("reset", True):
        of_text = GIVE_NUMBERS
    with np.errstate(invalid="ignore"), explained_conversion("X", X, of_text=of_text):
        return validation.validate_data(estimator, X, *y, **options)


def check_random_state(random_state: Any) -> np.random.RandomState:
    """Return the generator for an int, a RandomState, or None (numpy's global generator).

    A ``numpy.random.Generator``, which scikit-learn does not accept either, is refused.
    """
    given = random_state
    if given is None or isinstance(given, np.random.RandomState):
        return utils.check_random_state(given)
    if not is_whole(given) or not 0 <= given < 2**32:
        raise not_allowed(
            f"random_state={given!r} is not allowed: give a whole number, at least 0 and below "
            "2**32, a numpy.random.RandomState, or None."
        )
    return utils.check_random_state(given)


def check_sample_weight(sample_weight: Any, n_rows: int) -> NDArray[np.float64]:
    """Return ``sample_weight`` as an array (n_rows,) of finite numbers >= 0; ones for None.

    As in scikit-learn, a number is the weight of each row.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    if is_real(sample_weight):
        sample_weight = np.full(n_rows, sample_weight)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (n_rows,):
        raise not_allowed(
            f"sample_weight of shape {weight.shape} is not allowed: X has {n_rows} rows; give an "
            f"array of shape ({n_rows},)."
        )
    if (weight < 0.0).any():
        raise not_allowed(
            f"sample_weight has a negative value, {weight.min():g}: give nonnegative numbers."
        )
    check_some_weight(weight)
    if weight.max(initial=0.0) < BOUNDS.smallest_weight:
        raise size_not_allowed(
            f"sample_weight has no value of {BOUNDS.smallest_weight:g} or more: multiply the "
            "weights by a constant. They are exponents of the likelihood."
        )
    if weight.max(initial=0.0) > BOUNDS.largest_weight:
        raise size_not_allowed(
            f"sample_weight has a value of {weight.max():g}, more than {BOUNDS.largest_weight:g}: "
            "divide the weights by a constant. They are exponents of the likelihood."
        )
    # torch warns of columns of pandas, which are to read only, and refuses reversed arrays
    return np.require(weight, requirements=["C", "W"])


def check_some_weight(weight: Array) -> None:
    """Refuse weights of rows that are all zero."""
    if not weight.any():
        raise not_allowed("sample_weight is zero for every row: give some rows a positive weight.")


def check_scale(name: str, value: Any) -> float:
    """Return a prior's scale, or another positive number of such a size, as a float."""
    low, high = BOUNDS.smallest_scale, BOUNDS.largest_scale
    return check_real(name, value, low=low, high=high, closed="both")


def check_scale_pair(name: str, pair: Any) -> None:
    """Refuse what is no pair of such numbers."""
    try:
        first, second = pair
    except (TypeError, ValueError):
        raise not_allowed(
            f"{name}={pair!r} is not allowed: give a pair of positive numbers."
        ) from None
    check_scale(f"{name}[0]", first)
    check_scale(f"{name}[1]", second)


def check_ratio(name: str, value: float, whose: str, unit: float) -> None:
    """Refuse a number that is no scale in units of the data; ``whose`` says what ``unit`` is."""
    if not BOUNDS.smallest_scale <= float(value) / unit <= BOUNDS.largest_scale:
        raise size_not_allowed(
            f"{name}={value!r} is not allowed: it is {float(value) / unit:.3g} times {whose}, "
            f"{unit:.3g}; give a number of {BOUNDS.smallest_scale:g} to {BOUNDS.largest_scale:g} "
            "times as much."
        )


def check_scales(name: str, values: Any, allowed: str) -> Any:
    """Return ``values`` if it is a sequence of scales of priors; ``allowed`` says what may be."""
    found = _floats(values)
    numbers = np.empty(0) if found is None else found
    good = (numbers >= BOUNDS.smallest_scale) & (numbers <= BOUNDS.largest_scale)
    if numbers.ndim != 1 or numbers.size == 0 or not good.all():
        raise not_allowed(
            f"{name}={values!r} is not allowed: give {allowed} "
            f"(numbers between {BOUNDS.smallest_scale:g} and {BOUNDS.largest_scale:g})."
        )
    return values


def class_weights(given: Any, classes: Array, codes: Array, sample_weight: Any) -> Array:
    """The weight of each class, by the parameter ``class_weight`` and the codes of the rows.

    scikit-learn's function would take labels for whole numbers wherever they convert to them.
    """
    places = np.arange(len(classes))
    if not isinstance(given, dict):
        of_rows = codes if sample_weight is None else codes[np.asarray(sample_weight) > 0.0]
        missing = np.setdiff1d(places, of_rows)
        if len(missing):
            raise not_allowed(
                f"class_weight={given!r} is not allowed here: class "
                f"{classes.tolist()[missing[0]]!r} has no row of positive weight. Give it one, "
                "leave its rows out of fit, or give class_weight as a dict."
            )
        return np.asarray(
            compute_class_weight(given, classes=places, y=codes, sample_weight=sample_weight)
        )
    known = [label for label in classes if label in given]
    if len(known) < min(len(classes), len(given)):
        raise not_allowed(
            f"class_weight={given!r} is not allowed: give weights of the classes "
            f"{classes.tolist()}, as labels of y."
        )
    weights = np.array([given.get(label, 1.0) for label in classes], dtype=np.float64)
    good = (weights >= BOUNDS.smallest_weight) & (weights <= BOUNDS.largest_weight)
    good |= weights == 0.0
    if not good.all():
        raise not_allowed(
            f"class_weight is not allowed: class {classes[~good].tolist()[0]!r} has the weight "
            f"{weights[~good][0]:g}; give 0, or numbers between {BOUNDS.smallest_weight:g} and "
            f"{BOUNDS.largest_weight:g}."
        )
    return weights


def check_magnitude(name: str, values: Any) -> None:
    """Refuse data (an array or a sparse matrix) if sums of its squares can't be computed.

    Every column is looked at, because estimators divide each of them by its standard deviation.
    """
    held = values.data if hasattr(values, "indptr") else np.asarray(values)
    # single precision and whole numbers end before; text is refused where it is converted
    if held.dtype.kind != "f" or held.dtype.itemsize <= 4:
        return
    of_columns = _column_magnitudes(values)
    largest = float(of_columns.max(initial=0.0))
    limits = f"between {BOUNDS.smallest_data:g} and {BOUNDS.largest_data:g}"
    if largest > BOUNDS.largest_data or 0.0 < largest < BOUNDS.smallest_data:
        verb = "divide" if largest > 1.0 else "multiply"
        raise size_not_allowed(
            f"{name} is not allowed: its largest magnitude is {largest:.3g}, and squares of such "
            f"numbers can't be represented; {verb} it by a constant, so that it lies {limits}."
        )
    small = np.flatnonzero((of_columns > 0.0) & (of_columns < BOUNDS.smallest_data))
    if len(small):
        raise size_not_allowed(
            f"{name} is not allowed: the largest magnitude of its column {small[0]} is "
            f"{of_columns[small[0]]:.3g}, and squares of such numbers can't be represented; "
            f"multiply this column by a constant, so that it lies {limits}, or leave it out."
        )


def _column_magnitudes(values: Any) -> NDArray[np.float64]:
    """The largest magnitude of each column of an array or a CSR matrix."""
    if hasattr(values, "indptr"):
        found = np.zeros(values.shape[1])
        for some in LIMITS.blocks(len(values.data), 1):  # there may be none
            magnitudes = np.abs(values.data[some].astype(np.float64))
            np.maximum.at(found, values.indices[some], magnitudes)
        return found
    columns = np.asarray(values)
    columns = columns.reshape(len(columns), -1) if columns.ndim != 2 else columns
    found = np.zeros(columns.shape[1])
    for some in LIMITS.blocks(*columns.shape):
        block = columns[some]  # it is read once for both ends
        found = np.maximum(found, np.maximum(block.max(axis=0), -block.min(axis=0)))
    return found


def check_predictions(values: Array, X: Any) -> Array:
    """Return predictions for rows X, which must be finite."""
    if np.isfinite(values).all():
        return values
    largest = "large"
    if not hasattr(X, "blocks"):  # of rows in memory
        held = X.data if hasattr(X, "indptr") else np.asarray(X)
        largest = f"{np.abs(held).max(initial=0.0):.3g}"
    raise size_not_allowed(
        f"X is not allowed: its largest magnitude is {largest}, with "
        "which predictions leave the finite numbers; give rows in the units of those of fit, or "
        "fit with dtype='float64'."
    )


def check_densities(values: Array, refused: Array, y: Array, first: int = 0) -> None:
    """Raise ``ValueError`` for log densities (rows,) that are not finite although they should be.

    ``refused`` are the rows with possible targets y (rows, targets), but beyond what numbers
    can express; ``first`` is the number of the first row.
    """
    bad = np.flatnonzero(~np.isfinite(values) & refused)
    if len(bad):
        targets = ", ".join(f"{value:.3g}" for value in y[bad[0]])
        raise size_not_allowed(
            f"y is not allowed: the target {targets} of row {first + bad[0]} is so far from its "
            "predictions that its log density leaves the finite numbers; give y, and the rows X, "
            "in the units of those of fit."
        )


def check_sizes(name: str, sizes: Any, *, high: float = np.inf) -> tuple[int, ...]:
    """Return one or more positive whole numbers as a tuple."""
    try:
        single = np.ndim(sizes) == 0
    except ValueError:  # nested lists of several lengths
        single = True
    sizes = (sizes,) if single else tuple(sizes)
    return tuple(check_int(name, size, high=high) for size in sizes)


def check_layers(name: str, layers: Any, words: Iterable[str]) -> Any:
    """Return ``layers``, after checking that it is one of ``words`` or a list of names."""
    if isinstance(layers, str):
        return check_choice(name, layers, words)
    if not are_names(layers):
        listed = ", ".join(repr(word) for word in words)
        raise not_allowed(
            f"{name}={layers!r} is not allowed: give {listed} or a list of layer names."
        )
    return layers


def are_names(values: Any) -> bool:
    """Whether these are several strings, or one."""
    try:
        names = list(values)
    except TypeError:
        return False
    return bool(names) and all(isinstance(each, str) for each in names)


def _interval(low: float, high: float, closed: str) -> str:
    left = "[" if closed in ("left", "both") else "("
    right = "]" if closed in ("right", "both") else ")"
    return f"{left}{low:g}, {high:g}{right}"
