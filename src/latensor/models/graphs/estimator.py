"""Communities of a network whose nodes may belong to several (monograph 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, generator
from latensor.datasets.graphs import draw_edges
from latensor.estimation.base import LatentEstimator
from latensor.estimation.convergence import warn_unconverged
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    FLAG,
    Choice,
    RefinementParameters,
    parameter,
)
from latensor.estimation.row_input import row_source
from latensor.exceptions import InvalidInputError
from latensor.models.graphs.certificate import CommunityCertificate
from latensor.models.graphs.model import LEAST, BlockModel, GraphState
from latensor.models.graphs.spectral import normalized_rows
from latensor.models.graphs.sums import explained
from latensor.moments.batch import Batch, Kind
from latensor.sources.graph import edges_of_rows, read_graph
from latensor.sources.partitions import Partitioned
from latensor.sources.shards import Source
from latensor.whole_files import PathLike

# Steps towards the memberships of nodes with given edges.
_STEPS = 30


@dataclass(eq=False, repr=False)
class MixedMembershipBlockModel(RefinementParameters, ClusterMixin, LatentEstimator):  # type: ignore[misc]
    """Communities of a network: memberships of its nodes, and how often communities are linked.

    The edges from i to j are Poisson with mean W_i' B W_j, W_i being the memberships of a node
    times its activity. Edges of a node to three parts of the network are independent given its
    memberships: their third moment, corrected as that of topics, gives the communities, and least
    squares the memberships. Steps towards the mode of the posterior follow. Networks that are too
    small or too sparse for third moments are started from eigenvectors, and `certificate_` says
    so. A network is one sample: it has no `partial_fit`, `merge` or `spawn`.

    Parameters
    ----------
    n_components : int
    alpha0 : float, total of the Dirichlet parameters of memberships; near 0 for nodes of one
        community each. Too large hurts more than too small
    degree_corrected : bool, whether nodes have an activity of their own; otherwise it is 1
    directed : "auto" (whether the adjacency is symmetric) or bool
    start : "auto", "tensor" or "spectral"
    refine : "auto", or the number of steps; 0 for the start alone
    max_iter : int
    tol : float, mean change of a node's memberships at which the refinement ends
    random_state : seed
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    membership_ : (n, k), rows sum to one; communities by decreasing size
    block_matrix_ : (k, k), mean number of edges between two nodes of average activity
    activity_ : (n,), mean 1
    alpha_ : (k,) of the Dirichlet distribution
    labels_ : (n,), the community that explains most of a node's edges
    directed_ : bool
    node_names_ : of a networkx graph, otherwise None
    history_ : log-likelihood per pair of nodes before every step
    n_components_, n_iter_ : int
    converged_ : bool
    certificate_ : CommunityCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_block_model(200, 2, random_state=0)
    >>> model = lt.MixedMembershipBlockModel(2, random_state=0).fit(sample.adjacency)
    >>> model.membership_.shape, model.block_matrix_.shape
    ((200, 2), (2, 2))
    """

    n_components: int = parameter(2, AT_LEAST_ONE)
    _: KW_ONLY
    alpha0: float = parameter(0.5, AT_LEAST_ZERO)
    degree_corrected: bool = parameter(True, FLAG)
    directed: bool | str = parameter("auto", Choice(("auto", True, False)))
    start: str = parameter("auto", Choice(("auto", "tensor", "spectral")))
    max_iter: int = parameter(60, AT_LEAST_ONE)
    tol: float = parameter(1e-3, AT_LEAST_ZERO)

    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "membership_",
            "block_matrix_",
            "activity_",
            "alpha_",
            "labels_",
            "directed_",
            "history_",
            "n_components_",
            "n_iter_",
            "converged_",
            "certificate_",
        }
    )
    _closed = (
        "a network is one sample, whose nodes all depend on each other: call fit on the whole "
        "network"
    )
    _input_names: ClassVar[tuple[str, ...]] = ("node_names_",)
    _takes_sparse: ClassVar[bool] = True
    _min_samples: ClassVar[int] = 2

    # ------------------------------------------------------------------ fitting
    def fit(  # type: ignore[override]
        self,
        X: object,
        y: object = None,
        *,
        callback: Callable[[str, int], object] | None = None,
        checkpoint: PathLike | None = None,
    ) -> Self:
        """Learn the communities of a network.

        Parameters
        ----------
        X : (n, n) adjacency, SciPy sparse or array, weights from 0 on, loops are ignored; a list of
            blocks of its rows; edges (m, 2) or, with weights, (m, 3), of nodes numbered from 0; or
            a networkx graph. Partitions (`lt.sources`, Dask, Spark) hold rows of the adjacency in
            the order of the nodes, each with one column per node
        y : ignored
        callback : called with the name and the number of every pass over the nodes
        checkpoint : folder in which an interrupted fit leaves what it has done; needs an integer
            random_state
        """
        return super().fit(X, y, callback=callback, checkpoint=checkpoint)

    # ------------------------------------------------------------------ what is asked
    def predict_proba(self, X: object) -> Array:
        """Memberships (m, k) of nodes by their edges to the n fitted ones.

        Parameters
        ----------
        X : (m, n) edges, from m nodes, fitted or new, to the fitted ones, sparse or dense
        """
        _, rows = self._read_new(X)
        weights = self._weights()
        block = np.asarray(self.block_matrix_, dtype=np.float64)
        block = (block + block.T) / 2
        expected = block @ weights.sum(axis=0)
        alpha = np.asarray(self.alpha_, dtype=np.float64)
        own = np.full((rows.shape[0], len(block)), 1 / len(block))
        for _ in range(_STEPS):
            fractions, _logs = _explained(rows, own @ block, weights)
            counts = own * (fractions @ block.T)
            kept = np.maximum(counts - np.maximum(1 - alpha, 0.0), 0.0)
            few = ~(kept.sum(axis=1) > 0)
            kept[few] = counts[few]
            own = np.maximum(normalized_rows(kept / np.maximum(expected, LEAST)), LEAST)
        none = np.diff(rows.indptr) == 0
        own[none] = np.maximum(alpha, LEAST) / np.maximum(alpha, LEAST).sum()
        return normalized_rows(own)

    def predict(self, X: object) -> Array:
        """The community (m,) that explains most of a node's edges, by its edges as above."""
        weights = self._weights()
        block = np.asarray(self.block_matrix_, dtype=np.float64)
        expected = (block + block.T) @ weights.sum(axis=0)
        return np.argmax(self.predict_proba(X) * expected, axis=1)

    def score(self, X: object, y: object = None, *, pairs: object = None) -> float:
        """The average log-likelihood of pairs of nodes.

        Parameters
        ----------
        X : adjacency of the fitted nodes, such as held-out edges
        y : ignored
        pairs : (m, 2) the pairs that count, such as those that were hidden from `fit`; None for all
        """
        check_is_fitted(self)
        matrix = read_graph(X)[0]
        if matrix.shape[0] != self.n_features_in_:
            raise InvalidInputError(
                f"X has {matrix.shape[0]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        weights, block = self._weights(), np.asarray(self.block_matrix_, dtype=np.float64)
        if pairs is None:
            _, logs = _explained(matrix, weights @ block, weights)
            sizes, n = weights.sum(axis=0), len(weights)
            total = logs.sum() - sizes @ block @ sizes
            return float((total + ((weights @ block) * weights).sum()) / (n * (n - 1)))
        ends = np.asarray(pairs)
        if ends.ndim != 2 or ends.shape[1] != 2 or ends.dtype.kind not in "iu" or not len(ends):
            raise InvalidInputError(
                f"pairs is of shape {ends.shape} and dtype {ends.dtype}: expected (m, 2) whole "
                "numbers"
            )
        i, j = ends.T
        rates = np.einsum("ma,ab,mb->m", weights[i], block, weights[j])
        edges = np.asarray(matrix[i, j]).ravel()
        return float((edges * np.log(np.maximum(rates, 1e-300)) - rates).mean())

    def sample(self, random_state: RandomState = None) -> Any:
        """Another network (n, n) of the same nodes, CSR of zeros and ones.

        Parameters
        ----------
        random_state : seed; by default that of the estimator
        """
        check_is_fitted(self)
        rng = generator(self.random_state if random_state is None else random_state)
        return draw_edges(self._weights(), self.block_matrix_, self.directed_, rng)

    # ------------------------------------------------------------------ inside
    def _weights(self) -> Array:
        check_is_fitted(self)
        return np.ascontiguousarray(self.membership_ * self.activity_[:, None], dtype=np.float64)

    def _accepted_rows(self) -> Callable[[Any], Any]:
        return edges_of_rows

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        if isinstance(X, Partitioned):
            self.node_names_: list[Any] | None = None
            return row_source(self, X, sample_weight, reset=reset, kind=Kind.GRAPH)
        matrix, self.node_names_ = read_graph(X)
        if self.directed is False:
            matrix = scipy.sparse.csr_array(matrix.maximum(matrix.T))
        n = self.n_features_in_ = matrix.shape[0]
        self.__dict__.pop("feature_names_in_", None)
        self._dtype = np.dtype(np.float64)
        return Source.of(Kind.GRAPH, Batch((matrix,), np.ones(n), np.arange(n, dtype=np.uint64)))

    def _model(self) -> BlockModel:
        return BlockModel(
            self.n_components,
            self.n_features_in_,
            float(self.alpha0),
            bool(self.degree_corrected),
            self.directed,
            self.start,
            self.refine,
            self.max_iter,
            float(self.tol),
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        assert answer.state is not None
        state: GraphState = self._model().presented(frame, answer.state)
        activity = state.weights.sum(axis=1)
        mean = float(activity.mean())
        return {
            "membership_": state.membership,
            "block_matrix_": state.block * mean**2,
            "activity_": activity / mean,
            "alpha_": state.alpha,
            "labels_": np.argmax(state.membership * state.expected_edges(), axis=1),
            "directed_": frame["nodes"].directed,
            "history_": np.array(answer.history),
            "n_components_": int(self.n_components),
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "certificate_": _certificate(answer, state, frame),
        }

    def _warn(self, answer: Answer[Any]) -> None:
        if not answer.converged:
            warn_unconverged(
                f"memberships still moved by more than tol={self.tol:g} on average after "
                f"{answer.n_iter} steps: raise max_iter, or lower n_components"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        return tags


def _certificate(answer: Answer[Any], state: GraphState, frame: Frame) -> CommunityCertificate:
    directed = frame["nodes"].directed
    degrees, spectrum = answer.evidence["degrees"], answer.evidence["spectrum"]
    n, k = state.membership.shape
    # A network without communities has W_i proportional to the degree; pairs count twice.
    edges = degrees.sum() / (2 if directed else 1)
    logs = float((degrees * np.log(np.maximum(degrees / degrees.sum(), 1e-300))).sum())
    alone = logs * (1 if directed else 2) + edges * np.log(edges) - edges
    gain = answer.history[-1] * n * (n - 1) - alone
    gain /= (1 if directed else 2) * n * np.log(max(k, 2))
    return CommunityCertificate(
        method=answer.start,
        is_small=answer.evidence["is_small"],
        n_nodes=n,
        n_components=k,
        mean_degree=float(degrees.mean()),
        isolated=int((degrees <= 0).sum()),
        pieces=frame["pieces"],
        condition=1 / spectrum[-1] if spectrum else float("nan"),
        gain=float(gain),
        mixed=float((state.membership.max(axis=1) < 0.8).mean()),
        converged=bool(answer.converged),
        spectrum=spectrum,
        unseen=answer.evidence["unseen"],
    )


def _explained(rows: Any, turned: Array, weights: Array) -> tuple[Array, Array]:
    """`explained` of nodes that are none of those they are linked to."""
    places = np.full(rows.shape[0], -1)
    return explained(rows, places, turned, weights, np.zeros((0, weights.shape[1])))
