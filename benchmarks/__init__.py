"""Comparisons with the peers, each a `make bench-*`. Never part of the test suite.

Thread counts are fixed here, before any numerical library is loaded: one for everybody.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
