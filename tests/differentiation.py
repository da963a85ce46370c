"""Gradients by the array libraries, for tests that hold them against finite differences."""

import importlib

import numpy as np


def in_library(name, values):
    module = importlib.import_module({"torch": "torch", "jax": "jax.numpy"}[name])
    return module.asarray(values)


def gradient(name, function, tensor):
    """The gradient of a real function of an array, in the sense dL = Re sum conj(g) dX."""
    if name == "torch":
        import torch

        array = torch.tensor(tensor, requires_grad=True)
        function(array).backward()
        return array.grad.numpy()
    import jax

    return np.conj(np.asarray(jax.grad(function)(jax.numpy.asarray(tensor))))
