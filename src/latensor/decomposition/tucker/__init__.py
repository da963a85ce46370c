"""Tucker decompositions: truncation, orthogonal iteration, nonnegative and masked fits."""

from latensor.decomposition.tucker.decomposition import TuckerDecomposition, tucker

__all__ = ["TuckerDecomposition", "tucker"]
