"""The automatic CP fit: compress, start, fit the core, replace components, finish."""

from latensor.decomposition.auto.automatic import Automatic

__all__ = ["Automatic"]
