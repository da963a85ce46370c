"""What expectation maximization needs of a likelihood, and its E step as an accumulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.sums import Closing, plus
from latensor.value_files import storable

State = TypeVar("State")


class Family(Generic[State]):
    """A likelihood with latent variables; a subclass is a frozen value, and picklable.

    `expect` returns additive sums by name, among them "log_likelihood" (of the batch at the
    state) and "weight" (what a log-likelihood per sample is divided by: units, or rows of
    sequences). `pack` gives unbounded coordinates whose unit is about one standard deviation of
    the data, so that a tolerance means the same in every model.
    """

    # Plain steps before extrapolation: the first ones of a mixture move far, and need none.
    plain_steps: ClassVar[int] = 6
    # The longest extrapolation at first, in steps; it grows while it succeeds.
    first_stretch: ClassVar[float] = float("inf")

    def prepare(self, batch: Batch) -> Batch:
        """What `expect` works on, made once where EM goes over units in memory again and again."""
        return batch

    def expect(self, state: State, prepared: Batch) -> dict[str, Any]:
        """The expected sufficient statistics of a prepared batch."""
        raise NotImplementedError(f"{type(self).__name__} must give its statistics")

    def accumulate(
        self, state: State, prepared: Batch, sums: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Statistics with those of one more batch; may use their memory, where it is large."""
        found: dict[str, Any] = plus(sums, self.expect(state, prepared))
        return found

    def is_packed(self, sums: dict[str, Any]) -> bool:
        """Whether statistics are smaller already than `accumulate` makes them."""
        return False

    def packed(self, sums: dict[str, Any], state: State) -> dict[str, Any]:
        """The statistics of a partition as they travel and are merged; smaller where it matters."""
        return sums

    def maximize(self, sums: dict[str, Any], state: State) -> State:
        """The parameters that given statistics maximize; `state` breaks ties."""
        raise NotImplementedError(f"{type(self).__name__} must maximize")

    def complete(self, sums: dict[str, Any], state: State) -> float:
        """The complete-data log-likelihood of statistics at a state: what `maximize` maximizes."""
        raise NotImplementedError(f"{type(self).__name__} must give its complete likelihood")

    def log_prior(self, state: State) -> float:
        """What is added to the log-likelihood where `maximize` finds the mode of a posterior."""
        return 0.0

    def pack(self, state: State) -> Array:
        """The parameters as one vector of unbounded numbers."""
        raise NotImplementedError(f"{type(self).__name__} must pack its parameters")

    def unpack(self, vector: Array, like: State) -> State:
        """The parameters of such a vector, near those of `like`."""
        raise NotImplementedError(f"{type(self).__name__} must unpack its parameters")

    def log_density(self, state: State, prepared: Batch) -> Array:
        """Log p(x, j) (n, k) of every unit and component."""
        raise NotImplementedError(f"{type(self).__name__} has no densities of single units")

    def collapsed(self, state: State, weight: float) -> Array:
        """Which components (k,) have a likelihood without bound; none by default."""
        return np.zeros(1, dtype=bool)


@storable
@dataclass(frozen=True, eq=False)
class Statistics(Closing, Generic[State]):
    """The E step: expected sufficient statistics at a state, summed over units.

    Attributes
    ----------
    family : Family
    state : parameters
    prepared : bool, whether batches come out of `family.prepare` already
    """

    family: Family[State]
    state: State
    prepared: bool = False

    def opened(self, batch: Batch) -> Self:
        batch = batch if self.prepared else self.family.prepare(batch)
        return replace(self, sums=self.family.accumulate(self.state, batch, self.sums))

    @property
    def is_closed(self) -> bool:
        return self.sums is not None and self.family.is_packed(self.sums)

    def closed(self) -> Self:
        if self.sums is None or self.is_closed:
            return self
        return replace(self, sums=self.family.packed(self.sums, self.state))

    @property
    def weight(self) -> float:
        """What a log-likelihood per sample is divided by."""
        return float(self.seen()["weight"])

    @property
    def value(self) -> float:
        """The log-likelihood per sample."""
        return float(self.seen()["log_likelihood"]) / self.weight

    @property
    def objective(self) -> float:
        """The log-likelihood per sample, with the prior: what EM raises."""
        return self.value + self.family.log_prior(self.state) / self.weight

    def maximized(self) -> State:
        """The parameters after one step of EM."""
        return self.family.maximize(self.seen(), self.state)
