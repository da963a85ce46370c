"""What all layers share: checks of their input, component dropout, starting values."""

from __future__ import annotations

import math
import numbers
from typing import Any

import torch

from latensor.exceptions import InvalidInputError


def check_rank(name: str, rank: object, limit: int, owner: str) -> int:
    """A rank from 1 to the largest that can be of use."""
    if not isinstance(rank, numbers.Integral) or isinstance(rank, bool) or int(rank) < 1:
        raise InvalidInputError(f"{name}={rank!r} of {owner} must be an integer of at least 1")
    if int(rank) > limit:
        raise InvalidInputError(
            f"{name}={rank} of {owner} exceeds {limit}, the largest that its weights can have"
        )
    return int(rank)


def check_dropout(dropout: object, owner: str) -> float:
    """The chance that a component is dropped, below one."""
    if not isinstance(dropout, numbers.Real) or not 0 <= float(dropout) < 1:
        raise InvalidInputError(f"dropout={dropout!r} of {owner} must be at least 0 and below 1")
    return float(dropout)


def check_input(x: Any, weight: Any, expected: tuple[int, ...], owner: str) -> None:
    """Refuse input of another shape or on another device than the layer's.

    Parameters
    ----------
    x : tensor
    weight : a parameter of the layer
    expected : the last dimensions of x
    owner : str, the layer
    """
    if x.shape[-len(expected) :] != expected:
        raise InvalidInputError(
            f"{owner} takes input whose last dimensions are {expected}, got shape {tuple(x.shape)}"
        )
    if x.device != weight.device:
        raise InvalidInputError(
            f"{owner} is on device {weight.device} but its input on {x.device}: move one of them"
        )


def kept_components(size: int, dropout: float, training: bool, like: Any) -> Any:
    """A mask (size,) of zeros and 1 / (1 - dropout), or None where nothing is dropped."""
    if not training or dropout == 0:
        return None
    kept = torch.rand(size, device=like.device) >= dropout
    return kept.to(like.dtype) / (1 - dropout)


def standard_variance(fan_in: int) -> float:
    """That of the entries of a dense layer of PyTorch, uniform up to fan_in^-1/2."""
    return 1 / (3 * fan_in)


def fill(parameters: list[Any], n_terms: int, variance: float) -> None:
    """Normal entries for which the weights that are made of them have a given variance.

    A sum of `n_terms` products of N independent entries of standard deviation s has the variance
    n_terms s^(2 N).
    """
    deviation = (variance / n_terms) ** (1 / (2 * len(parameters)))
    with torch.no_grad():
        for parameter in parameters:
            parameter.normal_(0.0, deviation)


def fill_bias(bias: Any, fan_in: int) -> None:
    """As PyTorch does it."""
    if bias is not None:
        bound = 1 / math.sqrt(fan_in)
        torch.nn.init.uniform_(bias, -bound, bound)


def parameter(values: Any) -> Any:
    """A parameter with memory of its own."""
    return torch.nn.Parameter(values.detach().clone().contiguous())


def dense_linear(weight: Any, bias: Any) -> torch.nn.Linear:
    """A plain linear layer with copies of these."""
    options = {"device": weight.device, "dtype": weight.dtype}
    dense = torch.nn.Linear(weight.shape[1], weight.shape[0], bias is not None, **options)
    dense.weight = parameter(weight)
    if bias is not None:
        dense.bias = parameter(bias)
    return dense


def in_double(weight: Any) -> Any:
    """A trained weight without its gradient, in double precision: factors are rounded once."""
    return weight.detach().to("cpu", torch.float64)


def padded(values: Any, shape: tuple[int, ...]) -> Any:
    """Values with zeros after them in every dimension: a rank that a tensor did not need."""
    if tuple(values.shape) == tuple(shape):
        return values
    found = values.new_zeros(shape)
    found[tuple(slice(0, d) for d in values.shape)] = values
    return found
