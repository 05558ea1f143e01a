"""`gpuslice mpsd` as a process, with simulated GPUs; the plugin's client calls it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

import pytest

from dra_driver.adapters.mpsd_client import MpsdClient
from dra_driver.errors import AdapterError, ClaimError
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.model.share import GpuShare
from tests.builders import uuid
from tests.component.node_rig import _environment, simulation
from tests.waiting import eventually
from tests.wire.mpsd import client, share, soon


class _Node:
    """Attributes: pipe: the folder of sockets of its first GPU's daemon."""

    def __init__(self, root: Path, document: str) -> None:
        self.run = root / "run"
        self.file = root / "node.yaml"
        self.file.write_text(document)
        self.log = root / "mpsd.log"
        self.daemon = self.run / f"simulated/mps/{uuid(0)}.daemon.json"
        self.exposed = self.run / "shares/a/control"

    @contextmanager
    def mpsd(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        arguments = ["--simulate", str(self.file), "--run-dir", str(self.run), *flags]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dra_driver", "mpsd", *arguments],
                stderr=log,
                env=_environment(),
            )
        try:
            yield process
        except BaseException:
            print(self.log.read_text())
            raise
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def client(self) -> Iterator[MpsdClient]:
        with client(self.run / "mpsd.sock", ready_s=30.0) as calls:
            yield calls

    def daemon_pid(self) -> int:
        return int(json.loads(self.daemon.read_text())["pid"])


@pytest.fixture
def node(root: Path) -> _Node:
    return _Node(root, simulation(1))


def _state(calls: MpsdClient) -> GpuSharing | None:
    """What is told of the first GPU; None while nobody tells."""
    watch = calls.watch()
    try:
        return next(state for state in next(iter(watch)) if state.gpu == uuid(0))
    except (AdapterError, StopIteration):
        return None
    finally:
        watch.close()


def _message(calls: MpsdClient) -> str:
    state = _state(calls)
    return state.message if state is not None else ""


def _phase(calls: MpsdClient) -> MpsPhase | None:
    state = _state(calls)
    return state.phase if state is not None else None


def test_shares_hold_when_mpsd_is_killed_and_starts_again(node: _Node) -> None:
    with node.client() as calls:
        with node.mpsd() as first:
            calls.apply(uuid(0), (share("a"),), soon())
            pid = node.daemon_pid()
            assert node.exposed.is_socket()
            first.kill()
        with node.mpsd():
            eventually(lambda: _phase(calls) is MpsPhase.ACTIVE, 30, "the share is held again")
            state = _state(calls)
            assert state is not None
            assert (state.shares, state.restarts, state.simulated) == (("a",), 0, True)
            assert state.daemon_pid == node.daemon_pid() == pid
            assert node.exposed.is_socket()


def test_mpsd_ends_when_its_first_look_at_gpus_hangs(root: Path) -> None:
    node = _Node(root, simulation(1) + "faults:\n- {call: enumerate, delay: 600s}\n")
    with node.mpsd() as process:
        eventually((node.run / "mpsd.lock").exists, 30, "mpsd is at its start")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "Traceback" not in node.log.read_text()


def test_daemon_goes_on_when_mpsd_starts_without_the_record_of_its_shares(node: _Node) -> None:
    with node.client() as calls:
        with node.mpsd() as first:
            calls.apply(uuid(0), (share("a"),), soon())
            pid, link = node.daemon_pid(), node.exposed.parent.stat().st_ino
            first.kill()
            first.wait()
        (node.run / f"mpsd/{uuid(0)}.json").unlink()
        with node.mpsd():
            eventually(lambda: "record" in _message(calls), 30, "the daemon is seen")
            calls.apply(uuid(0), (share("a"),), soon())
            state = _state(calls)
            assert state is not None
            assert (state.shares, state.daemon_pid) == (("a",), pid)
            assert node.daemon_pid() == pid
            assert node.exposed.parent.stat().st_ino == link


def test_mpsd_ends_to_start_anew_when_its_socket_is_removed(node: _Node) -> None:
    with node.mpsd() as process, node.client() as calls:
        calls.apply(uuid(0), (share("a"),), soon())
        (node.run / "mpsd.sock").unlink()
        assert process.wait(60) == 1
    assert f"the socket {node.run}/mpsd.sock was removed" in node.log.read_text()
    assert node.daemon.exists()
    assert node.exposed.is_socket()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_daemons_with_shares_go_on_when_mpsd_is_asked_to_end(
    node: _Node, number: signal.Signals
) -> None:
    with node.mpsd() as process, node.client() as calls:
        calls.apply(uuid(0), (share("a"),), soon())
        process.send_signal(number)
        assert process.wait(30) == 0
    assert node.daemon.exists()
    assert node.exposed.is_socket()
    assert not (node.run / "mpsd.sock").exists()


def test_daemon_ends_when_its_last_share_leaves(node: _Node) -> None:
    with node.mpsd(), node.client() as calls:
        calls.apply(uuid(0), (share("a"),), soon())
        calls.apply(uuid(0), (), soon())
        assert _phase(calls) is MpsPhase.FREE
        assert not node.daemon.exists()
        assert not node.exposed.exists()


@pytest.mark.parametrize(
    "document",
    [
        simulation(0),
        simulation(1)
        + "faults:\n- {call: enumerate, error: DRIVER_NOT_LOADED}\n"
        + "- {call: setComputeMode, error: DRIVER_NOT_LOADED}\n",
    ],
)
def test_last_share_leaves_when_its_gpu_cannot_be_reached(node: _Node, document: str) -> None:
    with node.mpsd(), node.client() as calls:
        calls.apply(uuid(0), (share("a"),), soon())
        node.file.write_text(document)
        eventually(lambda: _takes(calls, ()), 30, "the share leaves")
        assert not node.daemon.exists()
        assert not node.exposed.exists()
        node.file.write_text(simulation(1))
        mode = node.run / f"simulated/compute-modes/{uuid(0)}.json"
        eventually(lambda: not mode.exists(), 30, "the compute mode is restored")


def _takes(calls: MpsdClient, shares: tuple[GpuShare, ...]) -> bool:
    try:
        calls.apply(uuid(0), shares, soon())
    except (AdapterError, ClaimError):
        return False
    return True


def test_daemon_is_started_anew_when_it_dies_and_that_is_told(node: _Node) -> None:
    with node.mpsd(), node.client() as calls:
        calls.apply(uuid(0), (share("a"),), soon())
        node.daemon.unlink()
        eventually(lambda: _restarts(calls) == 1, 30, "the daemon runs again")
        eventually(lambda: _phase(calls) is MpsPhase.ACTIVE, 30, "its share is held again")


def _restarts(calls: MpsdClient) -> int | None:
    state = _state(calls)
    return state.restarts if state is not None else None


def test_second_mpsd_ends_and_leaves_the_first_alone(node: _Node) -> None:
    with node.mpsd() as first, node.client() as calls:
        calls.apply(uuid(0), (share("a"),), soon())
        with node.mpsd() as second:
            assert second.wait(30) == 1
        with node.mpsd("--mpsd-socket", str(node.run / "other.sock")) as third:
            assert third.wait(30) == 1
        assert f"(pid {first.pid}) holds {node.run}/mpsd.lock" in node.log.read_text()
        assert first.poll() is None
        assert _phase(calls) is MpsPhase.ACTIVE


def test_mpsd_waits_for_the_driver_and_says_so(root: Path) -> None:
    node = _Node(root, simulation(1) + "faults:\n- {call: enumerate, error: DRIVER_NOT_LOADED}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    with node.mpsd("--http-endpoint", endpoint), node.client() as calls:
        text = eventually(lambda: _page(endpoint, "readyz"), 30, "readiness is told")
        assert "gpus: ok" not in text
        assert _page(endpoint, "healthz") == "loops: ok\nsocket: ok\n"
        node.file.write_text(simulation(1))
        eventually(lambda: "gpus: ok" in _page(endpoint, "readyz"), 30, "the driver is found")
        calls.apply(uuid(0), (share("a"),), soon())
        assert "gpuslice_mps_start_seconds_count" in _page(endpoint, "metrics")


def _page(endpoint: str, name: str) -> str:
    """Of whatever status; empty while nobody answers."""
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(f"http://{endpoint}/{name}", timeout=10) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        with error:
            return error.read().decode()
    except URLError:
        return ""


def test_mpsd_ends_with_2_when_its_socket_cannot_be(node: _Node) -> None:
    with node.mpsd("--mpsd-socket", f"/{'r' * 120}/mpsd.sock") as process:
        assert process.wait(30) == 2
    assert "--mpsd-socket is too long" in node.log.read_text()
    assert not node.run.exists()
