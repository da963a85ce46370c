"""Which array library the caller uses, and what the array standard lacks.

This is the only folder that knows array libraries by name. Everything above asks `resolve` once,
at the public edge, for the library of its arguments and then works through that namespace.
"""

from latensor.arrays.checks import (
    check_finite,
    check_index,
    check_mode,
    check_positive_int,
    require_matrix,
    require_vector,
)
from latensor.arrays.factorization import (
    SVD,
    Eigenpairs,
    leading_eigenpairs,
    low_rank_approximation,
    pseudo_inverse,
    solve_positive,
    truncated_svd,
)
from latensor.arrays.library import (
    Array,
    Namespace,
    as_array,
    describe,
    is_array,
    is_complex,
    is_numpy,
    is_traced,
    library_name,
    like,
    machine_epsilon,
    matmul,
    read_numpy,
    real_dtype,
    resolve,
    to_host,
)
from latensor.arrays.randomness import RandomState, generator, standard_normal
from latensor.arrays.threads import one_blas_thread

__all__ = [
    "SVD",
    "Array",
    "Eigenpairs",
    "Namespace",
    "RandomState",
    "as_array",
    "check_finite",
    "check_index",
    "check_mode",
    "check_positive_int",
    "describe",
    "generator",
    "is_array",
    "is_complex",
    "is_numpy",
    "is_traced",
    "leading_eigenpairs",
    "library_name",
    "like",
    "low_rank_approximation",
    "machine_epsilon",
    "matmul",
    "one_blas_thread",
    "pseudo_inverse",
    "read_numpy",
    "real_dtype",
    "require_matrix",
    "require_vector",
    "resolve",
    "solve_positive",
    "standard_normal",
    "to_host",
    "truncated_svd",
]
