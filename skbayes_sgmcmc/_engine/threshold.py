"""The sampling threshold (Welling & Teh 2011, section 4.1) of a run."""

from __future__ import annotations

import math

import numpy as np
import torch

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._limits import LIMITS
from .._metric import State
from .lengths import Plan
from .problem import ChainState
from .recipe import Recipe
from .target import Evaluator

#: fewest minibatches that the noise is measured by, however many parameters there are
LEAST = 16


def gradient_noise(recipe: Recipe, theta: torch.Tensor, state: State, eta: float) -> Array:
    """Variances of the gradient g at theta (1, n_parameters), in the coordinates of the noise.

    The largest one of any direction, and the smallest and the largest one of a coordinate. They
    come from pairs of rows. The direction comes from one half of the pairs, and its variance from
    the other: the largest variance in the same half would grow with the number of parameters.
    """
    target, minibatches, n_parameters = recipe.target, recipe.minibatches, theta.shape[1]
    n, n_rows = minibatches.size, minibatches.data.n_rows
    if minibatches.full:
        return np.zeros(3)
    pair = min(2, n_rows - 1)
    count = min(LIMITS.sampled_rows // 2, max(LEAST, LIMITS.cache_numbers // n_parameters))
    if minibatches.data.lazy:  # each row is fetched on its own, and may take long
        count = LEAST
    pairs = minibatches.smaller(pair)
    seed, device = np.random.SeedSequence(0), str(theta.device)
    rng = ChainRandom([seed], device)
    states = {name: tensor.repeat_interleave(count, 0) for name, tensor in state.items()}
    each = ChainRandom(seed.spawn(count), device) if target.model.estimates else rng
    evaluator = Evaluator(target, pairs, each, states, split=False)
    # the steps of one chain become the chains of one step
    index = pairs.indices(count, rng).swapaxes(0, 1)
    evaluator.batch = next(pairs.chunk(index, 1, rng))
    with torch.no_grad():
        g = evaluator.gradient(target.from_theta(theta).repeat(count, 1))
        mean = g.mean(0)
        share = pair / n * (n_rows - n) / (n_rows - pair) * count / (count - 1.0)
        away = moved = g.sub_(mean).mul_(math.sqrt(share))
        if recipe.sampler.uses_metric(target.model.metric):
            moved = target.model.metric(theta.repeat(count, 1)).times(away)
        # by a preconditioner of the sampler's own, for the mean square that it will see
        square = (mean.square() + away.square().mean(0)).double().cpu().numpy()
        curvature = eta * target.model.prior_curvature() / target.n
        G = recipe.sampler.own_preconditioner(square, curvature)
        if G is not None:
            moved = moved * torch.from_numpy(G).to(moved)
        coordinates = (away * moved).mean(0)
        # gradients may be too large for a copy: products of them are all that directions need
        plain, scaled = ((each @ away.t()).double().cpu().numpy() for each in (away, moved))
    weights = np.linalg.eigh(np.nan_to_num(scaled[::2, ::2]))[1][:, -1]
    length = max(float(weights @ plain[::2, ::2] @ weights), np.finfo(float).tiny)
    along = (plain[1::2, ::2] @ weights) @ (scaled[1::2, ::2] @ weights)
    worst = along / length / (count // 2)
    return np.array([worst, float(coordinates.min()), float(coordinates.max())])


def alpha(
    recipe: Recipe, temperature: float, theta: torch.Tensor, state: State, eta: float
) -> float:
    """alpha_t at one position (1, n_parameters) of a chain, for steps eta."""
    worst = float(gradient_noise(recipe, theta, state, eta)[0])
    injected = recipe.sampler.injected(eta, recipe.target.n) * max(temperature, 1e-12)
    return eta * recipe.target.n * worst / (2.0 * max(injected, 1e-300))


def threshold_trace(
    recipe: Recipe, plan: Plan, end: ChainState, step_size: float, n_steps: int
) -> dict[str, Array] | None:
    """The noise of up to 50 steps, measured at the last positions of up to five chains.

    None if the sampler injects no noise like that of SGLD, or if gradients are no sums over rows.
    Estimates of gradients, as those of topic models, have the noise of the estimate, too.
    """
    target, sampler, like = recipe.target, recipe.sampler, recipe.target.like
    if not (sampler.injects and target.model.sums_rows):
        return None
    step = np.unique(np.geomspace(1, n_steps, 50).astype(int))
    at = step - 1, plan.n_steps
    eta = plan.step_size.values(*at) * (step_size / end.last_eta)
    cold = plan.step_size.exploring(*at) | (step <= plan.descent)
    temperature = np.where(cold, 0.0, plan.temperature.values(*at))
    found = []
    n_positions = 1 if target.data.lazy else 5
    for c in np.unique(np.linspace(0, len(end.theta) - 1, n_positions).astype(int)):
        state = target.tensors(end.model, [c])
        theta = torch.from_numpy(end.theta[[c]]).to(like)
        found.append(gradient_noise(recipe, theta, target.model.active(state), step_size))
    noise = eta[:, None] ** 2 * np.median(found, axis=0)
    share = np.array([sampler.injected(float(one), target.n) for one in eta])
    injected = 2.0 * eta * temperature / target.n * share
    ratio = np.where(noise[:, 0] > 0.0, np.inf, 0.0)
    np.divide(noise[:, 0], injected, out=ratio, where=injected > 0.0)
    return {
        "step": step,
        "noise_ratio": ratio,
        "gradient_noise": noise[:, 1:],
        "injected_noise": injected,
    }
