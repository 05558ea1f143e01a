"""What a process belongs to by the rest of its container, and by where the run folder is."""

from __future__ import annotations

import pytest

from dra_driver.adapters.process_owners import ProcOwners
from tests.fakes.proc import FakeProc
from tests.unit.test_process_owners import CGROUP, MOUNT, RUN, SHARE, owners, proc

__all__ = ["owners", "proc"]


def test_owner_that_shows_no_mounts_has_those_of_its_container(
    proc: FakeProc, owners: ProcOwners
) -> None:
    proc.add(3, cgroup=CGROUP.replace("ab", "cd"), mounts=(MOUNT.replace("-0 ", "-5 "),))
    proc.add(5, cgroup=CGROUP, state="Z", mounts=(MOUNT.replace("-0 ", "-6 "),))
    proc.add(6, cgroup=CGROUP, mounts=(MOUNT,))
    proc.add(7, cgroup=CGROUP)
    (proc.path / "8").mkdir()  # ended between
    (proc.path / "sys").mkdir()

    hidden = owners.owner(7)
    proc.add(6)

    assert hidden is not None
    assert (hidden.pid, hidden.shares) == (7, (SHARE,))
    assert owners.owner(7) == hidden


@pytest.mark.parametrize("place", ["", "unified"])
def test_owner_looks_at_its_containers_cgroup_alone_when_that_is_found(
    proc: FakeProc, owners: ProcOwners, place: str
) -> None:
    group = proc.path.parent / "sys/fs/cgroup" / place / CGROUP.removeprefix("0::/")
    (group / "below").mkdir(parents=True)
    (group / "cgroup.procs").write_text("6\n")
    (group / "below/cgroup.procs").write_text("7\n")
    proc.add(6, cgroup=CGROUP, mounts=(MOUNT,))
    proc.add(7, cgroup=f"{CGROUP}/below")
    # It says so, but is in none of the groups.
    proc.add(8, cgroup=CGROUP, mounts=(MOUNT.replace("-0 ", "-5 "),))

    owner = owners.owner(7)

    assert owner is not None
    assert owner.shares == (SHARE,)


def test_owner_looks_through_a_container_once_for_many_that_show_no_mounts(proc: FakeProc) -> None:
    owners = ProcOwners(proc=proc.path, run_dir=RUN, now_s=iter((0.0, 0.9, 1.1)).__next__)
    shares = []
    for pid in (7, 8, 9):
        proc.add(pid, cgroup=CGROUP)
        owner = owners.owner(pid)
        assert owner is not None
        shares.append(owner.shares)
        proc.add(6, cgroup=CGROUP, mounts=(MOUNT,))

    assert shares == [(), (), (SHARE,)]


def test_owner_sees_the_run_folder_where_it_is_when_it_was_mounted_anew(
    proc: FakeProc, owners: ProcOwners
) -> None:
    proc.add(7, cgroup=CGROUP, mounts=(MOUNT,))
    proc.add(8, cgroup=CGROUP.replace("ab", "cd"), mounts=(MOUNT.replace("0:21", "0:77"),))
    first = owners.owner(7)
    own = proc.path / "self/mountinfo"
    own.write_text(own.read_text().replace("0:21", "0:77"))

    second = owners.owner(8)

    assert first is not None
    assert second is not None
    assert (first.shares, second.shares) == ((SHARE,), (SHARE,))
