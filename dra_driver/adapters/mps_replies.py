"""What nvidia-cuda-mps-control prints, and what it means; the same on releases 535 to 555.

Its exit status says only whether a daemon was reached: refusals are text, and wrong values are
taken in silence. Source: measured with the daemons of 535.261.03, 550.163.01 and 555.58.02.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dra_driver.errors import (
    AdapterError,
    MpsDenied,
    MpsGone,
    MpsServerNotFound,
    MpsUnverified,
)
from dra_driver.model.mps import MpsLimits, ServerStatus

_MEMORY = re.compile(r"^(\d+)([MG])$")
_PERCENT = re.compile(r"^\d+(\.\d+)?$")
_NO_SERVER = re.compile(r"^Server (\d+ )?not found")
_DENIED = ("Insufficient privileges", "Not enough privilege")
_UNKNOWN = "Unknown command"
_GONE = "Cannot find MPS control daemon process"
_MIB_PER_GIB = 1024
_LONGEST = 300
_MOST_PERCENT = 100


class MpsUnknownCommand(AdapterError):  # noqa: N818
    """This release of the daemon lacks a command."""

    def __init__(self, text: str) -> None:
        super().__init__(text, permanent=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReply:
    """A memory ceiling as the daemon shows it.

    Attributes:
        floored: shown in whole GiB, so up to 1023 MiB may be cut off.
    """

    mib: int
    floored: bool

    def is_of(self, wanted_mib: int) -> bool:
        """Whether the daemon shows this for a ceiling of `wanted_mib`."""
        if not self.floored:
            return self.mib == wanted_mib
        return self.mib == wanted_mib // _MIB_PER_GIB * _MIB_PER_GIB


def reply_lines(*, status: int, output: str, errors: str, daemon: str) -> tuple[str, ...]:
    """Lines of a reply that is no refusal; `daemon` names it in messages.

    Raises:
        MpsGone, MpsDenied, MpsServerNotFound: see there.
        MpsUnknownCommand: of a command in another release.
        AdapterError: the program failed in another way.
    """
    if status != 0:
        text = (errors.strip() or output.strip() or "no text")[:_LONGEST]
        if _GONE in errors or _GONE in output:
            raise MpsGone(f"no MPS control daemon answers for {daemon}: {_GONE}")
        raise AdapterError(f"nvidia-cuda-mps-control failed for {daemon} (status {status}): {text}")
    lines = tuple(line.strip() for line in output.splitlines() if line.strip())
    for line in lines:
        if line.startswith(_DENIED):
            raise MpsDenied(f"the MPS control daemon of {daemon} refuses this process: {line}")
        if line.startswith(_UNKNOWN):
            raise MpsUnknownCommand(
                f"the MPS control daemon of {daemon} does not know a command: {line}"
            )
        if _NO_SERVER.match(line):
            raise MpsServerNotFound(f"the MPS control daemon of {daemon} says: {line}")
    return lines


def check_limits(limits: MpsLimits) -> None:
    """Refuse what the daemon would take for something else."""
    if not 1 <= limits.compute_percent <= _MOST_PERCENT:
        raise AdapterError(
            f"{limits.compute_percent} is no percentage of compute: give 1 to 100", permanent=True
        )
    if limits.memory_mib is not None and limits.memory_mib < 1:
        raise AdapterError(
            f"{limits.memory_mib} MiB is no memory limit: give 1 or more", permanent=True
        )


def percent_of(line: str) -> float:
    """A percentage of active threads, 0 to 100."""
    if not _PERCENT.match(line):
        raise MpsUnverified(f"expected a percentage from the MPS control daemon, got {_cut(line)}")
    return float(line)


def memory_of(line: str) -> MemoryReply:
    match = _MEMORY.match(line)
    if match is None:
        raise MpsUnverified(
            f"expected an amount of memory from the MPS control daemon, got {_cut(line)}"
        )
    number, unit = int(match[1]), match[2]
    floored = unit == "G"
    return MemoryReply(mib=number * _MIB_PER_GIB if floored else number, floored=floored)


def pids_of(lines: tuple[str, ...]) -> tuple[int, ...]:
    """Process ids, in the order given."""
    for line in lines:
        if not line.isdecimal():
            raise AdapterError(f"expected process ids from the MPS daemon, got {_cut(line)}")
    return tuple(int(line) for line in lines)


def server_status_of(lines: tuple[str, ...]) -> ServerStatus:
    for status in ServerStatus:
        if lines and lines[-1].upper().startswith(status.value.upper()):
            return status
    raise AdapterError(
        f"expected the status of an MPS server from its daemon, got {_cut(' '.join(lines))}"
    )


def _cut(text: str) -> str:
    return repr(text[:_LONGEST])
