"""Decompositions of tensors: one file per algorithm, one loop for all of them.

A name is imported on first use: a model needs one algorithm, not all of them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from latensor.lazy import functions_first, lazy_names

# Each public name and the module that defines it.
_HOMES = {
    "constraints": None,
    "AlternatingLeastSquares": "algorithms.als",
    "Foobi": "algorithms.foobi",
    "GaussNewton": "algorithms.gauss_newton",
    "SimultaneousDiagonalization": "algorithms.jennrich",
    "JointDecomposition": "algorithms.joint_diagonalization",
    "JointDiagonalization": "algorithms.joint_diagonalization",
    "PowerMethod": "algorithms.power_method",
    "SharedFactor": "algorithms.shared_factor",
    "StochasticLeastSquares": "algorithms.stochastic",
    "SubspacePower": "algorithms.subspace_power",
    "SymmetricLeastSquares": "algorithms.symmetric_als",
    "SymmetricSpectral": "algorithms.symmetric_spectral",
    "Tensorization": "algorithms.tensorization",
    "Automatic": "auto",
    "complete": "complete",
    "decompose": "decompose",
    "Progress": "optimize.iteration",
    "Parafac2Decomposition": "parafac2",
    "parafac2": "parafac2",
    "Decomposition": "result",
    "Status": "result",
    "RobustDecomposition": "robust",
    "robust_pca": "robust",
    "TensorPCA": "tensor_pca",
    "tensor_pca": "tensor_pca",
    "tensor_train": "tensor_train",
    "TuckerDecomposition": "tucker",
    "tucker": "tucker",
}
# Where modules of the API stood before they had folders, and where they stand.
_FORMER = {
    "gauss_newton": "algorithms.gauss_newton",
    "iteration": "optimize.iteration",
    "joint_diagonalization": "algorithms.joint_diagonalization",
    "least_squares": "algorithms.als",
    "power_method": "algorithms.power_method",
    "shared_factor": "algorithms.shared_factor",
    "simultaneous_diagonalization": "algorithms.jennrich",
    "symmetric_least_squares": "algorithms.symmetric_als",
    "symmetric_spectral": "algorithms.symmetric_spectral",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)


class _Former(ModuleType):
    """A module under the name that it had before, imported on first use."""

    def __getattr__(self, name: str) -> Any:
        home = _FORMER[self.__name__.rpartition(".")[2]]
        return getattr(import_module(f"{__name__}.{home}"), name)


functions_first(__name__, _HOMES)
sys.modules.update({n: _Former(n) for n in (f"{__name__}.{name}" for name in _FORMER)})
