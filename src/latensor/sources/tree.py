"""Trees whose observed nodes come first: what a latent tree is, and what a Newick text holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class Tree:
    """A tree over n observed nodes, numbered 0..n-1, and hidden ones, numbered from n on.

    The root is where computations begin, and says nothing about the data.

    Attributes
    ----------
    parent : (N,) int64, -1 at the root
    n_observed : int, n
    length : (N,) of the edge to the parent, 0 at the root
    support : (N,) of the edge to the parent between 0 and 1, NaN where none was measured
    """

    parent: Any
    n_observed: int
    length: Any
    support: Any

    @classmethod
    def of(cls, parent: Any, n_observed: int, length: Any = None, support: Any = None) -> Tree:
        """A tree without lengths or support unless given."""
        parent = np.asarray(parent, dtype=np.int64)
        n_nodes = len(parent)
        length = np.zeros(n_nodes) if length is None else np.asarray(length, dtype=np.float64)
        support = np.full(n_nodes, np.nan) if support is None else np.asarray(support, float)
        return cls(parent, n_observed, length, support)

    @classmethod
    def joined(cls, neighbours: Sequence[Sequence[int]], n_observed: int) -> Tree:
        """The tree of an undirected one, rooted at its first hidden node, or at node 0.

        Hidden nodes are numbered anew as they are met from the root, so that equal trees of equal
        neighbours are equal.
        """
        start = n_observed if len(neighbours) > n_observed else 0
        parent = np.full(len(neighbours), -1, dtype=np.int64)
        stack, met = [start], []
        while stack:
            u = stack.pop()
            met.append(u)
            for v in neighbours[u]:
                if v != parent[u]:
                    parent[v] = u
                    stack.append(v)
        if len(met) != len(neighbours):
            raise InvalidInputError(f"{len(met)} of {len(neighbours)} nodes are joined in the tree")
        number = np.arange(len(neighbours))
        number[[u for u in met if u >= n_observed]] = np.arange(n_observed, len(neighbours))
        found = np.full(len(neighbours), -1, dtype=np.int64)
        for v, above in enumerate(parent):
            if above >= 0:
                found[number[v]] = number[above]
        return cls.of(found, n_observed)

    def __len__(self) -> int:
        return len(self.parent)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return self.n_observed == other.n_observed and all(
            np.array_equal(getattr(self, name), getattr(other, name), equal_nan=name != "parent")
            for name in ("parent", "length", "support")
        )

    def __hash__(self) -> int:
        return hash((self.n_observed, self.parent.tobytes()))

    @property
    def n_hidden(self) -> int:
        """Nodes that were not observed."""
        return len(self.parent) - self.n_observed

    @property
    def root(self) -> int:
        """The node without a parent."""
        return int(np.flatnonzero(self.parent < 0)[0])

    def children(self) -> list[list[int]]:
        """The children of every node, in their order."""
        found: list[list[int]] = [[] for _ in self.parent]
        for v, u in enumerate(self.parent):
            if u >= 0:
                found[u].append(v)
        return found

    def neighbours(self) -> list[list[int]]:
        """The neighbours of every node."""
        found = self.children()
        for v, u in enumerate(self.parent):
            if u >= 0:
                found[v].append(int(u))
        return found

    def preorder(self) -> list[int]:
        """All nodes, each after its parent."""
        children, order, stack = self.children(), [], [self.root]
        while stack:
            u = stack.pop()
            order.append(u)
            stack.extend(reversed(children[u]))
        return order

    def below(self) -> Array:
        """(N, n) bool, the observed nodes at or below every node."""
        found = np.zeros((len(self.parent), self.n_observed), dtype=bool)
        found[np.arange(self.n_observed), np.arange(self.n_observed)] = True
        for v in reversed(self.preorder()):
            if self.parent[v] >= 0:
                found[self.parent[v]] |= found[v]
        return found

    def distances(self) -> Array:
        """(N, N) lengths of all paths."""
        found = np.zeros((len(self.parent), len(self.parent)))
        seen: list[int] = []
        for v in self.preorder():
            u = self.parent[v]
            if u >= 0:
                row = found[u, seen] + self.length[v]
                found[v, seen], found[seen, v] = row, row
            seen.append(v)
        return found

    def splits(self) -> dict[bytes, int]:
        """What every edge parts the observed nodes into, and the node below that edge.

        Splits that part off one node or none are left out, and of equal splits one is kept.
        """
        found: dict[bytes, int] = {}
        n = self.n_observed
        below = self.below()
        sizes = below.sum(axis=1)
        for v, side in enumerate(below):
            if self.parent[v] >= 0 and 2 <= sizes[v] <= n - 2:
                found[np.packbits(side ^ side[0]).tobytes()] = v
        return found


def robinson_foulds(one: Tree, other: Tree) -> float:
    """How much two trees over the same observed nodes differ, between 0 and 1.

    The splits that only one of them has, over all that both have: Robinson and Foulds' distance
    over its maximum, 2 (n - 3) for two binary trees.

    Parameters
    ----------
    one, other : Tree of as many observed nodes, such as `LatentTree.tree_`

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_tree(10, 6, random_state=0)
    >>> float(lt.robinson_foulds(sample.tree, sample.tree))
    0.0
    """
    for name, tree in (("one", one), ("other", other)):
        if not isinstance(tree, Tree):
            raise InvalidInputError(
                f"{name} is a {type(tree).__name__}, expected a Tree, such as tree_ of a LatentTree"
            )
    if one.n_observed != other.n_observed:
        raise InvalidInputError(
            f"one has {one.n_observed} observed nodes and other {other.n_observed}: only trees "
            "over the same ones can be compared"
        )
    a, b = set(one.splits()), set(other.splits())
    return len(a ^ b) / max(len(a) + len(b), 1)
