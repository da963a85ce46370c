"""Regression: on tensors, by weights of low rank; and with a latent component."""
