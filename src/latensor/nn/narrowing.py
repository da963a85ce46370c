"""Hidden units written by the others: an interpolative decomposition that activations pass.

Where the outputs of a layer reach the next one unit by unit (activation functions, pooling), the
next layer's inputs h, with mean m and covariance P, are predicted from some of their own units S:
h = m + T (h_S - m_S), T = P_:S P_SS^-1. The first layer then keeps only the rows S, the next one
has the weights W T and the bias b + W (m - T m_S). A factor of low rank puts a linear bottleneck
between two layers; units do not, since the activation is between them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from latensor.nn.statistics import LayerStatistics, watching
from latensor.nn.truncation import matrix_of

_nn = torch.nn
_CONVOLUTIONS = (_nn.Conv1d, _nn.Conv2d, _nn.Conv3d)
_BY_ENTRY = (
    _nn.ReLU, _nn.ReLU6, _nn.LeakyReLU, _nn.ELU, _nn.SELU, _nn.CELU, _nn.GELU, _nn.SiLU, _nn.Mish,
    _nn.Tanh, _nn.Sigmoid, _nn.LogSigmoid, _nn.Softplus, _nn.Softsign, _nn.Hardtanh, _nn.Hardswish,
    _nn.Hardsigmoid, _nn.Identity, _nn.Dropout,
)  # fmt: skip
_BY_CHANNEL = (
    _nn.MaxPool1d, _nn.MaxPool2d, _nn.MaxPool3d, _nn.AvgPool1d, _nn.AvgPool2d, _nn.AvgPool3d,
    _nn.AdaptiveAvgPool1d, _nn.AdaptiveAvgPool2d, _nn.AdaptiveAvgPool3d, _nn.AdaptiveMaxPool1d,
    _nn.AdaptiveMaxPool2d, _nn.AdaptiveMaxPool3d, _nn.Dropout1d, _nn.Dropout2d, _nn.Dropout3d,
)  # fmt: skip
_NORMS = (_nn.BatchNorm1d, _nn.BatchNorm2d, _nn.BatchNorm3d)
_WATCHED = (_nn.Sequential, *_NORMS)
# Of the mean variance of the units that stay, against units that are nearly the same.
_RIDGE = 1e-4


@dataclass(frozen=True, eq=False)
class Hidden:
    """Units between two layers.

    Attributes
    ----------
    first, last : names of the layers before and after them
    norms : names of batch normalizations between
    n_units : int
    area : int, inputs of the layer after them that each unit has
    order : units, the most useful first
    errors : mean squared error of the network's outputs where the first k of `order` stay,
        k from 0 to n_units, to first order
    """

    first: str
    last: str
    norms: tuple[str, ...]
    n_units: int
    area: int
    order: tuple[int, ...] = ()
    errors: tuple[float, ...] = ()


def narrow(
    model: Any,
    names: list[str],
    known: dict[str, LayerStatistics],
    fraction: float,
    *,
    by_weights: bool,
    example: Any,
) -> tuple[Any, dict[str, Any]]:
    """A copy with fewer hidden units, and the units that each layer before them still gives.

    Parameters
    ----------
    model : network
    names, known : layers that may be changed, and their statistics
    fraction : float, of the weights of the layers around hidden units that is left
    by_weights : bool, or else of their operations
    example : an input of the network
    """
    found = hidden_units(model, set(names), example)
    hidden = [ordered(h, model, known[h.last]) for h in found]
    costs = {}
    for name in (name for h in hidden for name in (h.first, h.last)):
        times = 1.0 if by_weights else known[name].positions
        costs[name] = times * model.get_submodule(name).weight.numel()
    kept = widths(hidden, costs, fraction * sum(costs.values()))
    small, rows = narrowed(model, hidden, kept, known)
    try:
        with torch.no_grad():
            small(example)
    except RuntimeError:  # weights or outputs of these layers are used outside of the Sequential
        return model, {}
    return small, rows


def hidden_units(model: Any, names: set[str], example: Any) -> list[Hidden]:
    """Hidden units between layers of a `torch.nn.Sequential` that follow each other.

    Parameters
    ----------
    model : network
    names : layers that may be changed
    example : an input: a Sequential that the network does not call as a whole, once, is left alone
    """
    modules = dict(model.named_modules())
    called = {name: 0 for name, module in modules.items() if type(module) in _WATCHED}

    def see(name: str, *_: object) -> None:
        called[name] += 1

    with torch.no_grad(), watching(model, called, see):
        model(example)
    own_name = {id(module): name for name, module in modules.items()}
    found: dict[tuple[str, str], Hidden] = {}
    for owner in (name for name, n in called.items() if n == 1):
        first: tuple[str, Any] | None = None
        between: list[tuple[str, Any]] = []
        for module in _in_order(modules[owner]):
            name = own_name[id(module)]
            if isinstance(module, (_nn.Linear, *_CONVOLUTIONS)):
                usable = name in names and getattr(module, "groups", 1) == 1
                for each in _hidden(first, between, (name, module)) if first and usable else ():
                    if all(called[norm] == 1 for norm in each.norms):
                        found[each.first, each.last] = each
                first, between = ((name, module) if usable else None), []
            else:
                between.append((name, module))
    return list(found.values())


def _in_order(module: Any) -> Iterator[Any]:
    """The modules that a Sequential calls, one that stands there twice twice; else nothing."""
    if type(module) is _nn.Sequential:
        for child in module:
            yield from _in_order(child) if type(child) is _nn.Sequential else (child,)


def _hidden(first: Any, between: list[tuple[str, Any]], last: Any) -> list[Hidden]:
    """The units between two layers, or nothing where they do not reach the second one by one."""
    (first_name, before), (last_name, after) = first, last
    spatial, flat = isinstance(before, _CONVOLUTIONS), False
    norms = []
    for name, module in between:
        if type(module) is _nn.Flatten and spatial and not flat:
            flat = module.start_dim == 1 and module.end_dim == -1
            if not flat:
                return []
        elif type(module) in _NORMS and spatial and not flat:
            norms.append(name)
        elif type(module) in _BY_CHANNEL and spatial and not flat:
            continue
        elif type(module) not in _BY_ENTRY:
            return []
    n_units = before.weight.shape[0]
    if isinstance(after, _CONVOLUTIONS):
        area, fits = math.prod(after.kernel_size), spatial and not flat
        fits = fits and after.in_channels == n_units
    else:
        area, rest = divmod(after.in_features, n_units)
        fits = spatial == flat and not rest and (flat or area == 1)
    return [Hidden(first_name, last_name, tuple(norms), n_units, area)] if fits else []


def ordered(hidden: Hidden, model: Any, known: LayerStatistics) -> Hidden:
    """The same units, the most useful first, and the error that the others leave.

    Each next unit is the one that takes most of tr(M P), M = W' F W, where what the units before
    it predict is removed from P (pivoted Cholesky in the metric of the outputs). Units with several
    inputs each have the mean of both over them.
    """
    W, P = matrix_of(model.get_submodule(hidden.last)), known.covariance
    size, area = hidden.n_units, hidden.area
    metric = W.T @ known.sensitivity @ W
    whole = float((metric * P).sum())
    blocks = (size, area, size, area)
    M = torch.einsum("itjt->ij", metric.reshape(blocks))
    C = torch.einsum("itjt->ij", P.reshape(blocks)) / area
    error = float((M * C).sum())
    scale = whole / error if error > 0 else 0.0
    spread, gains = C.diagonal().clone(), ((C @ M) * C).sum(1)  # diagonals of C and C M C
    floor = torch.finfo(torch.float64).eps * size * float(spread.max())
    known_by = torch.zeros_like(C)  # columns of the Cholesky factor: C - L L' is left
    free = torch.ones(size, dtype=torch.bool, device=C.device)
    order, errors = [], [whole]
    for step in range(size):
        useful = free & (spread > floor)
        if not bool(useful.any()):
            break
        gain = torch.where(useful, gains / spread.clamp(min=floor), -torch.ones_like(gains))
        k, L = int(gain.argmax()), known_by[:, :step]
        column = (C[:, k] - L @ L[k]) / spread[k].sqrt()
        moved = M @ column
        taken = float(column @ moved)
        gains = gains - 2 * column * (C @ moved - L @ (L.T @ moved)) + taken * column**2
        spread = spread - column**2
        known_by[:, step] = column
        free[k] = False
        order.append(k)
        error -= taken
        errors.append(max(error * scale, 0.0))
    rest = [k for k in range(size) if bool(free[k])]
    errors += [0.0] * len(rest)
    return Hidden(
        hidden.first, hidden.last, hidden.norms, size, area, (*order, *rest), tuple(errors)
    )


def widths(hidden: list[Hidden], costs: dict[str, float], budget: float) -> dict[str, int]:
    """How many units stay in front of each layer, for the least sum of errors within a budget.

    The unit that adds least error for what it costs goes first; those that add none all go.

    Parameters
    ----------
    hidden : ordered units
    costs : of every layer that may change, at its full size
    budget : float, of their sum
    """
    kept = {each.last: each.n_units for each in hidden}
    before = {each.last: each for each in hidden}
    after = {each.first: each for each in hidden}

    def fraction(name: str, owner: dict[str, Hidden]) -> float:
        return kept[owner[name].last] / owner[name].n_units if name in owner else 1.0

    def cost(name: str) -> float:
        return costs[name] * fraction(name, before) * fraction(name, after)

    total = sum(cost(name) for name in costs)
    while True:
        options = []
        for each in hidden:
            k = kept[each.last]
            if k > 1:
                saved = (cost(each.first) + cost(each.last)) / k
                rise = each.errors[k - 1] - each.errors[k]
                rounding = torch.finfo(torch.float64).eps * each.n_units * each.errors[0]
                rise = rise if rise > rounding else 0.0
                options.append((rise / saved, saved, each.last))
        if not options or (total <= budget and min(options)[0] > 0):
            break
        _, saved, name = min(options)
        kept[name] -= 1
        total -= saved
    return kept


def narrowed(
    model: Any, hidden: list[Hidden], kept: dict[str, int], known: dict[str, LayerStatistics]
) -> tuple[Any, dict[str, Any]]:
    """A copy with fewer hidden units, and the units that each layer before them still gives."""
    small, rows = copy.deepcopy(model), {}
    for each in hidden:
        units = torch.tensor(sorted(each.order[: kept[each.last]]))
        if len(units) == each.n_units:
            continue
        own, last = known[each.last], small.get_submodule(each.last)
        kept_inputs = torch.isin(torch.arange(each.n_units), units).repeat_interleave(each.area)
        where, rest = kept_inputs.nonzero()[:, 0], (~kept_inputs).nonzero()[:, 0]
        W, P = matrix_of(last), own.covariance
        some = P[where][:, where]
        shift = _RIDGE * float(some.diagonal().mean()) or 1.0  # units that never change
        some = some + shift * torch.eye(len(where)).to(some)
        moved = W[:, where] + torch.linalg.solve(some, P[where][:, rest] @ W[:, rest].T).T
        bias = 0 if last.bias is None else last.bias.detach().double()
        bias = bias + W @ own.mean - moved @ own.mean[where]
        shape = (len(W), len(units), *last.weight.shape[2:])
        if isinstance(last, _nn.Linear):
            shape = (len(W), len(where))
        _set(last, moved.reshape(shape), bias)
        for name in (each.first, *each.norms):
            _keep_rows(small.get_submodule(name), units)
        rows[each.first] = units
    return small.eval(), rows


def _set(layer: Any, weight: Any, bias: Any) -> None:
    like = layer.weight
    layer.weight = _nn.Parameter(weight.to(like).contiguous(), like.requires_grad)
    layer.bias = None if bias is None else _nn.Parameter(bias.to(like), like.requires_grad)
    if isinstance(layer, _nn.Linear):
        layer.out_features, layer.in_features = weight.shape
    else:
        layer.out_channels, layer.in_channels = weight.shape[:2]


def _keep_rows(layer: Any, units: Any) -> None:
    """A layer, or batch normalization, of some of its units."""
    if not isinstance(layer, _NORMS):
        bias = None if layer.bias is None else layer.bias.detach()[units]
        _set(layer, layer.weight.detach()[units], bias)
        return
    layer.num_features = len(units)
    for name, value in [*layer.named_parameters(), *layer.named_buffers()]:
        if value.ndim:
            kept = value.detach()[units]
            if name in layer._parameters:
                kept = _nn.Parameter(kept, value.requires_grad)
            setattr(layer, name, kept)
