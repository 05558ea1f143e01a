"""Pods and containers by the names of their cgroups.

The kubelet calls a pod's cgroup "pod<uid>" (cgroupfs), or "kubepods-burstable-pod<uid>.slice" with
"_" for "-" (systemd); container runtimes put "<id>", "cri-containerd-<id>.scope", "crio-<id>.scope"
or "docker-<id>.scope" below. What stands above is the node's own business: a prefix of the kubelet,
or the whole path of a container that the node runs in.
"""

from __future__ import annotations

import re

_UID = r"[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}"
_HASH = r"[0-9a-fA-F]{32}"
"""UID of a static pod: the hash of its file."""
_POD = re.compile(rf"(?:.*-)?pod({_UID}|{_HASH})(?:\.slice)?")
_CONTAINER = re.compile(r"(?:([a-z][a-z-]*)-)?([0-9a-f]{64})(?:\.scope)?")
_MONITOR = "crio-conmon"
"""Cgroup of CRI-O's own process for a container."""


def pod_and_container(text: str) -> tuple[str | None, str | None]:
    """Pod UID and container id of a process, None where it is in none.

    Of pods inside each other the innermost counts: this driver's kubelet may run in a pod itself.

    Args:
        text: its /proc/<pid>/cgroup, of v1, v2 or both.
    """
    alone = None
    for line in text.split("\n"):
        _, _, path = line.partition(":")[2].partition(":")
        # systemd's "slice:runtime:id" stands as it is where the runtime does without systemd.
        names = path.removesuffix(" (deleted)").replace(":", "/").split("/")
        pods = [(at, match) for at, name in enumerate(names) if (match := _POD.fullmatch(name))]
        if pods:
            at, match = pods[-1]
            uid = match.group(1).replace("_", "-").lower()
            return uid, next(iter(_containers(names[at + 1 :])), None)
        alone = alone or next(iter(reversed(_containers(names))), None)
    return None, alone


def _containers(names: list[str]) -> list[str]:
    matches = (_CONTAINER.fullmatch(name) for name in names)
    return [match.group(2) for match in matches if match and match.group(1) != _MONITOR]
