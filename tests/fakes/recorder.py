"""A Recorder that remembers."""

from __future__ import annotations

from collections import Counter
from threading import Lock

Labels = tuple[tuple[str, str], ...]


class FakeRecorder:
    """Counts, observations and gauges by name and labels; safe across threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.counts: Counter[tuple[str, Labels]] = Counter()
        self.observed: list[tuple[str, float, Labels]] = []
        self.gauges: dict[tuple[str, Labels], float] = {}

    def count(self, name: str, /, **labels: str) -> None:
        with self._lock:
            self.counts[name, _key(labels)] += 1

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        with self._lock:
            self.observed.append((name, value, _key(labels)))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        with self._lock:
            self.gauges[name, _key(labels)] = value

    def forget(self, name: str, /, **labels: str) -> None:
        with self._lock:
            self.gauges.pop((name, _key(labels)), None)

    def counted(self, name: str, /, **labels: str) -> int:
        """How often `name` was counted with (at least) these labels."""
        wanted = set(labels.items())
        with self._lock:
            return sum(
                number
                for (counted, key), number in self.counts.items()
                if counted == name and wanted <= set(key)
            )


def _key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
