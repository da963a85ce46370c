"""What all hidden Markov models share: which moments, which starts, which likelihood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.datasets.sequences import stationary_distribution
from latensor.estimation.base import component_order
from latensor.estimation.halves import UNITS, halves_of, select_by_halves
from latensor.estimation.learn import learn
from latensor.estimation.model import Answer, Effort, Frame, Model, Search
from latensor.estimation.model import Start as Begun
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.hmm.certificate import ERRORS
from latensor.models.hmm.moment_starts import MomentStart, moment_starts
from latensor.models.hmm.sequence_input import merged_equal
from latensor.models.hmm.subspace import find_subspace
from latensor.models.hmm.trials import (
    Chosen,
    Start,
    compete,
    doubtful_rows,
    likeliest,
    relabelled,
    subset,
)
from latensor.moments.batch import Batch, Kind
from latensor.moments.sequences import DECAYS, PairSums, WindowSums
from latensor.moments.sums import Folded, Joint
from latensor.moments.unit_sample import Sample
from latensor.refinement.hmm import ChainFamily, HiddenChain

# Random starts beside those of the moments; more where these are weaker than their noise, and for
# so few rows that they cost next to nothing, though never more than three for a state.
_RANDOM, _MORE_RANDOM, _FOR_A_STATE = 5, 8, 3
_FEW_ROWS = 10_000
# Directions of the pair tables below the edge of their noise tell nothing.
_EDGE = 1.0
# Blocks that few long sequences are cut into, so that they can be divided into halves.
_BLOCKS = 20
# What rows of whole sequences say about the states without their order, among the tests.
ROWS_ALONE = "states over joined ones in rows without order, standard errors"


@dataclass(frozen=True)
class ChainModel(Model[HiddenChain]):
    """Base of the hidden Markov models: which moments, which starts, which likelihood.

    A subclass gives `survey_code` (how rows are counted, by name "code"), `design`, `emission_of`,
    `random_emission`, `softened`, `vectors`, `with_given` and `emission_parameters`.

    Attributes
    ----------
    n_components : int or "auto"
    views : "lag", "window" or "auto" for both
    algorithm : of the decomposition
    row_limit : int, rows of the sample on which EM runs
    updates : letters of the parameters that EM changes
    given : starting values by letter, in the units of the data
    n_rounds : int, rounds of trials of starts at most
    """

    n_components: int | str
    views: str
    algorithm: Any
    row_limit: int
    updates: str
    given: Mapping[str, Array]
    n_rounds: int = field(default=5, kw_only=True)
    kind: ClassVar[Kind] = Kind.SEQUENCES
    letters: ClassVar[str] = "st"
    # Rows: as many as EM needs to see its slowest direction (two overlapping states).
    pilot_size: ClassVar[int] = 100_000
    search_size: ClassVar[int] = 100_000

    # ------------------------------------------------------------------ what a subclass says
    def survey_code(self, run: Run) -> dict[str, Any]:
        """How rows become symbols, by name "code", and whatever else the frame should hold."""
        raise NotImplementedError(f"{type(self).__name__} must count its rows")

    def design(self, frame: Frame) -> Any:
        """How rows are given to the emissions."""
        raise NotImplementedError(f"{type(self).__name__} must give its coordinates")

    def emission_of(self, frame: Frame, states: Any, symbols: Any, noise: float) -> Any:
        """Emissions from what was read off."""
        raise NotImplementedError(f"{type(self).__name__} must say how emissions are read off")

    def random_emission(self, frame: Frame, k: int, units: Batch, rng: np.random.Generator) -> Any:
        """Emissions of a random start."""
        raise NotImplementedError(f"{type(self).__name__} must draw emissions at random")

    def softened(self, frame: Frame, chain: HiddenChain) -> HiddenChain:
        """A start without zeros that are not meant."""
        return chain

    def vectors(self, emission: Any) -> Array:
        """What tells states apart, (k, .)."""
        raise NotImplementedError(f"{type(self).__name__} must say what tells its states apart")

    def emission_with(self, frame: Frame, emission: Any) -> Any:
        """Emissions with the starting values that were given."""
        raise NotImplementedError(f"{type(self).__name__} must take its starting values")

    def emission_parameters(self, frame: Frame, emission: Any) -> dict[str, Array]:
        """Parameters of the emissions in the units of the data, by name."""
        raise NotImplementedError(f"{type(self).__name__} must name its parameters")

    def observables(self, frame: Frame, rows: Any, emission: Any) -> tuple[Array, Array]:
        """Numbers (n, g) that rows show, NaN where unobserved, and their means (k, g) by state."""
        raise NotImplementedError(f"{type(self).__name__} must say what its rows show")

    # ------------------------------------------------------------------ the number of states
    def select(self, run: Run, effort: Effort) -> Selection | None:
        """The most states that both halves find, one where the order of rows tells nothing.

        Rows depend on their neighbours: sequences are divided, or blocks of a few long ones.
        """
        if not isinstance(self.n_components, str):
            return None
        sequences = run.fold("number of states", Sample(UNITS, run.seed)).in_order()
        units = _divided(sequences)
        # Many numbers are compared, and divisions repeated: one round of trials is enough for each.
        one_round = replace(self, n_rounds=1)
        found = select_by_halves(run, one_round, effort, units=units, where="sequences")
        if found.n_components == 1:
            return found
        ahead, alone = self._order_test(run, effort, units, found.n_components)
        tests = {"chain over mixture, standard errors": ahead}
        if len(units) == len(sequences) and np.isfinite(alone):
            tests[ROWS_ALONE] = alone
        if ahead >= ERRORS:
            return replace(found, tests=tests)
        reason = (
            f"the order of rows tells nothing: a mixture of {found.n_components} predicts as well "
            f"as a chain of so many states ({ahead:.1f} standard errors)"
        )
        return replace(found, n_components=1, reason=reason, ratios=np.zeros(1), tests=tests)

    def _order_test(
        self, run: Run, effort: Effort, units: Batch, count: int
    ) -> tuple[float, float]:
        """By how many standard errors chains predict sequences better than without their order.

        And by how many the states predict rows without their order better than if any two of them
        were one; NaN where a model cannot tell.
        """
        model, parts = self.with_count(count), halves_of(units, run.seed)
        gains, alone = [], []
        for part, other in (parts, parts[::-1]):
            fit = learn(run.on(part), model, effort)
            chain: HiddenChain = fit.answer.state  # type: ignore[assignment]
            fraction = stationary_distribution(chain.transmat)
            mixture = HiddenChain(fraction, np.tile(fraction, (count, 1)), chain.emission)
            scores = [self.held_out(fit.frame, each, other)[0] for each in (chain, mixture)]
            gains.append((scores[0] - scores[1]) * other.weights)
            found = self.gains_alone(fit.frame, chain, part, other)
            if found is not None:
                alone.append(found * other.weights)
        return _in_errors(gains), _in_errors(alone)

    def gains_alone(
        self, frame: Frame, chain: HiddenChain, learned: Batch, others: Batch
    ) -> Array | None:
        """What other sequences (n,) lose without their order if two states are one; None: unknown.

        Parameters
        ----------
        learned : what the chain was learned from
        """
        return None

    def held_out(self, frame: Frame, state: HiddenChain, units: Batch) -> tuple[Array, Array]:
        chain = state.on(*self.family(frame).prepare(units).parts[1:])
        return chain.sequence_log_likelihoods(), units.sizes.astype(np.float64)

    def responsibilities(self, frame: Frame, state: HiddenChain, units: Batch) -> Array:
        _, design, sequences = self.family(frame).prepare(units).parts
        posteriors, weights = state.on(design, sequences).expect().posteriors, sequences.row_weights
        return np.asarray(posteriors if weights is None else posteriors * np.sqrt(weights)[:, None])

    # ------------------------------------------------------------------ moments
    @property
    def is_given(self) -> bool:
        """Whether all starting values are."""
        return set(self.given) == set(self.letters)

    def survey(self, run: Run, streaming: bool) -> Frame:
        values = self.survey_code(run)
        summed = run.fold("pairs", PairSums(values["code"]))
        pairs = summed.finalize()
        count = int(self.n_components)
        if pairs.n_rows < count:
            raise InvalidInputError(
                f"n_samples={pairs.n_rows:g} should be at least n_components={count}: "
                "give more rows or ask for fewer states"
            )
        subspace = find_subspace(pairs, count - 1)
        values |= {
            "features": subspace.features,
            "count": count,
            "frequency": pairs.counts / pairs.n_rows,
            "strength": (pairs.n_rows, subspace.strength(count)),
        }
        return Frame(values, {"pairs": summed})

    def moments(self, frame: Frame) -> dict[str, Folded]:
        found: dict[str, Folded] = {"pairs": PairSums(frame["code"])}
        if not self.is_given:
            decays = (0.0,) if self.views == "lag" else DECAYS
            found["windows"] = WindowSums(frame["code"], frame["features"], decays)
        return found

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[HiddenChain]:
        pairs, count = moments["pairs"].finalize(), frame["count"]
        n_rows, strength = frame["strength"]
        if n_rows != pairs.n_rows:
            strength = find_subspace(pairs, count - 1).strength(count)
        starts: list[MomentStart] = []
        windows = moments["windows"].finalize() if "windows" in moments else None
        if windows is not None and windows.weight and frame["features"].shape[1] == count - 1:
            starts = moment_starts(
                pairs,
                windows,
                frame["features"],
                self.views,
                self.algorithm,
                lambda *found: self.emission_of(frame, *found),
                rng,
            )
        evidence = {"strength": strength, "starts": starts, "pairs": pairs}
        if self.is_given:
            return Answer(self.with_given(frame, None), evidence, start="given")
        if not starts:
            return Answer(None, evidence, doubtful=True)
        return Answer(self.with_given(frame, starts[0].chain), evidence, doubtful=True)

    def with_given(self, frame: Frame, chain: HiddenChain | None) -> HiddenChain:
        """A start with the values that were given in place of its own."""
        k = frame["count"]
        startprob = self.given.get("s", np.full(k, 1 / k) if chain is None else chain.startprob)
        transmat = self.given.get("t", np.full((k, k), 1 / k) if chain is None else chain.transmat)
        emission = self.emission_with(frame, None if chain is None else chain.emission)
        found = HiddenChain(startprob, transmat, emission)
        if chain is None or not self.given or not {"s", "t"} & set(self.given):
            return found
        if set(self.given) - {"s", "t"}:
            return found
        # What was found has no labels: those of the given chain are the ones that fit best.
        named = relabelled(chain, found, stationary_distribution(chain.transmat))
        return HiddenChain(startprob, transmat, named.emission)

    def check_moments(self, frame: Frame, answer: Answer[HiddenChain]) -> None:
        pairs, starts = answer.evidence["pairs"], answer.evidence["starts"]
        if pairs.n_missing:
            raise InvalidInputError(
                f"X has {pairs.n_missing:g} rows with missing entries, of which moments know "
                "nothing: leave refine at 'auto'"
            )
        strength, count = answer.evidence["strength"], frame["count"]
        if not self.is_given and (not starts or strength < _EDGE):
            condition = min((s.states.condition for s in starts), default=np.inf)
            raise NotIdentifiableError(
                f"the moments cannot tell {count} states apart: the weakest direction they need is "
                f"{strength:.2g} times the edge of the noise of {frame['code'].n_symbols} symbols, "
                f"and the moment of past and future has the condition number {condition:.3g}. "
                "Lower n_components, give more rows, or leave refine at 'auto' to raise the "
                "likelihood"
            )

    # ------------------------------------------------------------------ likelihood
    def family(self, frame: Frame) -> ChainFamily:
        return ChainFamily(self.design(frame), self.updates)

    def sample_size(self, frame: Frame) -> int:
        return self.row_limit

    def search(self, frame: Frame, search: Search[HiddenChain]) -> Begun[HiddenChain]:
        k, units = frame["count"], merged_equal(search.sample)
        moment: Sequence[MomentStart] = search.evidence["starts"]
        starts: list[Start] = [
            replace(start, chain=self.with_given(frame, start.chain)) for start in moment
        ]
        determined = bool(search.evidence["strength"] >= _EDGE)
        if not moment or (k > 1 and search.to_convergence):
            sure = determined and units.extent > _FEW_ROWS
            number = min(_RANDOM if sure else _MORE_RANDOM, _FOR_A_STATE * k)
            starts += [
                self._random_start(frame, i, units, search.rng) for i in range(max(number, 1))
            ]
        if search.to_convergence and len(starts) > 1:

            def others(number: int) -> list[Start]:
                numbers = range(number * _MORE_RANDOM, number * _MORE_RANDOM + _RANDOM)
                return [self._random_start(frame, i, units, search.rng) for i in numbers]

            def explains(chain: HiddenChain, n_rows: int) -> bool:
                return determined and self._dependence(frame, search, chain, n_rows) == 0

            chosen = compete(
                starts,
                others,
                explains,
                search,
                units,
                lambda chain: self.softened(frame, chain),
                self.n_rounds,
            )
        else:
            chosen = likeliest(starts, search, units)
            chosen = Chosen(chosen.start, self.softened(frame, chosen.chain), chosen.trials)
        return Begun(chosen.chain, chosen.start.name, evidence={"trials": chosen.trials})

    def _random_start(
        self, frame: Frame, number: int, units: Batch, rng: np.random.Generator
    ) -> Start:
        # Fast, middling and slow chains in turn.
        k, stay = frame["count"], (0.0, 0.5, 0.9, 0.99)[number % 4]
        transmat = stay * np.eye(k) + (1 - stay) * rng.dirichlet(np.full(k, 2.0), k)
        emission = self.random_emission(frame, k, units, rng)
        chain = HiddenChain(np.full(k, 1 / k), transmat, emission)
        return Start(f"random start {number + 1}", self.with_given(frame, chain))

    def evidence(
        self, frame: Frame, search: Search[HiddenChain], answer: Answer[HiddenChain]
    ) -> dict[str, Any]:
        assert answer.state is not None
        found = self._dependence(frame, search, answer.state, search.sample.extent)
        return {} if np.isnan(found) else {"dependence": found}

    def _dependence(
        self, frame: Frame, search: Search[HiddenChain], chain: HiddenChain, n_rows: int
    ) -> float:
        """How far rows depend on the row before them beyond what the states say.

        What a row shows minus its mean given all rows before it cannot be predicted by the same of
        the row before, if the model is right. The largest canonical correlation of both, less what
        noise alone makes of it, in these rows and in the `n_rows` that the chain was learned from.
        """
        units = subset(search.sample, doubtful_rows(chain))
        _, design, sequences = self.family(frame).prepare(units).parts
        chances = chain.on(design, sequences).predicted()
        shown, means = self.observables(frame, units.rows.rows, chain.emission)
        gaps = shown - chances @ means
        seen = ~np.isnan(gaps).any(axis=1)
        later = 1 + np.flatnonzero(seen[1:] & seen[:-1] & ~sequences.is_start[1:])
        if len(later) < 2 or not gaps.shape[1]:
            return float("nan")
        # Orthogonal coordinates, without those that do not vary.
        both = np.vstack([gaps[later], gaps[later - 1]])
        left, values, _ = np.linalg.svd(both - both.mean(axis=0), full_matrices=False)
        left = left[:, values > values[0] * np.sqrt(np.finfo(float).eps)] if values[0] > 0 else left
        correlation = 2 * np.linalg.norm(left[: len(later)].T @ left[len(later) :], 2)
        noise = 2 * np.sqrt(left.shape[1] / min(len(later), n_rows))
        return max(float(correlation - noise), 0.0)

    # ------------------------------------------------------------------ what users see
    def order(self, frame: Frame, state: HiddenChain) -> Array:
        if self.given:
            return np.arange(len(state.startprob))
        fraction = stationary_distribution(state.transmat)
        return np.asarray(component_order(fraction, self.vectors(state.emission)))

    def permuted(self, state: HiddenChain, order: Array) -> HiddenChain:
        return state.reordered(order)

    def parameters(self, frame: Frame, state: HiddenChain) -> dict[str, Array]:
        return {
            "startprob": state.startprob,
            "transmat": state.transmat,
            **self.emission_parameters(frame, state.emission),
        }


def _in_errors(gains: list[Array]) -> float:
    """The sum of gains over units in standard errors; NaN where there are none."""
    if not gains:
        return float("nan")
    each = np.concatenate(gains)
    return float(each.sum() / max(np.sqrt(len(each)) * np.std(each), np.finfo(float).tiny))


def _divided(units: Batch) -> Batch:
    """Sequences, or where these are few, blocks of their rows: at most about so many as are used.

    Blocks see nothing of each other: one half must not know the other.
    """
    if len(units) >= _BLOCKS:
        return units
    size = max(min(units.extent, UNITS) // _BLOCKS, 1)
    pieces, owners = units.rows.cut(np.full(len(units), size), 0)
    kept = np.arange(0, len(owners), max(len(owners) * size // UNITS, 1))
    keys = np.arange(len(owners), dtype=np.uint64)
    return Batch((pieces,), units.weights[owners], keys).take(kept)
