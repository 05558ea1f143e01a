"""Who is behind a process on a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOwner:
    """What the kernel says of a process.

    Attributes:
        started: start time in clock ticks after boot, field 22 of /proc/<pid>/stat.
        parent: its parent's pid, as it was when the process was looked at; 0 where there is none.
        pod_uid: from its cgroup; None outside pods.
        container_id: from its cgroup; None outside containers.
        shares: ids of shares whose folders it has mounted, sorted; of one that shows none, those of
            its container. A container cannot add any, but hide them all from the kernel's list.
        claims: the same of UIDs of claims whose markers are mounted.
    """

    pid: int
    started: int
    parent: int = 0
    pod_uid: str | None = None
    container_id: str | None = None
    shares: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaims:
    """Claims of one container.

    Attributes:
        claims: namespace is the pod's; names sorted.
        cdi_ids: fully qualified CDI devices of this driver and others, sorted.
    """

    namespace: str
    pod: str
    container: str
    claims: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
