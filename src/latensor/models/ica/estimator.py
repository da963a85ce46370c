"""Independent component analysis under Gaussian noise, from the fourth cumulant (monograph 4.3)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from latensor.arrays import Array, RandomState, is_array, is_numpy
from latensor.estimation.base import LatentEstimator, component_order
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import REAL
from latensor.estimation.parameters import ALGORITHM, N_JOBS, REFINE, Choice, Interval, parameter
from latensor.estimation.samples import in_library_of, project
from latensor.exceptions import InvalidInputError
from latensor.models.ica.certificate import certify
from latensor.models.ica.model import ICAModel
from latensor.moments.fourth import MOST_DIRECTIONS


@dataclass(eq=False, repr=False)
class ICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LatentEstimator):  # type: ignore[misc]
    """Independent sources from their mixtures, under Gaussian noise or none (monograph 4.3).

    x = A h + z with independent, not Gaussian sources h (k,), a mixing matrix A (d, k) and
    Gaussian noise z. The fourth cumulant of x is sum_j kappa_j a_j^(x)4, kappa_j the excess
    kurtosis of h_j: noise of any covariance leaves it as it is. Sources above and below the
    kurtosis of a Gaussian may come together.

    The covariance is taken apart into signal and noise by the simplest noise it does not refute
    (equal in all sensors; of differing size; of any covariance), the cumulant of the whitened
    signal is diagonalized, and equations of the scores that know of the noise refine it.

    Parameters
    ----------
    n_components : int, None (all directions in which the data varies) or "auto": the sources that
        are not Gaussian in samples which did not find them (`selection_`); at most 64
    noise : "gaussian", or None for sensors without noise
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    refine : "auto", or the number of passes of the refinement; 0 for moments only
    random_state : seed of the decomposition
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    components_ : (k, d), the unmixing: sources are (x - mean_) @ components_.T
    mixing_ : (d, k), A; columns by decreasing length, their entry of largest magnitude positive;
        components_ @ mixing_ is the identity
    mean_ : (d,)
    whitening_ : (k', d), coordinates of unit signal, k' = k but for a Gaussian rest that "auto"
        leaves; components_ combines its rows, nearly by a
        rotation: independent sources are not quite uncorrelated in a sample
    noise_variance_ : (k,), noise in every source; NaN where its covariance is unknown
    kurtosis_ : (k,), excess kurtosis of every source
    n_components_, n_iter_ : int
    certificate_ : ICACertificate; names the sources that are not identifiable
    selection_ : SourceCount, where n_components="auto"

    Notes
    -----
    Sources have variance one, the noise that the sensors add to them not counted; where its
    covariance is unknown, counted. `intervals` says how well the mixing is known; `to_sklearn` and
    `from_sklearn` convert to and from FastICA. Rows given to `fit` in the order of time may depend
    on each other: they then count for fewer. Sources whose energies go together are not
    independent, and are only rotated, whatever `noise` is. `partial_fit` keeps the fourth moment of
    up to 16 features whole, and of more along the leading directions of the first rows; a stream
    is refined as long as all its rows are kept (20,000), and goes by the moments of all after that.

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_ica(2000, 3, 3, random_state=0)
    >>> model = lt.ICA(3, random_state=0).fit(sample.samples)
    >>> model.transform(sample.samples).shape
    (2000, 3)
    >>> model.mixing_.shape
    (3, 3)
    """

    n_components: int | str | None = parameter(
        None, Interval(numbers.Integral, 1, MOST_DIRECTIONS), Choice((None, "auto"))
    )
    _: KW_ONLY
    noise: str | None = parameter("gaussian", Choice(("gaussian", None)))
    algorithm: str | Callable[..., Any] = parameter("auto", *ALGORITHM)
    refine: int | str = parameter("auto", *REFINE)
    random_state: RandomState = None
    n_jobs: int | None = parameter(None, *N_JOBS)

    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "components_",
            "mixing_",
            "mean_",
            "whitening_",
            "noise_variance_",
            "kurtosis_",
            "n_components_",
            "n_iter_",
            "certificate_",
        }
    )
    _min_samples: ClassVar[int] = 2
    # Rows that a stream keeps for its refinement.
    _row_limit: ClassVar[int] = 20_000

    _intervals_of = (
        {"mixing": REAL, "components": REAL, "kurtosis": (-2.0, np.inf)},
        "mixing",
    )

    def _model(self) -> ICAModel:
        return ICAModel(
            self.n_components,
            self.noise is not None,
            self.algorithm,
            self.refine,
            self.n_features_in_,
            float(np.finfo(self._dtype).eps),
            self._row_limit,
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        """Sources in their fixed order and with fixed signs."""
        model = self._model()
        assert answer.state is not None
        order = model.order(frame, answer.state)
        found = model.permuted(model.signed(answer.state), order)
        kept = self._dtype
        return {
            "components_": np.ascontiguousarray(found.unmixing, kept),
            "mixing_": np.ascontiguousarray(found.mixing, kept),
            "mean_": answer.evidence["moment"].mean.astype(kept),
            "whitening_": np.ascontiguousarray(found.whitening, kept),
            "noise_variance_": np.diag(found.noise).astype(kept),
            "kurtosis_": found.kurtosis.astype(kept),
            "n_components_": len(order),
            "n_iter_": answer.n_iter,
            "certificate_": certify(found, answer, order),
        }

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: object) -> Array:
        """Sources (n, k) of samples, in the library of `X`; with the noise the sensors give them.

        The unbiased estimate of least variance: unmixing what `inverse_transform` mixes gives the
        same sources back.
        """
        array, _ = self._read_new(X)
        return project(array, self.mean_, self.components_.T.astype(np.float64))

    def inverse_transform(self, X: object) -> Array:
        """Samples (n, d), without noise, from sources (n, k)."""
        check_is_fitted(self)
        sources = _read_sources(X, int(self.n_components_))
        return sources @ in_library_of(self.mixing_.T, sources) + in_library_of(self.mean_, sources)

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn FastICA with this unmixing: `transform` gives the same sources."""
        from sklearn.decomposition import FastICA

        check_is_fitted(self)
        peer = FastICA(self.n_components_, random_state=self.random_state)
        for name in ("components_", "mixing_", "mean_", "whitening_", "n_iter_", "n_features_in_"):
            setattr(peer, name, getattr(self, name))
        if hasattr(self, "feature_names_in_"):
            peer.feature_names_in_ = self.feature_names_in_
        peer._unmixing = self.components_
        return peer

    @classmethod
    def from_sklearn(cls, peer: Any, **parameters: Any) -> Self:
        """A fitted model with the unmixing of a fitted scikit-learn FastICA.

        Its sources come in the order and with the signs of this class; noise and kurtosis, which
        FastICA does not know, are NaN.

        Parameters
        ----------
        peer : FastICA with whitening, so that there is a mean to subtract
        parameters : of this class, n_components excepted
        """
        missing = [n for n in ("components_", "mixing_", "mean_") if not hasattr(peer, n)]
        if missing:
            raise InvalidInputError(
                f"peer must be a fitted FastICA with whitening, got {type(peer).__name__} without "
                f"{', '.join(missing)}"
            )
        mixing = np.asarray(peer.mixing_)
        model: Self = cls(n_components=mixing.shape[1], **parameters)
        model._check_parameters()
        model.n_features_in_ = mixing.shape[0]
        if hasattr(peer, "feature_names_in_"):
            model.feature_names_in_ = peer.feature_names_in_
        model._dtype = mixing.dtype
        largest = np.argmax(np.abs(mixing), axis=0)
        signs = np.where(mixing[largest, np.arange(mixing.shape[1])] < 0, -1.0, 1.0)
        order = component_order(np.linalg.norm(mixing, axis=0), (mixing * signs).T)
        model.mixing_ = np.ascontiguousarray((mixing * signs)[:, order], dtype=mixing.dtype)
        model.components_ = np.ascontiguousarray(
            (np.asarray(peer.components_) * signs[:, None])[order], dtype=mixing.dtype
        )
        model.mean_ = np.asarray(peer.mean_)
        model.whitening_ = np.asarray(getattr(peer, "whitening_", peer.components_))
        model.noise_variance_ = np.full(len(order), np.nan)
        model.kurtosis_ = np.full(len(order), np.nan)
        model.n_components_, model.n_iter_ = len(order), peer.n_iter_
        return model


def _read_sources(X: object, count: int) -> Any:
    if is_array(X) and not is_numpy(X):
        sources: Any = X
    else:
        try:
            sources = check_array(X, dtype=(np.float64, np.float32), input_name="X")
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
    if sources.ndim != 2 or sources.shape[1] != count:
        raise InvalidInputError(
            f"X has shape {tuple(sources.shape)}, sources of shape (n, {count}) were expected"
        )
    return sources
