"""What is folded for a noisy-or network, and how its causes are found (monograph 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.diagnostics.findings import shown_spectrum
from latensor.diagnostics.mixture_certificate import DOUBTFUL_OFF_DIAGONAL, NOISE_EDGE
from latensor.estimation.base import component_order
from latensor.estimation.model import Answer, Frame, Model, Search, Start
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.networks.noisy_or_family import NoisyOrFamily
from latensor.models.networks.noisy_or_read_off import (
    Interactions,
    NoisyOrState,
    complete,
    count_causes,
    read_off,
    triple_interactions,
)
from latensor.moments.binary import PairCounts, TripleCounts
from latensor.moments.rows import RowSample
from latensor.moments.sums import Folded, Joint
from latensor.refinement.em import em

# Features whose triples are counted: C(128, 3) = 341,376 sums. The others follow from pairs.
_TRIPLE_FEATURES = 128
# ... and at least so many for every cause.
_PER_CAUSE = 4
# Causes that "auto" looks for.
MOST_AUTOMATIC = 50
# Passes of EM on which starts are compared.
_TRIAL = 30
# Data up to so many times the sample are gone through whole: corrections of what EM finds on the
# sample take more passes than EM over all rows (20 causes, 100,000 rows: 94 of 42 % of the rows
# against 19 of all).
_MUCH_LONGER = 4
# Priors above which states with few active causes miss too much (recipe: errors double from .2 on).
LARGE_PRIOR = 0.2


@dataclass(frozen=True)
class NoisyOrModel(Model[NoisyOrState]):
    """The settings of a network, and what its moments say."""

    n_components: int | str
    n_features: int
    sample_limit: int
    n_init: int
    algorithm: str | Callable[..., Any]
    pilot_size: ClassVar[int] = 20_000
    # The rest of the data corrects what EM finds there (32 MB).
    sample_entries: ClassVar[int] = 2**22

    def survey(self, run: Run, streaming: bool) -> Frame:
        summed = run.fold("pairs", PairCounts())
        known = interactions(summed)
        selection = None
        if isinstance(self.n_components, str):
            selection = counted(known)
            count = selection.n_components
        else:
            count = int(self.n_components)
        if count > known.weight:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_samples={known.weight:.0f} given: lower "
                "n_components or give more samples"
            )
        values = {
            "count": count,
            "chosen": self.chosen(known, count),
            "selection": selection,
        }
        return Frame(values, {"pairs": summed}, summed.seen()["units"])

    def chosen(self, known: Interactions, count: int) -> Array:
        """The features whose triples are counted: those that say most about any cause."""
        varying = np.flatnonzero(known.scale)
        most = max(_TRIPLE_FEATURES, _PER_CAUSE * count)
        if len(varying) <= most:
            return varying
        pairs = known.pairs[np.ix_(varying, varying)]
        _, vectors, _ = complete(pairs, min(count, len(varying)), np.zeros(len(varying)), 20)
        leverage = (vectors**2).sum(axis=1)
        return np.sort(varying[np.argsort(-leverage, kind="stable")[:most]])

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {"pairs": PairCounts(), "triples": TripleCounts(frame["chosen"])}

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[NoisyOrState]:
        sums = moments["pairs"].seen()
        known, count, chosen = interactions(moments["pairs"]), frame["count"], frame["chosen"]
        ones = np.diag(sums["pairs"]) / sums["weight"]
        constant = np.flatnonzero(known.scale == 0)
        evidence: dict[str, Any] = {
            "found": None,
            "constant": tuple(int(i) for i in constant),
            "ones": float(ones.mean()),
        }
        if len(chosen) < max(3, count):
            return Answer(None, evidence, doubtful=True)
        pairs = sums["pairs"][np.ix_(chosen, chosen)] / sums["weight"]
        counted = moments["triples"].seen()
        triples = triple_interactions(known, pairs, counted["triples"] / counted["weight"], chosen)
        algorithm = None if isinstance(self.algorithm, str) else self.algorithm
        found = read_off(known, triples, chosen, count, rng, algorithm)
        doubtful = (
            found.gap < NOISE_EDGE
            or not found.off_diagonal < DOUBTFUL_OFF_DIAGONAL
            or found.state.prior.max() > LARGE_PRIOR
        )
        return Answer(found.state, {**evidence, "found": found}, doubtful=doubtful)

    def check_moments(self, frame: Frame, answer: Answer[NoisyOrState]) -> None:
        found, count = answer.evidence["found"], frame["count"]
        if found is None:
            raise NotIdentifiableError(
                f"n_components={count} causes cannot be read off {len(frame['chosen'])} features "
                "that vary: at least as many are needed, and three; leave refine at 'auto'"
            )
        if found.gap < NOISE_EDGE:
            raise NotIdentifiableError(
                f"n_components={count}: the weakest cause is {found.gap:.2g} times as strong as "
                f"noise (eigenvalue {count} of the pointwise mutual information, whose spectrum is "
                f"{shown_spectrum(found.spectrum)} of the largest): lower n_components, give more "
                "samples, or leave refine at 'auto' to fit by likelihood"
            )

    def family(self, frame: Frame) -> NoisyOrFamily:
        return NoisyOrFamily()

    def sample_size(self, frame: Frame) -> int:
        few = self.rows_in_memory(self.sample_limit, self.n_features)
        if frame.n_units > _MUCH_LONGER * few:
            return few
        return max(few, min(self.sample_limit, int(frame.n_units)))

    def search(self, frame: Frame, search_: Search[NoisyOrState]) -> Start[NoisyOrState]:
        # Equal rows become one of their weight: starts do not depend on how data are repeated.
        sample = search_.family.prepare(search_.sample)
        few = RowSample(self.search_size).update(sample.rows.toarray(), sample.weights)
        candidates = [] if search_.state is None else [search_.state]
        names = ["moments"] * len(candidates)
        missing = 0 if candidates else 1
        for number in range(max(self.n_init, missing)):
            candidates.append(drawn(few, frame["count"], search_.rng))
            names.append(f"random start {number + 1}")
        if len(candidates) == 1:
            return Start(candidates[0], names[0])
        # Where ones are dense, the start that leads after a few steps is often not the one that
        # ends highest: half of them go on for twice as long, until one is left.
        states, steps = dict(zip(names, candidates, strict=True)), _TRIAL
        while len(states) > 1:
            tried = {
                name: em(
                    search_.fold,
                    search_.family,
                    state,
                    max_iter=steps,
                    accelerate=steps > _TRIAL,
                    prepared=True,
                )
                for name, state in states.items()
            }
            ranked = sorted(tried, key=lambda name: -tried[name].log_likelihood)
            states = {name: tried[name].state for name in ranked[: (len(ranked) + 1) // 2]}
            steps *= 2
        name, state = states.popitem()
        return Start(state, name)

    def order(self, frame: Frame, state: NoisyOrState) -> Array:
        return np.asarray(component_order(state.prior, state.components))

    def permuted(self, state: NoisyOrState, order: Array) -> NoisyOrState:
        return NoisyOrState(state.prior[order], state.components[order], state.leak)

    def parameters(self, frame: Frame, state: NoisyOrState) -> dict[str, Array]:
        return {"prior": state.prior, "components": state.components, "leak": state.leak}


def drawn(few: RowSample, count: int, rng: np.random.Generator) -> NoisyOrState:
    """A random start: every cause is like one sample, blended with the mean of all."""
    rows, weights = few.samples, few.weights
    mean = weights @ rows / weights.sum()
    varies = (mean > 0) & (mean < 1)
    mean = np.clip(mean, 1e-3, 0.999)
    # A sample with few ones says little about a cause.
    chances = weights * (rows.sum(axis=1) + 1e-3)
    picked = rng.choice(len(rows), count, p=chances / chances.sum())
    blend = rng.uniform(0.5, 0.8, (count, 1))
    components = (blend * rows[picked] + (1 - blend) * mean) * rng.uniform(0.8, 1.2, (count, 1))
    jitter = rng.uniform(0.9, 1.1, components.shape)
    prior = np.full(count, min(LARGE_PRIOR, 1 / count))
    # What never varies is the leak's alone: the likelihood would not take it from the causes.
    components = np.where(varies, np.clip(components * jitter, 1e-3, 0.95), 0.0)
    return NoisyOrState(prior, components, np.where(varies, mean / 2, mean))


def counted(known: Interactions) -> Selection:
    """The number of causes that pairs show, and what speaks for it."""
    limit = max(min(MOST_AUTOMATIC, int(np.count_nonzero(known.scale))), 1)
    count, spectrum = count_causes(known, limit)
    reason = (
        "so many eigenvalues of the completed pointwise mutual information exceed "
        f"{known.edge:.3g}, the largest that noise gives"
    )
    if spectrum[0] <= known.edge:
        reason = "no pair of features interacts above noise"
    tests = {f"eigenvalue {i + 1}": float(value) for i, value in enumerate(spectrum)}
    choices = dict.fromkeys(("small", "medium", "large"), count)
    return Selection(count, reason, choices, count == limit, tests={**tests, "noise": known.edge})


def interactions(summed: PairCounts) -> Interactions:
    """Of counted pairs."""
    sums = summed.seen()
    return Interactions.of(sums["pairs"], sums["weight"])
