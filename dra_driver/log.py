"""Structured logs: a constant sentence, and fields for all that varies.

    _log = log.get(__name__)
    _log.info("Prepared the claim", claim=str(ref), gpus=len(gpus))

Failure is logged once, where it is handled. Logs go to standard error; standard output belongs to
the commands. Nothing is set up at import: a process calls `configure` once, libraries never do.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager, suppress
from enum import StrEnum
from threading import Lock
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

Logger = FilteringBoundLogger


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """JSON: one object a line, for collectors. CONSOLE: for people."""

    JSON = "json"
    CONSOLE = "console"


def get(name: str) -> Logger:
    """A logger that follows `configure` whenever that comes; `name` is the module's `__name__`."""
    return cast("Logger", structlog.get_logger(name))


def context(**fields: str) -> AbstractContextManager[None]:
    """Add fields to all lines that this thread logs inside the block."""
    return structlog.contextvars.bound_contextvars(**fields)


def configure(level: LogLevel, format: LogFormat) -> None:  # noqa: A002 - the setting's name
    """Send this package's logs, and warnings of the libraries below it, to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    lines = _Lines(sys.stderr)
    handler: logging.Handler = _Handler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[_drop_internals, *_renderers(format)], foreign_pre_chain=shared
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # Our own lines do not take the way through the standard library, which costs each claim more
    # than they themselves do.
    structlog.configure(
        processors=[*shared, *_renderers(format)],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lines.logger,
        cache_logger_on_first_use=False,
    )


class _Lines:
    """Writes each line in one piece; loses those that cannot be written.

    A full disk behind standard error must not fail a claim.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = Lock()

    def write(self, text: str) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def flush(self) -> None:
        """There is nothing that `write` leaves behind."""

    def logger(self, name: str) -> _Logger:
        return _Logger(name, self)


class _Logger:
    """What structlog hands rendered lines to."""

    def __init__(self, name: str, lines: _Lines) -> None:
        self.name = name
        self._lines = lines
        self.debug = self.info = self.warning = self.error = self.critical = self._write

    def _write(self, line: str) -> None:
        self._lines.write(f"{line}\n")


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Takes what libraries tell the standard library, and loses what it cannot format."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base's name
        del record


def _renderers(format: LogFormat) -> list[Processor]:  # noqa: A002
    match format:
        case LogFormat.JSON:
            return [
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ]
        case LogFormat.CONSOLE:
            # The plain traceback: the pretty one prints local variables, credentials among them.
            return [
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(),
                    exception_formatter=structlog.dev.plain_traceback,
                )
            ]


def _drop_internals(logger: object, method: str, event: EventDict) -> EventDict:
    return structlog.stdlib.ProcessorFormatter.remove_processors_meta(
        cast("logging.Logger", logger), method, event
    )
