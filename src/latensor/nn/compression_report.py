"""What compression made of a network: a table, and a figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from latensor.nn.linear import FactorizedLinear
from latensor.nn.statistics import watching


@dataclass(frozen=True)
class LayerReport:
    """What became of one layer.

    Attributes
    ----------
    name, kind : str
    method : "dense", "svd", "tucker", "cp", or "units": dense, with fewer of them
    ranks : int, (R_out, R_in) or None; of "units" those that it gives and takes
    n_weights, n_weights_before : int, without biases
    operations, operations_before : float, multiplications and additions for one input
    output_error : float, relative root mean square error of the layer's own outputs (that it still
        has) on the inputs that the compressed network gives it, against those of the original
    reason : str, why it was left alone
    """

    name: str
    kind: str
    method: str
    ranks: Any
    n_weights: int
    n_weights_before: int
    operations: float
    operations_before: float
    output_error: float
    reason: str = ""


@dataclass(frozen=True)
class CompressionReport:
    """What became of a network: `print` shows a table, `plot` a figure.

    Attributes
    ----------
    layers : LayerReport of every linear layer and convolution, in the order of the forward pass,
        then of other layers that have weights, whose operations are not counted
    n_parameters, n_parameters_before : int, of the whole network
    output_error : float, root mean square error of the network's outputs on the inputs given,
        relative to their standard deviation over these
    """

    layers: tuple[LayerReport, ...]
    n_parameters: int
    n_parameters_before: int
    output_error: float

    @property
    def keep(self) -> float:
        """The fraction of parameters that is left."""
        return self.n_parameters / self.n_parameters_before

    @property
    def keep_operations(self) -> float:
        """The fraction of operations of these layers that is left."""
        before = sum(layer.operations_before for layer in self.layers) or 1.0
        return sum(layer.operations for layer in self.layers) / before

    def __str__(self) -> str:
        head = ("layer", "method", "ranks", "weights", "of", "operations", "output error", "")
        rows = [head, *(_row(each) for each in self.layers)]
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        lines = []
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
        lines.append(
            f"{self.n_parameters:,} of {self.n_parameters_before:,} parameters "
            f"({100 * self.keep:.1f} %), {100 * self.keep_operations:.0f} % of the operations, "
            f"outputs off by {self.output_error:.3f}"
        )
        return "\n".join(lines)

    def plot(self) -> Any:
        """A matplotlib Figure: weights before and after, and output errors, by layer."""
        from importlib import import_module

        return import_module("latensor.plots").compression(self)


def _row(layer: LayerReport) -> tuple[str, ...]:
    return (
        layer.name,
        layer.method,
        "" if layer.ranks is None else str(layer.ranks),
        f"{layer.n_weights:,}",
        f"{layer.n_weights_before:,}",
        f"{100 * layer.operations / layer.operations_before:.0f} %"
        if layer.operations_before
        else "",
        f"{layer.output_error:.3f}",
        layer.reason,
    )


def report_of(
    original: Any,
    small: Any,
    names: list[str],
    reasons: dict[str, str],
    others: dict[str, str],
    rows: dict[str, Any],
    batches: list[Any],
) -> CompressionReport:
    """What became of the layers of a network.

    Parameters
    ----------
    original, small : networks
    names : layers that were compressed
    reasons, others : layers that were left alone, with and without operations that are counted
    rows : units that layers of `small` still give, where they are fewer
    batches : inputs
    """
    names = [n for n, m in original.named_modules() if n in names or n in reasons]
    squares = {name: [0.0, 0.0] for name in names}
    outputs: dict[str, Any] = {}
    counts: dict[str, float] = {}

    def see(name: str, layer: Any, x: Any, output: Any) -> Any:
        if name in outputs:
            expected = outputs.pop(name)
            if name in rows:
                axis = -1 if isinstance(layer, torch.nn.Linear | FactorizedLinear) else 1
                expected = expected.index_select(axis, rows[name].to(expected.device))
            gap = (output - expected).abs().double()
            squares[name][0] += float(gap.square().sum())
        else:
            outputs[name] = output
            squares[name][1] += float(output.abs().double().square().sum())
            features = output.shape[-1] if isinstance(layer, torch.nn.Linear) else output.shape[1]
            counts[name] = counts.get(name, 0.0) + output.numel() / features
        return output.clone()  # an activation in place would change what is compared

    off, size, n_inputs = 0.0, 0.0, 0
    shift: Any = None
    moved: Any = 0.0
    with torch.no_grad(), watching(original, names, see), watching(small, names, see):
        for batch in batches:
            outputs.clear()
            y, z = (m(batch).reshape(len(batch), -1).double() for m in (original, small))
            shift = y.mean(0) if shift is None else shift
            off += float((z - y).square().sum())
            size, moved = size + float((y - shift).square().sum()), moved + (y - shift).sum(0)
            n_inputs += len(batch)
    size -= float((moved.square()).sum()) / n_inputs  # around the mean over all inputs
    layers = []
    for name in names:
        before, after = original.get_submodule(name), small.get_submodule(name)
        weights = before.weight.numel()
        each = counts.get(name, 0.0) / n_inputs
        left = sum(p.numel() for n, p in after.named_parameters() if n != "bias")
        method = "dense"
        ranks: Any = None
        if isinstance(after, FactorizedLinear):
            method, ranks = "svd", after.rank
        elif hasattr(after, "ranks"):
            method, ranks = after.method, after.ranks
            ranks = ranks[0] if len(ranks) == 1 else ranks
        elif after.weight.shape != before.weight.shape:
            method, ranks = "units", tuple(after.weight.shape[:2])
        reason = reasons.get(name, "" if ranks is not None else "nothing gained")
        missed, whole = squares[name]
        layers.append(
            LayerReport(
                name,
                type(before).__name__,
                method,
                ranks,
                left,
                weights,
                each * left,
                each * weights,
                math.sqrt(missed / whole) if whole > 0 else 0.0,
                reason,
            )
        )
    for name, reason in others.items():
        module = original if name == "model" else original.get_submodule(name)
        left = sum(p.numel() for p in module._parameters.values() if p is not None and p.ndim > 1)
        kind = type(module).__name__
        layers.append(LayerReport(name, kind, "dense", None, left, left, 0.0, 0.0, 0.0, reason))
    return CompressionReport(
        tuple(layers),
        sum(p.numel() for p in small.parameters()),
        sum(p.numel() for p in original.parameters()),
        math.sqrt(off / size) if size > 0 else 0.0,
    )
