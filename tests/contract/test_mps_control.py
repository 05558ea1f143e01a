"""Ports of MPS, alike on simulated daemons and on real ones, which need no GPU."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dra_driver.errors import AdapterError, MpsGone, MpsHung, MpsServerNotFound, MpsUnverified
from dra_driver.model.mps import MpsLimits
from dra_driver.model.share import Expose
from tests.builders import uuid
from tests.contract.mps_rig import BACKENDS, GPU, RealRig, SimulatedRig, make_rig
from tests.waiting import eventually

Rig = RealRig | SimulatedRig


@pytest.fixture(params=BACKENDS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    # Short, because paths of sockets have to be.
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    rig = make_rig(request.param, folder)
    try:
        yield rig
    finally:
        rig.close()
        shutil.rmtree(folder)


@pytest.fixture
def started(rig: Rig) -> Rig:
    rig.ports.daemons.start(GPU, multi_user=False)
    return rig


def _set(rig: Rig, percent: int, memory_mib: int | None, server: int | None = None) -> None:
    limits = MpsLimits(compute_percent=percent, memory_mib=memory_mib)
    rig.ports.control.set_limits(GPU, limits, server)


def test_daemon_has_no_limits_when_it_starts(started: Rig) -> None:
    assert started.ports.control.limits(GPU) == MpsLimits()


@pytest.mark.parametrize(
    ("memory_mib", "shown_mib"),
    [(2048, 2048), (700, 700), (1, 1), (1023, 1023), (6145, 6144), (81559, 80896)],
)
def test_limits_read_back_what_was_set_floored_to_whole_gib(
    started: Rig, memory_mib: int, shown_mib: int
) -> None:
    _set(started, 25, memory_mib)
    found = started.ports.control.limits(GPU)
    assert found == MpsLimits(compute_percent=25, memory_mib=shown_mib)


def test_limits_follow_each_other_up_and_down(started: Rig) -> None:
    for percent, memory_mib in ((50, 4096), (10, 1024), (100, 8192), (1, 3072)):
        _set(started, percent, memory_mib)
        found = started.ports.control.limits(GPU)
        assert found == MpsLimits(compute_percent=percent, memory_mib=memory_mib)


def test_limits_of_compute_alone_leave_memory_open(started: Rig) -> None:
    _set(started, 40, None)
    assert started.ports.control.limits(GPU) == MpsLimits(compute_percent=40)


def test_limit_of_memory_cannot_be_taken_away(started: Rig) -> None:
    _set(started, 40, 2048)
    with pytest.raises(MpsUnverified, match="no limit was set"):
        _set(started, 40, None)
    assert started.ports.control.limits(GPU).memory_mib == 2048


@pytest.mark.parametrize(("percent", "memory_mib"), [(0, 1024), (101, 1024), (50, 0), (50, -5)])
def test_limits_that_a_daemon_would_take_for_others_are_never_written(
    started: Rig, percent: int, memory_mib: int
) -> None:
    _set(started, 40, 2048)
    with pytest.raises(AdapterError) as caught:
        _set(started, percent, memory_mib)
    assert caught.value.permanent
    found = started.ports.control.limits(GPU)
    assert found == MpsLimits(compute_percent=40, memory_mib=2048)


def test_daemon_is_found_by_another_process_of_ours(started: Rig) -> None:
    _set(started, 40, 2048)
    again = started.again()
    assert again.daemons.find(GPU) == started.ports.daemons.find(GPU)
    assert again.daemons.find(uuid(1)) is None
    assert again.control.limits(GPU) == MpsLimits(compute_percent=40, memory_mib=2048)


def test_daemon_is_not_foreign_when_it_is_ours(started: Rig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    assert daemon.pid not in started.again().daemons.foreign(GPU)


def test_second_daemon_is_refused_while_one_runs(started: Rig) -> None:
    first = started.ports.daemons.find(GPU)
    with pytest.raises(AdapterError, match="runs already"):
        started.again().daemons.start(GPU, multi_user=False)
    assert started.ports.daemons.find(GPU) == first


def test_everything_says_gone_when_there_is_no_daemon(rig: Rig) -> None:
    ports = rig.ports
    assert ports.daemons.find(GPU) is None
    for ask in (
        lambda: ports.control.limits(GPU),
        lambda: _set(rig, 40, 2048),
        lambda: ports.servers.find(GPU),
        lambda: ports.servers.start(GPU, uid=0),
        lambda: ports.servers.clients(GPU, 1),
        lambda: ports.folders.expose(GPU, "a", Expose.CONTROL),
    ):
        with pytest.raises(MpsGone):
            ask()
    ports.control.quit(GPU, force_after_s=1)
    ports.daemons.kill(GPU)


def test_quit_ends_the_daemon(started: Rig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    started.ports.control.quit(GPU, force_after_s=1)
    assert started.ports.daemons.wait({GPU: daemon}, 60) == (GPU,)
    assert started.ports.daemons.find(GPU) is None
    with pytest.raises(MpsGone):
        started.ports.control.limits(GPU)


def test_daemon_starts_with_defaults_over_the_sockets_of_one_that_died(started: Rig) -> None:
    _set(started, 40, 2048)
    first = started.ports.daemons.find(GPU)
    assert first is not None
    started.die()
    assert started.ports.daemons.wait({GPU: first}, 60) == (GPU,)
    assert (started.ports.folders.pipe(GPU) / "control").is_socket()
    with pytest.raises(MpsGone):
        started.ports.control.limits(GPU)
    second = started.ports.daemons.start(GPU, multi_user=False)
    assert second != first
    assert started.ports.control.limits(GPU) == MpsLimits()


def test_wait_gives_nothing_when_none_ends(started: Rig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    assert started.ports.daemons.wait({GPU: daemon}, 0.01) == ()
    assert started.ports.daemons.wait({}, 0.01) == ()


def test_wait_names_a_daemon_that_ended_before(started: Rig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    started.ports.daemons.kill(GPU)
    assert started.again().daemons.wait({GPU: daemon}, 60) == (GPU,)


def test_kill_leaves_no_socket(started: Rig) -> None:
    started.ports.daemons.kill(GPU)
    assert started.ports.daemons.find(GPU) is None
    assert list(started.ports.folders.pipe(GPU).iterdir()) == []
    with pytest.raises(MpsGone):
        started.ports.folders.expose(GPU, "a", Expose.CONTROL)


def test_hung_daemon_is_given_up_and_nothing_is_left_that_waits_for_it(started: Rig) -> None:
    before = len(psutil.Process().children(recursive=True))
    with started.hung():
        with pytest.raises(MpsHung):
            started.ports.control.limits(GPU)
        with pytest.raises(MpsHung):
            _set(started, 40, 2048)
        assert len(psutil.Process().children(recursive=True)) == before
    assert started.ports.control.limits(GPU) == MpsLimits()


def test_server_that_is_not_there_is_named_and_the_defaults_are_set(started: Rig) -> None:
    with pytest.raises(MpsServerNotFound, match="Server 1 not found"):
        _set(started, 40, 2048, server=1)
    assert started.ports.control.limits(GPU) == MpsLimits(compute_percent=40, memory_mib=2048)
    servers = started.ports.servers
    assert servers.find(GPU) is None
    for ask in (
        lambda: servers.clients(GPU, 1),
        lambda: servers.terminate(GPU, 1, os.getpid()),
        lambda: servers.stop(GPU, 1, force=True),
    ):
        with pytest.raises(MpsServerNotFound):
            ask()


def test_server_that_ends_at_once_is_not_found(started: Rig) -> None:
    if isinstance(started, SimulatedRig):
        started.fault("mps.server", "NO_DATA")
    started.ports.servers.start(GPU, uid=0)
    eventually(lambda: started.ports.servers.find(GPU) is None, 60, "no server without a GPU")


def test_share_leads_to_the_daemon_until_that_is_started_anew(started: Rig) -> None:
    folders = started.ports.folders
    folders.expose(GPU, "a", Expose.CONTROL)
    folders.expose(GPU, "a", Expose.CONTROL)
    assert folders.exposed(GPU) == folders.known() == {"a"}
    assert [each.name for each in (started.run_dir / "shares/a").iterdir()] == ["control"]
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    started.die()
    assert started.ports.daemons.wait({GPU: daemon}, 60) == (GPU,)
    started.ports.daemons.start(GPU, multi_user=False)
    assert folders.exposed(GPU) == frozenset()
    assert folders.known() == {"a"}
    folders.expose(GPU, "a", Expose.CONTROL)
    assert folders.exposed(GPU) == {"a"}
    folders.hide("a")
    folders.hide("a")
    assert folders.known() == folders.exposed(GPU) == frozenset()
