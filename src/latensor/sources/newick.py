"""Trees as text in Newick's format, as phylogenetics writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.sources.tree import Tree

_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|\[[^\]]*\]|[(),:;]|[^\s(),:;'\[\]]+)")
_PLAIN = re.compile(r"[^\s(),:;'\[\]]+")


def parse_newick(
    text: str, names: Sequence[str] | None = None, *, keep_root: bool = False
) -> tuple[Tree, list[str]]:
    """The tree of a Newick text, and the names of its observed nodes.

    Nodes with one of the `names` are observed; without names the leaves, and inner nodes whose
    label is no number. A root of two neighbours that was not observed is left out.

    Parameters
    ----------
    text : str, such as "((a:1,b:2):0.5,c:1,d:2);"
    names : of the observed nodes, in the order of the columns of the data
    keep_root : bool, whether to keep a root of two neighbours
    """
    parent, labels, lengths = _parsed(text)
    children = np.bincount([u for u in parent if u >= 0], minlength=len(parent))
    if names is None:
        named = [v for v in range(len(parent)) if children[v] == 0 or _is_name(labels[v])]
        found = [labels[v] for v in named]
        if len(set(found)) < len(found):
            raise InvalidInputError("text names an observed node twice or not at all")
        if all(name.isdecimal() for name in found):
            order = np.argsort([int(name) for name in found], kind="stable")
        else:
            order = np.arange(len(found))
        names = [found[i] for i in order]
    place = {label: v for v, label in enumerate(labels) if label}
    missing = [name for name in names if name not in place]
    strange = [labels[v] for v in np.flatnonzero(children == 0) if labels[v] not in set(names)]
    if missing or strange:
        what = f"lacks {missing[0]!r}" if missing else f"has a leaf {strange[0]!r}"
        raise InvalidInputError(
            f"text {what}: the leaves of a tree must be the {len(names)} observed nodes "
            f"({', '.join(map(repr, list(names)[:4]))}, ...)"
        )
    observed = [place[name] for name in names]
    hidden = [v for v in range(len(parent)) if v not in set(observed)]
    root = parent.index(-1)
    if not keep_root and root in hidden and children[root] <= 2 and len(parent) > 2:
        below = [v for v in range(len(parent)) if parent[v] == root]
        top = next((v for v in below if children[v]), below[0])
        for v in below:
            if v != top:
                parent[v], lengths[v] = top, lengths[v] + lengths[top]
        parent[top], lengths[top] = -1, 0.0
        hidden.remove(root)
    order_ = observed + hidden
    number = {v: i for i, v in enumerate(order_)}
    found_parent = [-1 if parent[v] < 0 else number[parent[v]] for v in order_]
    return Tree.of(found_parent, len(observed), [lengths[v] for v in order_]), list(names)


def _is_name(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return bool(label)
    return False


def _parsed(text: str) -> tuple[list[int], list[str], list[float]]:
    tokens = [t for t in _TOKEN.findall(text) if not t.startswith("[")]
    if _TOKEN.sub("", text).strip() or not tokens or tokens[-1] != ";":
        raise InvalidInputError(
            f"text is no tree in Newick's format: {text[:40]!r} must end in ';'"
        )
    parent, labels, lengths = [-1], [""], [0.0]
    at, reads_length = 0, False
    for token in tokens[:-1]:
        if token in "(,":
            above = at if token == "(" else parent[at]
            if above < 0:
                raise InvalidInputError(f"text has a comma outside of brackets: {text[:40]!r}")
            parent.append(above)
            labels.append("")
            lengths.append(0.0)
            at = len(parent) - 1
        elif token == ")":
            at = parent[at]
            if at < 0:
                raise InvalidInputError(f"text closes more brackets than it opens: {text[:40]!r}")
        elif token == ":":
            reads_length = True
            continue
        elif reads_length:
            try:
                lengths[at] = float(token)
            except ValueError:
                raise InvalidInputError(f"text has a length {token!r}, expected a number") from None
        else:
            labels[at] = token[1:-1].replace("''", "'") if token.startswith("'") else token
        reads_length = False
    if at != 0:
        raise InvalidInputError(f"text opens more brackets than it closes: {text[:40]!r}")
    return parent, labels, lengths


def format_newick(
    tree: Tree,
    names: Sequence[object] | None = None,
    *,
    lengths: bool = True,
    support: bool = False,
    root: str = "hidden",
) -> str:
    """A tree as text.

    Parameters
    ----------
    tree : Tree
    names : of the observed nodes; their numbers by default
    lengths, support : bool, whether to write them
    root : "hidden" (the tree's own, without meaning), "midpoint" of the longest path, or the name
        of an observed node that is put next to the root (an outgroup)
    """
    named = [str(i) for i in range(tree.n_observed)] if names is None else [str(n) for n in names]
    if len(named) != tree.n_observed or len(set(named)) < len(named):
        raise InvalidInputError(
            f"names holds {len(set(named))} distinct names: expected {tree.n_observed}"
        )
    quoted = [n if _PLAIN.fullmatch(n) else "'" + n.replace("'", "''") + "'" for n in named]
    edges: dict[tuple[int, int], tuple[float, float]] = {}
    around = [list(each) for each in tree.neighbours()]
    for v, u in enumerate(tree.parent):
        if u >= 0:
            value = float(tree.length[v]), float(tree.support[v])
            edges[v, int(u)] = edges[int(u), v] = value
    start = tree.root
    if root == "midpoint" and tree.n_observed > 1:
        start = _cut(around, edges, *_midpoint(tree))
    elif root != "hidden":
        if root not in named:
            raise InvalidInputError(
                f"root={root!r} must be 'hidden', 'midpoint' or the name of an observed node"
            )
        leaf = named.index(root)
        start = _cut(around, edges, leaf, around[leaf][0], edges[leaf, around[leaf][0]][0] / 2)

    def ending(v: int, above: int) -> str:
        length, value = edges[v, above]
        text = ""
        if support and v >= tree.n_observed and np.isfinite(value):
            text = f"{value:.3g}"
        return text + (f":{length:.6g}" if lengths else "")

    parts: dict[int, str] = {}
    order, stack, above = [], [start], {start: -1}
    while stack:
        u = stack.pop()
        order.append(u)
        for v in around[u]:
            if v != above[u]:
                above[v] = u
                stack.append(v)
    for u in reversed(order):
        inner = ",".join(parts[v] for v in around[u] if v != above[u])
        text = (f"({inner})" if inner else "") + (quoted[u] if u < tree.n_observed else "")
        parts[u] = text + (ending(u, above[u]) if above[u] >= 0 else "")
    return parts[start] + ";"


def _midpoint(tree: Tree) -> tuple[int, int, float]:
    """An edge (v, u) that holds the middle of the longest path, and its distance from v."""
    distances = tree.distances()
    n = tree.n_observed
    first, last = np.unravel_index(np.argmax(distances[:n, :n]), (n, n))
    half = distances[first, last] / 2
    around = tree.neighbours()
    at, done = int(first), 0.0
    while at != last:
        step = min(around[at], key=lambda v: (distances[v, last], v))
        size = float(distances[at, step])
        if done + size >= half:
            return at, step, float(half - done)
        at, done = step, done + size
    return int(first), around[first][0], 0.0


def _cut(
    around: list[list[int]],
    edges: dict[tuple[int, int], tuple[float, float]],
    v: int,
    u: int,
    distance: float,
) -> int:
    """A new node on the edge (v, u), at a distance from v."""
    length, support = edges[v, u]
    new = len(around)
    around.append([v, u])
    around[v][around[v].index(u)] = new
    around[u][around[u].index(v)] = new
    for node, size in ((v, distance), (u, length - distance)):
        edges[node, new] = edges[new, node] = (size, support)
    return new
