"""What the pages of all long-running processes have in common."""

from __future__ import annotations

from collections.abc import Callable

from dra_driver import __version__
from dra_driver.loops.guard import LoopGuard
from dra_driver.ports import Recorder
from dra_driver.settings import Settings
from dra_driver.telemetry.off import NoMetrics


def recorder_of(settings: Settings) -> Recorder:
    """A recorder whose metrics are served, or one that costs nothing where none are."""
    if settings.http_endpoint is None:
        return NoMetrics()
    from dra_driver.telemetry.metrics import Metrics  # noqa: PLC0415 - 30 ms, only where read

    return Metrics(version=__version__)


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
