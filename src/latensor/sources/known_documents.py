"""What a source of documents tells about them before they are read."""

from __future__ import annotations


class KnownDocuments:
    """The properties of a `DocumentSource`; a subclass sets what stands behind them."""

    _n_features: int
    _n_documents: int | None
    _vocabulary: list[str] | None

    @property
    def n_features(self) -> int:
        """The number of different words."""
        return self._n_features

    @property
    def n_documents(self) -> int | None:
        """The number of documents; None as long as nobody has counted them."""
        return self._n_documents

    @property
    def vocabulary(self) -> list[str] | None:
        """The words in the order of the columns, or None where they have no names."""
        return self._vocabulary
