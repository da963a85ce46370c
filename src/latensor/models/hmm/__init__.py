"""Hidden Markov models: estimators, read-off, starts, certificate and inference."""
