"""``sample``: draws from a user's log density or model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .._data.minibatch import Data
from .._draws.magnitude import check_magnitude, extremes, moves
from .._draws.posterior_samples import PosteriorSamples
from .._draws.storage import Storage, decode
from .._exceptions import FIT_REMEDY, explain_full_memory, not_allowed, warn
from .._modes import usual_modes
from .._validation import check_choice, check_int
from ..diagnostics import r_hat
from ..models._protocol import Model
from ..models.density import DensityModel
from ..samplers import Sampler
from ..schedules import MixingDistance, Schedule
from .devices import run_device
from .jobs import given_starts
from .memory import check_density_memory
from .own_models import check_data, check_model
from .problem import Problem
from .run import Run, draw
from .settings import Settings

#: the words that ``init`` of :func:`sample` may be
STARTS_OF_SAMPLE = "random", "map"
#: the draws of a function are looked at if a chain has at least so many, and their density of at
#: most so many
ENOUGH_DRAWS = 100
#: a larger R-hat raises a warning: improper densities have 2.2 to 14 after 1,000 draws, and chains
#: that are slow but come back 1.05 to 1.5 (the banana of the gallery). Most coordinates looked at
LARGEST_R_HAT, MOST_COORDINATES = 1.5, 300


@explain_full_memory(FIT_REMEDY)
@usual_modes()
def sample(
    target: Model | Callable[..., Any],
    n_parameters: int | None = None,
    *,
    data: Data | None = None,
    gradient_of_potential: Callable[..., Any] | None = None,
    sampler: str | Sampler = "sgld",
    integrator: str = "auto",
    step_size: float | Schedule = 0.1,
    preconditioner: ArrayLike | None = None,
    gradient: str = "minibatch",
    batch_size: int | str = "auto",
    n_chains: int = 4,
    n_draws: int = 1000,
    burn_in: int = 1000,
    thinning: int | MixingDistance = 1,
    temperature: float | Schedule = 1.0,
    init: ArrayLike | Literal["random", "map"] = "random",
    compiled: bool | Literal["auto"] = "auto",
    device: str = "auto",
    dtype: str = "auto",
    storage: Storage | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> PosteriorSamples:
    r"""Sample from a log density, or from a model with its data, by SG-MCMC.

    Parameters
    ----------
    target : callable or Model
        A function ``log_density(theta)``, or a :class:`~skbayes_sgmcmc.models.Model`. The function
        takes a torch tensor of shape (n_chains, n_parameters) and returns the log density, up to a
        constant, as a tensor of shape (n_chains,).
    n_parameters : int or None, default=None
        Length of theta. Required if ``target`` is a function.
    data : Data or None, default=None
        Rows of the model. None means that there are no data, and N = 1.
    gradient_of_potential : callable or None, default=None
        A function ``gradient(theta, rng)`` that returns the gradient of -log density, of shape
        (n_chains, n_parameters). The gradient may be noisy: ``rng.normal(*shape)`` and
        ``rng.uniform(*shape)`` give random numbers, from a generator for each chain. One without
        noise is compared with ``target`` at the starts. None computes the gradient by autograd.
    sampler : str or Sampler, default="sgld"
        The sampler, by name or as an object, e.g. ``"sghmc"``.
    integrator : str, default="auto"
        An integrator of the sampler, e.g. ``"baoab"``. "auto" is the sampler's Euler step if it has
        one.
    step_size : float or Schedule, default=0.1
        eta, which multiplies the gradient of the mean potential. Without data, this is the gradient
        of -log density.
    preconditioner : None or array of shape (n_parameters,) or (n_parameters, n_parameters)
        Constant preconditioner M.
    gradient : {"minibatch", "control_variates", "linear_control_variates"}, default="minibatch"
        Gradient estimator. Control variates need a model that supports them.
    batch_size : "auto" or int, default="auto"
        Number of rows in a minibatch.
    n_chains : int, default=4
        Number of chains.
    n_draws : int, default=1000
        Number of draws kept per chain.
    burn_in : int, default=1000
        Number of steps before the collection of draws starts.
    thinning : int or MixingDistance, default=1
        Number of steps from one draw to the next.
    temperature : float or Schedule, default=1.0
        T. The target is proportional to density^(1/T).
    init : "random", "map" or array, default="random"
        Starting positions. "random" is standard normal for a function, and the model's own choice
        for a model. An array is broadcast to shape (n_chains, n_parameters).
    compiled : "auto" or bool, default="auto"
        Whether to use compiled code (CPU, with the extra ``fast``) or CUDA graphs. "auto" uses them
        where they apply and make the run faster. True uses them wherever they apply, and raises an
        error that lists the reasons if none applies. False does not use them. Compiled steps have
        their own random numbers, so the same seed gives other draws.
    device, dtype, storage, checkpoint, n_jobs, random_state
        As for the estimators. ``device="auto"`` cannot see what a function computes, and is the CPU
        for most: give "cuda" to a function with tensors on a GPU.
    on_progress : callable or None, default=None
        Function of the completed fraction of the run. It is called about 100 times.

    Returns
    -------
    PosteriorSamples
        For a function, the draws have the name "theta" and shape (n_chains, n_draws, n_parameters).
        For a model, they have the names and shapes of the model.

    Raises
    ------
    ValueError
        A parameter is not allowed, or does not suit the model.
    SamplingError
        All chains diverged, or their draws are too large for finite means and sds.
    MemoryError
        The device's memory is full.

    Warns
    -----
    SamplingWarning
        Chains diverged or did not move; or, with 100 draws of a function, some have no finite log
        density, they are spread as at 1.5 times the temperature, or the largest R-hat is above 1.5.

    Examples
    --------
    A standard normal in two dimensions:

    >>> from skbayes_sgmcmc import sample
    >>> posterior = sample(lambda theta: -0.5 * (theta**2).sum(1), 2, step_size=0.5,
    ...                    integrator="leimkuhler_matthews", random_state=0)
    >>> posterior["theta"].shape
    (4, 1000, 2)
    >>> bool(abs(posterior.std("theta") - 1).max() < 0.1)
    True
    """
    settings = Settings(
        sampler=sampler,
        integrator=integrator,
        step_size=step_size,
        preconditioner=preconditioner,
        gradient=gradient,
        batch_size=batch_size,
        n_chains=n_chains,
        n_draws=n_draws,
        burn_in=burn_in,
        thinning=thinning,
        temperature=temperature,
        init=init,
        compiled=compiled,
        device=device,
        dtype=dtype,
        storage=storage,
        checkpoint=checkpoint,
        n_jobs=n_jobs,
        random_state=random_state,
    )
    if isinstance(init, str):
        check_choice("init", init, STARTS_OF_SAMPLE)
    settings.check(starts=STARTS_OF_SAMPLE)
    _check_functions(target, data, gradient_of_potential, on_progress)
    if isinstance(target, Model):
        model = target
    else:
        model = DensityModel(target, check_int("n_parameters", n_parameters), gradient_of_potential)
        check_density_memory(model.n_parameters, settings.n_chains)
    rows = Data({}, 1) if data is None else data
    where, precision = run_device(settings, model, rows.n_rows)
    starts = _starts(model, settings).to(where, precision)
    if isinstance(model, DensityModel):
        model.check_rows(starts)
        model.check_gradient(starts)
    else:
        check_data(rows)
        check_model(model, rows, starts)
    run = draw(
        Problem(model, rows, precision, where).bound(),
        settings,
        None if on_progress is None else lambda report: on_progress(report.fraction),
    )
    posterior = PosteriorSamples(model.unpack(run.draws), run.weights, run.statistics)
    check_magnitude(extremes(posterior)[1])
    if run.plan.first_temperature > 0.0:
        _check_draws(model, run, posterior, sampler)
    return posterior


def _check_draws(model: Model, run: Run, posterior: PosteriorSamples, sampler: Any) -> None:
    """Warn of draws that do not move and, for a function, of other draws that are no posterior."""
    some = [posterior[name][:, :: -(-posterior.n_draws // 10)] for name in posterior.draws]
    if len(some[0][0]) >= 4 and not any(map(moves, some)):
        warn(
            f"the draws of {sampler!r} have no spread: the chains did not move. Give a larger "
            "step_size; a sampler of your own must change theta in place or return it.",
            "the-chains-did-not-move",
        )
        return
    if not isinstance(model, DensityModel) or posterior.n_draws < ENOUGH_DRAWS:
        return
    if not _left_support(model, run) and not _too_hot(model, run, sampler):
        _check_mixing(posterior)


def _starts(model: Model, settings: Settings) -> Tensor:
    """Positions like those where the chains start."""
    if isinstance(settings.init, str):
        rng = np.random.default_rng(0)
        return torch.from_numpy(np.stack([model.init(rng) for _ in range(settings.n_chains)]))
    return torch.from_numpy(given_starts(settings.init, settings.n_chains, model))


def _left_support(model: DensityModel, run: Run) -> bool:
    """Whether some draws have no finite log density, since gradients know no walls; warns."""
    if model.gradient is not None:
        return False  # the function may be anything then
    some = decode(run.draws[:, :: -(-run.draws.shape[1] // ENOUGH_DRAWS)])
    found = np.stack([run.target.log_joint_of_rows(theta, 1) for theta in some.swapaxes(0, 1)])
    outside = ~np.isfinite(found)
    if outside.any():
        value = found[outside][0]
        warn(
            f"{outside.mean():.2%} of the draws have the log density {value}: the chains have left "
            "its support. Sample parameters without bounds, such as the logarithm of a positive "
            "one, and add the logarithm of its derivative to log_density; or give sampler='mala', "
            "which rejects such steps, and an init inside the support.",
            "the-chains-have-left-the-support",
        )
    return bool(outside.any())


def _too_hot(model: DensityModel, run: Run, sampler: Any) -> bool:
    """Whether draws are spread too far, which R-hat can't see; warns."""
    found = run.excess_temperature() if model.gradient is None else None
    if found is not None:
        warn(
            f"the draws of {sampler!r} are spread as at {found:.3g} times the temperature: steps "
            "are too long. Give a quarter of the step_size, or sampler='mala', which rejects such "
            "steps.",
            "the-draws-are-spread-too-far",
        )
    return found is not None


def _check_mixing(posterior: PosteriorSamples) -> None:
    """Warn if the chains differ, as they do for ever if the density can't be normalised."""
    flat = posterior["theta"]
    every = -(-flat.shape[2] // MOST_COORDINATES)
    found = r_hat(PosteriorSamples({"theta": flat[:, :, ::every]}, posterior.weights), "theta")
    if np.nanmax(found, initial=0.0) > LARGEST_R_HAT:
        where = int(np.nanargmax(found))
        warn(
            f"the chains have not mixed well (largest R-hat {found[where]:.2f}, for "
            f"'theta[{where * every}]'): means and uncertainties may be wrong. Give a larger "
            "n_draws or thinning, or another step_size; the density must have a finite integral, "
            "so it can't be constant in a parameter.",
            "the-chains-have-not-mixed",
        )


def _check_functions(target: Any, data: Any, gradient: Any, on_progress: Any) -> None:
    """Refuse what is no function, no model or no data."""
    if not isinstance(target, Model) and (not callable(target) or isinstance(target, type)):
        raise not_allowed(
            f"target={target!r} is not allowed: give a function log_density(theta), or a Model."
        )
    if not isinstance(data, Data | None):
        raise not_allowed(
            f"data={data!r} is not allowed: give skbayes_sgmcmc.models.Data, or None."
        )
    if data is not None and not isinstance(target, Model):
        raise not_allowed(
            "data is not allowed with a function, which has no rows: leave it out, or give a Model."
        )
    if gradient is not None and isinstance(target, Model):
        raise not_allowed(
            "gradient_of_potential is not allowed with a Model, which has its own: leave it out."
        )
    functions = {"gradient_of_potential": gradient, "on_progress": on_progress}
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise not_allowed(f"{name}={function!r} is not allowed: give a function, or None.")
