"""Coordinates in which a second moment becomes the identity, and what is found in them."""

from latensor.whitening.canonical import (
    CanonicalDirections,
    canonical_directions,
    canonical_directions_of_samples,
)
from latensor.whitening.matrix import Whitening, principal_directions, whiten
from latensor.whitening.symmetrization import SymmetrizedTensor, symmetrize_views, unsymmetrize
from latensor.whitening.tensor import (
    UnwhitenedComponents,
    WhitenedTensor,
    unwhiten,
    whiten_tensor,
)

__all__ = [
    "CanonicalDirections",
    "SymmetrizedTensor",
    "UnwhitenedComponents",
    "WhitenedTensor",
    "Whitening",
    "canonical_directions",
    "canonical_directions_of_samples",
    "principal_directions",
    "symmetrize_views",
    "unsymmetrize",
    "unwhiten",
    "whiten",
    "whiten_tensor",
]
