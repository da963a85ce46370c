"""Linear layers and embeddings of low rank: two thin matrix products in place of a large one."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch.nn import functional

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
    parameter,
    standard_variance,
)


def balanced_svd(matrix: Any, rank: int) -> tuple[Any, Any]:
    """U S^1/2 (m, rank) and S^1/2 V' (rank, n) of the leading singular triplets."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    root = values[:rank].sqrt()
    return left[:, :rank] * root, root[:, None] * right[:rank]


class FactorizedLinear(torch.nn.Module):  # type: ignore[misc]
    """A linear layer y = A B x + b of low rank, for fewer weights and less time than W x + b.

    Parameters
    ----------
    in_features, out_features : int
    rank : int, at most the smaller of both
    bias : bool
    dropout : float, the chance that a component is left out in a training step
    device, dtype : as for `torch.nn.Linear`

    Attributes
    ----------
    output_factor : A (out_features, rank)
    input_factor : B (rank, in_features)
    bias : (out_features,) or None

    Notes
    -----
    Entries of A B start with the variance of those of `torch.nn.Linear`. Where two products would
    cost more than one, rank > in out / (in + out), the layer multiplies by A B.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rank: int,
        bias: bool = True,
        *,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_features, self.out_features = int(in_features), int(out_features)
        self.rank = check_rank("rank", rank, min(self.in_features, self.out_features), name)
        self.dropout = check_dropout(dropout, name)
        options = {"device": device, "dtype": dtype}
        self.output_factor = torch.nn.Parameter(
            torch.empty(self.out_features, self.rank, **options)
        )
        self.input_factor = torch.nn.Parameter(torch.empty(self.rank, self.in_features, **options))
        self.bias = torch.nn.Parameter(torch.empty(self.out_features, **options)) if bias else None
        self._one_product = (
            self.rank * (self.in_features + self.out_features)
            > self.in_features * self.out_features
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starting values."""
        variance = standard_variance(self.in_features)
        fill([self.output_factor, self.input_factor], self.rank, variance)
        fill_bias(self.bias, self.in_features)

    @classmethod
    def from_dense(cls, linear: Any, rank: int, *, dropout: float = 0.0) -> Self:
        """The best layer of this rank in the norm of the weights, singular values shared evenly."""
        if not isinstance(linear, torch.nn.Linear):
            raise InvalidInputError(f"linear must be a torch.nn.Linear, got {type(linear)}")
        weight = linear.weight
        layer = cls(
            linear.in_features,
            linear.out_features,
            rank,
            linear.bias is not None,
            dropout=dropout,
            device=weight.device,
            dtype=weight.dtype,
        )
        left, right = balanced_svd(in_double(weight), layer.rank)
        with torch.no_grad():
            layer.output_factor.copy_(left)
            layer.input_factor.copy_(right)
            if layer.bias is not None:
                layer.bias.copy_(linear.bias)
        return layer

    @property
    def weight(self) -> Any:
        """A B (out_features, in_features)."""
        return self.output_factor @ self.input_factor

    def to_dense(self) -> Any:
        """The same map as a `torch.nn.Linear`."""
        return dense_linear(self.weight, self.bias)

    def forward(self, x: Any) -> Any:
        """A B x + b of the last dimension."""
        check_input(x, self.input_factor, (self.in_features,), "FactorizedLinear")
        mask = kept_components(self.rank, self.dropout, self.training, x)
        left = self.output_factor if mask is None else self.output_factor * mask
        if self._one_product:
            return functional.linear(x, left @ self.input_factor, self.bias)
        return functional.linear(functional.linear(x, self.input_factor), left, self.bias)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.in_features}, {self.out_features}, rank={self.rank}"


class FactorizedEmbedding(torch.nn.Module):  # type: ignore[misc]
    """A table of vectors of low rank: every entry has `rank` numbers, which one map makes a vector.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    rank : int, at most the smaller of both
    padding_idx : int or None, an entry that stays zero
    dropout : float, the chance that a component is left out in a training step
    device, dtype : as for `torch.nn.Embedding`

    Attributes
    ----------
    entries : (num_embeddings, rank)
    vectors : (rank, embedding_dim)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        rank: int,
        *,
        padding_idx: int | None = None,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.num_embeddings, self.embedding_dim = int(num_embeddings), int(embedding_dim)
        self.rank = check_rank("rank", rank, min(self.num_embeddings, self.embedding_dim), name)
        self.dropout, self.padding_idx = check_dropout(dropout, name), padding_idx
        options = {"device": device, "dtype": dtype}
        self.entries = torch.nn.Parameter(torch.empty(self.num_embeddings, self.rank, **options))
        self.vectors = torch.nn.Parameter(torch.empty(self.rank, self.embedding_dim, **options))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starting values: entries of the table have variance one, as in `torch.nn.Embedding`."""
        fill([self.entries, self.vectors], self.rank, 1.0)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.entries[self.padding_idx].zero_()

    @classmethod
    def from_dense(cls, embedding: Any, rank: int, *, dropout: float = 0.0) -> Self:
        """The best table of this rank."""
        if not isinstance(embedding, torch.nn.Embedding) or embedding.max_norm is not None:
            raise InvalidInputError(
                "embedding must be a torch.nn.Embedding without max_norm, which a table of low "
                f"rank cannot keep; got {embedding!r}"
            )
        weight = embedding.weight
        layer = cls(
            embedding.num_embeddings,
            embedding.embedding_dim,
            rank,
            padding_idx=embedding.padding_idx,
            dropout=dropout,
            device=weight.device,
            dtype=weight.dtype,
        )
        left, right = balanced_svd(in_double(weight), layer.rank)
        with torch.no_grad():
            layer.entries.copy_(left)
            layer.vectors.copy_(right)
            if layer.padding_idx is not None:
                layer.entries[layer.padding_idx].zero_()
        return layer

    def to_dense(self) -> Any:
        """The same table as a `torch.nn.Embedding`."""
        weight = self.entries @ self.vectors
        dense = torch.nn.Embedding(
            self.num_embeddings,
            self.embedding_dim,
            padding_idx=self.padding_idx,
            device=weight.device,
            dtype=weight.dtype,
        )
        dense.weight = parameter(weight)
        return dense

    def forward(self, x: Any) -> Any:
        """Vectors (.., embedding_dim) of indices (..)."""
        if x.device != self.entries.device:
            raise InvalidInputError(
                f"FactorizedEmbedding is on device {self.entries.device} but its input on "
                f"{x.device}: move one of them"
            )
        mask = kept_components(self.rank, self.dropout, self.training, self.entries)
        vectors = self.vectors if mask is None else mask[:, None] * self.vectors
        return functional.embedding(x, self.entries, self.padding_idx) @ vectors

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.num_embeddings}, {self.embedding_dim}, rank={self.rank}"
