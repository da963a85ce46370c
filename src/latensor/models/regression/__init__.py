"""Regression on tensors: weights of low rank in place of one number per entry."""
