"""Score functions of a log density, or of its gradient, by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from latensor.arrays import Array
from latensor.arrays.derivatives import (
    RowFunction,
    check_differentiates,
    constant_like,
    evaluate,
    row_gradient,
)
from latensor.exceptions import InvalidInputError
from latensor.scores.base import Scores


@dataclass(frozen=True, eq=False)
class AutodiffScores(Scores):
    """Score functions by the recursion S_m = -S_(m-1) (x) grad log p - grad S_(m-1).

    Contracted with vectors, each step is one reverse pass: no array of d^2 numbers per row is
    formed. Where `score` is only an estimate of a gradient, its Jacobian is symmetrized.

    Attributes
    ----------
    score : function of rows (n, d) of PyTorch or JAX that gives grad log p (n, d)
    library : "torch" or "jax"
    """

    score: RowFunction
    library: str

    @property
    def n_features(self) -> None:
        return None

    def _projected(self, rows: Array, order: int, basis: Array) -> Array:
        r = basis.shape[1]
        columns = list(basis.T)
        if order == 1:
            return np.asarray(self._recursion(rows, []) @ basis)
        if order == 2:
            found = np.stack([self._recursion(rows, [v]) @ basis for v in columns], axis=1)
            return np.asarray((found + found.transpose(0, 2, 1)) / 2)
        found = np.empty((len(rows), r, r, r))
        for i in range(r):
            for j in range(i + 1):
                found[:, i, j] = self._recursion(rows, [columns[i], columns[j]]) @ basis
                found[:, j, i] = found[:, i, j]
        turned = found + found.transpose(0, 1, 3, 2) + found.transpose(0, 3, 1, 2)
        return np.asarray(turned / 3)

    def _contracted(self, rows: Array, vectors: list[Array]) -> Array:
        return self._recursion(rows, vectors)

    def _recursion(self, rows: Array, vectors: list[Array]) -> Array:
        """S_(m + 1)(v_1, .., v_m, .) (n, d), derivatives taken from the left to the right."""
        if not vectors:
            return -evaluate(self.score, rows, self.library, rows.shape)
        scalar = _Along(self, vectors)

        def last(x: Array) -> Array:
            gradient = row_gradient(scalar, self.library)(x)
            return -scalar(x)[:, None] * self.score(x) - gradient

        return np.asarray(evaluate(last, rows, self.library, rows.shape))


@dataclass(frozen=True, eq=False)
class _Along:
    """S_m(v_1, .., v_m) (n,) of rows, by the recursion."""

    scores: AutodiffScores
    vectors: list[Array]

    def __call__(self, rows: Array) -> Array:
        vector = constant_like(self.vectors[-1], rows)
        along = self.scores.score(rows) @ vector
        if len(self.vectors) == 1:
            return -along
        before = _Along(self.scores, self.vectors[:-1])
        gradient = row_gradient(before, self.scores.library)(rows)
        return -before(rows) * along - gradient @ vector


def from_score(score: Callable[[Array], Array], library: str = "torch") -> AutodiffScores:
    """Score functions from the gradient of a log density, such as a trained score network.

    Parameters
    ----------
    score : function of rows (n, d), an array of `library`, that gives grad log p (n, d); the value
        of a row depends on that row only
    library : "torch" or "jax", which differentiates
    """
    if not callable(score):
        raise InvalidInputError(f"score must be a function of rows, got {type(score).__name__}")
    return AutodiffScores(score, check_differentiates(library))


def from_log_density(
    log_density: Callable[[Array], Array], library: str = "torch"
) -> AutodiffScores:
    """Score functions of a log density, known up to a constant.

    Parameters
    ----------
    log_density : function of rows (n, d), an array of `library`, that gives log p (n,) up to a
        constant, three times differentiable; the value of a row depends on that row only
    library : "torch" or "jax", which differentiates
    """
    if not callable(log_density):
        raise InvalidInputError(
            f"log_density must be a function of rows, got {type(log_density).__name__}"
        )
    known = check_differentiates(library)

    def checked(rows: Array) -> Array:
        found = log_density(rows)
        if tuple(getattr(found, "shape", ())) != (rows.shape[0],):
            raise InvalidInputError(
                f"log_density must give one number per row, shape ({rows.shape[0]},), got "
                f"{tuple(getattr(found, 'shape', ()))}"
            )
        return found

    return AutodiffScores(row_gradient(checked, known), known)
