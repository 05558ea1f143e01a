"""The command `gpuslice`. Commands import what they need when they run: a start is counted."""

from dra_driver.cli.commands import main

__all__ = ["main"]
