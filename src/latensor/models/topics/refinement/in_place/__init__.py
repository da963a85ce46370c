"""The polish of topics word by word, or in pairs: a decision counts before the next is made."""

from latensor.models.topics.refinement.in_place.passes import InPlacePasses, shares_fit

__all__ = ["InPlacePasses", "shares_fit"]
