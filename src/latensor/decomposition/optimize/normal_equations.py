"""The normal equations of a CP fit: J'J and the gradient, not formed where they are large.

A model knows its parameters and their loss, and sets up the equations that a Levenberg-Marquardt
step solves: for free factors of a complete tensor (from Grams), for free factors of observed
entries (entry by entry), and for one factor that all modes share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latensor.arrays import Array, to_host
from latensor.decomposition.optimize.levenberg_marquardt import (
    DIRECT,
    DIRECT_ENTRIES,
    Span,
    System,
)
from latensor.decomposition.optimize.masked import Observed
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.sweeps import balanced


@dataclass(frozen=True)
class FreeFactors:
    """Factors of their own for every mode, stacked as (order, rank, longest dimension).

    With Gamma_n the Hadamard product of the other Grams and Gamma_nm that of all but two, the
    product of J'J with x is Gamma_n x_n + sum_m!=n (Gamma_nm o A_m x_m') A_n in transposed
    factors. Zeros pad the shorter modes, so that each product is a handful of batched calls.

    Parameters
    ----------
    problem : complete tensor, or observed entries
    ridge : float, penalty on the squared norm of every factor
    fixed : modes that do not move
    """

    problem: Problem
    ridge: float = 0.0
    fixed: tuple[int, ...] = ()

    def stack(self, factors: Sequence[Array]) -> Array:
        """Transposed factors as one array on the host, in double precision."""
        hosts = [to_host(factor) for factor in factors]
        kind = np.result_type(np.float64, *hosts)
        result = np.zeros((len(hosts), hosts[0].shape[0], max(self.problem.shape)), dtype=kind)
        for mode, factor in enumerate(hosts):
            result[mode, :, : factor.shape[1]] = factor
        return result

    def factors(self, parameters: Array) -> tuple[Array, ...]:
        """The transposed factors of a stack."""
        return tuple(parameters[n, :, :d] for n, d in enumerate(self.problem.shape))

    def evaluate(self, parameters: Array) -> tuple[Array, float, Callable[[], System]]:
        """Factors, those that move balanced, and their loss."""
        problem = self.problem
        factors = balanced(self.factors(parameters), self.fixed)
        stacked = self.stack(factors)
        grams = [problem.gram(factor) for factor in factors]
        products = problem.products([problem.native(f) for f in factors])
        loss = problem.loss(factors, grams, products.mttkrp(0), 0)
        loss += self.ridge * float(np.vdot(stacked, stacked).real)

        def system() -> System:
            if isinstance(problem, Observed):
                return _ObservedSystem(self, stacked, products)
            return _GramSystem.at(self, stacked, np.array(grams), products)

        return stacked, loss, system

    def moving(self, by_mode: Sequence[Any]) -> list[Any]:
        """What belongs to the modes that move."""
        return [one for mode, one in enumerate(by_mode) if mode not in self.fixed]

    def finished(self, gradient: Array, stacked: Array) -> Array:
        """A gradient with the penalty, and none for modes that do not move."""
        if self.ridge:
            gradient = gradient + self.ridge * stacked
        if self.fixed:
            gradient[list(self.fixed)] = 0.0
        return gradient

    def complete(self, matrix: Array, per_mode: int) -> Array:
        """J'J with the penalty, and no coupling to modes that do not move."""
        matrix[np.diag_indices_from(matrix)] += self.ridge
        for mode in self.fixed:
            part = slice(mode * per_mode, (mode + 1) * per_mode)
            matrix[part] = matrix[:, part] = 0.0
        return matrix


class _GramSystem:
    """The normal equations of all factors of a complete tensor."""

    def __init__(
        self, model: FreeFactors, factors: Array, gamma: Array, pairs: Array, gradient: Array
    ) -> None:
        self._model = model
        self._factors, self._conjugated = factors, factors.conj()
        self._gamma, self._pairs = gamma, pairs
        self.gradient = gradient
        self.scale = float(np.mean(model.moving(gamma.diagonal(axis1=1, axis2=2).real)))
        self.scale += model.ridge

    @classmethod
    def at(cls, model: FreeFactors, stacked: Array, grams: Array, products: Any) -> _GramSystem:
        """The equations at a point, from its Grams and mttkrps."""
        order, grams = len(stacked), grams.conj()
        gamma = np.array([_product_of_others(grams, n) for n in range(order)])
        pairs = np.zeros((order, order, *grams.shape[1:]), dtype=grams.dtype)
        for n in range(order):
            for m in range(n):
                pairs[n, m] = pairs[m, n] = _product_of_others(grams, n, m)
        mttkrps = model.stack([products.mttkrp(n) for n in range(order)])
        gradient = model.finished(gamma @ stacked - mttkrps, stacked)
        return cls(model, stacked, gamma, pairs, gradient)

    def multiply(self, x: Array) -> Array:
        crossed = self._conjugated @ x.swapaxes(1, 2)
        mixed = np.einsum("nmij,mij->nij", self._pairs, crossed)
        product = self._gamma @ x
        product += mixed @ self._factors
        return self._model.finished(product, x)

    def preconditioner(self, damping: float) -> Callable[[Array], Array]:
        inverse = _inverse(self._gamma, damping + self._model.ridge)
        return lambda x: inverse @ x

    def diagonal(self) -> Array:
        return self._gamma.diagonal(axis1=1, axis2=2).real[:, :, None] + self._model.ridge

    @cached_property
    def matrix(self) -> Array | None:
        order, rank, longest = self._factors.shape
        if self._factors.size > DIRECT:
            return None
        whole = np.einsum("nmij,mib,nja->niamjb", self._pairs, self._conjugated, self._factors)
        for mode in range(order):
            whole[mode, :, range(longest), mode, :, range(longest)] += self._gamma[mode]
        return self._model.complete(whole.reshape(order * rank * longest, -1), rank * longest)

    @cached_property
    def inside(self) -> Span | None:
        """Changes of every factor within the span of its own components, at most rank of them."""
        rank, longest = self._factors.shape[1:]
        if longest <= rank:
            return None
        bases = np.linalg.qr(self._factors.swapaxes(1, 2))[0]
        adjoint = bases.conj()
        gradient = self.gradient @ adjoint
        system = _GramSystem(
            self._model, self._factors @ adjoint, self._gamma, self._pairs, gradient
        )
        return Span(
            self, system, bases.swapaxes(1, 2), self.gradient - gradient @ bases.swapaxes(1, 2)
        )


class _ObservedSystem:
    """The normal equations of all factors over observed entries."""

    inside = None

    def __init__(self, model: FreeFactors, stacked: Array, products: Any) -> None:
        self._model, self._products = model, products
        order = len(stacked)
        self._blocks = [products.matrices(n) for n in range(order)]
        problem: Any = model.problem
        rest = problem.model(model.factors(stacked)) - problem.entries
        gathered = model.stack([products.gathered(rest, n) for n in range(order)])
        self.gradient = model.finished(gathered, stacked)
        diagonals = model.moving([b.diagonal(axis1=1, axis2=2).mean() for b in self._blocks])
        self.scale = float(np.mean(diagonals)) + model.ridge

    def multiply(self, x: Array) -> Array:
        change = self._products.spread(self._model.factors(x))
        parts = [self._products.gathered(change, n) for n in range(len(x))]
        return self._model.finished(self._model.stack(parts), x)

    def preconditioner(self, damping: float) -> Callable[[Array], Array]:
        inverses = [_inverse(block, damping + self._model.ridge) for block in self._blocks]

        def apply(x: Array) -> Array:
            parts = [
                np.einsum("dij,jd->id", inverse, part)
                for inverse, part in zip(inverses, self._model.factors(x), strict=True)
            ]
            return self._model.stack(parts)

        return apply

    def diagonal(self) -> Array:
        diagonals = [block.diagonal(axis1=1, axis2=2).T for block in self._blocks]
        return self._model.stack(diagonals) + self._model.ridge

    @cached_property
    def matrix(self) -> Array | None:
        rank, longest = self.gradient.shape[1:]
        if self.gradient.size > DIRECT_ENTRIES:
            return None
        return self._model.complete(self._products.curvature(), rank * longest)


@dataclass(frozen=True)
class SharedRows:
    """One factor X (rank, d) for all modes of sum_j s_j x_j^(x)p, with signs s_j.

    With g = x_i'x_j, J'J x = p (s_i s_j g^(p-1)) x + p (p-1) (s_i s_j g^(p-2) o (X x')) X in rows;
    the gradient is p times the same first matrix times X minus p s_j T(I, x_j, ..., x_j).
    """

    problem: Problem
    signs: Array

    def images(self, rows: Array) -> Array:
        """T(I, x_j, ..., x_j) as rows, on the host."""
        native = self.problem.native(rows)
        image = self.problem.products([native] * len(self.problem.shape)).mttkrp(0)
        return np.asarray(to_host(image), dtype=np.float64)

    def evaluate(self, parameters: Array) -> tuple[Array, float, Callable[[], System]]:
        """The rows as they are, and their loss."""
        problem, signs = self.problem, self.signs
        order = len(problem.shape)
        images = self.images(parameters)
        signed = [signs[:, None] * parameters, *[parameters] * (order - 1)]
        grams = [f @ f.T for f in signed]
        loss = problem.loss(signed, grams, images, 0)
        return parameters, loss, lambda: _SharedSystem(parameters, signs, images, order)


class _SharedSystem:
    """The normal equations of one shared factor."""

    inside = None

    def __init__(self, rows: Array, signs: Array, images: Array, order: int) -> None:
        self._rows = rows
        gram = rows @ rows.T
        pairs = np.outer(signs, signs)
        self._outer = order * pairs * gram ** (order - 1)
        self._inner = order * (order - 1) * pairs * gram ** (order - 2)
        self.gradient = self._outer @ rows - order * signs[:, None] * images
        self.scale = float(np.mean(np.abs(self._outer.diagonal())))

    def multiply(self, x: Array) -> Array:
        return self._outer @ x + (self._inner * (self._rows @ x.T)) @ self._rows

    def preconditioner(self, damping: float) -> Callable[[Array], Array]:
        inverse = _inverse(self._outer, damping)
        return lambda x: inverse @ x

    def diagonal(self) -> Array:
        return self._outer.diagonal()[:, None]

    @cached_property
    def matrix(self) -> Array | None:
        rank, size = self._rows.shape
        if rank * size > DIRECT:
            return None
        whole = np.einsum("ij,ib,ja->iajb", self._inner, self._rows, self._rows)
        whole[:, range(size), :, range(size)] += self._outer
        return whole.reshape(rank * size, -1)


def _inverse(matrices: Array, damping: float) -> Array:
    lifted = matrices + max(damping, np.finfo(float).tiny) * np.eye(matrices.shape[-1])
    try:
        return np.linalg.inv(lifted)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(lifted, hermitian=True)


def _product_of_others(grams: Array, *modes: int) -> Array:
    kept = [gram for n, gram in enumerate(grams) if n not in modes]
    return np.prod(kept, axis=0) if kept else np.ones_like(grams[0])
