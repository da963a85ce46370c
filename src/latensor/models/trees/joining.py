"""Binary trees from affinities and distances of all pairs of leaves.

With R multiplicative and D = -log R additive along paths, neighbour joining reads D, spectral
neighbour joining the ranks of blocks of R. The second survives long trees, whose distances end in
noise; interchanges under balanced minimum evolution then repair its short edges.
"""

from __future__ import annotations

import numpy as np

from latensor.arrays import Array
from latensor.sources.tree import Tree

# Rows that stand for the block of a cluster: exact second singular values give the same trees up
# to a Robinson-Foulds distance of .011.
_ROWS = 3
# Sweeps of disjoint interchanges; then one by one, each of which shortens the tree.
_SWEEPS = 30
_SINGLE = 2000


def _star(n: int) -> Tree:
    """The one tree of up to three leaves."""
    if n == 1:
        return Tree.of([-1], 1)
    if n == 2:
        return Tree.of([1, -1], 2)
    return Tree.of([3, 3, 3, -1], 3)


class _Forest:
    """Clusters that are joined two by two, until three are left."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.node = list(range(n))
        self.neighbours: list[list[int]] = [[] for _ in range(n)]

    def join(self, *places: int) -> None:
        """Put a hidden node above clusters; it takes the place of the first, the others go."""
        new = len(self.neighbours)
        self.neighbours.append([self.node[p] for p in places])
        for p in places:
            self.neighbours[self.node[p]].append(new)
        self.node[places[0]] = new
        for p in sorted(places[1:], reverse=True):
            del self.node[p]

    def tree(self) -> Tree:
        self.join(0, 1, 2)
        return Tree.joined(self.neighbours, self.n)


def neighbor_joining(distances: Array) -> Tree:
    """Saitou and Nei's tree of distances (n, n)."""
    n = len(distances)
    if n <= 3:
        return _star(n)
    forest, gaps = _Forest(n), np.array(distances, dtype=np.float64)
    while len(gaps) > 3:
        m = len(gaps)
        sums = gaps.sum(axis=1)
        criterion = (m - 2) * gaps - sums[:, None] - sums[None]
        np.fill_diagonal(criterion, np.inf)
        i, j = sorted(divmod(int(np.argmin(criterion)), m))
        row = (gaps[i] + gaps[j] - gaps[i, j]) / 2
        gaps[i], gaps[:, i] = row, row
        gaps[i, i] = 0.0
        keep = np.arange(m) != j
        gaps = gaps[np.ix_(keep, keep)]
        forest.join(i, j)
    return forest.tree()


def spectral_neighbor_joining(affinities: Array) -> Tree:
    """The tree of affinities R (n, n), negative ones included: blocks of clans have rank one.

    Of all pairs of clusters the one whose rows R[A + B, rest] are nearest to rank one, by their
    second singular value, is joined. A cluster is kept as three rows, its singular values times
    right singular vectors, so that a pair is an eigenvalue problem of 6 x 6.
    """
    n = len(affinities)
    if n <= 3:
        return _star(n)
    forest = _Forest(n)
    rows = np.zeros((n, _ROWS, n))
    rows[:, 0] = affinities
    rows[np.arange(n), 0, np.arange(n)] = 0.0
    member = np.eye(n, dtype=bool)
    first = rows[:, 0]
    squares = (first**2).sum(axis=1)
    inner = first @ first.T
    a = squares[:, None] - first**2
    b = squares[None] - first**2
    # Closed form for two rows; the columns of both are zero in neither product.
    values = _second_of_two(a, b, inner)
    values[np.tril_indices(n)] = np.inf
    while len(forest.node) > 3:
        m = len(forest.node)
        i, j = sorted(divmod(int(np.argmin(values)), m))
        both = member[i] | member[j]
        block = np.vstack([rows[i], rows[j]])
        block[:, both] = 0.0
        _, sizes, right = np.linalg.svd(block, full_matrices=False)
        keep = np.arange(m) != j
        rows[i], member[i] = sizes[:_ROWS, None] * right[:_ROWS], both
        rows, member = rows[keep], member[keep]
        values = values[np.ix_(keep, keep)]
        forest.join(i, j)
        if len(forest.node) > 3:
            found = _second_values(rows, member, i)
            values[:i, i], values[i, i + 1 :] = found[:i], found[i + 1 :]
    return forest.tree()


def _second_of_two(a: Array, b: Array, c: Array) -> Array:
    """The smaller eigenvalue of [[a, c], [c, b]], not negative."""
    large = (a + b) / 2 + np.sqrt(((a - b) / 2) ** 2 + c**2)
    return np.maximum(a * b - c**2, 0) / np.maximum(large, np.finfo(float).tiny)


def _second_values(rows: Array, member: Array, i: int) -> Array:
    """The squared second singular value of cluster i joined with every other (m,)."""
    m = len(rows)
    own = rows[i]
    products = np.einsum("an,bn->nab", own, own).reshape(own.shape[1], -1)
    gram = np.empty((m, 2 * _ROWS, 2 * _ROWS))
    inside = (member @ products).reshape(m, _ROWS, _ROWS)
    gram[:, :_ROWS, :_ROWS] = own @ own.T - inside
    other = rows[:, :, member[i]]
    gram[:, _ROWS:, _ROWS:] = rows @ rows.transpose(0, 2, 1) - other @ other.transpose(0, 2, 1)
    cross = rows @ own.T
    gram[:, _ROWS:, :_ROWS] = cross
    gram[:, :_ROWS, _ROWS:] = cross.transpose(0, 2, 1)
    return np.asarray(np.maximum(np.linalg.eigvalsh(gram)[:, -2], 0.0))


def balanced_interchange(tree: Tree, distances: Array) -> Tree:
    """A binary tree after interchanges of neighbours that shorten it (balanced minimum evolution).

    Around an inner edge with subtrees A, B | C, D, B and C change places where the balanced means
    of distances satisfy d(A,C) + d(B,D) < d(A,B) + d(C,D). Leaves weigh half as much with every
    node between; no lengths enter.

    Parameters
    ----------
    tree : Tree, binary
    distances : (n, n)
    """
    if tree.n_observed < 4:
        return tree
    around = [list(each) for each in tree.neighbours()]
    scale = np.finfo(float).eps * len(distances) * float(np.abs(distances).max())
    for sweep in range(_SWEEPS + _SINGLE):
        index, means = balanced_means(around, distances)
        swaps = []
        for u in range(tree.n_observed, len(around)):
            for v in around[u]:
                if v <= u or v < tree.n_observed:
                    continue
                (a, b), (c, d) = _others(around, u, v), _others(around, v, u)
                ia, ib, ic, id_ = index[a, u], index[b, u], index[c, v], index[d, v]
                now = means[ia, ib] + means[ic, id_]
                for right, left in ((c, d), (d, c)):
                    ir, il = index[right, v], index[left, v]
                    gain = now - means[ia, ir] - means[ib, il]
                    if gain > scale:
                        swaps.append((gain, u, v, b, right))
        if not swaps:
            break
        swaps.sort(key=lambda s: (-s[0], s[1:]))
        used: set[int] = set()
        for _, u, v, b, c in swaps:
            if used & {u, v, b, c}:
                continue
            _swap(around, u, v, b, c)
            used |= {u, v, b, c}
            if sweep >= _SWEEPS:
                break
    return Tree.joined(around, tree.n_observed)


def _others(around: list[list[int]], u: int, v: int) -> list[int]:
    return [w for w in around[u] if w != v]


def _swap(around: list[list[int]], u: int, v: int, b: int, c: int) -> None:
    """Let b, a neighbour of u, and c, a neighbour of v, change places."""
    around[u][around[u].index(b)] = c
    around[v][around[v].index(c)] = b
    around[b][around[b].index(u)] = v
    around[c][around[c].index(v)] = u


def balanced_means(
    around: list[list[int]], distances: Array
) -> tuple[dict[tuple[int, int], int], Array]:
    """Mean distances of all pairs of subtrees, and the row of the subtree at v seen from u."""
    index, weights = balanced_weights(around, len(distances))
    return index, weights @ distances @ weights.T


def balanced_weights(around: list[list[int]], n: int) -> tuple[dict[tuple[int, int], int], Array]:
    """The weights (2 E, n) of the leaves of all subtrees, halved at every node on the way."""
    index: dict[tuple[int, int], int] = {}
    weights = np.zeros((2 * (len(around) - 1), n))

    def enter(v: int, u: int) -> None:
        row = index[v, u] = len(index)
        further = [w for w in around[v] if w != u]
        if v < n:
            weights[row, v] = 1.0 if not further else 0.0
        for w in further:
            weights[row] += weights[index[w, v]] / len(further)

    # From the leaves to one end, and back.
    start = len(around) - 1
    order, above, stack = [], {start: -1}, [start]
    while stack:
        u = stack.pop()
        order.append(u)
        for v in around[u]:
            if v != above[u]:
                above[v] = u
                stack.append(v)
    for v in reversed(order[1:]):
        enter(v, above[v])
    for v in order[1:]:
        enter(above[v], v)
    return index, weights
