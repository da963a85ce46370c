"""What `python -m latensor` runs."""

from latensor.cli import main

main(prog_name="latensor")
