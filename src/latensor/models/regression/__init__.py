"""Regression: on tensors, by weights of low rank; and with a latent component.

Three models. Weights of low rank, from what users meet to the arithmetic: `regressors` and
`classifiers` (with `base` and `tensor_input`), their models over folds (`model`, `class_model`),
the path of ridges (`fit` with `path`, `class_path`), where it starts (`starts`), the minimizer
(`solve`) and what it minimizes (`objective`, `class_objective`, `losses`), rows (`design`) and
parameters (`weights`, `tucker_weights`). A mixture of regressions: `mixture`, `mixture_model`,
`mixture_family`, `mixture_certificate`. Partial least squares: `partial_least_squares` and its
model.
"""
