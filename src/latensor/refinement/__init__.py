"""Expectation maximization, written once, and the likelihoods that it raises."""
