"""What the MPS supervisor keeps: <run-dir>/mpsd/<gpu>.json, one file for each GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dra_driver import log
from dra_driver.adapters.damaged import LONGEST_REASON, set_aside
from dra_driver.adapters.durable import DurableFolder
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import ComputeMode, DesiredShares, Proof
from dra_driver.model.share import Expose, GpuShare, OnExceed, Qos, Sharing

_log = log.get(__name__)

_VERSION = "gpuslice.io/mpsd/v1"
_ENDING = ".json"

T = TypeVar("T")


class SharesFiles:
    """`MpsStore` in the run folder.

    Entries of another boot are removed, as their daemons, modes and pods are gone with it. A proof
    made with another driver is left out.

    Args:
        run_dir: the run folder.
        boot_id: of this boot.
        driver_version: of the driver that runs now; None where none does.
    """

    def __init__(
        self, run_dir: Path, *, boot_id: str, driver_version: Callable[[], str | None]
    ) -> None:
        self._folder = DurableFolder(run_dir / "mpsd", setting="--run-dir", mode=0o600)
        self._boot_id = boot_id
        self._driver_version = driver_version

    def load(self) -> Mapping[GpuUuid, DesiredShares]:
        self._folder.sweep()
        kept = (self._entry(name) for name in self._folder.names() if _is_entry(name))
        return {each.gpu: each for each in kept if each is not None}

    def save(self, desired: DesiredShares) -> None:
        body = {
            "version": _VERSION,
            "bootId": self._boot_id,
            "driverVersion": self._driver_version(),
            "gpu": desired.gpu,
            "shares": [_share_json(share) for share in desired.shares],
            "modeBefore": desired.mode_before.value if desired.mode_before else None,
            "proof": _proof_json(desired.proof),
        }
        # Not indented: that has no fast encoder, and every share of the GPU waits for this.
        content = json.dumps(body, sort_keys=True) + "\n"
        # It has to outlive this process, and no boot: no disk is waited for.
        self._folder.place(f"{desired.gpu}{_ENDING}", content.encode(), lasting=False)

    def forget(self, gpu: GpuUuid) -> None:
        self._folder.unlink(f"{gpu}{_ENDING}")

    def _entry(self, name: str) -> DesiredShares | None:
        with self._folder.reported(f"read {name} from"):
            content = self._folder.read(name)
        if not content:
            # A power cut leaves an empty one where the run folder is on a disk; its boot is gone.
            if content is not None:
                self._folder.unlink(name)
            return None
        try:
            body = json.loads(content)
            if body["bootId"] != self._boot_id:
                self._folder.unlink(name)
                return None
            return _desired(body, name, self._driver_version())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._set_aside(name, f"{type(error).__name__}: {error}")
            return None

    def _set_aside(self, name: str, reason: str) -> None:
        aside = set_aside(self._folder, name)
        _log.error(
            "Set aside a damaged entry of the MPS supervisor",
            file=str(aside),
            reason=reason[:LONGEST_REASON],
        )


def _is_entry(name: str) -> bool:
    return name.endswith(_ENDING) and not name.startswith(".")


def _share_json(share: GpuShare) -> dict[str, Any]:
    return {
        "id": share.id,
        "sharing": share.sharing.value,
        "computePercent": share.compute_percent,
        "memoryMib": share.memory_mib,
        "priority": share.priority,
        "qos": share.qos.value,
        "onExceed": share.on_exceed.value,
        "expose": share.expose.value,
    }


def _proof_json(proof: Proof | None) -> dict[str, Any] | None:
    if proof is None:
        return None
    return {"controlOnly": proof.control_only, "reason": proof.reason}


def _desired(body: Mapping[str, Any], name: str, driver_version: str | None) -> DesiredShares:
    if body["version"] != _VERSION:
        raise ValueError(f"another release of gpuslice wrote it ({body['version']})")
    gpu = GpuUuid(_typed(str, body["gpu"]))
    if f"{gpu}{_ENDING}" != name:
        raise ValueError(f"it speaks of GPU {gpu}")
    mode = body.get("modeBefore")
    proof = body.get("proof") if body.get("driverVersion") == driver_version else None
    shares = (_share(gpu, each) for each in body["shares"])
    return DesiredShares(
        gpu=gpu,
        shares=tuple(sorted(shares, key=lambda share: share.id)),
        mode_before=ComputeMode(mode) if mode is not None else None,
        proof=_proof(proof) if proof is not None else None,
    )


def _share(gpu: GpuUuid, body: Mapping[str, Any]) -> GpuShare:
    return GpuShare(
        id=_typed(str, body["id"]),
        gpu=gpu,
        sharing=Sharing(body["sharing"]),
        compute_percent=_typed(int, body["computePercent"]),
        memory_mib=_typed(int, body["memoryMib"]),
        priority=_typed(int, body["priority"]),
        qos=Qos(body["qos"]),
        on_exceed=OnExceed(body["onExceed"]),
        expose=Expose(body["expose"]),
    )


def _proof(body: Mapping[str, Any]) -> Proof:
    control_only = body["controlOnly"]
    if control_only is not None:
        _typed(bool, control_only)
    return Proof(control_only=control_only, reason=_typed(str, body["reason"]))


def _typed(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value
