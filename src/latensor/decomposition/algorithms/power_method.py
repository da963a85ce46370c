"""The robust tensor power method (monograph 3.5): one component at a time, from many starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import (
    Array,
    check_positive_int,
    like,
    machine_epsilon,
    standard_normal,
    to_host,
)
from latensor.decomposition.algorithms.deflation import Deflated
from latensor.decomposition.algorithms.rank_one import ascend_symmetric, escape, sweep_asymmetric
from latensor.decomposition.algorithms.symmetric import (
    completed,
    rank_at_most,
    refuse_nonfinite_tensor,
    relative_residual,
    symmetric_cp,
    symmetric_tensor,
)
from latensor.decomposition.optimize.iteration import Callback, Monitor
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.subspace.core import double
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.conversion import as_contractible
from latensor.tensors.cp import CPTensor

_FEWEST_RESTARTS = 30
# The constants of starts and of steps in `for_accuracy`, which Theorem 3.4 leaves open.
_CONSTANT = 10.0
# Two unit vectors with a larger inner product are taken for the same eigenvector.
_SAME = 0.5

Points = tuple[Array, ...]


@dataclass(frozen=True)
class PowerMethod:
    """Decompose an (almost) orthogonally decomposable tensor by power iteration and deflation.

    Repeats u <- T(I, u, ..., u) / |.| from many random starts, all in one contraction, keeps the
    end point with the largest |T(u, ..., u)|, subtracts its component and goes on (monograph,
    robust tensor power method). For T + E with |E| <= eps small enough, every vector is then
    found to 8 eps / w_j and every weight to 5 eps. A start that finds another eigenvector is kept
    for the next component. Needs orthogonal components: whiten first, or use SymmetricSpectral.

    Three safeguards: a step that would lower |T(u, ..., u)| is repeated with a shift, u <-
    T(I, u, ..., u) + alpha u, so that it never falls; the sign of the weight is carried along, so
    that even orders may have negative weights; and an end point where the second derivative on
    the sphere is not negative, a spurious eigenvector such as sum_j v_j / w_j, is left along the
    direction of ascent.

    Parameters
    ----------
    n_restarts : int, starts held at a time; None for twice the rank, at least 30
    max_iter : int, power steps per component
    tol : float, length of T(I, u, ..., u) - w u relative to |w| at which a start has converged;
        None derives it from the precision
    shift : float, alpha in every step; None chooses it per start and step, zero where possible
    symmetric : bool, False for a tensor that is orthogonal in every mode but not symmetric: its
        vectors a <- T(I, b, c), b <- T(a, I, c), ... differ between the modes
    """

    n_restarts: int | None = None
    max_iter: int = 100
    tol: float | None = None
    shift: float | None = None
    symmetric: bool = True

    @classmethod
    def for_accuracy(
        cls, rank: int, accuracy: float, *, failure: float = 0.01, spread: float = 1.0
    ) -> PowerMethod:
        """Settings for `rank` components at a perturbation of known size (Theorem 3.4).

        The theorem asks for N >= C_2 (log k + log log(lambda_max / eps)) steps and
        L = poly(k) log(1 / eta) starts, close to linear in k for large k, with constants that it
        does not name. Here C_2 = 10 and L = 10 k log2(k / eta): with random symmetric noise of
        spectral norm eps = 0.05 lambda_min / sqrt(k), k = 5 to 20, all components were within
        8 eps / lambda_j in nine draws of nine.

        Parameters
        ----------
        rank : int, k
        accuracy : float, eps / lambda_min in (0, 1): the norm of the perturbation over the least
            weight; vectors are then found to 8 times it
        failure : float in (0, 1), eta
        spread : float, lambda_max / lambda_min, at least 1
        """
        k = check_positive_int(rank, "rank")
        for name, value in (("accuracy", accuracy), ("failure", failure)):
            if not 0.0 < value < 1.0:
                raise InvalidInputError(f"{name}={value!r} must be between 0 and 1")
        if not spread >= 1.0:
            raise InvalidInputError(f"spread={spread!r} must be at least 1")
        steps = np.log(k) + np.log(max(np.log(spread / accuracy), 1.0))
        starts = k * np.log2(max(k / failure, 2.0))
        return cls(
            n_restarts=max(int(np.ceil(_CONSTANT * starts)), _FEWEST_RESTARTS),
            max_iter=max(int(np.ceil(_CONSTANT * steps)), 10),
        )

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
    ) -> Decomposition:
        """Decompose a tensor of any kind, order 3 or more, into `rank` orthogonal components.

        Parameters
        ----------
        tensor : dense array of any library, or sparse, factored or implicit tensor; symmetric
            and real unless `symmetric` is False
        rank : int, at most the shortest dimension
        rng : Generator, draws the starts
        callback : told after every component; may return True to stop, the rest then gets
            weight zero

        Returns
        -------
        Decomposition, whose `history` is the residual after every component
        """
        name = type(self).__name__
        if self.symmetric:
            data = symmetric_tensor(tensor, name)
        else:
            data = as_contractible(tensor)
            if len(data.shape) < 3:
                raise InvalidInputError(
                    f"tensor has order {len(data.shape)} (shape {data.shape}), but {name} needs "
                    "order 3 or more: use truncated_svd for a matrix"
                )
            refuse_nonfinite_tensor(data)
        shortest = min(data.shape)
        rank = rank_at_most(rank, shortest, name, f"orthogonal vectors in dimension {shortest}")
        max_iter = check_positive_int(self.max_iter, "max_iter")
        if self.n_restarts is None:
            n_restarts = max(_FEWEST_RESTARTS, 2 * rank)
        else:
            n_restarts = check_positive_int(self.n_restarts, "n_restarts")
        if self.shift is not None and not self.symmetric:
            raise InvalidInputError(
                "shift belongs to the symmetric power method: leave it out with symmetric=False, "
                "whose steps never lower the weight"
            )
        scale = float(data.norm())
        monitor = Monitor(scale**2, callback=callback)
        run = _Run(self, data, rng, n_restarts, max_iter, scale)
        status = Status.CONVERGED
        deflated, loss = Deflated(data), scale**2
        points = run.fresh(n_restarts)
        for _ in range(rank):
            found = run.component(deflated, points)
            if abs(found.weight) <= run.negligible:
                break
            deflated = deflated.minus(found.weight, found.vectors)
            loss = max(loss - found.weight**2, 0.0)
            if not found.converged:
                status = Status.MAX_ITER
            current = deflated
            if monitor.record(loss, lambda c=current: _assemble(c, rank, self.symmetric)):  # type: ignore[misc]
                status = Status.STOPPED
                break
            points = run.renewed(found)
        model = _assemble(deflated, rank, self.symmetric)
        history = np.array(monitor.history)
        return Decomposition(model, relative_residual(data, model), len(history), status, history)


@dataclass(frozen=True)
class _Found:
    """One component, whether it converged, and the end points of all starts."""

    weight: float
    vectors: Points
    converged: bool
    points: Points


@dataclass(frozen=True)
class _Run:
    """What stays the same from one component to the next."""

    settings: PowerMethod
    data: Contractible
    rng: np.random.Generator
    n_restarts: int
    max_iter: int
    scale: float

    @property
    def tol(self) -> float:
        if self.settings.tol is not None:
            return self.settings.tol
        return 20 * float(np.sqrt(max(self.data.shape))) * machine_epsilon(self.data.reference)

    @property
    def negligible(self) -> float:
        """The weight below which what is left of the tensor is rounding."""
        return 10 * max(self.data.shape) * machine_epsilon(self.data.reference) * self.scale

    def fresh(self, count: int) -> Points:
        """Starts uniform on the unit sphere; one shared matrix where the tensor is symmetric."""
        xp = Deflated(self.data).xp
        shapes = self.data.shape[:1] if self.settings.symmetric else self.data.shape
        drawn = [standard_normal(self.rng, (d, count), self.data.reference) for d in shapes]
        unit = tuple(x / xp.linalg.vector_norm(x, axis=0)[None, :] for x in drawn)
        return unit * len(self.data.shape) if self.settings.symmetric else unit

    def component(self, deflated: Deflated, points: Points) -> _Found:
        """The best component of a deflated tensor that starts lead to."""
        if not self.settings.symmetric:
            points, values, done = sweep_asymmetric(
                deflated, points, self.max_iter, self.tol, self.negligible
            )
            best = int(np.argmax(values))
            vectors = tuple(p[:, best] for p in points)
            return _Found(float(values[best]), vectors, bool(done[best]), points)

        def em_fit(starts: Array) -> tuple[Array, Any, Any]:
            return ascend_symmetric(
                deflated, starts, self.max_iter, self.tol, self.negligible, self.settings.shift
            )

        ends, values, done = em_fit(points[0])
        vector, value, converged = _best(ends, values, done)
        if abs(value) > self.negligible:
            if not converged:
                # The monograph's second round of N steps, for the best start alone.
                vector, value, converged = _best(*em_fit(vector[:, None]))
            for _ in range(max(self.data.shape)):
                away = escape(deflated, vector, value, ends)
                if away is None:
                    break
                vector, value, converged = _best(*em_fit(away))
        return _Found(value, (vector,) * deflated.order, converged, (ends,) * deflated.order)

    def renewed(self, found: _Found) -> Points:
        """The end points, with fresh starts in place of those that led to the component found."""
        xp = Deflated(self.data).xp
        overlap: Any = 1.0
        for point, vector in zip(found.points, found.vectors, strict=True):
            inner = to_host(point).T @ to_host(vector).conj()
            overlap = overlap * np.abs(inner)
        kept = like(overlap < _SAME, found.points[0])[None, :]
        fresh = self.fresh(self.n_restarts)
        mixed = {
            (id(p), id(f)): xp.where(kept, p, f) for p, f in zip(found.points, fresh, strict=True)
        }
        return tuple(mixed[(id(p), id(f))] for p, f in zip(found.points, fresh, strict=True))


def _best(points: Array, values: Any, done: Any) -> tuple[Array, float, bool]:
    """The end point with the value of largest magnitude."""
    best = int(np.argmax(np.abs(values)))
    return points[:, best], float(values[best]), bool(done[best])


def _assemble(deflated: Deflated, rank: int, symmetric: bool) -> CPTensor:
    """The components found, followed by orthonormal vectors of weight zero."""
    reference = deflated.tensor.reference
    weights = np.zeros(rank)
    weights[: len(deflated.weights)] = deflated.weights
    factors = []
    for mode, dimension in enumerate(
        deflated.tensor.shape[:1] if symmetric else deflated.tensor.shape
    ):
        found = np.zeros((dimension, 0))
        if deflated.factors is not None:
            found = double(to_host(deflated.factors[mode]))
        factors.append(like(completed(found, rank), reference))
    if symmetric:
        return symmetric_cp(reference, weights, factors[0], deflated.order)
    return CPTensor(like(weights, reference), tuple(factors)).canonical()
