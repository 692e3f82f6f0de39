"""From settings to draws: the one path that every estimator and ``sample`` take."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from . import warmup
from ._validation import check_choice, check_int, check_real
from .chains import Chains, MixingDistance, Plan
from .checkpoint import Checkpoint, fingerprint
from .exceptions import SamplingError, SamplingWarning
from .minibatch import ChainRandom, Data, Minibatches
from .models._protocol import DensityModel, Model
from .posterior import Coordinates, Posterior
from .samplers import Cell, Sampler, resolve
from .samples import PosteriorSamples
from .schedules import Schedule, as_schedule

Array = NDArray[Any]


@dataclass
class Settings:
    """The sampling parameters that all estimators and ``sample`` share; see the estimators."""

    sampler: Any = "sgld"
    integrator: str = "auto"
    step_size: Any = "auto"
    batch_size: Any = "auto"
    n_chains: int = 4
    n_draws: Any = "auto"
    burn_in: Any = "auto"
    thinning: Any = "auto"
    temperature: Any = 1.0
    preconditioner: Any = "auto"
    gradient: str = "auto"
    init: Any = "auto"
    shared_minibatch: bool = False
    compiled: Any = "auto"
    checkpoint: Any = None
    device: str = "auto"
    dtype: Any = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    @classmethod
    def of(cls, estimator: Any) -> Settings:
        """The shared parameters of an estimator, checked."""
        settings = cls(**{f.name: getattr(estimator, f.name) for f in fields(cls)})
        settings.check()
        return settings

    def check(self) -> None:
        """Raise ``ValueError`` for any parameter that is not allowed, before any work."""
        resolve(self.sampler, self.integrator)
        if not _is_auto(self.step_size):
            as_schedule("step_size", self.step_size)
        as_schedule("temperature", self.temperature)
        for name, low in (("batch_size", 1), ("n_draws", 1), ("burn_in", 0)):
            value = getattr(self, name)
            if not _is_auto(value):
                check_int(name, value, low=low)
        if isinstance(self.thinning, MixingDistance):
            self.thinning.check("thinning")
        elif not _is_auto(self.thinning):
            check_int("thinning", self.thinning)
        check_int("n_chains", self.n_chains)
        check_choice("compiled", self.compiled, ("auto", True, False))
        check_choice("dtype", self.dtype, ("auto", "float32", "float64"))
        if self.checkpoint is not None and self.n_jobs not in (None, 1):
            raise ValueError(
                f"n_jobs={self.n_jobs!r} is not allowed with a checkpoint: give n_jobs=None."
            )

    @property
    def auto(self) -> bool:
        return _is_auto(self.step_size)

    def resolve_device(self) -> str:
        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"device={self.device!r} is not available here: give 'auto' or 'cpu'. ({error})"
            ) from None
        return str(self.device)

    def resolve_dtype(self, device: str, n_parameters: int) -> torch.dtype:
        if _is_auto(self.dtype):
            small = device == "cpu" and n_parameters <= 100_000
            return torch.float64 if small else torch.float32
        return getattr(torch, self.dtype)  # type: ignore[no-any-return]


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


@dataclass
class ChainState:
    """Where chains stand after a run, as plain arrays: what warm starts go on from."""

    phi: Array
    sampler: dict[str, Array]
    model: dict[str, Array]
    rng: dict[str, Any]
    last_eta: float
    warm: warmup.Warmup
    rows_seen: float = 0.0


@dataclass
class Run:
    """What a run returns: draws of theta, their weights, statistics and the final state."""

    draws: Array
    weights: Array | None
    statistics: dict[str, Array]
    state: ChainState
    posterior: Posterior
    step_size: float
    batch_size: int
    temperature: float
    messages: list[str] = field(default_factory=list)


def draw(
    model: Model,
    data: Data,
    settings: Settings,
    *,
    dtype: torch.dtype,
    device: str,
    previous: ChainState | None = None,
    stream: bool = False,
    n_steps: int | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Run:
    """Run the chains that ``settings`` describe.

    ``previous`` continues earlier chains; ``stream`` and ``n_steps`` are for one call of
    ``partial_fit``, which takes so many steps on rows that will not come back.
    """
    sampler, _, cell = resolve(settings.sampler, settings.integrator, plain=not settings.auto)
    temperature = as_schedule("temperature", settings.temperature)
    level = float(temperature.values(np.zeros(1, dtype=int), 1)[0])
    if sampler.full_data and level == 0.0:
        raise ValueError("temperature=0 is not allowed with MALA: give a positive number.")
    if sampler.needs_metric and model.metric is None:
        raise ValueError(
            f"sampler={type(sampler).__name__} is not allowed: {type(model).__name__} has no metric; "
            "give another sampler."
        )
    warm = previous.warm if previous is not None else None
    if warm is None:
        warm = warmup.warm_up(
            model,
            data,
            sampler,
            cell,
            auto=settings.auto,
            preconditioner=settings.preconditioner,
            gradient=settings.gradient,
            init=settings.init,
            temperature=level,
            stream=stream,
        )
    like = torch.empty(0, dtype=dtype, device=device)
    coordinates = None
    if warm.root is not None:
        center = np.zeros(model.n_parameters) if warm.center is None else warm.center
        coordinates = Coordinates.from_arrays(center, warm.root, like)
    posterior = Posterior(
        model,
        data,
        coordinates=coordinates,
        gradient=warm.gradient,
        center=warm.center,
        temperature=level,
        dtype=dtype,
        device=device,
    )
    minibatches = warmup.minibatches(
        posterior,
        sampler,
        warm,
        batch_size=settings.batch_size,
        shared=settings.shared_minibatch,
        temperature=level,
    )
    eta: Any = settings.step_size
    if warm.step_size is not None:
        eta = _stream_step(warm, minibatches, stream)
    plan = _plan(settings, as_schedule("step_size", eta), temperature, warm, minibatches, posterior,
                 previous, n_steps)
    groups = _groups(settings)
    seeds = _seeds(settings)
    jobs = [
        _Job(posterior, sampler, cell, minibatches, plan, settings, warm, previous, group,
             [seeds[c] for c in group])
        for group in groups
    ]
    if len(jobs) == 1:
        results = [jobs[0](on_progress)]
    else:
        results = list(Parallel(n_jobs=settings.n_jobs)(delayed(job)(None) for job in jobs))
    return _combine(results, posterior, plan, minibatches, warm, level)


def _stream_step(warm: warmup.Warmup, minibatches: Minibatches, stream: bool) -> float:
    """Without control variates the step must shrink with n/N to keep the noise below the posterior's."""
    assert warm.step_size is not None
    if not stream:
        return warm.step_size
    return min(warm.step_size, 0.2 * minibatches.size / minibatches.data.total)


def _plan(
    settings: Settings,
    step_size: Schedule,
    temperature: Schedule,
    warm: warmup.Warmup,
    minibatches: Minibatches,
    posterior: Posterior,
    previous: ChainState | None,
    n_steps: int | None,
) -> Plan:
    model, itemsize = posterior.model, posterior.like.element_size()
    n_draws = settings.n_draws
    if _is_auto(n_draws):
        n_draws = warmup.auto_draws(settings.n_chains, model.n_parameters, itemsize)
    if n_steps is not None:
        n_draws = min(n_draws, n_steps)
        thinning = n_steps // n_draws
        return Plan(step_size, temperature, n_draws, n_steps - n_draws * thinning, thinning)
    _check_memory(settings.n_chains, n_draws, model.n_parameters, itemsize)
    burn_in, thin = warmup.auto_lengths(
        settings.auto, warm.step_size, minibatches.data.n_rows, minibatches.size, n_draws
    )
    if previous is not None:
        burn_in = 0
    return Plan(
        step_size,
        temperature,
        n_draws,
        burn_in if _is_auto(settings.burn_in) else settings.burn_in,
        thin if _is_auto(settings.thinning) else settings.thinning,
    )


def _check_memory(n_chains: int, n_draws: int, n_parameters: int, itemsize: int) -> None:
    needed = n_chains * n_draws * n_parameters * itemsize
    free = _free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"n_draws={n_draws!r} is not allowed here: {n_chains} chains x {n_draws} draws x "
            f"{n_parameters} parameters need {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are "
            "free; give fewer draws or chains, or dtype='float32'."
        )


def _free_memory() -> int | None:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _seeds(settings: Settings) -> list[np.random.SeedSequence]:
    state = settings.random_state
    if state is None or isinstance(state, np.random.RandomState):
        # reads the global or the given RandomState as scikit-learn's own estimators do
        entropy = int(check_random_state(state).randint(np.iinfo(np.int32).max))
    else:
        entropy = check_int("random_state", state, low=0)
    return np.random.SeedSequence(entropy).spawn(settings.n_chains)


def _groups(settings: Settings) -> list[list[int]]:
    """Chains that run as one batch: all of them, or one group a job."""
    chains = list(range(settings.n_chains))
    if settings.n_jobs in (None, 1):
        return [chains]
    from joblib import effective_n_jobs

    jobs = min(effective_n_jobs(settings.n_jobs), settings.n_chains)
    return [part.tolist() for part in np.array_split(np.array(chains), jobs)]


@dataclass
class _Result:
    draws: Array
    weights: Array
    statistics: dict[str, Array]
    state: ChainState
    diverged: dict[int, int]
    report: str


@dataclass
class _Job:
    """A group of chains to run, in this process or in a worker."""

    posterior: Posterior
    sampler: Sampler
    cell: Cell
    minibatches: Minibatches
    plan: Plan
    settings: Settings
    warm: warmup.Warmup
    previous: ChainState | None
    group: list[int]
    seeds: list[np.random.SeedSequence]

    def __call__(self, on_progress: Callable[[float], None] | None) -> _Result:
        chains = self._chains()
        checkpoint = None
        if self.settings.checkpoint is not None:
            checkpoint = Checkpoint(self.settings.checkpoint, self._fingerprint())
            checkpoint.load(chains)
        reported = -1

        def on_chunk(chains: Chains) -> None:
            nonlocal reported
            if checkpoint is not None:
                checkpoint.maybe_save(chains)
            percent = 100 * chains.progress.step // self.plan.n_steps
            if on_progress is not None and percent > reported:
                reported = percent
                on_progress(percent / 100.0)

        try:
            chains.run(on_chunk)
        except SamplingError:
            if len(self.group) == self.settings.n_chains:
                raise
        except KeyboardInterrupt:
            raise self._interrupted(chains, checkpoint) from None
        if checkpoint is not None:
            checkpoint.save(chains)
        return self._result(chains)

    def _chains(self) -> Chains:
        posterior, like = self.posterior, self.posterior.like
        rng = ChainRandom(self.seeds, str(like.device))
        if self.previous is not None:
            rng.set_state(_select(self.previous.rng, self.group))
            phi = torch.from_numpy(self.previous.phi[self.group]).to(like)
        else:
            phi = self._starts()
        kernel = None
        if self.settings.compiled is not False:
            from ._fast import find_kernel

            kernel = find_kernel(
                posterior, self.minibatches, self.sampler, self.cell,
                required=self.settings.compiled is True,
            )
        chains = Chains(
            posterior, self.sampler, self.cell.integrator, self.minibatches, self.plan, phi, rng,
            kernel=kernel, alpha=self._alpha,
        )
        if self.previous is not None:
            previous = self.previous
            chains.state = {
                name: torch.from_numpy(values[self.group].copy()).to(like.device)
                for name, values in previous.sampler.items()
            }
            chains.model_state = {
                name: torch.from_numpy(values[self.group].copy()).to(like.device)
                for name, values in previous.model.items()
            }
            chains.progress.last_eta = previous.last_eta
            chains.resume()
        return chains

    def _starts(self) -> torch.Tensor:
        """Starting positions phi of this group's chains."""
        posterior, warm, model = self.posterior, self.warm, self.posterior.model
        like, init = posterior.like, warm.init
        rngs = [np.random.default_rng(seed.spawn(1)[0]) for seed in self.seeds]
        if isinstance(init, str) and init == "gaussian" and posterior.coordinates is not None:
            level = self.plan.temperature.values(np.zeros(1, dtype=int), self.plan.n_steps)[0]
            sd = np.sqrt(level / posterior.n)
            starts = [sd * rng.standard_normal(model.n_parameters) for rng in rngs]
            return torch.from_numpy(np.stack(starts)).to(like)
        if isinstance(init, str) and init in ("map", "gaussian"):
            theta = np.tile(np.asarray(warm.center), (len(rngs), 1))
        elif isinstance(init, str):
            theta = np.stack([model.init(rng) for rng in rngs])
        else:
            theta = self._given_starts(np.asarray(init, dtype=float))
        return posterior.from_theta(torch.from_numpy(theta).to(like)).clone()

    def _given_starts(self, init: Array) -> Array:
        shape = (self.settings.n_chains, self.posterior.model.n_parameters)
        try:
            return np.array(np.broadcast_to(init, shape)[self.group])
        except ValueError:
            raise ValueError(
                f"init of shape {init.shape} is not allowed: give 'auto', 'random', 'map', "
                f"'gaussian' or an array that broadcasts to {shape}."
            ) from None

    def _alpha(self, theta: torch.Tensor) -> float:
        from .diagnostics import sampling_threshold, score_covariance

        covariance = score_covariance(self.posterior.model, self.posterior.data, theta)
        return sampling_threshold(
            covariance,
            step_size=1.0,
            n=self.posterior.n,
            batch_size=self.minibatches.size,
            root=self.warm.root,
        )

    def _fingerprint(self) -> str:
        plan = self.plan
        return fingerprint(
            type(self.posterior.model).__name__,
            {k: v for k, v in vars(self.settings).items() if k not in ("checkpoint", "verbose")},
            [plan.n_draws, plan.burn_in, plan.thinning],
            self.posterior.data,
        )

    def _interrupted(self, chains: Chains, checkpoint: Checkpoint | None) -> KeyboardInterrupt:
        where = f"interrupted at step {chains.progress.step} of {self.plan.n_steps}"
        if checkpoint is None:
            return KeyboardInterrupt(
                f"{where}; nothing was kept. Set checkpoint='file.npz' to make fits resumable."
            )
        checkpoint.save_snapshot()
        return KeyboardInterrupt(
            f"{where}; call fit again with the same data and parameters to go on from "
            f"{str(self.settings.checkpoint)!r}."
        )

    def _result(self, chains: Chains) -> _Result:
        kept = chains.progress.kept
        alive = chains.alive
        state = chains.state or {}
        statistics = {
            name: np.asarray(values.double().cpu())
            for name, values in self.sampler.statistics(state).items()
        }
        end = ChainState(
            chains.phi.cpu().numpy().copy(),
            {name: np.asarray(t.cpu()).copy() for name, t in state.items()},
            {name: np.asarray(t.cpu()).copy() for name, t in chains.model_state.items()},
            chains.rng.get_state(),
            chains.progress.last_eta,
            self.warm,
        )
        draws = chains.draws if len(alive) == len(chains.draws) else chains.draws[alive]
        report = chains.divergence_report() if chains.progress.diverged else ""
        return _Result(
            draws[:, :kept], chains.weights[:kept], statistics, end, chains.progress.diverged, report
        )


def _select(rng: dict[str, Any], group: list[int]) -> dict[str, Any]:
    return {"noise": rng["noise"][group], "rows": [rng["rows"][c] for c in group]}


def _combine(
    results: list[_Result],
    posterior: Posterior,
    plan: Plan,
    minibatches: Minibatches,
    warm: warmup.Warmup,
    temperature: float,
) -> Run:
    alive = [result for result in results if len(result.draws)]
    reports = [result.report for result in results if result.report]
    if not alive:
        raise SamplingError(" ".join(reports))
    if alive[0].draws.shape[1] == 0:
        raise SamplingError(
            f"no draw was kept in {plan.n_steps} steps: the sampling threshold was not reached; give "
            "a smaller step_size, more steps or a larger threshold."
        )
    for report in reports:
        warnings.warn(report + " The other chains were kept.", SamplingWarning, stacklevel=4)
    first = alive[0]

    def stacked(pick: Callable[[_Result], Array]) -> Array:
        parts = [pick(result) for result in alive]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    state = ChainState(
        stacked(lambda r: r.state.phi),
        {k: stacked(lambda r, k=k: r.state.sampler[k]) for k in first.state.sampler},  # type: ignore[misc]
        {k: stacked(lambda r, k=k: r.state.model[k]) for k in first.state.model},  # type: ignore[misc]
        {
            "noise": stacked(lambda r: r.state.rng["noise"]),
            "rows": [bits for result in alive for bits in result.state.rng["rows"]],
        },
        first.state.last_eta,
        warm,
    )
    weighted = plan.step_size.weights_draws and not isinstance(plan.thinning, MixingDistance)
    return Run(
        stacked(lambda r: r.draws),
        first.weights if weighted else None,
        {k: stacked(lambda r, k=k: r.statistics[k]) for k in first.statistics},  # type: ignore[misc]
        state,
        posterior,
        first.state.last_eta,
        minibatches.size,
        temperature,
    )


def sample(
    target: Model | Callable[..., Any],
    n_parameters: int | None = None,
    *,
    data: Data | None = None,
    gradient_of_potential: Callable[..., Any] | None = None,
    step_size: float | Schedule = 0.1,
    sampler: str | Sampler = "sgld",
    integrator: str = "auto",
    batch_size: int | str = "auto",
    n_chains: int = 4,
    n_draws: int = 1000,
    burn_in: int = 1000,
    thinning: int | MixingDistance = 1,
    temperature: float | Schedule = 1.0,
    preconditioner: Any = None,
    gradient: str = "minibatch",
    init: Any = "random",
    shared_minibatch: bool = False,
    checkpoint: Any = None,
    device: str = "auto",
    dtype: str = "auto",
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
        ``gradient(theta, rng)`` of -log density, (n_chains, n_parameters), possibly noisy; ``rng`` has
        ``normal(*shape)`` and ``uniform(*shape)``, one stream per chain. None: autograd.
    step_size : float or Schedule, default=0.1
        eta, which multiplies the gradient of the mean potential; without data, of -log density.
    sampler, integrator : str or Sampler, str
        A cell of the table, e.g. ``"sghmc"`` and ``"baoab"``; "auto" is the sampler's plain one.
    batch_size, n_chains, n_draws, burn_in, thinning
        Rows in a minibatch; chains; draws kept of each; steps before and between them.
    temperature : float or Schedule, default=1.0
        T: the target is proportional to density^(1/T).
    preconditioner : None or array of shape (n_parameters,) or (n_parameters, n_parameters)
        Constant preconditioner M.
    gradient : {"minibatch", "control_variates", "linear_control_variates"}, default="minibatch"
        Gradient estimator, where the model offers it.
    init : "random", "map" or array, default="random"
        Starts: standard normal for a callable; an array broadcasts to (n_chains, n_parameters).
    shared_minibatch, checkpoint, device, dtype, n_jobs, random_state
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
        A parameter is not allowed.
    SamplingError
        Every chain left the finite numbers.

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
        sampler=sampler, integrator=integrator, step_size=step_size, batch_size=batch_size,
        n_chains=n_chains, n_draws=n_draws, burn_in=burn_in, thinning=thinning,
        temperature=temperature, preconditioner=preconditioner, gradient=gradient, init=init,
        shared_minibatch=shared_minibatch, compiled=False, checkpoint=checkpoint, device=device,
        dtype=dtype, n_jobs=n_jobs, random_state=random_state,
    )
    settings.check()
    if isinstance(target, Model):
        model = target
    else:
        model = DensityModel(target, check_int("n_parameters", n_parameters), gradient_of_potential)
    where = settings.resolve_device()
    run = draw(
        model,
        Data({}, 1) if data is None else data,
        settings,
        dtype=settings.resolve_dtype(where, model.n_parameters),
        device=where,
        on_progress=on_progress,
    )
    return PosteriorSamples(model.unpack(run.draws), run.weights, run.statistics)
