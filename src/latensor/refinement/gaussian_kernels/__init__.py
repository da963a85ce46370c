"""Compiled loops of the refinement of mixtures, loaded when first called."""
