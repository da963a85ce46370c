"""How firmly documents determine topics: what the moments of their two halves have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy

from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Findings, Said, counted, finding

# On planted corpora with the weakest eigenvalue 23, 9, 6.5, 2.6, 1.7 and 1.1 times its noise the
# topics were off by 0.1, 0.2, 0.3, 0.5, 0.6 and 0.9 in L1 (of at most 2).
_FIRM, _DOUBTFUL = 4.0, 2.0
# Split-half distances up to these are firm and usable; most words of a topic differ beyond.
_STEADY, _SHAKY = 0.3, 0.7
# Fraction of the whitened third moment that the topics leave: planted corpora have 0.004 to 0.05.
_FITS, _MISFITS = 0.05, 0.15
_CONDITION = 1e4


@dataclass(frozen=True, eq=False)
class TopicCertificate(Findings):
    """What speaks for and against the topics of a fit.

    Attributes
    ----------
    eigenvalue_ratio : float, the weakest eigenvalue of the second moment over its noise
    split_half : (k,) how far each topic moves from one half of the documents to the other, as an
        L1 distance of 0 to 2; it nearly equals the error of the topic until that is large. Of the
        moments alone: refinement brings topics nearer. NaN where a half cannot tell topics apart
    off_diagonal : float, fraction of the whitened third moment that the topics do not explain
    condition : float, ratio of the largest to the weakest eigenvalue
    effective_size : float, number of equally weighted documents worth as much
    n_documents, n_empty, n_short : int, documents, without words, with fewer than three
    refined : bool, whether the topics rest on the likelihood too, and not on the moments alone
    in_halves : int, the number of topics where both halves of the documents found the same ones, by
        their words and in all documents; 0 where that was not tried
    """

    eigenvalue_ratio: float
    split_half: Any
    off_diagonal: float
    condition: float
    effective_size: float
    n_documents: int
    n_empty: int
    n_short: int
    refined: bool = False
    in_halves: int = 0
    _inferred: ClassVar[frozenset[str]] = frozenset({"Noise", "Stability", "Fit", "Conditioning"})

    def topic_levels(self) -> list[str | None]:
        """How firmly every topic is determined: "good", "caution", "bad", or None where unknown."""
        return [None if np.isnan(d) else _level(d, _STEADY, _SHAKY) for d in self.split_half]

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        topics = counted(len(self.split_half), "topic")
        return f"{topics} of {counted(self.n_documents, 'document')}"

    @finding("Noise")
    def _noise(self) -> Said:
        ratio = self.eigenvalue_ratio
        level = GOOD if ratio >= _FIRM else CAUTION if ratio >= _DOUBTFUL else BAD
        tail = {
            GOOD: "the documents support this many topics",
            CAUTION: "the last topics are supported weakly",
            BAD: "the last topics are not supported by the moments: take fewer, or more documents",
        }[level]
        if level == BAD and self.refined:
            level = CAUTION
            tail = "the last topics are supported by the likelihood only, not by the moments"
        return level, f"The weakest direction is {ratio:.2g} times its noise: {tail}."

    @finding("Stability")
    def _stability(self) -> Said:
        known = self.split_half[~np.isnan(self.split_half)]
        if not len(known):
            return CAUTION, "One half of the documents cannot tell the topics apart."
        shaky = int((known > _SHAKY).sum())
        middle = float(np.median(known))
        level = _level(middle, _STEADY, _SHAKY)
        text = (
            f"From one half of the documents to the other the median topic moves by {middle:.2f} "
            f"(L1 distance, at most 2), by the moments alone"
        )
        if shaky:
            text += f"; {shaky} of {len(known)} move by more than {_SHAKY}"
            level = CAUTION if level == GOOD else level
        if level == BAD and self.refined:
            level = CAUTION
            text += "; refinement has brought them nearer, by how much is not known"
        return level, text + "."

    @finding("Fit")
    def _fit(self) -> Said:
        fraction = self.off_diagonal
        level = _level(fraction, _FITS, _MISFITS)
        tail = {
            GOOD: "the documents look like mixtures of topics",
            CAUTION: "words also depend on each other in ways that topics do not explain",
            BAD: "the documents are not well described by topics",
        }[level]
        if level == BAD and self.refined:
            level = CAUTION
        return level, f"{100 * fraction:.1f} % of the third moment is left unexplained: {tail}."

    @finding("Conditioning")
    def _conditioning(self) -> Said:
        level = GOOD if self.condition < _CONDITION else CAUTION
        tail = "well conditioned" if level == GOOD else "small or similar topics may be lost"
        return level, f"The strongest direction is {self.condition:.3g} times the weakest: {tail}."

    @finding("Data")
    def _data(self) -> Said:
        documents = counted(self.n_documents, "document")
        text = f"{documents}, effective sample size {self.effective_size:.0f}"
        if self.n_empty:
            text += f"; {self.n_empty} without words were left out"
        if self.n_short:
            text += f"; {self.n_short} with one or two words tell nothing of triples"
        level = CAUTION if 2 * self.n_empty > self.n_documents else GOOD
        return level, text + "."


def _level(value: float, good: float, bad: float) -> str:
    return GOOD if value <= good else CAUTION if value <= bad else BAD


def split_half_distances(topics: Any, first: Any, second: Any) -> Any:
    """How far every topic (k, V) is between two halves: half their L1 distance, matched.

    A half has twice the variance of the whole, and the difference of two halves twice that of a
    half, so that half the distance is what to expect between the whole and the truth.
    """
    left, right = (half[nearest_topics(topics, half)] for half in (first, second))
    return np.abs(left - right).sum(axis=1) / 2


def nearest_topics(topics: Any, others: Any) -> Any:
    """The index in `others` (k, V) of the partner of every topic (k, V), one each."""
    cost = np.stack([np.abs(others - topic).sum(axis=1) for topic in topics])
    return scipy.optimize.linear_sum_assignment(cost)[1]
