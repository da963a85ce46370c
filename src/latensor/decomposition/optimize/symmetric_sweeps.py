"""Alternating least squares with one factor for all modes (monograph 3.7, both variants)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from latensor.arrays import Array, is_numpy, like, to_host
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.solves import pseudo_inverse

Variant = Literal["delayed", "same"]


@dataclass(frozen=True)
class SymmetricIterate:
    """The last p - 1 factors (rank, d) with unit rows, newest first, and the squared residual."""

    recent: tuple[Array, ...]
    loss: float

    @property
    def factor(self) -> Array:
        """The newest factor."""
        return self.recent[0]


@dataclass(frozen=True)
class SymmetricSweeps:
    """Updates A <- T_(1) (B kr C) (B'B * C'C)^-1, columns normalized, with earlier A for B and C.

    Parameters
    ----------
    problem : a symmetric tensor as a problem
    variant : "delayed" takes the last p - 1 different iterates A_{t-1}, A_{t-2}, ..., which for a
        symmetric tensor is the ordinary alternating method, one mode after the other; "same"
        takes A_{t-1} for all of them, which for rank one is the power method
    ridge : float, added to the diagonal of B'B * C'C
    """

    problem: Problem
    variant: Variant = "delayed"
    ridge: float = 0.0

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.problem.shape)

    def start(self, factor: Array) -> SymmetricIterate:
        """The iterate that begins from one (rank, d) factor in all modes."""
        unit = unit_rows(factor, factor)
        return SymmetricIterate((unit,) * (self.order - 1), self.loss(unit))

    def step(self, state: SymmetricIterate) -> SymmetricIterate:
        """One update; the residual may rise on the way."""
        recent = state.recent
        product = self.problem.products((recent[0], *recent)).mttkrp(0)
        gamma = self._gamma(recent)
        unit = unit_rows(self.problem.solve(gamma, product, self.ridge), recent[0])
        kept = (unit, *recent[:-1]) if self.variant == "delayed" else (unit,) * len(recent)
        return SymmetricIterate(kept, self.loss(unit))

    def _gamma(self, recent: tuple[Array, ...]) -> Any:
        grams = {id(f): self.problem.gram(f) for f in recent}
        gamma = grams[id(recent[0])].copy()
        for factor in recent[1:]:
            gamma = gamma * grams[id(factor)]
        return gamma

    def loss(self, factor: Array) -> float:
        """The squared residual of the best weights for a factor in all modes."""
        weights, inner = self._fit(factor)
        gram = self.problem.gram(factor) ** self.order
        model = float(np.real(weights.conj() @ gram.T @ weights))
        loss = self.problem.squared_norm - 2.0 * float(np.real(weights.conj() @ inner)) + model
        if loss < self.problem.epsilon**0.5 * self.problem.squared_norm and is_numpy(factor):
            first = factor * weights[:, None]
            explicit = self.problem.explicit_loss((first, *((factor,) * (self.order - 1))))
            if explicit is not None:
                return explicit
        return max(loss, 0.0)

    def weights(self, factor: Array) -> Any:
        """The (rank,) least-squares weights of sum_j w_j a_j^(x)p, on the host."""
        return self._fit(factor)[0]

    def _fit(self, factor: Array) -> tuple[Any, Any]:
        product = self.problem.products((factor,) * self.order).mttkrp(0)
        host, rows = to_host(product), to_host(factor)
        inner = np.sum(rows.conj() * host, axis=1).astype(np.result_type(rows, np.float64))
        gram = self.problem.gram(factor) ** self.order
        return pseudo_inverse(gram.T) @ inner, inner


def unit_rows(rows: Array, otherwise: Array) -> Array:
    """Rows of unit length; a zero row is replaced by that of another factor."""
    lengths = (abs(rows) ** 2).sum(1) ** 0.5
    zero = lengths == 0
    unit = rows / (lengths + zero)[:, None]
    if is_numpy(otherwise) and not is_numpy(rows):
        otherwise = like(otherwise, rows)
    return unit + zero[:, None] * otherwise
