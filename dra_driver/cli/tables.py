"""Reports as tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dra_driver.app.explain import DeviceRow, Explanation, sentence
from dra_driver.app.inventory import GpuRow, InventoryReport

_WIDE_COLUMNS = 200
_UNKNOWN = "-"


def print_inventory(report: InventoryReport) -> None:
    console = open_console()
    driver = f"Driver {report.driver_version or 'unknown'}, CUDA {report.cuda_version or 'unknown'}"
    console.print(Text(driver + (", simulated" if report.simulated else "")))
    if report.gpus:
        columns = {
            "#": "right",
            "UUID": "left",
            "Product": "left",
            "Memory MiB": "right",
            "Usable MiB": "right",
            "SMs": "right",
            "NUMA": "right",
            "NVLink": "left",
            "Tier": "left",
            "Health": "left",
        }
        console.print(plain_table(columns, map(_gpu_cells, report.gpus)))
    else:
        console.print(Text("This node has no GPU that can be read."))
    _print_list(console, "Notes", report.notes)


def print_explanation(explanation: Explanation) -> None:
    console = open_console()
    console.print(Text(f"Claim {explanation.claim} on node {explanation.node}"))
    if not explanation.devices:
        console.print(Text("No device of this driver is allocated to it: nothing would be done."))
    else:
        columns = {
            "Request": "left",
            "Device": "left",
            "GPU": "left",
            "Compute %": "right",
            "Memory MiB": "right",
            "Sharing": "left",
            "QoS": "left",
        }
        console.print(plain_table(columns, map(_device_cells, explanation.devices)))
    _print_list(console, "Why", [device.note for device in explanation.devices])
    _print_list(console, "Warnings", explanation.warnings)
    _print_list(console, "Steps", [sentence(step) for step in explanation.steps])
    for name, spec in explanation.cdi_specs().items():
        console.print(Text(f"CDI spec {name}:"))
        console.print(Text(json.dumps(spec, indent=2, sort_keys=True)), soft_wrap=True)


def open_console() -> Console:
    # Into a file or a pipe nothing is cut: columns are as wide as what they hold.
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE_COLUMNS)


def plain_table(columns: dict[str, str], rows: Iterable[tuple[object, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, justify in columns.items():
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_UNKNOWN if cell in (None, "") else str(cell)) for cell in row))
    return table


def _print_list(console: Console, title: str, lines: Iterable[str]) -> None:
    listed = list(lines)
    if listed:
        console.print(Text(f"{title}:"))
    for line in listed:
        console.print(Text(f"  - {line}"), soft_wrap=True)


def _gpu_cells(row: GpuRow) -> tuple[object, ...]:
    facts, health = row.facts, row.health
    return (
        facts.index,
        facts.uuid,
        facts.product_name,
        row.memory_total_mib,
        row.memory_usable_mib,
        facts.sm_count,
        facts.numa_node,
        facts.nvlink_domain,
        row.ability.tier,
        f"{health.status}: {health.message}" if health.message else health.status,
    )


def _device_cells(row: DeviceRow) -> tuple[object, ...]:
    share = row.share
    return (
        ", ".join(row.device.requests),
        row.device.device,
        row.use.gpu,
        row.use.compute_percent,
        row.use.memory_mib,
        share.sharing if share else row.use.use,
        share.qos if share else None,
    )
