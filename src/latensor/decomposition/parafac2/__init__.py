"""PARAFAC2: slices that share one factor while another one evolves."""

from latensor.decomposition.parafac2.decomposition import Parafac2Decomposition, parafac2

__all__ = ["Parafac2Decomposition", "parafac2"]
