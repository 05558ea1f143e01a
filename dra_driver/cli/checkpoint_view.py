"""Reports about checkpoints, for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import typer

from dra_driver.app.checkpoint_values import CheckpointReport
from dra_driver.app.operations_command import OperationRow, OperationsReport
from dra_driver.app.restore_command import RestoreReport
from dra_driver.cli.tables import open_console, plain_table
from dra_driver.plan.operation_choice import word

_UNHEALTHY = (
    "the GPU of an operation that failed unhealthy takes no new pods until its pod is deleted, or"
    " until, in the plugin's pod of that node, `gpuslice hook Abort"
    ' \'{"operationId": "…", "acknowledge": true}\'` lets its state be of no account'
)


def print_checkpoint(report: CheckpointReport) -> None:
    asked = report.found.asked
    typer.echo(f"archive    {report.archive} on node {asked.node}")
    if report.file is not None:
        typer.echo(f"copy       {report.file}")
    if report.operation is not None:
        typer.echo(f"operation  {report.operation_id}, {word(report.operation['state'])}")
    for note in report.notes:
        _note(note)
    if report.failure:
        typer.echo(f"gpuslice: {report.failure}", err=True)
        return
    typer.echo(f"restore    {_next(report)}")


def print_restore(report: RestoreReport) -> None:
    """Objects go to standard output alone: to `kubectl apply -f -`."""
    place = "in the node's containerd" if report.file is None else f"in {report.file}"
    _note(f"image {report.image} is {place}")
    for note in report.notes:
        _note(note)
    typer.echo(report.to_yaml(), nl=False)


def print_operations(report: OperationsReport) -> None:
    for node, reason in report.unknown:
        typer.echo(f"gpuslice: node {node}: {reason}", err=True)
    if not report.rows:
        typer.echo("No operation.")
        return
    columns = {
        "Node": "left",
        "Operation": "left",
        "Kind": "left",
        "State": "left",
        "Pod": "left",
        "Container": "left",
        "Started": "left",
        "Left s": "right",
        "Message": "left",
    }
    open_console().print(plain_table(columns, map(_cells, report.rows)))
    if any(map(_is_unhealthy, report.rows)):
        _note(_UNHEALTHY)


def _next(report: CheckpointReport) -> str:
    asked = report.found.asked
    words = ["gpuslice restore", report.archive, f"--node {asked.node}", "--import"]
    if report.operation is not None:
        words.append(f"--operation {report.operation_id}")
    return " ".join(words)


def _cells(row: OperationRow) -> tuple[object, ...]:
    operation = row.operation
    target = operation.get("target") or {}
    started = datetime.fromtimestamp(float(operation.get("startedSeconds", 0))).astimezone()
    left_s = float(operation.get("remainingSeconds", 0))
    return (
        row.node,
        operation.get("operationId"),
        word(str(operation.get("kind", ""))),
        _state(operation),
        f"{target.get('podNamespace', '')}/{target.get('podName', '')}",
        target.get("containerName"),
        started.isoformat(sep=" ", timespec="seconds"),
        f"{left_s:.0f}" if left_s else "",
        operation.get("message"),
    )


def _state(operation: Mapping[str, Any]) -> str:
    acknowledged = ", acknowledged" if operation.get("acknowledged") else ""
    return f"{word(str(operation.get('state', '')))}{acknowledged}"


def _is_unhealthy(row: OperationRow) -> bool:
    operation = row.operation
    unhealthy = operation.get("state") == "STATE_FAILED_UNHEALTHY"
    return unhealthy and not operation.get("acknowledged")


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)
