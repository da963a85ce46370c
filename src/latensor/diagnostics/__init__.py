"""How far to trust a decomposition: certificates, conditioning, matching, choice of rank."""

from latensor.diagnostics.certificate import Certificate, ErrorBars, certify
from latensor.diagnostics.concentration import cross_moment_rate, gaussian_norm_bound
from latensor.diagnostics.conditioning import ConditionNumber, condition_number
from latensor.diagnostics.consistency import core_consistency
from latensor.diagnostics.matching import Matching, Pair, match
from latensor.diagnostics.perturbation import PerturbationBounds
from latensor.diagnostics.rank import RankSelection, select_rank
from latensor.diagnostics.rank_evidence import RankEvidence
from latensor.diagnostics.uniqueness import Uniqueness

__all__ = [
    "Certificate",
    "ConditionNumber",
    "ErrorBars",
    "Matching",
    "Pair",
    "PerturbationBounds",
    "RankEvidence",
    "RankSelection",
    "Uniqueness",
    "certify",
    "condition_number",
    "core_consistency",
    "cross_moment_rate",
    "gaussian_norm_bound",
    "match",
    "select_rank",
]
