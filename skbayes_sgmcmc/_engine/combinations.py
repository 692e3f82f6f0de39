"""Parameters, models and samplers that are not allowed together, and the errors that say so."""

from __future__ import annotations

import numpy as np

from .._exceptions import not_allowed
from .._validation import BOUNDS, check_choice, is_auto
from ..models._protocol import Model
from ..models.tuning.base import Request, preconditions
from ..samplers import Sampler
from ..schedules import Schedule
from .lengths import Plan
from .settings import STARTS
from .target import GRADIENTS


def check_pair(sampler: Sampler, model: Model, temperature: float) -> None:
    """Refuse a sampler that cannot sample this model at this temperature."""
    name, kind = type(sampler).__name__, type(model).__name__
    refused = f"sampler={name} is not allowed"
    if (sampler.full_data or not sampler.cools) and temperature == 0.0:
        raise not_allowed(f"temperature=0 is not allowed with {name}: give a positive number.")
    if sampler.full_data and model.after_step is not None:
        raise not_allowed(
            f"{refused} with {kind}, because its latent variables change at every step: give "
            "another sampler."
        )
    if sampler.full_data and not has_density(model):
        raise not_allowed(
            f"{refused}: {kind} has no density, only estimates of its gradient; give another "
            "sampler."
        )
    if sampler.needs_potential and not has_density(model):
        raise not_allowed(
            f"{refused} with {kind}, because this model has no density given its latent variables: "
            "give another sampler."
        )
    if sampler.compares_gradients() and model.estimates:
        raise not_allowed(
            f"sampler={sampler!r} is not allowed with {kind}: it compares two gradients of the "
            "same rows, and those of this model are random estimates; give "
            f"sampler={type(sampler)()!r}."
        )
    if sampler.compares_rows() and (model.estimates or not model.sums_rows):
        raise not_allowed(
            f"sampler={sampler!r} is not allowed with {kind}: it compares the gradients of single "
            "rows, which are not known of this model; give gradient_variance='estimate'."
        )
    if model.n_parameters < sampler.least_parameters:
        raise not_allowed(
            f"{refused} with {model.n_parameters} parameter: its dynamics need at least "
            f"{sampler.least_parameters}, because a direction on a line cannot turn; give another "
            "sampler, such as 'sghmc'."
        )
    if model.project is not None and not (sampler.needs_metric or sampler.full_data):
        raise not_allowed(
            f"{refused} with {kind}, because its parameters are restricted to a part of the space: "
            "give sampler='rsgld'."
        )
    if sampler.needs_conditionals and not model.conjugate:
        raise not_allowed(
            f"{refused}: {kind} has no conditional distributions to draw from with this likelihood "
            "and prior; give sampler='sgld' or another one."
        )
    if sampler.needs_metric and model.metric is None:
        raise not_allowed(f"{refused}: {kind} has no metric; give another sampler.")


def has_density(model: Model) -> bool:
    """Whether the model has a density, given its latent variables, not only gradients."""
    kept = type(model).prior_potential is Model.prior_potential
    return not model.estimates and not (model.after_step is not None and kept)


def check_request(request: Request, model: Model) -> None:
    """Raise ``ValueError`` if a parameter or a combination of parameters is not allowed."""
    settings = request.settings
    gradient, init, preconditioner = settings.gradient, settings.init, settings.preconditioner
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
    if request.more_rows and gradient not in ("auto", "minibatch"):
        raise not_allowed(
            f"gradient={gradient!r} is not allowed in partial_fit, because control variates need "
            "all rows: give gradient='minibatch' or 'auto'."
        )


def _check_no_steps(request: Request) -> None:
    """Refuse parameters of steps for a sampler that takes none."""
    name = type(request.sampler).__name__
    if request.more_rows:
        raise not_allowed(
            f"sampler={name} is not allowed in partial_fit, because its draws need all rows: give "
            "sampler='sgld'."
        )
    if not request.settings.auto:
        raise not_allowed(
            f"a number as step_size is not allowed with {name}, which takes no steps: give "
            "step_size='auto'."
        )
    for parameter in ("gradient", "preconditioner", "batch_size"):
        value = getattr(request.settings, parameter)
        if value is not None and not is_auto(value):
            raise not_allowed(
                f"{parameter}={value!r} is not allowed with {name}, which takes no steps: give "
                f"{parameter}='auto'."
            )


def check_plan(plan: Plan, sampler: Sampler, *, step_known: bool) -> None:
    """Refuse a run of too many steps, or with schedules that leave the allowed range.

    ``step_known`` means that the sampler has found its step size in an earlier run.
    """
    if plan.n_steps > BOUNDS.steps:
        raise not_allowed(
            f"n_draws={plan.n_draws!r} is not allowed with thinning={plan.thinning!r} and "
            f"burn_in={plan.burn_in!r}: that takes {plan.n_steps:.3g} steps, more than "
            f"{BOUNDS.steps:.0e}; give smaller numbers, or scale the features."
        )
    if plan.burn_in >= plan.n_steps:
        raise not_allowed(
            f"burn_in={plan.burn_in!r} is not allowed with thinning={plan.thinning!r}, whose "
            f"n_steps={plan.n_steps} are the steps of the whole run, so that none is left for "
            "draws: give a smaller burn_in, or a larger n_steps."
        )
    _check_range("step_size", plan.step_size, plan)
    _check_range("temperature", plan.temperature, plan)
    if plan.auto and plan.burn_in == 0 and sampler.finds_step and not step_known:
        raise not_allowed(
            f"burn_in=0 is not allowed with step_size='auto' and {type(sampler).__name__}, which "
            "finds its step size in the burn-in: give burn_in='auto', or step_size a number."
        )
    if (sampler.full_data or not sampler.cools) and plan.coldest == 0.0:
        raise not_allowed(
            f"temperature 0 is not allowed with sampler={type(sampler).__name__}, and the "
            "schedules of this run reach it: give a temperature that stays positive, and a "
            "schedule of step_size without exploration."
        )


def _check_range(name: str, schedule: Schedule, plan: Plan) -> None:
    """Refuse a schedule with values, over the run, that chains can't compute with."""
    n_steps = plan.n_steps
    with np.errstate(over="ignore"):
        values = schedule.values(plan.grid, n_steps)
    low, high = float(values.min()), float(values.max())
    least, most = BOUNDS.smallest_step, BOUNDS.largest_step
    if not high <= most or (low < least and (low != 0.0 or name == "step_size")):
        raise not_allowed(
            f"{name}={schedule!r} is not allowed: over {n_steps} steps its values are between "
            f"{low:g} and {high:g}; they must stay between {least:g} and {most:g}."
        )
