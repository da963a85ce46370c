"""Models: a folder for each family, the moments it needs and how its parameters are read off.

A model is imported on first use: a fit should not wait for the modules of all others.
"""

from latensor.estimation.files import load as load
from latensor.lazy import lazy_names

# Each public name and the module that defines it.
_HOMES = {
    "MixedMembershipBlockModel": "graphs.estimator",
    "CategoricalHMM": "hmm.categorical",
    "GaussianHMM": "hmm.gaussian",
    "ICA": "ica",
    "CCA": "matrices.cca",
    "PCA": "matrices.pca",
    "DiagonalGaussianMixture": "mixtures.diagonal",
    "GaussianMixture": "mixtures.gaussian",
    "PearsonMixture": "mixtures.pearson",
    "ProductMixture": "mixtures.product",
    "SphericalGaussianMixture": "mixtures.spherical",
    "NoisyOrNetwork": "networks.noisy_or",
    "TwoLayerNetwork": "networks.two_layer",
    "TwoLayerClassifier": "networks.two_layer_classifier",
    "plan": "planning",
    "CPClassifier": "regression.classifiers",
    "TuckerClassifier": "regression.classifiers",
    "MixtureOfRegressions": "regression.mixture",
    "CPPLS": "regression.partial_least_squares",
    "CPRegressor": "regression.regressors",
    "TuckerRegressor": "regression.regressors",
    "TensorShape": "regression.tensor_shape",
    "LatentDirichletAllocation": "topics.latent_dirichlet",
    "SingleTopic": "topics.single_topic",
    "LatentTree": "trees.estimator",
    "MultiViewMixture": "views.multi_view",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES, "load")
