"""What compression needs to know of the layers of a trained network, by passes over its inputs.

For every layer the mean and covariance of its input patches (x of a linear layer, the unfolded
I h w patch of a convolution), and F = E[J'J] (O x O), with J the derivatives of the network's
outputs by the layer's output, summed over positions. For a loss in place of the outputs,
F is E[J'HJ] with its curvature H in the outputs, or the second moment of its gradients with given
labels. Sums are in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.nn import functional

from latensor.exceptions import InvalidInputError
from latensor.moments.second import Covariance, CovarianceAccumulator

# Patches beyond this many, of all inputs, are thinned out evenly: covariances of convolutions need
# 16 images, and have thousands of patches in each.
_MAX_PATCHES = 20_000
# Inputs that go through the network together, whatever the size of the batches given: gradients
# keep the activations of all layers.
_TOGETHER = 250


@dataclass
class LayerStatistics:
    """Moments of the input patches of one layer, and of the gradients of its outputs."""

    inputs: CovarianceAccumulator = field(default_factory=CovarianceAccumulator)
    gradients: CovarianceAccumulator = field(default_factory=CovarianceAccumulator)
    n_inputs: int = 0

    @cached_property
    def _known(self) -> Covariance:
        return self.inputs.finalize()

    @property
    def mean(self) -> Any:
        """(d,) of the patches."""
        return self._known.mean

    @property
    def covariance(self) -> Any:
        """(d, d) of the patches, centred."""
        return self._known.covariance

    @property
    def positions(self) -> float:
        """How often the layer is applied to one input."""
        return self.gradients.count / self.n_inputs

    @cached_property
    def sensitivity(self) -> Any:
        """F (O, O) per input."""
        known = self.gradients.finalize()
        return (known.covariance + torch.outer(known.mean, known.mean)) * self.positions


def patches(layer: Any, x: Any, fraction: float = 1.0) -> Any:
    """Input patches (n, d) of a linear layer or convolution, in double precision.

    Parameters
    ----------
    layer : linear layer or convolution
    x : its input
    fraction : of all inputs that these are
    """
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
    return _thinned(x.permute(order), n + 1, fraction).flatten(1).double()


def results(layer: Any, output: Any, fraction: float = 1.0) -> Any:
    """Outputs (n, O) of a layer for these patches, in double precision."""
    output = output.detach()
    if isinstance(layer, torch.nn.Linear):
        return output.reshape(-1, output.shape[-1]).double()
    return _thinned(output.movedim(1, -1), output.ndim - 1, fraction).double()


def _thinned(x: Any, n: int, fraction: float) -> Any:
    """Entries of the first n dimensions as rows, evenly thinned out before anything is copied."""
    size = math.prod(x.shape[:n])
    step = max(1, math.ceil(size / (fraction * _MAX_PATCHES)))
    places = torch.arange(0, size, step, device=x.device)
    return x[torch.unravel_index(places, x.shape[:n])]


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


def batches_of(
    inputs: Any, device: Any, limit: int, *, labelled: bool = False
) -> tuple[list[Any], list[Any]]:
    """Input batches of a loader on the device of the network, and their labels where asked for."""
    if isinstance(inputs, torch.Tensor):
        inputs = [inputs]
    if not isinstance(inputs, Iterable):
        raise InvalidInputError(
            f"inputs must be a tensor or a loader of batches, got {type(inputs).__name__}"
        )
    found: list[Any] = []
    labels: list[Any] = []
    count = 0
    for n_batches, batch in enumerate(inputs):
        pair = isinstance(batch, list | tuple)
        given = batch[0] if pair else batch
        if not isinstance(given, torch.Tensor):
            raise InvalidInputError(
                f"inputs yields {type(given).__name__}: batches must be tensors or begin with one; "
                "of others give a generator of tensors, and a module that takes them"
            )
        if labelled and not (pair and len(batch) > 1 and isinstance(batch[1], torch.Tensor)):
            raise InvalidInputError(
                "loss is a function of outputs and labels, but inputs yields no labels: give "
                "batches (inputs, labels)"
            )
        if not len(given):
            continue
        kept = given[: limit - count].to(device)
        if kept.is_floating_point() and not bool(torch.isfinite(kept).all()):
            raise InvalidInputError(
                f"inputs holds NaN or infinite entries in batch {n_batches}: remove them"
            )
        kept = kept.clone() if kept.is_inference() else kept
        n_parts = -(-len(kept) // _TOGETHER)
        found += kept.tensor_split(n_parts)
        if labelled:
            labels += batch[1][: len(kept)].to(device).tensor_split(n_parts)
        count += len(kept)
        if count >= limit:
            break
    if not count:
        raise InvalidInputError("inputs yields nothing: give at least one batch")
    return found, labels


@contextmanager
def watching(model: Any, names: Iterable[str], see: Callable[..., Any]) -> Iterator[None]:
    """Call `see(name, layer, input, output)` in every forward pass; what it returns goes on."""
    modules = dict(model.named_modules())
    handles = []
    for name in names:

        def hook(layer: Any, given: Any, output: Any, name: str = name) -> Any:
            return see(name, layer, given[0] if given else None, output)

        handles.append(modules[name].register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def put(model: Any, name: str, layer: Any) -> Any:
    """The model with another layer wherever the one of this name stands; the layer if it is all."""
    old = model.get_submodule(name)
    if old is model:
        return layer
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, key, layer)
    return model


def measure(
    model: Any,
    names: list[str],
    batches: list[Any],
    *,
    loss: Any = None,
    labels: list[Any] | None = None,
    seed: int = 0,
) -> dict[str, LayerStatistics]:
    """Statistics of layers: one forward and one backward pass over the inputs.

    Parameters
    ----------
    model, names, batches : a network, its layers and its inputs
    loss, labels : as for `compress`
    seed : int, of the random directions in which outputs are differentiated
    """
    found = {name: LayerStatistics() for name in names}
    outputs: dict[str, Any] = {}

    def see(name: str, layer: Any, x: Any, output: Any) -> Any:
        if name in outputs:
            raise InvalidInputError(
                f"layer {name!r} is used more than once in a forward pass: leave it out by skip="
            )
        found[name].inputs.update(patches(layer, x, fraction))
        outputs[name] = with_gradient(output)
        return output.clone()  # an activation in place would change what is differentiated

    fraction, total = 1.0, sum(map(len, batches))
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad(), watching(model, names, see):
        for k, batch in enumerate(batches):
            outputs.clear()
            fraction = len(batch) / total
            result = model(batch.detach().requires_grad_(batch.is_floating_point()))
            if callable(loss):
                value = loss(result, labels[k] if labels else None)
                if not isinstance(value, torch.Tensor) or value.numel() != 1:
                    raise InvalidInputError(
                        f"loss must return one number for a batch, got {value!r}"
                    )
                value.backward()
            else:
                logits = as_rows(result, loss)
                logits.backward(_directions(logits.detach(), loss, generator))
            for name, output in outputs.items():
                own = found[name]
                gradient = torch.zeros_like(output) if output.grad is None else output.grad
                own.gradients.update(_rows(model.get_submodule(name), gradient))
                own.n_inputs += len(batch)
    for parameter in model.parameters():
        parameter.grad = None
    missing = [name for name in names if not found[name].n_inputs]
    if missing:
        raise InvalidInputError(f"layer {missing[0]!r} is not used by the model on these inputs")
    return found


def with_gradient(output: Any) -> Any:
    """The output of a layer, which keeps its gradient, of a network that is frozen too."""
    if output.requires_grad:
        output.retain_grad()
        return output
    return output.requires_grad_()


def as_rows(outputs: Any, loss: Any) -> Any:
    """Outputs (n, q) of a batch; of classes at least two."""
    flat = outputs.reshape(len(outputs), -1)
    if loss == "cross_entropy" and (outputs.ndim != 2 or outputs.shape[1] < 2):
        raise InvalidInputError(
            "loss='cross_entropy' takes networks with outputs (n, classes) of at least 2 classes, "
            f"got {tuple(outputs.shape)}"
        )
    return flat


def _directions(logits: Any, loss: Any, generator: Any) -> Any:
    """Random directions (n, q) in the outputs, with the metric of the loss as their covariance.

    Of the outputs that is I, of the cross-entropy diag(p) - pp' with the network's own
    probabilities p: how fast the loss grows with a change of the outputs.
    """
    drawn = torch.randn(logits.shape, generator=generator).to(logits)
    if loss is None:
        return drawn
    chances = torch.softmax(logits, 1)
    drawn = chances.sqrt() * drawn
    return drawn - chances * drawn.sum(1, keepdim=True)


def _rows(layer: Any, gradient: Any) -> Any:
    """Gradients (n, O) by the outputs of a layer, one row for each position."""
    if not isinstance(layer, torch.nn.Linear):
        gradient = gradient.movedim(1, -1)
    return gradient.reshape(-1, gradient.shape[-1]).double()
