"""A two-layer network of PyTorch that starts from moments of the data in place of at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from latensor.arrays import RandomState, is_array, to_host
from latensor.exceptions import InvalidInputError
from latensor.models import TwoLayerClassifier, TwoLayerNetwork

_TASKS = ("regression", "classification")


def initialize(
    module: nn.Sequential,
    X: object,
    y: object,
    *,
    task: str = "regression",
    scores: Any = "gaussian",
    refine: int | str = "auto",
    random_state: RandomState = 0,
) -> nn.Sequential:
    """Put the weights that `lt.TwoLayerNetwork` finds into a module, for any optimizer to go on.

    Parameters
    ----------
    module : Sequential of Linear, an activation (Sigmoid, Tanh, ReLU, Softplus or GELU) and Linear,
        both layers with biases; changed in place
    X : (n, d)
    y : (n,) or (n, outputs); labels 0, 1, .. for task="classification"
    task : "regression" (squared errors), or "classification": logits, one output for two classes
        or one per class
    scores, refine, random_state : as for `lt.TwoLayerNetwork`; refine=0 for moments only

    Returns
    -------
    `module` itself
    """
    first, activation, last = _layers(module)
    if task not in _TASKS:
        raise InvalidInputError(f"task={task!r} must be 'regression' or 'classification'")
    settings: dict[str, Any] = {
        "activation": activation,
        "scores": scores,
        "refine": refine,
        "random_state": random_state,
    }
    rows = to_host(X) if is_array(X) else X
    targets = np.asarray(to_host(y) if is_array(y) else y)
    kind = TwoLayerNetwork if task == "regression" else TwoLayerClassifier
    if task == "classification":
        settings["classes"] = np.arange(max(2, last.out_features))
    model = kind(first.out_features, **settings).fit(rows, targets)
    output, constant = model.coefs_[1].T, model.intercepts_[1]
    if task == "classification" and last.out_features == 2:
        # One logit of the second class, as the difference of two.
        output, constant = np.concatenate([-output, output]) / 2, np.array([-1, 1]) * constant / 2
    if model.n_features_in_ != first.in_features or len(output) != last.out_features:
        raise InvalidInputError(
            f"module takes {first.in_features} features and gives {last.out_features} outputs, "
            f"the data have {model.n_features_in_} and {len(output)}"
        )
    values = (model.components_, model.intercepts_[0], output, constant)
    with torch.no_grad():
        for parameter, value in zip(
            (first.weight, first.bias, last.weight, last.bias), values, strict=True
        ):
            parameter.copy_(torch.as_tensor(np.array(value)))
    return module


def _layers(module: object) -> tuple[nn.Linear, str, nn.Linear]:
    """The layers of a module, and the name of its activation."""
    parts = list(module) if isinstance(module, nn.Sequential) else []
    told = " -> ".join(type(part).__name__ for part in parts) or type(module).__name__
    if [isinstance(p, nn.Linear) for p in parts] != [True, False, True]:
        raise InvalidInputError(
            f"module must be nn.Sequential(Linear, activation, Linear), got {told}"
        )
    first, middle, last = parts
    if first.bias is None or last.bias is None:
        raise InvalidInputError("module must have biases in both layers: leave bias at True")
    if isinstance(middle, nn.Softplus) and middle.beta == 1:
        return first, "softplus", last
    if isinstance(middle, nn.GELU) and middle.approximate == "none":
        return first, "gelu", last
    for known, name in ((nn.Sigmoid, "sigmoid"), (nn.Tanh, "tanh"), (nn.ReLU, "relu")):
        if isinstance(middle, known):
            return first, name, last
    raise InvalidInputError(
        f"the activation of module is {middle}: use Sigmoid, Tanh, ReLU, Softplus(beta=1) or GELU()"
    )
