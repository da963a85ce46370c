"""Hidden Markov models from the moments of sequences: the estimator that all of them share."""

from latensor.estimation.hmm.base import HiddenMarkovModel
from latensor.estimation.hmm.certificate import HMMCertificate

__all__ = ["HMMCertificate", "HiddenMarkovModel"]
