"""`--labels` of `latensor decompose`: what the modes of a tensor and their indices are called."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from latensor.cli.refusal import Refusal
from latensor.decomposition.mode_labels import ModeLabels


def read_mode_labels(path: Path, shape: tuple[int, ...]) -> tuple[ModeLabels, ...]:
    """Labels from a CSV file: a line per mode, its name and then a label for every index of it.

    A line with the name alone, or an empty one, leaves the indices without labels.

    Parameters
    ----------
    path : file
    shape : of the tensor
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.reader(stream))
    except UnicodeDecodeError:
        raise Refusal(f"--labels={path} is not UTF-8 text") from None
    except (OSError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Refusal(f"--labels={path} cannot be read: {reason}") from None
    if len(rows) != len(shape):
        raise Refusal(
            f"--labels={path} has {len(rows)} lines, but the tensor has {len(shape)} modes: give a "
            "line per mode, its name and then a label for every index, separated by commas"
        )
    found = []
    for mode, (row, size) in enumerate(zip(rows, shape, strict=True)):
        name, *labels = [field.strip() for field in row] or [""]
        if labels and len(labels) != size:
            raise Refusal(
                f"--labels={path}, line {mode + 1}: {len(labels)} labels follow the name "
                f"{name!r}, but mode {mode} has {size} indices"
            )
        found.append(ModeLabels(name or None, np.array(labels) if labels else None))
    return tuple(found)
