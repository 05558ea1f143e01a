"""A node that is time-sliced by now, and what mpsd left there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dra_driver.app.gpus import open_gpus
from dra_driver.app.hardware import open_hardware
from dra_driver.errors import AdapterError
from dra_driver.settings import Settings, SharingMode
from tests.builders import uuid
from tests.component.node_rig import simulation
from tests.fakes.sharing import FakeSharing
from tests.wire.mpsd import serving, share, soon


@pytest.fixture
def settings(root: Path) -> Settings:
    file = root / "node.yaml"
    file.write_text(simulation(1))
    return Settings(
        simulate=str(file),
        run_dir=root,
        node_name="node-a",
        sharing=SharingMode.TIME_SLICING,
    )


def test_shares_under_mps_wait_for_nobody_when_a_dead_socket_is_left(settings: Settings) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(settings.run_dir / "mpsd.sock"))
    with (
        open_gpus(settings) as gpus,
        open_hardware(settings, gpus) as hardware,
        pytest.raises(AdapterError, match="this node runs with --sharing time-slicing"),
    ):
        hardware.sharing.supervisor.apply(uuid(0), (share("a"),), soon())


def test_shares_under_mps_are_told_who_still_supervises_them(settings: Settings) -> None:
    sharing = FakeSharing(uuid(0))
    with (
        serving(settings.run_dir / "mpsd.sock", sharing),
        open_gpus(settings) as gpus,
        open_hardware(settings, gpus) as hardware,
    ):
        hardware.sharing.supervisor.apply(uuid(0), (share("a"),), soon())
    assert sharing.applied == [(uuid(0), (share("a"),))]
