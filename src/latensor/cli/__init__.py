"""The command line: thin, and written over the public API only."""

from __future__ import annotations

import click

import latensor
from latensor.cli.decompose import decompose
from latensor.cli.demo import demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(latensor.__version__, prog_name="latensor")
def main() -> None:
    """Latent variable models from moment tensors, and decompositions of any tensor.

    Start with: latensor demo
    """


main.add_command(decompose)
main.add_command(demo)

__all__ = ["main"]
