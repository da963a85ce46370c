"""Decompositions of tensors: one file per algorithm, one loop for all of them."""

from latensor.decomposition.auto import Automatic
from latensor.decomposition.decompose import decompose
from latensor.decomposition.gauss_newton import GaussNewton
from latensor.decomposition.iteration import Progress
from latensor.decomposition.least_squares import AlternatingLeastSquares
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.shared_factor import SharedFactor

__all__ = [
    "AlternatingLeastSquares",
    "Automatic",
    "Decomposition",
    "GaussNewton",
    "Progress",
    "SharedFactor",
    "Status",
    "decompose",
]
