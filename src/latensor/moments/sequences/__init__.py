"""Moments of sequences: pairs of symbols at several distances; past, present and future."""

from latensor.moments.sequences.pairs import LAGS, PairAccumulator, Pairs
from latensor.moments.sequences.sample import SequenceSample
from latensor.moments.sequences.windows import DECAYS, WindowAccumulator, Windows

__all__ = [
    "DECAYS",
    "LAGS",
    "PairAccumulator",
    "Pairs",
    "SequenceSample",
    "WindowAccumulator",
    "Windows",
]
