"""``sample``: draws from a log density or a model that the user gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._data.minibatch import Data
from .._draws.posterior_samples import PosteriorSamples
from .._draws.storage import Storage
from .._exceptions import FIT_REMEDY, explain_full_memory
from .._validation import check_int
from ..models._protocol import DensityModel, Model
from ..samplers import Sampler
from ..schedules import MixingDistance, Schedule
from .run import draw
from .settings import Settings, resolve_device


@explain_full_memory(FIT_REMEDY)
def sample(
    target: Model | Callable[..., Any],
    n_parameters: int | None = None,
    *,
    data: Data | None = None,
    gradient_of_potential: Callable[..., Any] | None = None,
    sampler: str | Sampler = "sgld",
    integrator: str = "auto",
    step_size: float | Schedule = 0.1,
    preconditioner: Any = None,
    gradient: str = "minibatch",
    batch_size: int | str = "auto",
    shared_minibatch: bool = False,
    n_chains: int = 4,
    n_draws: int = 1000,
    burn_in: int = 1000,
    thinning: int | MixingDistance = 1,
    temperature: float | Schedule = 1.0,
    init: Any = "random",
    compiled: Any = "auto",
    device: str = "auto",
    dtype: str = "auto",
    storage: Storage | None = None,
    checkpoint: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    on_progress: Callable[[float], None] | None = None,
) -> PosteriorSamples:
    r"""Draw from any log density, or from a model with its data, by SG-MCMC.

    Parameters
    ----------
    target : callable or Model
        ``log_density(theta)`` of a torch tensor (n_chains, n_parameters) returning (n_chains,), up
        to a constant; or a :class:`~skbayes_sgmcmc.models.Model`.
    n_parameters : int
        Length of theta; needed for a callable.
    data : Data or None
        The model's rows; None: no data, N = 1.
    gradient_of_potential : callable or None
        ``gradient(theta, rng)`` of -log density, (n_chains, n_parameters), possibly noisy; ``rng``
        has ``normal(*shape)`` and ``uniform(*shape)``, one stream per chain. None: autograd.
    sampler, integrator : str or Sampler, str
        A cell of the table, e.g. ``"sghmc"`` and ``"baoab"``; "auto" is the sampler's plain one.
    step_size : float or Schedule, default=0.1
        eta, which multiplies the gradient of the mean potential; without data, of -log density.
    preconditioner : None or array of shape (n_parameters,) or (n_parameters, n_parameters)
        Constant preconditioner M.
    gradient : {"minibatch", "control_variates", "linear_control_variates"}, default="minibatch"
        Gradient estimator, where the model offers it.
    batch_size, shared_minibatch : "auto" or int, bool
        Rows in a minibatch, and whether the chains of a step share them.
    n_chains, n_draws, burn_in, thinning
        Chains; draws kept of each; steps before and between them.
    temperature : float or Schedule, default=1.0
        T: the target is proportional to density^(1/T).
    init : "random", "map" or array, default="random"
        Starts: standard normal for a callable; an array broadcasts to (n_chains, n_parameters).
    compiled : "auto" or bool, default="auto"
        Use compiled code (extra ``fast``, CPU) or CUDA graphs. "auto": where they apply and pay;
        True: where they apply, with an error that lists the reasons if none does; False: nowhere.
        Compiled steps have their own random numbers, and so other draws for the same seed.
    device, dtype, storage, checkpoint, n_jobs, random_state
        As for the estimators.
    on_progress : callable or None
        Called with the finished fraction, about 100 times.

    Returns
    -------
    PosteriorSamples
        ``draws["theta"]`` of shape (n_chains, n_draws, n_parameters), or the model's names.

    Raises
    ------
    ValueError
        A parameter is not allowed, or does not suit the model.
    SamplingError
        Every chain left the finite numbers.
    MemoryError
        The device's memory is full.

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
        shared_minibatch=shared_minibatch,
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
    settings.check()
    if isinstance(target, Model):
        model = target
    else:
        model = DensityModel(target, check_int("n_parameters", n_parameters), gradient_of_potential)
    where = resolve_device(settings.device)
    run = draw(
        model,
        Data({}, 1) if data is None else data,
        settings,
        dtype=settings.resolve_dtype(
            where, model.n_parameters, single_precision=model.single_precision
        ),
        device=where,
        on_progress=None if on_progress is None else lambda fraction, _: on_progress(fraction),
    )
    return PosteriorSamples(model.unpack(run.draws), run.weights, run.statistics)
