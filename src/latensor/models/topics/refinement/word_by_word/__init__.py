"""The refinement of topics word by word, or in pairs: a decision counts before the next is made."""

from latensor.models.topics.refinement.word_by_word.passes import WordByWordPasses, fractions_fit

__all__ = ["WordByWordPasses", "fractions_fit"]
