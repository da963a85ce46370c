"""Latent trees: structure and conditional distributions from the leaves."""
