"""Mean, covariance and third moment of samples, the last along a basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Up to so many features a stream keeps the third moment whole.
WHOLE = 32


@dataclass(frozen=True)
class ThirdMoment:
    """Central moments of samples x in R^d, along a basis B (d, r) in the third order.

    With y = B'(x - E x):

    Attributes
    ----------
    count : int
    weight : float
    mean : (d,)
    covariance : (d, d)
    basis : (d, r), orthonormal columns
    third : (r, r, r), the expectation of y (x) y (x) y
    norm_third : (r,), the expectation of |x - E x|^2 y
    square_third : (d, d), the expectation of (x - E x)_i^2 (x - E x)_l; None where not kept
    """

    count: int
    weight: float
    mean: Any
    covariance: Any
    basis: Any
    third: Any
    norm_third: Any
    square_third: Any = None

    def along(self, directions: Any) -> tuple[Any, Any]:
        """`third` and `norm_third` along other directions (d, s) in the span of the basis."""
        turn = self.basis.T @ directions
        third = self.third
        for _ in range(3):
            third = np.tensordot(third, turn, axes=(0, 0))
        return third, turn.T @ self.norm_third

    def between(self, first: Any, second: Any, third: Any) -> Any:
        """E (A'x) (x) (B'x) (x) (C'x) of three matrices (d, .) in the span of the basis."""
        turns = [self.basis.T @ matrix for matrix in (first, second, third)]
        return np.einsum("abc,ai,bj,cl->ijl", self.third, *turns, optimize=True)
