"""An estimator's parameters as fields of a dataclass, whose ranges are checked when it is fitted.

An estimator lists them in its class body, under `@dataclass(eq=False, repr=False)`: name, type,
default and ranges in one line. What other models have too is a base class with these lines.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

import numpy as np

from latensor.arrays.randomness import RandomState, generator
from latensor.exceptions import InvalidInputError


class Range(Protocol):
    """A set of values that a parameter may take."""

    def __contains__(self, value: object) -> bool: ...


@dataclass(frozen=True)
class Choice:
    """One of a few values, such as names or None."""

    values: tuple[object, ...]

    def __contains__(self, value: object) -> bool:
        # An array compares elementwise and a 1 equals True: neither is meant.
        return any(type(value) is type(item) and value == item for item in self.values)

    def __str__(self) -> str:
        return " or ".join(repr(item) for item in self.values)


@dataclass(frozen=True)
class Interval:
    """Numbers between two ends, integers or reals; an open end excludes itself."""

    kind: type
    low: float
    high: float = np.inf
    closed: str = "both"

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool | np.bool_) or not isinstance(value, self.kind):
            return False
        number: Any = value
        above = number >= self.low if self.closed in ("both", "left") else number > self.low
        below = number <= self.high if self.closed in ("both", "right") else number < self.high
        return bool(above and below)

    def __str__(self) -> str:
        noun = "an integer" if issubclass(self.kind, numbers.Integral) else "a number"
        left = "at least" if self.closed in ("both", "left") else "above"
        text = f"{noun} {left} {self.low:g}"
        if np.isfinite(self.high):
            right = "at most" if self.closed in ("both", "right") else "below"
            text += f" and {right} {self.high:g}"
        return text


def parameter(default: object, *ranges: Range) -> Any:
    """A field of an estimator: its default, and the ranges of which a value must be in one."""
    return field(default=default, metadata={"ranges": ranges})


def parameter_ranges(estimator: type) -> dict[str, Sequence[Range]]:
    """The ranges of every parameter of an estimator's class, by name."""
    fields = getattr(estimator, "__dataclass_fields__", {})
    return {n: f.metadata["ranges"] for n, f in fields.items() if "ranges" in f.metadata}


def check_parameters(estimator: Any, table: Mapping[str, Sequence[Range]]) -> None:
    """Refuse a parameter outside of all its ranges, and what is no seed or no callback.

    Parameters
    ----------
    estimator : object with the parameters as attributes
    table : the ranges of every parameter, by name
    """
    for name, ranges in table.items():
        value = getattr(estimator, name)
        if not any(value in each for each in ranges):
            expected = ", or ".join(str(each) for each in ranges)
            raise InvalidInputError(
                f"{name}={value!r} of {type(estimator).__name__} must be {expected}"
            )
    seed = getattr(estimator, "random_state", None)
    if not isinstance(seed, np.random.RandomState):  # which a generator would draw from
        generator(seed)
    callback = getattr(estimator, "callback", None)
    if callback is not None and not callable(callback):
        raise InvalidInputError(
            f"callback={callback!r} of {type(estimator).__name__} must be a function or None"
        )


class _Callable:
    """The values that can be called, as the algorithms of `latensor.decomposition` are."""

    def __contains__(self, value: object) -> bool:
        return callable(value)

    def __str__(self) -> str:
        return "an algorithm of latensor.decomposition"


# The ranges of the parameters that many models share.
ALGORITHM = (Choice(("auto",)), _Callable())
N_COMPONENTS = (Interval(numbers.Integral, 1), Choice(("auto",)))
REFINE = (Choice(("auto",)), Interval(numbers.Integral, 0))
N_JOBS = (Choice((None,)), Interval(numbers.Integral, 1), Interval(numbers.Integral, -np.inf, -1))
VERBOSE = (Choice((True, False)), Interval(numbers.Integral, 0))
FLAG = Choice((True, False))
AT_LEAST_ONE = Interval(numbers.Integral, 1)
AT_LEAST_ZERO = Interval(numbers.Real, 0)
POSITIVE = Interval(numbers.Real, 0, closed="neither")


@dataclass(eq=False, repr=False)
class RefinementParameters:
    """How a fit is refined, of all models that are refined by passes over the data."""

    _: KW_ONLY
    refine: int | str = parameter("auto", *REFINE)
    tol: float = parameter(1e-6, AT_LEAST_ZERO)
    max_iter: int = parameter(200, AT_LEAST_ONE)
    random_state: RandomState = None
    n_jobs: int | None = parameter(None, *N_JOBS)
