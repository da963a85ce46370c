"""The likelihood refinement of topics: in memory word by word, or by passes over any source."""

from latensor.models.topics.refinement.document_mixtures import topic_mixtures
from latensor.models.topics.refinement.held_out import Completing, Completion, completion
from latensor.models.topics.refinement.mixture_completion import mixture_completion
from latensor.models.topics.refinement.single_topic import topic_posteriors
from latensor.models.topics.refinement.topics import RefinedTopics, refine_topics

__all__ = [
    "Completing",
    "Completion",
    "RefinedTopics",
    "completion",
    "mixture_completion",
    "refine_topics",
    "topic_mixtures",
    "topic_posteriors",
]
