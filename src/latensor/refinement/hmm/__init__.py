"""Hidden Markov models given their parameters: posteriors, paths, and the family that EM raises."""

from latensor.refinement.hmm.categorical import CategoricalEmission, SymbolDesign
from latensor.refinement.hmm.chain import ChainOnRows, Expectation, Likelihoods
from latensor.refinement.hmm.family import ChainFamily, HiddenChain
from latensor.refinement.hmm.gaussian import GaussianEmission
from latensor.refinement.hmm.sequences import Sequences

__all__ = [
    "CategoricalEmission",
    "ChainFamily",
    "ChainOnRows",
    "Expectation",
    "GaussianEmission",
    "HiddenChain",
    "Likelihoods",
    "Sequences",
    "SymbolDesign",
]
