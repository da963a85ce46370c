"""What compression made of a network: a table, and a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LayerReport:
    """What became of one layer.

    Attributes
    ----------
    name, kind : str
    method : "dense", "svd", "tucker" or "cp"
    ranks : int, (R_out, R_in) or None
    n_weights, n_weights_before : int, without biases
    operations, operations_before : float, multiplications and additions for one input
    output_error : float, relative root mean square error of the layer's own outputs on the inputs
        that the compressed network gives it, against those of the original network
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
    output_error : float, relative error of the network's outputs, their mean over outputs removed,
        on the inputs given
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
            f"({self.keep:.1%}), {self.keep_operations:.0%} of the operations, outputs off by "
            f"{self.output_error:.3f}"
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
        f"{layer.operations / layer.operations_before:.0%}" if layer.operations_before else "",
        f"{layer.output_error:.3f}",
        layer.reason,
    )
