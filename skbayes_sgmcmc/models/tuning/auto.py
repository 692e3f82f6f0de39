"""The numbers that "auto" stands on: minibatches, samplers and step sizes of a model.

All of them in one object, ``AUTO``. ``base.py`` and ``gaussian.py`` say what is made of
them; docs/project/network_defaults.md and sampler_defaults.md, what else was tried.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AutoRules:
    """Numbers for all models, networks and posteriors that are about normal."""

    # All models -----------------------------------------------------------------------------------

    #: data of at most this many numbers are used whole at every step
    whole_numbers: int = 2**15
    #: number of rows in a minibatch if nothing better is known, and of streams
    batch_size: int = 100

    # Networks (docs/project/network_defaults.md, docs/results/tabular.md and many_rows.md) --------

    #: most parameters for ``sampler="auto"`` to be MCLMC for any number of rows; and for
    #: tables of many rows, where pSGLD stops far from what the rows say. In regression, where it
    #: does so with few rows too, still larger networks have MCLMC up to these rows times parameters
    #: (docs/results/wide.md), and minibatches beyond them, up to these parameters: chains of pSGLD
    #: leave the posterior there, for predictions of hundreds of sds of the targets
    #: (docs/project/network_defaults.md)
    small_network: int = 2500
    large_network: int = 10_000
    steep_work: int = 2**26
    huge_network: int = 2**17
    #: rows for each parameter that make many rows: their minibatches say as much as all of them,
    #: and rows times parameters that do so for any small network, and in regression
    many_rows: int = 8
    many_work: int = 2**24
    #: rows times parameters that are never many, at most: chains with all rows take all of their
    #: steps; beyond it they take fewer, such that the time grows like its root
    full_work: float = 2.5e6
    #: MCLMC's number of rows in a minibatch, and its smallest burn-in, if there are many
    energy_batch: int = 500
    energy_burn_in: int = 5000

    # Posteriors that are about normal (docs/results/posterior_truth.md) ---------------------------

    #: ratio alpha_t of gradient noise to injected noise for which the minibatch is chosen; the
    #: variance in the worst direction is inflated by at most this fraction
    noise_ratio: float = 0.1
    #: number of draws at which the noise is measured, and the share of them that has less noise
    #: than what is taken for typical
    noise_draws: int = 16
    typical_noise: float = 0.75
    #: typical curvature of the whitened posterior, at most, if the table's step sizes are not
    #: reduced; sds are then right to about 5% (measured on wine, breast_cancer and digits)
    curvature: float = 2.0
    #: most parameters whose curvature is computed whole instead of by products with vectors: fits
    #: of 200 rows and 6 parameters take 5% less time
    whole_curvature: int = 16
    #: steps of the search for directions of another curvature, where the preconditioner is
    #: otherwise diagonal, and so the most that are found; numbers that it may hold
    few_directions: int = 40
    few_numbers: int = 2**24
    #: numbers of all rows, for each parameter, up to which wide data are used whole: five of a
    #: minibatch's steps take the time of one with all rows, and as many are needed where the
    #: preconditioner is diagonal (docs/project/automatic_settings.md)
    whole_per_parameter: int = 2560
    #: numbers of a chain's draws with ``n_draws="auto"``, and fewest draws, of wide linear models
    drawn_numbers: int = 5 * 2**21
    least_draws: int = 250
    #: step size of samplers that precondition by themselves, or move in a model's metric, times the
    #: largest curvature that is left
    own_step: float = 0.2
    #: for these samplers, the most steps that the slowest direction may take to forget its position
    slowest: int = 1000
    #: most coefficients in the space of the rows with a learned scale that is integrated out
    integrated_scale: int = 128
    #: largest step times rows where chains move the scale: every row is a wall, the sharper the
    #: larger the scale. Of rows that know nothing of it, a step of 30 over the rows gave 0.87 of
    #: its sd and an error of 0.17 sds, and one of 7.5 none
    scaled_step: float = 8.0
    #: and most rows of chains that do so in the space of the features
    scaled_rows: int = 4000
    #: and the largest share of the coefficients that these rows may determine. Of ten classes that
    #: overlap (.87), R-hat of an integrated scale is 1.000; of digits (.36) 1.10, of 12 classes of
    #: 17 rows (.23) 1.02. From this share on, draws of an integrated scale need no more steps
    known_share: float = 0.5
    #: number of parts of ``LIMITS.part_rows`` rows, or more, that make many rows
    parts: int = 4
    #: sds from the centre that draws are expected to reach, and where a wall is still in the
    #: way; number of the worst rows that are looked at for walls
    farthest_draw: float = 4.0
    farthest_wall: float = 5.0
    worst_rows: int = 2000


#: what "auto" stands on
AUTO = AutoRules()
