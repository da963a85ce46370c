"""Trees with hidden inner nodes, learnt from what is seen at their leaves."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import DensityMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, check_positive_int, generator
from latensor.arrays.checks import refuse_nonfinite
from latensor.engines import LocalEngine
from latensor.estimation.base import LatentEstimator
from latensor.estimation.mixture_inference import DensityInference
from latensor.estimation.model import Answer, Frame, Model
from latensor.estimation.parameter_intervals import NOT_NEGATIVE, PROBABILITY, REAL
from latensor.estimation.parameters import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    Choice,
    Interval,
    RefinementParameters,
    parameter,
)
from latensor.estimation.row_input import numbered, row_source
from latensor.estimation.samples import in_library_of
from latensor.exceptions import InvalidInputError
from latensor.models.trees.certificate import SUPPORTED, TreeCertificate
from latensor.models.trees.family import TreeState, evaluate
from latensor.models.trees.gaussian import GaussianTreeState, conditional_means, log_densities
from latensor.models.trees.model import CategoricalTreeModel, GaussianTreeModel
from latensor.models.trees.read_off import node_marginals
from latensor.moments.batch import Batch, Kind
from latensor.sources.newick import format_newick
from latensor.sources.shards import Source

# Whole numbers above this are measurements, not the names of symbols.
_MOST_SYMBOLS = 64
CATEGORICAL, GAUSSIAN = "categorical", "gaussian"


@dataclass(frozen=True)
class Coded:
    """Symbols (n, d) as small integers, -1 for those that are missing; measurements as they are."""

    family: str
    n_symbols: int

    def __call__(self, rows: Any) -> Any:
        if self.family == GAUSSIAN:
            refuse_nonfinite(rows, "X")
            return rows
        missing = np.isnan(rows) | (rows == -1)
        known = np.where(missing, 0, rows)
        bad = (known < 0) | (known != np.floor(known)) | (known >= self.n_symbols)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            raise InvalidInputError(
                f"X holds {rows[place]:g} in row {place[0]}, column {place[1]}: symbols are whole "
                f"numbers from 0 to {self.n_symbols - 1} (n_symbols={self.n_symbols}), -1 or NaN "
                "for missing; for measurements give family='gaussian'"
            )
        return np.where(missing, -1, known).astype(np.int16)


def _is_categorical(estimator: Any) -> bool:
    return getattr(estimator, "family_", None) == CATEGORICAL


@dataclass(eq=False, repr=False)
class LatentTree(
    RefinementParameters,
    TransformerMixin,  # type: ignore[misc]
    DensityInference,
    DensityMixin,  # type: ignore[misc]
    LatentEstimator,
):
    """The tree behind the columns of a table, and the distributions along its edges.

    Columns are leaves (species, items, sensors), rows are independent sites or samples; the inner
    nodes were not seen. Joint tables of all pairs of leaves give affinities that are multiplicative
    along paths: log-determinants of symbols under any Markov model, correlations of measurements.
    Spectral neighbour joining and interchanges under balanced minimum evolution find the tree;
    joint tables of three leaves around every hidden node, and lengths, give the parameters, which
    EM refines with shrinkage.

    Parameters
    ----------
    n_states : int or None, of the hidden nodes; None for as many as there are symbols
    family : "auto", "categorical" (symbols 0, 1, ...; -1 or NaN for missing) or "gaussian";
        "auto" takes whole numbers from -1 to 63 as symbols
    topology : "auto" (spectral neighbour joining, then interchanges), "snj", "nj" (neighbour
        joining), or a tree in Newick's format whose names are those of the columns, or their
        numbers
    interchange : "auto" for those that shorten the tree and then those that raise its likelihood:
        of measurements, and of symbols where one rate matrix serves all pairs of leaves; "distance"
        for the former only; "likelihood" to try also those that the bootstrap leaves undecided, and
        moves of subtrees around them, by EM with a table of its own on every edge (symbols)
    n_symbols : int or None, how many symbols there are; None to take the first batch's word
    shrinkage : "auto" (chosen on held-out sites), or the pseudo-count that EM adds to every row of
        a table
    support : "local" (does a bootstrap of sites still prefer an edge to its interchanges),
        "bootstrap" (is it found again) or None
    collapse : None for a binary tree, or the significance level (such as 0.05) at which inner edges
        whose length is not above zero are collapsed, so that nodes have any degree; the number of
        trees that noise could choose from is taken into account
    refine : "auto", or the number of passes of EM; 0 for moments only
    max_iter : int, passes of EM over the sample in memory
    tol : float, log-likelihood per row that EM may leave to gain
    random_state : seed of the bootstrap and of samples
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    tree_ : Tree, with `parent`, `length` and `support` of every node; leaves come first
    startprob_ : (k,) of the root (symbols)
    edgeprob_ : (h, k, k) of every hidden node given its parent; zero at the root (symbols)
    leafprob_ : (n, k, d) of every leaf given its parent (symbols)
    correlation_ : (N,) of every node with its parent (measurements)
    mean_, deviation_ : (n,) of the leaves (measurements)
    affinity_, saturated_ : (n, n) affinities, and which pairs are lost in noise
    family_ : str
    shrinkage_ : float, the pseudo-count used (symbols)
    lower_bound_ : float, log-likelihood per row
    n_iter_ : int
    n_moves_ : int, interchanges and moves of subtrees that the likelihood asked for
    converged_ : bool
    certificate_ : TreeCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_tree(2000, 8, random_state=0)
    >>> model = lt.LatentTree(random_state=0).fit(sample.X)
    >>> float(lt.robinson_foulds(model.tree_, sample.tree))
    0.0
    >>> model.newick().endswith(";")
    True
    """

    n_states: int | None = parameter(None, Choice((None,)), AT_LEAST_ONE)
    _: KW_ONLY
    family: str = parameter("auto", Choice(("auto", CATEGORICAL, GAUSSIAN)))
    topology: str = "auto"
    interchange: str = parameter("auto", Choice(("auto", "distance", "likelihood")))
    n_symbols: int | None = parameter(None, Choice((None,)), Interval(numbers.Integral, 2))
    shrinkage: float | str = parameter("auto", Choice(("auto",)), AT_LEAST_ZERO)
    support: str | None = parameter("local", Choice(("local", "bootstrap", None)))
    collapse: float | None = parameter(
        None, Choice((None,)), Interval(numbers.Real, 0, 1, closed="neither")
    )

    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "tree_",
            "startprob_",
            "edgeprob_",
            "leafprob_",
            "correlation_",
            "mean_",
            "deviation_",
            "affinity_",
            "saturated_",
            "shrinkage_",
            "lower_bound_",
            "n_iter_",
            "n_moves_",
            "converged_",
            "history_",
            "certificate_",
        }
    )
    _input_names: ClassVar[tuple[str, ...]] = ("family_", "n_symbols_")
    _allows_missing: ClassVar[bool] = True
    _min_samples: ClassVar[int] = 2
    # Samples on which EM runs in memory, at most.
    _row_limit: ClassVar[int] = 100_000

    # ------------------------------------------------------------------ what is asked of a tree
    @available_if(_is_categorical)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: object) -> Array:
        """The probability (n, h, k) of every state of every hidden node given the row."""
        array, codes = self._read_new(X)
        state = self._state()
        n, k = state.tree.n_observed, state.n_states

        def posterior(batch: Batch) -> Array:
            found: Array = evaluate(state, batch.rows, batch.weights, posterior=True)["posterior"]
            return found[:, n:, :k]

        return in_library_of(self._mapped(codes, posterior), array)

    def transform(self, X: object) -> Array:
        """What is expected of every hidden node given the row.

        Of measurements its value (n, h), of symbols the probabilities (n, h k) of its states.
        """
        array, rows = self._read_new(X)
        state = self._state()
        if isinstance(state, TreeState):
            chances = np.asarray(self.predict_proba(X))
            return in_library_of(chances.reshape(len(chances), -1), array)
        found = self._mapped(rows, lambda batch: conditional_means(state, batch.rows))
        return in_library_of(found, array)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[Any, Any]:
        """Rows drawn from the tree, (n, leaves) and the hidden nodes (n, h) behind them.

        Parameters
        ----------
        n_samples : int
        random_state : seed; by default that of the estimator
        """
        check_is_fitted(self)
        n_samples = check_positive_int(n_samples, "n_samples")
        rng = generator(self.random_state if random_state is None else random_state)
        state = self._state()
        tree, n = state.tree, state.tree.n_observed
        values = np.zeros((n_samples, len(tree)))
        for v in tree.preorder():
            u = int(tree.parent[v])
            if isinstance(state, GaussianTreeState):
                noise = rng.standard_normal(n_samples)
                fraction = state.correlation[v] if u >= 0 else 0.0
                values[:, v] = fraction * values[:, u] + np.sqrt(1 - fraction**2) * noise
                continue
            rows = state.startprob[None] if u < 0 else state.tables[v][values[:, u].astype(int)]
            bounds = np.cumsum(rows, axis=1)
            drawn = (rng.random((n_samples, 1)) * bounds[:, -1:] > bounds).sum(axis=1)
            values[:, v] = drawn
        if isinstance(state, GaussianTreeState):
            return values[:, :n] * state.deviation + state.mean, values[:, n:]
        return values[:, :n].astype(np.int64), values[:, n:].astype(np.int64)

    def newick(
        self,
        names: Sequence[object] | None = None,
        *,
        lengths: bool = True,
        support: bool = False,
        root: str = "hidden",
    ) -> str:
        """The tree as text that programs for phylogenies read.

        Parameters
        ----------
        names : of the leaves; by default the names or numbers of the columns
        lengths, support : bool, whether to write the lengths of edges and the support of inner ones
        root : "hidden" (a node of the tree, without meaning), "midpoint" of the longest path, or
            the name of a leaf that is put next to the root; a tree from leaves has no root
        """
        check_is_fitted(self)
        given = getattr(self, "feature_names_in_", None) if names is None else names
        shown = None if given is None else [str(name) for name in given]
        return format_newick(self.tree_, shown, lengths=lengths, support=support, root=root)

    # ------------------------------------------------------------------ the fit
    def _check_parameters(self) -> None:
        super()._check_parameters()
        known = ("auto", "snj", "nj")
        if not isinstance(self.topology, str) or (
            self.topology not in known and "(" not in self.topology
        ):
            raise InvalidInputError(
                f"topology={self.topology!r} of LatentTree must be 'auto', 'snj', 'nj' or a tree "
                "in Newick's format"
            )

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        if reset:
            self.__dict__.pop("family_", None)
        return row_source(self, X, sample_weight, reset=reset)

    def _accepted_rows(self) -> Callable[[Any], Any]:
        if hasattr(self, "family_"):
            return Coded(self.family_, self.n_symbols_)
        return self._first_coded

    def _first_coded(self, rows: Any) -> Any:
        """The first rows, which tell what the columns are."""
        self._choose_family(rows)
        return self._accepted_rows()(rows)

    def _choose_family(self, rows: Any) -> None:
        known = rows[np.isfinite(rows)]
        whole = bool(len(known)) and bool((known == np.floor(known)).all())
        small = whole and known.min() >= -1 and known.max() < _MOST_SYMBOLS
        family = self.family if self.family != "auto" else (CATEGORICAL if small else GAUSSIAN)
        self.family_ = family
        if family == GAUSSIAN:
            self.n_symbols_ = 0
            if self.n_states not in (None, 1):
                raise InvalidInputError(
                    f"n_states={self.n_states} is for symbols: measurements have hidden numbers"
                )
            return
        if not small:
            Coded(family, self.n_symbols or _MOST_SYMBOLS)(rows)
        seen = int(known.max()) + 1 if len(known) else 0
        self.n_symbols_ = max(self.n_symbols or max(seen, 2), 2)
        if self.n_states is not None and self.n_states > self.n_symbols_:
            raise InvalidInputError(
                f"n_states={self.n_states} exceeds the {self.n_symbols_} symbols of X: tables of "
                "pairs of leaves do not determine more states than symbols"
            )

    def _model(self) -> Model[Any]:
        names = getattr(self, "feature_names_in_", None)
        shown = range(self.n_features_in_) if names is None else names
        columns = tuple(str(name) for name in shown)
        tree = (self.topology, self.interchange, self.support, self.collapse, columns)
        if self.family_ == GAUSSIAN:
            return GaussianTreeModel(*tree, self.refine, self.max_iter, float(self.tol))
        k = self.n_states or self.n_symbols_
        return CategoricalTreeModel(*tree, k, self.n_symbols_, self.shrinkage, self._row_limit)

    @property
    def _intervals_of(self) -> Any:  # type: ignore[override]
        if self.family_ == GAUSSIAN:
            ranges = {"correlation": (-1.0, 1.0), "mean": REAL, "deviation": NOT_NEGATIVE}
            return ranges, "correlation"
        ranges = dict.fromkeys(("startprob", "edgeprob", "leafprob"), PROBABILITY)
        return ranges, "leafprob"

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        model, state = self._model(), answer.state
        assert state is not None
        affinity = answer.evidence["affinity"]
        found: dict[str, Any] = {
            f"{name}_": value.astype(self._dtype)
            for name, value in model.parameters(frame, state).items()
        }
        tree = state.tree
        if isinstance(state, GaussianTreeState):
            with np.errstate(divide="ignore"):
                sizes = -np.log(np.abs(state.correlation))
            tree = replace(tree, length=np.where(tree.parent >= 0, np.minimum(sizes, 50.0), 0.0))
            value = answer.history[-1] - np.log(state.deviation).sum() if answer.history else np.nan
        else:
            value = answer.log_likelihood
            found["shrinkage_"] = float(answer.evidence.get("shrinkage", 0.0))
        return {
            **found,
            "tree_": tree,
            "affinity_": affinity.values,
            "saturated_": affinity.saturated,
            "lower_bound_": float(value),
            "n_iter_": answer.n_iter,
            "n_moves_": answer.n_moves,
            "converged_": answer.converged,
            "history_": np.array(answer.history),
            "certificate_": self._certificate(answer, state),
        }

    def _certificate(self, answer: Answer[Any], state: Any) -> TreeCertificate:
        tree, affinity = state.tree, answer.evidence["affinity"]
        inner = list(tree.splits().values())
        support = tree.support[inner]
        measured = bool(np.isfinite(support).any())
        n = tree.n_observed
        pairs = affinity.saturated[np.triu_indices(n, 1)]
        how = {"auto": "by spectral neighbour joining and balanced interchanges",
               "snj": "by spectral neighbour joining", "nj": "by neighbour joining"}  # fmt: skip
        refined = answer.n_iter > 0
        moves = f", {answer.n_moves} interchanges by likelihood" if answer.n_moves else ""
        method = how.get(self.topology, "given") + affinity.distances_used + moves
        if self.collapse is not None:
            method += f", inner edges collapsed at level {self.collapse:g}"
        method += ", refined by EM" if refined else ""
        return TreeCertificate(
            method=method,
            n_leaves=n,
            n_hidden=tree.n_hidden,
            n_samples=float(answer.evidence["n_samples"]),
            n_inner_edges=len(inner),
            n_supported=int((support >= SUPPORTED).sum()) if measured else -1,
            weakest_support=float(np.nanmin(support)) if measured else float("nan"),
            saturated=float(pairs.mean()) if len(pairs) else 0.0,
            smallest_singular=_smallest_singular(state),
            zero_edges=int((tree.length[inner] <= 1e-12).sum()),
            misfit=answer.evidence.get("misfit", float("nan")),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Symbols may be missing, measurements not: scikit-learn's are measurements.
        tags.input_tags.allow_nan = self.family == CATEGORICAL
        return tags

    def _n_parameters(self) -> int:
        if self.family_ == GAUSSIAN:
            return int(len(self.tree_) - 1 + 2 * self.tree_.n_observed)
        k, d = self.leafprob_.shape[1:]
        n = self.tree_.n_observed
        return int(n * k * (d - 1) + (self.tree_.n_hidden - 1) * k * (k - 1) + k - 1)

    def _state(self) -> Any:
        """The parameters as fitted attributes have them."""
        tree = self.tree_
        if self.family_ == GAUSSIAN:
            values = (self.correlation_, self.mean_, self.deviation_)
            return GaussianTreeState(tree, *(np.asarray(v, dtype=np.float64) for v in values))
        leaves, d = np.asarray(self.leafprob_, dtype=np.float64), self.n_symbols_
        n, k = tree.n_observed, self.leafprob_.shape[1]
        edges = np.asarray(self.edgeprob_, dtype=np.float64)
        tables = np.zeros((len(tree), d, d))
        tables[:n, :k] = leaves
        tables[n:, : edges.shape[1], : edges.shape[2]] = edges
        start = np.zeros(d)
        start[: len(self.startprob_)] = self.startprob_
        return TreeState(tree, start, tables, None, self.n_states or d)

    def _mapped(self, rows: Any, function: Any) -> Array:
        units = Source.of(Kind.ROWS, numbered((rows,), np.ones(len(rows))))
        return np.concatenate(list(LocalEngine(self._n_jobs()).map(units, function)))

    def _log_likelihoods(self, X: object) -> tuple[Array, Array]:
        array, rows = self._read_new(X)
        state = self._state()
        if isinstance(state, GaussianTreeState):
            return array, self._mapped(rows, lambda b: log_densities(state, b.rows))
        return array, self._mapped(rows, lambda b: evaluate(state, b.rows, b.weights)["logs"])


def _smallest_singular(state: Any) -> float:
    """The weakest edge: of symbols the k-th singular value of its standardized joint table."""
    tree = state.tree
    if isinstance(state, GaussianTreeState):
        return float(np.abs(state.correlation[tree.parent >= 0]).min())
    joints = node_marginals(state)[1]
    sizes, found = state.sizes(), 1.0
    for v, u in enumerate(tree.parent):
        if u < 0:
            continue
        joint = joints[v, : sizes[u], : sizes[v]]
        scale = np.sqrt(np.outer(joint.sum(axis=1), joint.sum(axis=0)))
        values = np.linalg.svd(joint / np.maximum(scale, 1e-300), compute_uv=False)
        found = min(found, float(values[min(sizes[u], sizes[v], state.n_states) - 1]))
    return found
