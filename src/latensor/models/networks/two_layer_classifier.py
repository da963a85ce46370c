"""Networks with one hidden layer that tell classes apart."""

from __future__ import annotations

from typing import Any, ClassVar

from latensor.arrays import Array, RandomState
from latensor.estimation.label_input import LabelledEstimator
from latensor.models.networks.two_layer import TwoLayerEstimator


class TwoLayerClassifier(LabelledEstimator, TwoLayerEstimator):
    """Classes told apart by a network with one hidden layer that moments have started.

    The logits are A2 f(A1 x + b1) + b2: of two classes one, of more one per class. Probabilities
    are functions of A1 x: their moments with the score functions of X show the subspace of the
    hidden units exactly, the units only to first order in the logits. L-BFGS on the log loss goes
    on from there, and from random starts inside the subspace until two agree.

    Parameters
    ----------
    n_components, activation, scores, alpha, n_init, refine, tol, max_iter, random_state, n_jobs :
        as for `TwoLayerNetwork`
    classes : the labels, where not all of them are in the first call: needed for sources of
        batches, which hold numbers as labels

    Attributes
    ----------
    classes_ : (classes,) labels
    components_, coefs_, intercepts_, n_components_, n_iter_, converged_, certificate_ : as for
        `TwoLayerNetwork`
    loss_ : float, the mean log loss

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_network(2000, 4, 2, target="binary", random_state=0)
    >>> model = lt.TwoLayerClassifier(2, random_state=0).fit(sample.X, sample.y)
    >>> model.predict_proba(sample.X[:3]).shape
    (3, 2)
    """

    _loss = "log"
    _input_names: ClassVar[tuple[str, ...]] = ("_n_targets", "classes_")

    def __init__(
        self,
        n_components: int = 2,
        *,
        activation: str = "sigmoid",
        scores: Any = "gaussian",
        classes: Any = None,
        alpha: float = 1e-4,
        n_init: int = 8,
        refine: int | str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            n_components,
            activation=activation,
            scores=scores,
            alpha=alpha,
            n_init=n_init,
            refine=refine,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        self.classes = classes

    def _logits(self, X: object) -> tuple[Array, Array]:
        array, rows = self._read_new(X)
        return array, self._outputs(rows)
