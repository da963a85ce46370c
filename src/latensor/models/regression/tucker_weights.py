"""Tucker weights as parameters: a factor per mode, and a core that holds the outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latensor.arrays import Array
from latensor.models.regression.design import Design
from latensor.models.regression.weights import Linearized, LowRank, repeated, solve_ridge, thin_qr
from latensor.value_files import storable

# Over the modes, to share norms between factors and core: more change nothing that was seen.
_ROUNDS = 4


def _first(tensor: Array, *modes: int) -> Array:
    """Some modes first, the others in their order; `np.moveaxis` takes ten times longer."""
    return tensor.transpose(*modes, *(k for k in range(tensor.ndim) if k not in modes))


def _moved(tensor: Array, mode: int, to: int) -> Array:
    """A mode moved behind some that follow it."""
    after = range(to + 1, tensor.ndim)
    return tensor.transpose(*range(mode), *range(mode + 1, to + 1), mode, *after)


def unfolded(tensor: Array, mode: int) -> Array:
    """(d_mode, ..): a mode, and the others in their order."""
    return _first(tensor, mode).reshape(tensor.shape[mode], -1)


def multiplied(matrix: Array, tensor: Array, mode: int) -> Array:
    """A tensor times a matrix (r, d_mode) in one mode."""
    shape = (len(matrix), *tensor.shape[:mode], *tensor.shape[mode + 1 :])
    return _moved((matrix @ unfolded(tensor, mode)).reshape(shape), 0, mode)


@storable
@dataclass(frozen=True, eq=False)
class TuckerWeights(LowRank):
    """W = G x_1 U_1 .. x_N U_N with a core G (R_1, .., R_N, q) that holds the outputs.

    Attributes
    ----------
    core : (R_1, .., R_N, q)
    factors : N matrices (d_k, R_k)
    """

    core: Array
    factors: tuple[Array, ...]

    @property
    def blocks(self) -> tuple[Array, ...]:  # type: ignore[override]
        return (*self.factors, self.core)

    @property
    def n_free(self) -> int:
        return self.n_parameters - sum(int(f.shape[1]) ** 2 for f in self.factors)

    def with_blocks(self, blocks: Sequence[Array]) -> TuckerWeights:
        return TuckerWeights(blocks[-1], tuple(blocks[:-1]))

    def _derivative(self, left: Array, mode: int) -> Array:
        """(m, q, d_mode, R_mode), of X contracted with all other factors."""
        order = len(self.factors)
        flat = _first(left, 0, mode + 1).reshape(len(left), self.factors[mode].shape[0], -1)
        core = _first(self.core, order, mode)
        matrix = core.reshape(core.shape[0] * core.shape[1], -1)
        return (flat @ matrix.T).reshape(*flat.shape[:2], *core.shape[:2]).transpose(0, 2, 1, 3)

    def linearize(self, design: Design) -> Linearized:
        m, q, half, left = design.n_rows, self.core.shape[-1], None, np.empty(0)
        jacobian = np.empty((m, q, self.n_parameters))
        start = 0
        for k, factor in enumerate(self.factors):
            if k in (0, design.split):
                half = design.half(self.factors, k, columns=False)
            left = design.by_all(self.factors, k, half)
            own = jacobian[:, :, start : start + factor.size].reshape(m, q, *factor.shape)
            own[...] = self._derivative(left, k)
            start += factor.size
        scores = (left @ self.factors[-1]).reshape(m, -1)
        core = jacobian[:, :, start:].reshape(m, q, -1, q)
        if q > 1:
            core[...] = 0.0
        for j in range(q):
            core[:, j, :, j] = scores
        return Linearized(scores @ self.core.reshape(-1, q), (jacobian,))

    def jacobian(self, at: Linearized) -> Array:
        return np.asarray(at.parts[0])

    def metric(self) -> Array:
        """Of factors with orthonormal columns, which `balanced` gives."""
        order = len(self.factors)
        n = self.n_parameters
        found = np.zeros((n, n))
        edges = np.concatenate([[0], np.cumsum([b.size for b in self.blocks])])
        for k, left in enumerate(self.factors):
            flat = unfolded(self.core, k)
            at = slice(edges[k], edges[k + 1])
            found[at, at] = repeated(flat @ flat.T, len(left))
            # A change of the factor inside its own span is one of the core.
            shaped = _first(self.core, k)
            crossed = _moved(np.multiply.outer(left, shaped).swapaxes(1, 2), 2, k + 2)
            found[at, edges[order] :] = crossed.reshape(left.size, -1)
            found[edges[order] :, at] = found[at, edges[order] :].T
            for j in range(k):
                right = self.factors[j]
                both = _first(self.core, k, j)
                both = both.reshape(both.shape[0], both.shape[1], -1)
                inner = np.tensordot(both, both, axes=(2, 2))  # a, b, c, d
                block = np.tensordot(left, inner, axes=(1, 2))  # i, a, b, d
                block = np.tensordot(block, right, axes=(2, 1)).transpose(0, 1, 3, 2)
                there = slice(edges[j], edges[j + 1])
                found[at, there] = block.reshape(left.size, right.size)
                found[there, at] = found[at, there].T
        found[edges[order] :, edges[order] :] = np.eye(self.core.size)
        return found

    def bending(self, gradient: Array) -> Array:
        order, core = len(self.factors), self.core
        tensor = gradient.reshape(*(len(f) for f in self.factors), -1)
        found = np.zeros((self.n_parameters, self.n_parameters))
        edges = np.concatenate([[0], np.cumsum([b.size for b in self.blocks])])
        for k, left in enumerate(self.factors):
            d, rank = left.shape
            at = slice(edges[k], edges[k + 1])
            alone = _first(self._contracted(tensor, k), k)
            block = np.zeros((d, rank, rank, alone[0].size))
            block[:, np.arange(rank), np.arange(rank)] = alone.reshape(d, 1, -1)
            block = _moved(block.reshape(d, rank, rank, *alone.shape[1:]), 2, k + 2)
            found[at, edges[order] :] = block.reshape(left.size, -1)
            found[edges[order] :, at] = found[at, edges[order] :].T
            for j in range(k):
                pair = _first(self._contracted(tensor, k, j), k, j)
                both = _first(core, k, j)
                axes = list(range(2, order + 1))
                inner = np.tensordot(pair, both, axes=(axes, axes)).transpose(0, 2, 1, 3)
                there = slice(edges[j], edges[j + 1])
                found[at, there] = inner.reshape(left.size, -1)
                found[there, at] = found[at, there].T
        return found

    def _contracted(self, tensor: Array, *left_out: int) -> Array:
        """A tensor (d_1, .., d_N, q) times the factors of all modes but some."""
        for k, factor in enumerate(self.factors):
            if k not in left_out:
                tensor = multiplied(factor.T, tensor, k)
        return tensor

    def squared_norm(self) -> float:
        """Of factors with orthonormal columns, as `metric`."""
        return float((self.core**2).sum())

    def norm_gradient(self) -> Array:
        parts = []
        for k, factor in enumerate(self.factors):
            flat = unfolded(self.core, k)
            parts.append((factor @ (flat @ flat.T)).ravel())
        return np.concatenate([*parts, self.core.ravel()])

    def sweep(self, design: Design, targets: Array, ridge: float) -> TuckerWeights:
        weights, half, left = self.balanced(), None, np.empty(0)
        for k in range(len(self.factors)):
            d, rank = weights.factors[k].shape
            if k in (0, design.split):
                half = design.half(weights.factors, k, columns=False)
            left = design.by_all(weights.factors, k, half)
            part = weights._derivative(left, k).reshape(-1, d * rank)
            flat = unfolded(weights.core, k)
            gram = part.T @ part + repeated(ridge * (flat @ flat.T), d)
            solved = solve_ridge(gram, part.T @ targets.ravel()).reshape(d, rank)
            weights = weights._with_orthonormal(k, solved)
        scores = (left @ weights.factors[-1]).reshape(design.n_rows, -1)
        gram = scores.T @ scores + ridge * np.eye(scores.shape[1])
        core = solve_ridge(gram, scores.T @ targets).reshape(self.core.shape)
        return replace(weights, core=core)

    def times(self, factor: float) -> TuckerWeights:
        weights = self.balanced()
        return replace(weights, core=weights.core * factor)

    def _with_orthonormal(self, mode: int, factor: Array) -> TuckerWeights:
        """Another factor, made orthonormal; the core takes what it was."""
        q, r = thin_qr(factor)
        core = multiplied(r, self.core, mode)
        return TuckerWeights(core, (*self.factors[:mode], q, *self.factors[mode + 1 :]))

    def balanced(self) -> TuckerWeights:
        """Orthonormal factors; the core takes what they were."""
        weights = self
        for k, factor in enumerate(self.factors):
            weights = weights._with_orthonormal(k, factor)
        return weights

    def smallest(self) -> TuckerWeights:
        """U M and M^-1 G_(k) in every mode, with M M' = S^-1/2 (S^1/2 H S^1/2)^1/2 S^-1/2.

        S = U'U and H = G_(k) G_(k)'. Of all M this has the smallest |U M|^2 + |M^-1 G_(k)|^2; a
        few rounds make it so in all modes at once.
        """
        weights = self.balanced()
        core, factors = weights.core, list(weights.factors)
        if core.ndim == 3 and core.shape[0] == core.shape[1] and core.shape[2] == 1:
            # Of a matrix, singular values shared evenly among both factors and the core.
            left, values, right = np.linalg.svd(core[:, :, 0])
            scale = np.cbrt(values)
            shared = (factors[0] @ (left * scale), factors[1] @ (right.T * scale))
            return TuckerWeights(np.diag(scale)[:, :, None], shared)
        roots = [np.eye(f.shape[1]) for f in factors]  # factor k is U_k roots[k]
        for _ in range(_ROUNDS):
            for k, root in enumerate(roots):
                flat = unfolded(core, k)
                # With the orthonormal U in place of U root, S = I and H = root G G' root'.
                spread = root @ flat
                values, vectors = np.linalg.eigh(spread @ spread.T)
                floor = np.finfo(float).eps * max(float(values[-1]), np.finfo(float).tiny)
                scale = np.maximum(values, floor) ** 0.25
                roots[k] = vectors * scale
                change = (vectors / scale).T @ root
                core = multiplied(change, core, k)
        return TuckerWeights(core, tuple(f @ r for f, r in zip(factors, roots, strict=True)))

    def dense(self) -> Array:
        found = self.core
        for k, factor in enumerate(self.factors):
            found = multiplied(factor, found, k)
        return found.reshape(math.prod(len(f) for f in self.factors), -1)
