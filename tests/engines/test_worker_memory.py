"""What Dask's nanny tells malloc is set aside while a task runs, and holds again afterwards."""

import pytest

from latensor.engines import worker_memory


class Library:
    def __init__(self):
        self.calls = []

    def mallopt(self, name, value):
        self.calls.append((name, value))

    def malloc_trim(self, size):
        self.calls.append(("trim", size))


def test_memory_is_kept_by_the_first_and_given_back_by_the_last(monkeypatch):
    library = Library()
    monkeypatch.setattr(worker_memory, "_library", lambda: library)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    with worker_memory.kept_memory.hold():
        with worker_memory.kept_memory.hold():
            pass
        assert library.calls == [(-3, 1 << 25), (-1, 1 << 26)]
    assert library.calls[2:] == [(-3, 1 << 17), (-1, 65536), ("trim", 0)]


def test_nothing_is_set_where_nothing_was_told(monkeypatch):
    library = Library()
    monkeypatch.setattr(worker_memory, "_library", lambda: library)
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    with worker_memory.kept_memory.hold():
        pass
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setattr(worker_memory, "_library", lambda: None)
    with pytest.raises(ValueError, match="as it was"), worker_memory.kept_memory.hold():
        raise ValueError("as it was")
    assert library.calls == []
