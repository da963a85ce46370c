"""The API for type checkers; at run time they load lazily, see `__init__.py`."""

from latensor.estimation.files import load as load
from latensor.models.graphs.estimator import MixedMembershipBlockModel as MixedMembershipBlockModel
from latensor.models.hmm.categorical import CategoricalHMM as CategoricalHMM
from latensor.models.hmm.gaussian import GaussianHMM as GaussianHMM
from latensor.models.ica import ICA as ICA
from latensor.models.matrices.cca import CCA as CCA
from latensor.models.matrices.pca import PCA as PCA
from latensor.models.mixtures.diagonal import DiagonalGaussianMixture as DiagonalGaussianMixture
from latensor.models.mixtures.gaussian import GaussianMixture as GaussianMixture
from latensor.models.mixtures.pearson import PearsonMixture as PearsonMixture
from latensor.models.mixtures.product import ProductMixture as ProductMixture
from latensor.models.mixtures.spherical import SphericalGaussianMixture as SphericalGaussianMixture
from latensor.models.networks.noisy_or import NoisyOrNetwork as NoisyOrNetwork
from latensor.models.networks.two_layer import TwoLayerNetwork as TwoLayerNetwork
from latensor.models.networks.two_layer_classifier import TwoLayerClassifier as TwoLayerClassifier
from latensor.models.planning import plan as plan
from latensor.models.regression.classifiers import CPClassifier as CPClassifier
from latensor.models.regression.classifiers import TuckerClassifier as TuckerClassifier
from latensor.models.regression.mixture import MixtureOfRegressions as MixtureOfRegressions
from latensor.models.regression.partial_least_squares import CPPLS as CPPLS
from latensor.models.regression.regressors import CPRegressor as CPRegressor
from latensor.models.regression.regressors import TuckerRegressor as TuckerRegressor
from latensor.models.regression.tensor_shape import TensorShape as TensorShape
from latensor.models.topics.latent_dirichlet import (
    LatentDirichletAllocation as LatentDirichletAllocation,
)
from latensor.models.topics.single_topic import SingleTopic as SingleTopic
from latensor.models.trees.estimator import LatentTree as LatentTree
from latensor.models.views.multi_view import MultiViewMixture as MultiViewMixture
