"""Networks with one hidden layer that tell classes apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from latensor.arrays import Array
from latensor.estimation.label_input import LabelledEstimator
from latensor.models.networks.two_layer import TwoLayerEstimator


@dataclass(eq=False, repr=False)
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

    def _logits(self, X: object) -> tuple[Array, Array]:
        array, rows = self._read_new(X)
        return array, self._outputs(rows)
