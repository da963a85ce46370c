"""What people do with topics: find them, follow them over time and groups, join them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import check_positive_int
from latensor.estimation.topic_files import restore_state, saved_state
from latensor.exceptions import InvalidInputError
from latensor.models.topics.intervals import (
    FractionSums,
    Intervals,
    TopicFractions,
    binned,
    grouped,
)
from latensor.sources.passes import over


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
        return self._fractions_of(X, grouped(_named(_column(groups, "groups"), groups)))

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
        if not isinstance(query, str):
            raise InvalidInputError(f"query={query!r} must be a word of the vocabulary or a text")
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
        from scipy.cluster.hierarchy import linkage

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
        try:
            chosen = [[int(j) for j in group] for group in groups]
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"groups={groups!r} must be lists of topics that become one, as [[0, 3], [1, 4]]"
            ) from None
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


def _named(column: Any, groups: Any) -> Any:
    """A column of groups; refused where some have no name, or not all are of one kind."""
    if column.dtype.kind not in "OUSf":
        return column
    values = np.asarray(groups, dtype=object)
    missing = [i for i, value in enumerate(values) if value is None or value != value]
    if missing:
        raise InvalidInputError(
            f"groups[{missing[0]}] is {values[missing[0]]}: leave out the documents of no group"
        )
    if len({isinstance(value, str) for value in values}) == 2:
        raise InvalidInputError("groups holds texts and numbers: give names of one kind")
    return column
