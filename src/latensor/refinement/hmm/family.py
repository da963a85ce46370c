"""A hidden chain with its emissions as a family: what EM needs of the likelihood of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.refinement.family import Family
from latensor.refinement.hmm.categorical import fractions, from_roots, log_product
from latensor.refinement.hmm.chain import ChainOnRows, Expectation, Likelihoods
from latensor.refinement.hmm.sequences import Sequences
from latensor.value_files import storable


class Emission(Protocol):
    """What a state emits; CategoricalEmission and GaussianEmission are."""

    def likelihoods(self, design: Any) -> Likelihoods:
        """How likely every row is in every state."""

    def sums(self, design: Any, found: Expectation) -> dict[str, Any]:
        """Expected sufficient statistics, additive."""

    def maximized(self, sums: dict[str, Any], updates: str) -> Self:
        """The emissions that statistics make likeliest, those of the named parameters."""

    def complete(self, sums: dict[str, Any]) -> float:
        """The log-likelihood of rows whose states are known as well as `sums` says."""

    def packed(self) -> Any:
        """The parameters as numbers in which steps can be extrapolated."""

    def unpacked(self, vector: Any) -> Self:
        """The emissions at such numbers, near these."""

    def reordered(self, order: Any) -> Self:
        """The same emissions, states in another order."""

    @property
    def n_parameters(self) -> int:
        """How many numbers are free."""


@storable
@dataclass(frozen=True)
class HiddenChain:
    """All parameters of a hidden Markov model.

    Attributes
    ----------
    startprob : (k,)
    transmat : (k, k), rows sum to one
    emission : what the states emit
    """

    startprob: Any
    transmat: Any
    emission: Any  # an Emission; its rows and its own attributes differ by kind

    @property
    def n_parameters(self) -> int:
        """Free numbers."""
        k = len(self.startprob)
        return k - 1 + k * (k - 1) + int(self.emission.n_parameters)

    def on(self, design: Any, sequences: Sequences, n_threads: int = 1) -> ChainOnRows:
        """The chain on rows that are prepared for its emissions."""
        likelihoods = self.emission.likelihoods(design)
        return ChainOnRows(likelihoods, sequences, self.startprob, self.transmat, n_threads)

    def reordered(self, order: Any) -> HiddenChain:
        """The same model, states in another order."""
        return HiddenChain(
            self.startprob[order],
            np.ascontiguousarray(self.transmat[np.ix_(order, order)]),
            self.emission.reordered(order),
        )


@storable
@dataclass(frozen=True, eq=False)
class ChainFamily(Family[HiddenChain]):
    """Baum and Welch: forward-backward statistics as sums; the maximization needs no rows.

    Attributes
    ----------
    design : prepares rows for the emissions: GaussianFamily or SymbolDesign
    updates : letters of the parameters that EM changes: s(tartprob), t(ransmat), and those of the
        emissions; the others stay as they are
    """

    # Extrapolation from the start: chains forget slowly, and EM with them.
    plain_steps: ClassVar[int] = 1
    first_stretch: ClassVar[float] = 4.0
    design: Any
    updates: str = "stemc"

    def prepare(self, batch: Batch) -> Batch:
        sequences = Sequences.within(batch.rows, batch.weights)
        rows, weights = batch.rows.rows, sequences.row_weights
        # Rows need no numbers of their own: their sequences are what is sampled.
        numbers = np.broadcast_to(np.uint64(0), len(rows))
        each = Batch((rows,), np.ones(len(rows)) if weights is None else weights, numbers)
        parts = (batch.rows, self.design.prepare(each), sequences)
        return Batch(parts, batch.weights, batch.keys)

    def expect(self, state: HiddenChain, prepared: Batch) -> dict[str, Any]:
        _, design, sequences = prepared.parts
        found = state.on(design, sequences).expect()
        return {
            "starts": found.starts,
            "totals": found.totals,
            "steps": found.steps,
            "log_likelihood": found.log_likelihood,
            "weight": sequences.weight,
            **state.emission.sums(design, found),
        }

    def maximize(self, sums: dict[str, Any], state: HiddenChain) -> HiddenChain:
        """One more start, drawn from the average of all states, is counted: a single sequence
        says next to nothing about where sequences begin. Probabilities of zero stay zero.
        """
        startprob, transmat = state.startprob, state.transmat
        if "s" in self.updates:
            starts = sums["starts"] + sums["totals"] / sums["weight"]
            starts = np.where(startprob > 0, starts, 0.0)
            startprob = fractions(starts[None], startprob[None])[0]
        if "t" in self.updates:
            transmat = fractions(sums["steps"], transmat)
        return HiddenChain(startprob, transmat, state.emission.maximized(sums, self.updates))

    def complete(self, sums: dict[str, Any], state: HiddenChain) -> float:
        chain = log_product(sums["starts"], state.startprob)
        chain += log_product(sums["steps"], state.transmat)
        return chain + float(state.emission.complete(sums))

    def pack(self, state: HiddenChain) -> Array:
        """Square roots of probabilities, in which the distance is that of the likelihood."""
        roots = (np.sqrt(state.startprob), np.sqrt(state.transmat).ravel())
        return np.concatenate([*roots, state.emission.packed()])

    def unpack(self, vector: Array, like: HiddenChain) -> HiddenChain:
        k = len(like.startprob)
        return HiddenChain(
            from_roots(vector[None, :k], like.startprob[None])[0],
            from_roots(vector[k : k + k * k].reshape(k, k), like.transmat),
            like.emission.unpacked(vector[k + k * k :]),
        )

    def log_likelihood(self, state: HiddenChain, prepared: Batch) -> float:
        """The log-likelihood of all rows."""
        return state.on(*prepared.parts[1:]).log_likelihood()
