"""Hidden Markov models given their parameters: posteriors, paths, and the climb of Baum-Welch."""

from latensor.refinement.hmm.baum_welch import Climb, HiddenChain, climb, total_likelihood
from latensor.refinement.hmm.categorical import CategoricalEmission
from latensor.refinement.hmm.chain import Expectation, Likelihoods, expect, likeliest_path
from latensor.refinement.hmm.gaussian import GaussianEmission
from latensor.refinement.hmm.sequences import Sequences
from latensor.refinement.hmm.split_merge import rearranged

__all__ = [
    "CategoricalEmission",
    "Climb",
    "Expectation",
    "GaussianEmission",
    "HiddenChain",
    "Likelihoods",
    "Sequences",
    "climb",
    "expect",
    "likeliest_path",
    "rearranged",
    "total_likelihood",
]
