"""Numba kernels of latent trees: tables of three leaves, likelihoods and expected counts of sites.

Plain loops over sites; the checks are done by the callers. Nodes come in preorder arrays; symbol
-1 was not observed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def add_triples(codes: Any, weights: Any, leaves: Any, n_symbols: int, counts: Any) -> None:
    """Add sites to the joint tables (h, m d, m d, m d) of three groups of m leaves each.

    `leaves` (h, 3, m) holds the columns of the groups, -1 where a group has fewer.
    """
    n_sites = codes.shape[0]
    n_tables, _, m = leaves.shape
    for h in range(n_tables):
        for s in range(n_sites):
            for a in range(m):
                i = leaves[h, 0, a]
                if i < 0 or codes[s, i] < 0:
                    continue
                x = a * n_symbols + codes[s, i]
                for b in range(m):
                    j = leaves[h, 1, b]
                    if j < 0 or codes[s, j] < 0:
                        continue
                    y = b * n_symbols + codes[s, j]
                    for c in range(m):
                        l = leaves[h, 2, c]  # noqa: E741
                        if l < 0 or codes[s, l] < 0:
                            continue
                        counts[h, x, y, c * n_symbols + codes[s, l]] += weights[s]


@compiled()
def expect_sites(
    codes: Any,
    weights: Any,
    order: Any,
    parent: Any,
    first_child: Any,
    children: Any,
    n_observed: int,
    n_states: int,
    startprob: Any,
    tables: Any,
    counts: Any,
    starts: Any,
    logs: Any,
    wants_down: bool,
    wants_posterior: bool,
    posterior: Any,
) -> None:
    """Log-likelihoods (S,) of sites, and their expected counts or posteriors where wanted.

    Up: b_v(j) = [x_v = j] prod_c m_c(j), m_v(i) = sum_j M_v(i, j) b_v(j), each divided by its sum.
    Down: o_v(i) = in_u(i) [x_u = i] prod_{siblings} m(i). Counts o_v(i) M_v(i, j) b_v(j) / z.

    Parameters
    ----------
    codes, weights : (S, n) symbols and (S,)
    order : (N,) nodes, each after its parent; parent : (N,)
    first_child, children : the children of v are children[first_child[v]:first_child[v + 1]]
    startprob : (width,) of the root's state
    tables : (N, width, width), row i of node v: its states or symbols given state i of its parent
    counts : (N, width, width), starts : (width,), logs : (S,), posterior : (S, N, width): written
    """
    n_nodes = order.shape[0]
    width = tables.shape[1]
    below = np.empty((n_nodes, width))
    message = np.empty((n_nodes, width))
    above = np.empty((n_nodes, width))
    outside = np.empty(width)
    sizes = np.empty(n_nodes, dtype=np.int64)
    for v in range(n_nodes):
        sizes[v] = width if v < n_observed else n_states
    for s in range(codes.shape[0]):
        total = 0.0
        product = 1.0
        for place in range(n_nodes - 1, -1, -1):
            v = order[place]
            x = codes[s, v] if v < n_observed else -1
            size = sizes[v]
            for j in range(size):
                below[v, j] = 1.0 if x < 0 or x == j else 0.0
            for c in range(first_child[v], first_child[v + 1]):
                child = children[c]
                for j in range(size):
                    below[v, j] *= message[child, j]
            u = parent[v]
            if u < 0:
                continue
            norm = 0.0
            for i in range(sizes[u]):
                value = 0.0
                if x >= 0:
                    value = tables[v, i, x] * below[v, x]
                else:
                    for j in range(size):
                        value += tables[v, i, j] * below[v, j]
                message[v, i] = value
                norm += value
            if norm > 0.0:
                for i in range(sizes[u]):
                    message[v, i] /= norm
            product *= norm
            if product < 1e-200:
                total += np.log(product)
                product = 1.0
        root = order[0]
        norm = 0.0
        for j in range(sizes[root]):
            above[root, j] = startprob[j]
            norm += startprob[j] * below[root, j]
        logs[s] = total + np.log(product) + np.log(norm)
        if not norm > 0.0:
            continue
        if not wants_down:
            continue
        for j in range(sizes[root]):
            starts[j] += weights[s] * startprob[j] * below[root, j] / norm
            if wants_posterior:
                posterior[s, root, j] = startprob[j] * below[root, j] / norm
        for place in range(1, n_nodes):
            v = order[place]
            u = parent[v]
            x = codes[s, u] if u < n_observed else -1
            for i in range(sizes[u]):
                outside[i] = above[u, i] if x < 0 or x == i else 0.0
            for c in range(first_child[u], first_child[u + 1]):
                child = children[c]
                if child != v:
                    for i in range(sizes[u]):
                        outside[i] *= message[child, i]
            y = codes[s, v] if v < n_observed else -1
            z = 0.0
            for i in range(sizes[u]):
                z += outside[i] * message[v, i]
            if not z > 0.0:
                continue
            norm = 0.0
            if y >= 0:
                for i in range(sizes[u]):
                    flow = outside[i] * tables[v, i, y]
                    outside[i] = flow
                    norm += flow
                for i in range(sizes[u]):
                    counts[v, i, y] += weights[s] * outside[i] / norm
                for j in range(sizes[v]):
                    above[v, j] = 1.0 if j == y else 0.0
                    if wants_posterior:
                        posterior[s, v, j] = above[v, j]
                # What is above an observed node only scales what is below.
                above[v, y] = 1.0
                continue
            for j in range(sizes[v]):
                above[v, j] = 0.0
            for i in range(sizes[u]):
                for j in range(sizes[v]):
                    above[v, j] += outside[i] * tables[v, i, j]
            for j in range(sizes[v]):
                norm += above[v, j] * below[v, j]
            inverse = 1.0 / norm
            scale = weights[s] * inverse
            for i in range(sizes[u]):
                for j in range(sizes[v]):
                    counts[v, i, j] += scale * outside[i] * tables[v, i, j] * below[v, j]
            for j in range(sizes[v]):
                above[v, j] *= inverse
                if wants_posterior:
                    posterior[s, v, j] = above[v, j] * below[v, j]
