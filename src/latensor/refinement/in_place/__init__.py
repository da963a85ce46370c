"""The polish of topics word by word: every decision counts before the next word is looked at."""

from latensor.refinement.in_place.passes import InPlacePasses, shares_fit

__all__ = ["InPlacePasses", "shares_fit"]
