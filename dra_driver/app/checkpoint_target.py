"""Which container a person means, and whether a checkpoint of it can be taken at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dra_driver.errors import FatalError, SettingsError
from dra_driver.plan.kubelet_answers import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundContainer:
    """A running container.

    Attributes:
        has_claims: it uses claims, be they of this driver or another.
    """

    asked: Asked
    pod_uid: str
    has_claims: bool


def find_container(pod: Mapping[str, Any], *, container: str, timeout_s: int) -> FoundContainer:
    """Find it in a pod.

    Args:
        pod: as the API server has it.
        container: its name; empty where the pod has one only.
        timeout_s: how long a checkpoint may take.

    Raises:
        SettingsError: the pod has no such container, or several and none is named.
        FatalError: it does not run.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    where = f"pod {metadata['namespace']}/{metadata['name']}"
    name = _chosen(where, spec, container)
    node = spec.get("nodeName")
    if not node:
        raise FatalError(f"{where} is on no node yet: wait until it runs")
    _check_running(where, status, name)
    (own,) = (each for each in _containers(spec) if each["name"] == name)
    return FoundContainer(
        asked=Asked(
            node=node,
            namespace=metadata["namespace"],
            pod=metadata["name"],
            container=name,
            timeout_s=timeout_s,
        ),
        pod_uid=metadata["uid"],
        has_claims=bool((own.get("resources") or {}).get("claims"))
        or "extendedResourceClaimStatus" in status,
    )


def _check_running(where: str, status: Mapping[str, Any], name: str) -> None:
    states = {
        each["name"]: each.get("state") or {}
        for field in ("containerStatuses", "initContainerStatuses")
        for each in status.get(field) or ()
    }
    if "running" not in states.get(name, {}):
        now = ", ".join(states.get(name, {})) or str(status.get("phase", "unknown"))
        raise FatalError(f"container {name} of {where} does not run ({now}): wait until it does")


def _chosen(where: str, spec: Mapping[str, Any], container: str) -> str:
    names = [each["name"] for each in _containers(spec)]
    own = [each["name"] for each in spec["containers"]]
    if container:
        if container not in names:
            raise SettingsError(
                f"--container is {container!r}: {where} has no such container; give one of"
                f" {', '.join(names)}"
            )
        return container
    if len(own) > 1:
        raise SettingsError(
            f"--container is not set: {where} has several; give one of {', '.join(own)}"
        )
    return str(own[0])


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those that can run for long: sidecars among them."""
    sidecars = [
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    return [*spec["containers"], *sidecars]
