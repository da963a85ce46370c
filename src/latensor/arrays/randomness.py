"""Random numbers from an explicit generator, the same on every array library and device."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from latensor.arrays.library import Array, is_complex, like
from latensor.exceptions import InvalidInputError

RandomState: TypeAlias = (
    int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None
)


def generator(random_state: RandomState) -> np.random.Generator:
    """A NumPy generator from a seed, a generator (used as it is) or None (fresh entropy).

    A `RandomState`, scikit-learn's older kind, seeds a generator by one draw from it.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31 - 1, size=4))
    if isinstance(random_state, bool) or not isinstance(
        random_state, int | np.integer | np.random.SeedSequence | type(None)
    ):
        raise InvalidInputError(
            f"random_state={random_state!r} must be None, an integer or a numpy Generator"
        )
    try:
        return np.random.default_rng(random_state)
    except ValueError as error:
        raise InvalidInputError(f"random_state={random_state!r}: {error}") from error


def standard_normal(rng: np.random.Generator, shape: tuple[int, ...], reference: Array) -> Array:
    """Standard normal numbers with the library, device and dtype of `reference`.

    Drawn on the host in float64, so that a seed means the same numbers everywhere.
    """
    values: Any = rng.standard_normal(shape)
    if is_complex(reference):
        values = (values + 1j * rng.standard_normal(shape)) / np.sqrt(2.0)
    return like(values, reference)
