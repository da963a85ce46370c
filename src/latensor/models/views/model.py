"""What cross moments and likelihood of several views say about a mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.diagnostics.mixture_certificate import DOUBTFUL_OFF_DIAGONAL
from latensor.estimation.base import component_order
from latensor.estimation.halves import select_by_halves
from latensor.estimation.model import Answer, Effort, Frame, Model, Search, Start
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.views.family import ViewDensities, ViewFamily, ViewState
from latensor.models.views.read_off import core_maps, read_off
from latensor.moments.batch import Batch, Kind
from latensor.moments.rows import row_hashes
from latensor.moments.sums import Folded, Joint
from latensor.moments.views import (
    Core,
    ViewCovariances,
    ViewCovarianceSums,
    ViewThirdSums,
    best_core,
    centres_of,
    leading_directions,
    standardized,
)
from latensor.refinement.mixture_search import search
from latensor.refinement.mixture_starts import plus_plus

_RESTARTS = 3
# Below this many times the noise of a correlation, starts stand beside the moments.
_DOUBTFUL_GAP = 2.0
# Fraction of the marginal in the probabilities that start EM: none of them is zero.
_BLEND = 0.02
# Samples looked at together until enough of them differ.
_ROWS_TO_COMPARE = 2048
# Standard deviations whose sixth powers are numbers: squares of third moments, in their norms.
_NARROWEST = 1e-51


@dataclass(frozen=True)
class ViewMixtureModel(Model[ViewState]):
    """The settings of a mixture of views."""

    n_components: int | str
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]
    reg_covar: float
    sample_limit: int
    algorithm: str | Callable[..., Any]
    kind: ClassVar[Kind] = Kind.VIEWS
    pilot_size: ClassVar[int] = 20_000

    def select(self, run: Run, effort: Effort) -> Selection | None:
        automatic = isinstance(self.n_components, str)
        return select_by_halves(run, self, effort) if automatic else None

    def survey(self, run: Run, streaming: bool) -> Frame:
        head = run.source.head()
        summed = run.fold("covariances", ViewCovarianceSums(centres_of(head)))
        known = summed.finalize()
        count = self._count(known, head)
        core = best_core(known, max(count - 1, 1))
        centres = tuple(
            centre if scipy.sparse.issparse(view) else mean
            for view, centre, mean in zip(head.parts, summed.centres, known.means, strict=True)
        )
        scales = tuple(standardized(known)[0])
        values = {
            "centres": centres,
            "core": core,
            "frames": self._frames(known, core, count, streaming),
            "count": count,
            "means": tuple(known.means),
            "scales": scales,
            "floors": tuple(
                np.maximum(self.reg_covar * np.minimum(1 / s**2, 1.0), 1e-100) for s in scales
            ),
        }
        return Frame(values, {"covariances": summed.recentred(centres)}, float(known.count))

    def _count(self, known: ViewCovariances, head: Batch) -> int:
        count = int(self.n_components)
        if count > known.count:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_samples={known.count} given: lower "
                "n_components or give more samples"
            )
        spread = float(np.sqrt(max(float(v.max()) for v in known.variances)))
        if count > 1 and spread < _NARROWEST and _varies(head):
            raise InvalidInputError(
                f"X varies by no more than {_NARROWEST:g}, and its third moment underflows: give "
                "the samples in a larger unit"
            )
        return count

    def _frames(
        self, known: ViewCovariances, core: Core, count: int, streaming: bool
    ) -> tuple[Array, ...]:
        if streaming:
            rank = max(2 * count, count + 20)
            return tuple(leading_directions(known, core, t, rank) for t in core)
        if not self.readable(count, core):
            return tuple(np.zeros((self.sizes[t], 0)) for t in core)
        return tuple(np.linalg.qr(each)[0] for each in core_maps(known, core, count - 1)[0])

    def readable(self, count: int, core: Core) -> bool:
        """Whether cross moments of three views determine so many components."""
        return count - 1 <= min(self.sizes[t] for t in core)

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {
            "covariances": ViewCovarianceSums(frame["centres"]),
            "third": ViewThirdSums(frame["centres"], frame["core"], frame["frames"]),
        }

    def read_off(self, frame: Frame, moments: Joint, rng: np.random.Generator) -> Answer[ViewState]:
        known, count = moments["covariances"].finalize(), frame["count"]
        constant = np.flatnonzero(np.concatenate(known.variances) <= 0)
        evidence: dict[str, Any] = {"found": None, "constant": tuple(map(int, constant))}
        if not self.readable(count, frame["core"]):
            return Answer(None, evidence, doubtful=True)
        found = read_off(moments["third"].central(known), count, self.kinds, rng, self.algorithm)
        return Answer(found.state, {**evidence, "found": found}, doubtful=True)

    def check_moments(self, frame: Frame, answer: Answer[ViewState]) -> None:
        found, count = answer.evidence["found"], frame["count"]
        if found is None:
            raise NotIdentifiableError(
                f"n_components={count} means in views of {self.sizes} features are not "
                "determined by cross moments (their condition number is infinite): at most "
                f"{min(self.sizes) + 1} are. Leave refine at 'auto' to fit them by likelihood, or "
                "lower n_components"
            )
        if count > 1 and found.gap < 1:
            raise NotIdentifiableError(
                f"n_components={count}: the views do not show that many as far as these samples "
                f"can tell (condition number {found.condition:.3g}, weakest correlation "
                f"{found.gap:.2g} times what noise gives): lower n_components, give more "
                "samples, or leave refine at 'auto' to fit by likelihood"
            )

    def densities(self, frame: Frame) -> ViewDensities:
        """The family, standardized by the moments."""
        return ViewDensities(self.kinds, frame["means"], frame["scales"], frame["floors"])

    def family(self, frame: Frame) -> ViewFamily:
        return ViewFamily(self.densities(frame))

    def log_density(self, frame: Frame, state: ViewState, units: Batch) -> Array:
        # A symbol that a half has not seen is not impossible.
        return super().log_density(frame, blended(state, self.kinds), units)

    def sample_size(self, frame: Frame) -> int:
        width = self.densities(frame).width
        return self.rows_in_memory(self.sample_limit, width)

    def search(self, frame: Frame, search_: Search[ViewState]) -> Start[ViewState]:
        count, found = frame["count"], search_.evidence["found"]
        _refuse_copies(search_.sample, count)
        starts = {}
        if search_.state is not None:
            starts["moments"] = blended(search_.state, self.kinds)
        doubtful = found is None or (
            count > 1 and (found.off_diagonal >= DOUBTFUL_OFF_DIAGONAL or found.gap < _DOUBTFUL_GAP)
        )
        if starts and not (doubtful and search_.to_convergence):
            return Start(starts["moments"])
        densities, sample = self.densities(frame), search_.family.prepare(search_.sample)
        for i in range(_RESTARTS):
            rows = sample.rows[:, densities.distances()]
            centres = plus_plus(rows, sample.weights, count, search_.rng)
            name = f"k-means++ {i + 1}"
            starts[name] = densities.starting(sample.rows, sample.weights, centres)
        best = search(search_.family, sample, starts, move=False)
        return Start(best.state, best.start)

    def order(self, frame: Frame, state: ViewState) -> Array:
        order: Array = component_order(state.weights, np.hstack(state.means))
        return order

    def parameters(self, frame: Frame, state: ViewState) -> dict[str, Array]:
        return {
            "weights": state.weights,
            "means": np.hstack(state.means),
            "variances": np.hstack(state.variances),
        }


def blended(state: ViewState, kinds: tuple[str, ...]) -> ViewState:
    """A state in which no probability is zero."""
    means, variances = [], []
    for kind, mean, variance in zip(kinds, state.means, state.variances, strict=True):
        if kind == "categorical":
            marginal = state.weights @ mean + 1e-6
            shown = (1 - _BLEND) * mean + _BLEND * marginal / marginal.sum()
            means.append(shown)
            variances.append(shown * (1 - shown))
        else:
            means.append(mean)
            variances.append(np.maximum(variance, 1e-100))
    return ViewState(state.weights, means, variances)


def _varies(batch: Batch) -> bool:
    """Whether the rows of any view differ."""
    dense = (view.toarray() if scipy.sparse.issparse(view) else view for view in batch.parts)
    return any(bool((view != view[:1]).any()) for view in dense)


def _refuse_copies(sample: Batch, count: int) -> None:
    """An error where there are fewer different samples than components."""
    distinct: set[int] = set()
    for block in sample.blocks(_ROWS_TO_COMPARE):
        rows = [view.toarray() if scipy.sparse.issparse(view) else view for view in block.parts]
        distinct.update(row_hashes(np.hstack(rows)).tolist())
        if len(distinct) >= count:
            return
    raise InvalidInputError(
        f"n_components={count} exceeds the {len(distinct)} distinct samples of {len(sample)}: "
        "lower n_components or give more samples"
    )
