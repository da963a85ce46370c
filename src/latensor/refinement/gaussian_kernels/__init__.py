"""Compiled loops of the polish of mixtures, loaded when first called."""
