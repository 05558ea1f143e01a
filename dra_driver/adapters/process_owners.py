"""What a process belongs to, as the kernel tells it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from dra_driver.adapters.cgroup_files import groups_of, members
from dra_driver.adapters.cgroup_names import pod_and_container
from dra_driver.adapters.mountinfo import Mount, mounts, place_of
from dra_driver.errors import AdapterError
from dra_driver.model.owner import ProcessOwner

_SHARES, _CLAIMS = "shares", "claims"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_NUMBER = re.compile(r"[0-9]{1,20}")
_ENDED = ("Z", "X", "x")
_TRIES = 3
_REMEMBERED = 1024
_PARENT = 1
"""Field 4 of /proc/<pid>/stat, counted from field 3."""
_START_TIME = 19
"""Field 22 of /proc/<pid>/stat, counted from field 3: a program's name may hold anything."""
_FRESH_S = 1.0
"""How long one look through a container's processes serves all of them: a tenant may have many."""
_GONE = (
    errno.ENOENT,
    errno.ESRCH,
    # Of a process that has ended and was not waited for: it has no mounts any more.
    errno.EINVAL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Container:
    """What its processes have mounted, as seen a moment ago."""

    shares: tuple[str, ...]
    claims: tuple[str, ...]
    until_s: float


class ProcOwners:
    """`ProcessOwners` on /proc; safe to use from several threads.

    A mount is known by the file system and the folder in it, which a container cannot forge; where
    it is mounted says nothing. But a process can hide its mounts: those that it cannot reach from
    the root that it chose are not listed. So one without any belongs to what another process of
    its container has mounted.

    Args:
        proc: the host's /proc; pids are those that it shows. The host's /sys beside it tells the
            processes of a container; without that all of the host's are looked through.
        run_dir: the run folder of the node, as this process sees it.
        now_s: a clock in seconds.
    """

    def __init__(self, *, proc: Path, run_dir: str, now_s: Callable[[], float] = monotonic) -> None:
        self._proc = proc
        self._cgroups = proc.parent / "sys/fs/cgroup"
        self._run_dir = run_dir
        self._now_s = now_s
        self._place: tuple[tuple[str, str], Mount] | None = None
        self._known: dict[tuple[int, int], ProcessOwner] = {}
        self._containers: dict[str, _Container] = {}

    def owner(self, pid: int) -> ProcessOwner | None:
        for _ in range(_TRIES):
            stat = self._stat(str(pid))
            if stat is None:
                return None
            started = int(stat[_START_TIME])
            known = self._known.get((pid, started))
            if known is None:
                run = self._run_place()
                known = self._with_container(self._read(pid, stat, run), run)
            # What was read between belongs to one process only if the pid is still the same's.
            if known is not None and self._started(pid) == started:
                self._remember(known)
                return known
        return None

    def _read(self, pid: int, stat: list[str], run: Mount) -> ProcessOwner | None:
        thread = self._living_thread(pid, stat)
        if thread is None:
            return None
        cgroup, mountinfo = self._text(f"{thread}/cgroup"), self._text(f"{thread}/mountinfo")
        if cgroup is None or mountinfo is None:
            return None
        pod_uid, container_id = pod_and_container(cgroup)
        shares, claims = _mounted(mountinfo, run)
        return ProcessOwner(
            pid=pid,
            started=int(stat[_START_TIME]),
            parent=int(stat[_PARENT]),
            pod_uid=pod_uid,
            container_id=container_id,
            shares=shares,
            claims=claims,
        )

    def _with_container(self, owner: ProcessOwner | None, run: Mount) -> ProcessOwner | None:
        """Add what the rest of its container has mounted to a process that shows nothing."""
        if owner is None or owner.container_id is None or owner.shares or owner.claims:
            return owner
        now_s = self._now_s()
        known = self._containers.get(owner.container_id)
        if known is None or now_s >= known.until_s:
            shares, claims = self._look_through(owner, owner.container_id, run)
            known = _Container(shares=shares, claims=claims, until_s=now_s + _FRESH_S)
            if len(self._containers) >= _REMEMBERED:
                self._containers.clear()
            self._containers[owner.container_id] = known
        return replace(owner, shares=known.shares, claims=known.claims)

    def _look_through(
        self, owner: ProcessOwner, container_id: str, run: Mount
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the other processes of a container have mounted, shares and claims."""
        shares: set[str] = set()
        claims: set[str] = set()
        beside = self._beside(owner.pid, container_id)
        for pid in beside if beside is not None else self._pids():
            other = self._of_container(pid, container_id, run) if pid != owner.pid else None
            if other is not None:
                shares.update(other.shares)
                claims.update(other.claims)
        return tuple(sorted(shares)), tuple(sorted(claims))

    def _beside(self, pid: int, container_id: str) -> set[int] | None:
        """Processes of its container by the cgroup of that; None: it is not found.

        A process may be in a group of its own below the container's.
        """
        text = self._text(f"{pid}/cgroup") or ""
        for group in groups_of(self._cgroups, pid=pid, text=text):
            for each in (group, *group.parents):
                if container_id in each.name:
                    return members(each)
        return None

    def _of_container(self, pid: int, container_id: str, run: Mount) -> ProcessOwner | None:
        """A process if it is in this container; most others end at one read."""
        cgroup = self._text(f"{pid}/cgroup")
        if cgroup is None or container_id not in cgroup:
            return None
        stat = self._stat(str(pid))
        other = self._read(pid, stat, run) if stat is not None else None
        if other is None or other.container_id != container_id:
            return None
        return other if self._started(pid) == other.started else None

    def _pids(self) -> tuple[int, ...]:
        try:
            names = [each.name for each in self._proc.iterdir()]
        except OSError as error:
            raise AdapterError(f"cannot list {self._proc}: {error.strerror}") from error
        return tuple(int(name) for name in names if name.isdecimal())

    def _remember(self, owner: ProcessOwner) -> None:
        """A container's mounts stay; a process without may be one that a runtime is preparing."""
        if not owner.shares and not owner.claims:
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[owner.pid, owner.started] = owner

    def _started(self, pid: int) -> int | None:
        fields = self._stat(str(pid))
        return int(fields[_START_TIME]) if fields is not None else None

    def _living_thread(self, pid: int, stat: list[str]) -> str | None:
        """Folder of a thread that has mounts; None where the process has ended.

        A first thread may end before the others; what it belonged to is not told of it any more.
        """
        if stat[0] not in _ENDED:
            return str(pid)
        try:
            threads = sorted(each.name for each in (self._proc / str(pid) / "task").iterdir())
        except OSError:
            return None
        for thread in threads:
            fields = self._stat(f"{pid}/task/{thread}")
            if fields is not None and fields[0] not in _ENDED:
                return f"{pid}/task/{thread}"
        return None

    def _stat(self, folder: str) -> list[str] | None:
        """Fields of `stat` from the third, the state; None where there is no such process."""
        text = self._text(f"{folder}/stat")
        if text is None:
            return None
        fields = text.rpartition(")")[2].split()
        if len(fields) <= _START_TIME or not _NUMBER.fullmatch(fields[_START_TIME]):
            raise AdapterError(
                f"{self._proc}/{folder}/stat is not as proc(5) has it: check --host-root"
            )
        return fields

    def _run_place(self) -> Mount:
        """The run folder's file system and its folder there; it may be mounted anew meanwhile."""
        seen = (os.path.realpath(self._run_dir), self._text("self/mountinfo") or "")
        known = self._place
        if known is not None and known[0] == seen:
            return known[1]
        place = place_of(*seen)
        if place is None:
            raise AdapterError(
                f"cannot tell where {self._run_dir} is mounted from {self._proc}/self/mountinfo: "
                "check --run-dir and --host-root"
            )
        self._place = seen, place
        return place

    def _text(self, name: str) -> str | None:
        """A file of a process; None where that has ended."""
        path = f"{self._proc}/{name}"
        try:
            # Called in scores at a dump, when pathlib would take longer than the kernel.
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                return file.read().decode(errors="replace")
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise AdapterError(
                f"cannot read {path}: {error.strerror}; run as root of the host, with its pids"
            ) from error


def _mounted(mountinfo: str, run: Mount) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of shares and of claims whose folders are mounted, each sorted."""
    found: dict[str, set[str]] = {_SHARES: set(), _CLAIMS: set()}
    above = f"{run.root.rstrip('/')}/"
    for mount in mounts(mountinfo, device=run.device):
        if not mount.root.startswith(above):
            continue
        kind, _, identity = mount.root.removeprefix(above).partition("/")
        if kind in found and _ID.fullmatch(identity):
            found[kind].add(identity)
    return tuple(sorted(found[_SHARES])), tuple(sorted(found[_CLAIMS]))
