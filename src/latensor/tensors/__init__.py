"""What a tensor is: dense, sparse, CP, Tucker and implicit; contractions and norms."""

from latensor.tensors.algebra import (
    asymmetry,
    hadamard,
    inner,
    khatri_rao,
    kronecker,
    mode_product,
    mttkrp,
    multilinear,
    outer,
    sweep,
    symmetrize,
)
from latensor.tensors.contractible import Contractible, DirectSweep, Sweep
from latensor.tensors.conversion import as_contractible, is_contractible, require_dense
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor
from latensor.tensors.entries import (
    fiber,
    fold,
    from_frontal_slices,
    frontal_slices,
    matrix_slice,
    unfold,
)
from latensor.tensors.incoherence import coherence
from latensor.tensors.interoperability import from_pyttb, from_tensorly
from latensor.tensors.kruskal import KruskalRank, kruskal_rank
from latensor.tensors.lifted import lift
from latensor.tensors.moment import MomentTensor
from latensor.tensors.norms import SpectralNorm, frobenius_norm, spectral_norm
from latensor.tensors.parafac2 import Parafac2Tensor
from latensor.tensors.sparse import SparseTensor
from latensor.tensors.tensor_train import TensorTrain
from latensor.tensors.tns import read_tns, write_tns
from latensor.tensors.tucker import TuckerTensor

__all__ = [
    "CPTensor",
    "Contractible",
    "DenseTensor",
    "DirectSweep",
    "KruskalRank",
    "MomentTensor",
    "Parafac2Tensor",
    "SparseTensor",
    "SpectralNorm",
    "Sweep",
    "TensorTrain",
    "TuckerTensor",
    "as_contractible",
    "asymmetry",
    "coherence",
    "fiber",
    "fold",
    "frobenius_norm",
    "from_frontal_slices",
    "from_pyttb",
    "from_tensorly",
    "frontal_slices",
    "hadamard",
    "inner",
    "is_contractible",
    "khatri_rao",
    "kronecker",
    "kruskal_rank",
    "lift",
    "matrix_slice",
    "mode_product",
    "mttkrp",
    "multilinear",
    "outer",
    "read_tns",
    "require_dense",
    "spectral_norm",
    "sweep",
    "symmetrize",
    "unfold",
    "write_tns",
]
