"""Score functions of an input density, by which a response's derivatives are moments."""

from latensor.scores.autodiff import AutodiffScores, from_log_density, from_score
from latensor.scores.base import Scores
from latensor.scores.fitted import of_gaussian, of_mixture
from latensor.scores.gaussian import GaussianScores, MixtureScores
from latensor.scores.matching import KernelScores, score_matching

__all__ = [
    "AutodiffScores",
    "GaussianScores",
    "KernelScores",
    "MixtureScores",
    "Scores",
    "from_log_density",
    "from_score",
    "of_gaussian",
    "of_mixture",
    "score_matching",
]
