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

    def to_frame(self) -> Any:
        """The fractions as a pandas DataFrame, a row for every group."""
        import pandas

        columns = [f"topic {j}" for j in range(self.fractions.shape[1])]
        return pandas.DataFrame(self.fractions, index=self.labels, columns=columns)


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
        found, numbers = np.unique(_column(groups, "groups"), return_inverse=True)
        return self._fractions_of(X, found.tolist(), numbers.ravel())

    def topics_over_time(self, X: object, times: object, n_bins: int = 10) -> TopicFractions:
        """How much of each topic the documents of every interval of time hold.

        Parameters
        ----------
        X : documents as for `fit`
        times : (n,) numbers, dates, or texts that NumPy reads as dates (2026-11-17)
        n_bins : int, intervals of equal length

        Returns
        -------
        TopicFractions, labels are where the intervals begin
        """
        check_is_fitted(self)
        check_positive_int(n_bins, "n_bins")
        column = _column(times, "times")
        dated = column.dtype.kind not in "biuf"
        if dated:
            try:
                column = column.astype("datetime64[s]")
            except (TypeError, ValueError):
                raise InvalidInputError(
                    f"times holds {column.ravel()[0]!r}: give numbers or dates as 2026-11-17"
                ) from None
            if np.isnat(column).any():
                raise InvalidInputError("times has documents without a date: leave them out")
        values = column.astype(np.float64)
        if not np.isfinite(values).all():
            raise InvalidInputError("times holds NaN or infinity: leave those documents out")
        edges = np.linspace(values.min(), values.max(), n_bins + 1)
        numbers = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n_bins - 1)
        begins = edges[:-1]
        labels = begins.astype("datetime64[s]") if dated else begins
        return self._fractions_of(X, labels.tolist(), numbers)

    def _fractions_of(self, X: object, labels: list[Any], numbers: Any) -> TopicFractions:
        def answers(batch: Any) -> tuple[Any, Any]:
            return self.transform(batch), np.asarray(batch.sum(axis=1)).ravel()

        parts = over(self._read_batches(X), answers)
        mixtures = np.concatenate([mixture for mixture, _ in parts]).astype(np.float64)
        lengths = np.concatenate([length for _, length in parts]).astype(np.float64)
        if len(numbers) != len(mixtures):
            raise InvalidInputError(
                f"groups or times holds {len(numbers)} values for {len(mixtures)} documents: give "
                "one per document"
            )
        count, k = len(labels), mixtures.shape[1]
        words = np.bincount(numbers, lengths, count)[:, None]
        totals = np.zeros((count, k))
        np.add.at(totals, numbers, mixtures * lengths[:, None])
        with np.errstate(invalid="ignore", divide="ignore"):
            fractions = totals / words
            # The error of a ratio of sums, from what every document adds to it.
            off = (mixtures - np.nan_to_num(fractions)[numbers]) * lengths[:, None]
            squares = np.zeros((count, k))
            np.add.at(squares, numbers, off**2)
            sizes = np.bincount(numbers, minlength=count)
            grown = (sizes / np.maximum(sizes - 1, 0))[:, None]
            errors = np.sqrt(squares * grown) / words
        errors[sizes < 2] = np.nan
        return TopicFractions(labels, fractions, errors, sizes)

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
