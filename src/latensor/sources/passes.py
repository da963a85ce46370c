"""Going over batches that a caller gave, outside of folds: the first one, and answers per unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from latensor.exceptions import InvalidInputError


def first_filled(batches: Iterable[Any], is_filled: Callable[[Any], bool]) -> Any:
    """The first batch with a sample, which says what all others must be like."""
    for batch in batches:
        if is_filled(batch):
            return batch
    raise InvalidInputError("X holds no batch with a sample: give at least one")


def over(batches: Iterable[Any], answer: Callable[[Any], Any]) -> list[Any]:
    """What a function answers for every batch, in order."""
    return [answer(batch) for batch in batches]
