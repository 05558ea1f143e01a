"""What commands for people have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping

import typer

from dra_driver import log
from dra_driver.settings import Settings, load


def for_people(flags: Mapping[str, str]) -> Settings:
    """Settings of a command that prints; its logs are warnings, for people."""
    log.configure(log.LogLevel.WARNING, log.LogFormat.CONSOLE)
    return load(flags)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, sort_keys=True))
