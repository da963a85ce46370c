"""The refinement of topics word by word, or in pairs: a decision counts before the next is made."""
