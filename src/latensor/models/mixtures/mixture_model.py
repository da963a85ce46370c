"""What all Gaussian mixtures share as models, whatever their starts come from."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.estimation.base import component_order
from latensor.estimation.halves import select_by_halves
from latensor.estimation.model import Answer, Effort, Frame, Model, Search
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError
from latensor.models.mixtures.goodness_of_fit import optimum_evidence
from latensor.moments.batch import Batch
from latensor.moments.rows import RowSample
from latensor.moments.second import Covariance
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState


class MixtureModel(Model[MixtureState]):
    """Base of the Gaussian mixtures: a subclass holds its settings, the frame its family."""

    n_components: int | str
    n_features: int
    sample_limit: int

    def select(self, run: Run, effort: Effort) -> Selection | None:
        automatic = isinstance(self.n_components, str)
        return select_by_halves(run, self, effort) if automatic else None

    def count(self, known: Covariance) -> int:
        """The number of components, where there are so many samples."""
        count = int(self.n_components)
        if count > known.count:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_samples={known.count} given: lower "
                "n_components or give more samples"
            )
        return count

    def distinct(self, sample: Batch, count: int, limit: int) -> Batch:
        """A part of the sample, equal rows as one of their weight, however data are repeated."""
        few = RowSample(limit).update(sample.rows, sample.weights)
        if len(few.samples) < count:
            raise InvalidInputError(
                f"n_components={count} exceeds the {len(few.samples)} distinct samples "
                f"of {few.count}: lower n_components or give more samples"
            )
        keys = np.arange(len(few.samples), dtype=np.uint64)
        return Batch((few.samples,), few.weights, keys)

    def family(self, frame: Frame) -> GaussianFamily | None:
        family: GaussianFamily = frame["family"]
        return family

    def sample_size(self, frame: Frame) -> int:
        return self.rows_in_memory(self.sample_limit, self.n_features)

    def order(self, frame: Frame, state: MixtureState) -> Array:
        outer = frame["family"].outside(state)
        return np.asarray(component_order(outer.weights, outer.means))

    def permuted(self, state: MixtureState, order: Array) -> MixtureState:
        return MixtureState(state.weights[order], state.means[order], state.covariances[order])

    def parameters(self, frame: Frame, state: MixtureState) -> dict[str, Array]:
        outer = frame["family"].outside(state)
        return {"weights": outer.weights, "means": outer.means, "covariances": outer.covariances}

    def evidence(
        self, frame: Frame, search_: Search[MixtureState], answer: Answer[MixtureState]
    ) -> dict[str, Any]:
        return optimum_evidence(self, frame["family"], frame, search_, answer)
