"""How many components: the largest number that two halves of the data find again.

For a candidate k both halves are fitted. Two things are taken from the same two fits. *Held-out
likelihood*: l_i(k), that of unit i under the model of the other half; numbers are compared unit by
unit, D(k, k') = sum_i w_i [l_i(k) - l_i(k')] with its standard error. *Reproduction*: both models
are applied to all units; with u_i the column of responsibilities of component i scaled to length
one and d2(i, j) = 1 - u_i . u_j, component i of one half and its partner in the other are one
component where 4 d2(partners) < d2 to the nearest other one. A half has twice the variance of the
whole: balls of two standard errors around neighbours then do not meet.

The answer is the largest k that predicts no worse than the best by two standard errors of a
smaller one, and whose components are all reproduced, in two of three random divisions into halves
where the first one alone leaves a doubt. One component is reproduced by definition.
Where still more components would predict better, the likelihood does not single a number out:
then the parameters must agree too, where they are compared and do so for any number above one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.value_files import storable

# Standard errors by which a likelihood must differ.
_ERRORS = 2.0
# Doublings in a row without gain that end the search: with one, six unequal topics stopped at 3.
_PATIENCE = 2
_STEP_DOWN = 1.2
# Balls of two standard errors around neighbours do not meet.
_APART = 4.0
# Divisions of the data that must say the same: one is one draw.
_AGREE = 2


@storable
@dataclass(frozen=True)
class Tried:
    """One number of components that was tried.

    Attributes
    ----------
    n_components : int
    held_out, error : float, the log-likelihood of what was held out, per row, sample or word, and
        its standard error over units
    n_reproduced : int, components that both halves find, in the median division
    worst : float, the largest d2(partners) / d2(nearest other one); reproduced below 1/4
    n_divisions : int, divisions of the data into halves that were looked at
    seconds : float
    behind, behind_error : float, how far `held_out` is below the best number, and the standard
        error of that difference, unit by unit
    """

    n_components: int
    held_out: float
    error: float
    n_reproduced: int
    worst: float
    seconds: float
    behind: float = 0.0
    behind_error: float = 0.0
    n_divisions: int = 1

    @property
    def is_reproduced(self) -> bool:
        """Whether both halves find all components."""
        return self.n_reproduced == self.n_components


@storable
@dataclass(frozen=True)
class Selection:
    """A number of components and what spoke for it; `print` it for a table.

    Attributes
    ----------
    n_components : int
    reason : str, in one sentence
    choices : "small" (parameters agree too, where they are compared), "medium" (the components
        are found again) and "large" (the fewest that predict as well as the best). The answer is
        "medium", or "small" where that is above one and "large" above "medium"
    limit_reached : bool, whether more components than were tried might predict better
    table : a Tried for every number tried
    ratios : (k,) d2(partners) / d2(nearest other one) of the components at the answer
    n_fits : int, fits of a half
    tests : what else was tested, by name
    """

    n_components: int
    reason: str
    choices: dict[str, int] = field(default_factory=dict)
    limit_reached: bool = False
    table: tuple[Tried, ...] = ()
    ratios: Any = None
    n_fits: int = 0
    tests: dict[str, float] = field(default_factory=dict)

    @property
    def in_halves(self) -> int:
        """The answer, where both halves found all of its components; 0 where nothing shows it."""
        row = next((row for row in self.table if row.n_components == self.n_components), None)
        found = row is not None and row.is_reproduced and self.n_components > 1
        agrees = self.choices.get("small") == self.n_components
        return self.n_components if found and agrees else 0

    @property
    def larger(self) -> int:
        """A larger number that predicts best, by more than one standard error, and was found in
        both halves; beside an answer of one, whether it was found or not. 0 for none.
        """
        rows = {row.n_components: row for row in self.table}
        own, best = rows.get(self.n_components), max(rows.values(), key=_held_out, default=None)
        if own is None or best is None or best.n_components <= self.n_components:
            return 0
        counts = own.n_components == 1 or best.is_reproduced
        return best.n_components if counts and own.behind > own.behind_error else 0

    @property
    def candidates(self) -> tuple[int, ...]:
        """The numbers tried, increasing."""
        return tuple(row.n_components for row in self.table)

    def __str__(self) -> str:
        rows = (
            f"{row.n_components:6d} components   log-likelihood held out {row.held_out:12.5g}"
            f"   behind {row.behind:.3g} +- {row.behind_error:.2g}"
            f"   {row.n_reproduced} of {row.n_components} found in both halves"
            for row in self.table
        )
        return "\n".join([f"{self.n_components} components: {self.reason}", *rows])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and strings."""
        return {
            "n_components": self.n_components,
            "reason": self.reason,
            "choices": dict(self.choices),
            "limit_reached": self.limit_reached,
            "n_fits": self.n_fits,
            "table": [vars(row) for row in self.table],
            "ratios": None if self.ratios is None else [float(r) for r in self.ratios],
            "tests": dict(self.tests),
        }

    @classmethod
    def of_one(cls, reason: str) -> Selection:
        """One component, because nothing else could be tried."""
        return cls(1, reason, {"small": 1, "medium": 1, "large": 1})


def with_halves(certificate: Any, selection: Selection | None) -> Any:
    """A certificate with what the halves of the data said, where the number was chosen by them."""
    takes = {each.name for each in fields(certificate)} & {"in_halves", "larger"}
    if selection is None or not takes:
        return certificate
    return replace(certificate, **{name: getattr(selection, name) for name in takes})


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What two halves say about one number of components.

    Attributes
    ----------
    scores : (n,), the log-likelihood of every unit under the model of the half it is not in
    sizes : (n,), what that is divided by: rows of a sequence, words of a document, 1 of a row
    weights : (n,)
    ratios : (k,), d2(partners) / d2(nearest other component), from `reproduction`
    agrees : bool, whether the parameters themselves are reproduced too
    """

    scores: Array
    sizes: Array
    weights: Array
    ratios: Array
    agrees: bool = True

    @property
    def size(self) -> float:
        """Rows or words that were scored, by weight; 1 where there are none."""
        return float(self.sizes @ self.weights) or 1.0

    @property
    def n_reproduced(self) -> int:
        """Components that both halves find."""
        return n_reproduced(self.ratios)

    @property
    def worst(self) -> float:
        """The largest ratio."""
        return float(self.ratios.max())


def reproduction(first: Array, second: Array) -> Array:
    """d2(partners) / d2(nearest other component) (k,), of responsibilities (n, k) of two models.

    Rows count by the squares of what they are multiplied with: give r sqrt(w) for weights w.
    """
    columns = []
    for fractions in (first, second):
        norms = np.linalg.norm(fractions, axis=0)
        columns.append(fractions / np.where(norms > 0, norms, 1.0))
    one, other = columns
    return ratios_of(1 - one.T @ other, 1 - one.T @ one, 1 - other.T @ other)


def ratios_of(between: Array, first: Array, second: Array) -> Array:
    """Distances of partners over those to the nearest other component, from distances (k, k)."""
    if len(between) == 1:
        return np.zeros(1)
    partner = scipy.optimize.linear_sum_assignment(between)[1]
    own = np.maximum(between[np.arange(len(partner)), partner], 0.0)
    for within in (first, second):
        np.fill_diagonal(within, np.inf)
    apart = np.minimum(first.min(axis=1), second.min(axis=1)[partner])
    return np.asarray(own / np.maximum(apart, np.finfo(float).tiny))


def n_reproduced(ratios: Array) -> int:
    """Components around which balls of two standard errors stay apart from all others."""
    return int(np.count_nonzero(ratios < 1 / _APART))


def is_reproduced(ratios: Array) -> bool:
    """Whether balls of two standard errors around all components stay apart."""
    return n_reproduced(ratios) == len(ratios)


def _gain(one: Evaluation, other: Evaluation) -> tuple[float, float]:
    """By how much one predicts better than another, and the standard error over units."""
    each = (one.scores - other.scores) * one.weights
    return float(each.sum()), float(np.sqrt(len(each)) * np.std(each))


def is_better(one: Evaluation, other: Evaluation) -> bool:
    """Whether one predicts the same units better than another, by two standard errors."""
    gain, error = _gain(one, other)
    return gain > _ERRORS * error


def select(
    evaluate: Callable[[int, int], Evaluation | None],
    limit: int,
    *,
    where: str = "samples",
    small: str = "the parameters must agree too",
    also: str = "and their parameters agree",
) -> Selection:
    """The largest reproduced number of components that is worth them.

    Numbers are doubled until two doublings in a row do not predict better, then the best is looked
    for between its neighbours; from the fewest that predict as well, steps go down until all
    components are reproduced. Reproduction is not monotone: what was left out above is then tried.

    Parameters
    ----------
    evaluate : fits both halves, of the division of that number, with a number of components; None
        where they cannot be fitted
    limit : int, the largest number
    where : str, what was divided into halves
    small, also : str, what "small" asks for besides, and that it is so
    """
    search = _Search(evaluate, limit)
    return search.answer(where, small, also)


class _Search:
    """Numbers of components that are tried, each once in every division that is looked at."""

    def __init__(self, evaluate: Callable[[int, int], Evaluation | None], limit: int) -> None:
        self._evaluate, self.limit = evaluate, limit
        self.found: dict[int, list[Evaluation]] = {}
        self.seconds: dict[int, float] = {}

    def answer(self, where: str, small_asks: str, also: str) -> Selection:
        if not self._try(1):
            return Selection.of_one(f"a half of the {where} cannot be fitted by itself")
        best = self._best()
        large = min(k for k in self.found if not self._is_better(best, k))
        medium = self._largest_reproduced(large)
        small = next((k for k in range(medium, 1, -1) if self._agrees(k)), 1)
        count = small if small > 1 and medium < large else medium
        limit_reached = best == self.limit > 1
        text = f"each was found again in the other half of the {where}"
        if large == 1:
            text = f"no more predict the other half of the {where} better by two standard errors"
        elif medium == 1:
            text = f"no more than one was found again in the other half of the {where}"
        if count < medium:
            text += f", {also}; {medium} are without that"
        elif small < medium:
            text += f"; {small} if {small_asks}"
        if large != count:
            more = f"{large} or more predict" if limit_reached else f"{large} predict"
            text += f"; {more} best"
        return Selection(
            count,
            text,
            {"small": small, "medium": medium, "large": large},
            limit_reached,
            tuple(self._row(k, best) for k in sorted(self.found)),
            self._median(count).ratios,
            2 * sum(map(len, self.found.values())),
        )

    def _best(self) -> int:
        """The number that predicts best: by doubling, then between the neighbours of the best."""
        best, failures, k = 1, 0, 1
        while failures < _PATIENCE and k < self.limit:
            k = min(2 * k, self.limit)
            if not self._try(k):
                break
            if self._is_better(k, best):
                best, failures = k, 0
            else:
                failures += 1
        low, high = max(best // 2, 1), min(2 * best, self.limit)
        while high - low > 2:
            left, right = low + (high - low) // 3, high - (high - low) // 3
            if not self._try(right):
                high = right
            elif not self._try(left) or self._mean(right) > self._mean(left):
                low = left
            else:
                high = right
        for k in range(low, high + 1):
            self._try(k)
        return max(self.found, key=self._mean)

    def _largest_reproduced(self, large: int) -> int:
        """Down from the number that predicts as well as the best; then what was left out above."""
        k, above = large, large + 1
        while k > 1 and not self._in_most(k, _finds_all):
            above, k = k, min(k - 1, int(k / _STEP_DOWN))
        for other in range(above - 1, k, -1):
            if self._in_most(other, _finds_all):
                return other
        return k

    def _agrees(self, k: int) -> bool:
        return self._in_most(k, lambda found: found.agrees and _finds_all(found))

    def _in_most(self, k: int, holds: Callable[[Evaluation], bool]) -> bool:
        """Whether something holds in most divisions: in the first two, or in two of three.

        Where the first one loses more than a pair of components, that is no accident of it.
        """
        if not self._try(k):
            return False
        found = self.found[k]
        said = [holds(each) for each in found]
        if k - found[0].n_reproduced > 2:
            return said[0]
        while max(said.count(True), said.count(False)) < _AGREE:
            if not self._try(k, len(said)):
                return False
            said.append(holds(found[-1]))
        return said.count(True) >= _AGREE

    def _mean(self, k: int) -> float:
        found = self.found[k][0]
        return float(found.scores @ found.weights) / found.size

    def _is_better(self, k: int, other: int) -> bool:
        return is_better(self.found[k][0], self.found[other][0])

    def _median(self, k: int) -> Evaluation:
        """The division whose worst component is the median one, the worse of two."""
        return sorted(self.found[k], key=lambda each: each.worst)[len(self.found[k]) // 2]

    def _row(self, k: int, best: int) -> Tried:
        found, median, mean = self.found[k][0], self._median(k), self._mean(k)
        residuals = (found.scores - mean * found.sizes) * found.weights
        gain, error = _gain(self.found[best][0], found)
        return Tried(
            k,
            mean,
            float(np.sqrt((residuals**2).sum())) / found.size,
            median.n_reproduced,
            median.worst,
            self.seconds[k],
            gain / found.size,
            error / found.size,
            len(self.found[k]),
        )

    def _try(self, k: int, division: int = 0) -> bool:
        """Fit both halves; False where they do not support so many components."""
        if division < len(self.found.get(k, ())):
            return True
        began = time.perf_counter()
        found = self._evaluate(k, division)
        if found is None:
            return False
        self.found.setdefault(k, []).append(found)
        self.seconds[k] = self.seconds.get(k, 0.0) + time.perf_counter() - began
        return True


def _held_out(row: Tried) -> float:
    return row.held_out


def _finds_all(found: Evaluation) -> bool:
    return found.n_reproduced == len(found.ratios)
