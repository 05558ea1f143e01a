"""The doctor's report for people."""

from __future__ import annotations

import typer

from dra_driver.app.doctor import DoctorReport
from dra_driver.model.doctor import Verdict

_WIDTH = max(len(verdict) for verdict in Verdict)
_COLOURS = {
    Verdict.OK: typer.colors.GREEN,
    Verdict.WARNING: typer.colors.YELLOW,
    Verdict.PROBLEM: typer.colors.RED,
}


def print_report(report: DoctorReport) -> None:
    """A line for each finding, and one below it where something can be done."""
    for each in report.findings:
        verdict = typer.style(f"{each.verdict:<{_WIDTH}}", fg=_COLOURS[each.verdict])
        typer.echo(f"{verdict}  {each.subject}: {each.text}")
        if each.mend:
            typer.echo(f"{'':<{_WIDTH}}    to mend: {each.mend}")
    counts = [
        f"{sum(each.verdict is verdict for each in report.findings)} {verdict}"
        for verdict in Verdict
    ]
    typer.echo(", ".join(counts))
