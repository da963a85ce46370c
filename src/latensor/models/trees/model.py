"""What tables and likelihood of the leaves say about a latent tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.estimation.model import Answer, Frame, Model, Search, Start
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.trees.affinity import (
    Affinity,
    correlation_affinity,
    fitted_lengths,
    leaf_signs,
    logdet_affinity,
    refuse_constant,
)
from latensor.models.trees.collapse import collapse_edges
from latensor.models.trees.family import TreeFamily, TreeState, normalized
from latensor.models.trees.gaussian import GaussianTreeFamily, GaussianTreeState, misfit
from latensor.models.trees.gaussian_search import interchange_by_correlations
from latensor.models.trees.likelihood_moves import interchange_by_likelihood
from latensor.models.trees.rate_search import interchange_under_rates
from latensor.models.trees.rates import common_rates, shape_of
from latensor.models.trees.read_off import (
    lengths_state,
    node_marginals,
    read_nodes,
    views_of,
    views_state,
)
from latensor.models.trees.structure import (
    find_topology,
    group_count,
    measured_support,
    resample_counts,
)
from latensor.models.trees.sums import (
    LeafMoments,
    PairProbabilities,
    PairTables,
    TripleTables,
)
from latensor.moments.batch import Batch
from latensor.moments.sums import Folded, Grouped, Joint
from latensor.refinement.em import Refinement, best_start, em
from latensor.refinement.family import Statistics
from latensor.sources.tree import Tree

# Pseudo-counts per row that are compared on held-out sites, and the one where they are not.
_SHRINKAGES = (10.0, 30.0, 100.0, 300.0)
SHRINKAGE = 30.0
# Steps of EM by which starts and pseudo-counts are compared.
_TRIAL_STEPS = 8
# A third moment in noise says nothing: its weakest view in units of its standard error.
_READABLE = 3.0
# Starts beside the read-off where hidden states have no names in common with symbols.
_RANDOM_STARTS = 2


@dataclass(frozen=True)
class CategoricalTreeModel(Model[TreeState]):
    """The settings of a tree of symbols."""

    n_states: int
    n_symbols: int
    topology: str
    interchange: str
    shrinkage: float | str
    support: str | None
    collapse: float | None
    names: tuple[str, ...]
    row_limit: int
    pilot_size: ClassVar[int] = 2_000
    first_steps: ClassVar[int] = 0

    def affinity(self, pairs: Any, like: Affinity | None = None) -> Affinity:
        """Log-determinants of all pairs, and distances under common rates where those hold.

        For a resample `like` is the affinity of all sites, whose rates are taken.
        """
        tables = joined(pairs).finalize()
        if like is not None and like.rates is not None:
            # A tree is built again from determinants, an edge is judged by distances alone.
            again = self.support == "bootstrap"
            known = logdet_affinity(tables, self.n_states) if again else like
            resampled: Affinity = like.rates.affinity(known, tables)
            return resampled
        found = logdet_affinity(tables, self.n_states, self.names)
        if like is not None or self.n_states < self.n_symbols:
            return found
        rates = common_rates(tables, found)
        return found if rates is None else rates.affinity(found, tables)

    def survey(self, run: Run, streaming: bool) -> Frame:
        _check_leaves(len(self.names))
        pairs, tree, _ = surveyed(self, run, PairTables(self.n_symbols), streaming)
        views = views_of(tree, tree.distances(), self.n_symbols)
        return _frame(pairs, {"tree": tree, "views": views})

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {
            "pairs": grouped_as(frame, PairTables(self.n_symbols)),
            "triples": TripleTables(frame["views"], self.n_symbols),
        }

    def read_off(self, frame: Frame, moments: Joint, rng: np.random.Generator) -> Answer[TreeState]:
        affinity = self.affinity(moments["pairs"])
        return self._read(frame, moments, affinity, tree_of(self, frame, moments, affinity)[0])

    def read_near(
        self, frame: Frame, moments: Joint, rng: np.random.Generator, state: TreeState
    ) -> Answer[TreeState]:
        return self._read(frame, moments, self.affinity(moments["pairs"]), state.tree)

    def _read(
        self, frame: Frame, moments: Joint, affinity: Affinity, tree: Tree
    ) -> Answer[TreeState]:
        pairs = joined(moments["pairs"]).finalize()
        by_lengths = lengths_state(tree, pairs.marginals, self.n_states, shape_of(affinity))
        by_views, weakest = None, 0.0
        if set(tree.splits()) == set(frame["tree"].splits()) and len(tree) == len(frame["tree"]):
            triples = moments["triples"].finalize()
            readings = read_nodes(tree, pairs, triples, frame["views"], self.n_states)
            if readings and all(r is not None for r in readings):
                weakest = min(r.condition if r.gap > 0 else 0.0 for r in readings if r is not None)
                by_views = views_state(tree, readings, tree.distances(), by_lengths)
        starts = {"lengths": by_lengths}
        if by_views is not None:
            starts["views"] = by_views
        sure = by_views is not None and weakest * np.sqrt(pairs.weight) > _READABLE
        evidence = {
            "starts": starts,
            "affinity": affinity,
            "marginals": pairs.marginals,
            "n_samples": pairs.weight,
            "condition": weakest,
            "common_names": self.n_states == self.n_symbols and names_agree(pairs, affinity),
        }
        chosen = by_views if sure and by_views is not None else by_lengths
        name = "views" if sure else "lengths"
        return Answer(chosen, evidence, doubtful=True, start=name)

    def family(self, frame: Frame) -> TreeFamily:
        return TreeFamily(self.n_symbols)

    def sample_size(self, frame: Frame) -> int:
        return self.row_limit

    def search(self, frame: Frame, search_: Search[TreeState]) -> Start[TreeState]:
        starts, n_moves = self._likelier_starts(search_.evidence, search_.sample, search_.rng)
        centre, common = starts["lengths"], search_.evidence["common_names"]
        if common:
            shrinkage = self._shrinkage(search_, centre)
            candidates = {n: shrunk(state, centre, shrinkage) for n, state in starts.items()}
        else:
            # Lengths say nothing about states without names: other starts stand beside the views.
            shrinkage = 1.0 if isinstance(self.shrinkage, str) else float(self.shrinkage)
            tried = {n: state for n, state in starts.items() if n != "lengths"}
            for number in range(_RANDOM_STARTS):
                tried[f"random {number}"] = perturbed(centre, search_.rng)
            candidates = {n: shrunk(s, _marginals(s), shrinkage) for n, s in tried.items()}
            first = next(iter(candidates.values())).prior
            candidates = {n: replace(s, prior=first) for n, s in candidates.items()}
        names, evidence = list(candidates), {"shrinkage": shrinkage}
        by_likelihood = self.interchange == "likelihood" and "(" not in self.topology
        if not search_.to_convergence or (len(names) == 1 and not by_likelihood):
            return Start(candidates[names[0]], names[0], n_moves, evidence)
        best, em_fit = best_start(
            search_.fold, search_.family, list(candidates.values()), max_iter=_TRIAL_STEPS
        )
        state = em_fit.state
        if by_likelihood:
            state, more = interchange_by_likelihood(
                state,
                search_.evidence["affinity"],
                search_.fold,
                TreeFamily(self.n_symbols),
                search_.sample,
                search_.rng if self.support is not None else None,
            )
            n_moves += more
        return Start(state, names[best], n_moves, evidence)

    def _likelier_starts(
        self, evidence: Mapping[str, Any], sample: Batch, rng: np.random.Generator
    ) -> tuple[Mapping[str, TreeState], int]:
        """States to start from, on a tree after interchanges under the rate matrix of all pairs.

        Only where the sample holds all sites: distances of more would know better.
        """
        starts: Mapping[str, TreeState] = evidence["starts"]
        affinity, tree = evidence["affinity"], starts["lengths"].tree
        free = self.topology == "auto" and self.interchange != "distance" and self.collapse is None
        whole = sample.weight >= evidence["n_samples"] * (1 - 1e-9)
        if not (free and whole) or affinity.rates is None:
            return starts, 0
        tree, n_moves = interchange_under_rates(
            tree,
            sample.rows,
            sample.weights,
            affinity.rates.matrix,
            rng if np.isfinite(tree.support).any() else None,
        )
        if not n_moves:
            return starts, 0
        # Third moments were of the groups around other nodes: lengths alone are known of all.
        tree = replace(tree, length=fitted_lengths(tree, affinity))
        shape = shape_of(affinity)
        return {
            "lengths": lengths_state(tree, evidence["marginals"], self.n_states, shape)
        }, n_moves

    def _shrinkage(self, search_: Search[TreeState], centre: TreeState) -> float:
        """The pseudo-count that predicts held-out sites best."""
        if not isinstance(self.shrinkage, str):
            return float(self.shrinkage)
        units = search_.sample
        half = np.arange(len(units)) % 2 == 0
        if not search_.to_convergence or half.sum() < 10:
            return SHRINKAGE
        learn, test = (search_.folds(units.take(np.flatnonzero(h))) for h in (half, ~half))
        scores = []
        for value in _SHRINKAGES:
            em_fit = em(
                learn,
                search_.family,
                shrunk(centre, centre, value),
                max_iter=_TRIAL_STEPS,
                prepared=True,
            )
            scores.append(test(Statistics(search_.family, em_fit.state, True)).value)
        return float(_SHRINKAGES[int(np.argmax(scores))])

    def corrected(
        self, run: Run, frame: Frame, sums: Joint, answer: Answer[TreeState]
    ) -> Answer[TreeState] | None:
        """EM on the sample at hand, where all tables give another tree than the pilot's."""
        at, units = sums["statistics"], sums["sample"].units
        centre = self._likelier_starts(answer.evidence, units, run.rng("support"))[0]["lengths"]
        if set(centre.tree.splits()) == set(at.state.tree.splits()):
            return None
        family = at.family
        fold = run.prepared(family, units)
        value = SHRINKAGE if isinstance(self.shrinkage, str) else float(self.shrinkage)
        refinement = Refinement(fold, family, fold, True, 200, 1e-6)
        refined = refinement.converge(shrunk(centre, centre, value))
        return replace(
            answer,
            state=refined.state,
            statistics=replace(refined.statistics, prepared=False),
            n_iter=refined.n_iter,
            converged=refined.converged,
            start="stream",
        )

    def order(self, frame: Frame, state: TreeState) -> Array:
        return np.arange(len(state.tree))

    def permuted(self, state: TreeState, order: Array) -> TreeState:
        return state

    def aligned(
        self, frame: Frame, state: TreeState, center: Mapping[str, Array], match_by: str
    ) -> TreeState:
        return state

    def parameters(self, frame: Frame, state: TreeState) -> dict[str, Array]:
        size = len(state.startprob) if state.tree.root < state.tree.n_observed else state.n_states
        n, k = state.tree.n_observed, state.n_states
        return {
            "startprob": state.startprob[:size],
            "edgeprob": state.tables[n:, :k, :k] if k < self.n_symbols else state.tables[n:],
            "leafprob": state.tables[:n, :k] if k < self.n_symbols else state.tables[:n],
        }


@dataclass(frozen=True)
class GaussianTreeModel(Model[GaussianTreeState]):
    """The settings of a tree of measurements: all that EM needs are second moments."""

    topology: str
    interchange: str
    support: str | None
    collapse: float | None
    names: tuple[str, ...]
    refine: int | str
    max_iter: int
    tol: float
    pilot_size: ClassVar[int] = 2_000

    def affinity(self, moments: Any, like: Affinity | None = None) -> Affinity:
        """Absolute correlations."""
        _, covariance, weight = joined(moments).finalize()
        return correlation_affinity(correlations_of(covariance, self.names), weight)

    def survey(self, run: Run, streaming: bool) -> Frame:
        _check_leaves(len(self.names))
        head = run.source.head()
        with np.errstate(over="ignore", invalid="ignore"):
            centre = head.rows.astype(np.float64).mean(axis=0)
        start = LeafMoments(centre)
        pairs, tree, n_moves = surveyed(self, run, start, streaming)
        return _frame(pairs, {"tree": tree, "centre": centre, "n_moves": n_moves})

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {"pairs": grouped_as(frame, LeafMoments(frame["centre"]))}

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[GaussianTreeState]:
        affinity = self.affinity(moments["pairs"])
        tree, n_moves = tree_of(self, frame, moments, affinity)
        return replace(self._read(moments, affinity, tree), n_moves=n_moves)

    def read_near(
        self, frame: Frame, moments: Joint, rng: np.random.Generator, state: GaussianTreeState
    ) -> Answer[GaussianTreeState]:
        affinity = self.affinity(moments["pairs"])
        return self._read(moments, affinity, state.tree, state)

    def _read(
        self,
        moments: Joint,
        affinity: Affinity,
        tree: Tree,
        near: GaussianTreeState | None = None,
    ) -> Answer[GaussianTreeState]:
        mean, covariance, weight = joined(moments["pairs"]).finalize()
        observed = correlations_of(covariance)
        state = self._started(tree, affinity, mean, covariance)
        if near is not None:
            state = replace(state, correlation=near.correlation)
        plain = not isinstance(self.refine, str)
        family = GaussianTreeFamily(observed, weight)
        n_iter, converged = 0, True
        history: tuple[float, ...] = ()
        if self.refine != 0:
            limit = int(self.refine) if plain else self.max_iter
            em_fit = family.run_em(state, limit, -np.inf if plain else self.tol, not plain)
            state, n_iter, history = em_fit.state, em_fit.n_iter, em_fit.history
            converged = em_fit.converged or plain
        evidence = {"affinity": affinity, "n_samples": weight}
        if n_iter:
            evidence["misfit"] = misfit(state, observed, weight)
        return Answer(
            state, evidence, n_iter=n_iter, converged=converged, start="lengths", history=history
        )

    def _started(
        self, tree: Tree, affinity: Affinity, mean: Array, covariance: Array
    ) -> GaussianTreeState:
        """Correlations along the edges by the lengths of the tree."""
        tree = replace(tree, length=fitted_lengths(tree, affinity))
        size = np.minimum(np.exp(-tree.length), 1 - 1e-6)
        size[: tree.n_observed] *= leaf_signs(correlations_of(covariance))
        size[tree.root] = 0.0
        return GaussianTreeState(tree, size, mean, np.sqrt(np.diag(covariance)))

    def likelier_tree(self, tree: Tree, pairs: Any, affinity: Affinity) -> tuple[Tree, int]:
        """The tree after interchanges by the likelihood, and how many."""
        free = self.topology == "auto" and self.interchange != "distance" and self.collapse is None
        if not free:
            return tree, 0
        mean, covariance, weight = joined(pairs).finalize()
        state = self._started(tree, affinity, mean, covariance)
        family = GaussianTreeFamily(correlations_of(covariance), weight)
        tree, n_moves = interchange_by_correlations(state, family)
        return replace(tree, length=fitted_lengths(tree, affinity)), n_moves

    def order(self, frame: Frame, state: GaussianTreeState) -> Array:
        return np.arange(len(state.tree))

    def permuted(self, state: GaussianTreeState, order: Array) -> GaussianTreeState:
        return state

    def aligned(
        self, frame: Frame, state: GaussianTreeState, center: Mapping[str, Array], match_by: str
    ) -> GaussianTreeState:
        return state

    def parameters(self, frame: Frame, state: GaussianTreeState) -> dict[str, Array]:
        return {"correlation": state.correlation, "mean": state.mean, "deviation": state.deviation}


TreeModel = CategoricalTreeModel | GaussianTreeModel


def joined(pairs: Any) -> Any:
    """One accumulator of what was summed in one or by groups."""
    if not isinstance(pairs, Grouped):
        return pairs
    used = Grouped(tuple(g for g in pairs.groups if g.sums is not None), pairs.seed)
    return used.resampled(np.ones(len(used.groups)))


def grouped_as(frame: Frame, inner: Any) -> Any:
    """An accumulator by as many groups as that of the survey."""
    groups = frame.values.get("groups")
    return inner if groups is None else Grouped.of(inner, *groups)


def _frame(pairs: Any, values: Mapping[str, Any]) -> Frame:
    groups = (len(pairs.groups), pairs.seed) if isinstance(pairs, Grouped) else None
    weight = float(joined(pairs).seen()["weight"])
    return Frame({**values, "groups": groups}, {"pairs": pairs}, weight)


def affinities(
    model: TreeModel, pairs: Grouped, counts: Array, affinity: Affinity
) -> list[Affinity]:
    """Affinities of r resamples, in which the groups that have rows count counts (r, g) times."""
    used = [g for g in pairs.groups if g.sums is not None]
    every = {name: np.stack([g.sums[name] for g in used]) for name in used[0].sums}
    found = []
    for row in counts:
        sums = {name: np.tensordot(row, values, 1) for name, values in every.items()}
        try:
            found.append(model.affinity(used[0].received(sums), affinity))
        except NotIdentifiableError:
            # A leaf without two symbols in this resample.
            continue
    return found


def found_tree(model: TreeModel, pairs: Any, affinity: Affinity) -> tuple[Tree, int]:
    """The tree of all pairs, and how many interchanges their likelihood asked for.

    Inner edges that may be noise are taken out where that is asked for.
    """
    tree = find_topology(model.topology, affinity, model.names)
    if isinstance(model, GaussianTreeModel):
        tree, n_moves = model.likelier_tree(tree, pairs, affinity)
    else:
        n_moves = 0
    if model.collapse is None or not isinstance(pairs, Grouped):
        return tree, n_moves
    count = sum(g.sums is not None for g in pairs.groups)
    left_out = affinities(model, pairs, 1 - np.eye(count), affinity)
    tree = collapse_edges(tree, affinity, left_out, model.collapse)
    return replace(tree, length=fitted_lengths(tree, affinity)), n_moves


def tree_of(model: TreeModel, frame: Frame, moments: Joint, affinity: Affinity) -> tuple[Tree, int]:
    """The tree of all data: that of the frame, unless a stream has seen enough to change it.

    With it the number of interchanges that its likelihood asked for.
    """
    known: Tree = frame["tree"]
    if frame.pilot is None and joined(moments["pairs"]).seen()["weight"] == frame.n_units:
        return known, int(frame.values.get("n_moves", 0))
    fresh, n_moves = found_tree(model, moments["pairs"], affinity)
    if set(fresh.splits()) == set(known.splits()):
        return replace(known, length=fitted_lengths(known, affinity)), n_moves
    return fresh, n_moves


def surveyed(model: TreeModel, run: Run, start: Any, streaming: bool) -> tuple[Any, Tree, int]:
    """Sums over all pairs, the tree with the support of its edges, and `found_tree`'s count."""
    n = len(model.names)
    supported = model.support is not None and not streaming and n > 3
    if not supported and (model.collapse is None or n < 4):
        pairs = run.fold("pairs", start)
        return pairs, *found_tree(model, pairs, model.affinity(pairs))
    entries = (n * getattr(model, "n_symbols", 1)) ** 2
    pairs = run.fold("pairs", Grouped.of(start, group_count(entries), run.seed))
    affinity = model.affinity(pairs)
    tree, n_moves = found_tree(model, pairs, affinity)
    count = sum(g.sums is not None for g in pairs.groups)
    if supported and count > 1:
        draws = affinities(model, pairs, resample_counts(count, run.rng("support")), affinity)
        if draws:

            def rebuilt(affinity: Affinity) -> Tree:
                return find_topology(model.topology, affinity, model.names)

            support = measured_support(tree, draws, str(model.support), rebuilt)
            tree = replace(tree, support=support)
    return pairs if model.collapse is not None else joined(pairs), tree, n_moves


def shrunk(state: TreeState, centre: TreeState, pseudo_count: float) -> TreeState:
    """A state whose EM adds so many counts per row, distributed as in the tables of another."""
    prior = pseudo_count * centre.tables if pseudo_count > 0 else None
    return replace(state, prior=prior)


def names_agree(pairs: PairProbabilities, affinity: Affinity) -> bool:
    """Whether symbols mean the same at most leaves: equal ones go together at near leaves."""
    gaps = affinity.distances + np.where(np.eye(len(affinity.distances), dtype=bool), np.inf, 0.0)
    agree = []
    for i, j in enumerate(np.argmin(gaps, axis=1)):
        table = pairs.tables[i, j]
        rows, columns = scipy.optimize.linear_sum_assignment(-table)
        agree.append(table[rows, columns].sum() <= np.trace(table) * (1 + 1e-9))
    return bool(2 * np.sum(agree) >= len(agree))


def perturbed(state: TreeState, rng: np.random.Generator) -> TreeState:
    """Random tables around those of a state."""
    used = state.masks()[1]
    noise = rng.gamma(1.0, size=state.tables.shape) + 0.5 * np.eye(state.tables.shape[1])
    return replace(state, tables=normalized(state.tables + noise, used))


def _marginals(state: TreeState) -> TreeState:
    """Tables whose rows are all the marginal distribution of their node."""
    priors, _ = node_marginals(state)
    used = state.masks()[1]
    tables = np.where(used, priors[:, None, :], 0.0)
    return replace(state, tables=tables)


def correlations_of(covariance: Array, names: Sequence[object] | None = None) -> Array:
    """Correlations; constant leaves are refused."""
    variances = np.diag(covariance)
    refuse_constant(variances <= 0, names)
    scale = np.sqrt(variances)
    found: Array = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found


def _check_leaves(n: int) -> None:
    if n < 2:
        raise InvalidInputError(f"X has {n} feature(s): a tree needs at least 2 leaves, as columns")
