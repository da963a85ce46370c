"""The likelihood polish: passes over the data that improve parameters found by moments."""

from latensor.refinement.corpus import HeldOut, hold_out
from latensor.refinement.document_mixtures import topic_mixtures
from latensor.refinement.held_out import Completing, Completion, completion
from latensor.refinement.mixture_completion import mixture_completion
from latensor.refinement.single_topic import (
    MixtureProgress,
    PolishedMixture,
    polish_mixture,
    topic_posteriors,
)
from latensor.refinement.topics import PolishedTopics, PolishProgress, polish_topics

__all__ = [
    "Completing",
    "Completion",
    "HeldOut",
    "MixtureProgress",
    "PolishProgress",
    "PolishedMixture",
    "PolishedTopics",
    "completion",
    "hold_out",
    "mixture_completion",
    "polish_mixture",
    "polish_topics",
    "topic_mixtures",
    "topic_posteriors",
]
