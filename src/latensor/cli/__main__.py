"""What `python -m latensor.cli` runs."""

from latensor.cli import main

main(prog_name="latensor")
