"""Noisy-or networks as BIF files, which programs for Bayesian networks read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.models.networks.noisy_or_read_off import NoisyOrState
from latensor.whole_files import PathLike, whole_text

# A table of a feature has 2^parents rows.
_MOST_PARENTS = 14


def write_bif(
    path: PathLike,
    state: NoisyOrState,
    feature_names: Sequence[Any] | None,
    cause_names: Sequence[Any] | None,
    threshold: float,
) -> Path:
    """Write a network as a BIF file: one binary variable for every cause and feature.

    Parameters
    ----------
    path : file to write
    state : the parameters
    feature_names, cause_names : (d,) and (k,), None for numbers
    threshold : float, causes that turn a feature on with less are no parents of it
    """
    k, d = state.components.shape
    causes = _names(cause_names, k, "cause_names", "cause")
    features = _names(feature_names, d, "feature_names", "feature")
    both = set(causes) & set(features)
    if both:
        raise InvalidInputError(f"{sorted(both)[0]!r} names a cause and a feature: rename one")
    if not 0 <= threshold < 1:
        raise InvalidInputError(f"threshold={threshold!r} must be at least 0 and below 1")
    most = int((state.components > threshold).sum(axis=0).max())
    if most > _MOST_PARENTS:
        raise InvalidInputError(
            f"threshold={threshold} leaves a feature with {most} causes, a table of 2^{most} rows: "
            f"at most {_MOST_PARENTS} are written, raise threshold"
        )
    with whole_text(path) as file:
        file.writelines(_lines(state, causes, features, threshold))
    return Path(path)


def _lines(
    state: NoisyOrState, causes: list[str], features: list[str], threshold: float
) -> Iterator[str]:
    yield "network noisy_or {\n}\n"
    for name in (*causes, *features):
        yield f"variable {name} {{\n  type discrete [ 2 ] {{ no, yes }};\n}}\n"
    for name, p in zip(causes, state.prior, strict=True):
        yield f"probability ( {name} ) {{\n  table {1 - p:.9g}, {p:.9g};\n}}\n"
    for i, name in enumerate(features):
        parents = np.flatnonzero(state.components[:, i] > threshold)
        off = 1 - state.leak[i]
        if not len(parents):
            yield f"probability ( {name} ) {{\n  table {off:.9g}, {1 - off:.9g};\n}}\n"
            continue
        yield f"probability ( {name} | {', '.join(causes[j] for j in parents)} ) {{\n"
        for active in itertools.product((0, 1), repeat=len(parents)):
            left = off * np.prod((1 - state.components[parents, i]) ** np.array(active))
            words = ", ".join(("no", "yes")[a] for a in active)
            yield f"  ({words}) {left:.9g}, {1 - left:.9g};\n"
        yield "}\n"


def _names(given: Sequence[Any] | None, count: int, argument: str, word: str) -> list[str]:
    if given is None:
        return [f"{word}{i}" for i in range(count)]
    if len(given) != count:
        raise InvalidInputError(f"{argument} has {len(given)} names for {count} variables")
    # Names in BIF are words.
    found = [re.sub(r"\W+", "_", str(name)).strip("_") or f"{word}{i}"
             for i, name in enumerate(given)]  # fmt: skip
    if len(set(found)) < count:
        raise InvalidInputError(f"{argument} holds names that are equal as words of BIF: rename")
    return found
