"""What people do with topics: find them, follow them over time and groups, join them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.cluster.hierarchy import linkage
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import check_positive_int
from latensor.estimation.topic_files import restore_state, saved_state
from latensor.exceptions import InvalidInputError
from latensor.sources.passes import over

# Intervals of the calendar that fit into a figure, and what they may be, from short to long: unit,
# number of them, and the offset from 1970 that makes weeks begin on Monday and centuries with 00.
_MOST_INTERVALS = 24
_UNITS = (
    ("D", 1, 0),
    ("D", 7, 3),
    ("M", 1, 0),
    ("M", 3, 0),
    *(("Y", years, 1970) for years in (1, 2, 5, 10, 20, 50, 100, 1000)),
)


@dataclass(frozen=True, eq=False)
class TopicFractions:
    """Fractions of the topics in groups of documents.

    Attributes
    ----------
    labels : list, what the groups are called: the values given, or the begin of every interval
    fractions : (g, k), the fraction of every topic in the words of a group; NaN where it has no
        words
    errors : (g, k), standard errors of the fractions, from how documents of a group differ; NaN
        where a group has fewer than two documents
    n_documents : (g,) ints, documents of every group
    """

    labels: list[Any]
    fractions: Any
    errors: Any
    n_documents: Any

    def tables(self) -> tuple[Any, Any, Any]:
        """Fractions, their errors, and the documents of every group."""
        return self.fractions, self.errors, self.n_documents

    def to_frame(self) -> Any:
        """The fractions as a pandas DataFrame, a row for every group."""
        import pandas

        columns = [f"topic {j}" for j in range(self.fractions.shape[1])]
        return pandas.DataFrame(self.fractions, index=self.labels, columns=columns)


@dataclass(frozen=True, eq=False)
class Intervals:
    """Which group or interval every document belongs to.

    Attributes
    ----------
    labels : list, what they are called
    numbers : (n,) ints, the place of each document in `labels`; -1 for none
    """

    labels: list[Any]
    numbers: Any


def grouped(groups: Any, known: Any = None) -> Intervals:
    """Groups by name.

    Parameters
    ----------
    groups : (n,) array
    known : (n,) bools, False for documents that belong to none; None for all
    """
    known = np.ones(len(groups), bool) if known is None else known
    labels, numbers = np.unique(groups[known], return_inverse=True)
    places = np.full(len(groups), -1)
    places[known] = numbers.ravel()
    return Intervals(labels.tolist(), places)


def binned(times: Any, n_bins: int | str, known: Any = None) -> Intervals:
    """Intervals of time: of equal length, or of the calendar.

    Parameters
    ----------
    times : (n,) array of numbers, dates or texts of dates
    n_bins : int or "calendar"
    known : (n,) bools, False for documents without a time; None for all
    """
    calendar = n_bins == "calendar"
    count = 10 if calendar else check_positive_int(n_bins, "n_bins")
    known = np.ones(len(times), bool) if known is None else known
    column = times[known]
    dated = column.dtype.kind not in "biuf"
    if dated:
        try:
            column = column.astype("datetime64[s]")
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"times holds {_undated(column)!r}: give numbers or dates as 2026-11-17"
            ) from None
        if np.isnat(column).any():
            raise InvalidInputError("times has documents without a date: leave them out")
    values = column.astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInputError("times holds NaN or infinity: leave those documents out")
    places = np.full(len(times), -1)
    if dated and calendar:
        labels, places[known] = _calendar(column)
        return Intervals(labels, places)
    edges = np.linspace(values.min(), values.max(), count + 1)
    places[known] = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, count - 1)
    begins = edges[:-1].astype("datetime64[s]") if dated else edges[:-1]
    return Intervals(begins.tolist(), places)


def _undated(column: Any) -> str:
    """The first value that is no date."""
    for value in column.tolist():
        try:
            np.datetime64(value)
        except (TypeError, ValueError):
            return str(value)
    return str(column[0])


def _calendar(dates: Any) -> tuple[list[str], Any]:
    """Days, weeks, months, ... of dates, the shortest of which at most `_MOST_INTERVALS` are."""
    for unit, step, offset in _UNITS:
        counted = (dates.astype(f"datetime64[{unit}]").astype(np.int64) + offset) // step
        first, last = int(counted.min()), int(counted.max())
        if last - first < _MOST_INTERVALS:
            break
    begins = np.arange(first, last + 1) * step - offset
    return begins.astype(f"datetime64[{unit}]").astype(str).tolist(), counted - first


class FractionSums:
    """Sums from which the fractions of the topics in groups follow, batch by batch.

    Parameters
    ----------
    intervals : Intervals, of all documents in their order
    k : int, topics
    """

    def __init__(self, intervals: Intervals, k: int) -> None:
        self._intervals, self._at = intervals, 0
        count = len(intervals.labels)
        self._n_documents = np.zeros(count, np.int64)
        # Of words, their squares; and with the topics: words, squares, squares of the words of one.
        self._words, self._squares = np.zeros(count), np.zeros(count)
        self._totals, self._cross, self._own = (np.zeros((count, k)) for _ in range(3))

    def add(self, mixtures: Any, lengths: Any) -> None:
        """More documents: their mixtures (n, k) and words (n,)."""
        numbers = self._intervals.numbers[self._at : self._at + len(lengths)]
        self._at += len(lengths)
        if len(numbers) < len(lengths):
            return
        inside = numbers >= 0
        numbers = numbers[inside]
        mixtures = np.asarray(mixtures, dtype=np.float64)[inside]
        lengths = np.asarray(lengths, dtype=np.float64)[inside]
        count, squares = len(self._words), lengths**2
        self._n_documents += np.bincount(numbers, minlength=count)
        self._words += np.bincount(numbers, lengths, count)
        self._squares += np.bincount(numbers, squares, count)
        np.add.at(self._totals, numbers, mixtures * lengths[:, None])
        np.add.at(self._cross, numbers, mixtures * squares[:, None])
        np.add.at(self._own, numbers, mixtures**2 * squares[:, None])

    def finish(self) -> TopicFractions:
        """The fractions, and their standard errors."""
        expected = len(self._intervals.numbers)
        if self._at != expected:
            raise InvalidInputError(
                f"groups or times holds {expected} values for {self._at} documents: give "
                "one per document"
            )
        words, sizes = self._words[:, None], self._n_documents
        with np.errstate(invalid="ignore", divide="ignore"):
            found = self._totals / words
            # The error of a ratio of sums, from what every document adds to it: the sum of
            # n_i^2 (h_i - f)^2, multiplied out.
            off = self._own - 2 * found * self._cross + found**2 * self._squares[:, None]
            grown = (sizes / np.maximum(sizes - 1, 0))[:, None]
            errors = np.sqrt(np.maximum(off, 0.0) * grown) / words
        errors[sizes < 2] = np.nan
        return TopicFractions(self._intervals.labels, found, errors, sizes)


class TopicExploration:
    """Questions about fitted topics that need no new fit."""

    components_: Any
    _read_batches: Any
    _vocabulary: Any
    _weight_name: ClassVar[str]
    transform: Any

    def topics_by_group(self, X: object, groups: object) -> TopicFractions:
        """How much of each topic the documents of every group hold.

        Parameters
        ----------
        X : documents as for `fit`
        groups : (n,) what group every document belongs to

        Returns
        -------
        TopicFractions, groups in the order of their names
        """
        check_is_fitted(self)
        return self._fractions_of(X, grouped(_column(groups, "groups")))

    def topics_over_time(self, X: object, times: object, n_bins: int | str = 10) -> TopicFractions:
        """How much of each topic the documents of every interval of time hold.

        Parameters
        ----------
        X : documents as for `fit`
        times : (n,) numbers, dates, or texts that NumPy reads as dates (2026-11-17)
        n_bins : int, intervals of equal length; or "calendar", for dates the days, weeks, months,
            quarters, years or more that make at most 24 intervals

        Returns
        -------
        TopicFractions, labels are where the intervals begin
        """
        check_is_fitted(self)
        return self._fractions_of(X, binned(_column(times, "times"), n_bins))

    def _fractions_of(self, X: object, intervals: Intervals) -> TopicFractions:
        def answers(batch: Any) -> tuple[Any, Any]:
            return self.transform(batch), np.asarray(batch.sum(axis=1)).ravel()

        sums = FractionSums(intervals, len(self.components_))
        for mixtures, lengths in over(self._read_batches(X), answers):
            sums.add(mixtures, lengths)
        return sums.finish()

    def find(self, query: str, n_topics: int = 5) -> list[tuple[int, float]]:
        """The topics that a word or a text is about: pairs of topic and probability, best first.

        Parameters
        ----------
        query : str, a word of the vocabulary, or a text
        n_topics : int, at most so many
        """
        check_is_fitted(self)
        words = [str(word) for word in self._vocabulary()]
        weights = np.asarray(getattr(self, f"{self._weight_name}_"), dtype=np.float64)
        if query in words:
            joint = weights * self.components_[:, words.index(query)].astype(np.float64)
            chances = joint / max(joint.sum(), np.finfo(float).tiny)
        else:
            chances = np.asarray(self.transform([query]))[0]
            known = next(iter(self._read_batches([query])))
            if not known.nnz:
                raise InvalidInputError(f"query={query!r} holds no word of the model")
        order = np.argsort(-chances, kind="stable")[: check_positive_int(n_topics, "n_topics")]
        return [(int(j), float(chances[j])) for j in order]

    def hierarchy(self) -> Any:
        """How topics come together (k - 1, 4): a linkage matrix as of SciPy.

        Average linkage of the Hellinger distances between topics;
        `scipy.cluster.hierarchy.dendrogram` draws it, `fcluster` cuts it into the groups that
        `merge_topics` takes.
        """
        check_is_fitted(self)
        if len(self.components_) < 2:
            raise InvalidInputError("one topic has no hierarchy: learn two or more")
        # Distances of square roots are those of Hellinger, up to a factor of sqrt(2).
        return linkage(np.sqrt(self.components_.astype(np.float64) / 2), "average")

    def merge_topics(self, groups: Sequence[Sequence[int]]) -> Self:
        """A model in which some topics are one; the others stay, ordered by weight anew.

        The joined topic has the sum of the weights, and the words of its topics by weight. The
        model that it comes from is not changed, and certifies what was learned; the new one has
        no certificate and no sums to go on with.

        Parameters
        ----------
        groups : lists of topics, each topic at most once
        """
        check_is_fitted(self)
        weights = np.asarray(getattr(self, f"{self._weight_name}_"))
        k = len(weights)
        chosen = [[int(j) for j in group] for group in groups]
        flat = [j for group in chosen for j in group]
        if any(not 0 <= j < k for j in flat) or len(set(flat)) != len(flat):
            raise InvalidInputError(
                f"groups={groups!r} must name topics 0 to {k - 1}, each at most once"
            )
        if any(not group for group in chosen):
            raise InvalidInputError(f"groups={groups!r} has an empty group")
        parts = [*chosen, *([j] for j in range(k) if j not in set(flat))]
        table = np.zeros((len(parts), k), weights.dtype)
        for row, part in enumerate(parts):
            table[row, part] = 1
        sums = table @ weights
        order = np.argsort(-sums, kind="stable")
        topics = (table * weights) @ self.components_ / sums[:, None]
        state = saved_state(self)
        state["components"] = topics[order].astype(self.components_.dtype)
        state[self._weight_name] = sums[order]
        if state.get("mixture_prior") is not None:
            state["mixture_prior"] = (table @ state["mixture_prior"])[order]
        state["status"] = f"{state['status']}; {k} topics joined to {len(parts)}"
        state["certificate"] = None
        merged: Self = clone(self)
        merged.set_params(n_components=len(parts))  # type: ignore[attr-defined]
        restore_state(merged, state)
        merged._dtype = merged.components_.dtype  # type: ignore[attr-defined]
        merged._is_loaded = True  # type: ignore[attr-defined]
        return merged


def _column(values: object, name: str) -> Any:
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise InvalidInputError(f"{name} has shape {column.shape}: give one value per document")
    return column
