"""`latensor` and `python -m latensor`: an interruption is quiet from the first import on."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `2>&-`: what is printed goes nowhere
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        from latensor.cli import main

        main(prog_name="latensor")
    except KeyboardInterrupt:  # while click and rich are imported; what follows has its own end
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    except OSError as error:  # of what options print, on a full disk; commands have their own end
        from latensor.cli.console import drop_output

        drop_output(sys.stdout)
        sys.stderr.write(f"Error: {error.strerror or error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
