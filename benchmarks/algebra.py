"""`make bench-algebra`: dense and sparse mttkrp beside TensorLy and pyttb, in one run.

python -m benchmarks.algebra           print the tables
python -m benchmarks.algebra --write   and put them into docs/benchmarks.md
"""

from __future__ import annotations

import sys
from importlib.metadata import version

from benchmarks import dense_mttkrp, sparse_mttkrp
from benchmarks.tables import put


def main() -> None:
    lines: list[str] = []

    def show(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    peers = ", ".join(f"{name} {version(name)}" for name in ("tensorly", "pyttb"))
    show(f"`make bench-algebra`, one thread, beside {peers}.")
    show("")
    show("All modes of one sweep over a dense tensor, milliseconds of CPU time; ours replaces each")
    show("factor on the way, as ALS does. pyttb has its column-major layout. Its `mttkrps` shares")
    show("work between modes, but for one set of factors, so that ALS cannot use it.")
    show("")
    for row in dense_mttkrp.rows():
        show(row)
    show("")
    show("All modes of one sweep over a sparse tensor; set-up is paid once per tensor.")
    show("")
    for row in sparse_mttkrp.rows():
        show(row)
    if "--write" in sys.argv[1:]:
        put("bench-algebra", ["", *lines, ""])


if __name__ == "__main__":
    main()
