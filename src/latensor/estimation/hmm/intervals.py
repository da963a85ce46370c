"""Intervals for the parameters of hidden Markov models, by a bootstrap of blocks of sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import generator
from latensor.estimation.hmm.answers import HiddenMarkovAnswers
from latensor.estimation.hmm.moment_starts import moment_starts
from latensor.estimation.hmm.sequence_input import SHORTEST, read_lengths
from latensor.estimation.intervals import (
    NOT_NEGATIVE,
    PROBABILITY,
    Bootstrap,
    Estimates,
    ParameterInterval,
    random_groups,
)
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.sequences import Pairs, Windows

# The fewest rows of a block: a window that keeps nine tenths a row has forgotten all but half a
# hundredth of what was before it, and pairs reach 21 rows.
SHORTEST_BLOCK = 50


class HiddenMarkovIntervals(HiddenMarkovAnswers):
    """`intervals` of a hidden Markov model; a model gives `_emission_estimates(order)`."""

    algorithm: Any
    views: str

    def _emission_estimates(self, order: Any) -> dict[str, Any]:
        """What the states emit, states in the given order, by names without underscore."""
        raise NotImplementedError(f"{type(self).__name__} must give its parameters")

    def intervals(
        self,
        X: object,
        lengths: object = None,
        *,
        level: float = 0.95,
        n_resamples: int = 200,
        n_groups: int = 50,
    ) -> dict[str, ParameterInterval]:
        """Intervals for transitions and emissions, by a bootstrap of the moments.

        The moments of groups of sequences are taken once, and resampled groups give resampled
        moments. With fewer than `n_groups` sequences these are cut into blocks first, n / n_groups
        rows long and at least 50: rows depend on their neighbours, and only blocks much longer
        than that dependence (windows reach some tens of rows, 0.9^50 is 0.005) are as good as
        independent; the longest that still leave `n_groups` of them cut through the fewest
        neighbours. A chain that stays in a state for longer than a block gets intervals that are
        too narrow. Every resample is read off as a start of the fit was and matched to its states;
        the deviations from what all groups give are laid around the fitted parameters. After a
        climb these intervals are wide rather than narrow: moments are noisier than the
        likelihood's estimate.

        Parameters
        ----------
        X : rows of all sequences, usually those of the fit
        lengths : how many rows each sequence has, in order; None for one sequence
        level : float between 0 and 1, the share of intervals that hold the truth
        n_resamples : int
        n_groups : int

        Returns
        -------
        The fitted attributes, by name without the underscore at the end, -> ParameterInterval of
        that shape; `startprob` only where there are `n_groups` sequences: cut ones do not begin
        """
        settings = Bootstrap.of(level, n_resamples, n_groups)
        check_is_fitted(self)
        states = np.arange(len(self.startprob_))
        rows = self._read(X, reset=False)
        sizes = read_lengths(lengths, len(rows), shortest=SHORTEST)
        pieces = blocks(sizes, settings.n_groups)
        settings = replace(settings, n_groups=min(settings.n_groups, len(pieces)))
        worker: Any = clone(self).set_params(n_components=len(states), refine=0)
        for name in ("n_features_in_", "n_features_"):
            if hasattr(self, name):
                setattr(worker, name, getattr(self, name))
        rng = generator(self.random_state)
        worker._stream = worker._new_stream(rows, len(states), rng)
        prepared = worker._prepared(rows)
        worker._stream.count(prepared, sizes).fix(len(states))
        if worker._stream.n_components != len(states):
            raise NotIdentifiableError(
                f"{len(states)} states have no intervals from moments, which show at most "
                f"{worker._stream.n_components}: lower n_components"
            )
        groups = random_groups(len(pieces), settings.n_groups, rng)
        owners = np.repeat(groups, pieces)
        parts: list[tuple[Pairs, Windows]] = []
        for group in range(settings.n_groups):
            part = worker._stream.spawn().update(prepared[owners == group], pieces[groups == group])
            parts.append((part.pairs.finalize(), part.windows.finalize()))
        features = worker._stream.windows.features
        whole = len(pieces) == len(sizes)

        def chain_of(multiplicities: Any, views: str) -> Any:
            pairs, windows = combined(parts, multiplicities)
            emission = worker._emission_of
            return moment_starts(pairs, windows, features, views, self.algorithm, emission, rng)[0]

        views = chain_of(np.ones(settings.n_groups), self.views).name
        fitted = self._all_estimates(states, whole)

        def read(multiplicities: Any) -> Estimates:
            worker._set_chain(chain_of(multiplicities, views).chain)
            found: Estimates = worker._all_estimates(self._order_of(worker), whole)
            return found

        ranges = {"startprob": PROBABILITY, "transmat": PROBABILITY, "emissionprob": PROBABILITY}
        if getattr(self, "covariance_type", None) in ("spherical", "diag"):
            ranges["covariances"] = NOT_NEGATIVE
        return settings.intervals(fitted, read, ranges, rng)

    def _all_estimates(self, order: Any, starts: bool) -> dict[str, Any]:
        found = {"startprob": self.startprob_[order]} if starts else {}
        return {
            **found,
            "transmat": self.transmat_[np.ix_(order, order)],
            **self._emission_estimates(order),
        }

    def _order_of(self, other: HiddenMarkovIntervals) -> Any:
        """The states of another model in the order of the nearest of this one."""
        everything = np.arange(len(self.startprob_))
        mine, theirs = (
            next(iter(model._emission_estimates(everything).values())) for model in (self, other)
        )
        gaps = mine[:, None] - theirs[None]
        return linear_sum_assignment((gaps**2).sum(axis=2))[1]


def blocks(lengths: Any, n_groups: int) -> Any:
    """The lengths of pieces, whole sequences where there are enough, otherwise equal blocks."""
    if len(lengths) >= n_groups:
        return lengths
    size = int(lengths.sum()) / n_groups
    if size < SHORTEST_BLOCK:
        raise InvalidInputError(
            f"n_groups={n_groups} leaves blocks of {int(size)} rows, at least {SHORTEST_BLOCK} are "
            f"needed: lower n_groups to {max(int(lengths.sum()) // SHORTEST_BLOCK, 1)} or less, or "
            "give more rows"
        )
    cuts = np.maximum(np.round(lengths / size), 1).astype(np.int64)
    edges = [
        np.linspace(0, length, count + 1).round().astype(np.int64)
        for length, count in zip(lengths.tolist(), cuts.tolist(), strict=True)
    ]
    return np.concatenate([np.diff(each) for each in edges])


def combined(parts: list[tuple[Pairs, Windows]], multiplicities: Any) -> tuple[Pairs, Windows]:
    """The moments of all groups, each counted so many times."""

    def total(values: list[Any]) -> Any:
        pairs = zip(multiplicities.tolist(), values, strict=True)
        return sum(number * value for number, value in pairs if number > 0)

    pairs, windows = [each for each, _ in parts], [each for _, each in parts]
    tables = {lag: total([each.tables[lag] for each in pairs]) for lag in pairs[0].tables}
    names = ("n_rows", "n_sequences", "counts", "firsts")
    fields = {name: total([getattr(each, name) for each in pairs]) for name in names}
    sums = {
        name: total([getattr(each, name) for each in windows])
        for name in Windows.__dataclass_fields__
    }
    return Pairs(**fields, tables=tables), Windows(**sums)
