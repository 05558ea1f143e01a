"""Metrics where nobody can read them."""

from __future__ import annotations


class NoMetrics:
    """A Recorder that costs nothing; used while no endpoint is served and nobody collects."""

    def count(self, name: str, /, **labels: str) -> None: ...

    def observe(self, name: str, value: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...

    def forget(self, name: str, /, **labels: str) -> None: ...
