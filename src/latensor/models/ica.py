"""Independent component analysis under Gaussian noise, from the fourth cumulant (monograph 4.3)."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from latensor.arrays import Array, RandomState, generator, is_array, is_numpy, one_blas_thread
from latensor.estimation.ica_certificate import ICACertificate, gaussian_kurtosis
from latensor.estimation.ica_polish import PolishedUnmixing
from latensor.estimation.ica_read_off import Unmixing, read_off
from latensor.estimation.ica_signal import Spectrum, count_sources, signal_space, spectrum
from latensor.estimation.moment_model import (
    ALGORITHM,
    N_JOBS,
    REFINE,
    component_order,
)
from latensor.estimation.parameters import Choice, Interval
from latensor.estimation.samples import in_library_of, project
from latensor.exceptions import InvalidInputError, NotIdentifiableError, RankDeficientError
from latensor.moments.fourth import MOST_DIRECTIONS, WHOLE, FourthMomentAccumulator
from latensor.moments.second import Covariance
from latensor.refinement.ica import gaussian_bound
from latensor.refinement.ica_dependence import MOST_ROWS, serial_dependence
from latensor.refinement.ica_pairs import Settled

# Products spent on the fourth moment: as a start for the polish, and where it is all there is.
_START_PRODUCTS, _MOST_PRODUCTS = 2e10, 2e11
_FEWEST_ROWS = 20_000
# Noise in a source, in units of its variance, above which its kurtosis must show it too.
_DROWNED = 4.0


class ICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PolishedUnmixing):  # type: ignore[misc]
    """Independent sources from their mixtures, under Gaussian noise or none (monograph 4.3).

    x = A h + z with independent, not Gaussian sources h (k,), a mixing matrix A (d, k) and
    Gaussian noise z. The fourth cumulant of x is sum_j kappa_j a_j^(x)4, kappa_j the excess
    kurtosis of h_j: noise of any covariance leaves it as it is. Sources above and below the
    kurtosis of a Gaussian may come together.

    The covariance is taken apart into signal and noise by the simplest noise it does not refute
    (equal in all sensors; of differing size; of any covariance), the cumulant of the whitened
    signal is diagonalized, and a likelihood-like polish that knows of the noise follows.

    Parameters
    ----------
    n_components : int, None (all directions in which the data varies) or "auto": the fewest
        sources whose remainder is noise; at most 64
    noise : "gaussian", or None for sensors without noise
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    refine : "auto", or the number of passes of the polish; 0 for moments only
    random_state : seed of the decomposition
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    components_ : (k, d), the unmixing: sources are (x - mean_) @ components_.T
    mixing_ : (d, k), A; columns by falling length, their entry of largest magnitude positive;
        components_ @ mixing_ is the identity
    mean_ : (d,)
    whitening_ : (k, d), coordinates of unit signal; components_ combines its rows, nearly by a
        rotation: independent sources are not quite uncorrelated in a sample
    noise_variance_ : (k,), noise in every source; NaN where its covariance is unknown
    kurtosis_ : (k,), excess kurtosis of every source
    n_components_, n_iter_ : int
    certificate_ : ICACertificate; names the sources that are not identifiable

    Notes
    -----
    Sources have variance one, the noise that the sensors add to them not counted; where its
    covariance is unknown, counted. `intervals` says how well the mixing is known; `to_sklearn` and
    `from_sklearn` convert to and from FastICA. Rows given to `fit` in the order of time may depend
    on each other: they then count for fewer. Sources whose energies go together are not
    independent, and are only rotated, whatever `noise` is. `partial_fit` keeps the fourth moment of
    up to 16 features whole, and of more along the leading directions of the first rows.
    """

    _parameters = {  # noqa: RUF012
        "n_components": (
            Interval(numbers.Integral, 1, MOST_DIRECTIONS),
            Choice((None, "auto")),
        ),
        "noise": (Choice(("gaussian", None)),),
        "algorithm": ALGORITHM,
        "refine": REFINE,
        "n_jobs": N_JOBS,
    }
    _read_off_names: ClassVar[frozenset[str]] = frozenset(
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

    def __init__(
        self,
        n_components: int | str | None = None,
        *,
        noise: str | None = "gaussian",
        algorithm: str | Callable[..., Any] = "auto",
        refine: int | str = "auto",
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.noise = noise
        self.algorithm = algorithm
        self.refine = refine
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _new_moments(self) -> FourthMomentAccumulator:
        d, wanted = self.n_features_in_, self.n_components
        if isinstance(wanted, numbers.Integral):
            rank = max(2 * int(wanted), int(wanted) + 8)
        else:
            rank = MOST_DIRECTIONS if wanted is None else 2 * WHOLE
        if wanted is None and d > MOST_DIRECTIONS:
            raise InvalidInputError(
                f"n_components=None asks for all {d} directions, a fourth moment holds at most "
                f"{MOST_DIRECTIONS}: give n_components"
            )
        return FourthMomentAccumulator(min(rank, d, MOST_DIRECTIONS), n_threads=self._n_threads())

    def _gather(self, batches: Iterable[tuple[Any, Any]]) -> FourthMomentAccumulator:
        """Moments with the fourth along the directions that hold the signal of all samples."""
        moments = self._new_moments()
        head = None
        for samples, weights in batches:
            moments.update_covariance(samples, weights)
            head = samples[:MOST_ROWS] if head is None else head
        known = moments.covariance.finalize(host=True)
        seen = self._spectrum(known)
        count = self._count(known, seen)
        self._lost = 1.0
        if self.noise is not None:
            self._lost = self._dependence(head, seen.vectors[:, :count])
        basis = self._basis_of(known, seen, count)
        moments.fix(basis, known.mean)
        n_products = ((basis.shape[1] + 1) * (basis.shape[1] + 2) // 2) ** 2
        affordable = (_START_PRODUCTS if self._refines() else _MOST_PRODUCTS) / n_products
        limit = max(int(affordable), _FEWEST_ROWS)
        for samples, weights in batches:
            if len(samples) == known.count > limit:
                rng = generator(self.random_state)
                chosen = np.sort(rng.choice(len(samples), limit, replace=False))
                part = None if weights is None else weights[chosen]
                moments.update_fourth(samples[chosen], part)
            else:
                moments.update_fourth(samples, weights)
        return moments

    def _dependence(self, samples: Any, directions: Any) -> float:
        """Samples in time that tell as much of the signal as one independent one."""
        with one_blas_thread():
            series = samples @ directions.astype(samples.dtype)
        return float(serial_dependence(series).mean())

    def _basis_of(self, known: Covariance, seen: Spectrum, count: int) -> Any:
        """The directions (d, r) along which the fourth moment of all samples is taken."""
        d = self.n_features_in_
        if d <= WHOLE or count == d:
            return np.eye(d)
        width = count
        if self.noise is not None and count < seen.rank:
            space = signal_space(known, seen, count)
            if space.kind != "unknown":
                return np.linalg.qr(space.projection)[0]
            width = min(max(2 * count, count + 8), seen.rank, MOST_DIRECTIONS)
        return np.ascontiguousarray(seen.vectors[:, :width])

    def _spectrum(self, known: Covariance) -> Spectrum:
        seen = spectrum(known.covariance, np.finfo(self._dtype).eps * self.n_features_in_)
        # A mean of equal numbers is off by rounding, and so is what it leaves of them.
        square = np.finfo(self._dtype).eps ** 2 * float((known.mean**2).max())
        if seen.rank == 0 or seen.values[0] <= square * self.n_features_in_:
            raise NotIdentifiableError(
                f"all {known.count} samples are equal: there is nothing to unmix; give samples "
                "that vary"
            )
        return seen

    def _count(self, known: Covariance, seen: Spectrum) -> int:
        wanted, d = self.n_components, self.n_features_in_
        if wanted == "auto":
            count = count_sources(known, seen) if self.noise is not None else seen.rank
            return min(count, MOST_DIRECTIONS)
        if wanted is None:
            return seen.rank
        count = int(wanted)
        if count > d:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_features={d} sensors: lower n_components"
            )
        if count > seen.rank:
            raise RankDeficientError(
                f"n_components={count} exceeds the {seen.rank} directions in which the "
                f"{known.count} samples vary: lower n_components or give more samples",
                seen.values,
                usable_rank=seen.rank,
            )
        return count

    def _read_off(self, moments: FourthMomentAccumulator) -> None:
        moment = moments.finalize()
        known = moments.covariance.finalize(host=True)
        seen = self._spectrum(known)
        count = self._count(known, seen)
        if count > moment.basis.shape[1]:
            raise InvalidInputError(
                f"the stream keeps {moment.basis.shape[1]} directions, {count} sources were "
                "found: give n_components"
            )
        rng = generator(self.random_state)
        noisy = self.noise is not None
        found = read_off(moment, seen, count, noisy, rng, self.algorithm, self._lost)
        self._moment = moment
        self._found = found
        self._adopt(found, None, 0)

    def _adopt(
        self, found: Unmixing, information: Any, n_iter: int, rest: Settled | None = None
    ) -> None:
        """Set the fitted attributes, sources in their fixed order and with fixed signs."""
        lengths = np.linalg.norm(found.mixing, axis=0)
        largest = np.argmax(np.abs(found.mixing), axis=0)
        signs = np.where(found.mixing[largest, np.arange(len(lengths))] < 0, -1.0, 1.0)
        mixing = found.mixing * signs
        order = component_order(lengths, mixing.T)
        kept = self._dtype
        self.components_ = np.ascontiguousarray((found.unmixing * signs[:, None])[order], kept)
        self.mixing_ = np.ascontiguousarray(mixing[:, order], kept)
        self.mean_ = self._moment.mean.astype(kept)
        self.whitening_ = np.ascontiguousarray(found.whitening, kept)
        self.noise_variance_ = np.diag(found.noise)[order].astype(kept)
        self.kurtosis_ = found.kurtosis[order].astype(kept)
        self.n_components_ = len(order)
        self.n_iter_ = n_iter
        energy = float("nan") if rest is None else rest.energy_correlation
        self._certify(found, order, None if information is None else information[order], energy)

    def _certify(self, found: Unmixing, order: Any, information: Any, energy: float) -> None:
        kurtosis, errors = found.kurtosis[order], found.kurtosis_error[order]
        interference = float("nan")
        if information is None:
            gaussian = np.abs(kurtosis) < gaussian_kurtosis(len(order)) * errors
        else:
            gaussian = information < gaussian_bound(len(order))
            # Where noise drowns a source, what the polish takes for information may be noise.
            drowned = np.diag(found.noise)[order] > _DROWNED
            weak = np.abs(kurtosis) < gaussian_kurtosis(len(order)) * errors
            gaussian = gaussian | (drowned & weak)
            first, second = np.triu_indices(len(order), 1)
            if len(first):
                pairs = np.maximum(information[first] + information[second], 1.0)
                interference = float(np.sqrt((1 / pairs).mean()))
        unit = found.mixing / np.linalg.norm(found.mixing, axis=0)
        variances = np.diag(self._moment.covariance)
        self.certificate_ = ICACertificate(
            n_components=len(order),
            n_features=self.n_features_in_,
            method="moments" if information is None else "moments + polish",
            noise=found.noise_kind,
            noise_p_value=found.p_value,
            noise_levels=tuple(float(v) for v in np.diag(found.noise)[order]),
            kurtosis=tuple(float(v) for v in kurtosis),
            kurtosis_errors=tuple(float(v) for v in errors),
            unidentifiable=tuple(int(j) for j in np.flatnonzero(gaussian)),
            off_diagonal=found.off_diagonal,
            interference=interference,
            energy_correlation=energy,
            condition=float(np.linalg.cond(unit)),
            constant_features=tuple(int(i) for i in np.flatnonzero(variances <= 0)),
        )

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
