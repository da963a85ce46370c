"""Weight tensors of low rank as parameters: how fitted values and the penalty depend on them.

A parametrization gives, for a design X (m, d_1, .., d_N) and q outputs, the fitted values
f(theta) = <X, W(theta)> (m, q), their Jacobian J (m, q, p), and the metric W'(theta)' W'(theta)
in which a change of theta is as large as the change of W it makes: ridge regression with the
penalty |W|^2, restricted to low rank, has the Gauss-Newton matrix J'J + lambda W''W'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.linalg import lapack

from latensor.arrays import Array
from latensor.models.regression.design import Design
from latensor.value_files import storable


@dataclass(frozen=True, eq=False)
class Linearized:
    """A parametrization at one point, for one design.

    Attributes
    ----------
    fitted : (m, q)
    parts : arrays that only the parametrization reads
    """

    fitted: Array
    parts: tuple[Any, ...]


class LowRank:
    """Parameters theta (p,) of a weight tensor, as blocks in each of which it is linear."""

    blocks: tuple[Array, ...]

    @property
    def n_parameters(self) -> int:
        """The length p of theta."""
        return sum(block.size for block in self.blocks)

    @property
    def n_free(self) -> int:
        """Degrees of freedom: parameters less those that change no weight."""
        raise NotImplementedError

    def pack(self) -> Array:
        """The vector theta (p,)."""
        return np.concatenate([block.ravel() for block in self.blocks])

    def unpack(self, theta: Array) -> Self:
        """The same parametrization at another point."""
        found, start = [], 0
        for block in self.blocks:
            found.append(theta[start : start + block.size].reshape(block.shape))
            start += block.size
        return self.with_blocks(found)

    def with_blocks(self, blocks: Sequence[Array]) -> Self:
        """The same parametrization with other blocks."""
        raise NotImplementedError

    def linearize(self, design: Design) -> Linearized:
        """Fitted values and what their derivatives are made of."""
        raise NotImplementedError

    def jacobian(self, at: Linearized) -> Array:
        """J (m, q, p)."""
        raise NotImplementedError

    def normal(self, at: Linearized, residual: Array) -> tuple[Array, Array]:
        """J'J (p, p) and J' residual (p,)."""
        jacobian = self.jacobian(at).reshape(-1, self.n_parameters)
        return jacobian.T @ jacobian, jacobian.T @ residual.ravel()

    def metric(self) -> Array:
        """(p, p): inner products of the derivatives of W."""
        raise NotImplementedError

    def bending(self, gradient: Array) -> Array:
        """(p, p): inner products of a tensor (D, q) and the second derivatives of W."""
        raise NotImplementedError

    def squared_norm(self) -> float:
        """|W|^2."""
        raise NotImplementedError

    def norm_gradient(self) -> Array:
        """Half of the gradient of |W|^2 (p,)."""
        raise NotImplementedError

    def sweep(self, design: Design, targets: Array, ridge: float) -> Self:
        """All blocks once, each by ridge regression on the others."""
        raise NotImplementedError

    def times(self, factor: float) -> Self:
        """Weights so many times as large."""
        raise NotImplementedError

    def balanced(self) -> Self:
        """The same weights, the norms shared evenly."""
        raise NotImplementedError

    def smallest(self) -> Self:
        """The same weights with the smallest sum of squared parameters, or nearly."""
        raise NotImplementedError

    def dense(self) -> Array:
        """W (D, q)."""
        raise NotImplementedError


def solve_ridge(gram: Array, right: Array, floor: float = 1e-10) -> Array:
    """gram^-1 right, with a small multiple of the mean diagonal where columns coincide."""
    size = len(gram)
    shift = floor * float(np.trace(gram)) / size or 1.0
    shifted = gram + shift * np.eye(size)
    try:
        return np.linalg.solve(shifted, right)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(shifted, right, rcond=None)[0]


def thin_qr(matrix: Array) -> tuple[Array, Array]:
    """Orthonormal columns and a triangle, of a matrix that is not wide.

    As `numpy.linalg.qr`, in half of the time for factors of a few columns.
    """
    packed, tau, _, _ = lapack.dgeqrf(matrix)
    rank = matrix.shape[1]
    triangle = np.array(packed[:rank])
    triangle[np.tri(rank, k=-1, dtype=bool)] = 0.0
    return lapack.dorgqr(packed, tau, overwrite_a=1)[0], triangle


def repeated(block: Array, count: int) -> Array:
    """A block (r, r) so many times along the diagonal."""
    rank, each = len(block), np.arange(count)
    found = np.zeros((count, rank, count, rank))
    found[each, :, each] = block
    return found.reshape(count * rank, count * rank)


def _hadamard(grams: Sequence[Array], rank: int, *left_out: int) -> Array:
    """(R, R): the product of Gram matrices, entry by entry, without some."""
    found = np.ones((rank, rank))
    for k, gram in enumerate(grams):
        if k not in left_out:
            found = found * gram
    return found


@storable
@dataclass(frozen=True, eq=False)
class CPWeights(LowRank):
    """W = sum_r a_r (x) b_r (x) .. (x) c_r, c the outputs; one output has c = 1 and no block.

    Attributes
    ----------
    factors : N matrices (d_k, R)
    output : (q, R); ones where q = 1
    """

    factors: tuple[Array, ...]
    output: Array

    @property
    def rank(self) -> int:
        """The number of components R."""
        return int(self.output.shape[1])

    @property
    def _several(self) -> bool:
        return bool(self.output.shape[0] > 1)

    @property
    def blocks(self) -> tuple[Array, ...]:  # type: ignore[override]
        return (*self.factors, self.output) if self._several else self.factors

    @property
    def n_free(self) -> int:
        if len(self.blocks) == 2:  # a matrix of rank R
            return self.rank * (sum(len(b) for b in self.blocks) - self.rank)
        return self.rank * (sum(len(b) for b in self.blocks) - len(self.blocks) + 1)

    def with_component(self, place: int, other: CPWeights) -> CPWeights:
        """The same weights with the first component of others in place of one."""
        blocks = [block.copy() for block in self.blocks]
        for block, new in zip(blocks, other.blocks, strict=True):
            block[:, place] = new[:, 0]
        return self.with_blocks(blocks).balanced()

    def with_blocks(self, blocks: Sequence[Array]) -> CPWeights:
        order = len(self.factors)
        output = blocks[order] if self._several else self.output
        return CPWeights(tuple(blocks[:order]), output)

    def linearize(self, design: Design) -> Linearized:
        contracted: list[Array] = []
        half = None
        for k in range(len(self.factors)):
            if k in (0, design.split):
                half = design.half(self.factors, k, columns=True)
            contracted.append(design.by_columns(self.factors, k, half))
        scores = np.einsum("nir,ir->nr", contracted[-1], self.factors[-1])
        m = design.n_rows
        stacked = np.concatenate([c.reshape(m, -1) for c in contracted], axis=1)
        return Linearized(scores @ self.output.T, (stacked, scores))

    def _columns(self) -> Array:
        return np.tile(np.arange(self.rank), sum(len(f) for f in self.factors))

    def jacobian(self, at: Linearized) -> Array:
        stacked, scores = at.parts
        m, q = at.fitted.shape
        found = stacked[:, None, :] * self.output[:, self._columns()]
        if not self._several:
            return found
        outputs = np.zeros((m, q, q, self.rank))
        outputs[:, np.arange(q), np.arange(q)] = scores[:, None, :]
        return np.concatenate([found, outputs.reshape(m, q, -1)], axis=2)

    def normal(self, at: Linearized, residual: Array) -> tuple[Array, Array]:
        """As the base says, without the Jacobian: outputs enter through the factor c alone."""
        stacked, scores = at.parts
        columns = self._columns()
        gram = stacked.T @ stacked
        if not self._several:
            return gram, stacked.T @ residual[:, 0]
        gram *= (self.output.T @ self.output)[np.ix_(columns, columns)]
        by_column = stacked.reshape(len(stacked), -1, self.rank)
        right = np.einsum("njr,nr->jr", by_column, residual @ self.output)
        q = len(self.output)
        crossed = (stacked.T @ scores)[:, None, :] * self.output[:, columns].T[:, :, None]
        outputs = repeated(scores.T @ scores, q)
        crossed = crossed.reshape(len(gram), -1)
        gram = np.block([[gram, crossed], [crossed.T, outputs]])
        return gram, np.concatenate([right.ravel(), (residual.T @ scores).ravel()])

    def _grams(self) -> list[Array]:
        return [block.T @ block for block in self.blocks]

    def _others(self, *left_out: int) -> Array:
        return _hadamard(self._grams(), self.rank, *left_out)

    def metric(self) -> Array:
        blocks, rank, grams = self.blocks, self.rank, self._grams()
        edges = np.concatenate([[0], np.cumsum([b.size for b in blocks])])
        found = np.empty((edges[-1], edges[-1]))
        for k, left in enumerate(blocks):
            rows = slice(edges[k], edges[k + 1])
            found[rows, rows] = repeated(_hadamard(grams, rank, k), len(left))
            for n, right in enumerate(blocks[:k]):
                columns = slice(edges[n], edges[n + 1])
                scaled = left[:, None, :] * _hadamard(grams, rank, k, n)
                inner = scaled[:, :, None, :] * right.T[None, :, :, None]
                found[rows, columns] = inner.reshape(left.size, right.size)
                found[columns, rows] = found[rows, columns].T
        return found

    def bending(self, gradient: Array) -> Array:
        blocks, rank = self.blocks, self.rank
        order, each = len(blocks), np.arange(rank)
        tensor = gradient.reshape([len(b) for b in blocks])
        edges = np.concatenate([[0], np.cumsum([b.size for b in blocks])])
        found = np.zeros((edges[-1], edges[-1]))
        for k in range(order):
            for n in range(k):
                inner = tensor[None]
                if order > 2:
                    others = [part for m in range(order) if m not in (k, n)
                              for part in (blocks[m], [m, order])]  # fmt: skip
                    inner = np.einsum(
                        tensor, list(range(order)), *others, [order, n, k], optimize=True
                    )
                block = np.zeros((len(blocks[n]), rank, len(blocks[k]), rank))
                block[:, each, :, each] = inner
                rows, columns = slice(edges[n], edges[n + 1]), slice(edges[k], edges[k + 1])
                found[rows, columns] = block.reshape(blocks[n].size, blocks[k].size)
                found[columns, rows] = found[rows, columns].T
        return found

    def squared_norm(self) -> float:
        return float(self._others().sum())

    def norm_gradient(self) -> Array:
        return np.concatenate([(b @ self._others(k)).ravel() for k, b in enumerate(self.blocks)])

    def sweep(self, design: Design, targets: Array, ridge: float) -> CPWeights:
        weights, half = self, None
        last = len(self.factors) - 1
        for k in range(last + 1):
            if k in (0, design.split):
                half = design.half(weights.factors, k, columns=True)
            weights = weights._solved(design, targets, ridge, k, half)
        if self._several:
            contracted = design.by_columns(weights.factors, last, half)
            scores = np.einsum("nir,ir->nr", contracted, weights.factors[last])
            gram = scores.T @ scores + ridge * weights._others(len(weights.factors))
            output = solve_ridge(gram, scores.T @ targets).T
            weights = replace(weights, output=output)
        return weights.balanced()

    def _solved(
        self, design: Design, targets: Array, ridge: float, mode: int, half: Any
    ) -> CPWeights:
        d, rank = self.factors[mode].shape
        contracted = design.by_columns(self.factors, mode, half)
        right = np.einsum("nir,nr->ir", contracted, targets @ self.output).ravel()
        columns = contracted.reshape(len(contracted), -1)
        gram = columns.T @ columns
        gram = gram * np.tile(self.output.T @ self.output, (d, d))
        gram += repeated(ridge * self._others(mode), d)
        factor = solve_ridge(gram, right).reshape(d, rank)
        factors = list(self.factors)
        factors[mode] = factor
        return replace(self, factors=tuple(factors))

    def times(self, factor: float) -> CPWeights:
        fraction = factor ** (1 / len(self.factors))
        return replace(self, factors=tuple(f * fraction for f in self.factors))

    def balanced(self) -> CPWeights:
        lengths = np.array([np.linalg.norm(block, axis=0) for block in self.blocks])
        safe = np.where(lengths > 0, lengths, 1.0)
        shared = np.exp(np.log(safe).mean(axis=0)) * (lengths > 0).all(axis=0)
        return self.with_blocks([b * (shared / s) for b, s in zip(self.blocks, safe, strict=True)])

    def smallest(self) -> CPWeights:
        if len(self.blocks) != 2:
            return self.balanced()
        # Of a matrix, half of the sum is the nuclear norm: singular values shared evenly.
        (q, r), (p, s) = (thin_qr(block) for block in self.blocks)
        left, values, right = np.linalg.svd(r @ s.T)
        root = np.sqrt(values)
        return self.with_blocks([q @ (left * root), p @ (right.T * root)])

    def dense(self) -> Array:
        found = self.factors[0]
        for factor in self.factors[1:]:
            found = (found[:, None, :] * factor).reshape(-1, self.rank)
        return found @ self.output.T
