"""Layers of low rank that are best in the outputs, not in the weights.

With the centred covariance P of input patches, the best layer of rank R in mean squared output is
W' = U U' W, U the leading eigenvectors of W P W' (O x O): no root and no inverse of P. In the
metric of the network's outputs M = F^1/2 W P W' F^1/2 takes its place, W' = F^-1/2 U U' F^1/2 W.
Biases follow exactly: b' = b + (W - W') E[x].
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from latensor.moments.second import CrossCovariance
from latensor.nn.convolution import FactorizedConv1d, FactorizedConv2d, FactorizedConv3d
from latensor.nn.linear import FactorizedLinear
from latensor.nn.statistics import LayerStatistics

_FACTORIZED = {1: FactorizedConv1d, 2: FactorizedConv2d, 3: FactorizedConv3d}
# Of the mean sensitivity of an output: F of a narrow layer after a ReLU is nearly singular.
_SENSITIVITY_RIDGE = 1e-3
# Towards the trained weights, of the mean variance of a patch entry: 1e-4 doubles the error of
# the layer itself for the same logits, 1e-1 loses a tenth.
_CALIBRATION_RIDGE = 1e-2
# Input ranks of a convolution that are tried: fractions of its channels.
_INPUT_FRACTIONS = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to write a layer.

    Attributes
    ----------
    ranks : None for dense; R of a linear layer; (R_out, R_in) of a convolution
    n_weights : int, without biases
    error : float, mean squared error of the network's outputs, to first order
    operations : int, multiplications and additions for one position
    """

    ranks: Any
    n_weights: int
    error: float
    operations: float


def roots(sensitivity: Any) -> tuple[Any, Any]:
    """F^1/2 and F^-1/2 of a sensitivity, ridged."""
    size = len(sensitivity)
    mean = float(sensitivity.trace()) / size
    shift = _SENSITIVITY_RIDGE * mean if mean > 0 else 1.0
    values, vectors = torch.linalg.eigh(sensitivity)
    values = values.clamp(min=0) + shift
    return (vectors * values.sqrt()) @ vectors.T, (vectors / values.sqrt()) @ vectors.T


def matrix_of(layer: Any) -> Any:
    """The weights (O, d) of a layer in double precision."""
    return layer.weight.detach().flatten(1).double()


def choices(layer: Any, known: LayerStatistics, positions: float) -> list[Choice]:
    """All ranks of a layer that cost less than it does, and the layer itself.

    Parameters
    ----------
    layer : linear layer or convolution
    known : LayerStatistics
    positions : float, how often the layer is applied to one input
    """
    W = matrix_of(layer)
    out, size = W.shape
    root, _ = roots(known.sensitivity)
    dense = Choice(None, out * size, 0.0, positions * out * size)
    found = [dense]
    P = known.covariance
    if _is_matrix(layer):
        spectrum = torch.linalg.eigvalsh(root @ W @ P @ W.T @ root).flip(0).clamp(min=0)
        left = spectrum.sum() - spectrum.cumsum(0)
        for rank in range(1, min(out, size) + 1):
            cost = rank * (out + size)
            if cost < dense.n_weights:
                error = max(float(left[rank - 1]), 0.0)
                found.append(Choice(rank, cost, error, positions * cost))
        return _pareto(found)
    inner, area = layer.in_channels, math.prod(layer.kernel_size)
    whole = float((root @ W @ P @ W.T @ root).trace())
    ranks = sorted({max(1, round(f * inner)) for f in _INPUT_FRACTIONS})
    for r_in in [*[r for r in ranks if r < inner], None]:
        B = None if r_in is None else input_side(layer, P, root, r_in)
        explained = _explained(W, P, B, area, root)
        tail = whole - explained.cumsum(0)
        width = inner if r_in is None else r_in
        first = 0 if r_in is None else inner * width
        for r_out in [*range(1, out), None]:
            cost = first + (r_out or out) * width * area + (0 if r_out is None else out * r_out)
            if cost < dense.n_weights and (r_in, r_out) != (None, None):
                error = max(float(tail[(r_out or out) - 1]), 0.0)
                found.append(Choice((r_out, r_in), cost, error, positions * cost))
    return _pareto(found)


def _is_matrix(layer: Any) -> bool:
    return isinstance(layer, torch.nn.Linear) or math.prod(layer.kernel_size) == 1


def _pareto(found: list[Choice]) -> list[Choice]:
    """Choices of which none is both smaller and better than another, by their size; dense last."""
    kept: list[Choice] = []
    for each in sorted(found, key=lambda c: (c.n_weights, c.error)):
        if not kept or each.error < kept[-1].error:
            kept.append(each)
    # A smaller form without any error does not replace it: budgets are fractions of its size.
    return kept if kept[-1].ranks is None else [*kept, found[0]]


def input_side(layer: Any, P: Any, root: Any, rank: int) -> Any:
    """B (I, rank): directions of input channels that matter most for the outputs.

    With the channel covariance C, the mean over taps of P's diagonal blocks, B = C^-1/2 V for the
    leading eigenvectors V of the mode-2 Gram matrix of F^1/2 W x_2 C^1/2.
    """
    inner, area = layer.in_channels, math.prod(layer.kernel_size)
    blocks = P.reshape(inner, area, inner, area)
    C = torch.einsum("itjt->ij", blocks) / area
    values, vectors = torch.linalg.eigh(C)
    values = values.clamp(min=0)
    values = values + 1e-8 * float(values.mean()) + torch.finfo(torch.float64).tiny
    half, back = (vectors * values.sqrt()) @ vectors.T, (vectors / values.sqrt()) @ vectors.T
    kernel = (root @ matrix_of(layer)).reshape(-1, inner, area)
    unfolded = half @ kernel.permute(1, 0, 2).reshape(inner, -1)
    _, leading = torch.linalg.eigh(unfolded @ unfolded.T)
    basis, _ = torch.linalg.qr(back @ leading[:, -rank:])
    return basis


def _core(W: Any, P: Any, B: Any, area: int) -> tuple[Any, Any]:
    """G (O, R_in area), exact for the patch covariance given B, and Q = K'PK of K = B (x) I."""
    if B is None:
        return W, P
    inner, rank = B.shape
    blocks = P.reshape(inner, area, inner, area)
    half = torch.einsum("ir,itjs->rtjs", B, blocks)
    Q = torch.einsum("rtjs,jq->rtqs", half, B).reshape(rank * area, rank * area)
    PK = half.reshape(rank * area, inner * area).T
    right = (W @ PK).T
    shift = 1e-10 * float(Q.trace()) / len(Q) + torch.finfo(torch.float64).tiny
    G = torch.linalg.solve(Q + shift * torch.eye(len(Q), dtype=Q.dtype, device=Q.device), right).T
    return G, Q


def _explained(W: Any, P: Any, B: Any, area: int, root: Any) -> Any:
    G, Q = _core(W, P, B, area)
    return torch.linalg.eigvalsh(root @ G @ Q @ G.T @ root).flip(0).clamp(min=0)


def truncated(
    layer: Any, W: Any, mean: Any, P: Any, sensitivity: Any, ranks: Any, shift: Any = None
) -> Any:
    """The layer with weights W (O, d), of low rank in the metric of the network's outputs.

    Parameters
    ----------
    layer : linear layer or convolution
    W : (O, d), its weights or calibrated ones
    mean, P : of its input patches
    sensitivity : F (O, O)
    ranks : as in `Choice`
    shift : (O,), the mean that its outputs should have; by default that of W x + b
    """
    bias = None if layer.bias is None else layer.bias.detach().double()
    if shift is None:
        shift = W @ mean + (0 if bias is None else bias)
    if ranks is None:
        dense = copy.deepcopy(layer)
        return _filled(dense, {"weight": W.reshape(layer.weight.shape)}, shift - W @ mean)
    root, back = roots(sensitivity)
    if isinstance(layer, torch.nn.Linear):
        A, right = _two_factors(W, P, root, back, ranks)
        small = FactorizedLinear(
            layer.in_features,
            layer.out_features,
            ranks,
            device=layer.weight.device,
            dtype=layer.weight.dtype,
        )
        values = {"output_factor": A, "input_factor": right}
        return _filled(small, values, shift - A @ (right @ mean))
    if math.prod(layer.kernel_size) == 1:
        A, right = _two_factors(W, P, root, back, ranks)
        small = _like(layer, (ranks, None))
        shape = small.factors[0].shape
        values = {"factors.0": right.reshape(shape), "factors.1": A}
        return _filled(small, values, shift - A @ (right @ mean))
    return _convolution(layer, W, mean, P, root, back, ranks, shift)


def _two_factors(W: Any, P: Any, root: Any, back: Any, rank: int) -> tuple[Any, Any]:
    """F^-1/2 U and U' F^1/2 W, norms shared evenly between each column and its row."""
    _, vectors = torch.linalg.eigh(root @ W @ P @ W.T @ root)
    U = vectors[:, -rank:].flip(1)
    A, right = back @ U, U.T @ root @ W
    return _balanced(A, right)


def _balanced(A: Any, right: Any) -> tuple[Any, Any]:
    a, b = A.norm(dim=0), right.flatten(1).norm(dim=1)
    fraction = torch.where((a > 0) & (b > 0), (b / a.clamp(min=1e-300)).sqrt(), torch.ones_like(a))
    fraction = torch.where(fraction > 0, fraction, torch.ones_like(fraction))
    return A * fraction, right / fraction.reshape(-1, *[1] * (right.ndim - 1))


def _convolution(
    layer: Any, W: Any, mean: Any, P: Any, root: Any, back: Any, ranks: Any, shift: Any
) -> Any:
    r_out, r_in = ranks
    inner, area = layer.in_channels, math.prod(layer.kernel_size)
    B = None if r_in is None else input_side(layer, P, root, r_in)
    G, Q = _core(W, P, B, area)
    small = _like(layer, ranks)
    width = inner if r_in is None else r_in
    size = (-1, width, *layer.kernel_size)
    chain = [] if B is None else [B.T]
    if r_out is None:
        chain.append(G.reshape(size))
        reached = G
    else:
        A, core = _two_factors(G, Q, root, back, r_out)
        chain += [core.reshape(size), A]
        reached = A @ core
    values = {f"factors.{k}": factor for k, factor in enumerate(chain)}
    patch = mean.reshape(inner, area)
    patch = patch if B is None else B.T @ patch
    return _filled(small, values, shift - reached @ patch.flatten())


def _like(layer: Any, ranks: Any) -> Any:
    """An empty layer of low rank with the settings of a convolution."""
    return _FACTORIZED[len(layer.kernel_size)](
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        ranks,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        padding_mode=layer.padding_mode,
        device=layer.weight.device,
        dtype=layer.weight.dtype,
    )


def _filled(layer: Any, values: dict[str, Any], bias: Any) -> Any:
    """A layer with given parameters; its bias corrects the mean of its outputs."""
    with torch.no_grad():
        for name, value in values.items():
            layer.get_parameter(name).copy_(value)
        if layer.bias is None:
            layer.bias = torch.nn.Parameter(bias.to(layer.weight))
        else:
            layer.bias.copy_(bias)
    return layer


def calibrated(layer: Any, known: CrossCovariance) -> tuple[Any, Any, Any, Any]:
    """Weights for which a layer on compressed inputs gives the outputs of the original.

    With y = W x + b the original outputs and z the compressed inputs, centred, W_t = W +
    (E[y z'] - W E[z z']) (E[z z'] + rho I)^-1. Returns W_t, mean and covariance of z, and the mean
    of y.
    """
    W, P = matrix_of(layer), known.y_covariance
    size = len(P)
    shift = _CALIBRATION_RIDGE * float(P.trace()) / size or 1.0
    ridged = P + shift * torch.eye(size, dtype=P.dtype, device=P.device)
    moved = W + torch.linalg.solve(ridged, (known.cross_covariance - W @ P).T).T
    return moved, known.y_mean, P, known.x_mean


def spend(
    lists: dict[str, list[Choice]], budget: float, cost: Callable[[Choice], float]
) -> dict[str, Choice]:
    """One choice per layer: the least sum of errors within a budget.

    Minimizes error + lambda cost in every layer, with lambda by bisection; what is left of the
    budget goes to the changes that save most error for their cost.
    """

    def at(price: float) -> dict[str, Choice]:
        return {
            name: min(options, key=lambda c: (c.error + price * cost(c), cost(c)))
            for name, options in lists.items()
        }

    def total(chosen: dict[str, Choice]) -> float:
        return sum(cost(c) for c in chosen.values())

    if total(at(0.0)) <= budget:
        return at(0.0)
    scale = max(max(c.error for c in options) for options in lists.values()) or 1.0
    low, high = 0.0, scale
    while total(at(high)) > budget and high < scale * 1e12:
        high *= 16
    for _ in range(100):
        middle = math.sqrt(low * high) if low > 0 else high / 1e6
        if low > 0 and high / low < 1 + 1e-6:
            break
        if total(at(middle)) > budget:
            low = middle
        else:
            high = middle
            if low == 0 and high < scale * 1e-18:
                break
    chosen = at(high)
    while True:
        room = budget - total(chosen)
        gains = [
            ((chosen[name].error - c.error) / (cost(c) - cost(chosen[name])), name, c)
            for name, options in lists.items()
            for c in options
            if c.error < chosen[name].error and 0 < cost(c) - cost(chosen[name]) <= room
        ]
        if not gains:
            return chosen
        _, name, best = max(gains, key=lambda g: g[0])
        chosen[name] = best
