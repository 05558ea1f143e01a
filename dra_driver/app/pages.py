"""What the pages of all long-running processes have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dra_driver import __version__
from dra_driver.loops.guard import LoopGuard
from dra_driver.ports import Recorder
from dra_driver.settings import Settings
from dra_driver.telemetry.off import NoMetrics
from dra_driver.telemetry.otlp_variables import wants_otlp

if TYPE_CHECKING:
    from dra_driver.telemetry.otlp import OtlpSource


@contextmanager
def open_recorder(settings: Settings, *, process: str) -> Iterator[Recorder]:
    """Give a recorder whose metrics are served or sent, or one that costs nothing.

    Raises:
        SettingsError: OpenTelemetry's variables ask for what cannot be.
    """
    sends = wants_otlp(os.environ)
    if settings.http_endpoint is None and not sends:
        yield NoMetrics()
        return
    from dra_driver.telemetry.metrics import Metrics  # noqa: PLC0415 - 30 ms, only where read

    metrics = Metrics(version=__version__, otlp=_source(settings, process) if sends else None)
    try:
        yield metrics
    finally:
        metrics.close()


def _source(settings: Settings, process: str) -> OtlpSource:
    from dra_driver.telemetry.otlp import OtlpSource  # noqa: PLC0415 - an extra

    return OtlpSource(process=process, node=settings.node_name, instance=settings.pod_uid)


def metrics_page(recorder: Recorder) -> Callable[[], tuple[bytes, str]]:
    """Give the content and its type, as they are when asked for."""
    from dra_driver.telemetry.metrics import CONTENT_TYPE, Metrics  # noqa: PLC0415 - as above

    def page() -> tuple[bytes, str]:
        text = recorder.text() if isinstance(recorder, Metrics) else b""
        return text, CONTENT_TYPE

    return page


def ended_loops(loops: LoopGuard) -> str | None:
    """Say which loops do not run any more; None while all do."""
    ended = loops.ended()
    return f"ended by themselves: {', '.join(ended)}" if ended else None
