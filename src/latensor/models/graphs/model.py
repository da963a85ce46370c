"""What the edges of a network say about communities: stars, eigenvectors, likelihood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.estimation.model import Answer, Frame, Model
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.graphs.spectral import (
    clustered,
    leading_eigenvectors,
    normalized_rows,
    softened,
    successive_projection,
)
from latensor.models.graphs.star import StarReading, read_star
from latensor.models.graphs.sums import (
    Degrees,
    ExplainedEdges,
    LeastSquares,
    PartProducts,
    Products,
    StarMoments,
)
from latensor.moments.batch import Kind
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
_LEAST = 1e-10


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
        found: Array = (self.block @ sizes + self.block.T @ sizes) / 2
        return found

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
        factors = factors * np.maximum(sizes, _LEAST) / np.maximum(scaled.sum(axis=0), _LEAST)
    return factors / float(factors.max() or 1.0)


@dataclass(frozen=True, eq=False)
class _Ascent:
    """Where a refinement has arrived."""

    state: GraphState
    n_iter: int
    converged: bool
    history: tuple[float, ...]


@dataclass(frozen=True)
class BlockModel(Model[GraphState]):
    """The settings of a block model."""

    n_components: int
    n_nodes: int
    alpha0: float
    degree_corrected: bool
    directed: bool
    start: str
    refine: int | str
    max_iter: int
    tol: float
    kind: ClassVar[Kind] = Kind.GRAPH

    def survey(self, run: Run, streaming: bool) -> Frame:
        degrees = run.fold("degrees", Degrees(self.n_nodes)).seen()["degrees"]
        if not degrees.sum() > 0:
            raise NotIdentifiableError("adjacency has no edges: communities need some")
        return Frame({"degrees": degrees}, n_units=float(self.n_nodes))

    def check_streaming(self) -> None:
        raise InvalidInputError(
            "a network is one sample: memberships belong to its nodes, and more nodes change the "
            "edges of all others. Call fit on the whole network"
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
        degrees = frame["degrees"]
        linked = degrees > 0
        starts: dict[str, Array] = {}
        evidence: dict[str, Any] = {"degrees": degrees, "spectrum": ()}
        evidence["is_small"] = not self.takes_stars(frame)
        evidence["unseen"] = ""
        if self.takes_stars(frame):
            try:
                reading, membership = self._stars(run)
                starts["tensor"] = membership
                evidence["spectrum"] = reading.spectrum
            except NotIdentifiableError as error:
                if self.start == "tensor":
                    raise
                evidence["unseen"] = str(error)
        if self.start != "tensor" and (self.refine != 0 or not starts):
            starts |= self._spectral(run, degrees, "tensor" in starts)
        evidence["starts"] = tuple(starts)
        limit = self.max_iter if isinstance(self.refine, str) else int(self.refine)
        # Small graphs cost nothing; of large ones a few steps show the best start.
        few = min(_TRIAL_STEPS, limit) if self.n_nodes > _SMALL and len(starts) > 1 else limit
        found = []
        for name, membership in starts.items():
            shown = np.where(linked[:, None], membership, 1 / self.n_components)
            state = self._started(run, shown, degrees)
            found.append((name, self._refined(run, state, few)))
        name, reached = max(found, key=lambda each: each[1].history[-1])
        if few < limit and not reached.converged:
            again = self._refined(run, reached.state, limit - few)
            reached = replace(
                again, n_iter=few + again.n_iter, history=reached.history + again.history[1:]
            )
        state = reached.state
        if not linked.all():
            state.membership[~linked] = state.membership[linked].mean(axis=0)
        n_iter, converged, history = reached.n_iter, reached.converged, reached.history
        converged = converged or not isinstance(self.refine, str)
        return Answer(
            state,
            evidence,
            n_iter=n_iter,
            converged=converged,
            start=name,
            history=history,
        )

    def _stars(self, run: Run) -> tuple[StarReading, Array]:
        n, k = self.n_nodes, self.n_components
        rng = run.rng("parts")
        parts = tuple(np.sort(p) for p in np.array_split(rng.permutation(n), 3))
        right: tuple[Any, ...] = tuple(rng.standard_normal((len(p), k + 5)) for p in parts)
        for _ in range(_PART_PASSES):
            found = run.fold("parts", PartProducts(parts, right)).seen()
            right = tuple(np.linalg.qr(found[f"product {m}"])[0] for m in range(3))
        # The leading k directions of A'A Q.
        turned = [
            np.linalg.svd(found[f"product {m}"], full_matrices=False)[0][:, :k] for m in range(3)
        ]
        star = StarMoments(parts, tuple(np.ascontiguousarray(u) for u in turned))
        sums = run.fold("stars", star).seen()
        weight = sums["weight"]
        reading = read_star(
            sums["first"] / weight,
            sums["second"] / weight,
            sums["third"] / weight,
            self.alpha0,
            run.rng("read off"),
        )
        solved = run.fold("memberships", LeastSquares(star, reading.columns, n)).seen()
        return reading, solved["membership"]

    def _spectral(self, run: Run, degrees: Array, beside_stars: bool) -> dict[str, Array]:
        n, k = self.n_nodes, self.n_components
        rng = run.rng("spectral")
        scale = 1 / np.sqrt(degrees + degrees.mean())

        def product(right: Array) -> Array:
            found: Array = run.fold("spectrum", Products(scale, right)).seen()["product"]
            return found

        values, vectors = leading_eigenvectors(product, n, k, rng)
        linked = degrees > 0
        count = min(k, int(linked.sum()))
        labels = np.zeros(n, dtype=np.int64)
        labels[linked] = clustered(vectors[linked], count, rng)
        found = {"spectral": softened(labels, k)}
        if degrees.mean() >= _EDGES_PER_COMMUNITY * k and not beside_stars:
            found["corners"] = successive_projection(values, vectors / scale[:, None], k)
        if n <= _SMALL:
            # Without regularization: a random walk's slowest directions.
            scale = 1 / np.sqrt(np.maximum(degrees, _LEAST))
            scale[~linked] = 0.0
            vectors = leading_eigenvectors(product, n, k, rng, signed=True)[1]
            labels = np.zeros(n, dtype=np.int64)
            labels[linked] = clustered(
                (vectors * scale[:, None])[linked], count, rng, directions=False
            )
            found["random walk"] = softened(labels, k)
        return found

    def _started(self, run: Run, membership: Array, degrees: Array) -> GraphState:
        """Weights and rates that go with memberships."""
        activity = degrees / degrees.mean() if self.degree_corrected else np.ones(len(degrees))
        weights = np.maximum(membership, _LEAST) * activity[:, None]
        block = self._block(run, membership, weights)
        return GraphState(membership, weights, block, self.alpha0 * membership.mean(axis=0))

    def _refined(self, run: Run, state: GraphState, limit: int) -> _Ascent:
        """Memberships that maximize the posterior of the edges, as Poisson counts.

        With N_ik the edges of i that community k explains and e_k those expected of a pure member,
        W_ik = max(N_ik - (1 - alpha_k), 0) / e_k.
        """
        history: list[float] = []
        converged, moved = False, np.inf
        for step in range(limit + 1):
            membership, weights, block = state.membership, state.weights, state.block
            edges = ExplainedEdges(weights, block, np.ascontiguousarray(weights @ block.T))
            found = run.fold("edges", edges).seen()
            history.append(self._value(found["logs"], weights, block))
            if step == limit:
                break
            if moved < self.tol:
                converged = True
                break
            sizes = weights.sum(axis=0)
            alpha = self.alpha0 * membership.mean(axis=0)
            expected = block @ sizes + (block.T @ sizes if self.directed else 0.0)
            counts = found["counts"]
            kept = np.maximum(counts - np.maximum(1 - alpha, 0.0), 0.0)
            # Nodes with hardly an edge keep what these say, without a prior.
            few = ~(kept.sum(axis=1) > 0)
            kept[few] = counts[few]
            raw = kept / np.maximum(expected, _LEAST)
            if self.degree_corrected:
                raw = raw * _common_scale(raw)
            before, membership = membership, normalized_rows(raw)
            moved = float(np.abs(membership - before).sum(axis=1).mean()) / 2
            weights = raw if self.degree_corrected else membership
            weights = np.maximum(weights / weights.sum() * len(weights), _LEAST)
            sizes = weights.sum(axis=0)
            block = found["block"] / np.maximum(np.outer(sizes, sizes), _LEAST)
            block = np.maximum(block, _LEAST * max(float(block.max()), _LEAST))
            state = GraphState(membership, weights, block, alpha)
        return _Ascent(state, len(history) - 1, converged, tuple(history))

    def _value(self, logs: float, weights: Array, block: Array) -> float:
        """The log-likelihood per pair of nodes."""
        sizes = weights.sum(axis=0)
        total = logs - float(sizes @ block @ sizes) + float(((weights @ block) * weights).sum())
        n = len(weights)
        return total / max(n * (n - 1), 1)

    def _block(self, run: Run, membership: Array, weights: Array) -> Array:
        """Rates between communities by least squares, none of them zero."""
        ones = np.ones(len(membership))
        reached = run.fold("block", Products(ones, weights)).seen()["product"]
        gram = weights.T @ weights
        cross = weights.T @ reached / (2 if self.directed else 1)
        inverse = np.linalg.pinv(gram)
        found = inverse @ cross @ inverse
        found = (found + found.T) / 2
        # A start: rates far below the mean would never grow.
        mean = cross.sum() / max(float(weights.sum()) ** 2, _LEAST)
        return np.maximum(found, 0.05 * mean)

    def order(self, frame: Frame, state: GraphState) -> Array:
        sizes = state.membership.sum(axis=0)
        return np.argsort(-np.round(sizes / sizes.max(), 9), kind="stable")

    def permuted(self, state: GraphState, order: Array) -> GraphState:
        return state.permuted(order)
