from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dra_driver.loops.slice_sync import SliceSync, Stopped
from tests import builders
from tests.fakes.recorder import FakeRecorder
from tests.unit.publishing import DEFAULT_37, pool_of


class _Nobody:
    """An observer that does not mind."""

    def writing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def knows(self, versions: dict[str, str]) -> None: ...

    def listed(self, resource_version: str) -> None: ...


class _Slices:
    """Of a server that has none; the process is asked to stop while they are listed."""

    def __init__(self, stop: Event) -> None:
        self.created: list[Any] = []
        self._stop = stop

    def list_slices(self) -> tuple[tuple[Any, ...], str]:
        self._stop.set()
        return (), "1"

    def create_slice(self, body: Any) -> Any:
        self.created.append(body)
        return {**body, "metadata": {**body["metadata"], "name": "a", "resourceVersion": "2"}}


def test_sync_writes_nothing_when_a_stop_comes_in_the_middle() -> None:
    stop = Event()
    slices = _Slices(stop)
    sync = SliceSync(
        slices=cast("Any", slices),
        probe=cast("Any", SimpleNamespace(node_uid=lambda: "uid")),
        capabilities=cast("Any", SimpleNamespace(current=lambda: DEFAULT_37)),
        build=lambda inventory, _: pool_of(inventory),
        observer=_Nobody(),
        recorder=FakeRecorder(),
        node=builders.NODE,
    )
    with pytest.raises(Stopped):
        sync.run(builders.inventory(builders.gpu(0)), believed=None, stop=stop)
    assert slices.created == []
