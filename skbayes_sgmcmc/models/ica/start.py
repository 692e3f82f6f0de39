"""Before the chains of independent component analysis: the whitening, the densities, the mode."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch

from ..._arrays import Array
from ..._exceptions import not_allowed
from ..._limits import LIMITS
from ...priors.factorised import Normal
from .densities import LOGISTIC_SD, NORMAL, SHAPES, shape_gains
from .model import ICAModel

#: steps of a descent between two choices of the shapes
SHAPE_STEPS = 20


def symmetric_whitening(x: Array, n_components: int, rounding: float = 1e-15) -> Array:
    """Whitening matrix K (n_components, n_features): the rows of X K' have unit covariance.

    ``x`` are centred rows. The whitened columns are the first principal components, rotated to be
    as close as possible to the features, or to ``n_components`` of them. If principal components
    have equal variances, as in rows that are already white, rounding decides their rotation, but K
    is the same for all rotations. K is undetermined only if the last component and the first
    omitted one have equal variances.

    ``rounding`` is the relative rounding error of the rows. Directions that are not larger than
    rounding errors do not count.

    Raises
    ------
    ValueError
        The rank of the rows is less than ``n_components``.
    """
    _, s, axes = scipy.linalg.svd(x, full_matrices=False)
    rank = int((s > 4.0 * rounding * np.sqrt(x.size)).sum())
    if rank < n_components:
        constant = int((np.ptp(x, axis=0) == 0.0).sum())
        raise not_allowed(
            f"n_components={n_components} is not allowed here: X has rank {rank} after centring "
            f"({x.shape[0]} rows, {x.shape[1]} features, {constant} of them constant); "
            + (f"give n_components={rank} or fewer." if rank else "give features that vary.")
        )
    s, axes = s[:n_components, None], axes[:n_components]
    loadings = (s * axes).T
    turn = _nearest_rotation(loadings[_independent(loadings)])
    return np.asarray(turn @ (axes * (np.sqrt(len(x)) / s)))


def mode_start(
    x: Array, rounding: float = 1e-15, *, learn_shapes: bool = False
) -> tuple[Array, Array]:
    """Unmixing matrix (d, d) of rows (n, d), near a mode, and the shapes of the densities (d,).

    The sources have the model's variance. The descent to a mode starts at the whitened rows, as in
    Picard (Ablin et al. 2018). The mode and the order and signs of the components are therefore a
    continuous function of the rows, and rounding errors in the rows are not amplified. FastICA is
    not used, because an iteration that does not converge is chaotic, which is common with several
    Gaussian sources. Rounding decides the mode only if the rows have an exact symmetry.

    With ``learn_shapes``, the descent is interrupted to choose the shapes that suit the sources
    found so far, as in extended infomax, until the choice no longer changes.
    """
    rows = x[:: -(-len(x) // LIMITS.part_rows)]
    rows = rows - rows.mean(axis=0)
    white = symmetric_whitening(rows, x.shape[1], rounding)
    # practically flat, so that the start depends only on the data
    flat = 1e6 * LOGISTIC_SD * float(np.abs(white).max())
    w, shapes = LOGISTIC_SD * white, np.ones(len(white))
    data = ICAModel(w, Normal(), flat, white).make_data(rows, None, None, torch.float64, "cpu")

    def descended(max_steps: int | None = None) -> Array:
        mode = ICAModel(w, Normal(), flat, white, shapes).find_map(data, max_steps)
        return w if mode is None else mode.reshape(w.shape)

    if learn_shapes:
        # a normal density, which does not tell sources apart, may only be the last choice
        other = np.delete(np.arange(len(SHAPES)), NORMAL)
        max_steps: int | None = SHAPE_STEPS
        for _ in range(50):
            gains = shape_gains(rows @ w.T)
            before, shapes = shapes, SHAPES[other][gains[:, other].argmax(axis=1)]
            same = np.array_equal(before, shapes)
            if same and max_steps is None:
                break
            max_steps = None if same else SHAPE_STEPS
            w = descended(max_steps)
        shapes = SHAPES[gains.argmax(axis=1)]
    else:
        w = descended()
    white = _nearest_rotation(w @ np.linalg.inv(white)) @ white
    return np.asarray(LOGISTIC_SD * white), shapes


def _nearest_rotation(matrix: Array) -> Array:
    u, _, v = np.linalg.svd(matrix)
    return np.asarray(u @ v)


def _independent(loadings: Array) -> Array:
    """Indices, in ascending order, of d rows of ``loadings`` (n, d) that span its row space.

    Rows are chosen one by one. Each chosen row has the largest component orthogonal to the rows
    chosen before; ties go to the first row.
    """
    left, chosen = np.array(loadings), []
    for _ in range(loadings.shape[1]):
        size = np.linalg.norm(left, axis=1)
        chosen.append(int(np.flatnonzero(size >= (1.0 - 1e-6) * size.max())[0]))
        direction = left[chosen[-1]] / size[chosen[-1]]
        left -= np.outer(left @ direction, direction)
    return np.sort(chosen)
