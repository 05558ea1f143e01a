"""How far a command is, on standard error: moving on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

_PERCENT_STEP = 10


class StderrProgress:
    """Implements `app.node_plugins.Progress`; a context, as a terminal has to be left clean."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._transfer = Progress(
            *(TextColumn("{task.description}"), BarColumn(), DownloadColumn()),
            TransferSpeedColumn(),
            console=self._console,
            transient=True,
        )
        self._text = ""
        self._percent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Stopping writes a line, even where nothing was started.
        for each in (self._bar, self._transfer):
            if each.live.is_started:
                each.stop()

    def step(self, text: str) -> None:
        self._text = text
        self._percent = 0
        if not self._console.is_terminal:
            self._line(text)
            return
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.add_task(text, total=None)
        self._bar.start()

    def amount(self, done_bytes: int, total_bytes: int) -> None:
        if self._console.is_terminal:
            self._bar.stop()
            if not self._transfer.task_ids:
                self._transfer.add_task("fetching", total=total_bytes)
                self._transfer.start()
            self._transfer.update(self._transfer.task_ids[0], completed=done_bytes)
            return
        percent = 100 * done_bytes // max(1, total_bytes)
        if percent >= self._percent + _PERCENT_STEP:
            self._percent = percent - percent % _PERCENT_STEP
            self._line(f"{self._text}: {self._percent} %")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
