"""Two Gaussians on a line from six moments, the first method of moments (monograph 1.1)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import RandomState, generator, is_array
from latensor.diagnostics.statements import BAD, CAUTION, GOOD, Statement
from latensor.estimation.findings import Findings, present
from latensor.estimation.intervals import (
    Estimates,
    matched,
    random_groups,
    state_estimates,
)
from latensor.estimation.mixture_model import MixtureModel
from latensor.estimation.mixture_polish import smallest_variance
from latensor.estimation.moment_model import N_JOBS, REFINE
from latensor.estimation.parameters import Choice, Interval
from latensor.estimation.pearson_roots import Root, central_from_sums, sixth_error, solve
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.rows import RowSample
from latensor.moments.univariate import SixMoments, SixMomentsAccumulator
from latensor.refinement.exponential_family import Climb, climb, held
from latensor.refinement.gaussian import GaussianState, SphericalFamily

# Roots tried by likelihood, the steps each is tried for, and the rows they are tried on.
_MOST_ROOTS = 4
_TRIAL_STEPS = 60
_ROWS_TO_TRY = 20_000
_MOST_STEPS = 1000
# A deviation whose sixth power is still a number.
_NARROWEST = 1e-50


@dataclass(frozen=True)
class PearsonCertificate(Findings):
    """How far two Gaussians on a line can be trusted; `print` it for plain words.

    Attributes
    ----------
    method : str, "moments", or the start of the polish that was kept, "moments + EM" or
        "split at the mean + EM"
    n_roots : int, admissible roots of Pearson's polynomial: mixtures that meet five moments
    sixth_error : float, how far the sixth moment is from that of the best root, in standard errors
    separation : float, distance of the means in units of the larger deviation
    gaussian_p_value : float, of one Gaussian, by skewness and kurtosis (Jarque and Bera)
    """

    method: str
    n_roots: int
    sixth_error: float
    separation: float
    gaussian_p_value: float = 0.0

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return f"two Gaussians on a line, by {self.method}"

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        return present(_roots(self), _separation(self), _shape(self))


def _roots(found: PearsonCertificate) -> Statement:
    if found.n_roots == 0:
        return Statement(
            "Moments",
            CAUTION,
            "no two Gaussians have the first five moments of these samples: the parameters come "
            "from likelihood. The samples are few, or no such mixture.",
        )
    many = "one mixture meets" if found.n_roots == 1 else f"{found.n_roots} mixtures meet"
    text = (
        f"{many} the first five moments; the sixth is {found.sixth_error:.2g} standard errors "
        "from the best."
    )
    if found.sixth_error < 4:
        return Statement("Moments", GOOD, text)
    return Statement("Moments", CAUTION, text + " The samples may not be two Gaussians.")


def _separation(found: PearsonCertificate) -> Statement:
    text = f"the means are {found.separation:.3g} deviations apart."
    if found.separation >= 1:
        return Statement("Separation", GOOD, text)
    if found.separation >= 0.3:
        return Statement("Separation", CAUTION, text + " Their shares are uncertain.")
    return Statement("Separation", BAD, text + " The two may be one of heavier tails.")


def _shape(found: PearsonCertificate) -> Statement:
    text = f"one Gaussian has a p-value of {found.gaussian_p_value:.2g} by skewness and kurtosis"
    if found.gaussian_p_value < 1e-3:
        return Statement("Shape", GOOD, f"{text}: the samples are not one.")
    return Statement("Shape", CAUTION, f"{text}: nothing in these samples asks for two.")


class PearsonMixture(MixtureModel):
    """Two Gaussians on a line, as Pearson took his crabs apart in 1894 (monograph 1.1).

    The first five moments leave a polynomial of degree nine, each of whose admissible roots is a
    mixture that meets them; the sixth moment chooses between them, and where samples are at hand
    the likelihood, after a few steps of expectation maximization from each.

    Parameters
    ----------
    n_components : 2
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only
    tol : float, gain of log-likelihood per sample that ends the polish
    reg_covar : float, added to both variances by the polish, as in scikit-learn
    random_state : seed of `sample` and of the rows that roots are tried on
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (2,), falling
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
    >>> from latensor.models.pearson import PearsonMixture
    >>> counts = [1, 3, 5, 2, 7, 10, 13, 19, 20, 25, 40, 31, 60, 62, 54,
    ...           74, 84, 86, 96, 85, 75, 47, 43, 24, 19, 9, 5, 0, 1]
    >>> crabs = PearsonMixture(refine=0).fit(np.arange(1, 30), sample_weight=counts)
    >>> crabs.means_.ravel().round(1), np.sqrt(crabs.covariances_).round(1)
    (array([19.3, 13.4]), array([3.1, 4.5]))
    >>> crabs.certificate_.n_roots  # as Pearson found: two mixtures, the sixth moment chooses
    2
    """

    _covariance_type: ClassVar[str] = "spherical"
    _min_samples: ClassVar[int] = 2
    _parameters = {  # noqa: RUF012
        "n_components": (Choice((2,)),),
        "refine": REFINE,
        "tol": (Interval(numbers.Real, 0),),
        "reg_covar": (Interval(numbers.Real, 0),),
        "n_jobs": N_JOBS,
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        refine: int | str = "auto",
        tol: float = 1e-9,
        reg_covar: float = 1e-6,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.refine = refine
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _read(
        self, X: object, sample_weight: object, *, reset: bool, min_samples: int = 1
    ) -> tuple[Any, Any]:
        return super()._read(_column(X), sample_weight, reset=reset, min_samples=min_samples)

    def _is_batch(self, value: Any) -> bool:
        line = getattr(value, "ndim", 0) == 1 and len(value) > 1
        return line or super()._is_batch(value)

    def _read_new(self, X: object) -> tuple[Any, Any]:
        result: tuple[Any, Any] = super()._read_new(_column(X))
        return result

    def _new_moments(self) -> SixMomentsAccumulator:
        if self.n_features_in_ != 1:
            raise InvalidInputError(
                f"X has {self.n_features_in_} features, Pearson's mixture lies on a line: give "
                "one column, or use SphericalGaussianMixture or DiagonalGaussianMixture"
            )
        return SixMomentsAccumulator()

    def _read_off(self, moments: SixMomentsAccumulator) -> None:
        known = moments.finalize()
        self._known = known
        # Equal numbers differ from their mean by rounding alone.
        if not known.central[2] > (8 * np.finfo(self._dtype).eps * known.mean) ** 2:
            raise NotIdentifiableError(
                f"all {known.count} samples are equal: two Gaussians need samples that vary"
            )
        if known.central[2] < _NARROWEST**2:
            raise InvalidInputError(
                f"X varies by no more than {known.central[2] ** 0.5:.3g}, and its sixth moment "
                "underflows: give the samples in a larger unit"
            )
        self._floor = smallest_variance(self.reg_covar, np.array([[known.central[2]]]))
        self._roots = solve(known)
        best = self._roots[0] if self._roots and self._roots[0].exact else None
        if best is None and not self._polish_follows:
            raise NotIdentifiableError(
                "no two Gaussians have the first five moments of these samples (Pearson's "
                "polynomial has no admissible root): give more samples, or leave refine at 'auto' "
                "and call fit, to go by likelihood"
            )
        if best is not None:
            self._adopt_moments(best.state)
            self._certify("moments")

    def _certify(self, method: str) -> None:
        exact = [root for root in self._roots if root.exact]
        gap = abs(float(self.means_[0, 0]) - float(self.means_[1, 0]))
        self.certificate_ = PearsonCertificate(
            method=method,
            n_roots=len(exact),
            sixth_error=sixth_error(exact[0], self._known) if exact else float("nan"),
            separation=gap / float(np.sqrt(self.covariances_.max())),
            gaussian_p_value=_gaussian_p_value(self._known),
        )

    def _polish(self, samples: Any, weights: Any) -> None:
        known = self._known
        unit = float(np.sqrt(known.central[2]))
        family = SphericalFamily(np.array([known.mean]), None, False, self._floor, unit)
        few = RowSample(_ROWS_TO_TRY).update(samples, weights)
        small = held(family.features(few.samples), few.weights)
        starts = [("moments", family.inside(root.state)) for root in self._roots[:_MOST_ROOTS]]
        starts.append(("split at the mean", _split(few.samples, few.weights, family)))
        if isinstance(self.refine, str):
            trials = [(name, self._climb(small, family, s, _TRIAL_STEPS)) for name, s in starts]
            name, best = max(trials, key=lambda trial: trial[1].log_likelihood)
            state, passes, tol = best.state, _MOST_STEPS, float(self.tol)
        else:
            name, state = starts[0]
            passes, tol = int(self.refine), -np.inf
        design = held(family.features(samples), weights)
        result = climb(
            design,
            family,
            state,
            max_iter=passes,
            tol=tol,
            accelerate=isinstance(self.refine, str),
            n_threads=self._n_threads(),
        )
        self._adopt(family.outside(result.state))
        self.lower_bound_, self.n_iter_ = result.log_likelihood, result.n_iter
        self.converged_ = result.converged
        self._certify(f"{name} + EM")

    def _climb(
        self, design: Any, family: SphericalFamily, state: GaussianState, passes: int
    ) -> Climb[GaussianState]:
        return climb(
            design, family, state, max_iter=passes, tol=self.tol, n_threads=self._n_threads()
        )

    def _full_family(self) -> tuple[SphericalFamily, GaussianState]:
        state = self._state()
        center = state.weights @ state.means
        family = SphericalFamily(center, None, False, 0.0, 1.0)
        return family, GaussianState(state.weights, state.means - center, state.variances)

    def _n_free_variances(self) -> int:
        return 2

    def _resampler(self, samples: Any, n_groups: int) -> Callable[[Any], Estimates]:
        numbers_ = samples[:, 0].astype(np.float64)
        center = float(numbers_.mean())
        groups = random_groups(len(numbers_), n_groups, generator(self.random_state))
        powers = (numbers_ - center) ** np.arange(7)[:, None]
        sums = np.stack([np.bincount(groups, weights=row, minlength=n_groups) for row in powers])
        fitted = self._state()

        def read(multiplicities: Any) -> Estimates:
            roots = solve(central_from_sums(sums @ multiplicities, center))
            found = state_estimates(_nearest(roots, fitted))
            return matched(found, state_estimates(fitted), "means")

        return read

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        return tags


def _gaussian_p_value(known: SixMoments) -> float:
    """The chance that numbers of one Gaussian are as skewed or peaked as these."""
    variance, third, fourth = known.central[2:5]
    skewness, kurtosis = third / variance**1.5, fourth / variance**2 - 3
    # Two degrees of freedom: the tail of chi squared is an exponential.
    return float(np.exp(-known.weight / 12 * (skewness**2 + kurtosis**2 / 4)))


def _nearest(roots: tuple[Root, ...], fitted: GaussianState) -> GaussianState:
    """Of the mixtures that the moments allow, the one whose means are nearest to the fitted ones.

    A resample whose moments allow none stays at the fitted parameters.
    """
    if not roots:
        return fitted
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
        array = np.asarray(X)
    else:
        return X
    return array.reshape((-1, 1)) if array.ndim == 1 else X


def _split(rows: Any, weights: Any, family: SphericalFamily) -> GaussianState:
    """The two halves on either side of the mean."""
    values = rows[:, 0] - family.center[0]
    sides = (values < 0, values >= 0)
    parts = []
    for side in sides:
        share = float(weights[side].sum())
        mean = float(weights[side] @ values[side]) / share if share > 0 else 0.0
        spread = float(weights[side] @ (values[side] - mean) ** 2) / share if share > 0 else 0.0
        parts.append((max(share, 1e-6 * float(weights.sum())), mean, spread + family.floor))
    shares, means, variances = (np.array(column) for column in zip(*parts, strict=True))
    return GaussianState(shares / shares.sum(), means[:, None], variances)
