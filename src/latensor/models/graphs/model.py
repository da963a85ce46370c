"""What the edges of a network say about communities: stars, eigenvectors, likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.estimation.model import Answer, Frame, Model
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.graphs.nodes import Nodes, RowCounts
from latensor.models.graphs.spectral import (
    clustered,
    leading_eigenvectors,
    normalized_rows,
    softened,
    successive_projection,
)
from latensor.models.graphs.star import StarReading, read_star
from latensor.models.graphs.sums import Census, ExplainedEdges, LeastSquares, PartSums, StarMoments
from latensor.moments.batch import Batch, Kind
from latensor.value_files import storable

# Below 100 nodes of a part per community, or 4 edges of a node per community, third moments are
# noise; with fewer edges, so are corners of eigenvectors.
_NODES_PER_COMMUNITY = 100
_EDGES_PER_COMMUNITY = 4
# Steps towards the singular vectors of the parts.
_PART_PASSES = 6
# Nodes up to which eigenvectors without regularization are tried too.
_SMALL = 1500
# Steps by which starts of larger ones are compared.
_TRIAL_STEPS = 6
# Steps towards a common scale of the communities, in every step of the refinement.
_SCALE_STEPS = 3
# The smallest weight and rate: no edge is impossible.
LEAST = 1e-10


@storable
@dataclass(frozen=True, eq=False)
class GraphState:
    """Communities of all nodes.

    Attributes
    ----------
    membership : (n, k), rows sum to one
    weights : (n, k) W: memberships times the activity of the node
    block : (k, k) B: the rate of edges from i to j is W_i' B W_j
    alpha : (k,) of the Dirichlet distribution of memberships
    """

    membership: Any
    weights: Any
    block: Any
    alpha: Any

    def expected_edges(self) -> Array:
        """(k,) the edges that a pure member of average activity has."""
        sizes = self.weights.sum(axis=0)
        return np.asarray((self.block @ sizes + self.block.T @ sizes) / 2)

    def permuted(self, order: Array) -> GraphState:
        """With the communities in another order."""
        return GraphState(
            self.membership[:, order],
            self.weights[:, order],
            self.block[np.ix_(order, order)],
            self.alpha[order],
        )


def _common_scale(weights: Array) -> Array:
    """(k,) factors after which the members of every community are 1 active on average.

    Weights of a community times c, and its rates over c, are the same model; memberships are not.
    """
    factors = np.ones(weights.shape[1])
    for _ in range(_SCALE_STEPS):
        scaled = weights * factors
        sizes = normalized_rows(scaled)[scaled.sum(axis=1) > 0].sum(axis=0)
        factors = factors * np.maximum(sizes, LEAST) / np.maximum(scaled.sum(axis=0), LEAST)
    return factors / float(factors.max() or 1.0)


def _by_part(parts: Sequence[Array], rows: Array, turned: Callable[[Array], Array]) -> Array:
    """What a function makes of the rows (n_m, q) of every part, in the places of these rows."""
    found = [turned(rows[chosen]) for chosen in parts]
    table = np.empty((len(rows), found[0].shape[1]))
    for chosen, block in zip(parts, found, strict=True):
        table[chosen] = block
    return table


def _product(run: Run, name: str, nodes: Nodes, right: Array) -> Array:
    """The adjacency, of either direction, times R (n, q)."""
    part = np.zeros(nodes.n_nodes, dtype=np.int64)
    return run.fold(name, PartSums(nodes, part, 1, right)).table()[:, 0]


@storable
@dataclass(frozen=True, eq=False)
class GraphAscent:
    """Where a refinement has arrived.

    Attributes
    ----------
    state : GraphState
    history : the log-likelihood per pair of nodes before every step
    moved : float, mean change of a node's memberships in the last step
    ended : bool
    converged : bool
    """

    state: GraphState
    history: tuple[float, ...] = ()
    moved: float = np.inf
    ended: bool = False
    converged: bool = False

    @property
    def n_iter(self) -> int:
        """Steps that were taken."""
        return len(self.history) - 1


@dataclass(frozen=True)
class BlockModel(Model[GraphState]):
    """The settings of a block model."""

    n_components: int
    n_nodes: int
    alpha0: float
    degree_corrected: bool
    directed: bool | str
    start: str
    refine: int | str
    max_iter: int
    tol: float
    kind: ClassVar[Kind] = Kind.GRAPH

    def survey(self, run: Run, streaming: bool) -> Frame:
        n = self.n_nodes
        first = run.fold("rows", RowCounts()).first_nodes()
        self._check_square(run.n_units)
        if self.n_components > n:
            raise InvalidInputError(
                f"n_components={self.n_components} exceeds the n_samples={n} nodes: lower "
                "n_components"
            )
        marks = run.rng("symmetry").standard_normal((2, 2, n))
        census = run.fold("degrees", Census(Nodes(n, first, True), marks))
        if self.directed is False and not census.is_symmetric:
            raise InvalidInputError(
                "X is not symmetric, but directed=False: without a direction an edge stands in the "
                "rows of both of its ends; give rows of the larger of A and A', or directed=True"
            )
        directed = not census.is_symmetric if self.directed == "auto" else bool(self.directed)
        degrees = census.degrees(directed)
        if not degrees.sum() > 0:
            raise NotIdentifiableError("adjacency has no edges: communities need some")
        values = {
            "nodes": Nodes(n, first, directed),
            "degrees": degrees,
            "pieces": census.seen()["pieces"].count,
        }
        return Frame(values, n_units=float(n))

    def _check_square(self, n_rows: int) -> None:
        if n_rows == self.n_nodes:
            return
        if self.n_nodes in (2, 3):
            raise InvalidInputError(
                f"X has {n_rows} rows of {self.n_nodes} columns in its partitions, as a list of "
                "edges has: the edges of a node must stand together, as a row of the adjacency "
                "with one column per node; group the edges by their first node"
            )
        raise InvalidInputError(
            f"X has {n_rows} rows in its partitions, but {self.n_nodes} columns: expected rows of "
            "a square adjacency, one row and one column for each node"
        )

    def takes_stars(self, frame: Frame) -> bool:
        """Whether the graph is large and dense enough for third moments."""
        if self.start != "auto":
            return self.start == "tensor"
        n, k = self.n_nodes, self.n_components
        mean = float(frame["degrees"].mean())
        enough = n / 3 >= _NODES_PER_COMMUNITY * k and mean >= _EDGES_PER_COMMUNITY * k
        return enough and k > 1

    def at_once(self, run: Run, frame: Frame) -> Answer[GraphState]:
        nodes, degrees = frame["nodes"], frame["degrees"]
        linked = degrees > 0
        starts: dict[str, Array] = {}
        stars = self.takes_stars(frame)
        evidence: dict[str, Any] = {"degrees": degrees, "spectrum": (), "unseen": ""}
        evidence["is_small"] = not stars
        if stars:
            try:
                reading, membership = self._stars(run, nodes)
                starts["tensor"] = membership
                evidence["spectrum"] = reading.spectrum
            except NotIdentifiableError as error:
                if self.start == "tensor":
                    raise
                evidence["unseen"] = str(error)
        if self.start != "tensor" and (self.refine != 0 or not starts):
            starts |= self._spectral(run, nodes, degrees, "tensor" in starts)
        evidence["starts"] = tuple(starts)
        limit = self.max_iter if isinstance(self.refine, str) else int(self.refine)
        # Small graphs cost nothing; of large ones a few steps show the best start.
        few = min(_TRIAL_STEPS, limit) if self.n_nodes > _SMALL and len(starts) > 1 else limit
        found = []
        for name, membership in starts.items():
            shown = np.where(linked[:, None], membership, 1 / self.n_components)
            state = self._started(run, nodes, shown, degrees)
            found.append((name, self._refined(run, nodes, f"from {name}", state, few)))
        name, reached = max(found, key=lambda each: each[1].history[-1])
        if few < limit and not reached.converged:
            again = self._refined(run, nodes, "best", reached.state, limit - few)
            reached = replace(again, history=reached.history + again.history[1:])
        state = reached.state
        if not linked.all():
            mean = state.membership[linked].mean(axis=0)
            shown = np.where(linked[:, None], state.membership, mean)
            state = replace(state, membership=shown)
        converged = reached.converged or not isinstance(self.refine, str)
        return Answer(
            state,
            evidence,
            n_iter=reached.n_iter,
            converged=converged,
            start=name,
            history=reached.history,
        )

    def _stars(self, run: Run, nodes: Nodes) -> tuple[StarReading, Array]:
        n, k = self.n_nodes, self.n_components
        rng = run.rng("parts")
        parts = [np.sort(p) for p in np.array_split(rng.permutation(n), 3)]
        part, right = np.empty(n, dtype=np.int64), np.empty((n, k + 5))
        for m, chosen in enumerate(parts):
            part[chosen], right[chosen] = m, rng.standard_normal((len(chosen), k + 5))

        def views(right: Array) -> Array:
            return run.fold("views", PartSums(nodes, part, 3, right)).table()

        loop = run.loop("parts")
        begin, product = loop.state or (0, right)
        for number in range(begin, _PART_PASSES):
            if number:
                right = _by_part(parts, product, lambda block: np.linalg.qr(block)[0])
            # A_m' A_m R_m of every part m.
            every = _product(run, "parts", nodes, views(right).reshape(n, -1))
            product = every.reshape(n, 3, -1)[np.arange(n), part]
            loop.commit((number + 1, product))
        # The leading k directions of A'A Q.
        turned = _by_part(
            parts, product, lambda block: np.linalg.svd(block, full_matrices=False)[0][:, :k]
        )
        stars = views(turned).reshape(n, -1)
        at_home = run.on(Batch((stars,), np.ones(n), np.arange(n, dtype=np.uint64)))
        sums = at_home.fold("stars", StarMoments()).seen()
        weight = sums["weight"]
        reading = read_star(
            sums["first"] / weight,
            sums["second"] / weight,
            sums["third"] / weight,
            self.alpha0,
            run.rng("read off"),
        )
        solved = at_home.fold("memberships", LeastSquares(np.vstack(reading.columns))).seen()
        return reading, solved["membership"].table(n)

    def _spectral(
        self, run: Run, nodes: Nodes, degrees: Array, beside_stars: bool
    ) -> dict[str, Array]:
        n, k = self.n_nodes, self.n_components
        rng = run.rng("spectral")
        scale = 1 / np.sqrt(degrees + degrees.mean())

        def product(right: Array) -> Array:
            return scale[:, None] * _product(run, "spectrum", nodes, scale[:, None] * right)

        values, vectors = leading_eigenvectors(product, n, k, rng, run.loop("spectrum"))
        linked = degrees > 0
        count = min(k, int(linked.sum()))
        labels = np.zeros(n, dtype=np.int64)
        labels[linked] = clustered(vectors[linked], count, rng)
        found = {"spectral": softened(labels, k)}
        if degrees.mean() >= _EDGES_PER_COMMUNITY * k and not beside_stars:
            found["corners"] = successive_projection(values, vectors / scale[:, None], k)
        if n <= _SMALL:
            # Without regularization: a random walk's slowest directions.
            scale = 1 / np.sqrt(np.maximum(degrees, LEAST))
            scale[~linked] = 0.0
            loop = run.loop("random walk")
            vectors = leading_eigenvectors(product, n, k, rng, loop, signed=True)[1]
            labels = np.zeros(n, dtype=np.int64)
            labels[linked] = clustered(
                (vectors * scale[:, None])[linked], count, rng, directions=False
            )
            found["random walk"] = softened(labels, k)
        return found

    def _started(self, run: Run, nodes: Nodes, membership: Array, degrees: Array) -> GraphState:
        """Weights and rates that go with memberships."""
        activity = degrees / degrees.mean() if self.degree_corrected else np.ones(len(degrees))
        weights = np.maximum(membership, LEAST) * activity[:, None]
        block = self._block(run, nodes, weights)
        return GraphState(membership, weights, block, self.alpha0 * membership.mean(axis=0))

    def _refined(
        self, run: Run, nodes: Nodes, name: str, state: GraphState, limit: int
    ) -> GraphAscent:
        """Memberships that maximize the posterior of the edges, as Poisson counts.

        With N_ik the edges of i that community k explains and e_k those expected of a pure member,
        W_ik = max(N_ik - (1 - alpha_k), 0) / e_k.
        """
        loop = run.loop(name)
        now: GraphAscent = loop.state or GraphAscent(state)
        while not now.ended:
            edges = ExplainedEdges(nodes, now.state.weights, now.state.block)
            now = self._stepped(now, run.fold("edges", edges), limit)
            loop.commit(now)
        return now

    def _stepped(self, now: GraphAscent, edges: ExplainedEdges, limit: int) -> GraphAscent:
        """The likelihood where the refinement is, and one step more where it has not ended."""
        membership, weights, block = now.state.membership, now.state.weights, now.state.block
        found = edges.seen()
        history = (*now.history, self._value(found["logs"], weights, block))
        if len(history) > limit or now.moved < self.tol:
            return replace(now, history=history, ended=True, converged=len(history) <= limit)
        sizes = weights.sum(axis=0)
        alpha = self.alpha0 * membership.mean(axis=0)
        expected = block @ sizes + (block.T @ sizes if edges.nodes.directed else 0.0)
        counts = edges.counts()
        kept = np.maximum(counts - np.maximum(1 - alpha, 0.0), 0.0)
        # Nodes with hardly an edge keep what these say, without a prior.
        few = ~(kept.sum(axis=1) > 0)
        kept[few] = counts[few]
        raw = kept / np.maximum(expected, LEAST)
        if self.degree_corrected:
            raw = raw * _common_scale(raw)
        before, membership = membership, normalized_rows(raw)
        moved = float(np.abs(membership - before).sum(axis=1).mean()) / 2
        weights = raw if self.degree_corrected else membership
        weights = np.maximum(weights / weights.sum() * len(weights), LEAST)
        sizes = weights.sum(axis=0)
        block = found["block"] / np.maximum(np.outer(sizes, sizes), LEAST)
        block = np.maximum(block, LEAST * max(float(block.max()), LEAST))
        return GraphAscent(GraphState(membership, weights, block, alpha), history, moved)

    def _value(self, logs: float, weights: Array, block: Array) -> float:
        """The log-likelihood per pair of nodes."""
        sizes = weights.sum(axis=0)
        total = logs - float(sizes @ block @ sizes) + float(((weights @ block) * weights).sum())
        n = len(weights)
        return total / max(n * (n - 1), 1)

    def _block(self, run: Run, nodes: Nodes, weights: Array) -> Array:
        """Rates between communities by least squares, none of them zero."""
        reached = _product(run, "block", nodes, weights)
        gram = weights.T @ weights
        cross = weights.T @ reached / (2 if nodes.directed else 1)
        inverse = np.linalg.pinv(gram)
        found = inverse @ cross @ inverse
        found = (found + found.T) / 2
        # A start: rates far below the mean would never grow.
        mean = cross.sum() / max(float(weights.sum()) ** 2, LEAST)
        return np.maximum(found, 0.05 * mean)

    def order(self, frame: Frame, state: GraphState) -> Array:
        sizes = state.membership.sum(axis=0)
        return np.argsort(-np.round(sizes / sizes.max(), 9), kind="stable")
