"""Figures for people who would rather look than read (needs the extra `plots`)."""

from latensor.plots.figures import save
from latensor.plots.pictures import images

__all__ = ["images", "save"]
