"""Models: one short file each, the moments it needs and how its parameters are read off."""

from latensor.models.cca import CCA
from latensor.models.latent_dirichlet import LatentDirichletAllocation
from latensor.models.pca import PCA
from latensor.models.single_topic import SingleTopic

__all__ = ["CCA", "PCA", "LatentDirichletAllocation", "SingleTopic"]
