"""Whether a CP decomposition is the only one of its rank (monograph 3.3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.diagnostics.components import Components
from latensor.tensors.kruskal import KruskalRank, kruskal_rank

# Subsets of columns that a Kruskal rank may try: some tenths of a second.
_SUBSETS = 20_000
# Rows of the largest Khatri-Rao product formed when modes are grouped.
_LARGEST_PRODUCT = 1 << 20
# Pairs of components of the largest second compound.
_LARGEST_COMPOUND = 2_000


@dataclass(frozen=True)
class Uniqueness:
    """What is shown about uniqueness of a decomposition up to order and scale.

    Attributes
    ----------
    shown : bool, whether one of the sufficient conditions holds; if not, nothing is known
    condition : str, the condition that holds, or why none could be shown to
    k_ranks : one KruskalRank per mode
    required : int, what the k-ranks must sum to at least, 2 rank + order - 1
    robust : bool or None, whether it is still shown for all factors within the error bars; None
        where these are not known
    """

    shown: bool
    condition: str
    k_ranks: tuple[KruskalRank, ...]
    required: int
    robust: bool | None = None

    @property
    def total(self) -> int:
        """The sum of the k-ranks, or a lower bound of it."""
        return sum(k.lower for k in self.k_ranks)


def uniqueness(components: Components, errors: Any = None) -> Uniqueness:
    """Sufficient conditions for uniqueness, the simplest first.

    1. Kruskal: the k-ranks of the N factors sum to at least 2 rank + N - 1 (Sidiropoulos and Bro
       for N > 3).
    2. The same for order 3 after multiplying modes together, for N > 3.
    3. One factor has independent columns, and so has the Khatri-Rao product of the second
       compounds of the other two (Jiang and Sidiropoulos; De Lathauwer), for N = 3.

    Parameters
    ----------
    errors : (order,) array, by how much the matrix of unit columns of each mode may be off, in
        spectral norm; None if unknown
    """
    shown, condition, k_ranks = _show(components, np.zeros(components.order))
    required = 2 * components.rank + components.order - 1
    robust = None
    if errors is not None and np.all(np.isfinite(errors)):
        robust = shown and _show(components, np.asarray(errors))[0]
    return Uniqueness(shown, condition, k_ranks, required, robust)


def _show(components: Components, errors: Any) -> tuple[bool, str, tuple[KruskalRank, ...]]:
    rank, order = components.rank, components.order
    k_ranks = _k_ranks(components.factors, errors)
    if (components.magnitudes == 0).any():
        return False, "a component is zero, so that fewer would do", k_ranks
    if order == 1:
        return False, "a vector is a sum of components in many ways", k_ranks
    if rank == 1:
        return True, "one component", k_ranks
    if order == 2:
        return False, "a matrix of rank two or more has many decompositions", k_ranks
    if sum(k.lower for k in k_ranks) >= 2 * rank + order - 1:
        return True, "Kruskal's condition", k_ranks
    for groups in _groupings(components.shape, rank):
        factors = [_product([components.factors[m] for m in group]) for group in groups]
        slack = [float(sum(errors[m] for m in group)) for group in groups]
        named = " | ".join("x".join(map(str, group)) for group in groups)
        grouped = "" if order == 3 else f" with modes grouped as {named}"
        if order > 3 and sum(k.lower for k in _k_ranks(factors, slack)) >= 2 * rank + 2:
            return True, f"Kruskal's condition{grouped}", k_ranks
        if _by_compounds(factors, slack):
            return True, f"independent second compounds{grouped}", k_ranks
    return False, "no sufficient condition holds", k_ranks


def _k_ranks(factors: Sequence[Any], errors: Sequence[float]) -> tuple[KruskalRank, ...]:
    known: dict[int, KruskalRank] = {}
    ranks = []
    for factor, error in zip(factors, errors, strict=True):
        if id(factor) not in known:
            tolerance = max(float(error), max(factor.shape) * np.finfo(float).eps)
            known[id(factor)] = kruskal_rank(factor, tol=tolerance, max_subsets=_SUBSETS)
        ranks.append(known[id(factor)])
    return tuple(ranks)


def _groupings(shape: tuple[int, ...], rank: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to put the modes into three groups, small Khatri-Rao products only."""
    order = len(shape)
    if order > 6:
        return
    for labels in itertools.product(range(3), repeat=order - 1):
        # The first mode stands in group 0, and group 1 opens before group 2: no grouping twice.
        full = (0, *labels)
        groups = tuple(tuple(m for m in range(order) if full[m] == g) for g in range(3))
        if not all(groups) or groups[1][0] > groups[2][0]:
            continue
        sizes = [math.prod(min(shape[m], rank) for m in group) for group in groups]
        if max(sizes) * rank <= _LARGEST_PRODUCT:
            yield groups


def _product(factors: Sequence[Any]) -> Any:
    """Khatri-Rao product of unit columns in as few rows as its rank allows."""
    result = _short(factors[0])
    for factor in factors[1:]:
        short = _short(factor)
        product = result[:, None, :] * short[None, :, :]
        result = _short(product.reshape(-1, result.shape[1]))
    return result


def _short(factor: Any) -> Any:
    return np.linalg.qr(factor, mode="r") if factor.shape[0] > factor.shape[1] else factor


def _by_compounds(factors: Sequence[Any], errors: Sequence[float]) -> bool:
    """Whether one factor has independent columns and the compounds of the others do too."""
    rank = factors[0].shape[1]
    if rank * (rank - 1) // 2 > _LARGEST_COMPOUND:
        return False
    for mode in range(3):
        factor = factors[mode]
        if factor.shape[0] < rank:
            continue
        limit = max(errors[mode], rank * np.finfo(float).eps)
        if np.linalg.svd(factor, compute_uv=False)[-1] <= limit:
            continue
        others = [m for m in range(3) if m != mode]
        gram = _compound_gram(factors[others[0]]) * _compound_gram(factors[others[1]])
        values = np.linalg.eigvalsh(gram)
        slack = sum(errors[m] for m in others)
        if values[0] > max(slack**2, 100 * len(gram) * np.finfo(float).eps) * values[-1]:
            return True
    return False


def _compound_gram(factor: Any) -> Any:
    """Gram matrix of the second compound, from the 2 x 2 minors of that of the columns."""
    gram = factor.conj().T @ factor
    i, j = np.triu_indices(len(gram), 1)
    return gram[np.ix_(i, i)] * gram[np.ix_(j, j)] - gram[np.ix_(i, j)] * gram[np.ix_(j, i)]
