"""The definitions of the monograph's section 3.2 as literal loops: slow, and hard to get wrong."""

import itertools

import numpy as np


def draw(rng, shape, dtype="float64"):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def tolerance(dtype, size=1):
    """A bound on accumulated rounding for sums of `size` products of numbers of order one."""
    return 50 * np.sqrt(size) * np.finfo(dtype).eps


def indices(shape):
    return itertools.product(*(range(d) for d in shape))


def unfold(tensor, mode, order="C"):
    others = [m for m in range(tensor.ndim) if m != mode]
    columns = int(np.prod([tensor.shape[m] for m in others]))
    matrix = np.zeros((tensor.shape[mode], columns), dtype=tensor.dtype)
    for index in indices(tensor.shape):
        column, stride = 0, 1
        for m in others if order == "F" else reversed(others):
            column += index[m] * stride
            stride *= tensor.shape[m]
        matrix[index[mode], column] = tensor[index]
    return matrix


def multilinear(tensor, *operands):
    """T(A, B, C) entry by entry; vectors are one-column matrices whose mode is dropped after."""
    matrices = [
        np.eye(d) if o is None else o.reshape(d, -1)
        for d, o in zip(tensor.shape, operands, strict=True)
    ]
    result = np.zeros([m.shape[1] for m in matrices], dtype=np.result_type(tensor, *matrices))
    for out in indices(result.shape):
        for index in indices(tensor.shape):
            term = tensor[index]
            for m, matrix in enumerate(matrices):
                term = term * matrix[index[m], out[m]]
            result[out] += term
    dropped = tuple(m for m, o in enumerate(operands) if o is not None and o.ndim == 1)
    return result.squeeze(axis=dropped)


def khatri_rao(matrices):
    rank = matrices[0].shape[1]
    rows = [m.shape[0] for m in matrices]
    result = np.zeros((int(np.prod(rows)), rank), dtype=np.result_type(*matrices))
    for row, index in enumerate(indices(rows)):
        for j in range(rank):
            result[row, j] = np.prod([m[i, j] for m, i in zip(matrices, index, strict=True)])
    return result


def kronecker(a, b):
    result = np.zeros((a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]), np.result_type(a, b))
    for (i, j), (p, q) in itertools.product(indices(a.shape), indices(b.shape)):
        result[i * b.shape[0] + p, j * b.shape[1] + q] = a[i, j] * b[p, q]
    return result


def outer(*tensors):
    shape = sum((t.shape for t in tensors), ())
    result = np.zeros(shape, dtype=np.result_type(*tensors))
    for index in indices(shape):
        value, start = 1.0, 0
        for tensor in tensors:
            value = value * tensor[index[start : start + tensor.ndim]]
            start += tensor.ndim
        result[index] = value
    return result


def mttkrp(tensor, factors, mode):
    rank = factors[0].shape[1]
    result = np.zeros((tensor.shape[mode], rank), dtype=np.result_type(tensor, *factors))
    for index in indices(tensor.shape):
        for j in range(rank):
            term = tensor[index]
            for m, factor in enumerate(factors):
                if m != mode:
                    term = term * np.conj(factor[index[m], j])
            result[index[mode], j] += term
    return result


def cp(weights, factors):
    shape = tuple(f.shape[0] for f in factors)
    result = np.zeros(shape, dtype=np.result_type(weights, *factors))
    for index in indices(shape):
        for j in range(len(weights)):
            term = weights[j]
            for m, factor in enumerate(factors):
                term = term * factor[index[m], j]
            result[index] += term
    return result


def tucker(core, factors):
    shape = tuple(f.shape[0] for f in factors)
    result = np.zeros(shape, dtype=np.result_type(core, *factors))
    for index in indices(shape):
        for place in indices(core.shape):
            term = core[place]
            for m, factor in enumerate(factors):
                term = term * factor[index[m], place[m]]
            result[index] += term
    return result


def moment(views, weights):
    result = np.zeros([v.shape[1] for v in views], dtype=np.result_type(*views))
    for i, weight in enumerate(weights):
        result += weight * outer(*(view[i] for view in views))
    return result


def symmetrize(tensor):
    permutations = list(itertools.permutations(range(tensor.ndim)))
    return sum(tensor.transpose(p) for p in permutations) / len(permutations)


def kruskal_rank(matrix, tol=1e-10):
    for r in range(1, matrix.shape[1] + 1):
        for subset in itertools.combinations(range(matrix.shape[1]), r):
            if np.linalg.matrix_rank(matrix[:, subset], tol=tol) < r:
                return r - 1
    return matrix.shape[1]
