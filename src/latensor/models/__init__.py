"""Models: one short file each, the moments it needs and how its parameters are read off."""

from latensor.models.cca import CCA
from latensor.models.pca import PCA

__all__ = ["CCA", "PCA"]
