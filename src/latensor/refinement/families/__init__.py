"""Families of distributions as expectation maximization sees them."""
