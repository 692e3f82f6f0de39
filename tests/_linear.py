"""What a sampler's chain does on a Gaussian target, computed from the package's own steps.

On a quadratic potential one step of a linear sampler is z <- F z + B xi + C e: z stacks theta and
the sampler's state, xi is the injected noise and e the gradient's. The three matrices are read off
by applying the step to unit vectors (the chains of one batch), and the stationary covariance solves
S = F S F' + B B' + C Cov(e) C'. No Monte Carlo is involved, at any step size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats
import torch
from sklearn.base import clone

from skbayes_sgmcmc.samplers import DiagonalMetric, Step
from skbayes_sgmcmc.samplers.integrators import baoab, first_gradient

#: state that is held fixed to make a step linear: the thermostats' friction and pSGLD's average
FROZEN = ("a", "V")


@dataclass(frozen=True)
class Gaussian:
    """Mean potential u = theta' A theta / 2 of N data at temperature T: target N(0, (T/N) A^-1)."""

    A: np.ndarray
    n: float = 1.0
    temperature: float = 1.0
    #: covariance of the stochastic gradient g about grad u
    noise: np.ndarray | None = None

    @property
    def dim(self) -> int:
        return len(self.A)

    @property
    def covariance(self) -> np.ndarray:
        return self.temperature / self.n * np.linalg.inv(self.A)


def correlated_precision(dim: int, low: float = 0.3, high: float = 1.5, seed: int = 0):
    """A in a random basis with eigenvalues from ``low`` to ``high``; the number 1 for dim=1."""
    if dim == 1:
        return np.ones((1, 1))
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]
    return (Q * np.geomspace(low, high, dim)) @ Q.T


def constant_metric(m: np.ndarray):
    """A model's metric(theta) that is diag(m) everywhere."""
    m = torch.as_tensor(m)
    return lambda theta: DiagonalMetric(m.expand_as(theta), torch.zeros_like(theta))


@dataclass
class LinearChain:
    """z <- F z + B xi + C e for one cell of the table on one target.

    ``frozen`` holds the values (1,) or (dim,) of state that must not move; ``metric`` is the
    diagonal of a constant metric.
    """

    sampler: Any
    integrator: Any
    target: Gaussian
    eta: float
    frozen: dict[str, np.ndarray] = field(default_factory=dict)
    metric: np.ndarray | None = None

    def __post_init__(self):
        self.sampler = clone(self.sampler)
        self._kinetic: list[tuple[float, torch.Tensor]] = []
        if "a" in self.frozen:
            self.sampler.thermostat = lambda state, step, s: self._kinetic.append(
                (s, state["v"].clone())
            )
        dim = self.target.dim
        self.moving: list[str] = []
        self.moving = self._moving_state()
        size = dim * (1 + len(self.moving))
        self.F = self._apply(z=np.eye(size)).T
        kinetic_z = list(self._kinetic)
        self.B = self._apply(xi=np.eye(dim)).T
        kinetic_xi = list(self._kinetic)
        self.C = self._apply(e=np.eye(dim)).T
        self.kinetic = list(zip(kinetic_z, kinetic_xi, self._kinetic, strict=True))
        self._check_affine(size)

    def _moving_state(self) -> list[str]:
        """Names of the state tensors that steps move along with theta."""
        dim = self.target.dim
        theta = torch.ones(1, dim, dtype=torch.float64)
        step = self._step(1, torch.ones_like(theta))
        state = self.sampler.init_state(theta, step)
        if self.integrator is baoab:
            first_gradient(self.sampler, theta, state, step)
        self.sampler.end_burn_in(state)
        step.xi = 2.0 * step.xi
        before = {name: tensor.clone() for name, tensor in state.items()}
        self.integrator(self.sampler, theta, state, step)
        names = [
            name
            for name, tensor in state.items()
            if name not in FROZEN and not (name in before and tensor.equal(before[name]))
        ]
        unknown = [name for name in names if state[name].shape != theta.shape]
        assert not unknown, f"state {unknown} is not linear: say in tests/_linear.py what to do"
        return names

    def _step(self, rows: int, xi: Any = None, e: Any = None) -> Step:
        target = self.target
        A = torch.from_numpy(target.A)
        latest = None

        def gradient(theta):
            nonlocal latest
            latest = theta @ A if e is None else theta @ A + e
            return latest

        def potential(theta):
            return 0.5 * ((theta @ A) * theta).sum(1)

        return Step(
            n=target.n,
            gradient=gradient,
            likelihood=lambda: latest,
            potential=potential,
            metric=None if self.metric is None else constant_metric(self.metric),
            eta=self.eta,
            noise=self.eta * target.temperature / target.n,
            temperature=target.temperature,
            xi=torch.zeros(rows, target.dim, dtype=torch.float64) if xi is None else xi,
        )

    def _apply(self, z: Any = None, xi: Any = None, e: Any = None) -> np.ndarray:
        """One step of the package from the rows of z, with the rows of xi and e as noise."""
        dim, rows = self.target.dim, len(next(x for x in (z, xi, e) if x is not None))
        size = dim * (1 + len(self.moving))
        z = np.zeros((rows, size)) if z is None else z
        xi, e = (np.zeros((rows, dim)) if x is None else x for x in (xi, e))
        blocks = [torch.from_numpy(b.copy()) for b in np.split(z, 1 + len(self.moving), axis=1)]
        theta, state = blocks[0], dict(zip(self.moving, blocks[1:], strict=True))
        for name, value in self.frozen.items():
            state[name] = torch.from_numpy(np.tile(value, (rows, 1)))
        self._kinetic.clear()
        step = self._step(rows, torch.from_numpy(xi), torch.from_numpy(e))
        self.integrator(self.sampler, theta, state, step)
        return torch.cat([theta, *(state[name] for name in self.moving)], 1).numpy()

    def _check_affine(self, size: int) -> None:
        rng = np.random.default_rng(0)
        z, xi, e = (rng.standard_normal((3, k)) for k in (size, self.target.dim, self.target.dim))
        expected = z @ self.F.T + xi @ self.B.T + e @ self.C.T
        np.testing.assert_allclose(self._apply(z, xi, e), expected, atol=1e-10, rtol=1e-10)

    # what follows from the matrices ---------------------------------------------------------------

    @property
    def injected(self) -> np.ndarray:
        """Covariance that one step adds."""
        noise = self.target.noise
        added = self.B @ self.B.T
        return added if noise is None else added + self.C @ noise @ self.C.T

    def stationary(self) -> np.ndarray:
        """S = F S F' + injected, by doubling: S_2k = S_k + F^k S_k F^k'."""
        assert np.abs(np.linalg.eigvals(self.F)).max() < 1.0, "the chain is not stable"
        F, S = self.F, self.injected
        while np.abs(F).max() > 1e-18:
            S, F = S + F @ S @ F.T, F @ F
        return 0.5 * (S + S.T)

    def block(self, S: np.ndarray, name: str) -> np.ndarray:
        k = 0 if name == "theta" else 1 + self.moving.index(name)
        part = slice(k * self.target.dim, (k + 1) * self.target.dim)
        return S[part, part]

    @property
    def theta(self) -> np.ndarray:
        return self.block(self.stationary(), "theta")

    @property
    def v(self) -> np.ndarray:
        return self.block(self.stationary(), "v")

    def imbalance(self) -> np.ndarray:
        """Mean of what the thermostats would move by in a step, relative to eta T / N: (dim,)."""
        S, noise = self.stationary(), self.target.noise
        eta = self.eta * self.target.temperature / self.target.n
        total = np.zeros(self.target.dim)
        for (s, L), (_, M), (_, E) in self.kinetic:
            L, M, E = L.numpy(), M.numpy(), E.numpy()
            energy = ((S @ L) * L).sum(0) + (M * M).sum(0)
            if noise is not None:
                energy += ((noise @ E) * E).sum(0)
            total += s * (energy / eta - 1.0)
        return total


def balanced(sampler: Any, integrator: Any, target: Gaussian, eta: float) -> LinearChain:
    """The chain with its thermostats held where they are in balance: <v^2> as they see it is right.

    That is the chain's stationary law in the limit of heavy thermostats; how far the live
    thermostats of mass "auto" are from it is tested against :func:`live_thermostat`.
    """
    probe = Step(n=target.n, gradient=None, likelihood=None, potential=None, eta=eta)
    alpha = sampler.friction_of(probe)
    one = sampler.kinetic(torch.zeros(1, target.dim, dtype=torch.float64)).shape[1] == 1
    beta = np.zeros(target.dim)
    if target.noise is not None:
        beta = eta * target.n * np.diag(target.noise) / (2.0 * target.temperature)

    def chain(a: np.ndarray) -> LinearChain:
        return LinearChain(sampler, integrator, target, eta, {"a": a})

    def mismatch(a: np.ndarray) -> np.ndarray:
        off = chain(a).imbalance()
        return off.mean(keepdims=True) if one else off

    start = alpha + (beta.mean(keepdims=True) if one else beta)
    found = scipy.optimize.root(mismatch, start, tol=1e-12)
    assert np.abs(found.fun).max() < 1e-9, found.message
    return chain(found.x)


# a live thermostat in one dimension ---------------------------------------------------------------


def _hermite(x: np.ndarray, degree: int) -> list[np.ndarray]:
    """Orthonormal Hermite polynomials of the standard normal."""
    polynomials = [np.ones_like(x), x]
    for k in range(1, degree):
        following = (x * polynomials[-1] - np.sqrt(k) * polynomials[-2]) / np.sqrt(k + 1)
        polynomials.append(following)
    return polynomials


def live_thermostat(
    sampler: Any, integrator: Any, h: float, degree: int = 6
) -> tuple[float, float]:
    """Stationary <theta^2> and <p^2> of a thermostat's chain on N(0, 1), with T = N = 1, eta = h^2.

    The step is nonlinear here. Its transition operator P is projected on Hermite polynomials of
    (theta, p, xi) about the law of the SDE, N(0,1) x N(0,1) x N(D, 1/mu), with Gauss-Hermite
    quadrature over the start and the noise: every node is one chain of the package's own step. The
    stationary density rho = sum c_i phi_i solves <rho, P phi_j> = <rho, phi_j> with c_0 = 1.
    """
    eta, n_nodes = h * h, degree + 6
    x, w = np.polynomial.hermite_e.hermegauss(n_nodes)
    w = w / w.sum()
    theta, p, xi_a, noise = (
        torch.from_numpy(axis.ravel().copy())[:, None]
        for axis in np.meshgrid(x, x, x, x, indexing="ij")
    )
    step = Step(
        n=1.0, gradient=lambda t: t, likelihood=None, potential=None, eta=eta, noise=eta, xi=noise
    )
    sd = 1.0 / np.sqrt(sampler._mass(step))
    starts = [axis.numpy().ravel() for axis in (theta, p, xi_a)]
    state = {"v": h * p, "a": sampler.friction_of(step) + h * sd * xi_a, "g": theta.clone()}
    center = state["a"].mean()
    end = theta.clone()
    integrator(sampler, end, state, step)
    ends = [end, state["v"] / h, (state["a"] - center) / (h * sd)]

    indices = [
        (i, j, k)
        for i in range(degree + 1)
        for j in range(degree + 1 - i)
        for k in range(degree + 1 - i - j)
    ]

    def basis(points: list[np.ndarray]) -> np.ndarray:
        H = [_hermite(axis, degree) for axis in points]
        return np.stack([H[0][i] * H[1][j] * H[2][k] for i, j, k in indices], 1)

    after = basis([np.asarray(axis).ravel() for axis in ends])
    after = np.einsum("snk,n->sk", after.reshape(n_nodes**3, n_nodes, -1), w)
    before = basis([axis.reshape(-1, n_nodes)[:, 0] for axis in starts])
    weight = np.einsum("i,j,k->ijk", w, w, w).ravel()
    operator = after.T @ (before * weight[:, None]) - np.eye(len(indices))
    constant = indices.index((0, 0, 0))
    rest = [i for i in range(len(indices)) if i != constant]
    c = np.zeros(len(indices))
    c[constant] = 1.0
    c[rest] = np.linalg.solve(operator[np.ix_(rest, rest)], -operator[rest, constant])
    theta2, p2 = (c[indices.index(degrees)] for degrees in ((2, 0, 0), (0, 2, 0)))
    return 1.0 + np.sqrt(2.0) * theta2, 1.0 + np.sqrt(2.0) * p2


# Monte Carlo against the exact answer -------------------------------------------------------------


def chain_errors(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over chains of per-chain averages (chains, ...) and its MCSE: chains are independent."""
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


def limit(n_chains: int, n_compared: int = 1) -> float:
    """MCSE that the largest of so many errors exceeds once in a million times (Student's t)."""
    return scipy.stats.t.isf(0.5e-6 / n_compared, n_chains - 1)


def assert_close(values: np.ndarray, expected: Any, *, precision: float) -> None:
    """The average over chains of ``values`` (chains, ...) is ``expected`` within Monte Carlo error.

    ``precision`` bounds the MCSE itself, so that an error of a few of it cannot hide.
    """
    average, error = chain_errors(values)
    assert error.max() <= precision, f"MCSE {error.max()} is too large to find an error"
    z = np.abs(average - expected) / error
    worst = np.unravel_index(z.argmax(), z.shape)
    assert z.max() <= limit(len(values), z.size), (
        f"entry {worst} is {average[worst]:.5g}, expected "
        f"{np.broadcast_to(expected, z.shape)[worst]:.5g}: off by {z[worst]:.1f} MCSE"
    )


def assert_moments(draws: np.ndarray, S: np.ndarray, *, precision: float = 0.03) -> None:
    """Means are 0 and all second moments S; in whitened coordinates also the mean variance is 1.

    The latter's error is the smallest. ``precision`` is relative to the variances.
    """
    scale = np.sqrt(np.diag(S))
    average, error = chain_errors(draws.mean(1) / scale)
    assert np.abs(average / error).max() <= limit(len(draws), len(S)), f"means {average} +- {error}"
    products = np.einsum("cti,ctj->cij", draws, draws) / draws.shape[1]
    assert_close(products / np.outer(scale, scale), S / np.outer(scale, scale), precision=precision)
    whitened = (products * np.linalg.inv(S)).sum((1, 2)) / len(S)
    assert_close(whitened, 1.0, precision=precision)


# a run whose step size and temperature change -----------------------------------------------------


def propagate(
    chain_at,
    start: np.ndarray,
    etas: Any,
    temperatures: Any,
    *,
    v_level: float,
    rescale: bool = True,
):
    """Covariance of theta after every step of a run, for chains started at N(0, ``start``).

    ``chain_at(eta, temperature)`` makes the linear chain; v starts at N(0, v_level). Where eta
    changes, v is multiplied by the root of the ratio (``rescale=False``: by nothing).
    """
    chain, last = chain_at(etas[0], temperatures[0]), etas[0]
    dim = chain.target.dim
    roots = {"v": np.sqrt(v_level) * np.eye(dim), "xi": np.eye(dim)}
    # theta0 and xi0 are independent; v0 and the noise that Leimkuhler-Matthews keeps are xi0's
    L = np.linalg.cholesky(start)
    z = np.vstack(
        [np.hstack([L, np.zeros_like(L)])]
        + [
            np.hstack([chain.target.A @ L, np.zeros_like(L)])
            if name == "g"
            else np.hstack([np.zeros_like(L), roots[name]])
            for name in chain.moving
        ]
    )
    S, path = z @ z.T, []
    for eta, temperature in zip(etas, temperatures, strict=True):
        if (eta, temperature) != (chain.eta, chain.target.temperature):
            chain = chain_at(eta, temperature)
        scale = np.ones(len(S))
        if rescale and "v" in chain.moving:
            k = dim * (1 + chain.moving.index("v"))
            scale[k : k + dim] = np.sqrt(eta / last)
        S = chain.F @ (S * np.outer(scale, scale)) @ chain.F.T + chain.injected
        last = eta
        path.append(chain.block(S, "theta"))
    return np.stack(path)
