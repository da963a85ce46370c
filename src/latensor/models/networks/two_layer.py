"""Networks with one hidden layer, learnt from moments with score functions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, is_array, to_host
from latensor.estimation.base import LatentEstimator
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import REAL
from latensor.estimation.parameters import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    POSITIVE,
    Choice,
    RefinementParameters,
    parameter,
)
from latensor.estimation.samples import in_library_of
from latensor.estimation.target_input import target_source
from latensor.exceptions import warn_caller
from latensor.models.networks.activations import ACTIVATIONS
from latensor.models.networks.two_layer_certificate import NetworkCertificate
from latensor.models.networks.two_layer_family import NetworkState
from latensor.models.networks.two_layer_model import NetworkModel
from latensor.models.networks.two_layer_scores import KINDS
from latensor.scores import Scores
from latensor.sources.shards import Source


class _ScoreFunctions:
    """Any score functions of `lt.scores`."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Scores)

    def __str__(self) -> str:
        return "score functions of lt.scores"


@dataclass(eq=False, repr=False)
class TwoLayerEstimator(RefinementParameters, LatentEstimator):
    """Base of networks with one hidden layer."""

    n_components: int = parameter(2, AT_LEAST_ONE)
    _: KW_ONLY
    activation: str = parameter("sigmoid", Choice(tuple(ACTIVATIONS)))
    scores: Any = parameter("gaussian", Choice(KINDS), _ScoreFunctions())
    alpha: float = parameter(1e-4, AT_LEAST_ZERO)
    n_init: int = parameter(8, AT_LEAST_ONE)
    tol: float = parameter(1e-6, POSITIVE)
    max_iter: int = parameter(1000, AT_LEAST_ONE)

    _loss: ClassVar[str] = "squared"
    _min_samples: ClassVar[int] = 2
    # Rows of the sample on which L-BFGS runs, at most.
    _row_limit: ClassVar[int] = 200_000
    _input_names: ClassVar[tuple[str, ...]] = ("_n_targets",)
    _same_to_merge: ClassVar[tuple[str, ...]] = ("n_features_in_", "_n_targets")
    _intervals_of = ({"components": REAL}, "components")
    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "components_",
            "coefs_",
            "intercepts_",
            "loss_",
            "n_components_",
            "n_iter_",
            "converged_",
            "certificate_",
        }
    )

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        return target_source(self, X, y, sample_weight, reset=reset)

    def _n_outputs(self) -> int:
        return int(self._n_targets)

    def _model(self) -> NetworkModel:
        return NetworkModel(
            int(self.n_components),
            self.activation,
            self._loss,
            self.n_features_in_,
            self._n_outputs(),
            self.scores,
            float(self.alpha),
            int(self.n_init),
            self._row_limit,
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        model = self._model()
        assert answer.state is not None
        state: NetworkState = model.presented(frame, answer.state)
        found = {
            name: np.ascontiguousarray(value, dtype=self._dtype)
            for name, value in model.parameters(frame, state).items()
        }
        scale = float((frame["residual"].target[1] ** 2).mean()) if self._loss == "squared" else 1.0
        lost = -answer.log_likelihood
        if self._loss == "squared":
            lost /= self._n_targets
        return {
            "components_": found["components"],
            "coefs_": [found["components"].T.copy(), found["output"].T.copy()],
            "intercepts_": [found["hidden_intercept"], found["intercept"]],
            "loss_": lost * scale,
            "n_components_": model.n_components,
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "certificate_": self._certificate(answer, frame),
        }

    def _certificate(self, answer: Answer[Any], frame: Frame) -> NetworkCertificate:
        evidence = answer.evidence
        scores = self.scores if isinstance(self.scores, str) else type(self.scores).__name__
        weights = answer.state.hidden.size + answer.state.output.size  # type: ignore[union-attr]
        start = answer.start if answer.statistics is None else f"{answer.start} + L-BFGS"
        null = frame["null"]
        return NetworkCertificate(
            n_components=len(answer.state.hidden),  # type: ignore[union-attr]
            n_features=self.n_features_in_,
            n_outputs=self._n_outputs(),
            activation=self.activation,
            scores=scores,
            method=start,
            rank=frame["rank"],
            n_seen=frame["n_seen"],
            spectrum=tuple(float(value) for value in frame["spectrum"]),
            second_deviations=evidence["second"],
            third_deviations=evidence["third"],
            n_starts=evidence.get("n_starts", 1),
            n_agreed=evidence.get("n_agreed", 1),
            wide_loss=float(evidence.get("wide", float("nan"))),
            samples_per_weight=evidence["n_samples"] * self._n_outputs() / weights,
            fit=1 + answer.log_likelihood / null if null > 0 else 1.0,
            converged=answer.converged,
            constant_features=frame["constant"],
        )

    def _warn(self, answer: Answer[Any]) -> None:
        name = type(self).__name__
        if not answer.converged and isinstance(self._effort().refine, str):
            warn_caller(
                f"{name} stopped after {answer.n_iter} steps of L-BFGS before the loss converged: "
                "raise max_iter, or lower n_components"
            )
        found = self.certificate_
        if (
            answer.state is not None
            and found.n_components <= found.rank
            and ({2, 3} <= set(found.vanishing))
        ):
            warn_caller(
                f"neither the second nor the third moment of y with the score functions of X is "
                f"above its noise ({found.second_deviations:.2g} and {found.third_deviations:.2g} "
                f"standard deviations): {name} fell back to random starts, and its hidden units "
                "may mean nothing; give more samples, or a linear model",
                UserWarning,
            )

    def _outputs(self, rows: Any) -> Array:
        """(n, q) of rows on the host."""
        hidden, output = (np.asarray(c, dtype=np.float64) for c in self.coefs_)
        first, last = (np.asarray(b, dtype=np.float64) for b in self.intercepts_)
        inputs = np.asarray(rows, dtype=np.float64) @ hidden + first
        return np.asarray(ACTIVATIONS[self.activation].value(inputs) @ output + last)

    def summary(self) -> str:
        """The hidden units, largest first, and the certificate, as text."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        lines = [f"{type(self).__name__}: {self.n_components_} hidden units ({self.activation})"]
        for j, weights in enumerate(self.components_):
            chosen = np.argsort(-np.abs(weights), kind="stable")[:3]
            known = [(str(names[i]) if names is not None else f"x{i}", weights[i]) for i in chosen]
            shown = ", ".join(f"{name}: {value:.3g}" for name, value in known)
            outputs = ", ".join(f"{value:.3g}" for value in self.coefs_[1][j][:3])
            lines.append(
                f"  unit {j}: output {outputs}; intercept {self.intercepts_[0][j]:.3g}; {shown}"
            )
        return "\n".join([*lines, str(self.certificate_)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class TwoLayerNetwork(RegressorMixin, TwoLayerEstimator):  # type: ignore[misc]
    """A network with one hidden layer, started from moments in place of at random (monograph 4.5).

    y = a'f(A x + b) + c. For the score functions S_m of X, E[y S_m(x)] is a sum of one outer power
    for every row of A: second and third moments show the subspace of the hidden units and, by a
    tensor decomposition, the units; Hermite coefficients of the activation give scales and biases.
    From there, and from random starts inside the subspace, L-BFGS refines all
    weights. y of zeros and ones is fitted by its probability; for classes see `TwoLayerClassifier`.

    Parameters
    ----------
    n_components : int, hidden units
    activation : "sigmoid" (or "logistic"), "tanh", "relu", "softplus", "gelu" or "erf"
    scores : whose score functions: "gaussian" (X is Gaussian up to a linear map), "mixture" (a
        `GaussianMixture` is fitted to X), "matching" (score matching), or any of `lt.scores`
    alpha : float, strength of the ridge on weights of whitened features, as in MLPRegressor
    n_init : int, random starts at most
    refine : "auto", or the number of steps of L-BFGS; 0 for moments only
    tol : float, relative decrease of the loss at which a step of L-BFGS counts as none, times 1000
    max_iter : int, steps of one run of L-BFGS
    random_state : seed of the starts
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    components_ : (k, d), weights A of the hidden units, by decreasing weight in y; for activations
        that are symmetric about 0, with their largest entry positive
    coefs_ : [(d, k), (k, q)], weights of the two layers, as MLPRegressor has them
    intercepts_ : [(k,), (q,)]
    loss_ : float, half the mean squared error; NaN for moments only
    n_components_, n_iter_ : int
    converged_ : bool
    certificate_ : NetworkCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> data = lt.datasets.make_network(5000, 8, 3, random_state=0)
    >>> model = lt.TwoLayerNetwork(3, random_state=0).fit(data.X, data.y)
    >>> round(model.score(data.X, data.y), 2)
    0.99
    """

    _for_labels: ClassVar[str] = "; for classes take TwoLayerClassifier"

    def predict(self, X: object) -> Array:
        """The mean of y (n,), or (n, outputs), in the library of `X`."""
        array, rows = self._read_new(X)
        found = self._outputs(rows)
        return in_library_of(found[:, 0] if self._n_targets == 1 else found, array)

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """R2 of the predictions, averaged over outputs."""
        predicted = np.asarray(to_host(self.predict(X)))
        known = np.asarray(to_host(y) if is_array(y) else y)
        return float(r2_score(known, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
