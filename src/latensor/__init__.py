"""Latent variable models from moment tensors, and decompositions of any tensor.

Names are loaded on first use, so that `import latensor` stays as cheap as an import of nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

# Each public name and the subpackage that defines it. Subpackages themselves load the same way.
_HOMES = {
    "arrays": (
        "low_rank_approximation",
        "pseudo_inverse",
        "truncated_svd",
    ),
    "datasets": (),
    "decomposition": (
        "Decomposition",
        "complete",
        "constraints",
        "decompose",
        "parafac2",
        "robust_pca",
        "tensor_pca",
        "tensor_train",
        "tucker",
    ),
    "diagnostics": (
        "certify",
        "match",
        "select_rank",
    ),
    "exceptions": (
        "ConvergenceWarning",
        "InvalidInputError",
        "NotIdentifiableError",
        "RankDeficientError",
    ),
    "models": (
        "CCA",
        "CPPLS",
        "CPClassifier",
        "CPRegressor",
        "CategoricalHMM",
        "DiagonalGaussianMixture",
        "GaussianHMM",
        "GaussianMixture",
        "ICA",
        "LatentDirichletAllocation",
        "LatentTree",
        "MixedMembershipBlockModel",
        "MixtureOfRegressions",
        "MultiViewMixture",
        "NoisyOrNetwork",
        "PCA",
        "PearsonMixture",
        "ProductMixture",
        "SingleTopic",
        "SphericalGaussianMixture",
        "TensorShape",
        "TuckerClassifier",
        "TuckerRegressor",
        "TwoLayerClassifier",
        "TwoLayerNetwork",
        "load",
        "plan",
    ),
    "moments": (),
    "nn": (),
    "plots": (),
    "report": (),
    "scores": (),
    "sources": ("read_documents", "robinson_foulds"),
    "tensors": (
        "CPTensor",
        "Contractible",
        "KruskalRank",
        "MomentTensor",
        "Parafac2Tensor",
        "SparseTensor",
        "SpectralNorm",
        "TensorTrain",
        "TuckerTensor",
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
        "spectral_norm",
        "sweep",
        "symmetrize",
        "unfold",
        "write_tns",
    ),
    "whitening": ("whiten",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

# Subpackages are reached as attributes; a star import should not need their optional extras.
__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    elif name in _HOMES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_HOMES])
