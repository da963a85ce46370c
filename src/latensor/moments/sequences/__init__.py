"""Moments of sequences: pairs of symbols at several distances; past, present and future."""

from latensor.moments.sequences.pairs import LAGS, LargestSymbol, Pairs, PairSums
from latensor.moments.sequences.points import PointSpread, PointSums
from latensor.moments.sequences.windows import DECAYS, Windows, WindowSums

__all__ = [
    "DECAYS",
    "LAGS",
    "LargestSymbol",
    "PairSums",
    "Pairs",
    "PointSpread",
    "PointSums",
    "WindowSums",
    "Windows",
]
