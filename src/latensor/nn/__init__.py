"""Layers of PyTorch whose weights are tensors of low rank, and the compression of networks."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("latensor.nn needs PyTorch: install latensor[torch]") from error

from latensor.nn.compress import compress
from latensor.nn.compression_report import CompressionReport, LayerReport
from latensor.nn.convolution import FactorizedConv1d, FactorizedConv2d, FactorizedConv3d
from latensor.nn.initialize import initialize
from latensor.nn.linear import FactorizedEmbedding, FactorizedLinear
from latensor.nn.regression import TensorContraction, TensorRegression

__all__ = [
    "CompressionReport",
    "FactorizedConv1d",
    "FactorizedConv2d",
    "FactorizedConv3d",
    "FactorizedEmbedding",
    "FactorizedLinear",
    "LayerReport",
    "TensorContraction",
    "TensorRegression",
    "compress",
    "initialize",
]
