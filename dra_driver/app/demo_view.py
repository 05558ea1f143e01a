"""How the demo shows itself: tables and bars on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from textwrap import fill
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from dra_driver.app.demo_values import GpuUsage

Update = Callable[[Sequence[GpuUsage], str], None]
"""Show usage now, with a line about what just happened."""

_COLUMNS = 96
_PLAIN_BAR = 20
_BAR = 30
_EVERY = 5
_MEMORY_STYLE = "cyan"
_COMPUTE_STYLE = "magenta"


class View(Protocol):
    def chapter(self, title: str) -> None: ...

    def text(self, text: str) -> None: ...

    def alarm(self, text: str) -> None:
        """A message that a user of the cluster would see."""
        ...

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None: ...

    def code(self, text: str, language: str) -> None: ...

    def usage(self, gpus: Sequence[GpuUsage]) -> None: ...

    def filling(self) -> AbstractContextManager[Update]:
        """Show usage as it changes, inside the block."""
        ...


class Silent:
    """Shows nothing: the result is all that is wanted."""

    def chapter(self, title: str) -> None: ...

    def text(self, text: str) -> None: ...

    def alarm(self, text: str) -> None: ...

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None: ...

    def code(self, text: str, language: str) -> None: ...

    def usage(self, gpus: Sequence[GpuUsage]) -> None: ...

    @contextmanager
    def filling(self) -> Iterator[Update]:
        yield lambda _gpus, _line: None


class Plain:
    """Lines without colour or movement, for files and pipes."""

    def chapter(self, title: str) -> None:
        self._print(f"\n== {title}")

    def text(self, text: str) -> None:
        self._print(_wrapped(text))

    def alarm(self, text: str) -> None:
        self._print(_wrapped(text, first="  ! ", others="    "))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        cells = [[str(cell) for cell in row] for row in (columns, *rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self._print(f"  {line.rstrip()}")

    def code(self, text: str, language: str) -> None:
        del language
        for line in text.splitlines():
            self._print(f"    {line}")

    def usage(self, gpus: Sequence[GpuUsage]) -> None:
        for gpu in gpus:
            self._print(f"  {plain_usage(gpu)}")

    @contextmanager
    def filling(self) -> Iterator[Update]:
        seen = 0

        def update(gpus: Sequence[GpuUsage], line: str) -> None:
            nonlocal seen
            seen += 1
            if seen % _EVERY == 0:
                self._print(f"  {line}")
                self.usage([gpu for gpu in gpus if gpu.tenants])

        yield update

    def _print(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class Rich:
    """For a terminal."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    def chapter(self, title: str) -> None:
        self._console.print()
        self._console.print(Rule(Text(title, style="bold"), align="left", style="dim"))

    def text(self, text: str) -> None:
        self._console.print(Text(text))

    def alarm(self, text: str) -> None:
        self._console.print(Padding(Text(text, style="yellow"), (0, 0, 0, 2)))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self._console.print(Padding(table, (0, 0, 0, 2)))

    def code(self, text: str, language: str) -> None:
        syntax = Syntax(text.rstrip(), language, background_color="default", word_wrap=True)
        self._console.print(Padding(syntax, (0, 0, 0, 4)))

    def usage(self, gpus: Sequence[GpuUsage]) -> None:
        self._console.print(_bars(gpus))

    @contextmanager
    def filling(self) -> Iterator[Update]:
        with Live(console=self._console, refresh_per_second=20) as live:
            yield lambda gpus, line: live.update(Group(_bars(gpus), Text(f"  {line}")))


def plain_usage(gpu: GpuUsage) -> str:
    """One GPU as one line."""
    memory = f"memory [{_hashes(gpu.memory_share)}] {gpu.memory_share:4.0%}"
    compute = f"compute [{_hashes(gpu.compute_share)}] {gpu.compute_share:4.0%}"
    return f"GPU {gpu.index}  {memory}  {compute}  {_tenants(gpu)}"


def _wrapped(text: str, *, first: str = "", others: str = "") -> str:
    """Lines of a text; names stay whole, and what a no-break space holds together."""
    lines = fill(
        text,
        _COLUMNS,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return lines.replace("\u00a0", " ")


def _hashes(share: float) -> str:
    full = round(share * _PLAIN_BAR)
    return "#" * full + "." * (_PLAIN_BAR - full)


def _bars(gpus: Sequence[GpuUsage]) -> Padding:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("GPU", "memory", "", "compute", "", "holders"):
        table.add_column(column)
    for gpu in gpus:
        table.add_row(
            str(gpu.index),
            _bar(gpu.memory_share, _MEMORY_STYLE),
            f"{gpu.memory_share:4.0%}",
            _bar(gpu.compute_share, _COMPUTE_STYLE),
            f"{gpu.compute_share:4.0%}",
            _tenants(gpu),
        )
    return Padding(table, (0, 0, 0, 2))


def _bar(share: float, style: str) -> Text:
    full = round(share * _BAR)
    return Text.assemble(("█" * full, style), ("░" * (_BAR - full), "bright_black"))


def _tenants(gpu: GpuUsage) -> str:
    match gpu.tenants:
        case 0:
            return "free"
        case 1:
            return "1 pod"
        case count:
            return f"{count} pods"
