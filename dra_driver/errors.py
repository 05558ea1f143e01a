"""The one error taxonomy.

GpusliceError
├── SettingsError        a flag, variable or file of ours is wrong           exit status 2
├── FatalError           the process cannot go on                            exit status 1
└── ClaimError           one claim cannot be prepared or unprepared now
    ├── ClaimRejected    permanent: the claim has to change
    └── NotReady         retryable: the same call may succeed later
and beside them AdapterError: a third party failed; edges turn it into one of the above.

Every text says what happened, to which object, and what to do next.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Machine-readable cause; a metric label and the reason of an Event, so CamelCase and few."""

    INVALID_CONFIG = "InvalidConfig"
    NOT_ALLOCATED = "NotAllocated"
    CLAIM_REPLACED = "ClaimReplaced"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    UNKNOWN_DEVICE = "UnknownDevice"
    NOT_SUPPORTED = "NotSupported"
    DEVICE_BUSY = "DeviceBusy"
    NODE_BUSY = "NodeBusy"
    DEVICE_IN_USE = "DeviceInUse"
    DEVICE_LOST = "DeviceLost"
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    OUT_OF_TIME = "OutOfTime"
    API_UNAVAILABLE = "ApiUnavailable"
    STATE_UNAVAILABLE = "StateUnavailable"
    STEP_FAILED = "StepFailed"
    SHUTTING_DOWN = "ShuttingDown"
    INTERNAL = "Internal"


class GpusliceError(Exception):
    """Base of all errors that this package raises on purpose."""


class SettingsError(GpusliceError):
    """A setting is unknown, malformed or impossible; the text names the flag and its value."""


class FatalError(GpusliceError):
    """The process cannot do its work and ends with status 1."""


class ClaimError(GpusliceError):
    """One claim cannot be prepared or unprepared.

    Args:
        reason: machine-readable cause.
        text: what happened, to which object, and what to do next; it reaches the pod's Events.
    """

    retryable = False

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ClaimRejected(ClaimError):  # noqa: N818 - reads as the verdict that it is
    """Permanent: trying again does not help, the claim or its class has to change."""


class NotReady(ClaimError):  # noqa: N818
    """Retryable: the kubelet calls again (after 60 to 90 s) and the call resumes."""

    retryable = True


class AdapterError(GpusliceError):
    """A third party (file system, API server, NVML, a program) failed; the text says which and how.

    Args:
        text: what failed and what to do next.
        permanent: True where the same request can never succeed (a 4xx, a full schema mismatch).
    """

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


class NotFound(AdapterError):  # noqa: N818
    """The object definitely does not exist (as opposed to: it could not be read)."""

    def __init__(self, text: str) -> None:
        super().__init__(text, permanent=True)


class Forbidden(AdapterError):  # noqa: N818
    """The API server refuses this identity, not this request: a right has to be granted."""

    def __init__(self, text: str) -> None:
        super().__init__(text, permanent=True)


class Conflict(AdapterError):  # noqa: N818
    """The object changed since it was read, or exists already: read again."""


class WatchExpired(AdapterError):  # noqa: N818
    """The resource version of a watch is too old (410): list again."""


class DriverNotLoaded(AdapterError):  # noqa: N818
    """The GPU driver is not there (yet); this is not the same as a node without GPUs."""


class MpsGone(AdapterError):  # noqa: N818
    """No MPS control daemon answers on this GPU's socket."""


class MpsHung(AdapterError):  # noqa: N818
    """An MPS control daemon does not answer in time: proof of a wedged server."""


class MpsDenied(AdapterError):  # noqa: N818
    """An MPS control daemon refuses this user."""

    def __init__(self, text: str) -> None:
        super().__init__(text, permanent=True)


class MpsUnverified(AdapterError):  # noqa: N818
    """An MPS control daemon holds another value than the one that was written."""


class MpsServerNotFound(AdapterError):  # noqa: N818
    """The MPS server that a command names has ended."""


class OutOfTime(AdapterError):  # noqa: N818
    """A third party did not finish by the deadline; what it did is not known."""


class CudaFailed(AdapterError):  # noqa: N818
    """The CUDA driver refused a transition of a process, or failed in it."""
