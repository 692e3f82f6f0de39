"""Steps of ``MCLMC`` on perceptrons with normal priors, with the sampler's symbols and formulas.

All steps between two changes of the target are one call. Sums over parameters, and what is computed
from them, are in double precision.
"""

from __future__ import annotations

import numpy as np

from . import copy, jit, part
from ._addresses import called
from .perceptron import gradient
from .rows_of_steps import of_step

add_gradient = called(gradient)

#: smallest ``|g|`` by which a turn divides
LEAST = np.finfo(np.float32).tiny


@part
def potential(theta, rate, per_n, g):
    """Write ``per_n`` times the gradient of a normal prior to g; return its potential."""
    total = 0.0
    for i in range(len(theta)):
        slope = rate[i] * theta[i]
        g[i] = per_n * slope
        total += np.float64(slope * theta[i])
    return 0.5 * total


@part
def turn(u, g, scaling, epsilon, factor):
    """Turn u as ``MCLMC.turn`` does; return what the kinetic energy grows by, over d - 1."""
    along, square = 0.0, 0.0
    for i in range(len(u)):
        scaled = scaling[i] * g[i]
        along += np.float64(u[i] * scaled)
        square += np.float64(scaled) * np.float64(scaled)
    size = max(np.sqrt(square), LEAST)
    slow = factor * epsilon * size
    b = np.expm1(slow)
    twice_bw = b + b * along / size
    q = twice_bw + 0.5 * twice_bw * b  # minus 1
    kept = np.float32((1.0 + b) / (1.0 + q))
    added = np.float32((b + 0.5 * b * twice_bw) / (size * (1.0 + q)))
    for i in range(len(u)):
        u[i] = kept * u[i] + added * (scaling[i] * g[i])
    return np.log1p(q) - slow


@part
def turn_by_chance(u, xi, share):
    """Add normals with the squared length e^share - 1 to u, and let its length be 1 again."""
    nu = np.float32(np.sqrt(np.expm1(share) / len(u)))
    square = 0.0
    for i in range(len(u)):
        u[i] += nu * xi[i]
        square += np.float64(u[i]) * np.float64(u[i])
    shorter = np.float32(1.0 / np.sqrt(square))
    for i in range(len(u)):
        u[i] *= shorter


@part
def undo(theta, g, u, before, before_g, xi):
    """Put a chain back, with a new direction."""
    square = 0.0
    for i in range(len(u)):
        theta[i], g[i] = before[i], before_g[i]
        square += np.float64(xi[i]) * np.float64(xi[i])
    shorter = np.float32(1.0 / np.sqrt(square))
    for i in range(len(u)):
        u[i] = xi[i] * shorter


@part
def learn_scaling(g, before, noise, scaling, share, law):
    """Learn the noise of two gradients at one position, as ``MCLMC._learn_scaling`` does."""
    weight, total = np.float32(share), 0.0
    for i in range(len(g)):
        change = g[i] - before[i]
        noise[i] += weight * (change * change - noise[i])
        total += np.float64(noise[i])
    even, least = np.float32(max(total / len(g), LEAST)), np.float32(law.least_noise)
    square = 0.0
    for i in range(len(g)):
        scaling[i] = np.float32(1.0) / np.sqrt(noise[i] / even + least)
        square += np.float64(scaling[i]) * np.float64(scaling[i])
    shorter = np.float32(1.0 / np.sqrt(square / len(g)))
    for i in range(len(g)):
        scaling[i] *= shorter


@part
def measure(theta, mean, square, scaling, share):
    """Let averages of recent positions and their squared distances learn theta; return L^2."""
    weight, total = np.float32(share), 0.0
    for i in range(len(theta)):
        away = theta[i] - mean[i]
        mean[i] += weight * away
        square[i] += weight * (away * (theta[i] - mean[i]) - square[i])
        total += np.float64(square[i] / (scaling[i] * scaling[i]))
    return total


@part
def next_share(count, c, law):
    """Weight of the next value in a chain's average of recent ones; its count grows by it."""
    count[c] += 1.0
    return law.recent / (count[c] + law.recent - 1.0)


@part
def adapted(ratio, trust, progress, law):
    """The factor of the scale, and the new trust, as ``_tuning.adapt`` has them."""
    ratio = min(max(ratio, law.least_ratio), law.largest_ratio)
    weight = np.exp(-0.5 * (np.log(ratio) / (6.0 * law.trusted)) ** 2)
    memory = law.first_memory + (law.memory - law.first_memory) * progress
    before = trust * (1.0 - 1.0 / memory)
    factor = ((before + weight * ratio) / (before + weight)) ** (-1.0 / 6.0)
    return min(factor, law.growth), before + (weight if factor <= law.growth else 0.0)


@jit
def take(likelihood, given, vectors, numbers, prior, run, scheme, law, progress, xi, positions):
    """Take steps of all chains, in place, and write theta after each of them to ``positions``.

    ``likelihood`` is the address of the gradient's code for arguments as those ``given``: theta,
    its rows, network, images and lookups, the sampler's g, and room for sums. The rows have a first
    axis more, of steps; its length is 1 if all take the same ones.
    ``vectors`` (chains, parameters) and ``numbers`` (chains,) are the rest of the sampler's state;
    those that it does not have are empty, and the scaling is one. ``prior`` are the rates, (chains,
    parameters), and the constants of the potential, (chains,). ``run`` has N, eta, the temperature,
    whether the steps are tuned, the energy error to aim at last, whether g and the energy are of
    this target already, and whether all steps have the same rows. The ``scheme`` has the turns, and
    the drifts between them. The ``law`` is ``TUNING``.
    """
    theta, g, total = given[0], given[-2], given[-1]
    u, mean, square, noise, scaling = vectors
    energy, scale, trust, caution, steps, undone, errors, usual, length, k, batches = numbers
    rates, constant = prior
    n, eta, temperature, tuning, last_aim, known, same_rows = run
    turns, drifts = scheme
    n_chains, d = theta.shape
    unit = np.sqrt(eta * temperature * d / n)
    per_n = np.float32(1.0 / n)
    before, before_g, before_energy = np.empty_like(theta), np.empty_like(g), np.empty(n_chains)
    epsilon, turned = np.empty(n_chains), np.empty(n_chains)
    for t in range(len(progress)):
        aim = last_aim * law.first_error ** (1.0 - progress[t])
        its = of_step(given, t)
        for stage in range(len(turns)):
            if stage or not known:
                if stage == 0 and len(noise):
                    for c in range(n_chains):
                        copy(g[c], before_g[c])
                for c in range(n_chains):
                    if stage:
                        along = np.float32(drifts[stage - 1] * epsilon[c])
                        for i in range(d):
                            theta[c, i] += along * (scaling[c, i] * u[c, i])
                    energy[c] = constant[c] + potential(theta[c], rates[c], per_n, g[c])
                    total[c] = 0.0
                add_gradient(likelihood, its)
                for c in range(n_chains):
                    energy[c] -= n * total[c]
            for c in range(n_chains):
                if stage == 0:
                    if len(noise) and not known:
                        # the other one is at the same position, by the last step's rows
                        share = next_share(batches, c, law)
                        learn_scaling(g[c], before_g[c], noise[c], scaling[c], share, law)
                    copy(theta[c], before[c])
                    copy(g[c], before_g[c])
                    before_energy[c] = energy[c]
                    epsilon[c], turned[c] = scale[c] * caution[c] * unit, 0.0
                factor = -turns[stage] * n / (temperature * (d - 1))
                turned[c] += turn(u[c], g[c], scaling[c], epsilon[c], factor)
        known = same_rows
        for c in range(n_chains):
            change = (energy[c] - before_energy[c]) / temperature + (d - 1) * turned[c]
            error = change * change / d
            bound = law.huge * law.huge * aim
            if len(usual):
                bound = law.huge * law.huge * max(usual[c], aim)
                most = law.huge * usual[c]
                learnt = most if np.isnan(error) else min(error, most)
                usual[c] += (learnt - usual[c]) / law.memory
            bad = not error <= bound
            steps[c] += 1.0
            if bad:
                undo(theta[c], g[c], u[c], before[c], before_g[c], xi[c, t])
                energy[c] = before_energy[c]
                undone[c] += 1.0
            else:
                errors[c] += error
            if tuning:
                ratio = law.largest_ratio if bad else error / (caution[c] ** 6 * aim)
                factor, trust[c] = adapted(ratio, trust[c], progress[t], law)
                scale[c] *= factor
            caution[c] = min(caution[c] * (0.5 if bad else law.recovery), 1.0)
            if len(k):
                spread = measure(theta[c], mean[c], square[c], scaling[c], next_share(k, c, law))
                length[c] = max(law.length * np.sqrt(spread), law.least_steps * epsilon[c])
            share = min(2.0 * epsilon[c] / length[c], law.forgotten)
            turn_by_chance(u[c], xi[c, t], share)
            copy(theta[c], positions[c, t])
