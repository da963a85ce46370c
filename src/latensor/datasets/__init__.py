"""Planted samples with known truth, in memory or batch by batch, and the files they go to."""

from latensor.datasets.bag_of_words import write_bag_of_words
from latensor.datasets.graphs import make_block_model
from latensor.datasets.mixtures import (
    make_diagonal_mixture,
    make_multi_view,
    make_spherical_mixture,
)
from latensor.datasets.networks import make_noisy_or
from latensor.datasets.planted import PlantedDocuments
from latensor.datasets.regressions import make_regressions
from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.datasets.sources_mixed import make_ica, make_pearson
from latensor.datasets.topics import TopicSample, make_single_topic, make_topics
from latensor.datasets.trees import make_tree
from latensor.datasets.two_layers import make_network

__all__ = [
    "PlantedDocuments",
    "TopicSample",
    "make_block_model",
    "make_diagonal_mixture",
    "make_gaussian_hmm",
    "make_hmm",
    "make_ica",
    "make_multi_view",
    "make_network",
    "make_noisy_or",
    "make_pearson",
    "make_regressions",
    "make_single_topic",
    "make_spherical_mixture",
    "make_topics",
    "make_tree",
    "write_bag_of_words",
]
