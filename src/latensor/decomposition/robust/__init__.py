"""Low rank plus sparse: matrices and tensors under gross errors."""

from latensor.decomposition.robust.decomposition import RobustDecomposition, robust_pca

__all__ = ["RobustDecomposition", "robust_pca"]
