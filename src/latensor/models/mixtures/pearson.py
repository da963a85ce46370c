"""Two Gaussians on a line from six moments, the first method of moments (monograph 1.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import is_array, read_numpy
from latensor.diagnostics.design import unconverged
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Findings, Said, finding
from latensor.diagnostics.fit import UNKNOWN_FIT, fit_closing, fit_finding
from latensor.estimation.model import Answer, Frame, Search, Start
from latensor.estimation.parameters import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    Choice,
    RefinementParameters,
    parameter,
)
from latensor.estimation.row_input import read_new, row_source
from latensor.estimation.run import Run
from latensor.estimation.sample_source import as_batches, is_weighted_matrix
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.mixtures.gaussian_base import (
    GaussianMixtureModel,
    MomentMixture,
)
from latensor.models.mixtures.goodness_of_fit import misfit
from latensor.models.mixtures.pearson_roots import Root, sixth_error, solve
from latensor.moments.batch import Batch
from latensor.moments.sums import Folded, Joint
from latensor.moments.univariate import PowerSums, SixMoments
from latensor.refinement.em import em
from latensor.refinement.families.covariances import SPHERICAL
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.sources.partitions import Partitioned
from latensor.sources.passes import over
from latensor.sources.shards import Source
from latensor.value_files import storable

# Roots tried by likelihood, and the steps each is tried for.
_MOST_ROOTS = 4
_TRIAL_STEPS = 60
# Standard deviations whose squares are still numbers.
_SCALES = (1e-140, 1e150)


@storable
@dataclass(frozen=True)
class PearsonCertificate(Findings):
    """How far two Gaussians on a line can be trusted; `print` it for plain words.

    Attributes
    ----------
    method : str, "moments", or the start of the refinement: "moments + EM", or another one where
        the moments give none
    n_roots : int, admissible roots of Pearson's polynomial: mixtures that meet five moments
    sixth_error : float, how far the sixth moment is from that of the best root, in standard errors
    separation : float, distance of the means in units of the larger standard deviation
    gaussian_p_value : float, of one Gaussian, by skewness and kurtosis (Jarque and Bera)
    misfit, converged : as in `MixtureCertificate`
    """

    method: str
    n_roots: int
    sixth_error: float
    separation: float
    gaussian_p_value: float = 0.0
    misfit: tuple[float, int, float] = UNKNOWN_FIT
    converged: bool = True
    _apart: ClassVar[frozenset[str]] = frozenset({"Fit"})

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return f"two Gaussians on a line, by {'moments' if self.method == 'moments' else 'EM'}"

    @property
    def closing(self) -> str:
        """What follows the verdict."""
        return fit_closing(self.misfit)

    @finding("Moments")
    def _roots(self) -> Said:
        if self.n_roots == 0:
            return CAUTION, (
                "no two Gaussians have the first five moments of these samples: the parameters "
                "come from likelihood. The samples are few, or no such mixture."
            )
        many = "one mixture meets" if self.n_roots == 1 else f"{self.n_roots} mixtures meet"
        text = (
            f"{many} the first five moments; the sixth is {self.sixth_error:.2g} standard errors "
            "from the best."
        )
        if self.sixth_error < 4:
            return GOOD, text
        return CAUTION, text + " The samples may not be two Gaussians."

    @finding("Separation")
    def _separation(self) -> Said:
        text = f"the means are {self.separation:.3g} standard deviations apart."
        if self.separation >= 1:
            return GOOD, text
        if self.separation >= 0.3:
            return CAUTION, text + " Their fractions are uncertain."
        return BAD, text + " The two may be one of heavier tails."

    @finding("Shape")
    def _shape(self) -> Said:
        text = f"one Gaussian has a p-value of {self.gaussian_p_value:.2g} by skewness and kurtosis"
        if self.gaussian_p_value < 1e-3:
            return GOOD, f"{text}: the samples are not one."
        return CAUTION, f"{text}: nothing in these samples asks for two."

    @finding("Convergence")
    def _convergence(self) -> Said | None:
        return unconverged(self.converged)

    @finding("Fit")
    def _fit(self) -> Said | None:
        return fit_finding(self.misfit)


@dataclass(frozen=True)
class PearsonModel(GaussianMixtureModel):
    """What six moments of numbers on a line say about two Gaussians."""

    is_single: bool = False
    tol: float = 1e-9

    def survey(self, run: Run, streaming: bool) -> Frame:
        centre, unit = _centre_and_unit(run.source.head())
        powers = run.fold("powers", PowerSums(centre, unit))
        known = powers.finalize()
        deviation = float(np.sqrt(max(known.central[2], 0.0))) * known.unit
        if not deviation > self.rounding * abs(known.mean):
            raise NotIdentifiableError(
                f"all {known.count} samples are equal: two Gaussians need samples that vary"
            )
        if not _SCALES[0] < deviation < _SCALES[1]:
            way, size = ("over", "smaller") if deviation > 1 else ("under", "larger")
            raise InvalidInputError(
                f"X varies by {deviation:.3g}, and its square {way}flows: give the samples in a "
                f"{size} unit"
            )
        values = {
            "centre": np.array([known.mean]),
            "unit": deviation,
            "count": 2,
            "family": GaussianFamily.of(
                SPHERICAL, np.array([known.mean]), np.array([[deviation**2]]), self.reg_covar
            ),
        }
        return Frame(
            values, {"powers": powers.recentred(known.mean, deviation)}, float(known.count)
        )

    @property
    def rounding(self) -> float:
        """Equal numbers differ from their mean by no more than so much of it."""
        return 8 * float(np.finfo(np.float32 if self.is_single else np.float64).eps)

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {"powers": PowerSums(float(frame["centre"][0]), frame["unit"])}

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[MixtureState]:
        known = moments["powers"].finalize()
        roots = solve(known)
        evidence = {"roots": roots, "known": known}
        if not roots or not roots[0].exact:
            return Answer(None, evidence, doubtful=True)
        return Answer(frame["family"].inside(roots[0].state), evidence, doubtful=True)

    def read_near(
        self, frame: Frame, moments: Joint, rng: np.random.Generator, state: MixtureState
    ) -> Answer[MixtureState]:
        # Noise may make another root the best; it is another optimum, not the spread of this one.
        roots = solve(moments["powers"].finalize())
        if not roots:
            return Answer(None)
        family = frame["family"]
        return Answer(family.inside(_nearest(roots, family.outside(state))))

    def check_moments(self, frame: Frame, answer: Answer[MixtureState]) -> None:
        if answer.state is None:
            raise NotIdentifiableError(
                "no two Gaussians have the first five moments of these samples (Pearson's "
                "polynomial has no admissible root): give more samples, or leave refine at 'auto' "
                "to go by likelihood"
            )

    def search(self, frame: Frame, search_: Search[MixtureState]) -> Start[MixtureState]:
        roots = search_.evidence["roots"][:_MOST_ROOTS]
        starts = [frame["family"].inside(root.state) for root in roots]
        if not starts:
            return super().search(frame, search_)
        if not search_.to_convergence:
            return Start(starts[0])
        fold, family = search_.fold, search_.family
        tried = (
            em(fold, family, state, max_iter=_TRIAL_STEPS, tol=self.tol, prepared=True)
            for state in starts
        )
        return Start(max(tried, key=lambda each: each.log_likelihood).state)

    def review(
        self, frame: Frame, search_: Search[MixtureState], answer: Answer[MixtureState]
    ) -> None:
        return None

    def evidence(
        self, frame: Frame, search_: Search[MixtureState], answer: Answer[MixtureState]
    ) -> dict[str, Any]:
        order = partial(self.order, frame)
        return {"misfit": misfit(frame["family"], search_.sample, answer, order)}


@dataclass(eq=False, repr=False)
class PearsonMixture(RefinementParameters, MomentMixture):
    """Two Gaussians on a line, as Pearson took his crabs apart in 1894 (monograph 1.1).

    The first five moments leave a polynomial of degree nine, each of whose admissible roots is a
    mixture that meets them; the sixth moment chooses between them, and where samples are at hand
    the likelihood, after a few steps of expectation maximization from each.

    Parameters
    ----------
    n_components : 2
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only
    tol : float, log-likelihood per sample that EM may leave to gain
    reg_covar : float, added to both variances by EM; in the squared unit of X, at most that
        fraction of its variance
    max_iter : int, passes of EM over the sample in memory
    random_state : seed of `sample` and of the rows that roots are tried on
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (2,), decreasing
    means_ : (2, 1)
    covariances_ : (2,), the variances; scikit-learn's "spherical" shape
    precisions_, precisions_cholesky_ : (2,)
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample of the last pass; NaN for moments only
    certificate_ : PearsonCertificate

    Examples
    --------
    The ratio of forehead to body length of 1000 crabs of Naples, counted in 29 classes 0.004 wide
    (W. F. R. Weldon; K. Pearson, Phil. Trans. R. Soc. A 185, 1894). Numbers are classes.

    >>> import numpy as np
    >>> from latensor.models.mixtures.pearson import PearsonMixture
    >>> counts = [1, 3, 5, 2, 7, 10, 13, 19, 20, 25, 40, 31, 60, 62, 54,
    ...           74, 84, 86, 96, 85, 75, 47, 43, 24, 19, 9, 5, 0, 1]
    >>> crabs = PearsonMixture(refine=0).fit(np.arange(1, 30), sample_weight=counts)
    >>> crabs.means_.ravel().round(1), np.sqrt(crabs.covariances_).round(1)
    (array([19.3, 13.4]), array([3.1, 4.5]))
    >>> crabs.certificate_.n_roots  # as Pearson found: two mixtures, the sixth moment chooses
    2
    """

    n_components: int = parameter(2, Choice((2,)))
    _: KW_ONLY
    reg_covar: float = parameter(1e-6, AT_LEAST_ZERO)
    tol: float = parameter(1e-9, AT_LEAST_ZERO)
    max_iter: int = parameter(1000, AT_LEAST_ONE)

    _covariance_type = SPHERICAL

    def _model(self) -> PearsonModel:
        single = np.dtype(self._dtype) == np.float32
        return PearsonModel(2, self.reg_covar, 1, self._row_limit, is_single=single, tol=self.tol)

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        batches = as_batches(X, _is_batch)
        given: Any
        if isinstance(X, Partitioned):
            given = X
        elif batches is None:
            given = _column(X)
        elif isinstance(batches, list | tuple):
            given = over(batches, _column_of)
        else:
            given = _Columns(batches)
        source = row_source(self, given, sample_weight, reset=reset)
        if self.n_features_in_ != 1:
            raise InvalidInputError(
                f"X has {self.n_features_in_} features, Pearson's mixture lies on a line: give "
                "one column, or use SphericalGaussianMixture or DiagonalGaussianMixture"
            )
        return source

    def _read_new(self, X: object) -> tuple[Any, Any]:
        check_is_fitted(self)
        return read_new(self, _column(X))

    def _certificate(self, answer: Answer[Any], fitted: dict[str, Any]) -> PearsonCertificate:
        known = answer.evidence["known"]
        exact = [root for root in answer.evidence["roots"] if root.exact]
        gap = abs(float(fitted["means_"][0, 0]) - float(fitted["means_"][1, 0]))
        return PearsonCertificate(
            method="moments" if answer.statistics is None else f"{answer.start} + EM",
            n_roots=len(exact),
            sixth_error=sixth_error(exact[0], known) if exact else float("nan"),
            separation=gap / float(np.sqrt(fitted["covariances_"].max())),
            gaussian_p_value=_gaussian_p_value(known),
            misfit=answer.evidence.get("misfit", UNKNOWN_FIT),
            converged=answer.statistics is None or answer.converged,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        return tags


def _centre_and_unit(head: Batch) -> tuple[float, float]:
    """Mean and standard deviation of a first block, or what else is near its numbers."""
    numbers_ = head.rows[:, 0].astype(np.float64)
    largest = float(np.abs(numbers_).max()) or 1.0
    scaled = numbers_ / largest
    centre = float(head.weights @ scaled) / head.weight
    unit = float(np.sqrt(head.weights @ (scaled - centre) ** 2 / head.weight))
    return centre * largest, (unit or 1.0) * largest


def _gaussian_p_value(known: SixMoments) -> float:
    """The chance that numbers of one Gaussian are as skewed or peaked as these."""
    variance, third, fourth = known.central[2:5]
    skewness, kurtosis = third / variance**1.5, fourth / variance**2 - 3
    # Two degrees of freedom: the tail of chi squared is an exponential.
    return float(np.exp(-known.weight / 12 * (skewness**2 + kurtosis**2 / 4)))


def _nearest(roots: tuple[Root, ...], fitted: MixtureState) -> MixtureState:
    """Of the mixtures that the moments allow, that whose means are nearest to the fitted ones."""
    known = np.sort(fitted.means[:, 0])
    return min(
        (root.state for root in roots),
        key=lambda state: float(np.abs(np.sort(state.means[:, 0]) - known).sum()),
    )


def _column(X: object) -> object:
    """Numbers on a line as one column; anything else as it is."""
    if scipy.sparse.issparse(X):
        raise InvalidInputError(
            "PearsonMixture needs dense data, X is sparse: give X.toarray() of one column"
        )
    if is_array(X):
        array: Any = X
    elif isinstance(X, list | tuple) or hasattr(X, "__array__"):
        array = read_numpy(X, "X")
    else:
        return X
    return array.reshape((-1, 1)) if array.ndim == 1 else X


def _is_batch(value: Any) -> bool:
    line = getattr(value, "ndim", 0) == 1 and len(value) > 1
    pair = isinstance(value, list | tuple) and len(value) == 2 and hasattr(value[0], "ndim")
    return line or pair or is_weighted_matrix(value)


def _column_of(batch: Any) -> Any:
    """A batch, or a pair of one and its weights, as a column."""
    if isinstance(batch, list | tuple):
        return _column(batch[0]), batch[1]
    return _column(batch)


@dataclass(frozen=True)
class _Columns:
    """Batches of numbers as columns, made anew in every pass."""

    batches: Any

    def __iter__(self) -> Iterator[Any]:
        return map(_column_of, self.batches)
