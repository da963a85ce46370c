"""What compression needs to know of the layers of a trained network, by passes over its inputs.

For every layer the mean and covariance of its input patches (x of a linear layer, the unfolded
I h w patch of a convolution), and F = E[J'J] (O x O), with J the derivatives of the centred
network outputs by the layer's output, summed over positions. Sums are in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from latensor.exceptions import InvalidInputError

# Patches of one batch beyond this many are thinned out evenly: covariances of convolutions need 16
# images, and have thousands of patches in each.
_MAX_PATCHES = 20_000


@dataclass
class LayerStatistics:
    """Sums over the input patches of one layer, and over the gradients of its outputs."""

    weight: float = 0.0
    first: Any = None
    second: Any = None
    gradients: Any = None
    n_gradients: float = 0.0
    n_positions: float = 0.0
    # Sums of original and compressed inputs together, for calibration.
    cross: dict[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> Any:
        """(d,) of the patches."""
        return self.first / self.weight

    @property
    def covariance(self) -> Any:
        """(d, d) of the patches, centred."""
        return self.second / self.weight - torch.outer(self.mean, self.mean)

    @property
    def sensitivity(self) -> Any:
        """F (O, O) per input."""
        return self.gradients / self.n_gradients


def patches(layer: Any, x: Any) -> Any:
    """Input patches (n, d) of a linear layer or convolution, in double precision."""
    x = x.detach()
    if isinstance(layer, torch.nn.Linear):
        return x.reshape(-1, x.shape[-1]).double()
    n = len(layer.kernel_size)
    margins = _margins(layer)
    if any(margins):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x = functional.pad(x, margins, mode=mode)
    for axis in range(n):
        span = layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1
        x = x.unfold(2 + axis, span, layer.stride[axis])
        x = x[..., :: layer.dilation[axis]]
    # (batch, I, positions.., kernel..) -> (batch positions, I kernel)
    order = (0, *range(2, 2 + n), 1, *range(2 + n, 2 + 2 * n))
    found = x.permute(order).reshape(-1, layer.weight[0].numel())
    if len(found) > _MAX_PATCHES:
        found = found[:: -(-len(found) // _MAX_PATCHES)]
    return found.double()


def _margins(layer: Any) -> list[int]:
    sizes = zip(layer.kernel_size, layer.dilation, strict=True)
    if layer.padding == "valid":
        return [0] * (2 * len(layer.kernel_size))
    if layer.padding == "same":
        totals = [d * (k - 1) for k, d in sizes]
        pairs = [(t // 2, t - t // 2) for t in totals]
    else:
        pairs = [(p, p) for p in layer.padding]
    return [m for pair in reversed(pairs) for m in pair]


def batches_of(inputs: Any, device: Any, limit: int) -> list[Any]:
    """Input batches of a loader, without their labels, on the device of the network."""
    if isinstance(inputs, torch.Tensor):
        inputs = [inputs]
    if not isinstance(inputs, Iterable):
        raise InvalidInputError(
            f"inputs must be a tensor or a loader of batches, got {type(inputs).__name__}"
        )
    found: list[Any] = []
    count = 0
    for batch in inputs:
        given = batch[0] if isinstance(batch, list | tuple) else batch
        if not isinstance(given, torch.Tensor):
            raise InvalidInputError(
                f"inputs yields {type(given).__name__}: batches must be tensors, or begin with one"
            )
        if not len(given):
            continue
        found.append(given[: limit - count].to(device))
        count += len(found[-1])
        if count >= limit:
            break
    if not count:
        raise InvalidInputError("inputs yields nothing: give at least one batch")
    return found


@contextmanager
def watching(model: Any, names: Iterable[str], see: Callable[..., None]) -> Iterator[None]:
    """Call `see(name, layer, input, output)` in every forward pass."""
    modules = dict(model.named_modules())
    handles = []
    for name in names:

        def hook(layer: Any, given: Any, output: Any, name: str = name) -> None:
            see(name, layer, given[0], output)

        handles.append(modules[name].register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def measure(
    model: Any, names: list[str], batches: list[Any], *, seed: int = 0
) -> dict[str, LayerStatistics]:
    """Statistics of layers: one forward and one backward pass over the inputs."""
    found = {name: LayerStatistics() for name in names}
    outputs: dict[str, Any] = {}

    def see(name: str, layer: Any, x: Any, output: Any) -> None:
        if name in outputs:
            raise InvalidInputError(
                f"layer {name!r} is used more than once in a forward pass: leave it out by skip="
            )
        own = found[name]
        values = patches(layer, x)
        first, second = values.sum(0), values.T @ values
        own.first = first if own.first is None else own.first + first
        own.second = second if own.second is None else own.second + second
        own.weight += len(values)
        output.retain_grad()
        outputs[name] = output

    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad(), watching(model, names, see):
        for batch in batches:
            outputs.clear()
            result = model(batch.detach().requires_grad_(batch.is_floating_point()))
            logits = result.reshape(len(batch), -1)
            centred = logits - logits.mean(1, keepdim=True)
            drawn = torch.randn(centred.shape, generator=generator).to(centred)
            (centred * drawn).sum().backward()
            for name, output in outputs.items():
                _add_gradients(found[name], model.get_submodule(name), output, len(batch))
    for parameter in model.parameters():
        parameter.grad = None
    missing = [name for name in names if found[name].first is None]
    if missing:
        raise InvalidInputError(f"layer {missing[0]!r} is not used by the model on these inputs")
    return found


def _add_gradients(own: LayerStatistics, layer: Any, output: Any, n_inputs: int) -> None:
    gradient = output.grad
    if isinstance(layer, torch.nn.Linear):
        rows = gradient.reshape(-1, gradient.shape[-1]).double()
    else:
        rows = gradient.movedim(1, -1).reshape(-1, gradient.shape[1]).double()
    product = rows.T @ rows
    own.gradients = product if own.gradients is None else own.gradients + product
    own.n_gradients += n_inputs
    own.n_positions += len(rows)
