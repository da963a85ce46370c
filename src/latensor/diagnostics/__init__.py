"""How far to trust a decomposition: certificates, conditioning, matching, choice of rank."""

from latensor.lazy import lazy_names

# Each public name and the module that defines it.
_HOMES = {
    "Certificate": "certificate",
    "ErrorBars": "certificate",
    "certify": "certificate",
    "cross_moment_rate": "concentration",
    "gaussian_norm_bound": "concentration",
    "ConditionNumber": "conditioning",
    "condition_number": "conditioning",
    "core_consistency": "consistency",
    "Matching": "matching",
    "Pair": "matching",
    "match": "matching",
    "PerturbationBounds": "perturbation",
    "RankSelection": "rank",
    "select_rank": "rank",
    "RankEvidence": "rank_evidence",
    "Uniqueness": "uniqueness",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
