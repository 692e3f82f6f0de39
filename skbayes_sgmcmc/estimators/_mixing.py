"""Warnings of chains that have not mixed: which estimator, which coordinates, what to change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import config_context

from .._arrays import Array
from .._draws.magnitude import moves
from .._draws.posterior_samples import PosteriorSamples, names_of
from .._exceptions import warn
from .._sklearn import BaseEstimator
from .._validation import is_auto
from ..schedules import number_if_constant

if TYPE_CHECKING:
    from .._data.kept_rows import KeptRows
    from .._engine.streams import StreamRows

#: a value, and the coordinate that has it
Extreme = tuple[float, str]


@dataclass(frozen=True, slots=True)
class MixingRules:
    """From where on chains have not mixed, and how many figures say so."""

    #: a larger R-hat or a smaller bulk ESS of the chains raises a warning
    r_hat: float = 1.05
    ess: float = 100.0
    #: coordinates beyond this number are checked on an even sample, since each costs a millisecond
    coordinates: int = 300
    #: number of coordinates of each block in the R-hat that is shown while a fit runs
    shown: int = 10
    #: chains of networks and topics are compared by their predictions of this number of rows. The
    #: limits are loose, because each chain samples one mode, and a few chains cover only a few of
    #: the modes
    rows: int = 50
    modes_r_hat: float = 1.5
    modes_ess: float = 8.0
    #: of networks, this share of the predictions must mix. Single ones depend on the mode in fits
    #: that predict well: on digits the median R-hat is 1.3 and the largest 2.4, with 300 steps
    #: instead of 6,000 1.9 and 3.1 (docs/results/early_ends.md)
    predictions: float = 0.5
    predictions_r_hat: float = 1.4


MIXING = MixingRules()
#: where scales of the prior are learned: what to give if they have not mixed
SCALE_REMEDY = {"scale": "a number for prior_scale"}


@dataclass(frozen=True)
class MustMix:
    """What the chains of a fit must agree on."""

    #: quantities (chains, draws, ...) of each draw
    draws: dict[str, Array]
    #: names of their flattened coordinates, where they have other names than places
    labels: dict[str, list[str]]
    #: a larger R-hat or a smaller ESS raises a warning
    r_hat_limit: float = MIXING.r_hat
    ess_limit: float = MIXING.ess
    #: for blocks with a remedy of their own: what to give if they have the largest R-hat
    remedies: Mapping[str, str] = field(default_factory=dict)
    #: share of the coordinates that have to agree; with 0.5, the medians are within the limits
    share: float = 1.0


def check_mixing(
    estimator: Any, what: MustMix, weights: Array | None = None
) -> tuple[Extreme, Extreme] | None:
    """Warn of a large R-hat, a small ESS, or draws that do not move; ``weights`` are the draws'.

    Returns the largest R-hat and the smallest ESS of the share that has to agree, each with its
    coordinate, if the draws move.
    """
    still = [name for name, values in what.draws.items() if not moves(values)]
    if still:
        why = "the chains did not move. Give a larger step_size or a temperature above 0."
        cold = number_if_constant(estimator.temperature) == 0.0
        if is_auto(estimator.step_size) and not cold:  # steps fit the posterior
            why = (
                "their posterior is as narrow as rounding errors. Give smaller weights of rows, if "
                "they are huge, or a larger noise, if it is a number."
            )
        warn(
            f"the draws of {', '.join(still)} have no spread in {short_name(estimator)}: {why}",
            "the-chains-did-not-move",
        )
        return None
    worst, least, block = _extremes(what, weights)
    if not (worst[0] > what.r_hat_limit or least[0] < what.ess_limit):
        return worst, least
    n_draws = estimator.n_chains_ * estimator.n_draws_
    largest, smallest = ("largest", "smallest") if what.share == 1.0 else ("median", "median")
    size = f"{smallest} effective sample size {least[0]:.0f} of {n_draws} draws"
    found = [f"{size}, for {least[1]!r}"]
    if np.isfinite(worst[0]):  # one chain has no R-hat
        found.insert(0, f"{largest} R-hat {worst[0]:.2f}, for {worst[1]!r}")
    where, doubtful = short_name(estimator), "uncertainties"
    # more draws of a network are from as many steps as before
    longer = "more draws" if least[0] > 0.5 * n_draws else "a larger thinning"
    other = f"another step_size, or {estimator._automatic_step}"
    if is_auto(estimator.step_size):
        other = "or another sampler"
    if block in what.remedies:
        other = f"or {what.remedies[block]}"
    remedy = f"Give {longer}, {other}."
    if estimator.max_steps is not None:
        remedy = "Give a larger max_steps."
    if estimator._stream_rows is not None:
        where += f" after {estimator._stream_rows:g} rows of the stream"
        doubtful = "means and uncertainties"
        remedy = "Pass more rows, or the same ones again with total_samples, or use fit."
    warn(
        f"the chains have not mixed well in {where} ({'; '.join(found)}): {doubtful} may be "
        f"wrong. {remedy}",
        "the-chains-have-not-mixed",
    )
    return worst, least


def check_order(estimator: Any, joined: StreamRows, rows: KeptRows) -> None:
    """Warn once if few rows stand for many, since they are not in random order."""
    if joined.stand_for_many():
        warn(
            f"the rows of the stream of {short_name(estimator)} are not in random order, and few "
            f"are kept: {rows.n_rows} stand for {rows.n_seen}. Means may be off by a posterior "
            "sd: shuffle the rows, or fit all of them (X may be a memory map).",
            "the-rows-of-a-stream-are-not-in-random-order",
        )


def short_name(estimator: Any) -> str:
    """Class and parameters that are not at their defaults, on one line."""
    with config_context(print_changed_only=True):
        text: str = BaseEstimator.__repr__(estimator, N_CHAR_MAX=200)  # type: ignore[call-arg]
        return " ".join(text.split())


def some_r_hat(posterior: PosteriorSamples) -> float:
    """Largest R-hat of some coordinates of each block of draws, at little cost; may be NaN."""
    from ..diagnostics import r_hat

    largest = np.nan
    if posterior.n_chains < 2 or posterior.n_draws < 4:
        return largest
    for name in posterior.draws:
        flat = posterior[name].reshape(posterior.n_chains, posterior.n_draws, -1)
        some = flat[:, :, :: -(-flat.shape[2] // MIXING.shown)]
        checked = PosteriorSamples({"x": some}, posterior.weights)
        largest = float(np.fmax(largest, np.nanmax(r_hat(checked, "x"))))
    return largest


def _extremes(what: MustMix, weights: Array | None) -> tuple[Extreme, Extreme, str]:
    """The largest R-hat and the smallest ESS of the share that has to agree, with their names.

    NaN with fewer than two chains, or if no coordinate moves. The block of the former comes last.
    """
    from ..diagnostics import effective_sample_size, r_hat

    r_hats: list[tuple[float, str, str]] = []
    sizes: list[tuple[float, str, str]] = []
    for name, values in what.draws.items():
        flat = values.reshape(*values.shape[:2], -1)
        step = -(-flat.shape[2] // MIXING.coordinates)
        checked = PosteriorSamples({name: flat[:, :, ::step]}, weights)
        named = (what.labels.get(name) or names_of(name, values.shape[2:]))[::step]
        for found, figure, sign in ((r_hats, r_hat, 1.0), (sizes, effective_sample_size, -1.0)):
            each = zip(figure(checked, name), named, strict=True)
            found += [(sign * float(v), label, name) for v, label in each if np.isfinite(v)]
    worst, least = _of_share(r_hats, what.share), _of_share(sizes, what.share)
    return worst[:2], (-least[0], least[1]), worst[2]


def _of_share(found: list[tuple[float, str, str]], share: float) -> tuple[float, str, str]:
    """The largest of the lowest ``share`` of some figures."""
    if not found:
        return np.nan, "", ""
    return sorted(found, key=lambda each: each[0])[math.ceil(share * len(found)) - 1]
