"""Planted networks: block models with pure or mixed memberships."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.exceptions import InvalidInputError

# Rates that are held at once.
_ENTRIES = 2**22


@dataclass(frozen=True)
class GraphSample:
    """A network and its truth.

    Attributes
    ----------
    adjacency : (n, n) CSR of zeros and ones, symmetric unless directed, without loops
    membership : (n, k), rows sum to one
    block : (k, k), probabilities of an edge between pure members
    """

    adjacency: Any
    membership: Any
    block: Any


def make_block_model(
    n_nodes: int = 1000,
    n_components: int = 4,
    *,
    alpha0: float = 0.5,
    degree: float = 40.0,
    ratio: float = 0.1,
    directed: bool = False,
    random_state: RandomState = None,
) -> GraphSample:
    """A network whose nodes belong to several communities (monograph 4.4).

    Memberships are Dirichlet with parameters alpha0 / k each; an edge from i to j has probability
    p_i' B p_j.

    Parameters
    ----------
    n_nodes, n_components : int
    alpha0 : float; 0 for one community per node
    degree : float, expected number of edges of a node
    ratio : float, how much likelier edges between communities are than within; above 1 nodes avoid
        their own kind
    directed : bool
    random_state : seed
    """
    n = check_positive_int(n_nodes, "n_nodes")
    k = check_positive_int(n_components, "n_components")
    for name, value in (("alpha0", alpha0), ("degree", degree), ("ratio", ratio)):
        if not value >= 0:
            raise InvalidInputError(f"{name}={value!r} must be at least 0")
    rng = generator(random_state)
    if alpha0 > 0:
        membership = rng.dirichlet(np.full(k, alpha0 / k), n)
    else:
        membership = np.eye(k)[rng.integers(k, size=n)]
    shape = np.full((k, k), float(ratio)) + (1 - ratio) * np.eye(k)
    mean = membership.mean(axis=0)
    block = shape * degree / max(n * float(mean @ shape @ mean), 1e-300)
    if block.max() > 1:
        raise InvalidInputError(
            f"degree={degree:g} is too large for n_nodes={n}: an edge would have probability "
            f"{block.max():.3g}"
        )
    return GraphSample(draw_edges(membership, block, directed, rng), membership, block)


def draw_edges(weights: Any, block: Any, directed: bool, rng: np.random.Generator) -> Any:
    """Edges (n, n) CSR, each with probability min(W_i' B W_j, 1), without loops."""
    n = len(weights)
    right = (weights @ np.asarray(block).T).astype(np.float32).T
    size = max(1, _ENTRIES // n)
    sources, targets = [], []
    for start in range(0, n, size):
        rates = weights[start : start + size].astype(np.float32) @ right
        i, j = np.nonzero(rng.random(rates.shape, dtype=np.float32) < rates)
        i = i + start
        keep = i != j if directed else i < j
        sources.append(i[keep])
        targets.append(j[keep])
    i, j = np.concatenate(sources), np.concatenate(targets)
    if not directed:
        i, j = np.concatenate([i, j]), np.concatenate([j, i])
    return scipy.sparse.csr_array((np.ones(len(i)), (i, j)), shape=(n, n))
