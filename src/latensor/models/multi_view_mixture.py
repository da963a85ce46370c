"""Mixtures seen in three or more views that are independent given the component (monograph 4.3)."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.diagnostics.mixture_certificate import (
    DOUBTFUL_OFF_DIAGONAL,
    MixtureCertificate,
    smallest_separation,
)
from latensor.estimation.intervals import (
    NOT_NEGATIVE,
    PROBABILITY,
    Estimates,
    ParameterInterval,
    matched,
    random_groups,
)
from latensor.estimation.mixture_answers import MixtureAnswers
from latensor.estimation.moment_model import (
    ALGORITHM,
    N_COMPONENTS,
    N_JOBS,
    REFINE,
    component_order,
)
from latensor.estimation.parameters import Interval
from latensor.estimation.view_model import ViewModel
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.multi_view_read_off import (
    MultiViewReadOff,
    core_maps,
    count_components,
    read_off,
)
from latensor.moments.rows import row_hashes
from latensor.moments.views import (
    StreamedViewMoments,
    ViewCovariances,
    ViewMomentAccumulator,
    best_core,
    leading_directions,
)
from latensor.refinement.exponential_family import climb, joint_logs
from latensor.refinement.multi_view import ViewFamily, ViewState, search_views
from latensor.refinement.portfolio import plus_plus

_RESTARTS = 3
_MOST_STEPS = 200
_MOST_AUTOMATIC = 20
# Features held in memory during the polish; more are made anew in every pass.
_MOST_HELD = 50_000_000
# Samples looked at together until enough of them differ.
_ROWS_TO_COMPARE = 2048
# Share of the marginal in the probabilities that start the polish: none of them is zero.
_BLEND = 0.02


class MultiViewMixture(MixtureAnswers, DensityMixin, ViewModel):  # type: ignore[misc]
    """Clusters seen from several sides: conditional means of every view, and weights.

    Given the component the views are independent. Cross-covariances of three views turn them into
    one another, their third cross moment gives the components, and any further view follows
    linearly. A few steps of expectation maximization follow, in which the features of a view are
    independent too: Gaussian, or counts of symbols; k-means++ starts stand beside the moments.

    Parameters
    ----------
    n_components : int or "auto": one more than the correlations between views above their noise
    kinds : "auto", or "gaussian" or "categorical" per view; "auto" takes one-hot views, and
        views given as one integer per sample, as categorical
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only
    tol : float, gain of log-likelihood per sample that ends the polish
    reg_covar : float, added to every Gaussian variance by the polish
    random_state : seed of the decomposition and of the starts
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (k,), falling
    means_ : list of (k, d_t), the conditional means of every view; probabilities if categorical
    variances_ : list of (k, d_t)
    kinds_ : tuple of "gaussian" or "categorical"
    view_sizes_ : tuple of int, the widths d_t
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample; NaN for moments only
    certificate_ : MixtureCertificate
    """

    _parameters = {  # noqa: RUF012
        "n_components": N_COMPONENTS,
        "algorithm": ALGORITHM,
        "refine": REFINE,
        "tol": (Interval(numbers.Real, 0),),
        "reg_covar": (Interval(numbers.Real, 0),),
        "n_jobs": N_JOBS,
    }
    _read_off_names: ClassVar[frozenset[str]] = frozenset(
        {
            "weights_",
            "means_",
            "variances_",
            "n_components_",
            "certificate_",
            "lower_bound_",
            "n_iter_",
            "converged_",
        }
    )
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "weights": PROBABILITY,
        "variances": NOT_NEGATIVE,
    }
    _takes_sparse: ClassVar[bool] = True
    _row_limit: ClassVar[int] = 5000

    def __init__(
        self,
        n_components: int | str = 2,
        *,
        kinds: str | Sequence[str] = "auto",
        algorithm: str | Callable[..., Any] = "auto",
        refine: int | str = "auto",
        tol: float = 1e-6,
        reg_covar: float = 1e-6,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kinds = kinds
        self.algorithm = algorithm
        self.refine = refine
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _new_moments(self) -> StreamedViewMoments:
        wanted = self.n_components
        count = _MOST_AUTOMATIC if isinstance(wanted, str) else int(wanted)
        return StreamedViewMoments(max(2 * count, count + 20))

    def _gather(self, batches: Iterable[tuple[Any, Any]]) -> StreamedViewMoments:
        """Moments with the third along the maps that all samples show."""
        known, sparse = ViewCovariances(), [False] * len(self.view_sizes_)
        for views, weights in batches:
            known.update(views, weights)
            sparse = [scipy.sparse.issparse(view) for view in views]
        core = best_core(known, max(self._wanted() - 1, 1))
        count = self._count(known, core)
        if self._readable(count, core):
            maps = core_maps(known, core, count - 1)[0]
            frames = [np.linalg.qr(each)[0] for each in maps]
        else:
            frames = [np.zeros((self.view_sizes_[t], 0)) for t in core]
        accumulator = ViewMomentAccumulator(core, frames, _centers(known, sparse))
        accumulator.covariances = known
        for views, weights in batches:
            accumulator.update_third(views, weights)
        return self._new_moments().fix(accumulator)

    def _wanted(self) -> int:
        return 2 if isinstance(self.n_components, str) else int(self.n_components)

    def _readable(self, count: int, core: tuple[int, int, int]) -> bool:
        return count - 1 <= min(self.view_sizes_[t] for t in core)

    def _count(self, known: ViewCovariances, core: tuple[int, int, int]) -> int:
        if isinstance(self.n_components, str):
            return count_components(known, core)
        count = int(self.n_components)
        if count > known.count:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_samples={known.count} given: lower "
                "n_components or give more samples"
            )
        return count

    def _read_off(self, moments: StreamedViewMoments) -> None:
        known, summed = moments.covariances, moments.finalize()
        count = self._count(known, summed.core)
        found = None
        if self._readable(count, summed.core):
            rng = generator(self.random_state)
            found = read_off(summed, known, count, self.kinds_, rng, self.algorithm)
        if not self._polish_follows:
            self._refuse_unidentified(found, count)
        self._start, self._known = (count, found), known
        if found is not None:
            self._adopt(found.state)
            self.lower_bound_, self.n_iter_, self.converged_ = float("nan"), 0, True
            self.certificate_ = self._certify(found, "moments")

    def _refuse_unidentified(self, found: MultiViewReadOff | None, count: int) -> None:
        narrowest = min(self.view_sizes_)
        if found is None:
            raise NotIdentifiableError(
                f"n_components={count} means in views of {self.view_sizes_} features are not "
                "determined by cross moments (their condition number is infinite): at most "
                f"{narrowest + 1} are. Leave refine at 'auto' to fit them by likelihood, or lower "
                "n_components"
            )
        if count > 1 and found.gap < 1:
            raise NotIdentifiableError(
                f"n_components={count}: the views do not show that many as far as these samples "
                f"can tell (condition number {found.condition:.3g}, weakest correlation "
                f"{found.gap:.2g} times what noise gives): lower n_components, give more "
                "samples, or leave refine at 'auto' to fit by likelihood"
            )

    def _adopt(self, state: ViewState) -> None:
        order = component_order(state.weights, np.hstack(state.means))
        kept = self._dtype
        self.weights_ = state.weights[order].astype(kept)
        self.means_ = [each[order].astype(kept) for each in state.means]
        self.variances_ = [each[order].astype(kept) for each in state.variances]
        self.n_components_ = len(order)

    def _certify(self, found: MultiViewReadOff | None, method: str) -> MixtureCertificate:
        unknown = float("nan")
        means = np.hstack(self.means_)
        deviations = np.sqrt(np.maximum(np.hstack(self.variances_), 1e-12))
        return MixtureCertificate(
            n_components=self.n_components_,
            n_features=self.n_features_in_,
            method=method,
            off_diagonal=found.off_diagonal if found is not None else unknown,
            condition=found.condition if found is not None else float("inf"),
            gap=found.gap if found is not None else unknown,
            separation=smallest_separation(means, deviations),
            constant_features=tuple(
                int(i) for i in np.flatnonzero(np.concatenate(self._known.variances) <= 0)
            ),
        )

    def _family(self, centers: list[Any], scales: list[Any]) -> ViewFamily:
        floors = [np.maximum(float(self.reg_covar), 1e-100) / scale**2 for scale in scales]
        return ViewFamily(self.kinds_, tuple(centers), tuple(scales), tuple(floors), 1e-3)

    def _polish(self, samples: Any, weights: Any) -> None:
        count, found = self._start
        known = self._known
        self._refuse_copies(samples, count)
        scales = [np.sqrt(np.where(v > 0, v, 1.0)) for v in known.variances]
        family = self._family(known.means, scales)
        n_rows, width = samples[0].shape[0], 2 * self.n_features_in_ + 1
        design = family.design(samples, weights, hold=n_rows * width <= _MOST_HELD)
        n_threads = self._n_threads()
        starts = [] if found is None else [self._blended(found.state)]
        automatic = isinstance(self.refine, str)
        doubtful = found is None or (count > 1 and found.off_diagonal >= DOUBTFUL_OFF_DIAGONAL)
        doubtful = doubtful or (found is not None and found.gap < 2)
        centers = []
        named = "moments"
        if found is None or (automatic and doubtful):
            rng = generator(self.random_state)
            rows = design.block(0, n_rows)[:, family.distances()]
            masses = np.ones(n_rows) if weights is None else weights
            centers = [plus_plus(rows, masses, count, rng) for _ in range(_RESTARTS)]
        if centers:
            chosen = search_views(design, family, starts, centers, n_threads)
            state, named = chosen.state, chosen.start
        else:
            state = starts[0]
        climbed = climb(
            design,
            family,
            state,
            max_iter=_MOST_STEPS if automatic else int(self.refine),
            tol=self.tol if automatic else -np.inf,
            accelerate=False,
            n_threads=n_threads,
        )
        self._adopt(climbed.state)
        self.lower_bound_ = climbed.log_likelihood
        self.n_iter_, self.converged_ = climbed.n_iter, climbed.converged
        self.certificate_ = self._certify(found, f"{named} + EM")

    def _refuse_copies(self, samples: Any, count: int) -> None:
        """An error where there are fewer different samples than components."""
        distinct: set[int] = set()
        n_rows = self._n_rows(samples)
        for start in range(0, n_rows, _ROWS_TO_COMPARE):
            block = [view[start : start + _ROWS_TO_COMPARE] for view in samples]
            distinct.update(row_hashes(self._as_rows(block)).tolist())
            if len(distinct) >= count:
                return
        raise InvalidInputError(
            f"n_components={count} exceeds the {len(distinct)} distinct samples of {n_rows}: "
            "lower n_components or give more samples"
        )

    def _blended(self, state: ViewState) -> ViewState:
        """A start in which no probability and no variance is zero."""
        means, variances = [], []
        for t, kind in enumerate(self.kinds_):
            mean, variance = state.means[t], state.variances[t]
            if kind == "categorical":
                marginal = state.weights @ mean
                mean = (1 - _BLEND) * mean + _BLEND * (marginal + 1e-6) / (marginal + 1e-6).sum()
            means.append(mean)
            variances.append(np.maximum(variance, max(float(self.reg_covar), 1e-100)))
        return ViewState(state.weights, means, variances)

    def _estimates(self) -> Estimates:
        return {
            "weights": np.asarray(self.weights_, dtype=np.float64),
            "means": np.hstack(self.means_).astype(np.float64),
            "variances": np.hstack(self.variances_).astype(np.float64),
        }

    def _presented(self, found: dict[str, ParameterInterval]) -> dict[str, ParameterInterval]:
        for name in ("means", "variances"):
            ends = []
            for each in (found[name].low, found[name].high):
                views = self._from_rows(each)
                # Probabilities of symbols, and their variances, lie between 0 and 1.
                ends.append(
                    [
                        np.clip(view, *PROBABILITY) if kind == "categorical" else view
                        for kind, view in zip(self.kinds_, views, strict=True)
                    ]
                )
            found[name] = ParameterInterval(*ends)
        return found

    def _resampler(self, samples: Any, n_groups: int) -> Callable[[Any], Estimates]:
        count, rng = int(self.n_components_), generator(self.random_state)
        known = ViewCovariances().update(samples)
        core = best_core(known, max(count - 1, 1))
        if not self._readable(count, core):
            raise NotIdentifiableError(
                f"{count} components in views of {self.view_sizes_} features have no intervals "
                "from cross moments, which do not determine them"
            )
        width = max(2 * count, count + 20)
        frames = [leading_directions(known, core, t, width) for t in core]
        sparse = [scipy.sparse.issparse(view) for view in samples]
        empty = ViewMomentAccumulator(core, frames, _centers(known, sparse))
        groups = random_groups(self._n_rows(samples), n_groups, generator(self.random_state))
        parts = [empty.spawn().update([v[groups == g] for v in samples]) for g in range(n_groups)]
        fitted = self._estimates()

        def read(multiplicities: Any) -> Estimates:
            total = empty.spawn()
            for part, number in zip(parts, multiplicities.tolist(), strict=True):
                if number > 0:
                    total.merge(part.scaled(number))
            moments, resampled = total.finalize(), total.covariances
            state = read_off(moments, resampled, count, self.kinds_, rng, self.algorithm).state
            found = {
                "weights": state.weights,
                "means": np.hstack(state.means),
                "variances": np.hstack(state.variances),
            }
            return matched(found, fitted, "means")

        return read

    def _n_parameters(self) -> int:
        free = [
            2 * width if kind == "gaussian" else width - 1
            for kind, width in zip(self.kinds_, self.view_sizes_, strict=True)
        ]
        count = int(self.n_components_)
        return count - 1 + count * sum(free)

    def _joint_logs(self, X: object) -> tuple[Any, Any]:
        views, _ = self._read_new(X)
        state = ViewState(
            np.asarray(self.weights_, dtype=np.float64),
            [np.asarray(each, dtype=np.float64) for each in self.means_],
            [np.asarray(each, dtype=np.float64) for each in self.variances_],
        )
        state = self._blended(state) if self.n_iter_ == 0 else state
        centers = [state.weights @ each for each in state.means]
        scales = [
            np.sqrt(np.maximum(state.weights @ (v + (m - c) ** 2), 1e-100))
            for m, v, c in zip(state.means, state.variances, centers, strict=True)
        ]
        family = self._family(centers, scales)
        design = family.design(views, None, hold=False)
        logs = joint_logs(design, family.natural(state), self._n_threads())
        return logs, logs

    def sample(self, n_samples: int = 1) -> tuple[list[Any], Any]:
        """Views drawn from the mixture, one symbol in each categorical one, and components (n,)."""
        check_is_fitted(self)
        n_samples = check_positive_int(n_samples, "n_samples")
        rng = generator(self.random_state)
        shares = np.asarray(self.weights_, dtype=np.float64)
        counts = rng.multinomial(n_samples, shares / shares.sum())
        labels = np.repeat(np.arange(self.n_components_), counts)
        views = []
        for kind, mean, variance in zip(self.kinds_, self.means_, self.variances_, strict=True):
            if kind == "gaussian":
                noise = rng.standard_normal((n_samples, mean.shape[1]))
                views.append((mean[labels] + noise * np.sqrt(variance[labels])).astype(mean.dtype))
            else:
                bounds = np.cumsum(mean, axis=1)[labels]
                symbols = (rng.random((n_samples, 1)) * bounds[:, -1:] > bounds).sum(axis=1)
                views.append(np.eye(mean.shape[1], dtype=mean.dtype)[symbols])
        return views, labels


def _centers(known: ViewCovariances, sparse: list[bool]) -> list[Any]:
    """What is subtracted before third powers: nothing from sparse views, which stay sparse."""
    return [
        np.zeros_like(mean) if thin else mean
        for mean, thin in zip(known.means, sparse, strict=True)
    ]
