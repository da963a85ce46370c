"""Models: one short file each, the moments it needs and how its parameters are read off."""

from latensor.estimation.files import load
from latensor.models.graphs.estimator import MixedMembershipBlockModel
from latensor.models.hmm.categorical import CategoricalHMM
from latensor.models.hmm.gaussian import GaussianHMM
from latensor.models.ica import ICA
from latensor.models.matrices.cca import CCA
from latensor.models.matrices.pca import PCA
from latensor.models.mixtures.diagonal import DiagonalGaussianMixture
from latensor.models.mixtures.gaussian import GaussianMixture
from latensor.models.mixtures.pearson import PearsonMixture
from latensor.models.mixtures.product import ProductMixture
from latensor.models.mixtures.spherical import SphericalGaussianMixture
from latensor.models.networks.noisy_or import NoisyOrNetwork
from latensor.models.planning import plan
from latensor.models.regression.classifiers import CPClassifier, TuckerClassifier
from latensor.models.regression.mixture import MixtureOfRegressions
from latensor.models.regression.partial_least_squares import CPPLS
from latensor.models.regression.regressors import CPRegressor, TuckerRegressor
from latensor.models.regression.tensor_shape import TensorShape
from latensor.models.topics.latent_dirichlet import LatentDirichletAllocation
from latensor.models.topics.single_topic import SingleTopic
from latensor.models.trees.estimator import LatentTree
from latensor.models.views.multi_view import MultiViewMixture

__all__ = [
    "CCA",
    "CPPLS",
    "ICA",
    "PCA",
    "CPClassifier",
    "CPRegressor",
    "CategoricalHMM",
    "DiagonalGaussianMixture",
    "GaussianHMM",
    "GaussianMixture",
    "LatentDirichletAllocation",
    "LatentTree",
    "MixedMembershipBlockModel",
    "MixtureOfRegressions",
    "MultiViewMixture",
    "NoisyOrNetwork",
    "PearsonMixture",
    "ProductMixture",
    "SingleTopic",
    "SphericalGaussianMixture",
    "TensorShape",
    "TuckerClassifier",
    "TuckerRegressor",
    "load",
    "plan",
]
