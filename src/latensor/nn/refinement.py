"""All layers of a compressed network at once, towards the outputs of the original."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from latensor.nn.statistics import as_rows

# Of the error at the start: a step that gains less is the last.
_LEAST_GAIN = 1e-4


def refine_outputs(
    small: Any, original: Any, names: list[str], batches: list[Any], loss: Any, steps: int
) -> None:
    """Change the parameters of layers in place, so that outputs come closer to the original's.

    L-BFGS on the squared error of the outputs, or for "cross_entropy" on the mean
    Kullback-Leibler divergence from the original network's probabilities. What decreases neither
    leaves the layers as they were.

    Parameters
    ----------
    small, original : networks in evaluation mode
    names : layers of `small` whose parameters may change
    batches : inputs
    loss : as for `compress`
    steps : int
    """
    entropy = loss == "cross_entropy"
    parameters = [p for name in names for p in small.get_submodule(name).parameters()]
    if not steps or not parameters:
        return
    with torch.no_grad():
        targets = [_compared(original(batch), entropy) for batch in batches]
    frozen = [p.requires_grad for p in parameters]
    before = [p.detach().clone() for p in parameters]
    scale = 1.0

    def error() -> float:
        """The error over all batches; its gradient is added to the parameters."""
        total = 0.0
        for batch, target in zip(batches, targets, strict=True):
            gap = _gap(_compared(small(batch), entropy), target, entropy)
            (gap / scale).backward()
            total += float(gap.detach()) / scale
        return total

    try:
        for p in parameters:
            p.requires_grad_(True)
            p.data = p.data.contiguous()  # L-BFGS views gradients, which have the same layout
        with torch.enable_grad():
            start = error()
            if not 0 < start < float("inf"):
                return
            scale = start
            optimizer = torch.optim.LBFGS(
                parameters,
                max_iter=steps,
                history_size=20,
                tolerance_grad=0.0,
                tolerance_change=_LEAST_GAIN,
                line_search_fn="strong_wolfe",
            )

            def closure() -> float:
                optimizer.zero_grad()
                return error()

            optimizer.step(closure)
            reached = error()
        if not reached < 1:
            with torch.no_grad():
                for p, value in zip(parameters, before, strict=True):
                    p.copy_(value)
    finally:
        for p, needed in zip(parameters, frozen, strict=True):
            p.requires_grad_(needed)
        for p in small.parameters():
            p.grad = None


def output_gap(small: Any, original: Any, batches: list[Any], loss: Any) -> float:
    """What `refine_outputs` makes small, over all inputs."""
    entropy, total = loss == "cross_entropy", 0.0
    with torch.no_grad():
        for batch in batches:
            found, target = (_compared(m(batch), entropy).double() for m in (small, original))
            total += float(_gap(found, target, entropy))
    return total


def _gap(found: Any, target: Any, entropy: bool) -> Any:
    if entropy:
        return functional.kl_div(found, target, reduction="sum", log_target=True)
    return (found - target).square().sum()


def _compared(outputs: Any, entropy: bool) -> Any:
    """What is compared: log-probabilities, or the outputs."""
    flat = as_rows(outputs, "cross_entropy" if entropy else None)
    return functional.log_softmax(flat, 1) if entropy else flat
