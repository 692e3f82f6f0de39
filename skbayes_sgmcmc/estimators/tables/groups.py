"""The parameters ``groups``, ``group_slopes`` and ``group_scale``: effects of groups of rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..._arrays import Array
from ..._exceptions import later_not_allowed, not_allowed
from ..._labels import label_text
from ..._limits import LIMITS
from ..._validation import BOUNDS, check_choice, check_scale
from .columns import Columns, values_of

if TYPE_CHECKING:
    from ..._draws.posterior_samples import PosteriorSamples
    from ...models.linear.group_priors import GroupTerm
    from ...priors.learned_scale import LearnedScale


#: shape of the hyperprior of learned scales with "auto", and least typical scale: few groups say
#: little of theirs, and have that of a column of categories (docs/results/category_scales.md)
SHAPE, LEAST_TYPICAL = 1.0, 0.3


@dataclass(frozen=True)
class Grouping:
    """Groups of the first fit: their column of X, their labels, and the slopes that they have."""

    #: name and index of the column
    name: str
    column: int
    #: labels of the groups, sorted, as Python objects
    labels: list[Any]
    #: what checked rows have in place of these, (n_groups,), increasing
    codes: Array
    #: columns of the features with slopes that depend on the group, by their names
    slopes: dict[str, int]

    def find(self, values: Array) -> tuple[Array, Array]:
        """Positions of codes, and whether they are among those of the first fit."""
        place = np.searchsorted(self.codes, values).clip(max=len(self.codes) - 1)
        return place, self.codes[place] == values

    def indicators(self, values: Array) -> Any:
        """Rows (n_rows, n_groups) with a one in the column of their group; none if it is new."""
        place, known = self.find(values)
        rows = np.flatnonzero(known)
        shape = len(values), len(self.labels)
        return sp.csr_matrix((np.ones(len(rows)), (rows, place[rows])), shape=shape)


#: of the first fit
Groupings = tuple[Grouping, ...]


def check_groups(groups: Any, group_slopes: Any, given: Any) -> None:
    """Raise ``ValueError`` if ``group_scale`` or ``group_slopes`` is not allowed."""
    if groups is None and group_slopes is not None:
        raise not_allowed(
            f"group_slopes={group_slopes!r} is not allowed without groups: give groups, "
            "or group_slopes=None."
        )
    if isinstance(given, Real):
        check_scale("group_scale", given)
    elif isinstance(given, str):
        check_choice("group_scale", given, ("learned",))
    elif hasattr(given, "check"):
        given.check("group_scale")
        check_choice("group_scale.inputs", given.inputs, ("auto", False))
    else:
        raise not_allowed(
            f"group_scale={given!r} is not allowed: give 'learned', a LearnedScale or a "
            "positive number."
        )


def groupings_of(columns: Columns, X: Any, group_slopes: Any) -> Groupings:
    """Learn which groups there are."""
    labels, features, slopes = columns.labels, columns.features, {}
    for given, j in columns.named("group_slopes", group_slopes).items():
        if j not in features:
            raise not_allowed(f"{given} is not allowed: the column is not a feature.")
        if not columns.numbers[features.index(j)]:
            raise not_allowed(
                f"{given} is not allowed: the column holds categories. Give columns of numbers."
            )
        slopes[labels[j]] = j
    groupings = []
    for j in columns.labelled.values():
        codes = np.unique(values_of(X, j)).astype(int)
        groups = [columns.known[j][code] for code in codes]
        groupings.append(Grouping(labels[j], j, groups, codes, slopes))
    names = effect_names(tuple(groupings))
    if len(set(names)) < len(names):
        raise not_allowed(
            f"groups={columns.of_labels['groups']!r} with group_slopes={group_slopes!r} is not "
            "allowed: two effects would have the same name. Name each column once."
        )
    return tuple(groupings)


def check_known_groups(groupings: Groupings, columns: Columns, X: Any) -> None:
    """Raise ``ValueError`` if later rows of a stream belong to new groups."""
    for grouping in groupings:
        values = values_of(X, grouping.column)
        new = values[~grouping.find(values)[1]]
        if len(new):
            label = columns.known[grouping.column][int(new[0])]
            raise later_not_allowed(
                f"X with the group {label_text(label)} in column {grouping.name!r} is not "
                "allowed: the first rows of the stream had no such group. Give rows of all "
                "groups in the first call, or start a new stream with a clone of the "
                "estimator."
            )


def group_terms(groupings: Groupings, group_scale: Any, unit_of: Any) -> list[GroupTerm]:
    """The effects as the model sees them; ``unit_of(j)`` is the unit of column j's slope."""
    from ...models.linear.group_priors import GroupTerm

    terms = []
    for grouping in groupings:
        n = len(grouping.labels)
        scale = _effect_scale(group_scale, n)
        terms.append(GroupTerm(grouping.name, n, scale))
        for name, j in grouping.slopes.items():
            terms.append(GroupTerm(f"{grouping.name}_{name}", n, scale, unit_of(j)))
    return terms


def _effect_scale(given: Any, n_groups: int) -> float | LearnedScale:
    from ...priors.learned_scale import LearnedScale

    if isinstance(given, Real):
        return float(given)
    if isinstance(given, str):
        given = LearnedScale()
    scale = float(given.typical(n_groups**-0.5))
    if isinstance(given.scale, str):
        scale = max(scale, LEAST_TYPICAL)
    shape = SHAPE if isinstance(given.shape, str) else given.shape
    return LearnedScale(shape, scale, False)


def with_groups(groupings: Groupings, X: Any, features: Any) -> Any:
    """Columns of the effects, followed by the features."""
    if not groupings:
        return features
    blocks = []
    for grouping in groupings:
        ones = grouping.indicators(values_of(X, grouping.column))
        slopes = [sp.diags(values_of(X, j)) @ ones for j in grouping.slopes.values()]
        blocks += [ones, *slopes]
    n_columns = features.shape[1] + sum(block.shape[1] for block in blocks)
    few = n_columns < LIMITS.worth_sparse  # more have sparse coordinates if rows are sparse
    if sp.issparse(features) or not few or features.shape[0] * n_columns > LIMITS.dense_numbers:
        return sp.hstack([*blocks, features], format="csr")
    return np.hstack([*(block.toarray() for block in blocks), features])


def effects(groupings: Groupings) -> list[tuple[str, Grouping, int | None]]:
    """Of every term: the name of its draws, its groups, and the column of its slope, if any."""
    return [
        (name, grouping, slope)
        for grouping in groupings
        for name, slope in [
            (f"effect_{grouping.name}", None),
            *((f"effect_{grouping.name}_{x}", j) for x, j in grouping.slopes.items()),
        ]
    ]


def effect_names(groupings: Groupings) -> list[str]:
    """Names of the draws of effects, in the order of their columns."""
    return [name for name, *_ in effects(groupings)]


def effect_axes(groupings: Groupings) -> dict[str, dict[str, list[Any]]]:
    """Names and labels of the axes of effects, for tables and conversions."""
    return {name: {grouping.name: grouping.labels} for name, grouping, _ in effects(groupings)}


def effect_labels(groupings: Groupings) -> dict[str, list[str]]:
    """Names of the effects of each group, as figures and tables show them."""
    return {
        name: [f"{name.removeprefix('effect_')}[{label_text(each)}]" for each in grouping.labels]
        for name, grouping, _ in effects(groupings)
    }


def exported_effects(
    groupings: Groupings, posterior: PosteriorSamples, chosen: Array, unit: float
) -> list[Any]:
    """Effects of some draws as ``LinearOutputs`` takes them, for rows of float32."""
    for grouping in groupings:
        for label in grouping.labels:
            if isinstance(label, Real) and abs(float(label)) < BOUNDS.whole:
                continue
            raise not_allowed(
                f"a model with the group {label_text(label)} in column {grouping.name!r} is not "
                "allowed in an export: rows of a module are float32, which holds whole numbers "
                "below 2**24. Replace the labels by such numbers, for instance by OrdinalEncoder "
                "of scikit-learn, and fit again."
            )
    return [
        (grouping.column, grouping.labels, slope, posterior.select(name, chosen) / unit)
        for name, grouping, slope in effects(groupings)
    ]
