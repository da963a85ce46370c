"""`write_report`: the page in a file, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from latensor.report.description import TopicPage
from latensor.report.page import topic_report
from latensor.whole_files import whole_text


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
    or a device; OSError, if the disk is full.
    """
    with whole_text(path) as stream:
        stream.write(topic_report(page))
    return Path(path)
