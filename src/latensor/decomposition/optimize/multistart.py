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
    fruitless : int, so many in a row that gain no more than that end it; None for as many as there
        are starts
    enough : float, loss below which nothing is left to look for
    base : float, added to every loss before they are compared
    """

    tolerance: float
    agreements: int = 1
    fruitless: int | None = None
    enough: float = 0.0
    base: float = 0.0

    def search(self, first: StateT, others: Iterable[StateT]) -> Best[StateT]:
        """The best of a first state and of as many others as it takes."""
        best, same, different, fruitless = first, 0, 0, 0
        for other in others if first.loss > self.enough else ():
            gain = best.loss - other.loss
            agree = abs(gain) <= self.tolerance * (best.loss + self.base)
            same, different = same + agree, different + (not agree)
            fruitless = fruitless + 1 if agree or gain < 0 else 0
            if gain > 0:
                best = other
            if same >= self.agreements or best.loss <= self.enough or fruitless == self.fruitless:
                break
        return Best(best, same, different)
