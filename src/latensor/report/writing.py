"""`write_report`: the page in a file, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from latensor.exceptions import InvalidInputError
from latensor.report.description import TopicPage
from latensor.report.page import topic_report
from latensor.whole_files import whole_stream


def write_report(page: TopicPage, path: str | os.PathLike[str]) -> Path:
    """Write the report about a topic model into a file, whole or not at all.

    The page is written beside its place under another name and then moved, so that neither an
    error nor an interruption leaves half a page, and an older one stays until the new one is
    complete.

    Parameters
    ----------
    page : TopicPage, what to show
    path : where to; its folder must exist

    Returns
    -------
    Path of the file

    Raises
    ------
    InvalidInputError, if the folder does not exist or cannot be written, or if `path` is a folder
    or a device.
    """
    content = topic_report(page).encode("utf-8")
    given = Path(path)
    # A link keeps pointing to its target, which is what gets replaced.
    target = Path(os.path.realpath(given))
    if not target.parent.is_dir():
        raise InvalidInputError(
            f"path={str(given)!r}: the folder {str(target.parent)!r} does not exist: make it, or "
            "give another path"
        )
    if target.is_dir():
        raise InvalidInputError(
            f"path={str(given)!r} is a folder: give a file, as {str(given / 'report.html')!r}"
        )
    if target.exists() and not target.is_file():
        raise InvalidInputError(f"path={str(given)!r} is not a regular file: give another path")
    try:
        with whole_stream(target) as stream:
            stream.write(content)
    except OSError as error:
        raise InvalidInputError(
            f"path={str(given)!r} cannot be written: {error.strerror or error}"
        ) from error
    return given
