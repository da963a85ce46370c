"""Decompositions of tensors: one file per algorithm, one loop for all of them."""

from latensor.decomposition.auto import Automatic
from latensor.decomposition.decompose import decompose
from latensor.decomposition.gauss_newton import GaussNewton
from latensor.decomposition.iteration import Progress
from latensor.decomposition.joint_diagonalization import JointDecomposition, JointDiagonalization
from latensor.decomposition.least_squares import AlternatingLeastSquares
from latensor.decomposition.power_method import PowerMethod
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.shared_factor import SharedFactor
from latensor.decomposition.simultaneous_diagonalization import SimultaneousDiagonalization
from latensor.decomposition.symmetric_least_squares import SymmetricLeastSquares
from latensor.decomposition.symmetric_spectral import SymmetricSpectral
from latensor.decomposition.tucker import TuckerDecomposition, tucker

__all__ = [
    "AlternatingLeastSquares",
    "Automatic",
    "Decomposition",
    "GaussNewton",
    "JointDecomposition",
    "JointDiagonalization",
    "PowerMethod",
    "Progress",
    "SharedFactor",
    "SimultaneousDiagonalization",
    "Status",
    "SymmetricLeastSquares",
    "SymmetricSpectral",
    "TuckerDecomposition",
    "decompose",
    "tucker",
]
