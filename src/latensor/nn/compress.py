"""Compress a trained network: its layers of low rank, chosen together, best in its outputs."""

from __future__ import annotations

import copy
import math
import numbers
from typing import Any

import torch

from latensor.exceptions import InvalidInputError
from latensor.moments.second import CrossCovariance, CrossCovarianceAccumulator
from latensor.nn.compression_report import report_of
from latensor.nn.convolution import FactorizedConv1d, FactorizedConv2d, FactorizedConv3d
from latensor.nn.narrowing import narrow
from latensor.nn.refinement import distance, refine_outputs
from latensor.nn.statistics import (
    LayerStatistics,
    batches_of,
    measure,
    patches,
    put,
    results,
    watching,
    with_gradient,
)
from latensor.nn.truncation import Choice, calibrated, choices, spend, truncated

_LAYERS = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
# Layers with fewer weights cost next to nothing.
_SMALL = 500
# Inputs that are enough: linear layers need 2 to 4 times as many as they have outputs.
_MAX_INPUTS = 1500
# Inputs of a trial: batch normalization without running statistics takes no single one.
_EXAMPLE = 2
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_METHODS = ("auto", "low_rank", "svd", "tucker", "cp")
# How much further off than ranks alone fewer units may be, after refinement, for the time that they
# save: of the outputs' standard deviation, or in total variation of probabilities (Pinsker).
_TOLERATED = 0.01
# Both are refined with one of so many steps, on all inputs but one of so many (as in five-fold
# cross-validation), before they are compared on those. 18 networks (a perceptron on digits, one on
# pendigits, 1-D convolutions; seeds 30 to 32, two budgets): an eighth, a quarter, half and all of
# the steps chose alike, as test inputs would; the difference of both distances was off by .043,
# .028, .017 and .016 on average.
_TRIAL, _HELD_OUT = 4, 5


def compress(
    model: Any,
    keep: float | None = None,
    *,
    error: float | None = None,
    keep_operations: float | None = None,
    inputs: Any,
    loss: Any = None,
    refine: int = 40,
    method: str = "auto",
    skip: Any = (),
    max_inputs: int = _MAX_INPUTS,
) -> Any:
    """A smaller copy of a trained network that gives nearly the same outputs.

    Every linear layer and convolution offers its best forms of low rank in the metric of the
    network's outputs; one budget chooses among all of them at once, so that layers that would not
    gain stay as they are; then the layers are replaced in order, each calibrated to give the
    outputs of the original network on the inputs that it really gets, and at last all of them are
    refined together towards those outputs. Between layers that follow each other in a
    `torch.nn.Sequential`, hidden units that the others predict are left out before that, until the
    square root of the budget is left; ranks do the rest. Labels are not needed.

    Parameters
    ----------
    model : torch.nn.Module, which is not changed
    keep : float in (0, 1), the fraction of weights to keep; biases are not counted
    error : float in (0, 1), in place of `keep`: the error of the outputs that is allowed, relative
        to their standard deviation over the inputs, as predicted from the layers one by one
    keep_operations : float in (0, 1), in place of `keep`: of multiplications and additions
    inputs : tensor, or a loader of batches (or of pairs that begin with them) of typical inputs:
        ranks of convolutions need 16, of linear layers 2 to 4 times as many as they have outputs;
        what refinement gains carries over to other inputs best from 1,000 or more
    loss : the norm in which layers are truncated. None: that of the outputs. "cross_entropy", for
        logits of classes: that of the loss, by the network's own probabilities, to which a number
        added to all logits means nothing. A function of outputs and labels that returns one number
        for a batch: by its gradients, for which `inputs` yields pairs (inputs, labels)
    refine : int, steps of L-BFGS on the weights of all these layers towards the outputs of the
        original network (its probabilities, by Kullback-Leibler divergence, for "cross_entropy");
        each is a forward and backward pass over the inputs. From 1,000 inputs on, a fifth as many
        passes of Adam in batches
    method : "auto", as above (with `error`, and where it leaves more error, "low_rank");
        "low_rank", no fewer units; "svd", of linear layers only; "tucker", of convolutions only;
        "cp": convolutions by CP, of as many weights as "low_rank" gives them
    skip : names of layers to leave alone
    max_inputs : int, inputs beyond these are not looked at

    Returns
    -------
    A copy with `FactorizedLinear`, `FactorizedConv` and smaller layers, in evaluation mode, and its
    `CompressionReport` as `.report`. Fine-tune it as any network. On a CPU kernels of 2-D
    convolutions are stored channels last, where the network's own code takes that.

    Raises
    ------
    InvalidInputError, for inputs that yield nothing and budgets that cannot be met.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidInputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if method not in _METHODS:
        raise InvalidInputError(f"method={method!r} must be in {_METHODS}")
    given = {"keep": keep, "error": error, "keep_operations": keep_operations}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        raise InvalidInputError(f"give one of keep, error and keep_operations, got {named}")
    for name, value in named.items():
        if not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
            raise InvalidInputError(f"{name}={value!r} must be above 0 and below 1")
    _check_loss(loss, error, refine)
    with torch.inference_mode(False):
        return _compressed(
            _copied(model), given, inputs, loss, int(refine), method, _names(skip), max_inputs
        )


def _names(skip: Any) -> set[str]:
    return {skip} if isinstance(skip, str) else set(skip)


def _copied(model: Any) -> Any:
    """A copy to work on, of what `torch.compile` was given where the model comes from there."""
    model = getattr(model, "_orig_mod", model)
    if any(p.is_meta for p in model.parameters()):
        raise InvalidInputError("model has parameters without values (device meta): load them")
    for name, p in model.named_parameters():
        if not bool(torch.isfinite(p).all()):
            raise InvalidInputError(f"parameter {name!r} of model holds NaN or infinite entries")
    try:
        return copy.deepcopy(model).eval()
    except RuntimeError as error:
        raise InvalidInputError(
            "model cannot be copied: weights that torch.nn.utils.weight_norm, spectral_norm or "
            "prune computes must be removed (or be those of torch.nn.utils.parametrizations): "
            f"{str(error).splitlines()[0]}"
        ) from error


def _compressed(
    original: Any,
    given: dict[str, Any],
    inputs: Any,
    loss: Any,
    refine: int,
    method: str,
    skipped: set[str],
    max_inputs: int,
) -> Any:
    device = next((p.device for p in original.parameters()), torch.device("cpu"))
    batches, labels = batches_of(inputs, device, max_inputs, labelled=callable(loss))
    names, reasons, fixed_operations = _layers(original, batches, skipped, method)
    if not names:
        others = {**reasons, **_others(original)}
        raise InvalidInputError(
            "model has no layer that could be compressed: "
            + ("; ".join(f"{n}: {r}" for n, r in others.items()) or "none has weights")
        )
    known = measure(original, names, batches, loss=loss, labels=labels)
    if all(float(known[name].covariance.trace()) == 0 for name in names):
        raise InvalidInputError("inputs are all the same: nothing tells what a layer needs to keep")
    _check_seen(original, known)
    low = _low_rank(original, names, given, known, batches, method, fixed_operations)
    found = [low]
    rows: dict[str, Any] = {}
    if method == "auto" and given["error"] is None:
        fraction = math.sqrt(next(value for value in given.values() if value is not None))
        less, rows = narrow(
            original,
            names,
            known,
            fraction,
            by_weights=given["keep"] is not None,
            example=batches[0][:_EXAMPLE],
        )
        if rows:
            again = measure(less, names, batches, loss=loss, labels=labels)
            scaled = _scaled(given, original, less, names, known, fixed_operations)
            found.append(_low_rank(less, names, scaled, again, batches, method, fixed_operations))
    small = _refined(found, original, names, batches, loss, refine)
    rows = rows if small is not low else {}
    _put_channels_last(small, batches[0][:_EXAMPLE])
    small.report = report_of(original, small, names, reasons, _others(original), rows, batches)
    return small


def _check_seen(model: Any, known: dict[str, LayerStatistics]) -> None:
    """Refuse inputs that do not span the outputs of a layer: it would forget all others."""
    for name, own in known.items():
        weight = model.get_submodule(name).weight
        least = min(len(weight), weight[0].numel())
        if own.inputs.count <= least:
            needed = math.floor(least / own.inputs.count * own.n_inputs) + 1
            raise InvalidInputError(
                f"{own.n_inputs} inputs cannot span the {least} dimensions of the outputs of layer "
                f"{name!r}: give at least {needed}, better 2 to 4 times as many, or name it in skip"
            )


def _low_rank(
    model: Any,
    names: list[str],
    given: dict[str, Any],
    known: dict[str, LayerStatistics],
    batches: list[Any],
    method: str,
    fixed_operations: float,
) -> Any:
    """A copy whose layers have low rank, before refinement."""
    lists = {
        name: choices(model.get_submodule(name), known[name], known[name].positions)
        for name in names
    }
    chosen = _chosen(model, lists, given, batches, fixed_operations)
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices):  # new layers draw starting values, which are overwritten
        return _replaced(model, names, chosen, known, batches, method)


def _scaled(
    given: dict[str, Any],
    original: Any,
    less: Any,
    names: list[str],
    known: dict[str, LayerStatistics],
    fixed_operations: float,
) -> dict[str, Any]:
    """The same budget, as a fraction of a network with fewer units."""

    def operations(model: Any) -> float:
        sizes = ((known[n].positions, model.get_submodule(n).weight.numel()) for n in names)
        return fixed_operations + float(sum(positions * size for positions, size in sizes))

    def weights(model: Any) -> float:
        return float(sum(p.numel() for p in model.parameters() if p.ndim > 1))

    sizes = {"keep": weights, "keep_operations": operations}
    return {
        name: None if value is None else value * sizes[name](original) / sizes[name](less)
        for name, value in given.items()
    }


def _refined(
    found: list[Any], original: Any, names: list[str], batches: list[Any], loss: Any, steps: int
) -> Any:
    """The better of a network of low rank and one that has fewer units too, refined.

    After some of the steps on some of the inputs the others decide: on inputs of their own fewer
    units are as close as ranks alone, on others not always.
    """
    if len(found) > 1:
        own, others = _divided(batches)
        for each in found:
            refine_outputs(each, original, names, own, loss, -(-steps // _TRIAL))
        low, narrower = (distance(each, original, others, loss) for each in found)
        found = found[1:] if narrower <= low + _TOLERATED else found[:1]
    refine_outputs(found[0], original, names, batches, loss, steps)
    return found[0]


def _divided(batches: list[Any]) -> tuple[list[Any], list[Any]]:
    """Inputs to refine on, and every fifth to compare on; of too few, all for both."""
    places = [torch.arange(len(batch)) % _HELD_OUT == 0 for batch in batches]
    own = [batch[~held] for batch, held in zip(batches, places, strict=True) if not held.all()]
    others = [batch[held] for batch, held in zip(batches, places, strict=True)]
    return (own, others) if own else (batches, batches)


def _check_loss(loss: Any, error: object, refine: object) -> None:
    if not (loss is None or loss == "cross_entropy" or callable(loss)):
        raise InvalidInputError(
            f"loss={loss!r} must be None, 'cross_entropy' or a function of outputs and labels"
        )
    if loss is not None and error is not None:
        raise InvalidInputError(
            "error is that of the outputs, but loss asks for another norm: give keep in its place"
        )
    if not isinstance(refine, numbers.Integral) or isinstance(refine, bool) or int(refine) < 0:
        raise InvalidInputError(f"refine={refine!r} must be a number of steps, 0 for none")


def _layers(
    model: Any, batches: list[Any], skip: set[str], method: str
) -> tuple[list[str], dict[str, str], float]:
    """Layers to compress, in order, why others are left alone, and the operations of those."""
    modules = dict(model.named_modules())
    unknown = skip - set(modules)
    if unknown:
        raise InvalidInputError(f"skip names {sorted(unknown)[0]!r}, which the model does not have")
    order: list[str] = []
    calls: dict[str, int] = {}
    operations: dict[str, float] = {}
    outputs: dict[str, Any] = {}
    by_keyword: set[str] = set()

    def see(name: str, layer: Any, x: Any, output: Any) -> Any:
        calls[name] = calls.get(name, 0) + 1
        each = output.numel() / layer.weight.shape[0] * layer.weight.numel()
        operations[name] = operations.get(name, 0.0) + each / len(example)
        if x is None:
            by_keyword.add(name)
        if name not in order:
            order.append(name)
        outputs[name] = with_gradient(output)
        return output.clone()

    example = batches[0][:_EXAMPLE]
    candidates = [name for name, layer in modules.items() if isinstance(layer, _LAYERS)]
    with torch.enable_grad(), watching(model, candidates, see):
        unreached = _without_gradient(_run(model, example), outputs)
    reached = _called_by_name(model, order, example)
    reasons: dict[str, str] = {}
    shared = _shared(modules, candidates)
    for name in (name for name, layer in modules.items() if name in candidates):
        layer = modules[name]
        if name in skip:
            reasons[name] = "skipped"
        elif name not in order:
            reasons[name] = "not used on these inputs"
        elif not {"weight", "bias"} <= set(layer._parameters):
            reasons[name] = "weights are computed from others: remove their parametrization"
        elif type(layer).forward not in {kind.forward for kind in _LAYERS}:
            reasons[name] = f"{type(layer).__name__} has its own forward"
        elif any(getattr(layer, kind) for kind in _HOOKS):
            reasons[name] = "has hooks"
        elif layer.weight.is_complex():
            reasons[name] = "complex weights"
        elif layer.weight.numel() < _SMALL:
            reasons[name] = f"fewer than {_SMALL:,} weights"
        elif getattr(layer, "groups", 1) > 1:
            reasons[name] = f"groups={layer.groups}"
        elif calls[name] > 1 or name in shared:
            reasons[name] = "used more than once"
        elif name in by_keyword:
            reasons[name] = "called by keyword"
        elif name not in reached:
            reasons[name] = "called by another reference than its name"
        elif name in unreached:
            reasons[name] = "outputs have no gradient by it"
        elif method == "svd" and not isinstance(layer, torch.nn.Linear):
            reasons[name] = "no linear layer"
        elif method == "tucker" and isinstance(layer, torch.nn.Linear):
            reasons[name] = "no convolution"
    fixed = sum(operations.get(name, 0.0) for name in reasons)
    return [name for name in order if name not in reasons], reasons, fixed


def _run(model: Any, example: Any) -> Any:
    """Outputs of a first input, one tensor with a row for each."""
    shape = f"{tuple(example.shape)} ({example.dtype}, {example.device})"
    try:
        outputs = model(example)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(
            f"model cannot take inputs of shape {shape}, as the first of `inputs`: {error}"
        ) from error
    if not isinstance(outputs, torch.Tensor) or not outputs.ndim or len(outputs) != len(example):
        found = f"of shape {tuple(outputs.shape)}" if isinstance(outputs, torch.Tensor) else ""
        raise InvalidInputError(
            f"model must return one tensor with a row for each input, got {type(outputs).__name__} "
            f"{found} for inputs of shape {shape}: wrap it in a module that returns its outputs"
        )
    if outputs.is_complex():
        raise InvalidInputError(
            f"model must return real outputs, got {outputs.dtype}: wrap it in a module that "
            "returns torch.view_as_real of them"
        )
    return outputs


def _without_gradient(found: Any, outputs: dict[str, Any]) -> set[str]:
    """Layers whose outputs those of the network have no gradient by."""
    if not outputs or not found.requires_grad:
        return set(outputs)
    gradients = torch.autograd.grad(found.sum(), list(outputs.values()), allow_unused=True)
    return {name for name, gradient in zip(outputs, gradients, strict=True) if gradient is None}


def _called_by_name(model: Any, names: list[str], example: Any) -> set[str]:
    """Layers that are called where another module takes their place: not held elsewhere."""
    trial, called = copy.deepcopy(model), set()
    for name in names:
        trial = put(trial, name, copy.deepcopy(trial.get_submodule(name)))

    def see(name: str, *_: object) -> None:
        called.add(name)

    with torch.no_grad(), watching(trial, names, see):
        trial(example)
    return called


def _others(model: Any) -> dict[str, str]:
    """Layers with weights that are no linear layers or convolutions, and why they stay."""
    return {
        name or "model": f"{type(module).__name__} is not factorized"
        for name, module in _holders(model).items()
        if not isinstance(module, _LAYERS)
    }


def _holders(model: Any) -> dict[str, Any]:
    """Modules with weights of their own."""
    return {
        name: module
        for name, module in model.named_modules()
        if any(p is not None and p.ndim > 1 for p in module._parameters.values())
    }


def _shared(modules: dict[str, Any], names: list[str]) -> set[str]:
    """Layers whose weights belong to another module too."""
    owners: dict[int, list[str]] = {}
    for name, module in modules.items():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(name)
    return {n for group in owners.values() if len(set(group)) > 1 for n in group if n in names}


def _chosen(
    model: Any,
    lists: dict[str, list[Choice]],
    given: dict[str, Any],
    batches: list[Any],
    fixed_operations: float,
) -> dict[str, Choice]:
    n_all = sum(p.numel() for p in model.parameters() if p.ndim > 1)
    dense = {name: max(options, key=lambda c: c.n_weights) for name, options in lists.items()}
    if given["keep_operations"] is not None:
        wanted, total = given["keep_operations"], sum(c.operations for c in dense.values())
        budget = wanted * (total + fixed_operations) - fixed_operations
        least = sum(min(c.operations for c in options) for options in lists.values())
        if budget < least:
            lowest = (fixed_operations + least) / (fixed_operations + total)
            raise InvalidInputError(
                f"keep_operations={wanted} is below {lowest:.3f}, which layers that are left alone "
                "and the smallest forms of the others need: raise it"
            )
        return spend(lists, budget, lambda c: c.operations)
    fixed = n_all - sum(c.n_weights for c in dense.values())
    if given["keep"] is not None:
        budget = given["keep"] * n_all - fixed
        least = sum(min(c.n_weights for c in options) for options in lists.values())
        if budget < least:
            kinds = sorted({type(m).__name__ for n, m in _holders(model).items() if n not in lists})
            alone = (
                f", {fixed:,} of them in layers left alone ({', '.join(kinds)})" if kinds else ""
            )
            raise InvalidInputError(
                f"keep={given['keep']} leaves {int(given['keep'] * n_all):,} weights, but the "
                f"smallest form of the network has {fixed + least:,}{alone}: raise keep"
            )
        return spend(lists, budget, lambda c: c.n_weights)
    with torch.no_grad():
        outputs = torch.cat([model(batch).reshape(len(batch), -1) for batch in batches]).double()
    size = float((outputs - outputs.mean(0)).square().sum(1).mean())
    allowed = float(given["error"]) ** 2 * size
    # The cheapest network whose predicted error is allowed: cost and error change places.
    low, high = 0.0, float(sum(c.n_weights for c in dense.values()))
    best = dense
    for _ in range(40):
        middle = (low + high) / 2
        trial = spend(lists, middle, lambda c: c.n_weights)
        within = sum(c.n_weights for c in trial.values()) <= middle
        if within and sum(c.error for c in trial.values()) <= allowed:
            high, best = middle, trial
        else:
            low = middle
    return best


def _replaced(
    original: Any,
    names: list[str],
    chosen: dict[str, Choice],
    known: dict[str, LayerStatistics],
    batches: list[Any],
    method: str,
) -> Any:
    """A copy whose layers are replaced one after the other, each calibrated to the original."""
    small = copy.deepcopy(original)
    changed = False
    for name in names:
        layer = original.get_submodule(name)
        own, ranks = known[name], chosen[name].ranks
        if not changed and ranks is None:
            continue
        if changed:
            W, mean, P, target = calibrated(layer, _together(original, small, name, batches))
            found = truncated(layer, W, mean, P, own.sensitivity, ranks, target)
        else:
            W = layer.weight.detach().flatten(1).double()
            found = truncated(layer, W, own.mean, own.covariance, own.sensitivity, ranks)
        if method == "cp" and not isinstance(layer, torch.nn.Linear) and ranks is not None:
            found = _by_cp(layer, found, chosen[name].n_weights, own)
        found.requires_grad_(layer.weight.requires_grad)
        small = put(small, name, found)
        changed = True
    return small.eval()


def _put_channels_last(model: Any, example: Any) -> None:
    """Kernels in the order in which a CPU is fastest, where the network takes their outputs so.

    PyTorch's max-pooling of channels that come first takes 9 to 18 times as long (batches of 256),
    short convolutions 1.3 to 2.6 times. A network that calls `view` on such outputs fails.
    """
    kernels = [p for p in model.parameters() if p.ndim == 4 and p.device.type == "cpu"]
    _store(kernels, torch.channels_last)
    try:
        with torch.no_grad():
            model(example)
    except RuntimeError:
        _store(kernels, torch.contiguous_format)


def _store(parameters: list[Any], order: Any) -> None:
    """The same numbers in another order, of one channel too, where `contiguous` sees none."""
    for p in parameters:
        p.data = torch.empty_like(p.data, memory_format=order).copy_(p.data)


def _by_cp(layer: Any, tucker: Any, n_weights: int, known: LayerStatistics) -> Any:
    """A convolution by CP of as many weights as it has by Tucker, with the bias corrected."""
    area = math.prod(layer.kernel_size)
    kind = {1: FactorizedConv1d, 2: FactorizedConv2d, 3: FactorizedConv3d}[len(layer.kernel_size)]
    if area == 1:
        return tucker
    sizes = (layer.out_channels, layer.in_channels, area)
    rank = min(max(1, n_weights // sum(sizes)), math.prod(sizes) // max(sizes))
    dense = tucker.to_dense()  # with the calibrated bias
    with torch.no_grad():
        dense.weight.copy_(layer.weight)
    found = kind.from_dense(dense, rank, "cp")
    gap = (tucker.weight - found.weight).detach().flatten(1).double() @ known.mean
    with torch.no_grad():
        found.bias += gap.to(found.bias)
    return found


def _together(original: Any, small: Any, name: str, batches: list[Any]) -> CrossCovariance:
    """Moments of a layer's outputs in the original network and its inputs in the compressed one."""
    seen: list[Any] = []

    def expected(name: str, layer: Any, x: Any, output: Any) -> None:
        seen.append(results(layer, output, fraction))

    def given(name: str, layer: Any, x: Any, output: Any) -> None:
        seen.append(patches(layer, x, fraction))

    sums, fraction, total = CrossCovarianceAccumulator(), 1.0, sum(map(len, batches))
    with torch.no_grad(), watching(original, [name], expected), watching(small, [name], given):
        for batch in batches:
            seen.clear()
            fraction = len(batch) / total
            original(batch)
            small(batch)
            sums.update((seen[0], seen[1]))
    return sums.finalize()
