"""Watches this node's slices, so that nobody else's change stays unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from threading import Condition, Event, RLock

from dra_driver import log
from dra_driver.errors import AdapterError
from dra_driver.loops.backoff import Backoff
from dra_driver.ports import Clock, Json, SliceApi, Watch

_LOG = log.get(__name__)
_TICK_S = 0.5
_EARLY_END = 0.9
"""A watch that ends before this part of its time was cut off, by a restarting server perhaps."""


class SliceWatch:
    """Follows the slices from where a pass listed them.

    Args:
        slices: to watch.
        on_change: called for a change that was not ours.
        on_broken: called when the watch needs a new list, after a pause.
        clock: measures how long a watch lasted.
        backoff: pauses after watches that broke.
        watch_s: how long the server is asked to keep a watch open.
    """

    def __init__(
        self,
        slices: SliceApi,
        *,
        on_change: Callable[[], None],
        on_broken: Callable[[], None],
        clock: Clock,
        backoff: Backoff,
        watch_s: float,
    ) -> None:
        self._slices = slices
        self._on_change = on_change
        self._on_broken = on_broken
        self._clock = clock
        self._backoff = backoff
        self._watch_s = watch_s
        self._changed = Condition()
        self._listed = ""
        self._closed = False
        self._watch: Watch | None = None
        self._judging = RLock()
        self._known: dict[str, str] = {}

    def writing(self) -> AbstractContextManager[object]:
        """Hold this while slices are written, and call `knows` before it ends.

        An event is judged only afterwards, so that none of our own writes looks like another's.
        """
        return self._judging

    def knows(self, versions: Mapping[str, str]) -> None:
        """Say which slices are there, by name, and in which resource version."""
        with self._judging:
            self._known = dict(versions)

    def listed(self, resource_version: str) -> None:
        """Follow changes after this list, unless a watch is open."""
        with self._changed:
            self._listed = resource_version
            self._changed.notify_all()

    def close(self) -> None:
        """End the watch and `run`."""
        with self._changed:
            self._closed = True
            if self._watch is not None:
                self._watch.close()
            self._changed.notify_all()

    def run(self, stop: Event) -> None:
        """Watch until `close`, or until a tick after `stop`."""
        while (version := self._next_list(stop)) is not None:
            try:
                self._follow(version, stop)
            except AdapterError as error:
                _LOG.info("The watch of ResourceSlices broke", error=str(error))
                # A list that came while the watch was open is older than what broke it.
                with self._changed:
                    self._listed = ""
                if not stop.wait(self._backoff.next_s()):
                    self._on_broken()

    def _next_list(self, stop: Event) -> str | None:
        with self._changed:
            while not (self._closed or stop.is_set()):
                if self._listed:
                    return self._listed
                self._changed.wait(_TICK_S)
        return None

    def _follow(self, version: str, stop: Event) -> None:
        while not (stop.is_set() or self._is_closed()):
            started_s = self._clock.monotonic_s()
            watch = self._slices.watch_slices(version, self._watch_s)
            if not self._open(watch):
                return
            for event in watch:
                version = _version(event) or version
                self._judge(event)
            lasted_s = self._clock.monotonic_s() - started_s
            if lasted_s < self._watch_s * _EARLY_END and not self._is_closed():
                raise AdapterError(f"the server ended it after {lasted_s:.1f} s")
            self._backoff.reset()

    def _open(self, watch: Watch) -> bool:
        with self._changed:
            self._watch = watch
            if self._closed:
                watch.close()
            return not self._closed

    def _is_closed(self) -> bool:
        with self._changed:
            return self._closed

    def _judge(self, event: Json) -> None:
        if event["type"] == "BOOKMARK":
            return
        name = str(event["object"]["metadata"]["name"])
        with self._judging:
            known = self._known.get(name)
            deleted = event["type"] == "DELETED"
            expected = known is None if deleted else known == _version(event)
        if not expected:
            self._on_change()


def _version(event: Json) -> str:
    return str(((event.get("object") or {}).get("metadata") or {}).get("resourceVersion") or "")
