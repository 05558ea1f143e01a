"""What the kernel's files say of a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from dra_driver.adapters.process_owners import ProcOwners
from dra_driver.errors import AdapterError
from dra_driver.model.owner import ProcessOwner
from tests.builders import claim_uid
from tests.fakes.proc import FakeProc, mountinfo

POD, CONTAINER = claim_uid(77), "ab" * 32
CGROUP = f"0::/kubepods/burstable/pod{POD}/{CONTAINER}"
SHARE = f"{claim_uid(1)}-0"
MOUNT = f"0:21 /gpuslice/shares/{SHARE} /run/gpuslice/mps"
RUN = "/run/gpuslice"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def owners(proc: FakeProc) -> ProcOwners:
    return ProcOwners(proc=proc.path, run_dir=RUN)


def test_owner_is_what_cgroup_and_mounts_say(proc: FakeProc, owners: ProcOwners) -> None:
    marker = f"0:21 /gpuslice/claims/{claim_uid(1)} /run/gpuslice/claim"
    later = f"0:21 /gpuslice/shares/{claim_uid(0)}-1 /elsewhere"
    proc.add(7, started=1234, parent=6, cgroup=CGROUP, mounts=("0:5 / /dev", MOUNT, marker, later))

    assert owners.owner(7) == ProcessOwner(
        pid=7,
        started=1234,
        parent=6,
        pod_uid=POD,
        container_id=CONTAINER,
        shares=(f"{claim_uid(0)}-1", SHARE),
        claims=(claim_uid(1),),
    )


@pytest.mark.parametrize(
    "mount",
    [
        f"0:22 /gpuslice/shares/{SHARE} /run/gpuslice/mps",
        f"0:21 /other/shares/{SHARE} /run/gpuslice/mps",
        f"0:21 /tenant /run/gpuslice/shares/{SHARE}",
        f"0:21 /gpuslice/shares/{SHARE}/below /run/gpuslice/mps",
        f"0:21 /gpuslice/shares/{SHARE}//deleted /run/gpuslice/mps",
        f"0:21 /gpuslice/sharesx/{SHARE} /run/gpuslice/mps",
        "0:21 /gpuslice/shares /run/gpuslice/mps",
        "0:21 /gpuslice/shares/.. /run/gpuslice/mps",
        "0:21 /gpuslice /run/gpuslice",
    ],
)
def test_owner_has_no_share_when_the_mount_is_another(
    proc: FakeProc, owners: ProcOwners, mount: str
) -> None:
    proc.add(7, cgroup=CGROUP, mounts=(mount,))

    owner = owners.owner(7)

    assert owner is not None
    assert (owner.shares, owner.claims) == ((), ())


@pytest.mark.parametrize(
    ("own", "run_dir", "device", "root"),
    [
        ("1 0 8:1 / / rw - ext4 a rw\n", "/srv/state/run", "8:1", "/srv/state/run"),
        (
            "1 0 0:9 / / rw - overlay a rw\n2 1 0:21 /gpuslice /run/gpuslice rw - tmpfs t rw\n",
            "/run/gpuslice",
            "0:21",
            "/gpuslice",
        ),
        (
            "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /srv rw - xfs b rw\n3 1 8:3 /x /srv rw - xfs c rw\n",
            "/srv/run",
            "8:3",
            "/x/run",
        ),
        (
            "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /srv/ru rw - xfs b rw\n",
            "/srv/run",
            "8:1",
            "/srv/run",
        ),
        (
            "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 /a\\040b /srv/a\\040b rw - xfs b rw\n",
            "/srv/a b/run",
            "8:2",
            "/a\\040b/run",
        ),
    ],
)
def test_owner_finds_the_run_folder_on_whatever_file_system_it_is(
    tmp_path: Path, own: str, run_dir: str, device: str, root: str
) -> None:
    proc = FakeProc(tmp_path / "proc", own=own)
    proc.add(7, mounts=(f"{device} {root}/shares/{SHARE} /run/gpuslice/mps",))

    owner = ProcOwners(proc=proc.path, run_dir=run_dir).owner(7)

    assert owner is not None
    assert owner.shares == (SHARE,)


def test_owner_fails_when_the_run_folder_is_nowhere(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc", own="1 0 8:2 / /srv rw - xfs b rw\n")
    proc.add(7)

    with pytest.raises(AdapterError, match="--run-dir"):
        ProcOwners(proc=proc.path, run_dir=RUN).owner(7)


def test_owner_is_none_when_the_process_has_ended(proc: FakeProc, owners: ProcOwners) -> None:
    proc.add(8, cgroup=CGROUP, state="Z")
    proc.add(9, cgroup=CGROUP)
    (proc.path / "9/mountinfo").unlink()

    assert (owners.owner(7), owners.owner(8), owners.owner(9)) == (None, None, None)


def test_owner_is_told_of_another_thread_when_the_first_has_ended(
    proc: FakeProc, owners: ProcOwners
) -> None:
    proc.add(8, started=31, state="Z")
    (proc.path / "8/mountinfo").unlink()
    proc.add_thread(8, 8, cgroup="0::/", mounts=(), state="Z")
    proc.add_thread(8, 12, cgroup=CGROUP, mounts=(MOUNT,))

    owner = owners.owner(8)

    assert owner is not None
    assert (owner.started, owner.pod_uid, owner.shares) == (31, POD, (SHARE,))


@pytest.mark.parametrize("name", ["a b", "x) S 1 2 (", "é\udc80", "", ")" * 15])
def test_owner_reads_the_start_time_behind_any_name(
    proc: FakeProc, owners: ProcOwners, name: str
) -> None:
    proc.add(7, started=42)
    stat = proc.path / "7/stat"
    stat.write_bytes(stat.read_bytes().replace(b"python3", name.encode(errors="surrogateescape")))

    owner = owners.owner(7)

    assert owner is not None
    assert owner.started == 42


@pytest.mark.parametrize("text", ["", "7 (x) S 1 2", "7 (x) S " + "a " * 30])
def test_owner_fails_when_stat_is_no_stat(proc: FakeProc, owners: ProcOwners, text: str) -> None:
    proc.add(7)
    (proc.path / "7/stat").write_text(text)

    with pytest.raises(AdapterError, match="7/stat"):
        owners.owner(7)


def reuse_pid(proc: FakeProc, times: int) -> None:
    """Make pid 7 another process's so many times, each while the mounts of the last are read."""
    path = proc.path / "7/mountinfo"
    for number in range(times):
        with path.open("w") as writer:  # a pipe: opens when it is read
            path.unlink()
            proc.add(7, started=900 + number, cgroup="0::/system.slice/x.service")
            if number + 1 < times:
                path.unlink()
                os.mkfifo(path)
            writer.write(mountinfo(MOUNT))


@pytest.mark.parametrize(("times", "started"), [(1, 900), (2, 901), (3, None)])
def test_owner_never_mixes_two_processes_of_one_pid(
    proc: FakeProc, owners: ProcOwners, times: int, started: int | None
) -> None:
    proc.add(7, started=1, cgroup=CGROUP)
    (proc.path / "7/mountinfo").unlink()
    os.mkfifo(proc.path / "7/mountinfo")
    other = Thread(target=reuse_pid, args=(proc, times), name="other", daemon=True)
    other.start()

    owner = owners.owner(7)

    other.join(30)
    assert (owner.started if owner is not None else None) == started
    assert owner is None or (owner.pod_uid, owner.shares) == (None, ())


def test_owner_reads_mounts_once_when_they_are_final(proc: FakeProc, owners: ProcOwners) -> None:
    proc.add(7, cgroup=CGROUP, mounts=(MOUNT,))
    proc.add(8, cgroup=CGROUP.replace("ab", "cd"))
    first = owners.owner(7)
    owners.owner(8)
    for pid in (7, 8):
        (proc.path / f"{pid}/mountinfo").write_text(mountinfo(MOUNT.replace("-0 ", "-5 ")))

    assert owners.owner(7) == first
    late = owners.owner(8)
    assert late is not None
    assert late.shares == (f"{claim_uid(1)}-5",)
    proc.add(7, started=501)
    reused = owners.owner(7)
    assert reused is not None
    assert reused.shares == ()


def test_owner_remembers_a_bounded_number_and_stays_right(
    proc: FakeProc, owners: ProcOwners
) -> None:
    proc.add(7, started=123456, cgroup=CGROUP, mounts=(MOUNT,))
    stat = proc.path / "7/stat"
    text = stat.read_text()
    for started in range(1100):
        stat.write_text(text.replace("123456", str(started)))
        owner = owners.owner(7)
        assert owner is not None
        assert owner.started == started
    proc.add(7, started=0, cgroup=CGROUP, mounts=(MOUNT.replace("-0 ", "-5 "),))
    first = owners.owner(7)
    assert first is not None
    assert first.shares == (f"{claim_uid(1)}-5",)


def test_owner_of_this_process_is_what_the_kernel_says(tmp_path: Path) -> None:
    owner = ProcOwners(proc=Path("/proc"), run_dir=str(tmp_path)).owner(os.getpid())

    assert owner is not None
    assert owner.started == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert (owner.shares, owner.claims) == ((), ())


@pytest.fixture
def tenant(tmp_path: Path) -> Iterator[int]:
    """A process with a share's folder mounted where containers have it."""
    folder = tmp_path / f"run/shares/{SHARE}"
    folder.mkdir(parents=True)
    point = tmp_path / "point"
    point.mkdir()
    script = 'mount --bind "$1" "$2" && echo ready && exec cat'
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", folder, point],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate()


@pytest.mark.root
def test_owner_of_a_real_process_has_the_share_that_is_mounted(tenant: int, tmp_path: Path) -> None:
    owner = ProcOwners(proc=Path("/proc"), run_dir=str(tmp_path / "run")).owner(tenant)

    assert owner is not None
    assert owner.shares == (SHARE,)
