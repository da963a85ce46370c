"""What tables and likelihood of the leaves say about a latent tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from latensor.models.trees.rates import common_rates
from latensor.models.trees.read_off import (
    lengths_state,
    node_marginals,
    read_nodes,
    views_of,
    views_state,
)
from latensor.models.trees.structure import RESAMPLES, find_topology, measured_support
from latensor.models.trees.sums import PairProbabilities, PairTables, TripleTables
from latensor.moments.batch import Batch
from latensor.moments.row_sums import CovarianceSums, mean_of
from latensor.moments.second import Covariance
from latensor.moments.sums import Folded, Grouped, Joint
from latensor.refinement.em import Refinement, best_start, em
from latensor.refinement.family import State, Statistics
from latensor.sources.tree import Tree

# Pseudo-counts per row that are compared on held-out sites, and the one where they are not.
_SHRINKAGES = (10.0, 30.0, 100.0, 300.0)
SHRINKAGE = 30.0
# Groups of sites for a bootstrap, and numbers that the tables of all may hold: 256 MB.
_GROUPS, _GROUP_ENTRIES = (8, 40), 2**25
# Steps of EM by which starts and pseudo-counts are compared.
_TRIAL_STEPS = 8
# A third moment in noise says nothing: its weakest view in units of its standard error.
_READABLE = 3.0
# Starts beside the read-off where hidden states have no names in common with symbols.
_RANDOM_STARTS = 2


@dataclass(frozen=True)
class TreeModel(Model[State]):
    """The settings of any tree, and how its topology is found."""

    topology: str
    interchange: str
    support: str | None
    collapse: float | None
    names: tuple[str, ...]
    pilot_size: ClassVar[int] = 2_000

    def affinity(self, pairs: Any, like: Affinity | None = None) -> Affinity:
        """How close leaves are, by what was summed over all pairs; of a resample of `like`."""
        raise NotImplementedError

    def table_size(self) -> int:
        """Numbers that are summed over all pairs."""
        return len(self.names) ** 2

    @property
    def is_free(self) -> bool:
        """Whether the likelihood may change the tree of distances."""
        automatic = self.topology == "auto" and self.interchange != "distance"
        return automatic and self.collapse is None

    def likelier_tree(self, tree: Tree, pairs: Any, affinity: Affinity) -> tuple[Tree, int]:
        """The tree after interchanges that sums over pairs can judge, and how many."""
        return tree, 0

    def surveyed(self, run: Run, start: Folded, streaming: bool, **values: Any) -> Frame:
        """The frame: sums over all pairs, and their tree with the support of its edges."""
        n = len(self.names)
        if n < 2:
            raise InvalidInputError(
                f"X has {n} feature(s): a tree needs at least 2 leaves, as columns"
            )
        supported = self.support is not None and not streaming and n > 3
        grouped = supported or (self.collapse is not None and n > 3)
        if grouped:
            count = int(np.clip(_GROUP_ENTRIES // self.table_size(), *_GROUPS))
            start = Grouped.of(start, count, run.seed)
        pairs: Any = run.fold("pairs", start)
        affinity = self.affinity(pairs)
        tree, n_moves = self.found_tree(pairs, affinity)
        used = len(_used(pairs)) if supported else 0
        if used > 1:
            equal = np.full(used, 1 / used)
            counts = run.rng("support").multinomial(used, equal, size=RESAMPLES)
            draws = self.affinities(pairs, counts, affinity)
            if draws:
                found = partial(find_topology, self.topology, names=self.names)
                support = measured_support(tree, draws, str(self.support), found)
                tree = replace(tree, support=support)
        if self.collapse is None:
            pairs = joined(pairs)
        groups = (len(pairs.groups), pairs.seed) if isinstance(pairs, Grouped) else None
        values |= {"tree": tree, "n_moves": n_moves, "groups": groups}
        return Frame(values, {"pairs": pairs}, float(joined(pairs).seen()["weight"]))

    def grouped_as(self, frame: Frame, inner: Folded) -> Folded:
        """An accumulator by as many groups as that of the survey."""
        groups = frame.values.get("groups")
        return inner if groups is None else Grouped.of(inner, *groups)

    def found_tree(self, pairs: Any, affinity: Affinity) -> tuple[Tree, int]:
        """The tree of all pairs, and how many interchanges their likelihood asked for.

        Inner edges that may be noise are taken out where that is asked for.
        """
        tree = find_topology(self.topology, affinity, self.names)
        tree, n_moves = self.likelier_tree(tree, pairs, affinity)
        if self.collapse is None or not isinstance(pairs, Grouped):
            return tree, n_moves
        left_out = self.affinities(pairs, 1 - np.eye(len(_used(pairs))), affinity)
        tree = collapse_edges(tree, affinity, left_out, self.collapse)
        return replace(tree, length=fitted_lengths(tree, affinity)), n_moves

    def affinities(self, pairs: Grouped, counts: Array, affinity: Affinity) -> list[Affinity]:
        """Those of r resamples, in which the groups that have rows count counts (r, g) times."""
        used = _used(pairs)
        every = {name: np.stack([g.sums[name] for g in used]) for name in used[0].sums}
        found = []
        for row in counts:
            sums = {name: np.tensordot(row, values, 1) for name, values in every.items()}
            try:
                found.append(self.affinity(replace(used[0], sums=sums), affinity))
            except NotIdentifiableError:
                # A leaf without two symbols in this resample.
                continue
        return found

    def tree_of(self, frame: Frame, moments: Joint, affinity: Affinity) -> tuple[Tree, int]:
        """The tree of all data: that of the frame, unless a stream has seen enough to change it.

        With it the number of interchanges that its likelihood asked for.
        """
        known: Tree = frame["tree"]
        if frame.pilot is None and joined(moments["pairs"]).seen()["weight"] == frame.n_units:
            return known, frame["n_moves"]
        fresh, n_moves = self.found_tree(moments["pairs"], affinity)
        if set(fresh.splits()) == set(known.splits()):
            return replace(known, length=fitted_lengths(known, affinity)), n_moves
        return fresh, n_moves

    def order(self, frame: Frame, state: State) -> Array:
        return np.arange(len(self.names))

    def permuted(self, state: State, order: Array) -> State:
        return state

    def aligned(
        self, frame: Frame, state: State, center: Mapping[str, Array], match_by: str
    ) -> State:
        return state


@dataclass(frozen=True)
class CategoricalTreeModel(TreeModel[TreeState]):
    """The settings of a tree of symbols."""

    n_states: int
    n_symbols: int
    shrinkage: float | str
    row_limit: int

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

    def table_size(self) -> int:
        return (len(self.names) * self.n_symbols) ** 2

    def survey(self, run: Run, streaming: bool) -> Frame:
        frame = self.surveyed(run, PairTables(self.n_symbols), streaming)
        tree = frame["tree"]
        views = views_of(tree, tree.distances(), self.n_symbols)
        return replace(frame, values={**frame.values, "views": views})

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {
            "pairs": self.grouped_as(frame, PairTables(self.n_symbols)),
            "triples": TripleTables(frame["views"], self.n_symbols),
        }

    def read_off(self, frame: Frame, moments: Joint, rng: np.random.Generator) -> Answer[TreeState]:
        affinity = self.affinity(moments["pairs"])
        return self._read(frame, moments, affinity, self.tree_of(frame, moments, affinity)[0])

    def read_near(
        self, frame: Frame, moments: Joint, rng: np.random.Generator, state: TreeState
    ) -> Answer[TreeState]:
        return self._read(frame, moments, self.affinity(moments["pairs"]), state.tree)

    def _read(
        self, frame: Frame, moments: Joint, affinity: Affinity, tree: Tree
    ) -> Answer[TreeState]:
        pairs = joined(moments["pairs"]).finalize()
        by_lengths = lengths_state(tree, pairs.marginals, self.n_states, affinity.shape)
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
                tried[f"random start {number}"] = perturbed(centre, search_.rng)
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
        whole = sample.weight >= evidence["n_samples"] * (1 - 1e-9)
        if not (self.is_free and whole) or affinity.rates is None:
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
        marginals = evidence["marginals"]
        state = lengths_state(tree, marginals, self.n_states, affinity.shape)
        return {"lengths": state}, n_moves

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

    def parameters(self, frame: Frame, state: TreeState) -> dict[str, Array]:
        size = len(state.startprob) if state.tree.root < state.tree.n_observed else state.n_states
        n, k = state.tree.n_observed, state.n_states
        return {
            "startprob": state.startprob[:size],
            "edgeprob": state.tables[n:, :k, :k] if k < self.n_symbols else state.tables[n:],
            "leafprob": state.tables[:n, :k] if k < self.n_symbols else state.tables[:n],
        }


@dataclass(frozen=True)
class GaussianTreeModel(TreeModel[GaussianTreeState]):
    """The settings of a tree of measurements: all that EM needs are second moments."""

    refine: int | str
    max_iter: int
    tol: float

    def affinity(self, moments: Any, like: Affinity | None = None) -> Affinity:
        """Absolute correlations."""
        known = joined(moments).finalize()
        return correlation_affinity(correlations_of(known.covariance, self.names), known.weight)

    def survey(self, run: Run, streaming: bool) -> Frame:
        head = run.source.head()
        centre = mean_of(head.rows, head.weights)
        return self.surveyed(run, CovarianceSums(centre), streaming, centre=centre)

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {"pairs": self.grouped_as(frame, CovarianceSums(frame["centre"]))}

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[GaussianTreeState]:
        affinity = self.affinity(moments["pairs"])
        tree, n_moves = self.tree_of(frame, moments, affinity)
        return replace(self._read(moments, affinity, tree), n_moves=n_moves)

    def read_near(
        self, frame: Frame, moments: Joint, rng: np.random.Generator, state: GaussianTreeState
    ) -> Answer[GaussianTreeState]:
        affinity = self.affinity(moments["pairs"])
        return self._read(moments, affinity, state.tree, state)

    def _read(
        self, moments: Joint, affinity: Affinity, tree: Tree, near: GaussianTreeState | None = None
    ) -> Answer[GaussianTreeState]:
        known = joined(moments["pairs"]).finalize()
        state = self._started(tree, affinity, known)
        if near is not None:
            state = replace(state, correlation=near.correlation)
        plain = not isinstance(self.refine, str)
        family = GaussianTreeFamily(correlations_of(known.covariance), known.weight)
        n_iter, converged = 0, True
        history: tuple[float, ...] = ()
        if self.refine != 0:
            limit = int(self.refine) if plain else self.max_iter
            em_fit = family.run_em(state, limit, -np.inf if plain else self.tol, not plain)
            state, n_iter, history = em_fit.state, em_fit.n_iter, em_fit.history
            converged = em_fit.converged or plain
        evidence = {"affinity": affinity, "n_samples": known.weight}
        if n_iter:
            evidence["misfit"] = misfit(state, family.observed, known.weight)
        return Answer(
            state, evidence, n_iter=n_iter, converged=converged, start="lengths", history=history
        )

    def _started(self, tree: Tree, affinity: Affinity, known: Covariance) -> GaussianTreeState:
        """Correlations along the edges by the lengths of the tree."""
        tree = replace(tree, length=fitted_lengths(tree, affinity))
        size = np.minimum(np.exp(-tree.length), 1 - 1e-6)
        size[: tree.n_observed] *= leaf_signs(correlations_of(known.covariance))
        size[tree.root] = 0.0
        return GaussianTreeState(tree, size, known.mean, np.sqrt(np.diag(known.covariance)))

    def likelier_tree(self, tree: Tree, pairs: Any, affinity: Affinity) -> tuple[Tree, int]:
        if not self.is_free:
            return tree, 0
        known = joined(pairs).finalize()
        state = self._started(tree, affinity, known)
        family = GaussianTreeFamily(correlations_of(known.covariance), known.weight)
        tree, n_moves = interchange_by_correlations(state, family)
        return replace(tree, length=fitted_lengths(tree, affinity)), n_moves

    def parameters(self, frame: Frame, state: GaussianTreeState) -> dict[str, Array]:
        return {"correlation": state.correlation, "mean": state.mean, "deviation": state.deviation}


def _used(pairs: Grouped) -> tuple[Any, ...]:
    """The groups that have rows."""
    return tuple(g for g in pairs.groups if g.sums is not None)


def joined(pairs: Any) -> Any:
    """One accumulator of what was summed in one or by groups."""
    if not isinstance(pairs, Grouped):
        return pairs
    used = Grouped(_used(pairs), pairs.seed)
    return used.resampled(np.ones(len(used.groups)))


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
