"""A container of mpsd with real MPS daemons; their servers, which need GPUs, are simulated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from dra_driver.adapters.mpsd_client import MpsdClient
from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.model.share import GpuShare
from tests import native_programs
from tests.builders import uuid
from tests.component.node_rig import _environment, simulation
from tests.kube.build import mps_driver_root
from tests.waiting import eventually
from tests.wire.mpsd import client, share, soon

VERSION = "550.163.01"
GPU = GpuUuid(f"GPU-{uuid4()}")
"""Its own: daemons of other tests on this machine must not be in the way."""

pytestmark = pytest.mark.mps


class _Container:
    """Processes of a container of mpsd. Attributes: run: its run folder."""

    def __init__(self, root: Path) -> None:
        self.run = root / "run"
        self._file = root / "node.yaml"
        self._file.write_text(simulation(1).replace("570.133.20", VERSION).replace(uuid(0), GPU))
        self._log = root / "mpsd.log"
        self._init = native_programs.build(root / "native")["gpuslice-init"]
        self._control = mps_driver_root(VERSION) / "usr/bin/nvidia-cuda-mps-control"

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        flags = {
            "simulate": self._file,
            "run-dir": self.run,
            "mps-control-path": self._control,
            "mps-single-uid": 0,
        }
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [self._init, sys.executable, "-m", "dra_driver", "mpsd", *arguments],
                stderr=log,
                env=_environment(),
            )
        try:
            yield process
        except BaseException:
            print(self._log.read_text())
            raise
        finally:
            process.terminate()
            process.wait(60)

    @contextmanager
    def client(self) -> Iterator[MpsdClient]:
        with client(self.run / "mpsd.sock", ready_s=30.0) as calls:
            yield calls

    def supervisor_pid(self) -> int:
        return int((self.run / "mpsd.lock").read_text())


@pytest.fixture
def container(root: Path) -> _Container:
    return _Container(root)


def test_daemon_of_shares_outlives_its_supervisor(container: _Container) -> None:
    daemon = 0
    try:
        with container.client() as calls:
            with container.started() as init:
                calls.apply(GPU, _shares("a"), soon(60))
                daemon = _state(calls).daemon_pid or 0
                killed = container.supervisor_pid()
                assert _parent(daemon) == killed
                os.kill(killed, signal.SIGKILL)
                calls.apply(GPU, _shares("a", "b"), soon(60))
                assert container.supervisor_pid() != killed
                state = _state(calls)
                assert (state.phase, state.shares) == (MpsPhase.ACTIVE, ("a", "b"))
                assert (state.daemon_pid, state.restarts) == (daemon, 0)
                assert _parent(daemon) == init.pid
                init.terminate()
                assert init.wait(60) == 0
            # Here no runtime kills the rest of the container.
            assert _parent(daemon) is not None
            with container.started():
                eventually(lambda: _found(calls, daemon), 60, "the daemon is found again")
                calls.apply(GPU, (), soon(60))
                eventually(lambda: _parent(daemon) is None, 60, "the daemon ends with its shares")
    finally:
        if daemon:
            with suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)


def _shares(*names: str) -> tuple[GpuShare, ...]:
    return tuple(share(name, gpu=GPU) for name in names)


def _state(calls: MpsdClient) -> GpuSharing:
    watch = calls.watch()
    try:
        (state,) = next(iter(watch))
        return state
    finally:
        watch.close()


def _found(calls: MpsdClient, daemon: int) -> bool:
    try:
        return _state(calls).daemon_pid == daemon
    except AdapterError:
        return False


def _parent(pid: int) -> int | None:
    """None where it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        if fields["State"].split()[0] != "Z":
            return int(fields["PPid"])
    return None
