"""Models: one short file each, the moments it needs and how its parameters are read off."""

from latensor.models.cca import CCA
from latensor.models.diagonal_mixture import DiagonalGaussianMixture
from latensor.models.latent_dirichlet import LatentDirichletAllocation
from latensor.models.multi_view_mixture import MultiViewMixture
from latensor.models.pca import PCA
from latensor.models.product_mixture import ProductMixture
from latensor.models.single_topic import SingleTopic
from latensor.models.spherical_mixture import SphericalGaussianMixture

__all__ = [
    "CCA",
    "PCA",
    "DiagonalGaussianMixture",
    "LatentDirichletAllocation",
    "MultiViewMixture",
    "ProductMixture",
    "SingleTopic",
    "SphericalGaussianMixture",
]
