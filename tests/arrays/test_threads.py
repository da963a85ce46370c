"""The limit on BLAS threads: set by the first holder, taken back by the last."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController

from latensor.arrays import one_blas_thread


@pytest.fixture
def counts():
    controller = ThreadpoolController()
    with controller.limit(limits=2, user_api="blas"):
        yield lambda: [
            library.num_threads for library in controller.select(user_api="blas").lib_controllers
        ]


def test_one_inside_and_restored_after(counts):
    before = counts()
    with one_blas_thread():
        assert set(counts()) == {1}
        with one_blas_thread():
            assert set(counts()) == {1}
        assert set(counts()) == {1}
    assert counts() == before
    with one_blas_thread(False):
        assert counts() == before


def test_an_error_inside_gives_the_threads_back(counts):
    before = counts()
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert counts() == before


def test_threads_that_overlap_leave_no_limit_behind(counts):
    before = counts()
    gate = Barrier(2, timeout=10)

    def hold(late):
        with one_blas_thread():
            gate.wait()
            if late:
                gate.wait()
        if not late:
            gate.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(hold, [True, False]))
    assert counts() == before
