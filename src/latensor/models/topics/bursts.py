"""Counts that too few documents reach to tell anything of a topic: bursts of single words.

A post may hold one word five hundred times. Its square is in the second moment and its cube in the
third, and the directions of the moments are then those of a few documents. What a topic shows is
reached by as many documents as a topic needs in both halves of the data.
"""

from __future__ import annotations

import numpy as np

from latensor.arrays import Array
from latensor.estimation.halves import UNITS_A_COMPONENT
from latensor.moments.batch import Batch

# Documents that must reach a count: those of a topic in either half.
_ENOUGH = 2 * UNITS_A_COMPONENT
BURSTS = (
    f"single words are repeated in bursts: moments are those of counts that {_ENOUGH} documents "
    "reach"
)


def word_caps(documents: Batch) -> Array:
    """(V,) the largest count of every word that enough documents reach.

    The least one of words that fewer documents hold. Documents count by weight over the mean one.
    """
    words = documents.rows.tocsc()
    owner = np.repeat(np.arange(words.shape[1]), np.diff(words.indptr))
    order = np.lexsort((-words.data, owner))
    counts = words.data[order].astype(np.float64)
    held = documents.weights[words.indices[order]] / documents.weights.mean()
    before = np.concatenate([[0.0], np.cumsum(held)])
    reached = before[1:] - before[words.indptr[owner]]
    is_enough = reached >= _ENOUGH * (1 - np.sqrt(np.finfo(float).eps))
    caps = np.zeros(words.shape[1])
    np.maximum.at(caps, owner[is_enough], counts[is_enough])
    rare = np.flatnonzero((caps == 0) & (np.diff(words.indptr) > 0))
    caps[rare] = counts[words.indptr[rare + 1] - 1]
    return caps
