"""Gradients of decompositions with respect to the tensor, by the implicit function theorem."""

from latensor.decomposition.gradients.attach import with_cp_gradient, with_tucker_gradient

__all__ = ["with_cp_gradient", "with_tucker_gradient"]
