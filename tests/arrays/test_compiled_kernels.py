"""How kernels are compiled."""

from latensor.arrays import _kernels


def test_kernels_are_compiled_where_nothing_can_be_written(monkeypatch):
    compile_function = _kernels.numba.njit
    asked = []

    def without_cache(cache=False, **options):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compile_function(**options)

    with monkeypatch.context() as patch:
        patch.setattr(_kernels.numba, "njit", without_cache)
        kernel = _kernels.compiled()(lambda x: x + 1)
    assert asked == [True, False]
    assert kernel(1) == 2
