"""A look at the driver's files serves a wave of claims, and no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_driver.adapters.recent_files import KEPT_S, RecentFiles
from dra_driver.errors import AdapterError
from dra_driver.model.cdi import DriverEdits
from dra_driver.model.device import Inventory
from tests.builders import gpu, inventory
from tests.fakes.clock import FakeClock

NODE = inventory(gpu(0))


class Files:
    def __init__(self) -> None:
        self.looks = 0
        self.fault = ""

    def edits(self, inventory: Inventory) -> DriverEdits:
        self.looks += 1
        if self.fault:
            raise AdapterError(self.fault)
        return DriverEdits()


def test_files_are_looked_up_once_within_a_second() -> None:
    files, clock = Files(), FakeClock()
    recent = RecentFiles(files, clock=clock)
    first = recent.edits(NODE)
    clock.advance(KEPT_S / 2)
    assert recent.edits(NODE) is first
    clock.advance(KEPT_S / 2)
    assert recent.edits(NODE) is not first
    assert files.looks == 2


def test_files_are_looked_up_again_for_another_inventory() -> None:
    files = Files()
    recent = RecentFiles(files, clock=FakeClock())
    recent.edits(NODE)
    recent.edits(replace(NODE))
    assert files.looks == 2


def test_failed_look_is_repeated_at_once() -> None:
    files = Files()
    files.fault = "no libcuda"
    recent = RecentFiles(files, clock=FakeClock())
    with pytest.raises(AdapterError, match="no libcuda"):
        recent.edits(NODE)
    files.fault = ""
    recent.edits(NODE)
    assert files.looks == 2
