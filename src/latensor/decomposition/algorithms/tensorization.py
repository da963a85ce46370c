"""Tensorization: overcomplete tensors of order 5 and more by merging modes (monograph 7.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int, machine_epsilon
from latensor.decomposition.algorithms.jennrich import SimultaneousDiagonalization, group_modes
from latensor.decomposition.algorithms.overcomplete import dense_symmetric, finish, whitened
from latensor.decomposition.algorithms.symmetric import (
    measured_asymmetry,
    rank_at_most,
    refuse_nonfinite_tensor,
    symmetric_tensor,
)
from latensor.decomposition.auto.automatic import Automatic
from latensor.decomposition.auto.core import exact_residual
from latensor.decomposition.optimize.iteration import Callback
from latensor.decomposition.result import Decomposition
from latensor.decomposition.setup import refuse_rank
from latensor.exceptions import InvalidInputError
from latensor.tensors.conversion import as_contractible


@dataclass(frozen=True)
class Tensorization:
    """Decompose a tensor of order 5 or more with more components than dimensions.

    The tensor sum_j w_j a_j^(x)p is one of order three in b_j = a_j^(x)q, q = floor((p - 1) / 2):
    sum_j w_j b_j (x) b_j (x) a_j^(x)(p - 2q). The b_j are independent up to their number
    C(d + q - 1, q), which is d (d + 1) / 2 for orders 5 and 6, and simultaneous diagonalization
    finds them; each is split into its a_j. Tensors that are not symmetric have their modes merged
    into three groups, two of which must have room for the rank.

    Exact without noise up to the limit; noise is amplified near it (from about 0.7 of it on), where
    the fit that follows decides.

    Parameters
    ----------
    symmetric : bool, or None to look whether the tensor is
    n_pencils : int, random pencils to choose from
    refine : int, at most so many steps of the fit at the end
    """

    symmetric: bool | None = None
    n_pencils: int = 10
    refine: int = 100

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
    ) -> Decomposition:
        """Decompose a tensor of order 5 or more.

        Parameters
        ----------
        tensor : dense array of any library, or sparse or factored tensor
        rank : int, at most C(d + q - 1, q) where symmetric
        rng : Generator, draws the pencils
        callback : told after every step of the end; may return True to stop
        """
        name = type(self).__name__
        data = as_contractible(tensor)
        order = len(data.shape)
        check_positive_int(self.n_pencils, "n_pencils")
        if order < 5:
            remedy = "SubspacePower or Foobi" if order == 4 else "algorithm='auto'"
            raise InvalidInputError(
                f"tensor has order {order}, but {name} needs order 5 or more: use {remedy}"
            )
        refuse_nonfinite_tensor(data)
        limit = machine_epsilon(data.reference) ** 0.5
        symmetric = self.symmetric
        if symmetric is None:
            symmetric = measured_asymmetry(data) <= limit
        algebra = SimultaneousDiagonalization(n_pencils=self.n_pencils, refine=0)
        if not symmetric:
            group_modes(data.shape, refuse_rank(rank))
            start = algebra(data, rank, rng)
            if start.residual <= exact_residual(machine_epsilon(data.reference)) or self.refine < 1:
                return replace(start, method=name)
            fitted = Automatic(max_iter=self.refine)(data, rank, rng, callback, init=start.tensor)
            return replace(fitted, method=name)
        data = symmetric_tensor(tensor, name)
        half = (order - 1) // 2
        dimension = data.shape[0]
        room = comb(dimension + half - 1, half)
        rank = rank_at_most(
            rank, room, name, f"products of {half} of {dimension} coordinates at order {order}"
        )
        array = dense_symmetric(data)
        found = np.zeros((dimension, 0))
        if array.any():
            balanced = whitened(array, machine_epsilon(data.reference))
            width = balanced.array.shape[0]
            merged = balanced.array.reshape(width**half, width**half, -1)
            parts = algebra(merged, min(rank, width**half), rng)
            kept = np.asarray(parts.weights) > 1e-12 * abs(np.asarray(parts.weights)).max()
            kept |= np.asarray(parts.weights) < 0
            found = balanced.directions(_split(np.asarray(parts.factors[0])[:, kept], width))
        return finish(data, found, rank, rng, callback, self.refine, name)


def _split(columns: Any, dimension: int) -> Any:
    """The vectors a (d, k) whose powers a^(x)q are nearest to columns (d^q, k)."""
    stacked = columns.T.reshape(columns.shape[1], dimension, -1)
    return np.linalg.svd(stacked, full_matrices=False)[0][:, :, 0].T
