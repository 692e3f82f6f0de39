"""Samplers, one SDE a file, and the table of which integrators each of them has."""

from __future__ import annotations

from dataclasses import dataclass

from .._metric import DiagonalMetric, Metric
from .._validation import check_choice
from . import integrators
from ._protocol import Sampler, Step
from .integrators import Integrator
from .mala import MALA
from .msgnht import MSGNHT
from .psgld import PSGLD
from .rsgld import RSGLD
from .sghmc import SGHMC
from .sgld import SGLD
from .sgnht import SGNHT

__all__ = [
    "MALA",
    "MSGNHT",
    "PSGLD",
    "RSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "DiagonalMetric",
    "Metric",
    "Sampler",
    "Step",
]


@dataclass(frozen=True)
class Cell:
    """One cell of the table: an integrator of a sampler and its default dimensionless step.

    ``step`` is eta in coordinates in which the posterior is standard normal, for
    ``step_size="auto"``; ``None``: the sampler's own rule. ``rate`` is eta for
    models without such coordinates (networks); ``None``: there is none.
    """

    integrator: Integrator
    step: float | None
    rate: float | None = None


_MOMENTUM = {
    "splitting": Cell(integrators.splitting, 0.1, 0.005),
    "euler": Cell(integrators.euler, 0.03, 0.002),
    "baoab": Cell(integrators.baoab, 0.2, 0.005),
    "aboba": Cell(integrators.aboba, 0.1, 0.005),
}

#: name -> (class, integrators; the first is the one that ``integrator="auto"`` takes)
TABLE: dict[str, tuple[type[Sampler], dict[str, Cell]]] = {
    "sgld": (
        SGLD,
        {
            "leimkuhler_matthews": Cell(integrators.leimkuhler_matthews, 0.5, 0.03),
            "euler": Cell(integrators.euler, 0.1, 0.03),
        },
    ),
    "psgld": (PSGLD, {"euler": Cell(integrators.euler, None, 1e-3)}),
    "rsgld": (RSGLD, {"euler": Cell(integrators.euler, None, 0.2)}),
    "sghmc": (SGHMC, _MOMENTUM),
    "sgnht": (SGNHT, _MOMENTUM),
    "msgnht": (MSGNHT, _MOMENTUM),
    "mala": (MALA, {"metropolis": Cell(integrators.metropolis, None)}),
}


#: what a sampler that is not in the table (a user's subclass) offers
_OTHERS = {"euler": Cell(integrators.euler, None)}


def resolve(
    sampler: str | Sampler, integrator: str, *, plain: bool = False
) -> tuple[Sampler, str, Cell]:
    """The sampler object, the integrator's name and the table's cell for two parameters.

    ``integrator="auto"`` is Euler where there is one if ``plain``, else the table's first choice.
    """
    if isinstance(sampler, Sampler):
        found = [row for row in TABLE.values() if type(sampler) is row[0]]
        chosen, cells = sampler, (found[0][1] if found else _OTHERS)
    else:
        check_choice("sampler", sampler, TABLE)
        chosen, cells = TABLE[sampler][0](), TABLE[sampler][1]
    chosen.check("sampler")
    if isinstance(integrator, str) and integrator == "auto":
        integrator = "euler" if plain and "euler" in cells else next(iter(cells))
    if not isinstance(integrator, str) or integrator not in cells:
        listed = ", ".join(repr(name) for name in cells)
        raise ValueError(
            f"integrator={integrator!r} is not allowed with sampler {type(chosen).__name__}: "
            f"give 'auto' or one of {listed}."
        )
    return chosen, integrator, cells[integrator]
