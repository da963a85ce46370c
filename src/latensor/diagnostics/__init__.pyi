"""The API for type checkers; at run time names load lazily, see `__init__.py`."""

from latensor.diagnostics.certificate import Certificate as Certificate
from latensor.diagnostics.certificate import ErrorBars as ErrorBars
from latensor.diagnostics.certificate import certify as certify
from latensor.diagnostics.concentration import cross_moment_rate as cross_moment_rate
from latensor.diagnostics.concentration import gaussian_norm_bound as gaussian_norm_bound
from latensor.diagnostics.conditioning import ConditionNumber as ConditionNumber
from latensor.diagnostics.conditioning import condition_number as condition_number
from latensor.diagnostics.consistency import core_consistency as core_consistency
from latensor.diagnostics.matching import Matching as Matching
from latensor.diagnostics.matching import Pair as Pair
from latensor.diagnostics.matching import match as match
from latensor.diagnostics.perturbation import PerturbationBounds as PerturbationBounds
from latensor.diagnostics.rank import RankSelection as RankSelection
from latensor.diagnostics.rank import select_rank as select_rank
from latensor.diagnostics.rank_evidence import RankEvidence as RankEvidence
from latensor.diagnostics.uniqueness import Uniqueness as Uniqueness
