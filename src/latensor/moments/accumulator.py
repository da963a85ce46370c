"""What every moment is: a sum over samples that streams, merges and is read off at the end."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar

Moment = TypeVar("Moment", covariant=True)


class Accumulator(Protocol[Moment]):
    """A sum over samples in constant memory; picklable, so that workers can send it home.

    `merge` is associative and commutative, and any split of the samples into batches gives the
    same moment, up to rounding.
    """

    def update(self, batch: Any) -> Self:
        """Add the samples of one batch."""

    def merge(self, other: Self) -> Self:
        """Add the samples that another accumulator has seen."""

    def finalize(self) -> Moment:
        """The moment of all samples so far; accumulation may go on afterwards."""
