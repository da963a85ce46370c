"""Which score functions a network uses: those of a Gaussian, of what is fitted to X, or given."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError
from latensor.models.mixtures.gaussian import GaussianMixture
from latensor.moments.unit_sample import Sample
from latensor.scores import Scores, of_mixture, score_matching

# Rows to which a mixture or score functions are fitted.
_ROWS = 20_000
KINDS = ("gaussian", "mixture", "matching")


def scores_of(scores: Any, run: Run, lift: Array) -> Scores | None:
    """Score functions of the rows, None for those of a Gaussian in whitened coordinates.

    Parameters
    ----------
    scores : one of `KINDS`, or Scores
    run : the data
    lift : (d, r), the directions in which rows vary
    """
    if isinstance(scores, Scores):
        if scores.n_features not in (None, len(lift)):
            raise InvalidInputError(
                f"scores are those of {scores.n_features} features, X has {len(lift)}"
            )
        return scores
    if scores == "gaussian":
        return None
    if lift.shape[1] < len(lift):
        raise InvalidInputError(
            f"scores={scores!r} needs features that are not collinear, X varies in "
            f"{lift.shape[1]} of {len(lift)} directions: leave some out, or take 'gaussian'"
        )
    seed = int(run.rng("scores").integers(2**31))
    rows = np.asarray(run.fold("rows", Sample(_ROWS, run.seed)).in_order().parts[0], np.float64)
    if scores == "matching":
        return score_matching(rows, random_state=seed)
    return of_mixture(GaussianMixture("auto", random_state=seed, n_jobs=1).fit(rows))
