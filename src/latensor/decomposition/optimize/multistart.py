"""Restart until two agree: one rule for every search over starts.

Fits that end at the same loss from different starts have found what there is to find; where they
keep ending at different ones, more is to be found than restarts can tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from latensor.decomposition.optimize.iteration import StateT


@dataclass(frozen=True)
class Best(Generic[StateT]):
    """The best state of a search, and how many others agreed and disagreed with the best so far."""

    state: StateT
    agreements: int
    disagreements: int


@dataclass(frozen=True)
class Multistart:
    """When a search over starts ends.

    Parameters
    ----------
    tolerance : float, relative difference of two losses that have found the same optimum
    agreements : int, so many end the search
    disagreements : int, so many end it without an answer; None for as many as there are starts
    enough : float, loss below which nothing is left to look for
    base : float, added to every loss before they are compared
    """

    tolerance: float
    agreements: int = 1
    disagreements: int | None = None
    enough: float = 0.0
    base: float = 0.0

    def search(self, first: StateT, others: Iterable[StateT]) -> Best[StateT]:
        """The best of a first state and of as many others as it takes."""
        best, same, different = first, 0, 0
        for other in others if first.loss > self.enough else ():
            agree = abs(other.loss - best.loss) <= self.tolerance * (best.loss + self.base)
            same, different = same + agree, different + (not agree)
            if other.loss < best.loss:
                best = other
            if same >= self.agreements or best.loss <= self.enough:
                break
            if self.disagreements is not None and different >= self.disagreements:
                break
        return Best(best, same, different)
