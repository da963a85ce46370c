"""Sparse tensors to test with, and what their contractions are by definition."""

import math

import numpy as np

from latensor.tensors.sparse import SparseTensor

LETTERS = "abcdefgh"
SHAPES = {
    1: (7,),
    2: (5, 8),
    3: (6, 1, 9),
    4: (3, 5, 4, 2),
    5: (2, 3, 4, 2, 3),
    6: (2, 3, 1, 3, 2, 4),
}


def dense_example(shape, density=0.4, dtype=np.float64, seed=0):
    """A dense array with many zeros, an empty slice in every mode that is long enough."""
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        array = array + 1j * rng.standard_normal(shape)
    array[rng.random(shape) > density] = 0
    for mode, dimension in enumerate(shape):
        if dimension > 3:
            np.moveaxis(array, mode, 0)[1] = 0
    return array.astype(dtype)


def literal_mttkrp(tensor, factors, mode):
    """Entry by entry, as the definition says, in the widest precision."""
    result = np.zeros((tensor.shape[mode], factors[0].shape[1]), np.clongdouble)
    for row, value in zip(tensor.coordinates, tensor.values, strict=True):
        term = np.full(result.shape[1], value, np.clongdouble)
        for m, index in enumerate(row):
            if m != mode:
                term *= np.conj(factors[m][index])
        result[row[mode]] += term
    return result if tensor.dtype.kind == "c" else result.real


def literal_contract(dense, operands):
    inputs, output, arrays = LETTERS[: dense.ndim], "", [dense]
    for mode, operand in enumerate(operands):
        if operand is None:
            output += LETTERS[mode]
        elif operand.ndim == 1:
            inputs += "," + LETTERS[mode]
            arrays.append(operand)
        else:
            inputs += f",{LETTERS[mode]}{LETTERS[mode].upper()}"
            output += LETTERS[mode].upper()
            arrays.append(operand)
    return np.einsum(f"{inputs}->{output}", *arrays)


def random_factors(shape, rank, dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    factors = [rng.standard_normal((d, rank)) for d in shape]
    if np.dtype(dtype).kind == "c":
        factors = [f + 1j * rng.standard_normal(f.shape) for f in factors]
    return [f.astype(dtype) for f in factors]


def random_tensor(shape, nonzeros, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, d, nonzeros) for d in shape], axis=1)
    return SparseTensor(rows, rng.standard_normal(nonzeros).astype(dtype), shape)


def tolerance(dtype, terms):
    return 4 * np.finfo(dtype).eps * math.sqrt(terms)
