"""Resolves "auto": centre, coordinates, gradient estimator, starts, step size and lengths.

This module has the checks and their order. What "auto" *means* depends on the posterior, and the
model's ``tuning`` defines it (``models/_tuning.py``). The sampler supplies what "auto" needs to
know about it (``samplers/_protocol.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._data.minibatch import Data, Minibatches
from .._exceptions import SamplingError, more, not_allowed
from .._validation import check_choice
from ..models._protocol import Model
from ..models._tuning import (
    PLAIN_BATCH,
    AutoValues,
    Request,
    Tuning,
    preconditions,
)
from ..samplers import Cell, Sampler
from .settings import LARGEST, SMALLEST, STARTS, Settings, is_auto
from .target import GRADIENTS, Target

__all__ = [
    "AutoValues",
    "draws_kept",
    "explained",
    "minibatches",
    "set_step",
    "stream_step",
    "summarises",
    "tuning_of",
    "warm_up",
]

Array = NDArray[Any]

#: largest size in bytes of the draws with ``n_draws="auto"``, and smallest number per chain
AUTO_BYTES, FEWEST_DRAWS = 2**30, 50


def tuning_of(model: Model) -> Tuning:
    """The model's tuning, or the base class if the model has none."""
    return model.tuning or Tuning(model)


def warm_up(
    model: Model,
    data: Data,
    sampler: Sampler,
    cell: Cell,
    settings: Settings,
    temperature: float,
    *,
    stream: bool = False,
) -> AutoValues:
    """Resolve centre, preconditioner, gradient estimator, starts and step size.

    ``stream`` means that later calls bring other rows, which rules out control variates.
    """
    request = _request(sampler, cell, settings, temperature, stream=stream)
    _check(request, model)
    values = tuning_of(model).resolve(data, request)
    found = [each for each in (values.center, values.root) if each is not None]
    if not all(np.isfinite(each).all() for each in found):
        raise _no_approximation()
    if values.step_size is not None and not SMALLEST <= values.step_size <= LARGEST:
        raise _no_approximation()
    return values


def set_step(
    values: AutoValues,
    model: Model,
    data: Data,
    sampler: Sampler,
    cell: Cell,
    settings: Settings,
    temperature: float,
) -> None:
    """Change the step size, and what depends on it, to that of another sampler."""
    request = _request(sampler, cell, settings, temperature, stream=False)
    tuning_of(model).set_step(values, data, request)


def summarises(
    model: Model, sampler: Sampler, cell: Cell, settings: Settings, temperature: float
) -> bool:
    """Whether the rows of each call of a stream become a Gaussian, the prior of later rows."""
    request = _request(sampler, cell, settings, temperature, stream=True)
    as_they_are = settings.kept.dtype == "auto" and settings.kept.dir is None
    return as_they_are and temperature == 1.0 and tuning_of(model).summarises(request)


def _request(
    sampler: Sampler, cell: Cell, settings: Settings, temperature: float, *, stream: bool
) -> Request:
    return Request(
        sampler=sampler,
        step=cell.step,
        most=cell.most,
        stiff=cell.stiff,
        rate=cell.rate,
        temperature=temperature,
        auto=settings.auto,
        gradient=settings.gradient,
        init=settings.init,
        preconditioner=settings.preconditioner,
        batch_size=settings.batch_size,
        thinning=settings.thinning,
        stream=stream,
    )


def _check_no_steps(request: Request) -> None:
    """Refuse parameters of steps for a sampler that takes none."""
    name = type(request.sampler).__name__
    if request.stream:
        raise not_allowed(
            f"sampler={name} is not allowed in partial_fit, because its draws need all rows: give "
            "sampler='sgld'."
        )
    if not request.auto:
        raise not_allowed(
            f"a number as step_size is not allowed with {name}, which takes no steps: give "
            "step_size='auto'."
        )
    for parameter in ("gradient", "preconditioner", "batch_size"):
        value = getattr(request, parameter)
        if value is not None and not is_auto(value):
            raise not_allowed(
                f"{parameter}={value!r} is not allowed with {name}, which takes no steps: give "
                f"{parameter}='auto'."
            )


@contextmanager
def explained() -> Iterator[None]:
    """Explain factorisations that fail. Overflow is silent: what is not finite is refused."""
    try:
        with np.errstate(all="ignore"):
            yield
    except np.linalg.LinAlgError as error:
        raise _no_approximation() from error


def _no_approximation() -> SamplingError:
    return SamplingError(
        "The posterior could not be approximated by a Gaussian within the range of floating-point "
        "numbers: X, y, sample_weight, noise, prior_scale or temperature is extreme. Give moderate "
        "values; or give step_size a number, with init='random' and gradient='minibatch'."
        + more("no-gaussian-approximation")
    )


def _check(request: Request, model: Model) -> None:
    """Raise ``ValueError`` if a parameter or a combination of parameters is not allowed."""
    gradient, init, preconditioner = request.gradient, request.init, request.preconditioner
    check_choice("gradient", gradient, ["auto", *GRADIENTS])
    if isinstance(init, str):
        check_choice("init", init, STARTS)
    if isinstance(preconditioner, str):
        check_choice("preconditioner", preconditioner, ("auto", "hessian", "diagonal"))
    elif preconditioner is not None and preconditions(request.sampler, model):
        raise not_allowed(
            f"preconditioner={preconditioner!r} is not allowed with "
            f"{type(request.sampler).__name__}, which preconditions by itself: give "
            "preconditioner=None."
        )
    if model.after_step is not None and preconditioner is not None and not is_auto(preconditioner):
        raise not_allowed(
            f"preconditioner={preconditioner!r} is not allowed with {type(model).__name__}, "
            "because its latent variables change at every step: give preconditioner=None."
        )
    if request.sampler.needs_potential and gradient not in ("auto", "minibatch"):
        raise not_allowed(
            f"gradient={gradient!r} is not allowed with {type(request.sampler).__name__}, because "
            "control variates change the gradient and not the potential: give gradient='minibatch'."
        )
    if request.sampler.needs_conditionals:
        _check_no_steps(request)
    if request.stream and gradient not in ("auto", "minibatch"):
        raise not_allowed(
            f"gradient={gradient!r} is not allowed in partial_fit, because control variates need "
            "all rows: give gradient='minibatch' or 'auto'."
        )


def minibatches(
    target: Target,
    sampler: Sampler,
    warm: AutoValues,
    *,
    batch_size: int | str,
    temperature: float,
) -> Minibatches:
    """The minibatches of a run, of the given size or large enough for little gradient noise."""
    data, tuning = target.data, tuning_of(target.model)

    def to_theta(phi: Array) -> Tensor:
        return target.to_theta(torch.from_numpy(phi).to(target.like))

    size: int | None = None
    if sampler.full_data:
        size = data.n_rows
    elif not isinstance(batch_size, str):
        size = int(batch_size)
    elif warm.step_size is None:
        size = PLAIN_BATCH
    elif warm.batch_size is not None:
        size = warm.batch_size
    elif tuning.fits_whole(data) or sampler.needs_potential:
        size = data.n_rows
    odds = None
    if size is None or size < data.n_rows:
        odds = tuning.row_odds(data, warm, temperature)
    if size is None:
        size = tuning.batch_size(data, sampler, warm, odds, temperature, to_theta)
    return Minibatches(data, size, odds=odds)


def draws_kept(model: Model, n_chains: int, itemsize: int) -> int:
    """Draws per chain: the tuning's number, or fewer if the draws would take more than a GiB."""
    fitting = AUTO_BYTES // (n_chains * model.n_kept * itemsize)
    return int(min(tuning_of(model).most_draws, max(FEWEST_DRAWS, fitting)))


def stream_step(
    model: Model, sampler: Sampler, minibatches: Minibatches, rows_seen: float
) -> float:
    """Largest step size that makes good use of a stream's rows.

    In whitened coordinates, a step size of 2 n / rows seen gives the t-th of equal minibatches a
    weight of about 2/t. The chains are then a stochastic Newton method that forgets the effect of
    the first rows. The gradient noise, of variance 1/n per step, inflates the variance by
    eta N / (2n) <= 1. If rows come again, the step size falls until this inflation is 0.1. A
    sampler with friction moves by eta / friction per step. A model's tuning may let the step size
    fall more slowly, as (n / rows seen)^forgetting.
    """
    n, tuning = minibatches.size, tuning_of(model)
    rate = max(2.0 * (n / rows_seen) ** tuning.forgetting, 0.2 * n / minibatches.data.total)
    return tuning.unit() * float(rate * sampler.resistance())
