"""`match`: which component of one decomposition is which of another, and how well they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from latensor.arrays import check_mode, like
from latensor.arrays.guests import with_guests
from latensor.diagnostics.components import Components, as_cp, components_of
from latensor.exceptions import InvalidInputError
from latensor.tensors.cp import CPTensor


class Pair(NamedTuple):
    """Two components that were matched.

    `a` and `b` are their indices, `congruences` the absolute cosines per compared mode, `score`
    the product of these, `weights` the two norms, `weighted_score` the score times
    1 - |difference of weights| / (larger weight), which is zero for opposite components.
    """

    a: int
    b: int
    congruences: tuple[float, ...]
    score: float
    weights: tuple[float, float]
    weighted_score: float


@dataclass(frozen=True, eq=False, repr=False)
class Matching:
    """The best pairing of the components of two CP tensors.

    Attributes
    ----------
    pairs : one `Pair` per matched component, by its index in `a`
    permutation : (rank of b,) ints, the components of `b` in the order of `a`, unmatched last
    signs : (order, rank of b) array, the sign (complex tensors: phase) by which each column of
        the permuted `b` is multiplied so that it points along its partner; modes not compared
        and unmatched components have 1
    score : float, mean over the pairs of the product of absolute cosines: 1 is perfect
        (the factor match score, FMS, without weights)
    weighted_score : float, the same with the penalty for different weights (FMS with weights,
        the default of the Tensor Toolbox's `score`)
    unmatched_a, unmatched_b : tuples of ints, components without a partner
    aligned : CPTensor, `b` permuted and with signs changed, so that it can be compared with `a`
        column by column; the tensor it stands for is the same
    modes : tuple of ints, the modes that were compared
    """

    pairs: tuple[Pair, ...]
    permutation: Any
    signs: Any
    score: float
    weighted_score: float
    unmatched_a: tuple[int, ...]
    unmatched_b: tuple[int, ...]
    aligned: CPTensor
    modes: tuple[int, ...]

    def __float__(self) -> float:
        return self.score

    def __repr__(self) -> str:
        return f"Matching({len(self.pairs)} pairs, score {self.score:.4g})"

    def __str__(self) -> str:
        head = ["   a", "   b", *(f"  mode {m}" for m in self.modes), "   score", "weight a"]
        lines = ["  ".join([*head, "weight b"])]
        for pair in self.pairs:
            cells = [f"{pair.a:4d}", f"{pair.b:4d}"]
            cells += [f"{value:8.4f}" for value in (*pair.congruences, pair.score)]
            cells += [f"{value:8.4g}" for value in pair.weights]
            lines.append("  ".join(cells))
        lines.append(f"score {self.score:.4f}, with weights {self.weighted_score:.4f}")
        for name, left in (("a", self.unmatched_a), ("b", self.unmatched_b)):
            if left:
                lines.append(f"without a partner in {name}: {', '.join(map(str, left))}")
        return "\n".join(lines)


@with_guests
def match(
    a: object,
    b: object,
    *,
    modes: Sequence[int] | None = None,
    weight_penalty: bool = False,
) -> Matching:
    """Pair the components of two CP tensors, whatever their order, signs and scaling.

    Components i of `a` and j of `b` are compared by the product over modes of the absolute
    cosines of their vectors. The pairs maximize the sum of these products over all pairings
    (Hungarian algorithm), where taking the best pair first can miss the best pairing. Where the
    ranks differ, the components left over are listed.

    Parameters
    ----------
    a, b : CPTensor, Decomposition, TensorLy or pyttb CP tensor, or pair (weights, factors); of
        the same shape in the compared modes, of any ranks and array libraries
    modes : modes to compare, all by default; the others may differ in size
    weight_penalty : bool, whether pairs are sought by the score with the penalty for weights

    Returns
    -------
    Matching

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> truth = lt.CPTensor(None, [np.random.default_rng(0).random((d, 2)) for d in (5, 6, 7)])
    >>> found = lt.decompose(truth.to_dense(), 2, random_state=0)
    >>> round(lt.match(found, truth).score, 6)
    1.0
    """
    first, second = as_cp(a, "a"), as_cp(b, "b")
    ours, theirs = components_of(first, "a"), components_of(second, "b")
    compared = _compared(ours, theirs, modes)
    inner = [ours.factors[m].conj().T @ theirs.factors[m] for m in compared]
    cosines = np.minimum(np.abs(np.stack(inner)), 1.0)
    scores = np.prod(cosines, axis=0)
    weighted = scores * _weight_agreement(ours, theirs, inner)
    rows, columns = scipy.optimize.linear_sum_assignment(
        weighted if weight_penalty else scores, maximize=True
    )
    pairs = tuple(
        Pair(
            int(i),
            int(j),
            tuple(float(c) for c in cosines[:, i, j]),
            float(scores[i, j]),
            (float(ours.magnitudes[i]), float(theirs.magnitudes[j])),
            float(weighted[i, j]),
        )
        for i, j in zip(rows, columns, strict=True)
    )
    unmatched_b = tuple(sorted(set(range(theirs.rank)) - {p.b for p in pairs}))
    permutation = np.array([*(p.b for p in pairs), *unmatched_b])
    signs = np.ones((theirs.order, theirs.rank), dtype=np.result_type(*inner))
    for mode, products in zip(compared, inner, strict=True):
        chosen = products[rows, columns]
        sizes = np.abs(chosen)
        signs[mode, : len(pairs)] = np.where(
            sizes > 0, chosen.conj() / np.where(sizes > 0, sizes, 1.0), 1.0
        )
    return Matching(
        pairs,
        permutation,
        signs,
        float(np.mean([p.score for p in pairs])),
        float(np.mean([p.weighted_score for p in pairs])),
        tuple(sorted(set(range(ours.rank)) - {p.a for p in pairs})),
        unmatched_b,
        _aligned(second, permutation, signs),
        compared,
    )


def _compared(ours: Components, theirs: Components, modes: Sequence[int] | None) -> tuple[int, ...]:
    if ours.order != theirs.order:
        raise InvalidInputError(
            f"a has order {ours.order} and b has order {theirs.order}: only tensors of the same "
            "order have components to compare"
        )
    chosen = tuple(range(ours.order) if modes is None else modes)
    compared = tuple(check_mode(m, ours.order, "modes") for m in chosen)
    if not compared or len(set(compared)) < len(compared):
        raise InvalidInputError(f"modes={chosen} must name at least one mode, and none twice")
    for mode in compared:
        if ours.shape[mode] != theirs.shape[mode]:
            raise InvalidInputError(
                f"a has shape {ours.shape} and b has shape {theirs.shape}: they differ in mode "
                f"{mode}; compare only modes of equal dimension by `modes`"
            )
    return compared


def _weight_agreement(ours: Components, theirs: Components, inner: Sequence[Any]) -> Any:
    """(rank a, rank b) one minus the difference of weights over the larger, at least zero.

    The weights are taken with the signs they have once the vectors point the same way, so that a
    component and its negative do not agree. That sign is known only where all modes are compared.
    """
    left, right = ours.magnitudes[:, None], theirs.magnitudes[None, :]
    if len(inner) == ours.order:
        products = np.prod(inner, axis=0) * np.outer(ours.weights.conj(), theirs.weights)
        sizes = np.abs(products)
        right = right * np.where(sizes > 0, products / np.where(sizes > 0, sizes, 1.0), 1.0)
    larger = np.maximum(left, np.abs(right))
    return np.maximum(1.0 - np.abs(left - right) / np.where(larger > 0, larger, 1.0), 0.0)


def _aligned(tensor: CPTensor, permutation: Any, signs: Any) -> CPTensor:
    """The same tensor with permuted components and changed signs; shared factors stay shared."""
    order = like(permutation, tensor.weights)
    known: dict[tuple[int, bytes], Any] = {}
    factors = []
    for factor, sign in zip(tensor.factors, signs, strict=True):
        key = (id(factor), sign.tobytes())
        if key not in known:
            known[key] = factor[:, order] * like(sign, factor)[None, :]
        factors.append(known[key])
    total = np.prod(signs, axis=0)
    weights = tensor.weights[order] * like(total.conj(), tensor.weights)
    return CPTensor(weights, tuple(factors))
