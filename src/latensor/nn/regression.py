"""Contraction of activations with factors, and regression on them without flattening."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch.nn import functional

from latensor.decomposition.decompose import decompose
from latensor.decomposition.tensor_train import tensor_train
from latensor.decomposition.tucker.decomposition import tucker
from latensor.exceptions import InvalidInputError
from latensor.nn.parts import (
    check_dropout,
    check_input,
    check_rank,
    dense_linear,
    fill,
    fill_bias,
    in_double,
    kept_components,
    padded,
    standard_variance,
)

# Reading or writing an entry costs about as much as this many multiplications in a large product:
# heads of 64 x 7 x 7 to 512 x 7 x 7 with 10 to 1,000 outputs, batches of 64, one thread of a CPU.
_ENTRY_COST = 8
# Samples for which a traced program is planned: a usual batch.
_TRACED_SAMPLES = 64


def turned(x: Any, factors: Sequence[Any]) -> Any:
    """Samples (n, d_1 .. d_N) times factors (d_k, R_k) in every mode, as (R_1 .. R_N, n).

    Each product takes the mode that is last and puts it first, where the next finds its own last
    and nothing has to be moved; the short side stands left, which no BLAS is slow at.
    """
    for factor in reversed(factors):
        x = torch.mm(factor.t().contiguous(), x.reshape(-1, factor.shape[0]).t())
    return x.reshape(math.prod(f.shape[1] for f in factors), -1)


class TensorContraction(torch.nn.Module):  # type: ignore[misc]
    """Make activations smaller in every mode, without flattening them (tensor contraction layer).

    y = x x_1 U_1' .. x_N U_N' for activations x (.., d_1, .., d_N).

    Parameters
    ----------
    in_shape : d_1, .., d_N
    out_shape : R_1, .., R_N
    bias : bool, one number per entry of the output
    device, dtype : as for layers of PyTorch

    Attributes
    ----------
    factors : N parameters (d_k, R_k)
    """

    def __init__(
        self,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        bias: bool = False,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_shape, self.out_shape = _shape(in_shape), _shape(out_shape)
        if len(self.in_shape) != len(self.out_shape):
            raise InvalidInputError(
                f"out_shape={self.out_shape} of TensorContraction must have one dimension for each "
                f"of in_shape={self.in_shape}"
            )
        for k, (d, r) in enumerate(zip(self.in_shape, self.out_shape, strict=True)):
            check_rank(f"out_shape[{k}]", r, d, "TensorContraction")
        options = {"device": device, "dtype": dtype}
        self.factors = torch.nn.ParameterList(
            torch.nn.Parameter(torch.empty(d, r, **options))
            for d, r in zip(self.in_shape, self.out_shape, strict=True)
        )
        self.bias = torch.nn.Parameter(torch.empty(self.out_shape, **options)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starting values: the whole map has the variance of a dense layer's."""
        size = math.prod(self.in_shape)
        fill(list(self.factors), 1, standard_variance(size))
        fill_bias(self.bias, size)

    def forward(self, x: Any) -> Any:
        """Activations (.., R_1, .., R_N)."""
        check_input(x, self.factors[0], self.in_shape, "TensorContraction")
        x = (
            turned(x, list(self.factors))
            .t()
            .reshape(*x.shape[: -len(self.in_shape)], *self.out_shape)
        )
        return x if self.bias is None else x + self.bias

    def to_dense(self) -> Any:
        """The same map as a `torch.nn.Linear` of flattened activations."""
        weight = self.factors[0].T
        for factor in list(self.factors)[1:]:
            weight = torch.kron(weight, factor.T)
        return dense_linear(weight, None if self.bias is None else self.bias.flatten())

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.in_shape}, {self.out_shape}"


class TensorRegression(torch.nn.Module):  # type: ignore[misc]
    """Outputs from activations by weights of low rank, in place of flattening and a linear layer.

    y = <x, W> + b with W (d_1, .., d_N, outputs) in Tucker, CP or tensor-train form.

    Parameters
    ----------
    in_shape : d_1, .., d_N, of one sample
    n_outputs : int
    ranks : "tucker": R_1, .., R_N or R_1, .., R_N, R_outputs; "cp": int; "tt": the N inner ranks,
        or an int for all
    method : "tucker", "cp" or "tt"
    bias : bool
    dropout : float, the chance that a component (of Tucker: an index of each mode of the core) is
        left out in a training step
    device, dtype : as for layers of PyTorch

    Attributes
    ----------
    core : (R_1, .., R_N, R_outputs), of Tucker only
    factors : Tucker: (d_k, R_k) and (outputs, R_outputs); CP: (d_k, R) and (outputs, R); "tt":
        (r_{k-1}, d_k, r_k) and (r_N, outputs)
    """

    def __init__(
        self,
        in_shape: Sequence[int],
        n_outputs: int,
        ranks: Any,
        method: str = "tucker",
        bias: bool = True,
        *,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_shape, self.n_outputs = _shape(in_shape), int(n_outputs)
        self.method, self.dropout = method, check_dropout(dropout, "TensorRegression")
        self.ranks = self._read_ranks(ranks)
        options = {"device": device, "dtype": dtype}
        self.factors = torch.nn.ParameterList(
            torch.nn.Parameter(torch.empty(s, **options)) for s in self._factor_shapes()
        )
        self._names = tuple(str(k) for k in range(len(self.factors)))
        self.core: Any = None
        if method == "tucker":
            self.core = torch.nn.Parameter(torch.empty(self.ranks, **options))
        self.bias = torch.nn.Parameter(torch.empty(self.n_outputs, **options)) if bias else None
        self._work = self._costs() if method == "tucker" else {}
        self.reset_parameters()

    def _costs(self) -> dict[str, tuple[int, int]]:
        """How samples can meet Tucker weights: multiplications and moved entries, once and each.

        "whole": one product with all input factors and the core, (R_outputs, d_1 .. d_N). "joined":
        one with the Kronecker product of all factors but the first, one with the first. "modes":
        one with each factor, the last one first.
        """
        size, (first, *_), ranks = math.prod(self.in_shape), self.in_shape, self.ranks[:-1]
        rest, last = math.prod(ranks[1:]), self.ranks[-1]
        core = last * (math.prod(ranks) + self.n_outputs)
        spread = last * ranks[0] * (rest + first) * (size // first) + _ENTRY_COST * last * size
        costs = {"whole": (spread, size * (last + _ENTRY_COST) + last * self.n_outputs)}
        if len(ranks) > 1:
            each = size * (rest + _ENTRY_COST) + first * rest * (ranks[0] + 2 * _ENTRY_COST)
            costs["joined"] = (0, each + core)
        left, each = size, _ENTRY_COST * size + core
        for d, rank in reversed(list(zip(self.in_shape, ranks, strict=True))):
            each += left * rank
            left = left // d * rank
            each += 2 * _ENTRY_COST * left  # written, and moved for the next mode
        costs["modes"] = (0, each)
        return costs

    def _plan(self, n_samples: int) -> str:
        """The cheapest way for so many samples; a program that is traced is to serve any number."""
        n = _TRACED_SAMPLES if torch.compiler.is_compiling() else n_samples
        return min(self._work, key=lambda plan: self._work[plan][0] + n * self._work[plan][1])

    def _read_ranks(self, ranks: Any) -> tuple[int, ...]:
        name, sizes = "TensorRegression", (*self.in_shape, self.n_outputs)
        if self.method == "cp":
            return (check_rank("ranks", ranks, math.prod(sizes) // max(sizes), name),)
        n = len(self.in_shape)
        if self.method not in ("tucker", "tt"):
            raise InvalidInputError(f"method={self.method!r} must be 'tucker', 'cp' or 'tt'")
        given = [ranks] * n if isinstance(ranks, int) else list(ranks)
        if self.method == "tt":
            if len(given) != n:
                raise InvalidInputError(f"ranks={ranks!r} of {name} must be {n} inner ranks")
            limits = [min(math.prod(sizes[: k + 1]), math.prod(sizes[k + 1 :])) for k in range(n)]
            if isinstance(ranks, int):
                given = [min(r, limit) for r, limit in zip(given, limits, strict=True)]
        else:
            if len(given) == n:
                given.append(self.n_outputs)
            limits = list(sizes)
            if len(given) != n + 1:
                raise InvalidInputError(
                    f"ranks={ranks!r} of {name} must be one per mode of in_shape={self.in_shape}, "
                    "and perhaps one for the outputs"
                )
        return tuple(
            check_rank(f"ranks[{k}]", r, limit, name)
            for k, (r, limit) in enumerate(zip(given, limits, strict=True))
        )

    def _factor_shapes(self) -> list[tuple[int, ...]]:
        sizes = (*self.in_shape, self.n_outputs)
        if self.method == "cp":
            return [(d, self.ranks[0]) for d in sizes]
        if self.method == "tucker":
            return list(zip(sizes, self.ranks, strict=True))
        before = (1, *self.ranks[:-1])
        shapes: list[tuple[int, ...]] = list(zip(before, self.in_shape, self.ranks, strict=True))
        return [*shapes, (self.ranks[-1], self.n_outputs)]

    def reset_parameters(self) -> None:
        """Starting values: entries of W have the variance of those of a dense layer."""
        size = math.prod(self.in_shape)
        parameters = [*self.factors, *([] if self.core is None else [self.core])]
        fill(parameters, math.prod(self.ranks), standard_variance(size))
        fill_bias(self.bias, size)

    @classmethod
    def from_dense(
        cls,
        linear: Any,
        in_shape: Sequence[int],
        ranks: Any,
        method: str = "tucker",
        *,
        dropout: float = 0.0,
    ) -> Self:
        """A head that follows a flattening, with its weights decomposed."""
        size = math.prod(_shape(in_shape))
        if not isinstance(linear, torch.nn.Linear) or linear.in_features != size:
            raise InvalidInputError(
                f"linear must be a torch.nn.Linear of {size} features, as in_shape="
                f"{tuple(in_shape)}, got {linear!r}"
            )
        weight = linear.weight
        layer = cls(
            in_shape,
            linear.out_features,
            ranks,
            method,
            linear.bias is not None,
            dropout=dropout,
            device=weight.device,
            dtype=weight.dtype,
        )
        tensor = in_double(weight).T.reshape(*layer.in_shape, layer.n_outputs)
        with torch.no_grad():
            for own, found in zip(layer.factors, layer._decomposed(tensor), strict=True):
                own.copy_(found)
            if layer.bias is not None:
                layer.bias.copy_(linear.bias)
        return layer

    def _decomposed(self, tensor: Any) -> list[Any]:
        if self.method == "cp":
            found = decompose(tensor, self.ranks[0]).tensor
            factors = list(found.factors)
            fraction = found.weights.abs() ** (1 / len(factors))
            scaled = [f * fraction for f in factors]
            scaled[0] = scaled[0] * found.weights.sign()
            return scaled
        if self.method == "tucker":
            small = tucker(tensor, self.ranks, random_state=0).tensor
            self.core.copy_(small.core)
            return list(small.factors)
        cores = list(tensor_train(tensor, ranks=self.ranks).cores)
        cores = [*cores[:-1], cores[-1][:, :, 0]]
        return [padded(c, s) for c, s in zip(cores, self._factor_shapes(), strict=True)]

    @property
    def weight(self) -> Any:
        """W (outputs, d_1 .. d_N), as the weight of a linear layer after flattening."""
        factors = list(self.factors)
        if self.method == "cp":
            return factors[-1] @ self._khatri_rao(factors[:-1]).T
        if self.method == "tucker":
            return factors[-1] @ self._spread(self.core, factors)
        found = factors[0][0]
        for factor in factors[1:-1]:
            found = torch.tensordot(found, factor, dims=1)
        return (found.reshape(-1, self.ranks[-1]) @ factors[-1]).T

    @staticmethod
    def _khatri_rao(factors: Sequence[Any]) -> Any:
        found = factors[0]
        for factor in factors[1:]:
            found = (found[:, None, :] * factor).reshape(-1, factor.shape[1])
        return found

    def to_dense(self) -> Any:
        """The same map as a `torch.nn.Linear` of flattened input."""
        return dense_linear(self.weight, self.bias)

    def _spread(self, core: Any, factors: list[Any]) -> Any:
        """(R_outputs, d_1 .. d_N): Tucker weights but for the factor of the outputs.

        Stored as `torch.nn.Linear` stores them: products of this side with samples, and their
        gradients, are the ones that no BLAS is slow at.
        """
        first, *others, _ = factors
        small = core.movedim(-1, 0)
        if not others:
            return torch.mm(small, first.t())
        rest = self._rest(others)
        small = torch.mm(small.reshape(-1, rest.shape[1]), rest.t())
        small = small.view(self.ranks[-1], self.ranks[0], -1)
        return torch.bmm(first.expand(len(small), *first.shape), small).flatten(1)

    @staticmethod
    def _rest(factors: list[Any]) -> Any:
        """Kronecker product (d_2 .. d_N, R_2 .. R_N); by its gradients `torch.kron` is slower."""
        found, *others = factors
        for factor in others:
            (d, r), (e, s) = found.shape, factor.shape
            outer = found.reshape(d, 1, r, 1) * factor.reshape(1, e, 1, s)
            found = outer.reshape(d * e, r * s)
        return found

    def _factors(self) -> list[Any]:
        """The factors, past `Module.__getattr__` unless one of them is parametrized."""
        own = self._modules["factors"]
        known = own._parameters
        return [known[k] if k in known else getattr(own, k) for k in self._names]

    def forward(self, x: Any) -> Any:
        """Outputs (.., n_outputs) of activations (.., d_1, .., d_N)."""
        n, factors = len(self.in_shape), self._factors()
        check_input(x, factors[0], self.in_shape, "TensorRegression")
        if self.method == "tucker":
            core = self.core
            for k in range(n if self.training and self.dropout else 0):
                mask = kept_components(self.ranks[k], self.dropout, self.training, x)
                core = core * mask.reshape(-1, *[1] * (n - k))
            rows = x.reshape(-1, math.prod(self.in_shape))
            plan, (first, *others, last) = self._plan(rows.shape[0]), factors
            if plan == "whole":
                small = torch.mm(self._spread(core, factors), rows.t())
            else:
                joined = [first, self._rest(others)] if plan == "joined" else factors[:-1]
                small = torch.mm(core.reshape(-1, self.ranks[-1]).t(), turned(rows, joined))
            found = functional.linear(small.t(), last, self.bias)
            return found if x.ndim == n + 1 else found.view(*x.shape[:-n], self.n_outputs)
        if self.method == "cp":
            mask = kept_components(self.ranks[0], self.dropout, self.training, x)
            last = factors[-1] if mask is None else factors[-1] * mask
            scores = x.flatten(-n) @ self._khatri_rao(factors[:-1])
            return functional.linear(scores, last, self.bias)
        # (.., 1, d_1, rest), then one core after the other takes its mode.
        state = x.flatten(-n).unsqueeze(-2)
        for k, factor in enumerate(factors[:-1]):
            left, d, right = factor.shape
            state = state.reshape(*state.shape[:-2], left * d, -1)
            state = factor.reshape(left * d, right).T @ state
            mask = kept_components(right, self.dropout, self.training, x)
            if mask is not None and k == 0:
                state = state * mask[:, None]
        return functional.linear(state.squeeze(-1), factors[-1].T, self.bias)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.in_shape}, {self.n_outputs}, ranks={self.ranks}, method={self.method!r}"


def _shape(shape: Any) -> tuple[int, ...]:
    found = tuple(int(d) for d in shape)
    if not found or min(found) < 1:
        raise InvalidInputError(f"a shape must have dimensions of at least 1, got {found}")
    return found
