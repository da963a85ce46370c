"""All layers of a compressed network at once, towards the outputs of the original."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from latensor.nn.statistics import as_rows

# Of the error at the start: a step that gains less is the last.
_LEAST_GAIN = 1e-4
# From here on batches in turn do more than steps over all inputs. A residual network, a tenth of
# its weights, divergence from the original on other inputs, two seeds: 40 steps of L-BFGS over 300
# inputs .080 and .047, 16 over 1,500 .078 in 2.7 times the time, 8 passes in batches over 1,500
# .055 and .038 in the same time; 30 passes over 300 .092.
_MANY_INPUTS = 1000
_BATCH = 50
# Passes in batches take the place of this many steps.
_STEPS_PER_PASS = 5
# First rate of Adam, of the root mean square of the parameter's entries; it goes to zero.
_RATE = 2e-2


def refine_outputs(
    small: Any, original: Any, names: list[str], batches: list[Any], loss: Any, steps: int
) -> None:
    """Change the parameters of layers in place, so that outputs come closer to the original's.

    On the squared error of the outputs, or for "cross_entropy" on the mean Kullback-Leibler
    divergence from the original network's probabilities: by L-BFGS, or by Adam in batches where
    there are many inputs. What decreases neither leaves the layers as they were.

    Parameters
    ----------
    small, original : networks in evaluation mode
    names : layers of `small` whose parameters may change
    batches : inputs
    loss : as for `compress`
    steps : int
    """
    parameters = [p for name in names for p in small.get_submodule(name).parameters()]
    if not steps or not parameters:
        return
    start = output_gap(small, original, batches, loss)
    if not 0 < start < float("inf"):
        return
    entropy = loss == "cross_entropy"
    with torch.no_grad():
        targets = [_compared(original(batch), entropy) for batch in batches]

    def error(batch: Any, target: Any) -> Any:
        return _gap(_compared(small(batch), entropy), target, entropy)

    frozen = [p.requires_grad for p in parameters]
    before = [p.detach().clone() for p in parameters]
    many = sum(map(len, batches)) >= _MANY_INPUTS and _independent(original, batches[0])
    minimize = _by_batches if many else _by_steps
    try:
        for p in parameters:
            p.requires_grad_(True)
            p.data = p.data.contiguous()  # L-BFGS views gradients, which have the same layout
        with torch.enable_grad():
            minimize(parameters, batches, targets, error, start, steps)
        if not output_gap(small, original, batches, loss) < start:
            with torch.no_grad():
                for p, value in zip(parameters, before, strict=True):
                    p.copy_(value)
    finally:
        for p, needed in zip(parameters, frozen, strict=True):
            p.requires_grad_(needed)
        for p in small.parameters():
            p.grad = None


def _by_steps(
    parameters: list[Any],
    batches: list[Any],
    targets: list[Any],
    error: Callable[[Any, Any], Any],
    scale: float,
    steps: int,
) -> None:
    """L-BFGS on the error over all inputs."""
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
        total = 0.0
        for batch, target in zip(batches, targets, strict=True):
            gap = error(batch, target) / scale
            gap.backward()
            total += float(gap.detach())
        return total

    optimizer.step(closure)


def _by_batches(
    parameters: list[Any],
    batches: list[Any],
    targets: list[Any],
    error: Callable[[Any, Any], Any],
    scale: float,
    steps: int,
) -> None:
    """Adam, one pass over the inputs for every few steps; batches are drawn anew in each.

    All parameters, and their gradients, are parts of one vector while it runs, and the rate is one
    more: with a group of `torch.optim.Adam` for each, its steps took half of the time.
    """
    generator = torch.Generator().manual_seed(0)
    sizes = [p.numel() for p in parameters]
    theta = torch.cat([p.detach().reshape(-1) for p in parameters])
    gradient, first, second = (torch.zeros_like(theta) for _ in range(3))
    scales = [float(p.detach().double().square().mean().sqrt()) for p in parameters]
    rates = torch.tensor(scales).repeat_interleave(torch.tensor(sizes)).to(theta) * _RATE
    for p, own, slope in zip(parameters, theta.split(sizes), gradient.split(sizes), strict=True):
        p.data, p.grad = own.view(p.shape), slope.view(p.shape)
    passes = -(-steps // _STEPS_PER_PASS)
    total = passes * sum(-(-len(batch) // _BATCH) for batch in batches)
    kept, kept_square = 0.9, 0.999  # of the moments, and 1e-8 below: as in torch.optim.Adam
    step = 0
    for _ in range(passes):
        drawn = [torch.randperm(len(b), generator=generator).split(_BATCH) for b in batches]
        pairs = [(k, rows) for k, some in enumerate(drawn) for rows in some]
        for j in torch.randperm(len(pairs), generator=generator):
            k, rows = pairs[j]
            rows = rows.to(batches[k].device)
            gradient.zero_()
            (error(batches[k][rows], targets[k][rows]) / scale).backward()
            first.lerp_(gradient, 1 - kept)
            second.mul_(kept_square).addcmul_(gradient, gradient, value=1 - kept_square)
            size = (second / (1 - kept_square ** (step + 1))).sqrt_().add_(1e-8)
            rate = (1 - step / total) / (1 - kept ** (step + 1))
            theta.addcdiv_(first * rates, size, value=-rate)
            step += 1
    for p in parameters:
        p.data, p.grad = p.data.clone(), None


def _independent(model: Any, batch: Any) -> bool:
    """Whether outputs of an input do not depend on the others: no statistics of the batch."""
    with torch.no_grad():
        whole, alone = model(batch), model(batch[: max(2, len(batch) // 2)])
    return bool(torch.allclose(whole[: len(alone)], alone, rtol=1e-2, atol=1e-2))


def output_gap(small: Any, original: Any, batches: list[Any], loss: Any) -> float:
    """What `refine_outputs` makes small, over all inputs."""
    entropy, total = loss == "cross_entropy", 0.0
    with torch.no_grad():
        for batch in batches:
            found, target = (_compared(m(batch), entropy).double() for m in (small, original))
            total += float(_gap(found, target, entropy))
    return total


def distance(small: Any, original: Any, batches: list[Any], loss: Any) -> float:
    """How far outputs are from the original's.

    Their root mean square error relative to their standard deviation over the inputs; of
    probabilities a bound of the mean total variation, the root of half their divergence.
    """
    gap = output_gap(small, original, batches, loss)
    if loss == "cross_entropy":
        return math.sqrt(max(gap, 0.0) / 2 / sum(map(len, batches)))
    with torch.no_grad():
        y = torch.cat([_compared(original(batch), False).double() for batch in batches])
    size = float((y - y.mean(0)).square().sum())
    return math.sqrt(gap / size) if size > 0 else math.inf


def _gap(found: Any, target: Any, entropy: bool) -> Any:
    if entropy:
        return functional.kl_div(found, target, reduction="sum", log_target=True)
    return (found - target).square().sum()


def _compared(outputs: Any, entropy: bool) -> Any:
    """What is compared: log-probabilities, or the outputs."""
    flat = as_rows(outputs, "cross_entropy" if entropy else None)
    return functional.log_softmax(flat, 1) if entropy else flat
