"""One component less for nearly the same sum: the way out of entangled fits.

A fit that has lost a component often spends two on another one, or three on two: a tensor of rank
two has whole families of decompositions into three terms, none of which can be dropped. Given one
component more, such a fit describes the data, and it remains to find the group that is one too
large. Components of a group share directions in all modes but one; a group of g is refitted by
g - 1 in the small space that it spans itself, which costs next to nothing and shows at once what
the reduction costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.optimize.alternating import Point, Sweeps, balanced
from latensor.decomposition.optimize.problem import DenseProblem, multiply_mode, row_khatri_rao
from latensor.decomposition.optimize.solves import hadamard_of_others, inverse_diagonal
from latensor.decomposition.optimize.starts import Pencils, leading_start, pencil_modes
from latensor.decomposition.subspace.compression import unfolding

# Pairs of most similar components that groups are grown from, and the sizes of these groups.
_PAIRS = 4
_SIZES = (2, 3, 4)
# Pencils tried for a group, and the sweeps that each gets.
_PENCILS = 2
_SWEEPS = 6


@dataclass(frozen=True)
class Reduction:
    """What to take out and what to put in its place.

    Attributes
    ----------
    cost : float, by how much the loss rises if nothing else adapts (of a group), or if one mode
        of all others adapts (of a single component)
    group : indices of the components to take out
    rows : transposed factors of those that replace them, one fewer; None for none
    """

    cost: float
    group: tuple[int, ...]
    rows: tuple[Array, ...] | None = None

    def apply(self, factors: Sequence[Array]) -> tuple[Array, ...]:
        """Balanced factors with one component less."""
        kept = [np.delete(factor, self.group, axis=0) for factor in factors]
        if self.rows is not None:
            kept = [np.vstack(pair) for pair in zip(kept, self.rows, strict=True)]
        return balanced(kept)


def cheapest_reduction(
    point: Point, rng: np.random.Generator, cheap: float, protected: int | None = None
) -> Reduction:
    """The way to do with one component less that costs the loss least.

    Parameters
    ----------
    point : real factors and their Grams
    rng : for the pencils of groups
    cheap : float, a cost that ends the search
    protected : index of a component that is not dropped alone unless that is cheap: the one that
        was added last, whose removal would lead back to where the fit came from
    """
    costs = component_costs(point)
    if protected is not None and costs[protected] > cheap:
        costs[protected] = np.inf
    least = int(np.argmin(costs))
    best = Reduction(float(costs[least]), (least,))
    for group in _groups(similarity(point.factors)):
        if best.cost <= cheap:
            break
        best = min(best, _refitted(point.factors, group, rng), key=lambda r: r.cost)
    return best


def component_costs(point: Point) -> Array:
    """By how much the loss rises if a component is dropped and one mode may adapt: (rank,)."""
    rank = point.factors[0].shape[0]
    costs = np.full(rank, np.inf)
    for mode, factor in enumerate(point.factors):
        inverse = inverse_diagonal(hadamard_of_others(point.grams, mode))
        energy = np.einsum("ij,ij->i", factor, factor.conj()).real
        costs = np.minimum(costs, energy / np.maximum(inverse, 1e-300))
    return costs


def similarity(factors: Sequence[Array]) -> Array:
    """How alike two components are in all modes but their least similar one: (rank, rank).

    The largest product over all modes but one of the absolute cosines; zero on the diagonal.
    """
    cosines = []
    for factor in factors:
        norms = np.linalg.norm(factor, axis=1, keepdims=True)
        unit = factor / np.where(norms > 0, norms, 1.0)
        cosines.append(np.abs(unit @ unit.conj().T))
    result = np.max([hadamard_of_others(cosines, mode) for mode in range(len(cosines))], axis=0)
    np.fill_diagonal(result, 0.0)
    return np.asarray(result)


def _groups(alike: Array) -> Iterator[tuple[int, ...]]:
    """Groups of similar components, each grown from one of the most similar pairs."""
    count = alike.shape[0]
    seen: set[frozenset[int]] = set()
    pairs = np.argsort(-np.triu(alike, 1).ravel(), kind="stable")[: min(_PAIRS, count // 2)]
    for pair in pairs:
        group = [int(index) for index in divmod(int(pair), count)]
        while len(group) <= min(_SIZES[-1], count):
            if len(group) in _SIZES and frozenset(group) not in seen:
                seen.add(frozenset(group))
                yield tuple(group)
            nearest = alike[group].max(axis=0)
            nearest[group] = -1.0
            group.append(int(np.argmax(nearest)))


def _refitted(
    factors: Sequence[Array], group: Sequence[int], rng: np.random.Generator
) -> Reduction:
    """A group of components refitted by one fewer, in coordinates of what the group spans."""
    chosen = list(group)
    frames, rows = [], []
    for factor in factors:
        frame, triangle = np.linalg.qr(factor[chosen].T)
        frames.append(frame.T)
        rows.append(np.ascontiguousarray(triangle.T))
    core = row_khatri_rao(rows).sum(axis=0).reshape([row.shape[1] for row in rows])
    # By energy, as pencils want it.
    for mode in range(core.ndim):
        matrix = unfolding(core, mode)
        turn = np.linalg.eigh(matrix @ matrix.conj().T)[1][:, ::-1].T
        core = multiply_mode(core, turn.conj(), mode)
        frames[mode] = turn @ frames[mode]
    problem = DenseProblem(np.ascontiguousarray(core))
    best: Point | None = None
    for start, modes in _starts(problem.tensor, len(chosen) - 1, rng):
        point = Point(start, tuple(problem.gram(f) for f in start), np.inf)
        point = Sweeps(problem, modes).sweep(point)
        for _ in range(_SWEEPS):
            point = Sweeps(problem).extrapolated(point)
        if best is None or point.loss < best.loss:
            best = point
    if best is None:
        return Reduction(np.inf, tuple(chosen))
    expanded = tuple(f @ frame for f, frame in zip(best.factors, frames, strict=True))
    return Reduction(best.loss, tuple(chosen), expanded)


def _starts(
    core: Array, rank: int, rng: np.random.Generator
) -> Iterator[tuple[tuple[Array, ...], tuple[int, ...]]]:
    """Starts for a tiny core, each with the order of modes of its first sweep."""
    natural = tuple(range(core.ndim))
    if rank < 2 or pencil_modes(core.shape, rank) is None:
        yield leading_start(core, rank, rng), natural
        return
    pencils = Pencils(core, rank)
    first = pencils.first_mode
    for _ in range(_PENCILS):
        start = pencils.start(rng)
        if start is not None:
            yield start, (first, *(n for n in natural if n != first))
