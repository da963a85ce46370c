"""Networks as sparse adjacency: matrices, edge lists, networkx graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import is_array, read_numpy, to_host
from latensor.arrays.masked import unmasked
from latensor.exceptions import InvalidInputError, InvalidTypeError


def read_graph(given: Any) -> tuple[Any, list[Any] | None]:
    """The adjacency (n, n) as float64 CSR without loops, and names of the nodes where it has any.

    Parameters
    ----------
    given : (n, n) SciPy sparse matrix or array, of weights that are not negative; a list of blocks
        of its rows; edges (m, 2), or (m, 3) with weights, of nodes numbered from 0; or a networkx
        graph
    """
    names: list[Any] | None = None
    if hasattr(given, "nodes") and hasattr(given, "edges") and hasattr(given, "is_directed"):
        given, names = _of_networkx(given)
    if scipy.sparse.issparse(given):
        return _checked(scipy.sparse.csr_array(given)), names
    if isinstance(given, list | tuple) and given and all(map(_is_block, given)):
        blocks = [scipy.sparse.csr_array(to_host(b) if is_array(b) else b) for b in given]
        if len({b.shape[1] for b in blocks}) > 1:
            raise InvalidInputError(
                "adjacency is a list of blocks of rows of different widths: each needs one column "
                "per node"
            )
        return _checked(scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))), names
    given = unmasked(given, "adjacency")
    array = np.asarray(to_host(given)) if is_array(given) else read_numpy(given, "adjacency")
    if array.dtype.kind == "O" and array.ndim == 2:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
            raise kind(f"adjacency holds values that are no numbers: {error}") from error
    if array.dtype.kind == "c":
        raise InvalidInputError("Complex data not supported: adjacency holds complex numbers")
    if array.dtype.kind not in "biuf" or array.ndim != 2:
        raise InvalidInputError(
            f"adjacency is of shape {array.shape} and dtype {array.dtype}: expected (n, n) "
            "weights, (m, 2) edges or a networkx graph"
        )
    is_edges = array.shape[1] in (2, 3) and (
        array.shape[0] != array.shape[1] or (isinstance(given, list) and array.shape[1] == 2)
    )
    if is_edges:
        return _checked(_of_edges(array)), names
    return _checked(scipy.sparse.csr_array(array.astype(np.float64))), names


def _is_block(value: Any) -> bool:
    return scipy.sparse.issparse(value) or (is_array(value) and value.ndim == 2)


def _of_edges(edges: Any) -> Any:
    ends = edges[:, :2]
    if not np.isfinite(edges).all() or (ends < 0).any() or (ends != np.floor(ends)).any():
        raise InvalidInputError("adjacency holds edges whose ends are not whole numbers from 0 on")
    i, j = ends.astype(np.int64).T
    weights = edges[:, 2].astype(np.float64) if edges.shape[1] == 3 else np.ones(len(edges))
    n = int(ends.max()) + 1 if len(edges) else 0
    if n > 100 * len(edges) + 1000:
        raise InvalidInputError(
            f"adjacency names node {n - 1} in {len(edges)} edges: number the nodes from 0 on"
        )
    both = np.concatenate([i, j]), np.concatenate([j, i])
    matrix = scipy.sparse.coo_array((np.concatenate([weights] * 2), both), shape=(n, n)).tocsr()
    # An edge that is listed in both directions is one edge.
    listed = scipy.sparse.coo_array((np.ones(2 * len(i)), both), shape=(n, n)).tocsr()
    matrix.data /= np.maximum(listed.data, 1.0)
    return matrix


def _of_networkx(graph: Any) -> tuple[Any, list[Any]]:
    names = list(graph.nodes)
    place = {name: i for i, name in enumerate(names)}
    found = [
        (place[a], place[b], 1.0 if w is None else w) for a, b, w in graph.edges(data="weight")
    ]
    edges = np.array(found, dtype=np.float64).reshape(-1, 3)
    i, j, weights = edges[:, 0].astype(int), edges[:, 1].astype(int), edges[:, 2]
    if not graph.is_directed():
        i, j, weights = np.r_[i, j], np.r_[j, i], np.r_[weights, weights]
    shape = (len(names), len(names))
    return scipy.sparse.csr_array((weights, (i, j)), shape=shape), names


def _checked(matrix: Any) -> Any:
    n, width = matrix.shape
    if n < 2 and width != 0:
        raise InvalidInputError(
            f"adjacency has {n} sample(s) (shape={matrix.shape}) while a minimum of 2 is required: "
            "n_samples=1 node has no community"
        )
    if width == 0:
        raise InvalidInputError(
            f"adjacency has 0 feature(s) (shape={matrix.shape}) while a minimum of 2 is required."
        )
    if n != width:
        raise InvalidInputError(
            f"adjacency is of shape {matrix.shape}: expected a square matrix, one row and one "
            "column for each of at least 2 nodes (for edges give an (m, 2) array)"
        )
    matrix = edges_of_rows(matrix)
    matrix.setdiag(0.0)
    matrix.eliminate_zeros()
    return matrix


def edges_of_rows(rows: Any) -> Any:
    """Rows of an adjacency (b, n) as float64 CSR of their own memory, weights above 0."""
    matrix = scipy.sparse.csr_array(rows, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    if not np.isfinite(matrix.data).all():
        raise InvalidInputError(
            f"adjacency holds {int((~np.isfinite(matrix.data)).sum())} NaN or infinite entries"
        )
    if (matrix.data < 0).any():
        raise InvalidInputError(
            f"Negative values in data: adjacency holds a weight of {matrix.data.min():g}, expected "
            "numbers from 0 on"
        )
    matrix.eliminate_zeros()
    return matrix
