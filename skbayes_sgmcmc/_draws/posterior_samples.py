"""Posterior draws as named NumPy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import chain
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

import numpy as np

from .._arrays import Array
from .._exceptions import explained, not_allowed
from .._limits import LIMITS
from .._table_columns import of_tensor
from .._validation import BOUNDS, check_int, check_random_state, check_real, check_unless
from .storage import decode

Args = TypeVarTuple("Args")
Found = TypeVar("Found")


def names_of(block: str, shape: tuple[int, ...]) -> list[str]:
    """Names of the coordinates of a block of draws: "weight[0, 1]", or "scale" of a number."""
    places = (", ".join(map(str, index)) for index in np.ndindex(shape))
    return [f"{block}[{place}]" if place else block for place in places]


def unique_names(
    shapes: Mapping[str, tuple[int, ...]], labels: Mapping[str, Sequence[str]]
) -> list[str]:
    """Given names of coordinates, or others; "block[name]" of what several blocks have."""
    names = {block: labels.get(block) or names_of(block, shapes[block]) for block in shapes}
    counts = Counter(chain.from_iterable(names.values()))
    return [
        f"{block}[{name}]" if counts[name] > 1 and name != block else name
        for block, own in names.items()
        for name in own
    ]


class Seen:
    """How many draws were seen when a run was looked at last, while their number grows."""

    def __init__(self) -> None:
        self.n_draws = 0
        self.first: Any = None

    def before(self, *blocks: Array) -> int:
        """Number of these draws (chains, draws, ...) that were seen before; all of them are now.

        It is zero if they do not begin with the same ones: those of a chain that has diverged are
        gone, and a run that goes on, or is repeated with shorter steps, keeps none of those before.
        """
        first = np.concatenate([draws[:, :1].reshape(len(draws), -1) for draws in blocks], axis=1)
        before = self.n_draws if np.array_equal(first, self.first) else 0
        self.n_draws, self.first = blocks[0].shape[1], first
        return before


class PosteriorSamples:
    """Posterior draws of all chains, with their weights and the statistics of the run.

    Parameters
    ----------
    draws : dict of str to array of shape ``(n_chains, n_draws, *shape)``
        Draws by name. ``uint16`` arrays hold the bits of bfloat16 numbers, and are read as float32.
    weights : array of shape (n_draws,) or None, default=None
        Weights of the draws in averages, the same for all chains. With a decaying step size they
        are the step sizes. None means equal weights.
    statistics : dict of str to array of shape (n_chains,), or None, default=None
        Statistics of each chain, e.g. ``"acceptance_rate"``.

    Attributes
    ----------
    n_chains : int
        Number of chains.
    n_draws : int
        Number of draws of each chain.
    shapes : dict of str to tuple
        Shape of one draw, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import PosteriorSamples
    >>> posterior = PosteriorSamples({"theta": np.arange(6.0).reshape(2, 3, 1)})
    >>> posterior.mean("theta")
    array([2.5])
    >>> posterior.sample(4, random_state=0)["theta"].shape
    (4, 1)
    """

    def __init__(
        self,
        draws: Mapping[str, Array],
        weights: Array | None = None,
        statistics: Mapping[str, Array] | None = None,
    ):
        self.draws = {
            name: values if isinstance(values, np.ndarray) else np.asarray(of_tensor(values))
            for name, values in draws.items()
        }
        shapes = {name: values.shape for name, values in self.draws.items()}
        if len({shape[:2] for shape in shapes.values()}) != 1 or min(map(len, shapes.values())) < 2:
            raise not_allowed(
                f"draws of the shapes {shapes} is not allowed: give one or more arrays of shape "
                "(n_chains, n_draws, ...), the same two numbers for all."
            )
        self.weights = None if weights is None else np.asarray(of_tensor(weights))
        if self.weights is not None and not self._are_weights(self.weights):
            raise not_allowed(
                f"weights={weights!r} is not allowed: give a nonnegative number for each of the "
                f"{self.n_draws} draws of a chain, not all of them zero, or None."
            )
        self.statistics = dict(statistics or {})

    def _are_weights(self, weights: Array) -> bool:
        good = weights.shape == (self.n_draws,) and bool(np.isfinite(weights).all())
        return good and bool((weights >= 0.0).all()) and weights.sum() > 0.0

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {shape}" for name, shape in self.shapes.items())
        sizes = f"{self.n_chains} chains x {self.n_draws} draws"
        return f"{type(self).__name__}({sizes}, {{{shapes}}})"

    def __getstate__(self) -> dict[str, Any]:
        # draws that are on disk are embedded in files as plain arrays, which skops can read, too
        return {name: _embedded(held) for name, held in vars(self).items()}

    def __getitem__(self, name: str) -> Array:
        return decode(self._stored(name))

    # as in a dict; without these, Python would ask for the items 0, 1, ...
    def __iter__(self) -> Iterator[str]:
        return iter(self.draws)

    def __contains__(self, name: object) -> bool:
        return name in self.draws

    @property
    def n_chains(self) -> int:
        return int(next(iter(self.draws.values())).shape[0])

    @property
    def n_draws(self) -> int:
        return int(next(iter(self.draws.values())).shape[1])

    @property
    def n_pooled(self) -> int:
        """Number of draws of all chains."""
        return self.n_chains * self.n_draws

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of one draw, by name."""
        return {name: values.shape[2:] for name, values in self.draws.items()}

    def pooled(self, name: str) -> Array:
        """Draws of all chains of one name, shape ``(n_chains * n_draws, *shape)``."""
        return self.select(name, slice(None))

    def select(self, name: str, draws: Any) -> Array:
        """Some of the pooled draws of one name, selected by an index array or a slice."""
        values, n_draws = self._stored(name), self.n_draws
        if len(values) == 1 or values.strides[0] == n_draws * values.strides[1]:  # without a copy
            return decode(values.reshape(-1, *values.shape[2:])[draws])
        return decode(values[np.divmod(np.arange(self.n_pooled)[draws], n_draws)])

    def _stored(self, name: str) -> Array:
        if name not in self.draws:
            raise explained(
                KeyError(
                    f"{name!r} is not the name of any draws: {', '.join(self.draws)} are. If "
                    "summary() of the estimator shows it, then sample_posterior() has its draws."
                )
            )
        # read-only: arithmetic in place would change what the estimator predicts
        held = self.draws[name].view()
        held.flags.writeable = False
        return held

    def pooled_weights(self) -> Array | None:
        """Normalised weights of the pooled draws, or None if they are equal."""
        if self.weights is None:
            return None
        tiled = np.tile(self.weights, self.n_chains)
        return np.asarray(tiled / tiled.sum())

    def evened(self) -> Any:
        """Which draws of a chain stand for the weighted ones in plain averages: an index of them.

        Systematic resampling repeats or leaves out draws, in their order. A weight is the time that
        a draw stands for, so that the chain then moves at one speed.
        """
        if self.weights is None:
            return slice(None)
        cumulative = np.cumsum(self.weights)
        places = (np.arange(self.n_draws) + 0.5) / self.n_draws
        return np.searchsorted(cumulative, places * cumulative[-1])

    def spaced(self, n_draws: int | None = None) -> tuple[Array, Array]:
        """Indices and normalised weights of ``n_draws`` evenly spaced pooled draws; None: all."""
        total, weights = self.n_pooled, self.pooled_weights()
        n_draws = total if n_draws is None else n_draws
        chosen = (2 * np.arange(n_draws) + 1) * total // (2 * n_draws)
        kept = np.ones(n_draws) if weights is None else weights[chosen]
        return chosen, kept / kept.sum()

    def mean(self, name: str) -> Array:
        """Weighted posterior mean, in float64."""
        pooled, weights = self.pooled(name), self.pooled_weights()
        if weights is None:  # this does not copy float32 draws to float64
            return np.asarray(pooled.mean(axis=0, dtype=np.float64))
        return np.asarray(np.tensordot(weights, pooled, axes=1))

    def std(self, name: str) -> Array:
        """Weighted posterior standard deviation, in float64."""
        pooled, mean, weights = self.pooled(name), self.mean(name), self.pooled_weights()
        flat, found = pooled.reshape(len(pooled), -1), np.empty(mean.size)
        for some in LIMITS.blocks(mean.size, len(pooled)):
            away = flat[:, some] - mean.reshape(-1)[some]
            largest = np.abs(away).max(initial=0.0)
            unit = largest if largest > BOUNDS.largest_data else 1.0  # squares would overflow
            squares = np.average((away / unit) ** 2, axis=0, weights=weights)
            found[some] = unit * np.sqrt(squares)
        return found.reshape(mean.shape)

    def quantile(self, name: str, q: Any) -> Array:
        """Weighted posterior quantiles, along a new first axis."""
        for each in np.ravel(q).tolist():
            check_real("q", each, low=0.0, high=1.0, closed="both")
        return quantiles(self.pooled(name), q, self.pooled_weights())

    def to_arviz(self) -> Any:
        """Convert the draws to arviz's data structure; see :func:`skbayes_sgmcmc.to_arviz`."""
        from .._export.arviz import to_arviz

        return to_arviz(self)

    def sample(
        self, n_samples: int | None = None, random_state: int | np.random.RandomState | None = None
    ) -> dict[str, Array]:
        """All pooled draws, read-only, or ``n_samples`` of them, with replacement by weight."""
        chosen = self.chosen(n_samples, random_state)
        return {name: self.select(name, chosen) for name in self.draws}

    def chosen(self, n_samples: int | None = None, random_state: Any = None) -> Any:
        """Which of the pooled draws :meth:`sample` returns: all as a slice, or some by index."""
        total = self.n_pooled
        if n_samples is None:
            return slice(0, total)
        check_unless(None, check_int, "n_samples", n_samples)
        rng = check_random_state(random_state)
        return rng.choice(total, size=n_samples, replace=True, p=self.pooled_weights())


def quantiles(values: Array, q: Any, weights: Array | None) -> Array:
    """Quantiles over the first axis, of the weights if there are some, along a new first axis."""
    if weights is None:
        return np.quantile(values, q, axis=0)
    each = np.broadcast_to(weights.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    return np.quantile(values, q, axis=0, weights=each, method="inverted_cdf")


def kept_with_posterior(
    function: Callable[[PosteriorSamples, *Args], Found],
) -> Callable[[PosteriorSamples, *Args], Found]:
    """Keep what a function of a posterior returns as long as the posterior is, not in its files."""
    kept: WeakKeyDictionary[PosteriorSamples, dict[Any, Found]] = WeakKeyDictionary()

    @wraps(function)
    def known(posterior: PosteriorSamples, *args: *Args) -> Found:
        found = kept.setdefault(posterior, {})
        if args not in found:
            found[args] = function(posterior, *args)
        return found[args]

    return known


def _embedded(held: Any) -> Any:
    """An attribute with arrays that are in memory, or look so."""
    if not isinstance(held, dict):
        return held
    return {k: np.asarray(v) if isinstance(v, np.memmap) else v for k, v in held.items()}
