"""What the embedded kubelet is told and what it says, in the real one's words and times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dra_driver.errors import GpusliceError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.health import HealthRow

PLUGIN_TYPE = "DRAPlugin"

Identity = tuple[int, int]
"""Inode and change time of a file; the number of a removed one is soon given to the next."""


class KubeletError(GpusliceError):
    """A pod's claims could not be prepared or unprepared; the text is what its Event would say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletTimes:
    """The real kubelet's times in seconds (1.34 to 1.37), except `poll_s`; tests shorten them.

    Attributes:
        start_wipe_s: from its start until it has deleted the node's ResourceSlices; it races with
            registration.
        wipe_s: after a driver's last connection has gone.
        backoff_s, backoff_max_s: between tries of a registration, doubled each time.
    """

    poll_s: float = 0.1
    get_info_s: float = 1.0
    notify_s: float = 5.0
    call_s: float = 45.0
    backoff_s: float = 0.5
    backoff_max_s: float = 122.0
    start_wipe_s: float = 0.55
    wipe_s: float = 30.0
    health_restart_s: float = 5.0
    health_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How this kubelet behaves where versions differ, and how it misbehaves on request.

    Attributes:
        services: DRA services that it knows.
        health_services: most preferred first.
        append_devices: a repeated prepare appends its devices to those it had (up to 1.34).
        refuse: text with which every registration is refused; empty: none is.
        cancel_after_s: give up on every prepare and unprepare after so long.
    """

    services: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    health_services: tuple[str, ...] = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
    append_devices: bool = False
    refuse: str = ""
    cancel_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletClaim:
    """A claim of a pod, with the drivers that have results in its allocation."""

    ref: ClaimRef
    drivers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDetails:
    """What a driver said of itself.

    Attributes:
        socket: the registration socket.
        identity: of that socket; another one at the same path is another registration.
        versions: in the driver's order.
    """

    socket: Path
    identity: Identity
    driver: str
    endpoint: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationTry:
    """One try to register what stands at a socket; `error` is empty where it succeeded."""

    socket: Path
    driver: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """One device's health as it came.

    Attributes:
        updated_s: the driver's own time of it, seconds since the epoch.
        received_s: on the kubelet's monotonic clock.
    """

    row: HealthRow
    updated_s: int
    received_s: float


def refusal(kind: str, details: PluginDetails, manners: Manners) -> str:
    """Why the kubelet would not have this plugin, before it looks at its neighbours; or ""."""
    prefix = "RegisterPlugin error -- "
    if kind != PLUGIN_TYPE:
        return f"{prefix}no handler registered for plugin type: {kind} at socket {details.socket}"
    if manners.refuse:
        return f"{prefix}plugin validation failed with err: {manners.refuse}"
    invalid = (
        f"{prefix}plugin validation failed with err: invalid supported gRPC versions of DRA driver"
        f" plugin {details.driver} at endpoint {details.endpoint}:"
    )
    if not details.versions:
        return f"{invalid} empty list of supported gRPC services (aka supported versions)"
    if chosen(details.versions, manners.services) is None:
        return (
            f"{invalid} none of services supported by the plugin ({_quoted(details.versions)}) are"
            f" supported by the kubelet ({_quoted(manners.services)})"
        )
    return ""


def chosen(offered: tuple[str, ...], known: tuple[str, ...]) -> str | None:
    """The first offered service that is known: the driver's order is its preference."""
    return next((service for service in offered if service in known), None)


def _quoted(names: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"
