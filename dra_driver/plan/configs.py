"""Which opaque config holds for each allocated device.

Entries replace each other as wholes: of those that cover a device and fit its kind the last one
holds, a claim's after its class's. Fields are not merged, so what holds can be read in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from dra_api.config import ConfigError, decode
from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.claim import AllocationResult, Claim, ConfigEntry
from dra_driver.model.config import DeviceConfig, GpuConfig, SliceConfig


class DeviceKind(Enum):
    """What an allocation result is, as far as configs are concerned; the value is for people."""

    SHARE = "a share of a GPU"
    SLOT = "a slot of a GPU"
    WHOLE = "a whole GPU"
    MONITOR = "a monitor"
    ADMIN = "a GPU with admin access"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The config that holds for one device, and where it stands."""

    value: DeviceConfig
    path: str


def applied_configs(claim: Claim, kinds: Sequence[DeviceKind]) -> tuple[Applied | None, ...]:
    """Give what holds for each of the claim's results; `kinds` is parallel to them.

    An entry that names a request must fit its devices. One without requests covers all, is skipped
    where it does not fit, and must fit one. Admin access reconfigures nothing: no entry applies.

    Raises:
        ClaimRejected: an entry cannot be decoded, or does not fit.
    """
    applied: list[Applied | None] = [None] * len(claim.results)
    if not claim.results:
        return ()
    for entry in claim.configs:
        value = _decoded(claim, entry)
        covered = [
            index for index, result in enumerate(claim.results) if entry.covers(result.request)
        ]
        fitting = [index for index in covered if _fits(value, kinds[index])]
        _check_fit(claim, entry, value, covered=covered, fitting=fitting, kinds=kinds)
        for index in fitting:
            applied[index] = Applied(value=value, path=entry.path)
    return tuple(applied)


def _decoded(claim: Claim, entry: ConfigEntry) -> DeviceConfig:
    try:
        return decode(entry.parameters, path=entry.path)
    except ConfigError as e:
        raise ClaimRejected(Reason.INVALID_CONFIG, f"claim {claim.ref}: {e}") from e


def _check_fit(
    claim: Claim,
    entry: ConfigEntry,
    value: DeviceConfig,
    *,
    covered: Sequence[int],
    fitting: Sequence[int],
    kinds: Sequence[DeviceKind],
) -> None:
    misfits = [
        index for index in covered if index not in fitting and kinds[index] is not DeviceKind.ADMIN
    ]
    if misfits and (entry.requests or not fitting):
        first = misfits[0]
        raise ClaimRejected(
            Reason.INVALID_CONFIG,
            f"claim {claim.ref}: {entry.path}, kind {type(value).__name__}: does not fit request "
            f"{claim.results[first].request}, which holds "
            f"{_described(claim.results[first], kinds[first])}: {_way_out(kinds[first])}",
        )


def _fits(value: DeviceConfig, kind: DeviceKind) -> bool:
    match kind:
        case DeviceKind.SHARE | DeviceKind.SLOT:
            return isinstance(value, SliceConfig)
        case DeviceKind.WHOLE:
            return isinstance(value, GpuConfig)
        case DeviceKind.MONITOR | DeviceKind.ADMIN:
            return False
        case _ as never:
            assert_never(never)


def _described(result: AllocationResult, kind: DeviceKind) -> str:
    return f"{kind.value} (device {result.device})"


def _way_out(kind: DeviceKind) -> str:
    match kind:
        case DeviceKind.SHARE | DeviceKind.SLOT:
            return "use kind SliceConfig, or name only requests for whole GPUs in `requests`"
        case DeviceKind.WHOLE:
            return (
                "use kind GpuConfig, or ask for a share: name compute or memory in the request's "
                "capacity.requests"
            )
        case DeviceKind.MONITOR | DeviceKind.ADMIN:
            return "it takes no config: name the other requests in `requests`"
        case _ as never:
            assert_never(never)
