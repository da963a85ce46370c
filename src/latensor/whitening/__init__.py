"""Coordinates in which a second moment becomes the identity, and what is found in them."""

from latensor.whitening.canonical import (
    CanonicalDirections,
    canonical_directions,
    canonical_directions_of_samples,
)
from latensor.whitening.matrix import Whitening, principal_directions, whiten
from latensor.whitening.symmetrization import SymmetrizedTensor, symmetrize_views, unsymmetrize

__all__ = [
    "CanonicalDirections",
    "SymmetrizedTensor",
    "Whitening",
    "canonical_directions",
    "canonical_directions_of_samples",
    "principal_directions",
    "symmetrize_views",
    "unsymmetrize",
    "whiten",
]
