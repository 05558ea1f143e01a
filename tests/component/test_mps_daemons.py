"""What real MPS control daemons do that simulated ones do not."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.adapters.mps_control import ControlProgram
from dra_driver.adapters.mps_replies import MpsUnknownCommand
from dra_driver.errors import AdapterError, MpsDenied
from dra_driver.model.mps import MpsLimits
from dra_driver.model.share import Expose
from tests.builders import uuid
from tests.contract.mps_rig import GPU, Ports, RealRig
from tests.kube.build import MPS_VERSIONS

pytestmark = pytest.mark.mps
OLD = MPS_VERSIONS[0]
LIMITS = MpsLimits(compute_percent=77, memory_mib=3072)


@pytest.fixture(params=MPS_VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rig(version: str) -> Iterator[RealRig]:
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    folder.chmod(0o755)
    rig = RealRig(folder, version)
    try:
        yield rig
    finally:
        rig.close()
        shutil.rmtree(folder)


@pytest.fixture
def started(rig: RealRig) -> RealRig:
    before = os.umask(0o077)
    rig.ports.daemons.start(GPU, multi_user=False)
    os.umask(before)
    return rig


def _through_share(rig: RealRig) -> Ports:
    """What root in a container of a share has: the program, and a folder with `control` alone."""
    rig.ports.folders.expose(GPU, "a", Expose.CONTROL)
    inside = rig.run_dir.parent / "inside"
    pipe = inside / f"mps/{GPU}/pipe"
    pipe.parent.mkdir(parents=True)
    pipe.symlink_to(rig.run_dir / "shares/a")
    return rig.ports_of(rig.programs(), run_dir=inside)


def test_share_sees_limits_but_cannot_change_them_since_550(started: RealRig, version: str) -> None:
    inside = _through_share(started)
    assert inside.control.limits(GPU) == MpsLimits()
    if version == OLD:
        inside.control.set_limits(GPU, LIMITS, None)
        assert started.ports.control.limits(GPU) == LIMITS
        return
    with pytest.raises(MpsDenied, match="Insufficient privileges"):
        inside.control.set_limits(GPU, LIMITS, None)
    assert started.ports.control.limits(GPU) == MpsLimits()


def test_share_cannot_end_the_daemon(started: RealRig) -> None:
    with pytest.raises(MpsDenied, match="quit"):
        _through_share(started).control.quit(GPU, force_after_s=1)
    assert started.ports.daemons.find(GPU) is not None


@pytest.mark.root
def test_another_user_is_let_in_by_535_only(started: RealRig, version: str) -> None:
    script = started.run_dir.parent / "as-nobody"
    binary = shutil.copy(started.programs().control(), started.run_dir.parent)
    setpriv = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    script.write_text(f"#!/bin/sh\nexec {setpriv} {binary}\n")
    script.chmod(0o755)
    other = started.ports_of(started.programs(control_path=script)).control
    assert other.limits(GPU) == MpsLimits()
    if version == OLD:
        other.set_limits(GPU, LIMITS, None)
        assert started.ports.control.limits(GPU) == LIMITS
    else:
        with pytest.raises(MpsDenied, match="UID 65534"):
            other.set_limits(GPU, LIMITS, None)
        assert started.ports.control.limits(GPU) == MpsLimits()


def test_folders_and_socket_are_open_to_all_whatever_the_umask(started: RealRig) -> None:
    path = started.ports.folders.pipe(GPU)
    assert stat.S_IMODE((path / "control").stat().st_mode) & 0o666 == 0o666
    while path != started.run_dir.parent:
        assert stat.S_IMODE(path.stat().st_mode) == 0o755, path
        path = path.parent


def test_daemon_has_a_session_and_nothing_of_our_environment(started: RealRig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    assert os.getsid(daemon.pid) == daemon.pid
    entries = Path(f"/proc/{daemon.pid}/environ").read_text().rstrip("\0").split("\0")
    found = dict(each.split("=", 1) for each in entries)
    assert found.pop("PATH").startswith(str(started.driver_root / "usr/bin"))
    assert found == {
        "CUDA_VISIBLE_DEVICES": GPU,
        "CUDA_MPS_PIPE_DIRECTORY": str(started.ports.folders.pipe(GPU)),
        "CUDA_MPS_LOG_DIRECTORY": str(started.ports.folders.pipe(GPU).parent / "log"),
        "LANG": "C",
    }
    assert Path(f"/proc/{daemon.pid}/fd/0").readlink() == Path("/dev/null")


def test_daemon_outlives_its_starter(rig: RealRig) -> None:
    code = (
        "from pathlib import Path\n"
        "from tests.contract.mps_rig import GPU, RealRig\n"
        f"rig = RealRig(Path({str(rig.run_dir.parent)!r}), {rig.driver_root.name!r})\n"
        "print(rig.ports.daemons.start(GPU, multi_user=False).pid)\n"
        "rig.ports.control.limits(GPU)\n"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = rig.ports.daemons.find(GPU)
    assert found is not None
    assert found.pid == int(done.stdout)
    rig.ports.control.set_limits(GPU, LIMITS, None)
    rig.ports.control.quit(GPU, force_after_s=1)
    assert rig.ports.daemons.wait({GPU: found}, 60) == (GPU,)


def test_hung_daemon_is_killed(started: RealRig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    with started.hung():
        started.ports.daemons.kill(GPU)
        assert not Path(f"/proc/{daemon.pid}").exists()
        started.ports.daemons.start(GPU, multi_user=False)
    assert started.ports.control.limits(GPU) == MpsLimits()


def test_server_that_outlived_its_daemon_is_ended_before_the_next_starts(rig: RealRig) -> None:
    program = rig.run_dir.parent / "nvidia-cuda-mps-server"
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, program)
    servers = [
        subprocess.Popen([program, "600"], env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe)})
        for pipe in (rig.ports.folders.pipe(GPU), rig.ports.folders.pipe(uuid(1)))
    ]
    try:
        rig.ports.daemons.start(GPU, multi_user=False)
        assert [each.poll() for each in servers] == [-signal.SIGKILL, None]
    finally:
        for each in servers:
            each.kill()
            each.wait()


def test_daemon_that_serves_one_user_refuses_several(rig: RealRig) -> None:
    with pytest.raises(AdapterError, match=r"ended \(status 1\)"):
        rig.ports.daemons.start(GPU, multi_user=True)
    assert rig.ports.daemons.find(GPU) is None


def test_unknown_command_is_told(started: RealRig) -> None:
    program = ControlProgram(started.programs(), run_dir=started.run_dir)
    with pytest.raises(MpsUnknownCommand, match='"foo"'):
        program.ask(GPU, ("foo",))


def test_daemon_of_another_run_folder_is_foreign_where_it_has_the_gpu(started: RealRig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    other = started.ports_of(started.programs(), run_dir=started.run_dir / "other").daemons
    assert daemon.pid in other.foreign(GPU)
    assert daemon.pid not in other.foreign(uuid(1))
    assert other.find(GPU) is None


def test_log_is_cut_when_it_is_long_and_written_on(started: RealRig) -> None:
    daemon = started.ports.daemons.find(GPU)
    assert daemon is not None
    log = started.ports.folders.pipe(GPU).parent / "log/control.log"
    os.truncate(log, 5 << 20)
    started.ports.daemons.wait({GPU: daemon}, 0.0)
    assert log.stat().st_size == 0
    started.ports.control.limits(GPU)
    assert b"\0" not in log.read_bytes()
    assert log.stat().st_size > 0


def test_run_folder_that_is_too_long_for_sockets_is_refused(version: str, tmp_path: Path) -> None:
    rig = RealRig(tmp_path / ("x" * 60), version)
    with pytest.raises(AdapterError, match=r"--run-dir .* is too long") as caught:
        rig.ports.daemons.start(GPU, multi_user=False)
    assert caught.value.permanent
    assert not rig.run_dir.exists()
