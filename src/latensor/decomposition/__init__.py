"""Decompositions of tensors: one file per algorithm, one loop for all of them."""

import sys

from latensor.decomposition import constraints
from latensor.decomposition.algorithms.als import AlternatingLeastSquares
from latensor.decomposition.algorithms.foobi import Foobi, FoobiDecomposition
from latensor.decomposition.algorithms.gauss_newton import GaussNewton
from latensor.decomposition.algorithms.jennrich import SimultaneousDiagonalization
from latensor.decomposition.algorithms.joint_diagonalization import (
    JointDecomposition,
    JointDiagonalization,
)
from latensor.decomposition.algorithms.power_method import PowerMethod
from latensor.decomposition.algorithms.shared_factor import SharedFactor
from latensor.decomposition.algorithms.stochastic import StochasticLeastSquares
from latensor.decomposition.algorithms.subspace_power import SubspacePower
from latensor.decomposition.algorithms.symmetric_als import SymmetricLeastSquares
from latensor.decomposition.algorithms.symmetric_spectral import SymmetricSpectral
from latensor.decomposition.algorithms.tensorization import Tensorization
from latensor.decomposition.auto import Automatic
from latensor.decomposition.complete import complete
from latensor.decomposition.decompose import decompose
from latensor.decomposition.optimize.iteration import Progress
from latensor.decomposition.parafac2 import Parafac2Decomposition, parafac2
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.robust import RobustDecomposition, robust_pca
from latensor.decomposition.tensor_pca import TensorPCA, tensor_pca
from latensor.decomposition.tensor_train import tensor_train
from latensor.decomposition.tucker import TuckerDecomposition, tucker

# Where the modules of the API stood before they had folders.
for _name, _class in {
    "gauss_newton": GaussNewton,
    "iteration": Progress,
    "joint_diagonalization": JointDiagonalization,
    "least_squares": AlternatingLeastSquares,
    "power_method": PowerMethod,
    "shared_factor": SharedFactor,
    "simultaneous_diagonalization": SimultaneousDiagonalization,
    "symmetric_least_squares": SymmetricLeastSquares,
    "symmetric_spectral": SymmetricSpectral,
}.items():
    sys.modules[f"{__name__}.{_name}"] = sys.modules[_class.__module__]
del _name, _class

__all__ = [
    "AlternatingLeastSquares",
    "Automatic",
    "Decomposition",
    "Foobi",
    "FoobiDecomposition",
    "GaussNewton",
    "JointDecomposition",
    "JointDiagonalization",
    "Parafac2Decomposition",
    "PowerMethod",
    "Progress",
    "RobustDecomposition",
    "SharedFactor",
    "SimultaneousDiagonalization",
    "Status",
    "StochasticLeastSquares",
    "SubspacePower",
    "SymmetricLeastSquares",
    "SymmetricSpectral",
    "TensorPCA",
    "Tensorization",
    "TuckerDecomposition",
    "complete",
    "constraints",
    "decompose",
    "parafac2",
    "robust_pca",
    "tensor_pca",
    "tensor_train",
    "tucker",
]
