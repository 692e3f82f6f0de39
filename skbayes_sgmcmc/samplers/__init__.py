"""Samplers, and the table of the integrators that each sampler supports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .._exceptions import not_allowed
from .._metric import DiagonalMetric, Metric
from .._validation import check_choice, is_auto
from . import integrators
from ._protocol import Sampler, Step
from .gibbs import Gibbs
from .integrators import Integrator
from .mala import MALA
from .mclmc import MCLMC
from .msgnht import MSGNHT
from .psgld import PSGLD
from .rsgld import RSGLD
from .sghmc import SGHMC
from .sgld import SGLD
from .sgnht import SGNHT

__all__ = [
    "MALA",
    "MCLMC",
    "MSGNHT",
    "PSGLD",
    "RSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "DiagonalMetric",
    "Gibbs",
    "Metric",
    "Sampler",
    "Step",
]


@dataclass(frozen=True)
class Cell:
    """One cell of the table: an integrator and its step sizes under ``step_size="auto"``.

    ``step`` is eta in coordinates where the posterior is standard normal; None means that the
    sampler has its own rule. ``stiff`` is the largest product of eta and the curvature of typical
    draws, where the posterior is only nearly normal; None means twice ``step``. ``rate`` is eta for
    models without such coordinates, such as networks, where some samplers adapt it in the burn-in;
    None means that the sampler has no such value. ``most`` is eta for many rows, whose posterior is
    nearly normal, unless the curvature of typical draws forbids it; None means ``step``.
    ``prepare`` is what the integrator adds to :meth:`Sampler.prepare`. With ``whole_chunks`` it
    takes all steps of a chunk at once, and returns their positions.
    """

    integrator: Integrator
    step: float | None
    rate: float | None = None
    stiff: float | None = None
    most: float | None = None
    prepare: Integrator | None = None
    whole_chunks: bool = False


_MOMENTUM = {
    "splitting": Cell(integrators.splitting, 0.1, 0.005),
    "euler": Cell(integrators.euler, 0.03, 0.002),
    "baoab": Cell(integrators.baoab, 0.2, 0.005, stiff=1.5, prepare=integrators.first_gradient),
    "aboba": Cell(integrators.aboba, 0.1, 0.005),
}

#: name -> (class, integrators); ``integrator="auto"`` takes the first integrator
TABLE: dict[str, tuple[type[Sampler], dict[str, Cell]]] = {
    "sgld": (
        SGLD,
        {
            "leimkuhler_matthews": Cell(SGLD.leimkuhler_matthews, 0.5, 0.03, most=1.0),
            "euler": Cell(integrators.euler, 0.1, 0.03),
        },
    ),
    "psgld": (PSGLD, {"euler": Cell(integrators.euler, None, 2e-3)}),
    "rsgld": (RSGLD, {"euler": Cell(integrators.euler, None, 0.2)}),
    "sghmc": (SGHMC, {"baoab": _MOMENTUM["baoab"], **_MOMENTUM}),
    "sgnht": (SGNHT, _MOMENTUM),
    "msgnht": (MSGNHT, _MOMENTUM),
    "mclmc": (
        MCLMC,
        {
            "minimal_norm": Cell(integrators.minimal_norm, 0.5, 1e-3),
            "leapfrog": Cell(integrators.leapfrog, 0.1, 1e-3),
        },
    ),
    "mala": (MALA, {"metropolis": Cell(MALA.metropolis, None)}),
    "gibbs": (Gibbs, {"conditional": Cell(Gibbs.conditional, None, whole_chunks=True)}),
}


#: integrators of a sampler that is not in the table, such as a user's subclass
_OTHERS = {"euler": Cell(integrators.euler, None)}


def resolve(
    sampler: str | Sampler,
    integrator: str,
    *,
    plain: bool = False,
    listed: Iterable[str] = tuple(TABLE),
) -> tuple[Sampler, Cell]:
    """Return the sampler object, and the cell of the table for it and the integrator.

    ``integrator="auto"`` takes the sampler's first integrator in the table. If ``plain`` is true
    and the sampler has an Euler step, it takes Euler instead. The error of an unknown sampler names
    those that are ``listed``.
    """
    if isinstance(sampler, Sampler):
        found = [row for row in TABLE.values() if type(sampler) is row[0]]
        chosen, cells = sampler, (found[0][1] if found else _OTHERS)
    else:
        if not (isinstance(sampler, str) and sampler in TABLE):
            check_choice("sampler", sampler, listed)
        chosen, cells = TABLE[sampler][0](), TABLE[sampler][1]
    chosen.check("sampler")
    if is_auto(integrator):
        integrator = "euler" if plain and "euler" in cells else next(iter(cells))
    if not isinstance(integrator, str) or integrator not in cells:
        listed = ", ".join(repr(name) for name in cells)
        raise not_allowed(
            f"integrator={integrator!r} is not allowed with sampler {type(chosen).__name__}: "
            f"give 'auto' or one of {listed}."
        )
    chosen.check_integrator(integrator)
    return chosen, cells[integrator]
