"""What a tensor is: dense, sparse, CP, Tucker and implicit; contractions and norms.

A name is imported on first use: a model needs few kinds of tensors, not all of them.
"""

from latensor.lazy import lazy_names

# Each public name and the module that defines it.
_HOMES = {
    "asymmetry": "algebra",
    "hadamard": "algebra",
    "inner": "algebra",
    "khatri_rao": "algebra",
    "kronecker": "algebra",
    "mode_product": "algebra",
    "mttkrp": "algebra",
    "multilinear": "algebra",
    "outer": "algebra",
    "sweep": "algebra",
    "symmetrize": "algebra",
    "Contractible": "contractible",
    "DirectSweep": "contractible",
    "Sweep": "contractible",
    "as_contractible": "conversion",
    "is_contractible": "conversion",
    "require_dense": "conversion",
    "CPTensor": "cp",
    "DenseTensor": "dense",
    "fiber": "entries",
    "fold": "entries",
    "from_frontal_slices": "entries",
    "frontal_slices": "entries",
    "matrix_slice": "entries",
    "unfold": "entries",
    "coherence": "incoherence",
    "from_pyttb": "interoperability",
    "from_tensorly": "interoperability",
    "KruskalRank": "kruskal",
    "kruskal_rank": "kruskal",
    "lift": "lifted",
    "MomentTensor": "moment",
    "SpectralNorm": "norms",
    "frobenius_norm": "norms",
    "spectral_norm": "norms",
    "Parafac2Tensor": "parafac2",
    "SparseTensor": "sparse",
    "TensorTrain": "tensor_train",
    "read_tns": "tns",
    "write_tns": "tns",
    "TuckerTensor": "tucker",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
