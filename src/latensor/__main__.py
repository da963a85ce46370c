"""`latensor` and `python -m latensor`: an interruption is quiet from the first import on."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from latensor.cli import main

        main(prog_name="latensor")
    except KeyboardInterrupt:  # while click and rich are imported; what follows has its own end
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
