"""The number of components of any model with a likelihood, by fits of two halves of the data."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from latensor.estimation.learn import Learned, learn
from latensor.estimation.model import Effort, Frame, Model, Search
from latensor.estimation.run import Run
from latensor.estimation.selection import Evaluation, Selection, n_reproduced, reproduction, select
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.batch import Batch, mixed
from latensor.moments.unit_sample import Sample

# Units that the choice is made on: enough to tell likelihoods apart, few enough to be quick.
UNITS = 20_000
LARGEST = 64
# Units (rows of sequences) of a half for every component.
UNITS_A_COMPONENT = 20
# The log-likelihood of a half that a fit may leave to gain: what the noise of a parameter is worth.
_LEFT = 0.5


def halves_of(units: Batch, seed: int, division: int = 0) -> tuple[Batch, Batch]:
    """Two random halves of units, others for every number of the division."""
    first = mixed(units.keys, seed + 1 + division) % np.uint64(2) == 0
    return units.take(np.flatnonzero(first)), units.take(np.flatnonzero(~first))


def largest_count(parts: tuple[Batch, Batch]) -> int:
    """The largest number of components that halves of this size can tell apart."""
    return min(LARGEST, min(part.extent for part in parts) // UNITS_A_COMPONENT)


def select_by_halves(
    run: Run,
    model: Model[Any],
    effort: Effort,
    *,
    units: Batch | None = None,
    where: str = "samples",
) -> Selection:
    """The largest number of components that both halves of the data find again.

    A model needs `n_components` among its settings, and `held_out` and `responsibilities`, which
    follow from the densities of its family.

    Parameters
    ----------
    run : the data
    model : its n_components is replaced
    effort : how far fits of the halves go
    units : what is divided into halves; by default a sample of the data
    where : str, what units are called
    """
    if units is None:
        units = run.fold("number of components", Sample(UNITS, run.seed)).in_order()
    limit = largest_count(halves_of(units, run.seed))
    if limit < 2:
        return Selection.of_one(f"{len(units)} {where} are too few to tell more apart")

    def evaluate(k: int, division: int) -> Evaluation | None:
        candidate = model.with_count(k)
        parts = halves_of(units, run.seed, division)
        weights = np.concatenate([parts[1].weights, parts[0].weights])
        try:
            fits = [
                learn(
                    run.on(part),
                    candidate,
                    replace(effort, tol=max(effort.tol, _LEFT / part.weight)),
                )
                for part in parts
            ]
        except (NotIdentifiableError, InvalidInputError):
            return None
        run.tell("number of components")
        scored = [
            candidate.held_out(fit.frame, _state(fit), part)
            for fit, part in zip(fits, parts[::-1], strict=True)
        ]
        scores, sizes = (np.concatenate(each) for each in zip(*scored, strict=True))
        if not np.isfinite(scores).all():
            return None
        found = [candidate.responsibilities(fit.frame, _state(fit), units) for fit in fits]
        # A chain that has not seen a step may find the other half impossible.
        if not all(np.isfinite(each).all() for each in found):
            return None
        return Evaluation(scores, sizes, weights, reproduction(*found))

    return select(evaluate, limit, where=where)


def found_in_halves(model: Model[Any], frame: Frame, search: Search[Any], state: Any) -> int:
    """Components of a fit that halves of a sample find again, whatever its distribution.

    Likelihoods tell optima apart under the model. Where rows are not distributed as it says, this
    shows whether other rows would give the same components: n uniform rows have optima along every
    axis, and the likelihood prefers one of them by chance. Two divisions, since two halves prefer
    the same one of two by chance too.
    """
    sample = search.sample
    whole = model.responsibilities(frame, state, sample)
    fewest = int(whole.shape[1])
    for division in range(2):
        found = [whole]
        for part in halves_of(sample, 0, division):
            try:
                start = model.search(frame, replace(search, sample=part, state=None))
            except (NotIdentifiableError, InvalidInputError):  # too few distinct rows
                start = None
            if start is None:
                return 0
            found.append(model.responsibilities(frame, start.state, sample))
        for one, other in itertools.combinations(found, 2):
            fewest = min(fewest, n_reproduced(reproduction(one, other)))
        if fewest < whole.shape[1]:
            break
    return fewest


def _state(fit: Learned[Any]) -> Any:
    assert fit.answer.state is not None
    return fit.answer.state
