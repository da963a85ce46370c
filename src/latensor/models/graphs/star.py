"""Communities from stars: what a node's edges to three parts of the graph have in common.

Given the memberships p_x of node x, its edges to three parts of the nodes are independent, with
means F_m p_x. With Dirichlet memberships of total a0 their moments, corrected as those of topics
(monograph 4.1.2), are diagonal in the communities: sum_j w_j F_1j (x) F_2j (x) F_3j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition import JointDiagonalization
from latensor.diagnostics.findings import shown_spectrum
from latensor.exceptions import NotIdentifiableError
from latensor.whitening import whiten


@dataclass(frozen=True, eq=False)
class StarReading:
    """What the moments of stars say.

    Attributes
    ----------
    weights : (k,) of the communities, summing to one
    columns : three (k, k) arrays F_m
    spectrum : singular values of the weakest of the three second moments, as fractions of the
        largest
    """

    weights: Any
    columns: tuple[Any, ...]
    spectrum: tuple[float, ...]


def corrected_moments(
    first: Array, second: Array, third: Array, alpha0: float
) -> tuple[Array, Array]:
    """Second (3, k, k) and third moments (k, k, k) that are diagonal in the communities.

    Parameters
    ----------
    first : (3, k) means; second : (3, k, k), of views (1, 2), (1, 3), (2, 3); third : (k, k, k)
    alpha0 : float, total of the Dirichlet parameters; 0 for pure memberships
    """
    a, b, c = first
    ab, ac, bc = second
    pairs = np.stack([np.outer(a, b), np.outer(a, c), np.outer(b, c)])
    crossed = (
        np.einsum("ab,c->abc", ab, c)
        + np.einsum("ac,b->abc", ac, b)
        + np.einsum("bc,a->abc", bc, a)
    )
    triple = np.einsum("a,b,c->abc", a, b, c)
    corrected = (alpha0 + 1) * (alpha0 + 2) / 2 * third
    corrected = corrected - alpha0 * (alpha0 + 1) / 2 * crossed + alpha0**2 * triple
    return (alpha0 + 1) * second - alpha0 * pairs, corrected


def read_star(
    first: Array, second: Array, third: Array, alpha0: float, rng: np.random.Generator
) -> StarReading:
    """Weights and columns of the communities."""
    k = first.shape[1]
    (ab, ac, bc), core = corrected_moments(first, second, third, alpha0)
    sizes = [np.linalg.svd(m, compute_uv=False) for m in (ab, ac, bc)]
    weakest = min((each / max(each[0], 1e-300) for each in sizes), key=lambda each: each[-1])
    spectrum = tuple(float(value) for value in weakest)
    if not spectrum[-1] > 1e-12:
        raise NotIdentifiableError(
            f"n_components={k}: edges to three parts of the graph do not show that many "
            f"communities (spectrum {shown_spectrum(spectrum)} of the largest): lower n_components"
        )
    # Views 1 and 2 in the coordinates of view 3.
    one = np.linalg.solve(ab.T, bc).T
    two = np.linalg.solve(ab, ac).T
    symmetric = one @ ab @ two.T
    symmetric = (symmetric + symmetric.T) / 2
    whitening = whiten(symmetric, k)
    w = whitening.projection
    turned = np.einsum("abc,ax,by,cz->xyz", core, one.T @ w, two.T @ w, w, optimize=True)
    axes = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    turned = np.mean([turned.transpose(a) for a in axes], axis=0)
    values, vectors = JointDiagonalization()(turned, k, rng)
    weights = 1 / np.maximum(np.abs(values), 1e-9) ** 2
    weights = weights / weights.sum()
    last = whitening.lift @ (vectors[0] * values)
    inverse = np.linalg.inv(last).T / weights
    return StarReading(weights, (ac @ inverse, bc @ inverse, last), spectrum)
