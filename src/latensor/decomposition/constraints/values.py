"""The constraints: each a frozen value with its proximal step, its penalty and its test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.linalg

from latensor.exceptions import InvalidInputError


@runtime_checkable
class Constraint(Protocol):
    """What the fit asks of a constraint on the columns of one factor.

    Constraints without a penalty hold for every positive multiple of a column (they are cones);
    `signed` says whether they also hold for the negative.
    """

    signed: bool
    penalized: bool

    def nearest(self, column: Any, weight: float) -> Any:
        """The column x that minimizes weight |x - column|^2 + penalty(x)."""

    def penalty(self, column: Any) -> float:
        """What a column is charged."""

    def holds(self, column: Any) -> bool:
        """Whether a column satisfies the constraint, exactly."""


@dataclass(frozen=True)
class Nonnegative:
    """No entry below zero."""

    signed = False
    penalized = False

    def nearest(self, column: Any, weight: float) -> Any:
        """The positive part."""
        return np.maximum(column, 0.0)

    def penalty(self, column: Any) -> float:
        """Nothing."""
        return 0.0

    def holds(self, column: Any) -> bool:
        """Whether no entry is below zero."""
        return bool(np.all(column >= 0))


@dataclass(frozen=True)
class Simplex(Nonnegative):
    """No entry below zero, and columns that add up to one: fractions of a whole.

    The weights carry the size, so that up to it this is nonnegativity; the sum is made one at the
    end.
    """


@dataclass(frozen=True)
class Monotone:
    """Entries that never fall along the mode (or never rise).

    Parameters
    ----------
    increasing : bool, False for entries that never rise
    nonnegative : bool, also no entry below zero
    """

    increasing: bool = True
    nonnegative: bool = False

    signed = False
    penalized = False

    def nearest(self, column: Any, weight: float) -> Any:
        """Isotonic regression, by pooling adjacent violators."""
        turned = column if self.increasing else column[::-1]
        found = _isotonic(turned, 0.0 if self.nonnegative else -math.inf)[0]
        return found if self.increasing else found[::-1].copy()

    def penalty(self, column: Any) -> float:
        """Nothing."""
        return 0.0

    def holds(self, column: Any) -> bool:
        """Whether the entries are in order."""
        steps = np.diff(column) if self.increasing else -np.diff(column)
        return bool(np.all(steps >= 0) and (not self.nonnegative or np.all(column >= 0)))


@dataclass(frozen=True)
class Unimodal:
    """Entries that rise to one peak and fall after it, wherever it is: a single band or elution.

    Parameters
    ----------
    nonnegative : bool, also no entry below zero
    """

    nonnegative: bool = False

    signed = False
    penalized = False

    def nearest(self, column: Any, weight: float) -> Any:
        """The best split into an increasing and a decreasing isotonic fit.

        The errors of all splits come from one pass in each direction (Stout 2008).
        """
        floor = 0.0 if self.nonnegative else -math.inf
        rising = _isotonic(column, floor)[1]
        decreasing = _isotonic(column[::-1], floor)[1][::-1]
        split = int(np.argmin(rising + decreasing))
        first = _isotonic(column[:split], floor)[0]
        second = _isotonic(column[split:][::-1], floor)[0][::-1]
        return np.concatenate([first, second])

    def penalty(self, column: Any) -> float:
        """Nothing."""
        return 0.0

    def holds(self, column: Any) -> bool:
        """Whether no step up follows a step down."""
        steps = np.sign(np.diff(column))
        steps = steps[steps != 0]
        single = np.all(np.diff(steps) <= 0)
        return bool(single and (not self.nonnegative or np.all(column >= 0)))


@dataclass(frozen=True)
class Smooth:
    """A penalty on differences of neighbouring entries (Whittaker's smoother).

    A column x is charged strength |D x|^2, D taking differences; the columns of modes without a
    penalty have unit norm, so that x has the size of the data.

    Parameters
    ----------
    strength : float above 0
    order : int, of the differences: 1 charges slopes, 2 curvature
    """

    strength: float
    order: int = 2

    signed = True
    penalized = True

    def __post_init__(self) -> None:
        _check_strength(self.strength)
        if self.order not in (1, 2, 3):
            raise InvalidInputError(f"order={self.order!r} of Smooth must be 1, 2 or 3")

    def nearest(self, column: Any, weight: float) -> Any:
        """The solution of (weight + strength D'D) x = weight column, a banded system."""
        n = len(column)
        if n <= self.order:
            return column.copy()
        bands = np.zeros((self.order + 1, n))
        difference = np.diff(np.eye(self.order + 1), n=self.order, axis=0)[0]
        for shift in range(self.order + 1):
            for j in range(self.order + 1 - shift):
                # Row k of D has its entry j at column k + j.
                product = difference[j] * difference[j + shift]
                bands[self.order - shift, j + shift : n - self.order + j + shift] += product
        bands *= self.strength
        bands[self.order] += weight
        return scipy.linalg.solveh_banded(bands, weight * column, check_finite=False)

    def penalty(self, column: Any) -> float:
        """Strength |D x|^2."""
        if len(column) <= self.order:
            return 0.0
        return float(self.strength * np.sum(np.diff(column, n=self.order) ** 2))

    def holds(self, column: Any) -> bool:
        """Always: a penalty excludes nothing."""
        return True


@dataclass(frozen=True)
class Sparse:
    """A penalty on the sum of magnitudes, which makes small entries exactly zero (lasso).

    A column x is charged strength sum |x_i|, in units of the norm of the data; the columns of modes
    without a penalty have unit norm.

    Parameters
    ----------
    strength : float above 0; entries of a lone component below strength / 2 become zero
    nonnegative : bool, also no entry below zero
    """

    strength: float
    nonnegative: bool = False

    penalized = True

    def __post_init__(self) -> None:
        _check_strength(self.strength)

    @property
    def signed(self) -> bool:
        """Whether the negative of a column is as good."""
        return not self.nonnegative

    def nearest(self, column: Any, weight: float) -> Any:
        """Soft thresholding."""
        threshold = self.strength / (2.0 * weight)
        if self.nonnegative:
            return np.maximum(column - threshold, 0.0)
        return np.sign(column) * np.maximum(np.abs(column) - threshold, 0.0)

    def penalty(self, column: Any) -> float:
        """Strength sum |x_i|."""
        return float(self.strength * np.abs(column).sum())

    def holds(self, column: Any) -> bool:
        """Whether no entry is below zero, where that is asked for."""
        return not self.nonnegative or bool(np.all(column >= 0))


@dataclass(frozen=True)
class FewComponents:
    """A penalty on the norm of whole columns, which sets components that add little to zero.

    A column x is charged strength |x|, in units of the norm of the data (group lasso); the columns
    of modes without a penalty have unit norm, so that in one mode this charges the weights.

    Parameters
    ----------
    strength : float above 0; a lone component of norm below strength / 2 becomes zero
    """

    strength: float

    signed = True
    penalized = True

    def __post_init__(self) -> None:
        _check_strength(self.strength)

    def nearest(self, column: Any, weight: float) -> Any:
        """The column, shorter by a constant."""
        length = float(np.linalg.norm(column))
        shorter = max(length - self.strength / (2.0 * weight), 0.0)
        return column * (shorter / length) if length > 0.0 else column.copy()

    def penalty(self, column: Any) -> float:
        """Strength |x|."""
        return float(self.strength * np.linalg.norm(column))

    def holds(self, column: Any) -> bool:
        """Always: a penalty excludes nothing."""
        return True


@dataclass(frozen=True)
class FewEntries:
    """Columns with at most so many entries that are not zero (hard sparsity).

    Parameters
    ----------
    count : int, at least 1
    nonnegative : bool, also no entry below zero
    """

    count: int
    nonnegative: bool = False

    penalized = False

    def __post_init__(self) -> None:
        whole = isinstance(self.count, int | np.integer) and not isinstance(self.count, bool)
        if not whole or self.count < 1:
            raise InvalidInputError(f"count={self.count!r} must be an integer of at least 1")

    @property
    def signed(self) -> bool:
        """Whether the negative of a column is as good."""
        return not self.nonnegative

    def nearest(self, column: Any, weight: float) -> Any:
        """The largest entries; of equal ones the first."""
        kept = np.maximum(column, 0.0) if self.nonnegative else column
        largest = np.argsort(-np.abs(kept), kind="stable")[: self.count]
        found = np.zeros_like(kept)
        found[largest] = kept[largest]
        return found

    def penalty(self, column: Any) -> float:
        """Nothing."""
        return 0.0

    def holds(self, column: Any) -> bool:
        """Whether no more entries than that are not zero."""
        few = np.count_nonzero(column) <= self.count
        return bool(few and (not self.nonnegative or np.all(column >= 0)))


def _check_strength(strength: object) -> None:
    number = isinstance(strength, int | float | np.number) and not isinstance(strength, bool)
    if not number or not 0 < float(strength) < math.inf:  # type: ignore[arg-type]
        raise InvalidInputError(f"strength={strength!r} must be a finite number above 0")


def _isotonic(values: Any, floor: float) -> tuple[Any, Any]:
    """The nearest increasing sequence, and the squared errors of those of all prefixes."""
    from latensor.decomposition.constraints._kernels import isotonic_prefixes

    n = len(values)
    levels, counts, errors = np.empty(n), np.empty(n), np.empty(n + 1)
    contiguous = np.ascontiguousarray(values, dtype=np.float64)
    blocks = isotonic_prefixes(contiguous, floor, levels, counts, errors)
    found = np.repeat(np.maximum(levels[:blocks], floor), counts[:blocks].astype(np.intp))
    return found, errors
