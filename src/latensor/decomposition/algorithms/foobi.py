"""FOOBI: overcomplete symmetric tensors of order 4 in closed form (monograph 7.2.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from latensor.arrays import machine_epsilon
from latensor.decomposition.algorithms.joint_diagonalization import diagonalize
from latensor.decomposition.algorithms.overcomplete import finish, whitened
from latensor.decomposition.algorithms.pencils import separate
from latensor.decomposition.algorithms.sym_squares import flattened, fourth_order, matrices
from latensor.decomposition.algorithms.symmetric import rank_at_most, symmetric_tensor
from latensor.decomposition.optimize.iteration import Callback
from latensor.decomposition.result import Decomposition

# The detector has k^2 (k + 1)^2 / 4 entries: 200 MB at this rank. k = 92 takes 8 s and 400 MB.
_LARGEST_RANK = 100


@dataclass(frozen=True)
class Foobi:
    """Decompose a symmetric tensor of order 4 with k components, k (k - 1) <= d^2 (d^2 - 1) / 6.

    The range of the flattening is spanned by matrices S_1, ..., S_k, in which the components
    a_j a_j' are hidden. The rank-one detector phi(S_a, S_b), which vanishes on the diagonal exactly
    for matrices of rank one, is linear in S_a (x) S_b; its null space is spanned by the k matrices
    Q diag(.) Q' whose joint diagonalization gives the components. The Gram matrix of the detector
    has a closed form in traces of products, so that its d^4 rows are never formed. Without noise no
    start and no iteration decides about the answer. Weights may have any sign.

    Parameters
    ----------
    n_pencils : int, for weights of both signs: random pencils to choose from
    refine : int, at most so many Levenberg-Marquardt steps at the end
    """

    n_pencils: int = 5
    refine: int = 100

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
    ) -> Decomposition:
        """Decompose a symmetric real tensor of order 4.

        Parameters
        ----------
        tensor : dense array of any library, or sparse or factored tensor
        rank : int, at most 100, with k (k - 1) / 2 <= d^2 (d^2 - 1) / 12
        rng : Generator, draws the start of the joint diagonalization
        callback : told after every step of the end; may return True to stop
        """
        name = type(self).__name__
        data = symmetric_tensor(tensor, name)
        array, rank = fourth_order(data, rank, name)
        rank_at_most(rank, _LARGEST_RANK, name, "for time and memory", "SubspacePower")
        found, ratio = np.zeros((array.shape[0], 0)), None
        if array.any():
            found, ratio = self._directions(array, rank, rng, machine_epsilon(data.reference))
        result = finish(data, found, rank, rng, callback, self.refine, name)
        return replace(result, eigenvalue_ratio=ratio)

    def _directions(
        self, array: Any, rank: int, rng: np.random.Generator, epsilon: float
    ) -> tuple[Any, float | None]:
        """Unit vectors (d, q), q at most `rank`, and the ratio of eigenvalues at the gap."""
        balanced = whitened(array, epsilon)
        dimension = balanced.array.shape[0]
        values, vectors = np.linalg.eigh(flattened(balanced.array))
        order = np.argsort(-np.abs(values))[:rank]
        order = order[np.abs(values[order]) > 10 * len(values) * epsilon * abs(values[order[0]])]
        span = vectors[:, order] * np.sqrt(np.abs(values[order]))
        count = span.shape[1]
        slices = np.ascontiguousarray(matrices(span, dimension).transpose(2, 0, 1))
        null, ratio = _null_matrices(slices)
        if count == 1:
            mixing = np.ones((1, 1))
        elif (values[order] > 0).all() or (values[order] < 0).all():
            mixing = diagonalize(null, rng).vectors
        else:
            mixing = separate(null, rng, self.n_pencils)
        rank_one = matrices(span @ mixing, dimension).transpose(2, 0, 1)
        spectra, bases = np.linalg.eigh(rank_one)
        largest = np.argmax(np.abs(spectra), axis=1)
        return balanced.directions(bases[np.arange(count), :, largest].T), ratio


def _null_matrices(slices: Any) -> tuple[Any, float | None]:
    """The k symmetric matrices (k, k, k) that the rank-one detector of k matrices sends to zero.

    The detector's Gram matrix for pairs (A, B) and (C, E) is 4 (<A, C> <B, E> + <A, E> <B, C>)
    - 4 (tr(A C B E) + tr(A E B C)).
    """
    count, dimension, _ = slices.shape
    flat = slices.reshape(count, -1)
    inner = flat @ flat.T
    products = np.einsum("aij,bjk->abik", slices, slices, optimize=True)
    products = products.reshape(count * count, dimension * dimension)
    first, second = np.triu_indices(count)
    scale = np.where(first == second, 1.0, np.sqrt(2.0))
    gram = np.empty((len(first), len(first)))
    for a in range(count):
        # traces[c, e, b] = tr(A C B E), from the products S_a S_c and S_e S_b.
        traces = (products[a * count : (a + 1) * count] @ products.T).reshape((count,) * 3)
        rows = first == a
        others = second[rows]
        paired = inner[a, first][None] * inner[others][:, second]
        paired += inner[a, second][None] * inner[others][:, first]
        crossed = traces[first, second][:, others] + traces[second, first][:, others]
        gram[rows] = 4.0 * (paired - crossed.T)
    gram *= scale[:, None] * scale
    last = min(count, len(gram) - 1)
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=(0, last))
    ratio = None
    if len(values) > count:
        ratio = float(max(values[count - 1], 0.0) / values[count]) if values[count] > 0 else 1.0
    null = np.zeros((count, count, min(count, len(values))))
    part = vectors[:, :count] / np.where(first == second, 1.0, np.sqrt(2.0))[:, None]
    null[first, second] = null[second, first] = part
    return null, ratio
