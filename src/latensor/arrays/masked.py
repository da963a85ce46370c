"""Masked arrays, whose masks most functions would silently ignore."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError


def unmasked(value: Any, name: str, *, allows_missing: bool = False) -> Any:
    """A masked array as one without a mask; whatever else is given as it is.

    Masked entries become NaN where that stands for what was not observed, and are refused
    elsewhere.

    Parameters
    ----------
    value : what the caller gave
    name : str, what error messages call it
    allows_missing : bool, whether NaN means an entry that was not observed
    """
    if not isinstance(value, np.ma.MaskedArray):
        return value
    count = int(np.ma.getmaskarray(value).sum())
    if count == 0:
        return np.asarray(value)
    if allows_missing:
        precise = np.ma.masked_array(value, dtype=np.result_type(value.dtype, np.float32))
        return precise.filled(np.nan)
    raise InvalidInputError(
        f"{name} is a masked array with {count} masked entries, which stand for nothing here: "
        "leave their rows out, or fill them in (.filled)"
    )
