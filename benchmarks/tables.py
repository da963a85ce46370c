"""Tables in docs/benchmarks.md: each benchmark owns the lines between its two markers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def put(name: str, lines: Iterable[str], page: Path = PAGE) -> None:
    """Replace what stands between the markers of `name`."""
    text = page.read_text()
    start, stop = f"<!-- {name} -->", f"<!-- /{name} -->"
    if start not in text or stop not in text:
        raise SystemExit(f"{page} lacks the markers {start} and {stop}")
    body = "\n".join([start, *lines, stop])
    pattern = re.escape(start) + ".*?" + re.escape(stop)
    page.write_text(re.sub(pattern, lambda _: body, text, flags=re.DOTALL))


def put_rows(name: str, lines: Iterable[str], page: Path = PAGE) -> None:
    """Replace the rows of a table that have the same first cell; the others stay."""
    start, stop = f"<!-- {name} -->", f"<!-- /{name} -->"
    before = page.read_text().split(start)[1].split(stop)[0].strip().splitlines()
    new = {line.split(" | ")[0]: line for line in lines}
    put(name, ["", *(new.get(line.split(" | ")[0], line) for line in before), ""], page)
